/* One measurement of `attn bench`, in the precision of this compilation. */
#include "names64_tools.h"

#include "bench.h"
#include "tool.h"

#include <attn/attn.h>

#include <stdlib.h>
#include <string.h>

/* Everything that one run reads and writes. Arrays a to c are (B,T,D): the layer's x; the core's q,
 * k, v, and their gradients. */
typedef struct run {
    const bench_case *c;
    attn_arena arena, data; /* the call's; the caller's arrays, which large pages suit as well */
    attn_real *a, *b, *v, *out, *dout, *da, *db, *dv;
    attn_real *theta, *dtheta;
    size_t reals, num_params; /* in each of a ... dv; in theta and dtheta */
    attn_mha_config mha;
    attn_mha_params params, dparams;
    attn_mha_input mha_input;
    attn_sdpa_config sdpa;
    attn_sdpa_input sdpa_input;
    attn_sdpa_output sdpa_output;
} run;

static size_t d_head(const bench_case *c) {
    return c->shape.d_model / c->shape.num_heads;
}

static void configure(run *r) {
    const bench_case *c = r->c;
    const bench_shape *s = &c->shape;
    r->reals = s->batch * s->len * s->d_model;
    r->mha = (attn_mha_config){.d_model = s->d_model,
                               .num_heads = s->num_heads,
                               .bias = true,
                               .kernel = c->kernel,
                               .max_threads = c->threads};
    r->num_params = c->layer ? attn_mha_num_params(&r->mha) : 0;
    r->mha_input = (attn_mha_input){
        .batch = s->batch, .len_q = s->len, .query = r->a, .mask = {.causal = c->causal}};
    r->sdpa = (attn_sdpa_config){.kernel = c->kernel, .max_threads = c->threads};
    const attn_strides strides = attn_strides_bhtd(s->len, s->num_heads, d_head(c));
    r->sdpa_input = (attn_sdpa_input){.shape = {s->batch, s->num_heads, s->len, s->len, d_head(c)},
                                      .query = r->a,
                                      .key = r->b,
                                      .value = r->v,
                                      .query_strides = strides,
                                      .key_strides = strides,
                                      .value_strides = strides,
                                      .mask = {.causal = c->causal}};
    r->sdpa_output = (attn_sdpa_output){.context = r->out, .context_strides = strides};
}

/* Pointers are only compared with NULL here, and there are no arrays yet. */
static attn_status arena_need(const bench_case *c, size_t *bytes) {
    attn_real some;
    run r = {.c = c, .a = &some, .b = &some, .v = &some, .out = &some};
    configure(&r);
    attn_memory memory = {0};
    const attn_status status =
        c->layer ? attn_mha_memory(&r.mha, &r.mha_input, &memory)
                 : attn_sdpa_memory(&r.sdpa, &r.sdpa_input, &r.sdpa_output, &memory);
    *bytes = memory.training;
    return status;
}

int bench_arena_bytes(const bench_case *c, size_t *bytes) {
    if (arena_need(c, bytes) != ATTN_OK)
        return tool_fail("shape %s: %s", c->shape.name, attn_error_message());
    return TOOL_OK;
}

/* n reals for the caller's own data, zeroed. The arena was made large enough. */
static attn_real *zero_array(run *r, size_t n) {
    void *x;
    if (attn_arena_alloc(&r->data, &x, n, sizeof(attn_real)) != ATTN_OK)
        abort();
    memset(x, 0, n * sizeof(attn_real));
    return x;
}

/* Uniform with variance 1, as the numbers behind a normalisation would be. */
static attn_real *random_array(run *r, uint64_t stream) {
    attn_real *x = zero_array(r, r->reals);
    attn_random random = attn_random_seed(1, stream);
    for (size_t i = 0; i < r->reals; i++)
        x[i] = (attn_real)(3.4641016151377544 * (attn_random_uniform(&random) - 0.5));
    return x;
}

/* Reals of the caller's data: x, y, dy, dx and the parameters with their gradients, or q, k, v, the
 * context and the gradients of all four. */
static double data_reals(const run *r) {
    return (r->c->layer ? 4 : 8) * (double)r->reals + 2 * (double)r->num_params;
}

static void fill(run *r) {
    r->a = random_array(r, 1);
    r->dout = random_array(r, 2);
    r->out = zero_array(r, r->reals);
    r->da = zero_array(r, r->reals);
    if (r->c->layer) {
        r->theta = zero_array(r, r->num_params);
        r->dtheta = zero_array(r, r->num_params);
        attn_mha_params_init(&r->mha, r->theta, 1);
        r->params = attn_mha_params_view(&r->mha, r->theta);
        r->dparams = attn_mha_params_view(&r->mha, r->dtheta);
    } else {
        r->b = random_array(r, 3);
        r->v = random_array(r, 4);
        r->db = zero_array(r, r->reals);
        r->dv = zero_array(r, r->reals);
    }
    configure(r);
}

