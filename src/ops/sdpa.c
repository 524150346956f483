#include <attn/sdpa.h>

#include "base/dry_run.h"
#include "base/fail.h"
#include "ops/band_ops.h"
#include "ops/parallel.h"
#include "ops/sdpa_internal.h"
#include "ops/strides.h"

#include <math.h>

/* The paths by their kernel. */
static const struct path {
    attn_status (*forward)(const attni_sdpa *, const attn_sdpa_output *, attn_arena *,
                           attn_sdpa_saved *);
    attn_status (*backward)(const attni_sdpa *, const attn_sdpa_saved *, const real *,
                            const attn_strides *, const attn_sdpa_grads *, attn_arena *);
} paths[] = {
    [ATTN_KERNEL_REFERENCE] = {attni_reference_forward, attni_reference_backward},
    [ATTN_KERNEL_FUSED] = {attni_fused_forward, attni_fused_backward},
};

/* The same with the heads of keys and values, for what is checked of their tensors. */
static attn_shape key_value_shape(const attn_shape *shape) {
    attn_shape shared = *shape;
    shared.num_heads = shared.num_kv_heads = shape_kv_heads(shape);
    return shared;
}

attn_status attni_offsets_check(const char *function, const char *name, const size_t *offsets,
                                size_t batch, size_t total, size_t *longest) {
    *longest = 0;
    if (offsets[0] != 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: %s[0] is %zu, not 0", function, name,
                          offsets[0]);
    for (size_t b = 0; b < batch; b++) {
        if (offsets[b + 1] < offsets[b])
            return attni_fail(ATTN_ERROR_ARGUMENT, "%s: %s[%zu] is %zu, below %zu before it",
                              function, name, b + 1, offsets[b + 1], offsets[b]);
        *longest = size_max(*longest, offsets[b + 1] - offsets[b]);
    }
    if (offsets[batch] != total)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: %s end at %zu, but there are %zu tokens",
                          function, name, offsets[batch], total);
    return ATTN_OK;
}

/* The sizes of the call: packed sequences have lengths of their own. */
static attn_status resolve_sizes(attni_sdpa *call, const attn_sdpa_input *input) {
    const size_t *q = input->offsets_q, *k = input->offsets_k;
    attn_shape *shape = &call->shape;
    *shape = input->shape;
    shape->num_kv_heads = shape_kv_heads(shape);
    call->tokens = *shape;
    call->rows = shape->batch * shape->num_heads * shape->len_q; /* the shape fits */
    call->pairs = size_mul_capped(call->rows, shape->len_k);
    if (!q && !k)
        return ATTN_OK;
    if (!q || !k)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_sdpa: %s is NULL, %s is not",
                          q ? "offsets_k" : "offsets_q", q ? "offsets_q" : "offsets_k");
    if (input->mask.padding)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_sdpa: mask.padding: packed sequences have no "
                                               "padding");
    ATTNI_TRY(attni_offsets_check("attn_sdpa", "offsets_q", q, shape->batch, call->tokens.len_q,
                                  &shape->len_q));
    ATTNI_TRY(attni_offsets_check("attn_sdpa", "offsets_k", k, shape->batch, call->tokens.len_k,
                                  &shape->len_k));
    call->tokens.batch = size_min(shape->batch, 1);
    call->rows = shape->num_heads * call->tokens.len_q;
    call->pairs = 0;
    for (size_t b = 0; b < shape->batch; b++) {
        const size_t queries = size_mul_capped(shape->num_heads, q[b + 1] - q[b]);
        call->pairs = size_add_capped(call->pairs, size_mul_capped(queries, k[b + 1] - k[b]));
    }
    return ATTN_OK;
}

/* What is done to scores and weights. NaN fails every comparison. */
static attn_status check_terms(const attni_sdpa *call, const attn_sdpa_config *config,
                               const attn_sdpa_input *input) {
    if (!isfinite((real)call->scale))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_sdpa: scale %g is not finite", call->scale);
    ATTNI_TRY(attni_softcap_check("attn_sdpa", config->softcap));
    if (!(config->dropout >= 0 && config->dropout < 1))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_sdpa: dropout %g is not in [0, 1)",
                          config->dropout);
    ATTNI_TRY(attni_bias_check("attn_sdpa", input->bias, &input->bias_strides, &call->shape));
    return config->dropout > 0 ? attni_dropout_check("attn_sdpa", &call->shape) : ATTN_OK;
}

