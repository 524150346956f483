#include "layer/projections.h"

#include "ops/linear_products.h"

enum { MOST_WAYS = 3 };

/* Whether `next` begins where the `size` reals of `array` end; two absent arrays do. */
static bool follows(const real *next, const real *array, size_t size) {
    return array ? next == array + size : !next;
}

static bool are_one(const attni_way *a, const attni_way *b, size_t d_model) {
    const size_t matrix = a->width * d_model;
    return a->x == b->x && a->rows == b->rows && a->stride == b->stride && a->dx == b->dx &&
           follows(b->y, a->y, a->width) && follows(b->w, a->w, matrix) &&
           follows(b->b, a->b, a->width) && follows(b->dw, a->dw, matrix) &&
           follows(b->db, a->db, a->width);
}

size_t attni_ways_join(attni_way *ways, size_t count, size_t d_model) {
    size_t last = 0;
    for (size_t i = 1; i < count; i++)
        if (are_one(&ways[last], &ways[i], d_model))
            ways[last].width += ways[i].width;
        else
            ways[++last] = ways[i];
    return last + 1;
}

void attni_project(const attni_way *ways, size_t count, size_t d_model, size_t max_threads) {
    attni_product products[MOST_WAYS];
    for (size_t i = 0; i < count; i++) {
        const attni_way *way = &ways[i];
        products[i] =
            linear_product_y(way->y, way->x, way->w, way->b, way->rows, d_model, way->width);
        products[i].ldc = way->stride;
    }
    attni_gemm_parallel(products, count, max_threads);
}

/* Products to one dx stand side by side, so that they take one pass over it. */
void attni_project_back(const attni_way *ways, size_t count, size_t d_model, size_t max_threads) {
    attni_product products[3 * MOST_WAYS];
    const attni_way *end = ways + count;
    size_t n = 0;
    for (const attni_way *way = ways; way < end; way++)
        if (way->dx) {
            products[n] =
                linear_product_dx(way->dx, way->y, way->w, way->rows, d_model, way->width);
            products[n].lda = way->stride;
            products[n++].beta = way > ways && way[-1].dx == way->dx ? 1 : 0;
        }
    for (const attni_way *way = ways; way < end; way++)
        if (way->dw) {
            products[n] =
                linear_product_dw(way->dw, way->y, way->x, way->rows, d_model, way->width);
            products[n++].lda = way->stride;
        }
    for (const attni_way *way = ways; way < end; way++)
        if (way->db) {
            products[n] = linear_product_db(way->db, way->y, way->rows, way->width);
            products[n++].ldb = way->stride;
        }
    attni_gemm_parallel(products, n, max_threads);
}
