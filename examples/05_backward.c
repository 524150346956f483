/* Chapter 5: the whole layer, forward and backward, from its single operations. The text is in
 * 05_backward.md. */
#include "lesson.h"

enum { B = 2, T = 5, D = 12, H = 3, DH = 4, N = B * T, X = N * D, S = B * H * T * T };
enum { PARAMS = 4 * D * D + 4 * D };

static const attn_shape shape = {B, H, T, T, DH};
static const attn_mask mask = {.causal = true};

/* Every array of one layer, by its letter. */
typedef struct layer {
    attn_real x[X], q[X], k[X], v[X], qh[X], kh[X], vh[X], s[S], p[S], oh[X], o[X], y[X];
} layer;

static void forward(layer *a, const attn_mha_params *w, double scale) {
    must(attn_linear_forward(a->q, a->x, w->wq, w->bq, N, D, D)); /*  1. (B,T,D)   -> (B,T,H·d) */
    must(attn_linear_forward(a->k, a->x, w->wk, w->bk, N, D, D)); /*  2. */
    must(attn_linear_forward(a->v, a->x, w->wv, w->bv, N, D, D)); /*  3. */
    must(attn_split_heads_forward(a->qh, a->q, B, T, H, DH));     /*  4. (B,T,H·d) -> (B,H,T,d) */
    must(attn_split_heads_forward(a->kh, a->k, B, T, H, DH));     /*  5. */
    must(attn_split_heads_forward(a->vh, a->v, B, T, H, DH));     /*  6. */
    must(attn_scores_forward(a->s, a->qh, a->kh, &mask, scale, &shape)); /*  7. (B,H,T,T) */
    must(attn_softmax_forward(a->p, NULL, a->s, B * H * T, T));          /*  8. (B,H,T,T) */
    must(attn_values_forward(a->oh, a->p, a->vh, &mask, &shape));        /*  9. (B,H,T,d) */
    must(attn_merge_heads_forward(a->o, a->oh, B, T, H, DH));     /* 10. (B,H,T,d) -> (B,T,H·d) */
    must(attn_linear_forward(a->y, a->o, w->wo, w->bo, N, D, D)); /* 11. (B,T,H·d) -> (B,T,D) */
}

/* The steps of the forward, undone from last to first. `d` has the letters of `a`. */
static void backward(layer *d, const layer *a, const attn_mha_params *w, const attn_mha_params *dw,
                     double scale) {
    attn_real from_k[X], from_v[X];
    must(attn_linear_backward(d->o, dw->wo, dw->bo, d->y, a->o, w->wo, N, D, D));       /* 11 */
    must(attn_merge_heads_backward(d->oh, d->o, B, T, H, DH));                          /* 10 */
    must(attn_values_backward(d->p, d->vh, d->oh, a->p, a->vh, &mask, &shape));         /*  9 */
    must(attn_softmax_backward(d->s, d->p, a->p, B * H * T, T));                        /*  8 */
    must(attn_scores_backward(d->qh, d->kh, d->s, a->qh, a->kh, &mask, scale, &shape)); /*  7 */
    must(attn_split_heads_backward(d->v, d->vh, B, T, H, DH));                          /*  6 */
    must(attn_split_heads_backward(d->k, d->kh, B, T, H, DH));                          /*  5 */
    must(attn_split_heads_backward(d->q, d->qh, B, T, H, DH));                          /*  4 */
    must(attn_linear_backward(from_v, dw->wv, dw->bv, d->v, a->x, w->wv, N, D, D));     /*  3 */
    must(attn_linear_backward(from_k, dw->wk, dw->bk, d->k, a->x, w->wk, N, D, D));     /*  2 */
    must(attn_linear_backward(d->x, dw->wq, dw->bq, d->q, a->x, w->wq, N, D, D));       /*  1 */
    for (size_t i = 0; i < X; i++) /* x was used three times: its gradients add up */
        d->x[i] += from_k[i] + from_v[i];
}

int main(void) {
    static layer a, d;
    static attn_real theta[PARAMS], dtheta[PARAMS], dtheta_layer[PARAMS], y[X], dx[X];
    attn_mha_config cfg = {.d_model = D, .num_heads = H, .bias = true, .max_threads = 1};
    attn_mha_params w = attn_mha_params_view(&cfg, theta);
    attn_mha_params dw = attn_mha_params_view(&cfg, dtheta);
    attn_mha_params dw_layer = attn_mha_params_view(&cfg, dtheta_layer);
    fill(theta, PARAMS, 0.3, 1);
    fill(a.x, X, 1, 2);
    fill(d.y, X, 1, 3);

    forward(&a, &w, attn_default_scale(DH));
    backward(&d, &a, &w, &dw, attn_default_scale(DH));

    attn_mha_input in = {.batch = B, .len_q = T, .query = a.x, .mask = mask};
    attn_memory need;
    attn_arena arena;
    attn_mha_saved saved;
    must(attn_mha_memory(&cfg, &in, &need));
    must(attn_arena_create(&arena, need.training));
    must(attn_mha_forward(&cfg, &w, &in, y, &arena, &saved));
    must(attn_mha_backward(&cfg, &w, &saved, d.y, &dw_layer, &(attn_mha_input_grads){.query = dx},
                           &arena));
    printf("one layer, (B,T,D,H) = (%d,%d,%d,%d), causal, step by step against attn_mha_*\n", B, T,
           D, H);
    printf("  largest difference: y %.1e   dx %.1e   parameters %.1e\n", distance(a.y, y, X),
           distance(d.x, dx, X), distance(dtheta, dtheta_layer, PARAMS));
    claim(distance(a.y, y, X) < 1e-5, "eleven steps forward are the layer");
    claim(distance(d.x, dx, X) < 1e-5 && distance(dtheta, dtheta_layer, PARAMS) < 1e-4,
          "eleven steps back are its gradient");
    show("P, head 0", a.p, T, T);
    claim(a.p[1] == 0 && d.s[1] == 0, "a blocked pair has weight 0 and gradient 0");
    printf("  arena: %zu bytes for the step, %zu of them kept between forward and backward\n",
           need.training, need.saved);
    claim(arena.high_water == need.training, "known to the byte beforehand");
    attn_arena_destroy(&arena);
    return 0;
}
