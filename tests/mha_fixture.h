/*
 * mha_fixture.h - one call of the layer from a line of a table: random parameters, inputs and
 * upstream gradient, outputs poisoned with NaN, an arena of exactly the bytes it asks for.
 */
#ifndef MHA_FIXTURE_H
#define MHA_FIXTURE_H

#include "test.h"

/* Bits of mha_case.without: biases that are NULL. */
enum { NO_BQ = 1, NO_BK = 2, NO_BV = 4, NO_BO = 8 };

typedef struct mha_case {
    const char *name;
    size_t batch, len_q, len_k; /* len_k 0 = self-attention */
    size_t d_model, num_heads, d_head;
    unsigned without; /* biases left out */
    bool causal;
    attn_causal_align align;
    int64_t offset;
    int padded;         /* 1: keys of random number padded, sample 0 not; 2: all keys of sample 0 */
    size_t attend_rank; /* 0 = none; else a random attend mask of that rank */
    bool has_scale;
    double scale;
    attn_rope rope;
    double rope_base;
    bool has_rope_position;
    int64_t rope_position, rope_key_position;
    bool want_weights, want_lse;
    attn_kernel kernel;
    size_t max_threads;
    size_t num_kv_heads; /* 0 = num_heads */
    attn_window window;
    double softcap;
    bool alibi, alibi_learned, sinks;
    size_t bias_rank; /* 0 = none; else a random bias of that rank */
    bool bias_blocks; /* some of it is -inf */
    double dropout;   /* with the seed of the run */
} mha_case;

/* The sizes of a mha_case. */
#define SIZES(b, lq, lk, dm, h, dh) \
    .batch = (b), .len_q = (lq), .len_k = (lk), .d_model = (dm), .num_heads = (h), .d_head = (dh)

typedef struct mha_run {
    attn_mha_config cfg;
    attn_mha_input in;
    size_t len_k, d_inner, d_kv, num_params, size_q, size_k;
    attn_mha_params w, dw;
    attn_mha_input_grads dx;
    attn_real *theta, *dtheta;
    attn_real *x_q, *x_k, *x_v, *y, *dy, *dx_q, *dx_k, *dx_v;
    attn_real *weights, *lse, *bias, *dbias;
    size_t size_bias;
    uint8_t *padding, *attend;
    attn_memory need;
    attn_arena arena;
    attn_mha_saved saved;
} mha_run;

/* The shape of a mask or bias of rank 2, (Lq,Lk), 3, (B,Lq,Lk), or 4; returns its elements. */
static inline size_t mha_dims(size_t dims[4], size_t rank, const mha_case *c, size_t len_k) {
    const size_t all[4] = {c->batch, c->num_heads, c->len_q, len_k};
    size_t n = 1;
    for (size_t i = 0; i < rank; i++) {
        dims[i] = rank == 3 && i == 0 ? c->batch : all[4 - rank + i];
        n *= dims[i];
    }
    return n;
}

static inline void mha_masks(mha_run *run, const mha_case *c, uint64_t seed) {
    attn_random random = attn_random_seed(seed, 0xA5);
    run->in.mask.causal = c->causal;
    run->in.mask.causal_align = c->align;
    run->in.mask.causal_offset = c->offset;
    run->in.mask.window = c->window;
    if (c->padded) {
        size_t *lengths = calloc(c->batch + 1, sizeof *lengths);
        run->padding = malloc(c->batch * run->len_k + 1);
        for (size_t b = 0; b < c->batch; b++)
            lengths[b] = run->len_k - attn_random_below(&random, (uint32_t)run->len_k);
        if (c->batch > 0)
            lengths[0] = c->padded == 2 ? 0 : run->len_k;
        test_ok(attn_padding_from_lengths(run->padding, lengths, c->batch, run->len_k));
        run->in.mask.padding = run->padding;
        free(lengths);
    }
    if (c->attend_rank) {
        size_t dims[4];
        const size_t n = mha_dims(dims, c->attend_rank, c, run->len_k);
        run->attend = malloc(n + 1);
        for (size_t i = 0; i < n; i++)
            run->attend[i] = attn_random_below(&random, 3) ? 255 : 0;
        run->in.mask.attend = run->attend;
        test_ok(attn_broadcast_strides(&run->in.mask.attend_strides, dims, c->attend_rank, c->batch,
                                       c->num_heads, c->len_q, run->len_k));
    }
}

static inline void mha_bias(mha_run *run, const mha_case *c, uint64_t seed) {
    size_t dims[4];
    if (c->bias_rank == 0)
        return;
    run->size_bias = mha_dims(dims, c->bias_rank, c, run->len_k);
    run->bias = test_normal(run->size_bias, 1, seed);
    run->dbias = test_poison(run->size_bias);
    for (size_t i = 0; c->bias_blocks && i < run->size_bias; i += 3)
        run->bias[i] = (attn_real)-INFINITY;
    run->in.bias = run->bias;
    run->dx.bias = run->dbias;
    test_ok(attn_broadcast_strides(&run->in.bias_strides, dims, c->bias_rank, c->batch,
                                   c->num_heads, c->len_q, run->len_k));
}

