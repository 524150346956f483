/*
 * embedding.h - from token numbers to vectors: a learned row per token plus a learned row per
 * position.
 *
 *     forward    x[b,t,:] = E[token[b,t],:] + P[t,:]
 *     backward   dE[v,:] += sum of dx[b,t,:] over all (b,t) with token[b,t] = v
 *                dP[t,:] += sum of dx[b,t,:] over b
 *
 * Shapes: tokens (B,T), E (V,D), P (at least T rows of D), x (B,T,D), contiguous. Thread-safe on
 * different data.
 */
#ifndef ATTN_EMBEDDING_H
#define ATTN_EMBEDDING_H

#include <attn/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x (B,T,D) is overwritten. position_table may be NULL: no positions. ATTN_ERROR_ARGUMENT names the
 * first token outside 0 .. vocab - 1, and x is then unchanged. */
ATTN_API attn_status attn_embedding_forward(attn_real *x, const int32_t *tokens,
                                            const attn_real *token_table,
                                            const attn_real *position_table, size_t batch,
                                            size_t len, size_t vocab, size_t d_model);

/* dtoken_table (V,D) and dposition_table (at least T rows) are added to; either may be NULL. */
ATTN_API attn_status attn_embedding_backward(attn_real *dtoken_table, attn_real *dposition_table,
                                             const attn_real *dx, const int32_t *tokens,
                                             size_t batch, size_t len, size_t vocab,
                                             size_t d_model);

#ifdef __cplusplus
}
#endif

#endif
