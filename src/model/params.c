#include <attn/model.h>

#include "base/fail.h"
#include "base/real.h"
#include "base/size.h"

#include <attn/random.h>
#include <math.h>
#include <string.h>

/* Sizes of the parts of the block, in its order. */
typedef struct parts {
    size_t token_embedding, position_embedding, layer, layers, head_weight, head_bias, total;
} parts;

attn_mha_config attn_model_layer_config(const attn_model_config *config) {
    attn_mha_config layer = {0};
    if (!config)
        return layer;
    layer.d_model = config->d_model;
    layer.num_heads = config->num_heads;
    layer.d_head = config->d_head;
    layer.bias = config->bias;
    layer.has_scale = config->has_scale;
    layer.scale = config->scale;
    layer.rope = config->rope;
    layer.rope_base = config->rope_base;
    layer.kernel = config->kernel;
    layer.max_threads = config->max_threads;
    layer.num_kv_heads = config->num_kv_heads;
    layer.softcap = config->softcap;
    layer.alibi = config->alibi;
    layer.alibi_learned = config->alibi_learned;
    layer.sinks = config->sinks;
    layer.dropout = config->dropout;
    return layer;
}

uint64_t attn_model_layer_seed(uint64_t seed, size_t layer) {
    enum { STREAM = 0x64726F70 }; /* apart from the streams of parameters and of tasks */
    attn_random random = attn_random_seed(seed, ((uint64_t)STREAM << 32) + layer);
    const uint64_t high = attn_random_u32(&random);
    return high << 32 | attn_random_u32(&random);
}

static attn_status count(const attn_model_config *config, parts *p) {
    *p = (parts){0};
    if (!config)
        return attni_fail(ATTN_ERROR_ARGUMENT, "config is NULL");
    if (config->vocab == 0 || config->context == 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "vocab %zu and context %zu must be at least 1",
                          config->vocab, config->context);
    if (config->vocab > INT32_MAX)
        return attni_fail(ATTN_ERROR_ARGUMENT, "vocab %zu: tokens have 32 bits", config->vocab);
    attn_mha_config layer = attn_model_layer_config(config);
    ATTNI_TRY(attn_mha_config_check(&layer));
    p->layer = attn_mha_num_params(&layer);
    p->head_bias = config->bias ? config->vocab : 0;
    size_t bytes;
    if (!size_mul(&p->token_embedding, config->vocab, config->d_model) ||
        !size_mul(&p->position_embedding, config->context, config->d_model) ||
        !size_mul(&p->layers, config->num_layers, p->layer) ||
        !size_mul(&p->head_weight, config->vocab, config->d_model) ||
        !size_add(&p->total, p->token_embedding, p->position_embedding) ||
        !size_add(&p->total, p->total, p->layers) ||
        !size_add(&p->total, p->total, p->head_weight) ||
        !size_add(&p->total, p->total, p->head_bias) || !size_mul(&bytes, p->total, sizeof(real)))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "vocab %zu, context %zu, d_model %zu, num_layers %zu: the size of the "
                          "parameters wraps",
                          config->vocab, config->context, config->d_model, config->num_layers);
    return ATTN_OK;
}

attn_status attn_model_config_check(const attn_model_config *config) {
    parts p;
    return count(config, &p);
}

size_t attn_model_num_params(const attn_model_config *config) {
    parts p;
    return count(config, &p) == ATTN_OK ? p.total : 0;
}

attn_model_params attn_model_params_view(const attn_model_config *config, attn_real *block) {
    attn_model_params view = {0};
    parts p;
    if (!block || count(config, &p) != ATTN_OK)
        return view;
    view.token_embedding = block;
    view.position_embedding = view.token_embedding + p.token_embedding;
    view.layers = view.position_embedding + p.position_embedding;
    view.head_weight = view.layers + p.layers;
    view.head_bias = config->bias ? view.head_weight + p.head_weight : NULL;
    return view;
}

attn_mha_params attn_model_layer_view(const attn_model_config *config,
                                      const attn_model_params *params, size_t layer) {
    attn_mha_config layer_config = attn_model_layer_config(config);
    if (!config || !params || !params->layers || layer >= config->num_layers)
        return attn_mha_params_view(&layer_config, NULL);
    return attn_mha_params_view(&layer_config,
                                params->layers + layer * attn_mha_num_params(&layer_config));
}

static void draw_normal(real *x, size_t n, double deviation, attn_random *random) {
    for (size_t i = 0; i < n; i++)
        x[i] = (real)(deviation * attn_random_normal(random));
}

/* Xavier-uniform: within ±sqrt(6 / (fan in + fan out)). */
static void draw_uniform(real *x, size_t d_out, size_t d_in, attn_random *random) {
    double bound = sqrt(6.0 / ((double)d_in + (double)d_out));
    for (size_t i = 0; i < d_out * d_in; i++)
        x[i] = (real)(bound * (2 * attn_random_uniform(random) - 1));
}

attn_status attn_model_params_init(const attn_model_config *config, attn_real *block,
                                   uint64_t seed) {
    parts p;
    ATTNI_TRY(count(config, &p));
    if (!block)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_model_params_init: block is NULL");
    enum { STREAM = 0x6D6F64 }; /* apart from the streams of tasks and of dropout */
    const double deviation = 0.1;
    attn_model_params w = attn_model_params_view(config, block);
    attn_mha_config layer = attn_model_layer_config(config);
    attn_random random = attn_random_seed(seed, STREAM);
    draw_normal(w.token_embedding, p.token_embedding, deviation, &random);
    draw_normal(w.position_embedding, p.position_embedding, deviation, &random);
    draw_uniform(w.head_weight, config->vocab, config->d_model, &random);
    if (w.head_bias)
        memset(w.head_bias, 0, p.head_bias * sizeof(real));
    for (size_t l = 0; l < config->num_layers; l++) {
        uint64_t layer_seed = (uint64_t)attn_random_u32(&random) << 32;
        layer_seed |= attn_random_u32(&random);
        ATTNI_TRY(attn_mha_params_init(&layer, w.layers + l * p.layer, layer_seed));
    }
    return ATTN_OK;
}
