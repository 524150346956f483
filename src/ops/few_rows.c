/* Products of a few rows with a large matrix, as decoding has them: y = x Wᵀ + b takes as long as
 * reading W does. The tiles of gemm.c, which pack W first, pay off where many rows share it. */
#include "ops/decode.h"

#include "base/size.h"
#include "kernels/kernels.h"
#include "ops/parallel.h"

enum { FEW = 16, TASK_COLUMNS = 64, MOST_PRODUCTS = 4 };

bool attni_few_rows_suit(size_t rows) {
    return rows <= FEW;
}

static void run_columns(const attni_product *product, size_t task) {
    const size_t column = task * TASK_COLUMNS;
    attni_product p = *product;
    p.n = size_min(p.n - column, TASK_COLUMNS);
    p.b += column * p.ldb;
    p.c += column;
    if (p.bias)
        p.bias += column;
    attni_kernels_get()->few_rows(&p);
}

void attni_few_rows_parallel(const attni_product *products, size_t count, size_t max_threads) {
    size_t ends[MOST_PRODUCTS], tasks = 0;
    for (size_t i = 0; i < count; i++)
        ends[i] = tasks += size_div_up(products[i].n, TASK_COLUMNS);
    if (tasks == 0)
        return;
    const size_t rows = products[0].m, depth = products[0].k;
    const int threads = threads_for(max_threads, tasks, TASK_COLUMNS * size_max(rows, 2) * depth);
    (void)threads; /* without OpenMP */
#pragma omp parallel for schedule(static) num_threads(threads)
    for (size_t task = 0; task < tasks; task++) {
        size_t i = 0;
        while (task >= ends[i])
            i++;
        run_columns(&products[i], i > 0 ? task - ends[i - 1] : task);
    }
}