/* Checks and defaults of a call. When measuring, arrays need not exist. */
static attn_status resolve(attni_sdpa *call, const attn_sdpa_config *config,
                           const attn_sdpa_input *input, bool training, bool measuring) {
    ATTNI_TRY(attni_shape_check("attn_sdpa", &input->shape));
    call->input = input;
    ATTNI_TRY(resolve_sizes(call, input));
    const attn_shape *shape = &call->shape, *tokens = &call->tokens;
    const attn_shape shared = key_value_shape(tokens);
    const attni_tensor inputs[] = {
        {"query", input->query, input->query_strides, tokens->len_q, false},
        {"key", input->key, input->key_strides, tokens->len_k, false},
        {"value", input->value, input->value_strides, tokens->len_k, false},
    };
    for (size_t n = 0; n < 3; n++)
        ATTNI_TRY(
            attni_tensor_check("attn_sdpa", &inputs[n], n == 0 ? tokens : &shared, measuring));
    call->scale = config->has_scale ? config->scale : attn_default_scale(shape->d_head);
    call->threads = threads_resolve(config->max_threads);
    call->softcap = (double)attni_softcap(config->softcap);
    call->alibi = config->alibi;
    call->dropout = training ? config->dropout : 0;
    ATTNI_TRY(check_terms(call, config, input));
    ATTNI_TRY(attni_mask_resolve(&call->mask, &input->mask, shape));
    call->mask.bias = input->bias;
    call->mask.bias_strides = input->bias_strides;
    return ATTN_OK;
}

/* The path taken, *kernel, for the one that is asked for. */
static attn_status choose_kernel(attn_kernel *kernel, attn_kernel wanted, const attni_sdpa *call,
                                 const attn_sdpa_output *output) {
    *kernel = wanted != ATTN_KERNEL_AUTO ? wanted
              : output->weights          ? ATTN_KERNEL_REFERENCE
                                         : ATTN_KERNEL_FUSED;
    if ((unsigned)wanted > ATTN_KERNEL_FUSED)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_sdpa: kernel %d is no kernel", (int)wanted);
    if (call->input->offsets_q && output->weights)
        return attni_fail(ATTN_ERROR_UNSUPPORTED,
                          "attn_sdpa: the weights of packed sequences cannot be returned, but "
                          "attn_sdpa_weights shows one head at a time");
    if (wanted == ATTN_KERNEL_FUSED && output->weights)
        return attni_fail(ATTN_ERROR_UNSUPPORTED,
                          "attn_sdpa: the fused kernel never holds the weights; ask for them "
                          "afterwards, with attn_sdpa_weights");
    return ATTN_OK;
}

static attn_status refuse_null(const char *function, const char *argument) {
    return attni_fail(ATTN_ERROR_ARGUMENT, "%s: %s is NULL", function, argument);
}

attn_status attn_sdpa_forward(const attn_sdpa_config *config, const attn_sdpa_input *input,
                              const attn_sdpa_output *output, attn_arena *arena,
                              attn_sdpa_saved *saved) {
    if (!config || !input || !output || !arena)
        return refuse_null("attn_sdpa_forward", !config   ? "config"
                                                : !input  ? "input"
                                                : !output ? "output"
                                                          : "arena");
    attni_sdpa call;
    attn_kernel kernel;
    ATTNI_TRY(resolve(&call, config, input, saved, arena->measuring));
    ATTNI_TRY(attni_tensor_check("attn_sdpa",
                                 &(attni_tensor){"context", output->context,
                                                 output->context_strides, call.tokens.len_q, true},
                                 &call.tokens, arena->measuring));
    ATTNI_TRY(choose_kernel(&kernel, config->kernel, &call, output));
    attn_sdpa_saved kept = {.input = *input,
                            .output = *output,
                            .kernel = kernel,
                            .scale = call.scale,
                            .softcap = call.softcap,
                            .dropout = call.dropout,
                            .alibi = call.alibi};
    const size_t mark = attn_arena_mark(arena), high_water = arena->high_water;
    attn_status status = paths[kernel].forward(&call, output, arena, saved ? &kept : NULL);
    if (status != ATTN_OK) {
        arena_give_up(arena, mark, high_water);
        return status;
    }
    if (saved)
        *saved = kept;
    return ATTN_OK;
}

