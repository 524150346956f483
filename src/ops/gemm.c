#include "ops/gemm.h"

#include "base/size.h"
#include "kernels/kernels.h"
#include "ops/linear_products.h"
#include "ops/parallel.h"

#if defined(ATTN_WITH_ONEDNN) && !defined(ATTN_DOUBLE)
#include <oneapi/dnnl/dnnl.h>
#define WITH_ONEDNN
#endif

#ifdef WITH_ONEDNN

/* oneDNN packs both operands, which pays where B is wide and deep and lies straight; where it lies
 * transposed the built-in kernels are as good on tiles that leave work for many threads. It picks
 * its own instruction set, so it serves only where ours is not lowered. */
static bool onednn_is_better(const attni_product *p) {
    return !p->trans_b && p->m >= 64 && p->n >= 96 && p->k >= 256 && p->alpha != 0 &&
           (attn_isa_current() == ATTN_ISA_COUNT - 1 ||
            !attn_isa_available((attn_isa)(attn_isa_current() + 1)));
}

/* C = alpha · op(A) op(B) + beta · C by oneDNN on one thread; false if it refuses. Inside an active
 * parallel region it keeps to one thread; elsewhere it would start its own team. */
static bool onednn_gemm(const attni_product *p) {
    const int threads = omp_get_max_threads();
    const bool alone = !omp_in_parallel();
    if (alone)
        omp_set_num_threads(1);
    const dnnl_status_t status =
        dnnl_sgemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', (dnnl_dim_t)p->m,
                   (dnnl_dim_t)p->n, (dnnl_dim_t)p->k, p->alpha, p->a, (dnnl_dim_t)p->lda, p->b,
                   (dnnl_dim_t)p->ldb, p->beta, p->c, (dnnl_dim_t)p->ldc);
    if (alone)
        omp_set_num_threads(threads);
    return status == dnnl_success;
}

/* oneDNN knows no bias: C starts as beta · C + bias. */
static void add_bias_first(attni_product *p) {
    attni_product bias = *p;
    bias.k = 0;
    attni_kernels_get()->gemm(&bias);
    p->bias = NULL;
    p->beta = 1;
}

#else

static bool onednn_is_better(const attni_product *p) {
    (void)p;
    return false;
}

#endif

void attni_gemm(const attni_product *product) {
#ifdef WITH_ONEDNN
    if (onednn_is_better(product)) {
        attni_product p = *product;
        if (p.bias)
            add_bias_first(&p);
        if (!onednn_gemm(&p))
            attni_kernels_get()->gemm(&p);
        return;
    }
#endif
    attni_kernels_get()->gemm(product);
}

/* y = x Wᵀ of a few rows takes as long as reading W does: packing W first, as products of many rows
 * do, would take as long again. */
static bool has_few_rows(const attni_product *p) {
    const size_t few = 16;
    return p->m <= few && !p->trans_a && p->trans_b && p->alpha == 1 && p->beta == 0;
}

/* How a product is cut into tiles of C. */
typedef struct grid {
    size_t tile_rows, tile_columns, rows, columns; /* of a tile; of the grid */
} grid;

/* Multiply-adds; a row alone takes as long as two, for the memory. */
static double work_of(const attni_product *p) {
    return (double)size_max(p->m, 2) * (double)p->n * (double)p->k;
}

/* Strips of 64 columns suit the kernels; the least multiple of them that is whole units. */
static size_t strip_of(size_t unit) {
    size_t strip = unit;
    while (strip % 64 != 0)
        strip *= 2;
    return strip;
}

/* Tiles of about 2^20 multiply-adds or more, at most about 32 of them, in powers of two down the
 * rows, so that 2, 4 or 8 threads get equal shares. For oneDNN they are as wide as may be. They are
 * high, most of all where op(B) is too large for a cache, because the tiles of the same columns
 * pack the same part of B again. A tile is whole units of columns wide. Depends on the shape alone.
 */
static grid grid_of(const attni_product *p, size_t unit) {
    const double tile_work = 1 << 20, most_tiles = 32, cached_reals = 1 << 18;
    const bool library = onednn_is_better(p), cached = (double)p->k * (double)p->n <= cached_reals;
    const size_t wide = library ? 768 : 256, strip = strip_of(unit);
    const size_t least_rows = library || !cached ? 192 : 32;
    grid g = {0};
    if (p->m == 0 || p->n == 0)
        return g;
    if (has_few_rows(p))
        return (grid){p->m, strip, 1, size_div_up(p->n, strip)};
    const double work = work_of(p);
    const double tiles = work > most_tiles * tile_work ? most_tiles : work / tile_work;
    g.columns = tiles < 2 ? 1 : size_div_up(p->n, wide);
    g.tile_columns = size_div_up(size_div_up(p->n, g.columns), strip) * strip;
    g.columns = size_div_up(p->n, g.tile_columns);
    g.rows = 1;
    while ((double)(2 * g.rows * g.columns) <= tiles && p->m / (2 * g.rows) >= least_rows)
        g.rows *= 2;
    g.tile_rows = size_div_up(p->m, g.rows);
    g.rows = size_div_up(p->m, g.tile_rows);
    return g;
}

