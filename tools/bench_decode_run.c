/* Decoding and its parts, in the precision of this compilation. */
#include "names64_tools.h"

#include "bench_decode.h"
#include "tool.h"

#include <attn/attn.h>

#include <string.h>

/* A layer with a cache, and arenas for everything. */
typedef struct decoder {
    const bench_case *c;
    attn_mha_config cfg;
    attn_mha_params w;
    attn_kv_cache cache;
    attn_arena cache_arena, data, arena;
    attn_real *x, *y;
} decoder;

/* Tokens that the new one sees, its own included. */
static size_t seen(const bench_case *c) {
    const size_t window = c->variants.window;
    return window > 0 && window < c->shape.len ? window : c->shape.len;
}

static attn_window window_of(const bench_case *c) {
    const size_t window = c->variants.window;
    return (attn_window){.left_on = window > 0, .left = window > 0 ? window - 1 : 0};
}

/* The layer of the shape. With d_model 1 its projections are next to nothing, and what remains is
 * the attention part. */
static attn_mha_config config_of(const bench_case *c, size_t d_model) {
    return (attn_mha_config){.d_model = d_model,
                             .num_heads = c->shape.num_heads,
                             .d_head = bench_d_head(c),
                             .bias = true,
                             .rope = c->variants.rope,
                             .max_threads = c->threads,
                             .num_kv_heads = c->variants.num_kv_heads,
                             .softcap = c->variants.softcap,
                             .alibi = c->variants.alibi,
                             .sinks = c->variants.sinks};
}

static attn_real *take(attn_arena *arena, size_t n, uint64_t stream) {
    void *object;
    if (attn_arena_alloc(arena, &object, n, sizeof(attn_real)) != ATTN_OK)
        return NULL;
    attn_real *x = object;
    attn_random random = attn_random_seed(1, stream);
    for (size_t i = 0; i < n; i++)
        x[i] = (attn_real)(attn_random_uniform(&random) - 0.5);
    return x;
}

/* A cache of `capacity` tokens; NULL takes the keys and values of another decoder. */
static attn_status open_cache(decoder *d, size_t capacity, const decoder *shared) {
    const bench_case *c = d->c;
    const attn_window window = window_of(c);
    size_t bytes;
    attn_status status = attn_kv_cache_memory(&d->cfg, c->shape.batch, capacity, &bytes);
    if (shared) {
        d->cache = shared->cache;
        d->cache.config = d->cfg;
        return status;
    }
    if (status == ATTN_OK)
        status = attn_arena_create(&d->cache_arena, bytes);
    if (status == ATTN_OK)
        status = attn_kv_cache_init(&d->cache, &d->cfg, c->shape.batch, capacity, &window,
                                    &d->cache_arena);
    if (status != ATTN_OK)
        return status;
    const size_t reals = c->shape.batch * bench_kv_heads(c) * capacity * bench_d_head(c);
    attn_random random = attn_random_seed(1, 9);
    for (size_t i = 0; i < reals; i++) {
        d->cache.key[i] = (attn_real)(attn_random_uniform(&random) - 0.5);
        d->cache.value[i] = (attn_real)(attn_random_uniform(&random) - 0.5);
    }
    for (size_t b = 0; b < c->shape.batch; b++)
        d->cache.lengths[b] = capacity;
    return ATTN_OK;
}

