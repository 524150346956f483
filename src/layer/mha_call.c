#include "layer/mha_call.h"

#include "base/fail.h"
#include "base/size.h"

/* The bytes of every array of the call can be counted. */
static bool sizes_fit(const attni_mha *call, const attn_mha_input *input) {
    attn_shape shape = call->shape, *s = &shape;
    if (input->offsets_q)
        s->batch = 1;
    /* In self-attention one array holds q, k and v; H·d and Hkv·d were added up in the parameters.
     */
    size_t bytes, projected = call->d_inner + 2 * call->d_kv;
    size_t widest = size_max(call->d_model, projected);
    return size_product(&bytes, (size_t[]){s->batch, s->len_q, widest, sizeof(real)}, 4) &&
           size_product(&bytes, (size_t[]){s->batch, s->len_k, widest, sizeof(real)}, 4) &&
           size_product(&bytes, (size_t[]){s->batch, s->num_heads, s->len_q, sizeof(real)}, 4) &&
           (!input->weights ||
            size_product(&bytes,
                         (size_t[]){s->batch, s->num_heads, s->len_q, s->len_k, sizeof(real)}, 5));
}

/* Positions count from those of query 0 and key 0. A size beyond int64_t is one of a call without
 * samples, which turns nothing. */
static attn_status resolve_rope(attni_mha *call, const attn_mha_config *config,
                                const attn_mha_input *input) {
    const attn_shape *s = &call->shape;
    const attn_rope_config rope = {config->rope, config->rope_base, 0};
    call->rope_q = (attni_rope_rows){.config = rope, .d_head = s->d_head, .len = s->len_q};
    call->rope_k = (attni_rope_rows){.config = rope, .d_head = s->d_head, .len = s->len_k};
    call->rope_q.sequences = call->rope_k.sequences = s->batch;
    call->rope_q.offsets = input->offsets_q;
    call->rope_k.offsets = call->self ? input->offsets_q : input->offsets_k;
    if (input->has_rope_position)
        call->rope_q.config.position = input->rope_position;
    else if (input->offsets_q)
        call->rope_q.keys = call->self ? NULL : input->offsets_k;
    else
        call->rope_q.config.position = (int64_t)(s->len_k - s->len_q);
    call->rope_k.config.position = input->rope_key_position;
    call->turn_as_one = call->self && call->rope_q.config.position == input->rope_key_position;
    if (config->rope == ATTN_ROPE_NONE || s->batch == 0)
        return ATTN_OK;
    ATTNI_TRY(attni_rope_check("attn_mha: queries", &call->rope_q.config, s->len_q, s->d_head));
    return attni_rope_check("attn_mha: keys", &call->rope_k.config, s->len_k, s->d_head);
}

/* Keys and values come from one place, and from the same one. */
static attn_status check_sources(const attn_mha_input *input) {
    if (!input->key != !input->value)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s without %s: cross-attention needs both",
                          input->key ? "key" : "value", input->key ? "value" : "key");
    if (!input->projected_key != !input->projected_value)
        return attni_fail(ATTN_ERROR_ARGUMENT, "projected_%s without projected_%s",
                          input->projected_key ? "key" : "value",
                          input->projected_key ? "value" : "key");
    if (input->key && input->projected_key)
        return attni_fail(ATTN_ERROR_ARGUMENT, "key beside projected_key: one of them");
    return ATTN_OK;
}

attn_status attni_mha_resolve(attni_mha *call, const attn_mha_config *config,
                              const attn_mha_input *input) {
    ATTNI_TRY(attn_mha_config_check(config));
    if (!input)
        return attni_fail(ATTN_ERROR_ARGUMENT, "input is NULL");
    ATTNI_TRY(check_sources(input));
    const bool given = input->projected_key, self = !input->key && !given;
    if (self && input->len_k != 0 && input->len_k != input->len_q)
        return attni_fail(ATTN_ERROR_SHAPE,
                          "len_k %zu without key and value: self-attention has len_k = len_q = %zu",
                          input->len_k, input->len_q);
    const bool wants_k = input->offsets_q && !self;
    if (wants_k != (input->offsets_k != NULL))
        return attni_fail(ATTN_ERROR_ARGUMENT, "offsets_%s: %s-attention takes %s",
                          input->offsets_k ? "k" : "q", self ? "self" : "cross",
                          self ? "offsets_q alone" : "both");
    size_t d_head = attn_mha_d_head(config);
    *call = (attni_mha){.shape = {.batch = input->batch,
                                  .num_heads = config->num_heads,
                                  .len_q = input->len_q,
                                  .len_k = self ? input->len_q : input->len_k,
                                  .d_head = d_head,
                                  .num_kv_heads = attn_mha_kv_heads(config)},
                        .d_model = config->d_model,
                        .d_inner = config->num_heads * d_head,
                        .d_kv = attn_mha_kv_heads(config) * d_head,
                        .self = self,
                        .given = given,
                        .core = {.has_scale = config->has_scale,
                                 .scale = config->scale,
                                 .kernel = config->kernel,
                                 .max_threads = config->max_threads,
                                 .softcap = config->softcap,
                                 .alibi = config->alibi,
                                 .dropout = config->dropout},
                        .sinks = config->sinks,
                        .learned_slopes = config->alibi_learned};
    if (!sizes_fit(call, input))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "batch %zu, len_q %zu, len_k %zu, d_model %zu, num_heads %zu, d_head "
                          "%zu: an array's size overflows",
                          input->batch, input->len_q, call->shape.len_k, config->d_model,
                          config->num_heads, d_head);
    call->row_q = self ? call->d_inner + 2 * call->d_kv : call->d_inner;
    call->row_k = self ? call->row_q : call->d_kv;
    const size_t samples = input->offsets_q ? 1 : input->batch;
    call->rows_q = samples * call->shape.len_q;
    call->rows_k = samples * call->shape.len_k;
    return resolve_rope(call, config, input);
}

