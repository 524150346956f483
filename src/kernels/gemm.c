#include "kernels/gemm.h"

#include "base/size.h"
#include "kernels/bodies.h"
#include "kernels/simd.h"

/* C is computed in tiles of TILE_ROWS rows by TILE_VECTORS vectors, whose sums stay in registers
 * beside one row of B and one broadcast element of A:
 *
 *     for BLOCK_ROWS rows of C                     that part of A stays in the second-level cache
 *         for DEPTH steps of k
 *             for each strip of C, TILE_VECTORS vectors wide
 *                 pack B[DEPTH, strip]             stays in the first-level cache
 *                 for each tile down the strip
 *                     sums = A[rows, DEPTH] B[DEPTH, strip]
 *
 * A is never packed: the tiles read single elements of it, which suits both ways it may lie. The
 * sum over k is the same for every element of C, whatever the shapes of tile and matrix: ascending
 * within DEPTH steps, and the parts in ascending order. */
#if VBYTES == 64 || defined(__aarch64__)
enum { TILE_VECTORS = 4 };
#else
enum { TILE_VECTORS = 2 };
#endif
enum {
    TILE_ROWS = 6,
    STRIP = TILE_VECTORS * VLEN,
    DEPTH = VBYTES == 64 ? 128 : 256, /* a packed strip has at most 32 KiB */
    BLOCK_ROWS = VBYTES == 64 ? 1024 / sizeof(real) : 768 / sizeof(real),
    CACHE_LINE = 64,
    /* A transposed A is read across its rows, in double a cache line for every step of a tile: too
     * many to wait for. In float it costs as much as it brings. */
    FETCH_AHEAD = sizeof(real) > 4
};

/* One tile: C = alpha · A B + gamma · addend. Element (i,p) of A is a[i·a_row + p·a_step]. */
typedef struct tile {
    real *c;
    size_t c_row;
    const real *a;
    size_t a_row, a_step;
    size_t ahead; /* what the next depth reads is fetched from so far behind a; 0 = not */
    const real *b;
    size_t b_row;
    size_t depth;
    size_t columns; /* of C; the rest of the last vector is computed but not stored */
    real alpha, gamma;
    const real *addend; /* NULL = none; its rows are addend_row apart: 0 for a bias */
    size_t addend_row;
} tile;

/* Both sizes are constants where this is inlined, so the sums are registers. */
VINLINE void tile_store(const tile *t, vreal sums[TILE_ROWS][TILE_VECTORS], int rows, int vectors) {
    const vreal alpha = vbroadcast(&t->alpha), gamma = vbroadcast(&t->gamma);
    VEACH (i, rows)
        VEACH (j, vectors)
            sums[i][j] *= alpha;
    if (t->addend)
        VEACH (i, rows)
            VEACH (j, vectors)
                sums[i][j] += gamma * vload(t->addend + (size_t)i * t->addend_row + j * VLEN);
    VEACH (i, rows)
        VEACH (j, vectors)
            vstore(t->c + (size_t)i * t->c_row + j * VLEN, sums[i][j]);
}

/* The same for a tile whose last vector hangs over the edge of C, with the sums in memory. Inlined
 * into every shape of tile it would be most of the code. */
static __attribute__((noinline)) void tile_store_edge(const tile *t, const real *sums,
                                                      size_t rows) {
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < t->columns; j++) {
            real value = t->alpha * sums[i * STRIP + j];
            if (t->addend)
                value += t->gamma * t->addend[i * t->addend_row + j];
            t->c[i * t->c_row + j] = value;
        }
}

/* Fetches the lines of C that the tile will write. */
VINLINE void tile_fetch(const tile *t, int rows, int vectors) {
    VEACH (i, rows)
        for (int j = 0; j < vectors * VLEN; j += CACHE_LINE / (int)sizeof(real))
            __builtin_prefetch(t->c + (size_t)i * t->c_row + j, 1);
}

