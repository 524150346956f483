#include <attn/heads.h>

#include "base/fail.h"
#include "base/real.h"
#include "ops/parallel.h"

#include <string.h>

static attn_status check_call(const char *function, size_t batch, size_t len, size_t num_heads,
                              size_t d_head, const void *out, const void *in) {
    size_t bytes;
    if (!size_product(&bytes, (size_t[]){batch, len, num_heads, d_head, sizeof(real)}, 5))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "%s: batch %zu, len %zu, num_heads %zu, d_head %zu: the size wraps",
                          function, batch, len, num_heads, d_head);
    if (bytes > 0 && (!out || !in))
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: the %s is NULL", function,
                          out ? "input" : "output");
    return ATTN_OK;
}

/* heads[b,h,t,c] = x[b,t,h·d+c]            (B,T,H·d) -> (B,H,T,d) */
static void split(real *heads, const real *x, size_t batch, size_t len, size_t num_heads,
                  size_t d_head) {
    if (batch * len * num_heads * d_head == 0)
        return;
#pragma omp parallel for schedule(static) num_threads(threads_for(0, batch, len *num_heads *d_head))
    for (size_t b = 0; b < batch; b++)
        for (size_t h = 0; h < num_heads; h++)
            for (size_t t = 0; t < len; t++)
                memcpy(heads + ((b * num_heads + h) * len + t) * d_head,
                       x + ((b * len + t) * num_heads + h) * d_head, d_head * sizeof(real));
}

/* x[b,t,h·d+c] = heads[b,h,t,c]            (B,H,T,d) -> (B,T,H·d) */
static void merge(real *x, const real *heads, size_t batch, size_t len, size_t num_heads,
                  size_t d_head) {
    if (batch * len * num_heads * d_head == 0)
        return;
#pragma omp parallel for schedule(static) num_threads(threads_for(0, batch, len *num_heads *d_head))
    for (size_t b = 0; b < batch; b++)
        for (size_t t = 0; t < len; t++)
            for (size_t h = 0; h < num_heads; h++)
                memcpy(x + ((b * len + t) * num_heads + h) * d_head,
                       heads + ((b * num_heads + h) * len + t) * d_head, d_head * sizeof(real));
}

attn_status attn_split_heads_forward(attn_real *heads, const attn_real *x, size_t batch, size_t len,
                                     size_t num_heads, size_t d_head) {
    ATTNI_TRY(check_call("attn_split_heads_forward", batch, len, num_heads, d_head, heads, x));
    split(heads, x, batch, len, num_heads, d_head);
    return ATTN_OK;
}

attn_status attn_split_heads_backward(attn_real *dx, const attn_real *dheads, size_t batch,
                                      size_t len, size_t num_heads, size_t d_head) {
    ATTNI_TRY(check_call("attn_split_heads_backward", batch, len, num_heads, d_head, dx, dheads));
    merge(dx, dheads, batch, len, num_heads, d_head);
    return ATTN_OK;
}

attn_status attn_merge_heads_forward(attn_real *x, const attn_real *heads, size_t batch, size_t len,
                                     size_t num_heads, size_t d_head) {
    ATTNI_TRY(check_call("attn_merge_heads_forward", batch, len, num_heads, d_head, x, heads));
    merge(x, heads, batch, len, num_heads, d_head);
    return ATTN_OK;
}

attn_status attn_merge_heads_backward(attn_real *dheads, const attn_real *dx, size_t batch,
                                      size_t len, size_t num_heads, size_t d_head) {
    ATTNI_TRY(check_call("attn_merge_heads_backward", batch, len, num_heads, d_head, dheads, dx));
    split(dheads, dx, batch, len, num_heads, d_head);
    return ATTN_OK;
}
