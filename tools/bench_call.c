/* The calls that `attn bench` measures, in the precision of this compilation. */
#include "names64_tools.h"

#include "bench_call.h"
#include "tool.h"

#include <attn/attn.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 1 };

static attn_mask mask_of(const bench_case *c) {
    const size_t window = c->variants.window;
    return (attn_mask){.causal = c->causal,
                       .window = {.left_on = window > 0,
                                  .left = window > 0 ? window - 1 : 0,
                                  .right_on = window > 0 && !c->causal}};
}

static attn_broadcast bias_strides(const bench_case *c) {
    attn_broadcast strides = {0};
    const bench_shape *s = &c->shape;
    if (c->variants.has_bias)
        (void)attn_broadcast_strides(&strides, c->variants.bias, 4, s->batch, s->num_heads, s->len,
                                     s->len); /* bench_variants_check has seen the sizes */
    return strides;
}

static void count_reals(bench_call *call) {
    const bench_case *c = call->c;
    const bench_shape *s = &c->shape;
    call->reals = s->batch * s->len * s->d_model;
    call->kv_reals = s->batch * s->len * bench_kv_heads(c) * bench_d_head(c);
    call->bias_reals = c->variants.has_bias ? 1 : 0;
    for (size_t i = 0; i < 4 && c->variants.has_bias; i++)
        call->bias_reals *= c->variants.bias[i];
}

static void configure_layer(bench_call *call) {
    const bench_case *c = call->c;
    call->mha = (attn_mha_config){.d_model = c->shape.d_model,
                                  .num_heads = c->shape.num_heads,
                                  .bias = true,
                                  .rope = c->variants.rope,
                                  .kernel = c->kernel,
                                  .max_threads = c->threads,
                                  .num_kv_heads = c->variants.num_kv_heads,
                                  .softcap = c->variants.softcap,
                                  .alibi = c->variants.alibi,
                                  .alibi_learned = c->variants.alibi,
                                  .sinks = c->variants.sinks,
                                  .dropout = c->variants.dropout};
    call->num_params = c->layer ? attn_mha_num_params(&call->mha) : 0;
    call->mha_input = (attn_mha_input){.batch = c->shape.batch,
                                       .len_q = c->shape.len,
                                       .query = call->query,
                                       .mask = mask_of(c),
                                       .bias = call->bias,
                                       .bias_strides = bias_strides(c),
                                       .dropout_seed = SEED};
}

static void configure_core(bench_call *call) {
    const bench_case *c = call->c;
    const bench_shape *s = &c->shape;
    const attn_strides strides = attn_strides_bhtd(s->len, s->num_heads, bench_d_head(c));
    const attn_strides kv_strides = attn_strides_bhtd(s->len, bench_kv_heads(c), bench_d_head(c));
    const bool turned = c->variants.rope != ATTN_ROPE_NONE;
    call->sdpa = (attn_sdpa_config){.kernel = c->kernel,
                                    .max_threads = c->threads,
                                    .softcap = c->variants.softcap,
                                    .alibi = c->variants.alibi,
                                    .dropout = c->variants.dropout};
    call->sdpa_input = (attn_sdpa_input){
        .shape = {s->batch, s->num_heads, s->len, s->len, bench_d_head(c), bench_kv_heads(c)},
        .query = turned ? call->turned_query : call->query,
        .key = turned ? call->turned_key : call->key,
        .value = call->value,
        .query_strides = strides,
        .key_strides = kv_strides,
        .value_strides = kv_strides,
        .mask = mask_of(c),
        .bias = call->bias,
        .bias_strides = bias_strides(c),
        .alibi_slopes = call->slopes,
        .sinks = call->sinks,
        .dropout_seed = SEED};
    call->sdpa_output = (attn_sdpa_output){.context = call->context, .context_strides = strides};
}

static void configure(bench_call *call) {
    count_reals(call);
    configure_layer(call);
    configure_core(call);
}

