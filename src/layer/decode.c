#include "ops/decode.h"
#include "base/dry_run.h"
#include "base/size.h"
#include "layer/kv_cache.h"
#include "layer/mha_call.h"
#include "ops/band_ops.h"
#include "ops/linear_products.h"
#include "ops/rope.h"

#include <string.h>

/* One call, valid. Tokens are packed: rows of the arrays below are the tokens that are there, one
 * sequence after the other. */
typedef struct step {
    attni_mha call;
    const attn_mha_params *w;
    attn_kv_cache *cache;
    const attn_decode_input *input;
    real *y;
    size_t width;  /* of a row of `projected`: q, k and v */
    size_t rows;   /* tokens that are there */
    bool together; /* all sequences have as many tokens, at the same positions */
    size_t *counts, *starts;
    real *packed;    /* (rows, D): x, then y; NULL = they lie so already */
    real *projected; /* (rows, (H + 2 Hkv)·d) */
    real *context;   /* (rows, H·d) */
    real *slopes;    /* (H), standard ones; NULL = none */
} step;

static attn_status carve_reals(attn_arena *arena, real **array, size_t rows, size_t width) {
    void *object;
    size_t n;
    if (!size_mul(&n, rows, width))
        return attni_fail(ATTN_ERROR_OVERFLOW, "%zu rows of %zu reals: the size wraps", rows,
                          width);
    ATTNI_TRY(attn_arena_alloc(arena, &object, n, sizeof(real)));
    *array = object;
    return ATTN_OK;
}

static attn_status carve_sizes(attn_arena *arena, size_t **array, size_t n) {
    void *object;
    ATTNI_TRY(attn_arena_alloc(arena, &object, n, sizeof(size_t)));
    *array = object;
    return ATTN_OK;
}

/* The same for every number of tokens that are there. */
static attn_status carve(step *s, attn_arena *arena) {
    const attni_mha *call = &s->call;
    ATTNI_TRY(carve_sizes(arena, &s->counts, call->shape.batch));
    ATTNI_TRY(carve_sizes(arena, &s->starts, call->shape.batch));
    if (call->core.alibi && !call->learned_slopes)
        ATTNI_TRY(carve_reals(arena, &s->slopes, call->shape.num_heads, 1));
    if (s->input->counts)
        ATTNI_TRY(carve_reals(arena, &s->packed, call->rows_q, call->d_model));
    ATTNI_TRY(carve_reals(arena, &s->projected, call->rows_q, s->width));
    return carve_reals(arena, &s->context, call->rows_q, call->d_inner);
}

/* Where the tokens are; slopes. */
static void lay_out(step *s) {
    const attn_shape *shape = &s->call.shape;
    const size_t *counts = s->input->counts, *lengths = s->cache->lengths;
    s->rows = 0;
    s->together = true;
    for (size_t b = 0; b < shape->batch; b++) {
        s->counts[b] = counts ? counts[b] : shape->len_q;
        s->starts[b] = s->rows;
        s->rows += s->counts[b];
        s->together = s->together && s->counts[b] == s->counts[0] && lengths[b] == lengths[0];
    }
    for (size_t h = 0; s->slopes && h < shape->num_heads; h++)
        s->slopes[h] = attni_alibi_slope(h, shape->num_heads);
}

/* Copies the tokens that are there from (B,T,D) to packed rows, or back. */
static void pack(const step *s, real *to, const real *from, bool back) {
    const size_t d = s->call.d_model;
    for (size_t b = 0; b < s->call.shape.batch; b++) {
        const size_t apart = b * s->call.shape.len_q * d, packed = s->starts[b] * d;
        if (s->counts[b] > 0)
            memcpy(to + (back ? apart : packed), from + (back ? packed : apart),
                   s->counts[b] * d * sizeof *to);
    }
}