VINLINE void tile_compute(const tile *t, int rows, int vectors) {
    vreal sums[TILE_ROWS][TILE_VECTORS];
    const real *a = t->a, *b = t->b;
    const size_t a_row = t->a_row, a_step = t->a_step, b_row = t->b_row, ahead = t->ahead;
    tile_fetch(t, rows, vectors);
    VEACH (i, rows)
        VEACH (j, vectors)
            sums[i][j] = vzero();
    for (size_t p = t->depth; p > 0; p--, a += a_step, b += b_row) {
        vreal row[TILE_VECTORS];
        if (FETCH_AHEAD && ahead > 0)
            __builtin_prefetch(a + ahead);
        VEACH (j, vectors)
            row[j] = vload(b + j * VLEN);
        VEACH (i, rows) {
            const vreal element = vbroadcast(a + (size_t)i * a_row);
            VEACH (j, vectors)
                sums[i][j] += element * row[j];
        }
    }
    if (t->columns == (size_t)vectors * VLEN) {
        tile_store(t, sums, rows, vectors);
        return;
    }
    real in_memory[TILE_ROWS * STRIP];
    VEACH (i, rows)
        VEACH (j, vectors)
            vstore(&in_memory[i * STRIP + j * VLEN], sums[i][j]);
    tile_store_edge(t, in_memory, (size_t)rows);
}

VINLINE void tile_of_rows(const tile *t, int rows) {
    switch (size_div_up(t->columns, VLEN)) {
    case 1:
        tile_compute(t, rows, 1);
        break;
    case 2:
        tile_compute(t, rows, 2);
        break;
#if VBYTES == 64 || defined(__aarch64__)
    case 3:
        tile_compute(t, rows, 3);
        break;
    case 4:
        tile_compute(t, rows, 4);
        break;
#endif
    }
}

static void tile_run(const tile *t, size_t rows) {
    switch (rows) {
    case 1:
        tile_of_rows(t, 1);
        break;
    case 2:
        tile_of_rows(t, 2);
        break;
    case 3:
        tile_of_rows(t, 3);
        break;
    case 4:
        tile_of_rows(t, 4);
        break;
    case 5:
        tile_of_rows(t, 5);
        break;
    case 6:
        tile_of_rows(t, 6);
        break;
    }
}

/* Tiles down `rows` rows of a strip, as equal in height as can be. */
static void strip_run(tile t, size_t rows) {
    for (size_t tiles = size_div_up(rows, TILE_ROWS); tiles > 0; tiles--) {
        const size_t height = size_div_up(rows, tiles);
        tile_run(&t, height);
        rows -= height;
        t.a += height * t.a_row;
        t.c += height * t.c_row;
        if (t.addend)
            t.addend += height * t.addend_row;
    }
}

/* to (VLEN, VLEN) = transpose of from (VLEN, VLEN) */
VINLINE void transpose_square(real *to, size_t to_row, const real *from, size_t from_row) {
    vreal square[VLEN];
    VEACH (i, VLEN)
        square[i] = vload(from + (size_t)i * from_row);
    vtranspose(square);
    VEACH (i, VLEN)
        vstore(to + (size_t)i * to_row, square[i]);
}

/* packed (depth, width) = transpose of b (columns, depth), zeros beyond `columns` */
static void pack_transposed(real *packed, size_t width, const real *b, size_t b_row, size_t depth,
                            size_t columns) {
    for (size_t j = 0; j < width; j += VLEN) {
        const size_t lanes = size_min(VLEN, columns - j);
        size_t p = 0;
        if (lanes == VLEN)
            for (; p + VLEN <= depth; p += VLEN)
                transpose_square(packed + p * width + j, width, b + j * b_row + p, b_row);
        for (; p < depth; p++)
            for (size_t i = 0; i < VLEN; i++)
                packed[p * width + j + i] = i < lanes ? b[(j + i) * b_row + p] : 0;
    }
}

/* `vectors` is a constant where this is inlined: a loop that could be any length would become a
 * call or a string instruction, both slow for a few vectors. */
