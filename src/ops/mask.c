#include "ops/mask.h"

#include "base/fail.h"
#include "base/size.h"

#include <string.h>

bool attni_places_wrap(const attn_broadcast *strides, const attn_shape *shape, size_t element) {
    const size_t size[4] = {shape->batch, shape->num_heads, shape->len_q, shape->len_k};
    const size_t stride[4] = {strides->batch, strides->head, strides->query, strides->key};
    size_t end = 0, step;
    for (size_t axis = 0; axis < 4; axis++)
        if (size[axis] > 0 &&
            (!size_mul(&step, size[axis] - 1, stride[axis]) || !size_add(&end, end, step)))
            return true;
    return !size_mul(&end, end, element);
}

/* The place of query 0, which counts for windows without causal too. */
static attn_status resolve_offset(attni_mask *resolved, const attn_mask *mask,
                                  const attn_shape *shape) {
    switch (mask->causal_align) {
    case ATTN_CAUSAL_BOTTOM_RIGHT:
        if (shape->len_k <= INT64_MAX && shape->len_q <= INT64_MAX)
            resolved->offset = (int64_t)shape->len_k - (int64_t)shape->len_q;
        else if (mask->causal || mask->window.left_on || mask->window.right_on)
            return attni_fail(ATTN_ERROR_OVERFLOW, "len_q %zu, len_k %zu: positions exceed 64 bits",
                              shape->len_q, shape->len_k);
        return ATTN_OK;
    case ATTN_CAUSAL_TOP_LEFT:
        return ATTN_OK;
    case ATTN_CAUSAL_OFFSET:
        resolved->offset = mask->causal_offset;
        return ATTN_OK;
    }
    return attni_fail(ATTN_ERROR_ARGUMENT, "causal_align: %d is no alignment",
                      (int)mask->causal_align);
}

attn_status attni_mask_resolve(attni_mask *resolved, const attn_mask *mask,
                               const attn_shape *shape) {
    static const attn_mask none;
    memset(resolved, 0, sizeof *resolved);
    if (!mask)
        mask = &none;
    resolved->padding = mask->padding;
    resolved->padding_stride = mask->padding_stride ? mask->padding_stride : shape->len_k;
    resolved->attend = mask->attend;
    resolved->attend_strides = mask->attend_strides;
    resolved->causal = mask->causal;
    resolved->window = mask->window;
    attn_broadcast padding_strides = {.batch = resolved->padding_stride, .key = 1};
    if (mask->padding && attni_places_wrap(&padding_strides, shape, 1))
        return attni_fail(ATTN_ERROR_OVERFLOW, "padding_stride %zu: the last sample's place wraps",
                          mask->padding_stride);
    if (mask->attend && attni_places_wrap(&mask->attend_strides, shape, 1))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "attend_strides (%zu, %zu, %zu, %zu): the last element's place wraps",
                          mask->attend_strides.batch, mask->attend_strides.head,
                          mask->attend_strides.query, mask->attend_strides.key);
    return resolve_offset(resolved, mask, shape);
}

attn_status attn_broadcast_strides(attn_broadcast *strides, const size_t *dims, size_t rank,
                                   size_t batch, size_t num_heads, size_t len_q, size_t len_k) {
    static const char *const names[4] = {"batch", "num_heads", "len_q", "len_k"};
    const size_t want[4] = {batch, num_heads, len_q, len_k};
    if (!strides || !dims)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s is NULL", strides ? "dims" : "strides");
    if (rank < 2 || rank > 4)
        return attni_fail(ATTN_ERROR_SHAPE, "rank %zu: a mask has 2, 3 or 4 dimensions", rank);
    /* The four axes, with the missing ones as size 1: (Lq,Lk) has no batch, (B,Lq,Lk) no head. */
    size_t have[4] = {1, 1, dims[rank - 2], dims[rank - 1]};
    if (rank >= 3)
        have[0] = dims[0];
    if (rank == 4)
        have[1] = dims[1];
    size_t stride = 1, result[4];
    for (size_t axis = 4; axis-- > 0;) {
        if (have[axis] != 1 && have[axis] != want[axis])
            return attni_fail(ATTN_ERROR_SHAPE, "dimension %zu does not broadcast to %s %zu",
                              have[axis], names[axis], want[axis]);
        result[axis] = have[axis] == 1 ? 0 : stride;
        if (!size_mul(&stride, stride, have[axis]))
            return attni_fail(ATTN_ERROR_OVERFLOW, "the mask's size wraps");
    }
    *strides = (attn_broadcast){result[0], result[1], result[2], result[3]};
    return ATTN_OK;
}

attn_status attn_padding_from_lengths(uint8_t *padding, const size_t *lengths, size_t batch,
                                      size_t len) {
    size_t total;
    if (!size_mul(&total, batch, len))
        return attni_fail(ATTN_ERROR_OVERFLOW, "batch %zu times len %zu wraps", batch, len);
    if ((!padding && total > 0) || (!lengths && batch > 0))
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s is NULL", padding ? "lengths" : "padding");
    for (size_t b = 0; b < batch; b++)
        if (lengths[b] > len)
            return attni_fail(ATTN_ERROR_ARGUMENT, "lengths[%zu] is %zu, above len %zu", b,
                              lengths[b], len);
    for (size_t b = 0; b < batch; b++)
        for (size_t t = 0; t < len; t++)
            padding[b * len + t] = t >= lengths[b];
    return ATTN_OK;
}
