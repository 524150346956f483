/*
 * masked_product.h (internal) - sums over the allowed pairs of a band, as matrix products.
 *
 *     out_i  = scale · sum_j w_ij x_j     over keys j that query i may see      (o, dq)
 *     out_j += scale · sum_i w_ij x_i     over queries i that may see key j     (dv, dk)
 *
 * A blocked pair has w_ij = 0, so that a plain product would do, but for one thing: 0 · NaN is NaN,
 * and 0 · Inf too. So rows of x that are not finite are left out of the product and their allowed
 * pairs are added one by one: a NaN shows wherever it may be seen and nowhere else.
 */
#ifndef ATTNI_MASKED_PRODUCT_H
#define ATTNI_MASKED_PRODUCT_H

#include "ops/band.h"

/* Rows to write: row t at data + t·stride. data == NULL: not wanted. */
typedef struct attni_matrix {
    real *data;
    size_t stride;
} attni_matrix;

/* Rows to read, and a copy that is safe to multiply by zero. */
typedef struct attni_operand {
    const real *data;
    size_t stride;
    const real *clean; /* rows with zeros in place of rows that are not finite: data itself where
                          all are finite, NULL where there is no such copy */
    size_t clean_stride;
} attni_operand;

/* Views from `offset`, in an array that may be absent. */
static inline attni_matrix matrix_at(real *data, size_t offset, size_t stride) {
    return (attni_matrix){data ? data + offset : NULL, stride};
}

static inline attni_operand operand_at(const real *data, size_t offset, size_t stride) {
    return (attni_operand){.data = data ? data + offset : NULL, .stride = stride};
}

/* Fills in `clean` for `len` rows of `width` numbers; `copy` (len, width) is room for a copy, or
 * NULL.
 */
void attni_operand_clean(attni_operand *rows, size_t len, size_t width, real *copy);

/* w at blocked pairs must be 0, unless x.clean is NULL, when it is not read there. */
void attni_masked_product(attni_matrix out, attni_operand w, attni_operand x, double scale,
                          const attni_band *band);
void attni_masked_product_transposed(attni_matrix out, attni_operand w, attni_operand x,
                                     double scale, const attni_band *band);

#endif