/* Two gradients in one array would be neither. Empty ones may have one address. */
static attn_status check_distinct(const attn_sdpa_grads *grads, const attn_shape *s) {
    const bool has_q = s->batch * s->num_heads * s->len_q > 0;
    const bool has_k = s->batch * s->num_heads * s->len_k > 0;
    const real *arrays[] = {has_q ? grads->query : NULL,
                            has_k ? grads->key : NULL,
                            has_k ? grads->value : NULL,
                            has_q && has_k ? grads->bias : NULL,
                            s->num_heads ? grads->alibi_slopes : NULL,
                            s->num_heads ? grads->sinks : NULL};
    for (size_t n = 1; n < sizeof arrays / sizeof *arrays; n++)
        for (size_t m = 0; m < n; m++)
            if (arrays[n] && arrays[n] == arrays[m])
                return attni_fail(ATTN_ERROR_ARGUMENT, "attn_sdpa_backward: grads: query, key, "
                                                       "value and the others must be different "
                                                       "arrays");
    return ATTN_OK;
}

/* The gradient of what is not there would be left unwritten. */
static attn_status check_term_grads(const attni_sdpa *call, const attn_sdpa_grads *grads) {
    const attn_sdpa_input *in = call->input;
    const char *absent = grads->bias && !in->bias              ? "bias"
                         : grads->sinks && !in->sinks          ? "sinks"
                         : grads->alibi_slopes && !call->alibi ? "alibi_slopes"
                                                               : NULL;
    if (absent)
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "attn_sdpa_backward: grads.%s is given, but the forward had none",
                          absent);
    return grads->bias ? attni_dbias_check("attn_sdpa_backward", &in->bias_strides, &call->shape)
                       : ATTN_OK;
}

bool attni_sdpa_has_dbias(const attn_sdpa_input *input) {
    attni_sdpa call;
    return input->bias && resolve_sizes(&call, input) == ATTN_OK &&
           attni_dbias_check("attn_sdpa", &input->bias_strides, &call.shape) == ATTN_OK;
}

/* Whether `saved` holds what its path needs. */
static attn_status check_saved(const char *function, const attn_sdpa_config *config,
                               const attn_sdpa_saved *saved, bool measuring) {
    const attn_shape *s = &saved->input.shape;
    bool has_rows = s->batch > 0 && s->num_heads > 0 && s->len_q > 0;
    bool complete = measuring || !has_rows;
    if (saved->kernel == ATTN_KERNEL_REFERENCE)
        complete = complete || ((saved->weights || s->len_k == 0) &&
                                (saved->sink_weights || !saved->input.sinks));
    else if (saved->kernel == ATTN_KERNEL_FUSED)
        complete = complete || (saved->row_max && saved->row_sum && saved->output.context);
    else
        complete = false;
    if (!complete)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: saved was not filled by attn_sdpa_forward",
                          function);
    if (config->kernel != ATTN_KERNEL_AUTO && config->kernel != saved->kernel)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: saved comes from kernel %d, config asks for %d",
                          function, (int)saved->kernel, (int)config->kernel);
    return ATTN_OK;
}

static attn_status check_same_terms(const char *function, const attni_sdpa *call,
                                    const attn_sdpa_saved *saved) {
    const struct {
        const char *name;
        double now, then;
    } terms[] = {{"scale", call->scale, saved->scale},
                 {"softcap", call->softcap, saved->softcap},
                 {"alibi", call->alibi, saved->alibi},
                 {"dropout", call->dropout, saved->dropout}};
    for (size_t n = 0; n < sizeof terms / sizeof *terms; n++)
        if (terms[n].now != terms[n].then)
            return attni_fail(ATTN_ERROR_ARGUMENT, "%s: %s is %g, but saved comes from %g",
                              function, terms[n].name, terms[n].now, terms[n].then);
    return ATTN_OK;
}

