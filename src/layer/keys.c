#include "base/fail.h"
#include "layer/mha_call.h"
#include "layer/projections.h"
#include "ops/sdpa_internal.h"

/* A call of the keys alone; everything that its arrays need is checked. */
static attn_status resolve(attni_mha *call, const attn_mha_config *config,
                           const attn_mha_params *params, const attn_mha_input *input,
                           const real *k, const real *v) {
    if (!input)
        return attni_fail(ATTN_ERROR_ARGUMENT, "input is NULL");
    size_t longest;
    const attn_mha_input keys = {.batch = input->batch,
                                 .len_q = input->len_k,
                                 .len_k = input->len_k,
                                 .key = input->key,
                                 .value = input->value,
                                 .rope_key_position = input->rope_key_position,
                                 .offsets_q = input->offsets_k,
                                 .offsets_k = input->offsets_k};
    if (input->projected_key || input->projected_value)
        return attni_fail(ATTN_ERROR_ARGUMENT, "projected_key: these are to be projected now");
    ATTNI_TRY(attni_mha_resolve(call, config, &keys));
    ATTNI_TRY(attni_mha_check_params(call, params));
    if (input->offsets_k)
        ATTNI_TRY(attni_offsets_check("attn_mha", "offsets_k", input->offsets_k, input->batch,
                                      input->len_k, &longest));
    if (call->rows_k == 0)
        return ATTN_OK;
    if (!input->key || !k || !v)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s is NULL",
                          !input->key ? "input.key"
                          : !k        ? "k"
                                      : "v");
    return k != v ? ATTN_OK : attni_fail(ATTN_ERROR_ARGUMENT, "k and v are one array");
}

/*
 * k = x_k Wkᵀ + bk, turned with rope        (B,Lk,D) (D,Hkv·d) -> (B,Lk,Hkv·d)
 * v = x_v Wvᵀ + bv
 */
attn_status attn_mha_keys_forward(const attn_mha_config *config, const attn_mha_params *params,
                                  const attn_mha_input *input, attn_real *k, attn_real *v) {
    attni_mha call;
    ATTNI_TRY(resolve(&call, config, params, input, k, v));
    if (call.rows_k > 0)
        attni_project(&call, &(attni_projected){.k = k, .v = v}, params, input);
    return ATTN_OK;
}

/*
 * dk turned back, with rope
 * dWk += dkᵀ x_k      dbk += sum of dk      dx_k = dk Wk
 * dWv += dvᵀ x_v      dbv += sum of dv      dx_v = dv Wv
 */
attn_status attn_mha_keys_backward(const attn_mha_config *config, const attn_mha_params *params,
                                   const attn_mha_input *input, attn_real *dk, attn_real *dv,
                                   const attn_mha_params *dparams,
                                   const attn_mha_input_grads *dinput) {
    attni_mha call;
    ATTNI_TRY(resolve(&call, config, params, input, dk, dv));
    if (dparams && (!dparams->wk || !dparams->wv))
        return attni_fail(ATTN_ERROR_ARGUMENT, "dparams.%s is NULL", dparams->wk ? "wv" : "wk");
    if (dinput && dinput->key && dinput->key == dinput->value)
        return attni_fail(ATTN_ERROR_ARGUMENT, "dinput: key and value must be different arrays");
    if (call.rows_k > 0)
        attni_project_back(&call, &(attni_projected){.k = dk, .v = dv}, params, input, dparams,
                           dinput);
    return ATTN_OK;
}