/* Pointers are only compared with NULL here, and there are no arrays yet. */
static attn_status arena_need(const bench_case *c, size_t *bytes) {
    attn_real some;
    bench_call call = {.c = c,
                       .query = &some,
                       .key = &some,
                       .value = &some,
                       .context = &some,
                       .turned_query = &some,
                       .turned_key = &some,
                       .bias = c->variants.has_bias ? &some : NULL,
                       .slopes = c->variants.alibi ? &some : NULL,
                       .sinks = c->variants.sinks ? &some : NULL};
    configure(&call);
    attn_memory memory = {0};
    const attn_status status =
        c->layer ? attn_mha_memory(&call.mha, &call.mha_input, &memory)
                 : attn_sdpa_memory(&call.sdpa, &call.sdpa_input, &call.sdpa_output, &memory);
    *bytes = memory.training;
    return status;
}

int bench_arena_bytes(const bench_case *c, size_t *bytes) {
    if (arena_need(c, bytes) != ATTN_OK)
        return tool_fail("shape %s: %s", c->shape.name, attn_error_message());
    return TOOL_OK;
}

/* n reals for the caller's own data, zeroed. The arena was made large enough. */
static attn_real *zero_array(bench_call *call, size_t n) {
    void *x;
    if (attn_arena_alloc(&call->data, &x, n, sizeof(attn_real)) != ATTN_OK)
        abort();
    memset(x, 0, n * sizeof(attn_real));
    return x;
}

/* Uniform with variance 1, as the numbers behind a normalisation would be. */
static attn_real *random_array(bench_call *call, size_t n, uint64_t stream) {
    attn_real *x = zero_array(call, n);
    attn_random random = attn_random_seed(SEED, stream);
    for (size_t i = 0; i < n; i++)
        x[i] = (attn_real)(3.4641016151377544 * (attn_random_uniform(&random) - 0.5));
    return x;
}

/* x, y, dy, dx and the parameters with their gradients; or q, k, v, the context and the gradients
 * of all four. */
double bench_call_data_bytes(const bench_call *call) {
    const bool turned = call->c->variants.rope != ATTN_ROPE_NONE;
    const double reals = (double)call->reals, kv_reals = (double)call->kv_reals;
    const double own = call->c->layer ? 4 * reals + 2 * (double)call->num_params
                                      : 4 * reals + 4 * kv_reals + (turned ? reals + kv_reals : 0) +
                                            4 * (double)call->c->shape.num_heads;
    return (double)sizeof(attn_real) * (own + 2 * (double)call->bias_reals);
}

static void fill_layer(bench_call *call) {
    call->theta = zero_array(call, call->num_params);
    call->dtheta = zero_array(call, call->num_params);
    attn_mha_params_init(&call->mha, call->theta, SEED);
    call->params = attn_mha_params_view(&call->mha, call->theta);
    call->dparams = attn_mha_params_view(&call->mha, call->dtheta);
}

static void fill_core(bench_call *call) {
    const bench_case *c = call->c;
    const size_t num_heads = c->shape.num_heads;
    call->key = random_array(call, call->kv_reals, 3);
    call->value = random_array(call, call->kv_reals, 4);
    call->dkey = zero_array(call, call->kv_reals);
    call->dvalue = zero_array(call, call->kv_reals);
    if (c->variants.rope != ATTN_ROPE_NONE) {
        call->turned_query = zero_array(call, call->reals);
        call->turned_key = zero_array(call, call->kv_reals);
    }
    if (c->variants.alibi) {
        call->slopes = zero_array(call, num_heads);
        call->dslopes = zero_array(call, num_heads);
        for (size_t h = 0; h < num_heads; h++)
            call->slopes[h] = (attn_real)exp2(-8 * (double)(h + 1) / (double)num_heads);
    }
    if (c->variants.sinks) {
        call->sinks = random_array(call, num_heads, 6);
        call->dsinks = zero_array(call, num_heads);
    }
}

static void fill(bench_call *call) {
    call->query = random_array(call, call->reals, 1);
    call->dcontext = random_array(call, call->reals, 2);
    call->context = zero_array(call, call->reals);
    call->dquery = zero_array(call, call->reals);
    if (call->c->variants.has_bias) {
        call->bias = random_array(call, call->bias_reals, 5);
        call->dbias = zero_array(call, call->bias_reals);
    }
    if (call->c->layer)
        fill_layer(call);
    else
        fill_core(call);
    configure(call);
}

