#include <attn/sdpa.h>

#include "base/fail.h"
#include "ops/sdpa_head.h"

#include <string.h>

/* The weights that the reference path kept. */
static void copy_weights(const attni_sdpa *call, const attn_sdpa_saved *saved, size_t head,
                         real *weights) {
    const bool all = head == ATTN_ALL_HEADS;
    const attni_head one = head_at(call, all ? 0 : head);
    const size_t count = all ? call->pairs : one.shape.len_q * one.shape.len_k;
    if (count > 0)
        memcpy(weights, saved->weights + (all ? 0 : one.pair), count * sizeof *weights);
}

attn_status attn_sdpa_weights(const attn_sdpa_config *config, const attn_sdpa_saved *saved,
                              size_t head, attn_real *weights, attn_arena *arena) {
    const char *missing = !config ? "config" : !saved ? "saved" : !arena ? "arena" : NULL;
    if (missing)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_sdpa_weights: %s is NULL", missing);
    attni_sdpa call;
    ATTNI_TRY(attni_sdpa_resume(&call, "attn_sdpa_weights", config, saved, arena->measuring));
    const size_t heads = call.shape.batch * call.shape.num_heads;
    if (head >= heads && head != ATTN_ALL_HEADS)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_sdpa_weights: head %zu of %zu", head, heads);
    if (head == ATTN_ALL_HEADS && saved->input.offsets_q)
        return attni_fail(ATTN_ERROR_UNSUPPORTED,
                          "attn_sdpa_weights: packed sequences show one head at a time");
    attn_shape shown = call.shape;
    if (head != ATTN_ALL_HEADS)
        shown.batch = shown.num_heads = shown.num_kv_heads = 1;
    ATTNI_TRY(attni_pairs_check("attn_sdpa_weights", &shown));
    if (heads == 0 || call.shape.len_q == 0 || call.shape.len_k == 0)
        return ATTN_OK;
    if (!weights && !arena->measuring)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_sdpa_weights: weights is NULL");
    if (saved->kernel == ATTN_KERNEL_FUSED)
        return attni_fused_weights(&call, saved, head, weights, arena);
    if (!arena->measuring)
        copy_weights(&call, saved, head, weights);
    return ATTN_OK;
}
