#include <attn/linear.h>

#include "base/fail.h"
#include "base/size.h"
#include "ops/linear_products.h"

#include <stdint.h>

/* Refuses shapes whose arrays could not exist. */
static attn_status check_shape(const char *function, size_t rows, size_t d_in, size_t d_out) {
    size_t x, w, y;
    if (d_in == 0 || d_out == 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: d_in %zu and d_out %zu must be at least 1",
                          function, d_in, d_out);
    if (!size_product(&x, (size_t[]){rows, d_in, sizeof(real)}, 3) ||
        !size_product(&w, (size_t[]){d_out, d_in, sizeof(real)}, 3) ||
        !size_product(&y, (size_t[]){rows, d_out, sizeof(real)}, 3))
        return attni_fail(ATTN_ERROR_OVERFLOW, "%s: rows %zu, d_in %zu, d_out %zu: size overflows",
                          function, rows, d_in, d_out);
    return ATTN_OK;
}

static attn_status refuse_null(const char *function, const char *argument) {
    return attni_fail(ATTN_ERROR_ARGUMENT, "%s: %s is NULL", function, argument);
}

/* y = x Wᵀ + b        (N,out) = (N,in) (in,out) + (1,out) */
attn_status attn_linear_forward(attn_real *y, const attn_real *x, const attn_real *w,
                                const attn_real *b, size_t rows, size_t d_in, size_t d_out) {
    ATTNI_TRY(check_shape("attn_linear_forward", rows, d_in, d_out));
    if (rows == 0)
        return ATTN_OK;
    if (!y || !x || !w)
        return refuse_null("attn_linear_forward", !y ? "y" : !x ? "x" : "w");
    attni_product forward = linear_product_y(y, x, w, b, rows, d_in, d_out);
    attni_gemm_parallel(&forward, 1, 0);
    return ATTN_OK;
}

/* dx  = dy W          (N,in)   = (N,out) (out,in)
 * dW += dyᵀ x         (out,in) = (out,N) (N,in)
 * db += 1ᵀ dy         (1,out)  = (1,N) (N,out) */
attn_status attn_linear_backward(attn_real *dx, attn_real *dw, attn_real *db, const attn_real *dy,
                                 const attn_real *x, const attn_real *w, size_t rows, size_t d_in,
                                 size_t d_out) {
    ATTNI_TRY(check_shape("attn_linear_backward", rows, d_in, d_out));
    if (rows == 0)
        return ATTN_OK;
    if (!dy)
        return refuse_null("attn_linear_backward", "dy");
    if (dx && !w)
        return refuse_null("attn_linear_backward", "w, needed for dx,");
    if (dw && !x)
        return refuse_null("attn_linear_backward", "x, needed for dw,");
    attni_product backward[3];
    size_t count = 0;
    if (dx)
        backward[count++] = linear_product_dx(dx, dy, w, rows, d_in, d_out);
    if (dw)
        backward[count++] = linear_product_dw(dw, dy, x, rows, d_in, d_out);
    if (db)
        backward[count++] = linear_product_db(db, dy, rows, d_out);
    attni_gemm_parallel(backward, count, 0);
    return ATTN_OK;
}
