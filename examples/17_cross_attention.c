/* Chapter 17: cross-attention. In double. The text is in 17_cross_attention.md. */
#include "core.h"

enum { D = 6, H = 2, LK = 5, CALLS = 3, NZ = LK * D, NX = CALLS * D };

static const attn_mha_config cfg = {.d_model = D, .num_heads = H, .bias = true};

/* Keys and values of z, projected once, serve all calls. One query a call, as a decoder asks. */
static attn_mha_input call_of(const attn_real *x, const attn_real *k, const attn_real *v) {
    return (attn_mha_input){
        .batch = 1, .len_q = 1, .len_k = LK, .query = x, .projected_key = k, .projected_value = v};
}

static attn_mha_input keys_of(const attn_real *z) {
    return (attn_mha_input){.batch = 1, .len_k = LK, .key = z, .value = z};
}

/* An arena for a training step of such a call. */
static attn_arena arena_of(const attn_mha_input *in) {
    attn_memory need;
    attn_arena arena;
    must(attn_mha_memory(&cfg, in, &need));
    must(attn_arena_create(&arena, need.training));
    return arena;
}

static void once_is_enough(const attn_mha_params *w, const attn_real *x, const attn_real *z) {
    attn_real k[NZ], v[NZ], once[NX], each_time[NX];
    const attn_mha_input keys = keys_of(z);
    must(attn_mha_keys_forward(&cfg, w, &keys, k, v));
    for (size_t t = 0; t < CALLS; t++) {
        const attn_mha_input in = call_of(x + t * D, k, v);
        attn_mha_input whole = {.batch = 1, .len_q = 1, .len_k = LK, .query = x + t * D};
        whole.key = whole.value = z;
        attn_arena arena = arena_of(&whole);
        must(attn_mha_forward(&cfg, w, &in, once + t * D, &arena, NULL));
        must(attn_mha_forward(&cfg, w, &whole, each_time + t * D, &arena, NULL));
        attn_arena_destroy(&arena);
    }
    printf("three calls on five encoded tokens\n");
    show("y", once, CALLS, D);
    claim(distance(once, each_time, NX) < 1e-14, "projecting z once gives what each call would");
}

/* Multiply-adds of the matrix products, in millions. */
static void what_it_saves(void) {
    const double d = 512, len_k = 400, steps = 100;
    const double keys = 2 * len_k * d * d, others = 2 * d * d + 2 * len_k * d;
    const double before = steps * (keys + others), after = keys + steps * others;
    printf("\nD = 512, 400 encoded tokens, 100 decoder steps: millions of multiply-adds\n");
    printf("  keys and values in every step   %8.0f\n", before / 1e6);
    printf("  keys and values once            %8.0f\n", after / 1e6);
    claim(before > 60 * after, "almost all of the work was repeated");
}

/* Where z, the queries and the parameters lie in the checked vector. */
typedef struct problem {
    size_t z, x, w;
} problem;

/* f = sum over the calls of r·y. Every call adds to dk and dv; one backward takes them to z. */
static attn_status decoder_loss(void *user, const attn_real *at, double *value, attn_real *d_at) {
    const problem *p = user;
    attn_real copy[512], unused[512] = {0}, k[NZ], v[NZ], dk[NZ] = {0}, dv[NZ] = {0}, y[D], r[D];
    memcpy(copy, at + p->w, attn_mha_num_params(&cfg) * sizeof *copy);
    const attn_mha_params w = attn_mha_params_view(&cfg, copy);
    const attn_mha_params dw = attn_mha_params_view(&cfg, d_at ? d_at + p->w : unused);
    const attn_mha_input keys = keys_of(at + p->z);
    must(attn_mha_keys_forward(&cfg, &w, &keys, k, v));
    *value = 0;
    if (d_at)
        memset(d_at + p->w, 0, attn_mha_num_params(&cfg) * sizeof *d_at);
    for (size_t t = 0; t < CALLS; t++) {
        const attn_mha_input in = call_of(at + p->x + t * D, k, v);
        attn_arena arena = arena_of(&in);
        attn_mha_saved saved;
        fill(r, D, 1, 7 + t);
        must(attn_mha_forward(&cfg, &w, &in, y, &arena, &saved));
        *value += dot(r, y, D);
        if (d_at) {
            const attn_mha_input_grads dx = {
                .query = d_at + p->x + t * D, .projected_key = dk, .projected_value = dv};
            must(attn_mha_backward(&cfg, &w, &saved, r, &dw, &dx, &arena));
        }
        attn_arena_destroy(&arena);
    }
    attn_real dz[2][NZ]; /* the keys' way and the values' way */
    if (d_at) {
        const attn_mha_input_grads both = {.key = dz[0], .value = dz[1]};
        must(attn_mha_keys_backward(&cfg, &w, &keys, dk, dv, &dw, &both));
        for (size_t n = 0; n < NZ; n++)
            d_at[p->z + n] = dz[0][n] + dz[1][n];
    }
    return ATTN_OK;
}

