/*
 * rope.h - rotary position embeddings: a query or key is turned by its position.
 *
 *     attn_rope_config rope = {.pairing = ATTN_ROPE_HALF, .position = cached};
 *     attn_strides strides = attn_strides_bthd(T, H, d);
 *     attn_rope_forward(q, q, &strides, &rope, B, H, T, d);     // in place
 *
 * The row at position p is read as d/2 pairs, and pair m is turned by the angle a = p·base^(-2m/d):
 *
 *     forward    (x, y) -> (x cos a - y sin a, x sin a + y cos a)
 *     backward   the same by -a: the transpose of a rotation is its inverse
 *
 * Since (R_p q)·(R_s k) = q·(R_(s-p) k), the score of a turned query and a turned key depends on
 * the distance of their positions alone. Su et al., "RoFormer" (2021), equations 14, 15 and 34.
 */
#ifndef ATTN_ROPE_H
#define ATTN_ROPE_H

#include <attn/sdpa.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which elements make pair m. A model trained with one pairing is wrong with the other, silently.
 */
typedef enum attn_rope {
    ATTN_ROPE_NONE = 0,
    ATTN_ROPE_INTERLEAVED, /* (2m, 2m + 1), as in the paper */
    ATTN_ROPE_HALF         /* (m, m + d/2) */
} attn_rope;

typedef struct attn_rope_config {
    attn_rope pairing; /* one of the two: ATTN_ROPE_NONE is refused */
    double base;       /* 0 = 10000; otherwise finite and above 0 */
    int64_t position;  /* of token 0; may be negative. Token t has position + t. */
} attn_rope_config;

/* y (B,H,T,d) <- x (B,H,T,d), both through `strides`, d even. y is overwritten and is either x
 * itself or does not overlap it. Angles are computed in double, from the position itself: cosines
 * and sines are exact to 1e-6 at position 16,777,217 and beyond (about 1e-15 times the position).
 *
 * Statuses: ATTN_ERROR_ARGUMENT (a missing array, no pairing, a base that is not finite or below 0
 * or whose angles are not finite), ATTN_ERROR_SHAPE (odd d, strides that overlap),
 * ATTN_ERROR_OVERFLOW (a last position beyond INT64_MAX, sizes that wrap), ATTN_ERROR_UNSUPPORTED
 * (rows that are not contiguous). All are found before anything is written. Thread-safe on
 * different data; the same bits for any number of threads, and for a token at one position
 * whichever call it comes in. */
ATTN_API attn_status attn_rope_forward(attn_real *y, const attn_real *x,
                                       const attn_strides *strides, const attn_rope_config *config,
                                       size_t batch, size_t num_heads, size_t len, size_t d_head);

/* dx (B,H,T,d) <- dy (B,H,T,d), on the same terms. */
ATTN_API attn_status attn_rope_backward(attn_real *dx, const attn_real *dy,
                                        const attn_strides *strides, const attn_rope_config *config,
                                        size_t batch, size_t num_heads, size_t len, size_t d_head);

#ifdef __cplusplus
}
#endif

#endif