/* Everything but the arena. */
static inline mha_run mha_setup(const mha_case *c, uint64_t seed) {
    mha_run run = {.len_k = c->len_k ? c->len_k : c->len_q};
    run.cfg = (attn_mha_config){.d_model = c->d_model,
                                .num_heads = c->num_heads,
                                .d_head = c->d_head,
                                .bias = true,
                                .has_scale = c->has_scale,
                                .scale = c->scale,
                                .rope = c->rope,
                                .rope_base = c->rope_base,
                                .num_kv_heads = c->num_kv_heads,
                                .softcap = c->softcap,
                                .alibi = c->alibi,
                                .alibi_learned = c->alibi_learned,
                                .sinks = c->sinks,
                                .dropout = c->dropout,
                                .kernel = c->kernel,
                                .max_threads = c->max_threads};
    run.num_params = attn_mha_num_params(&run.cfg);
    ck_assert_msg(run.num_params > 0, "%s: %s", c->name, attn_error_message());
    run.d_inner = c->num_heads * attn_mha_d_head(&run.cfg);
    run.d_kv = attn_mha_kv_heads(&run.cfg) * attn_mha_d_head(&run.cfg);
    run.size_q = c->batch * c->len_q * c->d_model;
    run.size_k = c->batch * run.len_k * c->d_model;
    run.theta = test_normal(run.num_params, 0.4, seed);
    run.dtheta = test_normal(run.num_params, 0, seed);
    run.w = attn_mha_params_view(&run.cfg, run.theta);
    run.dw = attn_mha_params_view(&run.cfg, run.dtheta);
    if (c->without & NO_BQ)
        run.w.bq = run.dw.bq = NULL;
    if (c->without & NO_BK)
        run.w.bk = run.dw.bk = NULL;
    if (c->without & NO_BV)
        run.w.bv = run.dw.bv = NULL;
    if (c->without & NO_BO)
        run.w.bo = run.dw.bo = NULL;
    run.x_q = test_normal(run.size_q, 1, seed + 1);
    run.dy = test_normal(run.size_q, 1, seed + 2);
    run.y = test_poison(run.size_q);
    run.dx_q = test_poison(run.size_q);
    run.in = (attn_mha_input){.batch = c->batch,
                              .len_q = c->len_q,
                              .query = run.x_q,
                              .has_rope_position = c->has_rope_position,
                              .rope_position = c->rope_position,
                              .rope_key_position = c->rope_key_position,
                              .dropout_seed = seed * 0x9E3779B97F4A7C15u};
    run.dx.query = run.dx_q;
    if (c->len_k) {
        run.x_k = test_normal(run.size_k, 1, seed + 3);
        run.x_v = test_normal(run.size_k, 1, seed + 4);
        run.in.len_k = c->len_k;
        run.in.key = run.x_k;
        run.in.value = run.x_v;
        run.dx.key = run.dx_k = test_poison(run.size_k);
        run.dx.value = run.dx_v = test_poison(run.size_k);
    }
    if (c->want_weights)
        run.in.weights = run.weights = test_poison(c->batch * c->num_heads * c->len_q * run.len_k);
    if (c->want_lse)
        run.in.lse = run.lse = test_poison(c->batch * c->num_heads * c->len_q);
    mha_masks(&run, c, seed + 5);
    mha_bias(&run, c, seed + 6);
    return run;
}

static inline void mha_free(mha_run *run) {
    attn_arena_destroy(&run->arena);
    free(run->theta);
    free(run->dtheta);
    free(run->x_q);
    free(run->x_k);
    free(run->x_v);
    free(run->y);
    free(run->dy);
    free(run->dx_q);
    free(run->dx_k);
    free(run->dx_v);
    free(run->weights);
    free(run->lse);
    free(run->bias);
    free(run->dbias);
    free(run->padding);
    free(run->attend);
}

/* A forward that saves and its backward, in an arena of its own. */
static inline void mha_step(mha_run *run) {
    test_ok(attn_mha_memory(&run->cfg, &run->in, &run->need));
    if (!run->arena.base)
        run->arena = test_arena(run->need.training);
    test_ok(attn_mha_forward(&run->cfg, &run->w, &run->in, run->y, &run->arena, &run->saved));
    test_ok(attn_mha_backward(&run->cfg, &run->w, &run->saved, run->dy, &run->dw, &run->dx,
                              &run->arena));
}

/* The paths; those that this build has come first, mha_num_kernels() of them. */
static const attn_kernel mha_kernels[] = {ATTN_KERNEL_REFERENCE, ATTN_KERNEL_FUSED};

static inline int mha_num_kernels(void) {
    attn_mha_config cfg = {.d_model = 1, .num_heads = 1, .kernel = ATTN_KERNEL_FUSED};
    attn_mha_input in = {.batch = 1, .len_q = 1};
    attn_memory need;
    return attn_mha_memory(&cfg, &in, &need) == ATTN_OK ? 2 : 1;
}

/* Fails unless both arrays hold the same bits. */
static inline void test_same_bits(const char *what, const attn_real *got, const attn_real *want,
                                  size_t n) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            ck_abort_msg("%s (%s): element %zu is %.17g, expected the same bits as %.17g", what,
                         TEST_PRECISION, i, (double)got[i], (double)want[i]);
}

/* Every output of two runs of the same case holds the same bits. */
static inline void mha_same_bits(const char *what, const mha_run *got, const mha_run *want) {
    test_same_bits(what, got->y, want->y, want->size_q);
    test_same_bits(what, got->dtheta, want->dtheta, want->num_params);
    test_same_bits(what, got->dx_q, want->dx_q, want->size_q);
    if (want->dbias)
        test_same_bits(what, got->dbias, want->dbias, want->size_bias);
    if (want->dx_k) {
        test_same_bits(what, got->dx_k, want->dx_k, want->size_k);
        test_same_bits(what, got->dx_v, want->dx_v, want->size_k);
    }
}

#endif
