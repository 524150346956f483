#include "layer/mha_call.h"

#include "base/fail.h"

attn_status attn_mha_weights(const attn_mha_config *config, const attn_mha_saved *saved,
                             size_t head, attn_real *weights, attn_arena *arena) {
    attni_mha call;
    if (!arena || !saved)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s is NULL", arena ? "saved" : "arena");
    ATTNI_TRY(attni_mha_resolve(&call, config, &saved->input));
    ATTNI_TRY(attni_mha_check_saved(&call, saved));
    return attn_sdpa_weights(&call.core, &saved->core, head, weights, arena);
}