/* q, k and v side by side:  (rows,D) (D,(H + 2 Hkv)·d) -> (rows,(H + 2 Hkv)·d) */
static void project(const step *s) {
    const attni_mha *call = &s->call;
    const attn_mha_params *w = s->w;
    const size_t d_in = call->d_model, q = call->d_inner, kv = call->d_kv;
    const real *x = s->input->query;
    if (s->packed) {
        pack(s, s->packed, x, false);
        x = s->packed;
    }
    attni_product products[3] = {
        linear_product_y(s->projected, x, w->wq, w->bq, s->rows, d_in, q),
        linear_product_y(s->projected + q, x, w->wk, w->bk, s->rows, d_in, kv),
        linear_product_y(s->projected + q + kv, x, w->wv, w->bv, s->rows, d_in, kv),
    };
    for (size_t i = 0; i < 3; i++)
        products[i].ldc = s->width;
    attni_gemm_parallel(products, 3, call->core.max_threads);
}

/* Queries and keys lie side by side and have the same positions: they are turned as the heads of
 * one tensor. Sequences at the same positions share their angles. */
static void turn(const step *s) {
    const attni_mha *call = &s->call;
    const size_t batch = call->shape.batch, sequences = s->together ? size_min(batch, 1) : batch;
    attn_shape shape = call->shape;
    shape.batch = s->together ? batch : 1;
    shape.num_heads += shape.num_kv_heads;
    if (call->rope_q.config.pairing == ATTN_ROPE_NONE)
        return;
    for (size_t b = 0; b < sequences; b++) {
        real *rows = s->projected + s->starts[b] * s->width;
        const attn_strides strides = {s->counts[b] * s->width, shape.d_head, s->width, 1};
        attn_rope_config rope = call->rope_q.config;
        rope.position = (int64_t)s->cache->lengths[b];
        attni_rope_rotate(rows, rows, &strides, &rope, &shape, s->counts[b], false,
                          call->core.max_threads);
    }
}

/* y = O Woᵀ + bo        (rows,H·d) (H·d,D) -> (rows,D) */
static void output(const step *s) {
    const attni_mha *call = &s->call;
    const attni_product product =
        linear_product_y(s->packed ? s->packed : s->y, s->context, s->w->wo, s->w->bo, s->rows,
                         call->d_inner, call->d_model);
    attni_gemm_parallel(&product, 1, call->core.max_threads);
    if (s->packed)
        pack(s, s->y, s->packed, true);
}

static attni_decode core_of(const step *s) {
    const attni_mha *call = &s->call;
    const attn_shape *shape = &call->shape;
    return (attni_decode){.batch = shape->batch,
                          .num_heads = shape->num_heads,
                          .num_kv_heads = shape->num_kv_heads,
                          .d_head = shape->d_head,
                          .capacity = s->cache->capacity,
                          .most = shape->len_q,
                          .lengths = s->cache->lengths,
                          .counts = s->counts,
                          .starts = s->starts,
                          .key = s->cache->key,
                          .value = s->cache->value,
                          .projected = s->projected,
                          .context = s->context,
                          .left = attni_kv_cache_left(s->cache),
                          .scale = call->core.has_scale ? call->core.scale
                                                        : attn_default_scale(shape->d_head),
                          .softcap = (double)attni_softcap(call->core.softcap),
                          .alibi = call->core.alibi,
                          .slopes = !call->core.alibi      ? NULL
                                    : call->learned_slopes ? s->w ? s->w->alibi_slopes : NULL
                                                           : s->slopes,
                          .sinks = call->sinks && s->w ? s->w->sinks : NULL,
                          .max_threads = call->core.max_threads};
}

/* Whether what some sequence sees lies in slots that are not in order. */
static bool goes_round(const step *s) {
    for (size_t b = 0; b < s->call.shape.batch; b++)
        if (s->counts[b] > 0 && s->cache->lengths[b] + s->counts[b] > s->cache->capacity)
            return true;
    return false;
}

/* Whether a chunk takes the tiles shows only with the lengths, so both ways are counted. */
static attn_status attend(const step *s, attn_arena *arena) {
    const attni_decode core = core_of(s);
    const bool is_long = attni_decode_is_long(&core);
    if (arena->measuring) {
        ATTNI_TRY(attni_decode_attend(&core, arena));
        return is_long ? attni_decode_attend_long(&core, false, arena) : ATTN_OK;
    }
    attni_decode_write(&core);
    return is_long && !goes_round(s) ? attni_decode_attend_long(&core, s->together, arena)
                                     : attni_decode_attend(&core, arena);
}