static attn_status require(const void *pointer, const char *name) {
    return pointer ? ATTN_OK : attni_fail(ATTN_ERROR_ARGUMENT, "%s is NULL", name);
}

attn_status attni_mha_check_params(const attni_mha *call, const attn_mha_params *params) {
    ATTNI_TRY(require(params, "params"));
    ATTNI_TRY(require(params->wq, "params.wq"));
    ATTNI_TRY(require(params->wk, "params.wk"));
    ATTNI_TRY(require(params->wv, "params.wv"));
    ATTNI_TRY(require(params->wo, "params.wo"));
    if (call->sinks)
        ATTNI_TRY(require(params->sinks, "params.sinks"));
    return call->learned_slopes ? require(params->alibi_slopes, "params.alibi_slopes") : ATTN_OK;
}

attn_status attni_mha_check_forward(const attni_mha *call, const attn_mha_params *params,
                                    const attn_mha_input *input, const real *y) {
    ATTNI_TRY(attni_mha_check_params(call, params));
    if (call->rows_q == 0)
        return ATTN_OK;
    ATTNI_TRY(require(input->query, "input.query"));
    return require(y, "y");
}

/* What the backward does to scores and weights must be what the forward did. The scale is compared
 * where it is used, in the core. */
static attn_status check_same_terms(const attni_mha *call, const attni_mha *then) {
    const attn_rope_config *turned = &then->rope_q.config, *turning = &call->rope_q.config;
    if (turned->pairing != turning->pairing || turned->base != turning->base)
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "rope is %d of base %g, but saved comes from %d of base %g",
                          (int)turning->pairing, turning->base, (int)turned->pairing, turned->base);
    if (then->core.softcap != call->core.softcap || then->core.dropout != call->core.dropout)
        return attni_fail(
            ATTN_ERROR_ARGUMENT, "softcap is %g and dropout %g, but saved comes from %g and %g",
            call->core.softcap, call->core.dropout, then->core.softcap, then->core.dropout);
    if (then->core.alibi != call->core.alibi || then->learned_slopes != call->learned_slopes ||
        then->sinks != call->sinks)
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "alibi, alibi_learned and sinks are %d, %d and %d, but saved comes from "
                          "%d, %d and %d",
                          call->core.alibi, call->learned_slopes, call->sinks, then->core.alibi,
                          then->learned_slopes, then->sinks);
    return ATTN_OK;
}

attn_status attni_mha_check_saved(const attni_mha *call, const attn_mha_saved *saved) {
    const attn_shape *want = &call->shape, *have = &saved->core.input.shape;
    attni_mha then;
    if (have->d_head == 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "saved holds no forward");
    ATTNI_TRY(attni_mha_resolve(&then, &saved->config, &saved->input));
    if (then.d_model != call->d_model || have->num_heads != want->num_heads ||
        have->num_kv_heads != want->num_kv_heads || have->d_head != want->d_head)
        return attni_fail(
            ATTN_ERROR_SHAPE,
            "saved has d_model %zu, num_heads %zu, num_kv_heads %zu and d_head %zu, config %zu, "
            "%zu, %zu and %zu",
            then.d_model, have->num_heads, have->num_kv_heads, have->d_head, call->d_model,
            want->num_heads, want->num_kv_heads, want->d_head);
    if (have->batch != want->batch || have->len_q != want->len_q || have->len_k != want->len_k)
        return attni_fail(ATTN_ERROR_SHAPE, "saved.input is not the one of the forward");
    return check_same_terms(call, &then);
}

attn_status attni_mha_check_backward(const attni_mha *call, const attn_mha_params *params,
                                     const attn_mha_input *input, const real *dy,
                                     const attn_mha_params *dparams,
                                     const attn_mha_input_grads *dinput) {
    ATTNI_TRY(attni_mha_check_params(call, params));
    if (call->rows_q > 0)
        ATTNI_TRY(require(dy, "dy"));
    if (dparams) {
        ATTNI_TRY(require(dparams->wq, "dparams.wq"));
        ATTNI_TRY(require(dparams->wk, "dparams.wk"));
        ATTNI_TRY(require(dparams->wv, "dparams.wv"));
        ATTNI_TRY(require(dparams->wo, "dparams.wo"));
    }
    if (!dinput)
        return ATTN_OK;
    if (call->self && (dinput->key || dinput->value))
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "dinput.%s in self-attention: dinput.query is the whole gradient",
                          dinput->key ? "key" : "value");
    if (call->given && (dinput->key || dinput->value))
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "dinput.%s, but keys and values were projected beforehand",
                          dinput->key ? "key" : "value");
    if (!call->given && (dinput->projected_key || dinput->projected_value))
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "dinput.projected_%s, but the forward projected keys and values itself",
                          dinput->projected_key ? "key" : "value");
    if (dinput->bias && !input->bias)
        return attni_fail(ATTN_ERROR_ARGUMENT, "dinput.bias, but the forward had no input.bias");
    const real *const arrays[] = {dinput->query, dinput->key,           dinput->value,
                                  dinput->bias,  dinput->projected_key, dinput->projected_value};
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < i; j++)
            if (arrays[i] && arrays[i] == arrays[j])
                return attni_fail(ATTN_ERROR_ARGUMENT,
                                  "dinput: gradients must be different arrays");
    return ATTN_OK;
}