static attn_status open_decoder(decoder *d, const bench_case *c, size_t d_model, size_t capacity,
                                const decoder *shared) {
    *d = (decoder){.c = c, .cfg = config_of(c, d_model)};
    const size_t params = attn_mha_num_params(&d->cfg), rows = c->shape.batch * d_model;
    const size_t slack = 4096; /* padding and red zones */
    size_t bytes;
    attn_status status = params > 0 ? open_cache(d, capacity, shared) : ATTN_ERROR_SHAPE;
    if (status == ATTN_OK)
        status = attn_mha_decode_memory(&d->cfg, &d->cache, 1, &bytes);
    if (status == ATTN_OK)
        status = attn_arena_create(&d->arena, bytes);
    if (status == ATTN_OK)
        status = attn_arena_create(&d->data, (params + 2 * rows) * sizeof(attn_real) + slack);
    if (status != ATTN_OK)
        return status;
    d->w = attn_mha_params_view(&d->cfg, take(&d->data, params, 1));
    d->x = take(&d->data, rows, 2);
    d->y = take(&d->data, rows, 3);
    return d->x && d->y ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static void close_decoder(decoder *d) {
    attn_arena_destroy(&d->arena);
    attn_arena_destroy(&d->data);
    attn_arena_destroy(&d->cache_arena);
}

/* The last token of every sequence once more. */
static attn_status step(decoder *d) {
    const attn_decode_input input = {.len = 1, .query = d->x};
    for (size_t b = 0; b < d->cache.batch; b++) {
        const attn_status status =
            attn_kv_cache_truncate(&d->cache, b, attn_kv_cache_length(&d->cache, b) - 1);
        if (status != ATTN_OK)
            return status;
    }
    return attn_mha_decode(&d->cfg, &d->w, &d->cache, &input, d->y, &d->arena);
}

enum { KINDS = 3, MOST_ROUNDS = 60, LEAST_ROW = 6, MOST_ROW = 60 };

/* Times of a row of steps; the first third finds the caches filled by somebody else and does not
 * count. Returns how many there are, 0 on failure. */
static size_t time_row(double times[MOST_ROW], decoder *d) {
    const double enough = 0.02; /* seconds */
    size_t steps = 0, skipped;
    for (const double start = tool_seconds();
         steps < LEAST_ROW || (steps < MOST_ROW && tool_seconds() - start < enough); steps++) {
        const double before = tool_seconds();
        if (step(d) != ATTN_OK)
            return 0;
        times[steps] = tool_seconds() - before;
    }
    skipped = steps / 3;
    memmove(times, times + skipped, (steps - skipped) * sizeof *times);
    return steps - skipped;
}

/* Median seconds of each decoder's step, and GB/s of reading each of two prefixes of a buffer (NULL
 * = none). All take turns, so that whatever else the machine does slows all of them. */
static bool time_steps(double *medians, decoder *decoders, size_t kinds, double rates[2],
                       const void *buffer, const size_t bytes[2]) {
    double times[KINDS][MOST_ROUNDS * MOST_ROW], rate[2][MOST_ROUNDS];
    const bench_case *c = decoders[0].c;
    size_t count[KINDS] = {0}, rounds = 0;
    for (const double start = tool_seconds();
         rounds < 2 || (rounds < MOST_ROUNDS && tool_seconds() - start < 3 * c->budget); rounds++) {
        for (size_t kind = 0; kind < kinds; kind++) {
            const size_t more = time_row(times[kind] + count[kind], &decoders[kind]);
            if (more == 0)
                return false;
            count[kind] += more;
        }
        for (size_t i = 0; buffer && i < 2; i++)
            rate[i][rounds] = attn_read_bandwidth(c->threads, buffer, bytes[i]);
    }
    for (size_t kind = 0; kind < kinds; kind++)
        medians[kind] = bench_median(times[kind], count[kind]);
    for (size_t i = 0; buffer && i < 2; i++)
        rates[i] = bench_median(rate[i], rounds);
    return true;
}

static void count_bytes(const bench_case *c, const decoder *d, bench_decoding *result) {
    const double reals = (double)c->shape.batch * (double)seen(c) * (double)bench_kv_heads(c) *
                         (double)bench_d_head(c);
    result->cached_bytes = 2 * reals * (double)sizeof(attn_real);
    result->weight_bytes = (double)attn_mha_num_params(&d->cfg) * (double)sizeof(attn_real);
    result->cache_bytes = d->cache_arena.used;
}

static attn_status measure(decoder decoders[KINDS], bench_decoding *result) {
    const size_t bytes[2] = {(size_t)result->cached_bytes,
                             (size_t)(result->cached_bytes + result->weight_bytes)};
    double medians[KINDS] = {0}, rates[2] = {0};
    attn_arena arena; /* in large pages, as what is measured */
    void *buffer;
    attn_status status = attn_arena_create(&arena, bytes[1] + 256);
    if (status == ATTN_OK)
        status = attn_arena_alloc(&arena, &buffer, bytes[1], 1);
    if (status == ATTN_OK) {
        memset(buffer, 0, bytes[1]);
        if (!time_steps(medians, decoders, KINDS, rates, buffer, bytes))
            status = ATTN_ERROR_ARGUMENT;
    }
    result->step = medians[0];
    result->attention = medians[1];
    result->projections = medians[2];
    result->bandwidth = rates[0];
    result->step_bandwidth = rates[1];
    attn_arena_destroy(&arena);
    return status;
}

/* Keys and values, weights twice, and a buffer as large as both. */
static int check_memory(const bench_case *c) {
    const attn_mha_config cfg = config_of(c, c->shape.d_model);
    size_t cache;
    if (attn_kv_cache_memory(&cfg, c->shape.batch, c->shape.len, &cache) != ATTN_OK)
        return tool_fail("shape %s: %s", c->shape.name, attn_error_message());
    const double weights = (double)attn_mha_num_params(&cfg) * (double)sizeof(attn_real);
    const double bytes = 2 * (double)cache + 3 * weights;
    if (bytes > bench_memory_available())
        return tool_fail("shape %s: %.0f bytes of memory cannot be had", c->shape.name, bytes);
    return TOOL_OK;
}

/* The layer; its attention part, on the same keys and values; the layer without a past, whose
 * attention is next to nothing. */
int bench_decode_run(const bench_case *c, bench_decoding *result) {
    decoder decoders[KINDS] = {0};
    *result = (bench_decoding){0};
    if (check_memory(c) != TOOL_OK)
        return TOOL_FAILED;
    attn_status status = open_decoder(&decoders[0], c, c->shape.d_model, c->shape.len, NULL);
    if (status == ATTN_OK)
        status = open_decoder(&decoders[1], c, 1, c->shape.len, &decoders[0]);
    if (status == ATTN_OK)
        status = open_decoder(&decoders[2], c, c->shape.d_model, 1, NULL);
    if (status == ATTN_OK) {
        count_bytes(c, &decoders[0], result);
        status = measure(decoders, result);
    }
    for (size_t kind = 0; kind < KINDS; kind++)
        close_decoder(&decoders[kind]);
    if (status != ATTN_OK)
        return tool_fail("shape %s: %s", c->shape.name, attn_error_message());
    return TOOL_OK;
}

double bench_decode_step(const bench_case *c) {
    decoder d = {0};
    double seconds = -1;
    if (open_decoder(&d, c, c->shape.d_model, c->shape.len, NULL) != ATTN_OK ||
        !time_steps(&seconds, &d, 1, NULL, NULL, NULL))
        seconds = -1;
    close_decoder(&d);
    return seconds;
}

/* What every token costs if nothing is remembered: a forward over all tokens so far. */
double bench_decode_forward(const bench_case *c) {
    enum { RUNS = 3 };
    const bench_shape *s = &c->shape;
    decoder d = {.c = c, .cfg = config_of(c, s->d_model)};
    attn_mha_input in = {
        .batch = s->batch, .len_q = s->len, .mask = {.causal = true, .window = window_of(c)}};
    const size_t params = attn_mha_num_params(&d.cfg), rows = s->batch * s->len * s->d_model;
    double times[RUNS];
    attn_memory need;
    bool done =
        attn_mha_memory(&d.cfg, &in, &need) == ATTN_OK &&
        attn_arena_create(&d.arena, need.inference) == ATTN_OK &&
        attn_arena_create(&d.data, (params + 2 * rows) * sizeof(attn_real) + 4096) == ATTN_OK;
    if (done) {
        d.w = attn_mha_params_view(&d.cfg, take(&d.data, params, 1));
        d.x = take(&d.data, rows, 2);
        d.y = take(&d.data, rows, 3);
        in.query = d.x;
    }
    for (size_t run = 0; done && run < RUNS; run++) {
        const double before = tool_seconds();
        done = attn_mha_forward(&d.cfg, &d.w, &in, d.y, &d.arena, NULL) == ATTN_OK;
        times[run] = tool_seconds() - before;
    }
    close_decoder(&d);
    return done ? bench_median(times, RUNS) : -1;
}