static attn_status decode(step *s, attn_arena *arena) {
    ATTNI_TRY(carve(s, arena));
    if (!arena->measuring) {
        lay_out(s);
        project(s);
        turn(s);
    }
    ATTNI_TRY(attend(s, arena));
    if (!arena->measuring)
        output(s);
    return ATTN_OK;
}

/* Sizes and settings, which is all that counting needs. */
static attn_status resolve(step *s, const attn_mha_config *config, const attn_kv_cache *cache,
                           const attn_decode_input *input) {
    if (!input)
        return attni_fail(ATTN_ERROR_ARGUMENT, "input is NULL");
    ATTNI_TRY(attn_mha_config_check(config));
    ATTNI_TRY(attni_kv_cache_check(cache, config));
    const attn_mha_input tokens = {
        .batch = cache->batch, .len_q = input->len, .query = input->query};
    ATTNI_TRY(attni_mha_resolve(&s->call, config, &tokens));
    s->input = input;
    s->width = s->call.d_inner + 2 * s->call.d_kv;
    return ATTN_OK;
}

/* What one sequence is given. */
static attn_status check_sequence(const step *s, size_t b) {
    const attn_shape *shape = &s->call.shape;
    const size_t count = s->input->counts ? s->input->counts[b] : shape->len_q;
    if (count > shape->len_q)
        return attni_fail(ATTN_ERROR_ARGUMENT, "counts[%zu] is %zu, above len %zu", b, count,
                          shape->len_q);
    ATTNI_TRY(attni_kv_cache_has_room(s->cache, b, count));
    attn_rope_config rope = s->call.rope_q.config;
    rope.position = (int64_t)size_min(s->cache->lengths[b], INT64_MAX);
    if (rope.pairing == ATTN_ROPE_NONE)
        return ATTN_OK;
    return attni_rope_check("attn_mha_decode", &rope, count, shape->d_head);
}

static attn_status check_arrays(const step *s, const attn_mha_params *params) {
    const attn_mha_input tokens = {.query = s->input->query};
    ATTNI_TRY(attni_mha_check_forward(&s->call, params, &tokens, s->y));
    if (s->cache->batch > 0 && !s->cache->lengths)
        return attni_fail(ATTN_ERROR_ARGUMENT, "cache was only measured: it has no memory");
    for (size_t b = 0; b < s->cache->batch; b++)
        ATTNI_TRY(check_sequence(s, b));
    return ATTN_OK;
}

attn_status attn_mha_decode(const attn_mha_config *config, const attn_mha_params *params,
                            attn_kv_cache *cache, const attn_decode_input *input, attn_real *y,
                            attn_arena *arena) {
    step s = {.w = params, .cache = cache, .y = y};
    if (!arena)
        return attni_fail(ATTN_ERROR_ARGUMENT, "arena is NULL");
    ATTNI_TRY(resolve(&s, config, cache, input));
    if (!arena->measuring) {
        attn_arena dry;
        step counted = s;
        ATTNI_TRY(check_arrays(&s, params));
        ATTNI_TRY(attn_arena_init_measuring(&dry));
        ATTNI_TRY(decode(&counted, &dry));
        ATTNI_TRY(dry_run_fits(&dry, arena));
    }
    const size_t mark = attn_arena_mark(arena);
    const attn_status status = decode(&s, arena);
    for (size_t b = 0; status == ATTN_OK && !arena->measuring && b < cache->batch; b++)
        attni_kv_cache_grow(cache, b, s.counts[b]);
    (void)attn_arena_rewind(arena, mark);
    return status;
}

attn_status attn_mha_decode_memory(const attn_mha_config *config, const attn_kv_cache *cache,
                                   size_t len, size_t *bytes) {
    const size_t some = 0;
    const attn_decode_input input = {.len = len, .counts = &some};
    attn_kv_cache measured;
    attn_arena arena;
    if (!cache || !bytes)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s is NULL", cache ? "bytes" : "cache");
    measured = *cache;
    ATTNI_TRY(attn_arena_init_measuring(&arena));
    ATTNI_TRY(attn_mha_decode(config, NULL, &measured, &input, NULL, &arena));
    *bytes = arena.high_water;
    return ATTN_OK;
}