static attn_status forward(run *r) {
    attn_arena_reset(&r->arena);
    if (r->c->layer)
        return attn_mha_forward(&r->mha, &r->params, &r->mha_input, r->out, &r->arena, NULL);
    return attn_sdpa_forward(&r->sdpa, &r->sdpa_input, &r->sdpa_output, &r->arena, NULL);
}

/* What a training step does: the gradients of the parameters start at zero. */
static attn_status layer_step(run *r) {
    attn_mha_saved saved;
    memset(r->dtheta, 0, r->num_params * sizeof *r->dtheta);
    const attn_status status =
        attn_mha_forward(&r->mha, &r->params, &r->mha_input, r->out, &r->arena, &saved);
    if (status != ATTN_OK)
        return status;
    const attn_mha_input_grads dinput = {.query = r->da};
    return attn_mha_backward(&r->mha, &r->params, &saved, r->dout, &r->dparams, &dinput, &r->arena);
}

static attn_status core_step(run *r) {
    attn_sdpa_saved saved;
    const attn_status status =
        attn_sdpa_forward(&r->sdpa, &r->sdpa_input, &r->sdpa_output, &r->arena, &saved);
    if (status != ATTN_OK)
        return status;
    const attn_strides strides = r->sdpa_output.context_strides;
    const attn_sdpa_grads grads = {.query = r->da,
                                   .key = r->db,
                                   .value = r->dv,
                                   .query_strides = strides,
                                   .key_strides = strides,
                                   .value_strides = strides};
    return attn_sdpa_backward(&r->sdpa, &saved, r->dout, &strides, &grads, &r->arena);
}

static attn_status forward_backward(run *r) {
    attn_arena_reset(&r->arena);
    return r->c->layer ? layer_step(r) : core_step(r);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median time of `function` after a run that warms caches and threads; negative on failure. */
static double median(attn_status (*function)(run *), run *r) {
    enum { LEAST = 3, MOST = 2000 };
    double times[MOST];
    size_t count = 0;
    if (function(r) != ATTN_OK)
        return -1;
    for (const double start = tool_seconds();
         count < LEAST || (count < MOST && tool_seconds() - start < r->c->budget); count++) {
        const double before = tool_seconds();
        if (function(r) != ATTN_OK)
            return -1;
        times[count] = tool_seconds() - before;
    }
    qsort(times, count, sizeof *times, compare);
    return times[count / 2];
}

/* Useful operations: 4·B·T²·D for the two products of attention, half of it below a causal mask,
 * and 8·B·T·D² for the four projections. A backward costs 2.5 and 2 times its forward. */
static void count_work(const run *r, bench_result *result) {
    const bench_shape *s = &r->c->shape;
    const double tokens = (double)s->batch * (double)s->len, width = (double)s->d_model;
    const double attention = 4 * tokens * (double)s->len * width * (r->c->causal ? 0.5 : 1);
    const double projections = r->c->layer ? 8 * tokens * width * width : 0;
    result->forward_flops = attention + projections;
    result->forward_backward_flops = 3.5 * attention + 3 * projections;
    result->traffic_bytes = (double)sizeof(attn_real) * data_reals(r) + (double)result->arena_bytes;
}

static int measure(run *r, bench_result *result) {
    const double peak_before = attn_fma_peak(r->c->threads);
    result->forward = median(forward, r);
    result->forward_backward = result->forward < 0 ? -1 : median(forward_backward, r);
    const double peak_after = attn_fma_peak(r->c->threads);
    if (result->forward_backward < 0)
        return tool_fail("shape %s: %s", r->c->shape.name, attn_error_message());
    result->fma_peak = peak_before > peak_after ? peak_before : peak_after;
    count_work(r, result);
    return TOOL_OK;
}

int bench_run(const bench_case *c, bench_result *result) {
    const double slack = 16384; /* padding and red zones of ten arrays */
    *result = (bench_result){0};
    run r = {.c = c};
    if (bench_arena_bytes(c, &result->arena_bytes) != TOOL_OK)
        return TOOL_FAILED;
    configure(&r);
    const double data = (double)sizeof(attn_real) * data_reals(&r) + slack;
    int status = TOOL_FAILED;
    if ((double)result->arena_bytes + data > bench_memory_available() ||
        attn_arena_create(&r.arena, result->arena_bytes) != ATTN_OK) {
        tool_warn("shape %s: an arena of %zu bytes cannot be had", c->shape.name,
                  result->arena_bytes);
    } else if (attn_arena_create(&r.data, (size_t)data) != ATTN_OK) {
        tool_warn("shape %s: %.0f bytes of data cannot be had", c->shape.name, data);
    } else {
        fill(&r);
        status = measure(&r, result);
    }
    attn_arena_destroy(&r.data);
    attn_arena_destroy(&r.arena);
    return status;
}
