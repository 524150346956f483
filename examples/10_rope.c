/* Chapter 10: rotary positions. The text is in 10_rope.md. */
#include "lesson.h"

enum { D_HEAD = 8, T = 9, D = 16, H = 2 };

/* One row of one head at one position. */
static void turn(attn_real *y, const attn_real *x, attn_rope pairing, int64_t position, size_t d) {
    attn_strides strides = attn_strides_bhtd(1, 1, d);
    attn_rope_config rope = {.pairing = pairing, .position = position};
    must(attn_rope_forward(y, x, &strides, &rope, 1, 1, 1, d));
}

static double dot(const attn_real *a, const attn_real *b, size_t n) {
    double sum = 0;
    for (size_t c = 0; c < n; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

/* The score of q at position p and k at position s, before the scale. */
static double score(const attn_real *q, const attn_real *k, attn_rope for_q, attn_rope for_k,
                    int64_t p, int64_t s) {
    attn_real turned_q[D_HEAD], turned_k[D_HEAD];
    turn(turned_q, q, for_q, p, D_HEAD);
    turn(turned_k, k, for_k, s, D_HEAD);
    return dot(turned_q, turned_k, D_HEAD);
}

static void one_row(void) {
    const attn_real x[4] = {1, 2, 3, 4};
    attn_real interleaved[4], half[4];
    turn(interleaved, x, ATTN_ROPE_INTERLEAVED, 1, 4);
    turn(half, x, ATTN_ROPE_HALF, 1, 4);
    printf("x at position 1: pairs (0,1), (2,3) or (0,2), (1,3); angles 1 and 0.01\n");
    show("x", x, 1, 4);
    show("interl.", interleaved, 1, 4);
    show("half", half, 1, 4);
    claim(fabs((double)interleaved[0] - (1 * cos(1) - 2 * sin(1))) < 1e-6 &&
              fabs((double)half[0] - (1 * cos(1) - 3 * sin(1))) < 1e-6,
          "each pair is turned by its own angle");
}

static void only_the_distance(void) {
    attn_real q[D_HEAD], k[D_HEAD];
    const attn_rope half = ATTN_ROPE_HALF;
    fill(q, D_HEAD, 1, 1);
    fill(k, D_HEAD, 1, 2);
    printf("\nthe score of one q and one k\n   position of q, of k    score\n");
    const int64_t places[][2] = {{3, 0}, {103, 100}, {-47, -50}, {100003, 100000}, {4, 0}, {0, 3}};
    for (size_t n = 0; n < 6; n++)
        printf("   %10lld %8lld %8.4f\n", (long long)places[n][0], (long long)places[n][1],
               score(q, k, half, half, places[n][0], places[n][1]));
    double near = score(q, k, half, half, 3, 0);
    claim(fabs(near - score(q, k, half, half, 100003, 100000)) < 1e-5,
          "three positions apart is three positions apart, anywhere");
    claim(fabs(near - score(q, k, half, half, 0, 3)) > 1e-2, "but before is not after");
}

/* Rows of the other pairing: elements 2m and 2m + 1 go to m and m + d/2. */
static void the_silent_mistake(void) {
    attn_real q[D_HEAD], k[D_HEAD], moved_q[D_HEAD], moved_k[D_HEAD];
    const attn_rope inter = ATTN_ROPE_INTERLEAVED, half = ATTN_ROPE_HALF;
    fill(q, D_HEAD, 1, 1);
    fill(k, D_HEAD, 1, 2);
    for (size_t m = 0; m < D_HEAD / 2; m++)
        for (size_t part = 0; part < 2; part++) {
            moved_q[m + part * D_HEAD / 2] = q[2 * m + part];
            moved_k[m + part * D_HEAD / 2] = k[2 * m + part];
        }
    printf("\na model trained with interleaved pairs, run with the halves\n");
    for (int64_t p = 0; p < 40; p += 13)
        printf("   distance %2lld: %8.4f is right, %8.4f comes out, %8.4f with rows moved\n",
               (long long)p, score(q, k, inter, inter, p, 0), score(q, k, half, half, p, 0),
               score(moved_q, moved_k, half, half, p, 0));
    claim(fabs(score(q, k, inter, inter, 13, 0) - score(q, k, half, half, 13, 0)) > 1e-2 &&
              fabs(score(q, k, inter, inter, 0, 0) - score(q, k, half, half, 0, 0)) < 1e-5,
          "wrong, yet finite, of the right size, and right at distance 0");
    claim(fabs(score(q, k, inter, inter, 13, 0) - score(moved_q, moved_k, half, half, 13, 0)) <
              1e-5,
          "moving the rows of Wq and Wk changes one pairing into the other");
}

static void backward_turns_back(void) {
    const attn_strides strides = attn_strides_bhtd(T, 1, D_HEAD);
    const attn_rope_config rope = {.pairing = ATTN_ROPE_HALF, .position = 20};
    attn_real x[T * D_HEAD], y[T * D_HEAD], dy[T * D_HEAD], dx[T * D_HEAD], back[T * D_HEAD];
    fill(x, T * D_HEAD, 1, 3);
    fill(dy, T * D_HEAD, 1, 4);
    must(attn_rope_forward(y, x, &strides, &rope, 1, 1, T, D_HEAD));
    must(attn_rope_backward(dx, dy, &strides, &rope, 1, 1, T, D_HEAD));
    must(attn_rope_backward(back, y, &strides, &rope, 1, 1, T, D_HEAD));
    printf("\nbackward\n   y·dy = %.5f, x·dx = %.5f\n", dot(y, dy, T * D_HEAD),
           dot(x, dx, T * D_HEAD));
    claim(fabs(dot(y, dy, T * D_HEAD) - dot(x, dx, T * D_HEAD)) < 1e-4,
          "the backward is the transpose");
    claim(distance(x, back, T * D_HEAD) < 1e-5, "which for a rotation is the way back");
}

/* The same cosine from an angle in float and in double. */
static void where_float_ends(void) {
    const float step = powf(10000, -2.0f / 64);
    const double exact_step = pow(10000, -2.0 / 64);
    printf("\ncos(position * base^(-2/64)), the angle in float and in double\n");
    const long positions[] = {100, 1000, 10007, 100003, 1000003, 16777217};
    double errors[6];
    for (size_t n = 0; n < 6; n++) {
        errors[n] =
            fabs((double)cosf((float)positions[n] * step) - cos((double)positions[n] * exact_step));
        printf("   position %9ld: error %.0e\n", positions[n], errors[n]);
    }
    claim(errors[0] < 1e-4 && errors[5] > 1e-2, "float does for short texts alone");
    claim((float)16777217 == (float)16777216, "in float 16,777,217 is not even a position");
    double at = 16777217 * exact_step;
    attn_real x[64] = {[2] = 1}, y[64];
    turn(y, x, ATTN_ROPE_INTERLEAVED, 16777217, 64);
    claim(fabs((double)y[2] - cos(at)) < 1e-6, "attn keeps 1e-6 there, in float too");
}

typedef struct layer {
    attn_mha_config cfg;
    attn_real theta[4 * D * D + 4 * D], dtheta[4 * D * D + 4 * D];
} layer;

/* y for the queries from token `first` on, which see every token up to themselves. */
static void run(layer *l, attn_real *y, const attn_real *x, size_t first, size_t count,
                const attn_real *dy) {
    attn_mha_params w = attn_mha_params_view(&l->cfg, l->theta);
    attn_mha_params dw = attn_mha_params_view(&l->cfg, l->dtheta);
    attn_mha_input in = {.batch = 1,
                         .len_q = count,
                         .len_k = first + count,
                         .query = x + first * D,
                         .key = x,
                         .value = x,
                         .mask = {.causal = true}};
    attn_memory need;
    attn_arena arena;
    attn_mha_saved saved;
    must(attn_mha_memory(&l->cfg, &in, &need));
    must(attn_arena_create(&arena, need.training));
    must(attn_mha_forward(&l->cfg, &w, &in, y, &arena, &saved));
    if (dy)
        must(attn_mha_backward(&l->cfg, &w, &saved, dy, &dw, NULL, &arena));
    attn_arena_destroy(&arena);
}

static void in_the_layer(void) {
    static layer turned = {.cfg = {.d_model = D, .num_heads = H, .bias = true}}, plain;
    static attn_real x[T * D], whole[T * D], parts[T * D], dy[T * D];
    fill(x, T * D, 1, 5);
    fill(dy, T * D, 1, 6);
    must(attn_mha_params_init(&turned.cfg, turned.theta, 7));
    plain = turned;
    turned.cfg.rope = ATTN_ROPE_HALF;
    run(&turned, whole, x, 0, T, dy);
    run(&turned, parts, x, 0, 6, NULL);
    for (size_t t = 6; t < T; t++)
        run(&turned, parts + t * D, x, t, 1, NULL);
    printf("\nin the layer\n");
    claim(distance(whole, parts, T * D) < 1e-5,
          "6 tokens and three steps of one are a pass over 9");
    run(&plain, parts, x, 0, T, dy);
    attn_real *dbk = attn_mha_params_view(&turned.cfg, turned.dtheta).bk;
    attn_real *plain_dbk = attn_mha_params_view(&plain.cfg, plain.dtheta).bk;
    printf("   norm of dbk: %.0e without rotary positions, %.3f with them\n",
           sqrt(dot(plain_dbk, plain_dbk, D)), sqrt(dot(dbk, dbk, D)));
    claim(dot(plain_dbk, plain_dbk, D) < 1e-8 && dot(dbk, dbk, D) > 1e-4,
          "the key bias counts now: turned, it differs from key to key");
}

int main(void) {
    one_row();
    only_the_distance();
    the_silent_mistake();
    backward_turns_back();
    where_float_ends();
    in_the_layer();
    return 0;
}
