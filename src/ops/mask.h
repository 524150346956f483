/*
 * mask.h (internal) - the masks of one call, resolved against its shape.
 *
 * Every path asks the same question here, so that no path can drop a mask.
 */
#ifndef ATTNI_MASK_H
#define ATTNI_MASK_H

#include "base/real.h"

#include <attn/scores.h>

typedef struct attni_mask {
    const uint8_t *padding; /* or NULL */
    size_t padding_stride;
    const uint8_t *attend; /* or NULL */
    attn_broadcast attend_strides;
    bool causal;
    int64_t offset; /* query i sees keys j <= i + offset */
} attni_mask;

/* Defaults filled in; mask may be NULL. Validates the enum. */
attn_status attni_mask_resolve(attni_mask *resolved, const attn_mask *mask,
                               const attn_shape *shape);

/* Whether no pair of this call can be blocked. */
static inline bool mask_is_empty(const attni_mask *mask) {
    return !mask->padding && !mask->attend && !mask->causal;
}

/* Keys at or past this index are hidden from query i by causality. */
static inline size_t mask_key_end(const attni_mask *mask, size_t i, size_t len_k) {
    if (!mask->causal)
        return len_k;
    /* i + offset + 1 in a form that cannot overflow: offset may be anything. */
    if (mask->offset < 0) {
        uint64_t back = (uint64_t) - (mask->offset + 1) + 1; /* |offset| */
        return (uint64_t)i + 1 <= back
                   ? 0
                   : (i + 1 - (size_t)back < len_k ? i + 1 - (size_t)back : len_k);
    }
    uint64_t ahead = (uint64_t)mask->offset;
    return ahead >= len_k || i >= len_k - ahead ? len_k : i + 1 + (size_t)ahead;
}

static inline bool mask_allows(const attni_mask *mask, size_t b, size_t h, size_t i, size_t j,
                               size_t len_k) {
    if (j >= mask_key_end(mask, i, len_k))
        return false;
    if (mask->padding && mask->padding[b * mask->padding_stride + j])
        return false;
    if (mask->attend) {
        const attn_broadcast *s = &mask->attend_strides;
        return mask->attend[b * s->batch + h * s->head + i * s->query + j * s->key] != 0;
    }
    return true;
}

#endif
