/*
 * heads.h - a head is a slice of the width: splitting is a reshape and a transpose, nothing more.
 *
 *     split   (B, T, H·d) -> (B, T, H, d) -> (B, H, T, d)     heads[b,h,t,c] = x[b,t,h·d+c]
 *     merge   (B, H, T, d) -> (B, T, H, d) -> (B, T, H·d)     the way back
 *
 * Each is a permutation, so its backward is the other one. Outputs are overwritten and must not
 * overlap the input. Thread-safe on different data.
 */
#ifndef ATTN_HEADS_H
#define ATTN_HEADS_H

#include <attn/status.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* heads (B,H,T,d) <- x (B,T,H·d) */
ATTN_API attn_status attn_split_heads_forward(attn_real *heads, const attn_real *x, size_t batch,
                                              size_t len, size_t num_heads, size_t d_head);
/* dx (B,T,H·d) <- dheads (B,H,T,d) */
ATTN_API attn_status attn_split_heads_backward(attn_real *dx, const attn_real *dheads, size_t batch,
                                               size_t len, size_t num_heads, size_t d_head);
/* x (B,T,H·d) <- heads (B,H,T,d) */
ATTN_API attn_status attn_merge_heads_forward(attn_real *x, const attn_real *heads, size_t batch,
                                              size_t len, size_t num_heads, size_t d_head);
/* dheads (B,H,T,d) <- dx (B,T,H·d) */
ATTN_API attn_status attn_merge_heads_backward(attn_real *dheads, const attn_real *dx, size_t batch,
                                               size_t len, size_t num_heads, size_t d_head);

#ifdef __cplusplus
}
#endif

#endif
