/*
 * mask.h - which query may look at which key.
 *
 * A pair (b, h, i, j) is allowed iff every mask allows it:
 *
 *   padding   non-zero = key j of sample b is padding, hidden from every query
 *   attend    non-zero = query i may attend to key j
 *   causal    j <= p
 *   window    j >= p - left,  j <= p + right
 *
 * where p = i + offset is the place of query i among the keys; the offset is that of causal_align,
 * whether or not causal is set.
 *
 * A blocked pair has weight exactly 0, and its key, value and gradient are never read as numbers:
 * a NaN behind a mask stays there. A query that may see no key has weights 0, context 0,
 * log-sum-exp -inf, and sends no gradient to q, k or v. (Padding hides keys. What a padded *query*
 * returns is up to the loss: leave those rows out of it.)
 */
#ifndef ATTN_MASK_H
#define ATTN_MASK_H

#include <attn/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where query 0 stands among the keys. */
typedef enum attn_causal_align {
    ATTN_CAUSAL_BOTTOM_RIGHT = 0, /* offset = Lk - Lq: the last query sees every key */
    ATTN_CAUSAL_TOP_LEFT,         /* offset = 0: query 0 sees key 0 alone */
    ATTN_CAUSAL_OFFSET            /* offset = causal_offset, which may be negative */
} attn_causal_align;

/* Sliding window: how far query i sees from its place p. 0 is its own key alone; a side that is off
 * has no limit. */
typedef struct attn_window {
    bool left_on, right_on;
    size_t left, right;
} attn_window;

/* Element (b, h, i, j) stands at b·batch + h·head + i·query + j·key. Stride 0 broadcasts. */
typedef struct attn_broadcast {
    size_t batch, head, query, key;
} attn_broadcast;

/* All masks of one call, combined by AND. Zeroed = everything allowed. Borrowed until the backward.
 */
typedef struct attn_mask {
    const uint8_t *padding;        /* (B, Lk), non-zero = padded; NULL = none */
    size_t padding_stride;         /* from sample to sample, in bytes; 0 = Lk (contiguous) */
    const uint8_t *attend;         /* non-zero = may attend; NULL = all may */
    attn_broadcast attend_strides; /* as they are; all zero = one byte for every pair */
    bool causal;
    attn_causal_align causal_align;
    int64_t causal_offset; /* used with ATTN_CAUSAL_OFFSET only */
    attn_window window;
} attn_mask;

/* Strides that broadcast a contiguous array of `rank` 2 (Lq,Lk), 3 (B,Lq,Lk) or 4 (B,H,Lq,Lk)
 * dimensions, each of which may be 1, over (batch, num_heads, len_q, len_k). ATTN_ERROR_SHAPE names
 * the dimension that does not broadcast. */
ATTN_API attn_status attn_broadcast_strides(attn_broadcast *strides, const size_t *dims,
                                            size_t rank, size_t batch, size_t num_heads,
                                            size_t len_q, size_t len_k);

/* padding (B, len): 1 for positions at or past lengths[b], else 0. ATTN_ERROR_ARGUMENT for a length
 * above len, and padding is then unchanged. */
ATTN_API attn_status attn_padding_from_lengths(uint8_t *padding, const size_t *lengths,
                                               size_t batch, size_t len);

#ifdef __cplusplus
}
#endif

#endif