attn_status attni_sdpa_resume(attni_sdpa *call, const char *function,
                              const attn_sdpa_config *config, const attn_sdpa_saved *saved,
                              bool measuring) {
    ATTNI_TRY(check_saved(function, config, saved, measuring));
    ATTNI_TRY(resolve(call, config, &saved->input, true, measuring));
    ATTNI_TRY(check_same_terms(function, call, saved));
    return ATTN_OK;
}

attn_status attn_sdpa_backward(const attn_sdpa_config *config, const attn_sdpa_saved *saved,
                               const attn_real *dcontext, const attn_strides *dcontext_strides,
                               const attn_sdpa_grads *grads, attn_arena *arena) {
    if (!config || !saved || !dcontext_strides || !grads || !arena)
        return refuse_null("attn_sdpa_backward", !config             ? "config"
                                                 : !saved            ? "saved"
                                                 : !dcontext_strides ? "dcontext_strides"
                                                 : !grads            ? "grads"
                                                                     : "arena");
    attni_sdpa call;
    const attn_shape *shape = &call.tokens;
    ATTNI_TRY(attni_sdpa_resume(&call, "attn_sdpa_backward", config, saved, arena->measuring));
    ATTNI_TRY(check_term_grads(&call, grads));
    if (!arena->measuring)
        ATTNI_TRY(check_distinct(grads, shape));
    ATTNI_TRY(attni_tensor_check(
        "attn_sdpa", &(attni_tensor){"dcontext", dcontext, *dcontext_strides, shape->len_q, false},
        shape, arena->measuring));
    const attn_shape shared = key_value_shape(shape);
    const attni_tensor outputs[] = {
        {"dquery", grads->query, grads->query_strides, shape->len_q, true},
        {"dkey", grads->key, grads->key_strides, shape->len_k, true},
        {"dvalue", grads->value, grads->value_strides, shape->len_k, true},
    };
    for (size_t n = 0; n < 3; n++)
        if (outputs[n].data)
            ATTNI_TRY(
                attni_tensor_check("attn_sdpa", &outputs[n], n == 0 ? shape : &shared, false));
    const size_t mark = attn_arena_mark(arena), high_water = arena->high_water;
    attn_status status =
        paths[saved->kernel].backward(&call, saved, dcontext, dcontext_strides, grads, arena);
    if (status != ATTN_OK)
        arena_give_up(arena, mark, high_water);
    return status;
}

attn_status attn_sdpa_memory(const attn_sdpa_config *config, const attn_sdpa_input *input,
                             const attn_sdpa_output *output, attn_memory *memory) {
    if (!memory || !input)
        return refuse_null("attn_sdpa_memory", memory ? "input" : "memory");
    const attn_shape *s = &input->shape;
    attn_arena training, inference;
    attn_sdpa_saved saved;
    ATTNI_TRY(attn_arena_init_measuring(&inference));
    ATTNI_TRY(attn_sdpa_forward(config, input, output, &inference, NULL));
    ATTNI_TRY(attn_arena_init_measuring(&training));
    ATTNI_TRY(attn_sdpa_forward(config, input, output, &training, &saved));
    size_t kept = training.used;
    /* The backward of the hungriest caller: it wants every gradient. */
    real any;
    attn_strides strides_q = attn_strides_bhtd(s->len_q, s->num_heads, s->d_head);
    attn_strides strides_k = attn_strides_bhtd(s->len_k, shape_kv_heads(s), s->d_head);
    attn_sdpa_grads grads = {.query = &any,
                             .key = &any,
                             .value = &any,
                             .query_strides = strides_q,
                             .key_strides = strides_k,
                             .value_strides = strides_k,
                             .bias = attni_sdpa_has_dbias(input) ? &any : NULL,
                             .alibi_slopes = config->alibi ? &any : NULL,
                             .sinks = input->sinks ? &any : NULL};
    ATTNI_TRY(attn_sdpa_backward(config, &saved, &any, &strides_q, &grads, &training));
    *memory = (attn_memory){
        .saved = kept, .training = training.high_water, .inference = inference.high_water};
    return ATTN_OK;
}
