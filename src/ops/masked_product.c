#include "ops/masked_product.h"

#include "ops/gemm.h"

#include <string.h>

static bool is_finite_row(const real *x, size_t n) {
    unsigned infinite = 0;
    for (size_t c = 0; c < n; c++)
        infinite |= !(x[c] - x[c] == 0);
    return !infinite;
}

void attni_operand_clean(attni_operand *rows, size_t len, size_t width, real *copy) {
    rows->clean = rows->data;
    rows->clean_stride = rows->stride;
    size_t t = 0;
    while (t < len && is_finite_row(rows->data + t * rows->stride, width))
        t++;
    if (t == len)
        return;
    rows->clean = copy;
    rows->clean_stride = width;
    for (t = 0; copy && t < len; t++) {
        const real *row = rows->data + t * rows->stride;
        if (is_finite_row(row, width))
            memcpy(copy + t * width, row, width * sizeof(real));
        else
            memset(copy + t * width, 0, width * sizeof(real));
    }
}

/* Whether row t takes no part in the product over the clean rows. A scale of 0 leaves out every
 * row, because a matrix product then reads none and 0 · NaN must stay NaN. */
static bool is_left_out(attni_operand x, size_t t, size_t width, double scale) {
    return scale == 0 || !x.clean ||
           (x.clean != x.data && !is_finite_row(x.data + t * x.stride, width));
}

static bool leaves_none_out(attni_operand x, double scale) {
    return scale != 0 && x.clean == x.data;
}

static void add_multiple(real *out, real factor, const real *x, size_t n) {
    for (size_t c = 0; c < n; c++)
        out[c] += factor * x[c];
}

void attni_masked_product(attni_matrix out, attni_operand w, attni_operand x, double scale,
                          const attni_band *band) {
    real *first = out.data + band->begin * out.stride;
    size_t d = band->d_head;
    attni_gemm(&(attni_product){.m = band->rows,
                                .n = d,
                                .k = x.clean ? band->keys : 0,
                                .alpha = (real)scale,
                                .a = w.data,
                                .lda = w.stride,
                                .b = x.clean,
                                .ldb = x.clean_stride,
                                .c = first,
                                .ldc = out.stride});
    if (leaves_none_out(x, scale))
        return;
    for (size_t j = 0; j < band->keys; j++)
        if (is_left_out(x, j, d, scale))
            for (size_t i = 0; i < band->rows; i++)
                if (band_allows(band, i, j))
                    add_multiple(first + i * out.stride, (real)scale * w.data[i * w.stride + j],
                                 x.data + j * x.stride, d);
}

void attni_masked_product_transposed(attni_matrix out, attni_operand w, attni_operand x,
                                     double scale, const attni_band *band) {
    size_t d = band->d_head;
    attni_gemm(&(attni_product){.m = band->keys,
                                .n = d,
                                .k = x.clean ? band->rows : 0,
                                .trans_a = true,
                                .alpha = (real)scale,
                                .beta = 1,
                                .a = w.data,
                                .lda = w.stride,
                                .b = x.clean ? x.clean + band->begin * x.clean_stride : NULL,
                                .ldb = x.clean_stride,
                                .c = out.data,
                                .ldc = out.stride});
    if (leaves_none_out(x, scale))
        return;
    for (size_t i = 0; i < band->rows; i++)
        if (is_left_out(x, band->begin + i, d, scale))
            for (size_t j = 0; j < band->keys; j++)
                if (band_allows(band, i, j))
                    add_multiple(out.data + j * out.stride, (real)scale * w.data[i * w.stride + j],
                                 x.data + (band->begin + i) * x.stride, d);
}