static void gradients_gather(attn_real *at) {
    problem p = {0, NZ, NZ + NX};
    const attn_gradcheck_tensor parts[] = {
        {"z", 0, NZ}, {"x", NZ, NX}, {"w", NZ + NX, attn_mha_num_params(&cfg)}};
    printf("\nthree calls share k and v: every gradient against differences\n");
    claim(check_gradients(decoder_loss, &p, at, parts, 3) == ATTN_GRADCHECK_PASSED,
          "dk and dv gather over the calls, and z gets its whole gradient");
}

/* Output i looks at input LEN - 1 - i: what a model that reverses its input learns. */
static void a_map(void) {
    enum { LEN = 8 };
    attn_real q[LEN * LEN] = {0}, k[LEN * LEN] = {0}, v[LEN * LEN] = {0}, o[LEN * LEN];
    attn_real weights[LEN * LEN], held[LEN * LEN];
    for (size_t i = 0; i < LEN; i++) {
        k[i * LEN + i] = v[i * LEN + i] = 3;
        q[i * LEN + (LEN - 1 - i)] = 3;
    }
    core c = core_of((attn_shape){1, 1, LEN, LEN, LEN, 1}, q, k, v);
    const attn_sdpa_output out = {.context = o, .context_strides = c.in.query_strides};
    attn_memory need;
    attn_arena arena;
    attn_sdpa_saved saved;
    c.cfg.kernel = ATTN_KERNEL_FUSED;
    must(attn_sdpa_memory(&c.cfg, &c.in, &out, &need));
    must(attn_arena_create(&arena, need.training));
    must(attn_sdpa_forward(&c.cfg, &c.in, &out, &arena, &saved));
    must(attn_sdpa_weights(&c.cfg, &saved, 0, weights, &arena));
    attn_arena_destroy(&arena);
    c.cfg.kernel = ATTN_KERNEL_REFERENCE;
    attend(&c, o, held);
    printf("\nthe weights of one head, after a forward that never held them, in percent\n");
    double worst = 0;
    for (size_t i = 0; i < LEN; i++) {
        double sum = 0;
        for (size_t j = 0; j < LEN; j++) {
            printf("%s%4.0f", j == 0 ? "  " : "", 100 * (double)weights[i * LEN + j]);
            sum += (double)weights[i * LEN + j];
        }
        printf("\n");
        worst = fmax(worst, fabs(sum - 1));
    }
    claim(worst < 1e-14, "each row sums to 1");
    claim(distance(weights, held, LEN * LEN) < 1e-14, "the textbook path holds the same");
}

int main(void) {
    attn_real at[NZ + NX + 512];
    fill(at, NZ + NX, 1, 1);
    must(attn_mha_params_init(&cfg, at + NZ + NX, 1));
    const attn_mha_params w = attn_mha_params_view(&cfg, at + NZ + NX);
    once_is_enough(&w, at + NZ, at);
    what_it_saves();
    gradients_gather(at);
    a_map();
    return 0;
}
