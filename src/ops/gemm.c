#include "ops/gemm.h"

void attni_gemm(const attni_product *p) {
    for (size_t i = 0; i < p->m; i++)
        for (size_t j = 0; j < p->n; j++) {
            real sum = 0;
            for (size_t l = 0; p->alpha != 0 && l < p->k; l++)
                sum += (p->trans_a ? p->a[l * p->lda + i] : p->a[i * p->lda + l]) *
                       (p->trans_b ? p->b[j * p->ldb + l] : p->b[l * p->ldb + j]);
            real *c = &p->c[i * p->ldc + j];
            *c = p->alpha * sum + (p->beta != 0 ? p->beta * *c : 0) + (p->bias ? p->bias[j] : 0);
        }
}

void attni_gemm_parallel(const attni_product *products, size_t count, size_t max_threads) {
    (void)max_threads;
    for (size_t i = 0; i < count; i++)
        attni_gemm(&products[i]);
}

void attni_column_sums_add(real *sums, const real *x, size_t rows, size_t columns,
                           size_t max_threads) {
    (void)max_threads;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            sums[j] += x[i * columns + j];
}
