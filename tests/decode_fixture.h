/*
 * decode_fixture.h - a layer that decodes: random parameters and tokens, a cache whose slots hold
 * NaN until they are written, arenas of exactly the bytes that are asked for.
 */
#ifndef DECODE_FIXTURE_H
#define DECODE_FIXTURE_H

#include "test.h"

typedef struct decode_case {
    const char *name;
    size_t batch, len, capacity; /* tokens in all; of the cache */
    attn_mha_config cfg;
    attn_window window;
} decode_case;

typedef struct decode_run {
    const decode_case *c;
    attn_mha_config cfg;
    attn_kv_cache cache;
    attn_arena cache_arena, arena;
    attn_mha_params w;
    attn_real *theta, *x; /* x (B, len, D) */
} decode_run;

/* NaN in every slot. */
static inline void decode_poison(decode_run *run) {
    const size_t n = run->c->batch * attn_mha_kv_heads(&run->cfg) * run->c->capacity *
                     attn_mha_d_head(&run->cfg);
    for (size_t i = 0; i < n; i++)
        run->cache.key[i] = run->cache.value[i] = (attn_real)NAN;
}

static inline decode_run decode_setup(const decode_case *c, uint64_t seed) {
    decode_run run = {.c = c, .cfg = c->cfg};
    const size_t n = attn_mha_num_params(&run.cfg);
    size_t bytes;
    ck_assert_msg(n > 0, "%s: %s", c->name, attn_error_message());
    run.theta = test_normal(n, 1 / sqrt((double)c->cfg.d_model), seed);
    run.w = attn_mha_params_view(&run.cfg, run.theta);
    run.x = test_normal(c->batch * c->len * c->cfg.d_model, 1, seed + 1);
    test_ok(attn_kv_cache_memory(&run.cfg, c->batch, c->capacity, &bytes));
    run.cache_arena = test_arena(bytes);
    test_ok(attn_kv_cache_init(&run.cache, &run.cfg, c->batch, c->capacity, &c->window,
                               &run.cache_arena));
    ck_assert_uint_eq(run.cache_arena.used, bytes);
    decode_poison(&run);
    test_ok(attn_mha_decode_memory(&run.cfg, &run.cache, c->len, &bytes));
    run.arena = test_arena(bytes);
    return run;
}

static inline void decode_free(decode_run *run) {
    attn_arena_destroy(&run->arena);
    attn_arena_destroy(&run->cache_arena);
    free(run->theta);
    free(run->x);
}

/* The next counts[b] tokens of every sequence, from x into the same places of y (B, len, D), which
 * elsewhere stays as it is. */
static inline void decode_next(decode_run *run, attn_real *y, const size_t *counts) {
    const size_t batch = run->c->batch, d = run->cfg.d_model;
    size_t most = 0;
    for (size_t b = 0; b < batch; b++)
        most = counts[b] > most ? counts[b] : most;
    attn_real *in = test_poison(batch * most * d), *out = test_poison(batch * most * d);
    size_t *before = calloc(batch + 1, sizeof *before);
    for (size_t b = 0; b < batch; b++) {
        before[b] = attn_kv_cache_length(&run->cache, b);
        memcpy(in + b * most * d, run->x + (b * run->c->len + before[b]) * d,
               counts[b] * d * sizeof *in);
    }
    bool even = true;
    for (size_t b = 0; b < batch; b++)
        even = even && counts[b] == most;
    const attn_decode_input input = {.len = most, .query = in, .counts = even ? NULL : counts};
    const size_t used = run->arena.used;
    test_ok(attn_mha_decode(&run->cfg, &run->w, &run->cache, &input, out, &run->arena));
    ck_assert_uint_eq(run->arena.used, used);
    for (size_t b = 0; b < batch; b++) {
        ck_assert_uint_eq(attn_kv_cache_length(&run->cache, b), before[b] + counts[b]);
        memcpy(y + (b * run->c->len + before[b]) * d, out + b * most * d,
               counts[b] * d * sizeof *y);
        for (size_t i = counts[b] * d; i < most * d; i++)
            ck_assert_msg(isnan(out[b * most * d + i]), "%s: row past counts[%zu] written",
                          run->c->name, b);
    }
    free(in);
    free(out);
    free(before);
}

/* The same number of tokens for all. */
static inline void decode_next_even(decode_run *run, attn_real *y, size_t count) {
    size_t counts[16];
    ck_assert_uint_le(run->c->batch, 16);
    for (size_t b = 0; b < run->c->batch; b++)
        counts[b] = count;
    decode_next(run, y, counts);
}

/* y (B, len, D) of a causal forward over all tokens at once. */
static inline attn_real *decode_whole(const decode_run *run) {
    attn_mha_input in = {.batch = run->c->batch,
                         .len_q = run->c->len,
                         .query = run->x,
                         .mask = {.causal = true, .window = run->c->window}};
    attn_memory need;
    test_ok(attn_mha_memory(&run->cfg, &in, &need));
    attn_arena arena = test_arena(need.inference);
    attn_real *y = test_poison(run->c->batch * run->c->len * run->cfg.d_model);
    test_ok(attn_mha_forward(&run->cfg, &run->w, &in, y, &arena, NULL));
    attn_arena_destroy(&arena);
    return y;
}

#endif
