#include <attn/mha.h>

#include "base/fail.h"
#include "base/real.h"
#include "base/size.h"
#include "ops/rope.h"

#include <math.h>

static size_t kv_heads_of(const attn_mha_config *config) {
    return config->num_kv_heads ? config->num_kv_heads : config->num_heads;
}

/* Reals in the block: two matrices of H·d by D and two of Hkv·d by D, H·d + 2·Hkv·d + D biases, H
 * sinks and H slopes.
 */
static bool count_params(size_t *count, const attn_mha_config *config, size_t d_head) {
    size_t rows, kv_rows, weights, biases = 0, bytes;
    const size_t per_head = (size_t)config->sinks + (size_t)config->alibi_learned;
    if (!size_product(&rows, (size_t[]){2, config->num_heads, d_head}, 3) ||
        !size_product(&kv_rows, (size_t[]){2, kv_heads_of(config), d_head}, 3) ||
        !size_add(&rows, rows, kv_rows) || !size_mul(&weights, rows, config->d_model))
        return false;
    if (config->bias && !size_add(&biases, rows - config->num_heads * d_head, config->d_model))
        return false;
    return size_add(count, weights, biases) &&
           size_add(count, *count, per_head * config->num_heads) &&
           size_mul(&bytes, *count, sizeof(real));
}

/* What is done to scores and weights. */
static attn_status check_terms(const attn_mha_config *config) {
    if (!isfinite((real)config->softcap) || config->softcap < 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "softcap %g is not finite and at least 0",
                          config->softcap);
    if (!(config->dropout >= 0 && config->dropout < 1))
        return attni_fail(ATTN_ERROR_ARGUMENT, "dropout %g is outside [0, 1)", config->dropout);
    if (config->alibi_learned && !config->alibi)
        return attni_fail(ATTN_ERROR_ARGUMENT, "alibi_learned without alibi: set both");
    return ATTN_OK;
}

/* Checks everything and hands out what follows from it; on failure both results are unchanged. */
static attn_status resolve(const attn_mha_config *config, size_t *d_head, size_t *num_params) {
    if (!config)
        return attni_fail(ATTN_ERROR_ARGUMENT, "config is NULL");
    size_t d_model = config->d_model, num_heads = config->num_heads;
    if (d_model == 0 || num_heads == 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "d_model %zu and num_heads %zu must be at least 1",
                          d_model, num_heads);
    if (config->d_head == 0 && d_model % num_heads != 0)
        return attni_fail(ATTN_ERROR_SHAPE, "num_heads %zu does not divide d_model %zu", num_heads,
                          d_model);
    if (kv_heads_of(config) > num_heads || num_heads % kv_heads_of(config) != 0)
        return attni_fail(ATTN_ERROR_SHAPE, "num_heads %zu is not a multiple of num_kv_heads %zu",
                          num_heads, config->num_kv_heads);
    if (config->has_scale && !isfinite((real)config->scale))
        return attni_fail(ATTN_ERROR_ARGUMENT, "scale %g is not finite", config->scale);
    if ((unsigned)config->kernel > ATTN_KERNEL_FUSED)
        return attni_fail(ATTN_ERROR_ARGUMENT, "kernel: %d is no kernel", (int)config->kernel);
    ATTNI_TRY(check_terms(config));
    size_t width = config->d_head ? config->d_head : d_model / num_heads, count;
    const attn_rope_config rope = {config->rope, config->rope_base, 0};
    if (config->rope != ATTN_ROPE_NONE)
        ATTNI_TRY(attni_rope_check("attn_mha", &rope, 0, width));
    if (!count_params(&count, config, width))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "d_model %zu, num_heads %zu, d_head %zu: the parameters' size overflows",
                          d_model, num_heads, width);
    *d_head = width;
    *num_params = count;
    return ATTN_OK;
}

attn_status attn_mha_config_check(const attn_mha_config *config) {
    size_t d_head, num_params;
    return resolve(config, &d_head, &num_params);
}

size_t attn_mha_d_head(const attn_mha_config *config) {
    size_t d_head = 0, num_params;
    (void)resolve(config, &d_head, &num_params);
    return d_head;
}

size_t attn_mha_kv_heads(const attn_mha_config *config) {
    return attn_mha_config_check(config) == ATTN_OK ? kv_heads_of(config) : 0;
}

size_t attn_mha_num_params(const attn_mha_config *config) {
    size_t d_head, num_params = 0;
    (void)resolve(config, &d_head, &num_params);
    return num_params;
}
