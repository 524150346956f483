#include <attn/embedding.h>

#include "base/fail.h"
#include "base/real.h"
#include "base/size.h"

static attn_status check(const char *function, const int32_t *tokens, size_t batch, size_t len,
                         size_t vocab, size_t d_model) {
    size_t bytes;
    if (vocab == 0 || d_model == 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: vocab %zu and d_model %zu must be at least 1",
                          function, vocab, d_model);
    if (!size_product(&bytes, (size_t[]){batch, len, d_model, sizeof(real)}, 4) ||
        !size_product(&bytes, (size_t[]){vocab, d_model, sizeof(real)}, 3))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "%s: batch %zu, len %zu, vocab %zu, d_model %zu: the size wraps",
                          function, batch, len, vocab, d_model);
    if (batch == 0 || len == 0)
        return ATTN_OK;
    if (!tokens)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: tokens is NULL", function);
    for (size_t i = 0; i < batch * len; i++)
        if (tokens[i] < 0 || (size_t)tokens[i] >= vocab)
            return attni_fail(ATTN_ERROR_ARGUMENT,
                              "%s: tokens[%zu] is %ld, outside a vocabulary of %zu", function, i,
                              (long)tokens[i], vocab);
    return ATTN_OK;
}

static void add(real *restrict sum, const real *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++)
        sum[i] += x[i];
}

/* x[b,t,:] = E[token[b,t],:] + P[t,:]        (B,T,D) from (V,D) and (T,D) */
attn_status attn_embedding_forward(attn_real *x, const int32_t *tokens,
                                   const attn_real *token_table, const attn_real *position_table,
                                   size_t batch, size_t len, size_t vocab, size_t d_model) {
    ATTNI_TRY(check("attn_embedding_forward", tokens, batch, len, vocab, d_model));
    if (batch == 0 || len == 0)
        return ATTN_OK;
    if (!x || !token_table)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_embedding_forward: %s is NULL",
                          x ? "token_table" : "x");
    for (size_t row = 0; row < batch * len; row++) {
        const real *token = token_table + (size_t)tokens[row] * d_model;
        const real *position = position_table ? position_table + row % len * d_model : NULL;
        for (size_t i = 0; i < d_model; i++)
            x[row * d_model + i] = position ? token[i] + position[i] : token[i];
    }
    return ATTN_OK;
}

/* dE[token[b,t],:] += dx[b,t,:]              (V,D) from (B,T,D)
 * dP[t,:]          += dx[b,t,:]              (T,D)
 * Tokens repeat, so rows are added one after the other: the order of every sum is that of the rows.
 */
attn_status attn_embedding_backward(attn_real *dtoken_table, attn_real *dposition_table,
                                    const attn_real *dx, const int32_t *tokens, size_t batch,
                                    size_t len, size_t vocab, size_t d_model) {
    ATTNI_TRY(check("attn_embedding_backward", tokens, batch, len, vocab, d_model));
    if (batch == 0 || len == 0)
        return ATTN_OK;
    if (!dx)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_embedding_backward: dx is NULL");
    for (size_t row = 0; row < batch * len; row++) {
        if (dtoken_table)
            add(dtoken_table + (size_t)tokens[row] * d_model, dx + row * d_model, d_model);
        if (dposition_table)
            add(dposition_table + row % len * d_model, dx + row * d_model, d_model);
    }
    return ATTN_OK;
}
