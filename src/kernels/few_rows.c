#include "base/size.h"
#include "kernels/bodies.h"
#include "kernels/row_dots.h"

/* Rows of W that all rows of x meet before the next ones are read. */
enum { PANEL = 16 };

static void dots_1(const row_dots *job, size_t n) {
    dots_of(1, 0, job, n);
}
static void dots_2(const row_dots *job, size_t n) {
    dots_of(2, 0, job, n);
}
#if VLEN >= 4
static void dots_4(const row_dots *job, size_t n) {
    dots_of(4, 0, job, n);
}
#endif

/* y (rows, columns) of one panel, before the bias. */
static void panel_product(const attni_product *p, size_t column, size_t columns) {
    for (size_t row = 0; row < p->m;) {
        const size_t left = p->m - row;
        const row_dots job = {.x = p->a + row * p->lda,
                              .x_stride = p->lda,
                              .num_x = left,
                              .rows = p->b + column * p->ldb,
                              .row_stride = p->ldb,
                              .d = p->k,
                              .dots = p->c + row * p->ldc + column,
                              .dots_stride = p->ldc};
#if VLEN >= 4
        if (left >= 4) {
            dots_4(&job, columns);
            row += 4;
            continue;
        }
#endif
        if (left >= 2)
            dots_2(&job, columns);
        else
            dots_1(&job, columns);
        row += left >= 2 ? 2 : 1;
    }
}

void KERNEL(few_rows)(const attni_product *p) {
    for (size_t column = 0; column < p->n; column += PANEL) {
        const size_t columns = size_min(p->n - column, PANEL);
        panel_product(p, column, columns);
        for (size_t i = 0; p->bias && i < p->m; i++)
            for (size_t j = column; j < column + columns; j++)
                p->c[i * p->ldc + j] += p->bias[j];
    }
}