int bench_call_open(bench_call *call, const bench_case *c) {
    const double slack = 32768; /* padding and red zones of the arrays */
    size_t need;
    *call = (bench_call){.c = c};
    if (bench_arena_bytes(c, &need) != TOOL_OK)
        return TOOL_FAILED;
    configure(call);
    const double data = bench_call_data_bytes(call) + slack;
    if ((double)need + data > bench_memory_available() ||
        attn_arena_create(&call->arena, need) != ATTN_OK)
        return tool_fail("shape %s: an arena of %zu bytes cannot be had", c->shape.name, need);
    if (attn_arena_create(&call->data, (size_t)data) != ATTN_OK)
        return tool_fail("shape %s: %.0f bytes of data cannot be had", c->shape.name, data);
    fill(call);
    return TOOL_OK;
}

void bench_call_close(bench_call *call) {
    attn_arena_destroy(&call->data);
    attn_arena_destroy(&call->arena);
}

/* Queries and keys of the core turned by their positions, or their gradients turned back. */
static attn_status turn(bench_call *call, bool back) {
    const bench_case *c = call->c;
    const bench_shape *s = &c->shape;
    const attn_sdpa_input *in = &call->sdpa_input;
    const attn_rope_config rope = {.pairing = c->variants.rope};
    if (c->variants.rope == ATTN_ROPE_NONE)
        return ATTN_OK;
    const attn_status status =
        back ? attn_rope_backward(call->dquery, call->dquery, &in->query_strides, &rope, s->batch,
                                  s->num_heads, s->len, bench_d_head(c))
             : attn_rope_forward(call->turned_query, call->query, &in->query_strides, &rope,
                                 s->batch, s->num_heads, s->len, bench_d_head(c));
    if (status != ATTN_OK)
        return status;
    return back ? attn_rope_backward(call->dkey, call->dkey, &in->key_strides, &rope, s->batch,
                                     bench_kv_heads(c), s->len, bench_d_head(c))
                : attn_rope_forward(call->turned_key, call->key, &in->key_strides, &rope, s->batch,
                                    bench_kv_heads(c), s->len, bench_d_head(c));
}

static attn_status core_forward(bench_call *call, attn_sdpa_saved *saved) {
    const attn_status status = turn(call, false);
    return status != ATTN_OK ? status
                             : attn_sdpa_forward(&call->sdpa, &call->sdpa_input, &call->sdpa_output,
                                                 &call->arena, saved);
}

static attn_status core_step(bench_call *call) {
    attn_sdpa_saved saved = {0};
    const attn_sdpa_input *in = &call->sdpa_input;
    const attn_sdpa_grads grads = {.query = call->dquery,
                                   .key = call->dkey,
                                   .value = call->dvalue,
                                   .query_strides = in->query_strides,
                                   .key_strides = in->key_strides,
                                   .value_strides = in->value_strides,
                                   .bias = call->dbias,
                                   .alibi_slopes = call->dslopes,
                                   .sinks = call->dsinks};
    attn_status status = core_forward(call, &saved);
    call->ran = saved.kernel;
    if (status == ATTN_OK)
        status = attn_sdpa_backward(&call->sdpa, &saved, call->dcontext,
                                    &call->sdpa_output.context_strides, &grads, &call->arena);
    return status == ATTN_OK ? turn(call, true) : status;
}

/* What a training step does: the gradients of the parameters start at zero. */
static attn_status layer_step(bench_call *call) {
    attn_mha_saved saved;
    memset(call->dtheta, 0, call->num_params * sizeof *call->dtheta);
    const attn_status status = attn_mha_forward(&call->mha, &call->params, &call->mha_input,
                                                call->context, &call->arena, &saved);
    if (status != ATTN_OK)
        return status;
    call->ran = saved.core.kernel;
    const attn_mha_input_grads dinput = {.query = call->dquery, .bias = call->dbias};
    return attn_mha_backward(&call->mha, &call->params, &saved, call->dcontext, &call->dparams,
                             &dinput, &call->arena);
}

attn_status bench_call_forward(bench_call *call) {
    attn_arena_reset(&call->arena);
    return call->c->layer ? attn_mha_forward(&call->mha, &call->params, &call->mha_input,
                                             call->context, &call->arena, NULL)
                          : core_forward(call, NULL);
}

attn_status bench_call_both(bench_call *call) {
    attn_arena_reset(&call->arena);
    return call->c->layer ? layer_step(call) : core_step(call);
}