VINLINE void copy_columns(real *packed, size_t width, const real *b, size_t b_row, size_t depth,
                          int vectors) {
    for (; depth > 0; depth--, packed += width, b += b_row)
        VEACH (j, vectors)
            vstore(packed + j * VLEN, vload(b + j * VLEN));
}

/* packed (depth, width) = b (depth, columns), zeros beyond `columns` */
static void pack_straight(real *packed, size_t width, const real *b, size_t b_row, size_t depth,
                          size_t columns) {
    size_t j = 0;
    if (columns == STRIP) {
        copy_columns(packed, width, b, b_row, depth, TILE_VECTORS);
        return;
    }
    for (; j + VLEN <= columns; j += VLEN)
        copy_columns(packed + j, width, b + j, b_row, depth, 1);
    if (j < width)
        for (size_t p = 0; p < depth; p++)
            for (size_t i = 0; i < VLEN; i++)
                packed[p * width + j + i] = j + i < columns ? b[p * b_row + j + i] : 0;
}

/* Whether a strip of B can be read where it lies: it must fill whole vectors, and be contiguous or
 * used too little to repay the copy. */
static bool strip_is_packed(const attni_product *g, size_t columns) {
    const size_t wide = 128; /* rows this far apart begin to evict each other */
    return !g->trans_b && columns % VLEN == 0 &&
           (g->ldb == columns || g->m <= 2 * TILE_ROWS ||
            (g->m <= 8 * TILE_ROWS && g->ldb <= wide));
}

/* A[rows, p..p+depth] B[p..p+depth, strip] for one strip of C, `rows` rows from `row` down. */
static void strip_product(const attni_product *g, size_t row, size_t rows, size_t column, size_t p,
                          size_t depth) {
    _Alignas(CACHE_LINE) real packed[DEPTH * STRIP];
    const size_t columns = size_min(g->n - column, STRIP);
    const size_t width = size_div_up(columns, VLEN) * VLEN;
    tile t = {.c = g->c + row * g->ldc + column,
              .c_row = g->ldc,
              .a = g->trans_a ? g->a + p * g->lda + row : g->a + row * g->lda + p,
              .a_row = g->trans_a ? 1 : g->lda,
              .a_step = g->trans_a ? g->lda : 1,
              .ahead = g->trans_a && p + depth < g->k ? g->lda * DEPTH : 0,
              .b = packed,
              .b_row = width,
              .depth = depth,
              .columns = columns,
              .alpha = g->alpha,
              .gamma = p > 0 ? 1 : g->beta};
    if (g->trans_b) {
        pack_transposed(packed, width, g->b + column * g->ldb + p, g->ldb, depth, columns);
    } else if (strip_is_packed(g, columns)) {
        t.b = g->b + p * g->ldb + column;
        t.b_row = g->ldb;
    } else {
        pack_straight(packed, width, g->b + p * g->ldb + column, g->ldb, depth, columns);
    }
    if (t.gamma != 0) {
        t.addend = t.c;
        t.addend_row = g->ldc;
    } else if (g->bias) {
        t.gamma = 1;
        t.addend = g->bias + column;
    }
    strip_run(t, rows);
}

/* C = beta · C + bias */
static void scale_and_bias(const attni_product *g) {
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = 0; j < g->n; j++) {
            real *c = g->c + i * g->ldc + j;
            *c = (g->beta != 0 ? g->beta * *c : 0) + (g->bias ? g->bias[j] : 0);
        }
}

void KERNEL(gemm)(const attni_product *product) {
    attni_product g = *product;
    const bool sum_is_empty = g.k == 0 || g.alpha == 0;
    if (sum_is_empty || (g.bias && g.beta != 0)) {
        scale_and_bias(&g);
        g.beta = 1;
        g.bias = NULL;
    }
    if (sum_is_empty)
        return;
    for (size_t row = 0; row < g.m; row += BLOCK_ROWS)
        for (size_t p = 0; p < g.k; p += DEPTH)
            for (size_t column = 0; column < g.n; column += STRIP)
                strip_product(&g, row, size_min(g.m - row, BLOCK_ROWS), column, p,
                              size_min(g.k - p, DEPTH));
}
