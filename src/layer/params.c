#include <attn/mha.h>
#include <attn/random.h>
#include <attn/score_terms.h>

#include "base/fail.h"
#include "base/real.h"

#include <math.h>
#include <string.h>

attn_mha_params attn_mha_params_view(const attn_mha_config *config, attn_real *block) {
    attn_mha_params view = {0};
    size_t d_head = attn_mha_d_head(config);
    if (d_head == 0 || !block)
        return view;
    size_t d_inner = config->num_heads * d_head, matrix = d_inner * config->d_model;
    size_t d_kv = attn_mha_kv_heads(config) * d_head, kv_matrix = d_kv * config->d_model;
    view.wq = block;
    view.wk = view.wq + matrix;
    view.wv = view.wk + kv_matrix;
    view.wo = view.wv + kv_matrix;
    real *next = view.wo + matrix;
    if (config->bias) {
        view.bq = next;
        view.bk = view.bq + d_inner;
        view.bv = view.bk + d_kv;
        view.bo = view.bv + d_kv;
        next = view.bo + config->d_model;
    }
    if (config->sinks) {
        view.sinks = next;
        next += config->num_heads;
    }
    if (config->alibi_learned)
        view.alibi_slopes = next;
    return view;
}

/* Uniform in [-a, a) with a = sqrt(6 / (fan in + fan out)), drawn in double so that both precisions
 * hold the same numbers up to rounding. Each matrix has a stream of its own. */
static void xavier(real *w, size_t d_out, size_t d_in, uint64_t seed, uint64_t stream) {
    double limit = sqrt(6.0 / ((double)d_in + (double)d_out));
    attn_random random = attn_random_seed(seed, stream);
    for (size_t i = 0; i < d_out * d_in; i++)
        w[i] = (real)(limit * (2 * attn_random_uniform(&random) - 1));
}

attn_status attn_mha_params_init(const attn_mha_config *config, attn_real *block, uint64_t seed) {
    ATTNI_TRY(attn_mha_config_check(config));
    if (!block)
        return attni_fail(ATTN_ERROR_ARGUMENT, "block is NULL");
    attn_mha_params w = attn_mha_params_view(config, block);
    size_t d_inner = config->num_heads * attn_mha_d_head(config), d_model = config->d_model;
    size_t d_kv = attn_mha_kv_heads(config) * attn_mha_d_head(config);
    xavier(w.wq, d_inner, d_model, seed, 0);
    xavier(w.wk, d_kv, d_model, seed, 1);
    xavier(w.wv, d_kv, d_model, seed, 2);
    xavier(w.wo, d_model, d_inner, seed, 3);
    if (config->bias)
        memset(w.bq, 0, (d_inner + 2 * d_kv + d_model) * sizeof *w.bq);
    if (config->sinks)
        memset(w.sinks, 0, config->num_heads * sizeof *w.sinks);
    return config->alibi_learned ? attn_alibi_slopes(w.alibi_slopes, config->num_heads) : ATTN_OK;
}
