/*
 * mask.h (internal) - the masks of one call, resolved against its shape.
 *
 * Every path asks the same question here, so that no path can drop a mask.
 */
#ifndef ATTNI_MASK_H
#define ATTNI_MASK_H

#include "base/real.h"
#include "base/size.h"

#include <attn/scores.h>

#include <math.h>

typedef struct attni_mask {
    const uint8_t *padding; /* or NULL */
    size_t padding_stride;
    const uint8_t *attend; /* or NULL */
    attn_broadcast attend_strides;
    bool causal;
    attn_window window;
    int64_t offset;   /* query i stands at key i + offset */
    const real *bias; /* of the scores, or NULL: -inf in it blocks */
    attn_broadcast bias_strides;
} attni_mask;

/* Heads of keys and values, and the number of query heads that share one. */
static inline size_t shape_kv_heads(const attn_shape *shape) {
    return shape->num_kv_heads ? shape->num_kv_heads : shape->num_heads;
}

static inline size_t shape_group(const attn_shape *shape) {
    return shape->num_heads ? shape->num_heads / shape_kv_heads(shape) : 1;
}

/* Defaults filled in; mask may be NULL. Validates the enum. */
attn_status attni_mask_resolve(attni_mask *resolved, const attn_mask *mask,
                               const attn_shape *shape);

/* Whether the place of the last of the shape's pairs wraps, in an array of elements of that size.
 */
bool attni_places_wrap(const attn_broadcast *strides, const attn_shape *shape, size_t element);

/* Whether no pair of this call can be blocked. */
static inline bool mask_is_empty(const attni_mask *mask) {
    return !mask->padding && !mask->attend && !mask->causal && !mask->window.left_on &&
           !mask->window.right_on && !mask->bias;
}

/* i + offset + ahead - back, held within 0 .. len. Nothing wraps: offset, ahead and back may be
 * anything, only i and len are sizes of arrays. */
static inline size_t mask_place(size_t i, int64_t offset, size_t ahead, size_t back, size_t len) {
    const size_t later = offset > 0 ? (size_t)offset : 0;
    const size_t earlier = offset < 0 ? (size_t) - (offset + 1) + 1 : 0;
    const size_t plus = size_add_capped(size_add_capped(i, later), ahead);
    const size_t minus = size_add_capped(earlier, back);
    return plus <= minus ? 0 : size_min(plus - minus, len);
}

/* Keys at or past this index are hidden from query i by causality or its window. */
static inline size_t mask_key_end(const attni_mask *mask, size_t i, size_t len_k) {
    if (mask->causal)
        return mask_place(i, mask->offset, 1, 0, len_k);
    if (mask->window.right_on)
        return mask_place(i, mask->offset, size_add_capped(mask->window.right, 1), 0, len_k);
    return len_k;
}

/* Keys before this index are hidden from query i by its window. */
static inline size_t mask_key_begin(const attni_mask *mask, size_t i, size_t len_k) {
    return mask->window.left_on ? mask_place(i, mask->offset, 0, mask->window.left, len_k) : 0;
}

/* Pair (b, h, query, 0) of an array that broadcasts. */
static inline size_t broadcast_row(const attn_broadcast *s, size_t b, size_t h, size_t query) {
    return b * s->batch + h * s->head + query * s->query;
}

static inline bool mask_allows(const attni_mask *mask, size_t b, size_t h, size_t i, size_t j,
                               size_t len_k) {
    if (j >= mask_key_end(mask, i, len_k) || j < mask_key_begin(mask, i, len_k))
        return false;
    if (mask->padding && mask->padding[b * mask->padding_stride + j])
        return false;
    const attn_broadcast *s = &mask->attend_strides;
    if (mask->attend && mask->attend[broadcast_row(s, b, h, i) + j * s->key] == 0)
        return false;
    s = &mask->bias_strides;
    return !mask->bias || mask->bias[broadcast_row(s, b, h, i) + j * s->key] != (real)-INFINITY;
}

#endif