/* With something to follow, the tile goes down in blocks that a second-level cache holds. */
static void run_tile(const attni_product *product, const attni_after *after, const grid *g,
                     size_t tile) {
    enum { BLOCK_ROWS = 256 };
    attni_product p = *product;
    const size_t column = tile % g->columns * g->tile_columns;
    size_t row = tile / g->columns * g->tile_rows;
    const size_t end = size_min(p.m, row + g->tile_rows);
    const size_t step = after ? BLOCK_ROWS : g->tile_rows;
    p.n = size_min(p.n - column, g->tile_columns);
    p.b += p.trans_b ? column * p.ldb : column;
    if (p.bias)
        p.bias += column;
    for (; row < end; row += step) {
        p.m = size_min(end - row, step);
        p.a = product->a + (p.trans_a ? row : row * p.lda);
        p.c = product->c + row * p.ldc + column;
        if (has_few_rows(product))
            attni_kernels_get()->few_rows(&p);
        else
            attni_gemm(&p);
        if (after)
            after->run(after->data, p.c, p.ldc, row, p.m, column, p.n);
    }
}

/* At most GROUP products share one parallel region. */
enum { GROUP = 16 };

typedef struct group {
    const attni_product *products;
    const attni_after *after; /* NULL = nothing follows any of them */
    size_t count;
    grid grids[GROUP]; /* no tiles where a product follows the one before it, tile by tile */
    size_t tiles;      /* of all products */
    double work;       /* multiply-adds */
} group;

/* Whether a product adds to what the one before it leaves in C, or reads the same part of A, which
 * is then still in the cache. */
static bool follows(const attni_product *products, size_t i) {
    if (i == 0)
        return false;
    const attni_product *p = &products[i], *before = &products[i - 1];
    const bool same_sum = p->beta != 0 && p->c == before->c;
    const bool same_a = p->a == before->a && p->lda == before->lda && p->trans_a == before->trans_a;
    return same_sum || (same_a && p->trans_b == before->trans_b && p->m == before->m &&
                        p->n == before->n && p->k == before->k);
}

static size_t tiles_of(const group *g, size_t i) {
    return g->grids[i].rows * g->grids[i].columns;
}

static group group_of(const attni_product *products, const attni_after *after, size_t count) {
    group g = {.products = products, .after = after, .count = count};
    size_t unit = 1;
    for (size_t i = 0; after && i < count; i++)
        if (after[i].run)
            unit = after[i].unit;
    for (size_t i = 0; i < count; i++) {
        if (!follows(products, i))
            g.grids[i] = grid_of(&products[i], unit);
        g.tiles += tiles_of(&g, i);
        g.work += work_of(&products[i]);
    }
    return g;
}

/* A tile of product i, and the same tile of those that follow it. */
static void run_chain(const group *g, size_t i, size_t tile) {
    const grid *cut = &g->grids[i];
    do {
        const attni_after *after = g->after && g->after[i].run ? &g->after[i] : NULL;
        run_tile(&g->products[i], after, cut, tile);
    } while (++i < g->count && follows(g->products, i));
}

static void run_any(const group *g, size_t tile) {
    size_t i = 0;
    for (; tile >= tiles_of(g, i); i++)
        tile -= tiles_of(g, i);
    run_chain(g, i, tile);
}

/* The share-th of `shares` equal parts of the tiles of each product. */
static void run_share(const group *g, size_t share, size_t shares) {
    for (size_t i = 0; i < g->count; i++) {
        const size_t tiles = tiles_of(g, i), turn = i % shares; /* single tiles go round */
        for (size_t tile = (tiles * share + turn) / shares;
             tile < (tiles * (share + 1) + turn) / shares; tile++)
            run_chain(g, i, tile);
    }
}

/* Large tiles go to whoever is free. Small ones go where the same rows went in the last call: they
 * are still in that core's cache, and fetching them from another one would take as long as the
 * product. */
static void run_group(const group *g, size_t threads) {
    const double large = 1 << 26;
    if (threads <= 1) {
        run_share(g, 0, 1);
        return;
    }
    if (g->work < large) {
#pragma omp parallel for schedule(static, 1) num_threads((int)threads)
        for (size_t share = 0; share < threads; share++)
            run_share(g, share, threads);
    } else {
#pragma omp parallel for schedule(dynamic, 1) num_threads((int)threads)
        for (size_t tile = 0; tile < g->tiles; tile++)
            run_any(g, tile);
    }
}

void attni_gemm_parallel_after(const attni_product *products, const attni_after *after,
                               size_t count, size_t max_threads) {
    for (size_t i = 0; i < count; i += GROUP) {
        const group g =
            group_of(products + i, after ? after + i : NULL, size_min(count - i, GROUP));
        run_group(&g, g.work < (double)PARALLEL_MIN_WORK
                          ? 1
                          : size_min(threads_resolve(max_threads), g.tiles));
    }
}

void attni_gemm_parallel(const attni_product *products, size_t count, size_t max_threads) {
    attni_gemm_parallel_after(products, NULL, count, max_threads);
}

void attni_column_sums_add(real *sums, const real *x, size_t rows, size_t columns,
                           size_t max_threads) {
    const attni_product sum = linear_product_db(sums, x, rows, columns);
    attni_gemm_parallel(&sum, 1, max_threads);
}
