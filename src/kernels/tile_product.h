/*
 * tile_product.h (internal) - the small dense product that attention is made of.
 *
 *     C[r, :] (+)= sum over k of A[r, k] · B[k, :]
 *
 * A is read element by element and broadcast, B and C are read in vectors along their rows. Strides
 * let A be a matrix or its transpose, so that all seven products of attention are this one:
 *
 *     Sᵀ = K Qᵀ       dPᵀ = V dOᵀ     A: keys x d                  B: d x queries
 *     Oᵀ += Vᵀ Pᵀ                     A: d x keys, transposed      B: keys x queries
 *     dV += Pᵀ dO     dK += dSᵀ Q     A: keys x queries            B: queries x d
 *     dQ += dS K                      A: queries x keys, transp.   B: keys x d
 */
#ifndef ATTNI_KERNELS_TILE_PRODUCT_H
#define ATTNI_KERNELS_TILE_PRODUCT_H

#include "kernels/simd.h"

/* The block of C that stays in registers. The accumulators, one row of B and a broadcast must fit
 * in the 32 registers of AVX-512 or the 16 of the others; narrow blocks are taller, so that there
 * are still enough independent sums to hide the latency of a multiply-add. */
#if VBYTES == 64
enum { BLOCK_VECTORS = 4, BLOCK_ROWS = 6, TALL_ROWS = 12, MOST_ROWS = 12 };
#elif VBYTES == 32
enum { BLOCK_VECTORS = 2, BLOCK_ROWS = 6, TALL_ROWS = 12, MOST_ROWS = 12 };
#else
enum { BLOCK_VECTORS = 2, BLOCK_ROWS = 4, TALL_ROWS = 8, MOST_ROWS = 8 };
#endif

typedef struct tile_operands {
    const real *a;
    size_t a_row, a_step; /* A[r, k] is a[r * a_row + k * a_step] */
    const real *b;
    size_t b_step; /* B[k, :] starts at b + k * b_step */
    size_t depth;  /* how many k */
} tile_operands;

/* What becomes of the sums: C = sum, C += sum, or C = C · keep + sum with one factor per column. */
typedef enum tile_into { TILE_SET, TILE_ADD, TILE_RESCALE } tile_into;

typedef struct tile_result {
    real *c;
    size_t c_row;
    tile_into into;
    const real *keep; /* TILE_RESCALE: a factor per column */
} tile_result;

/* A block of `rows` x `vectors`, both constants where this is inlined. */
VINLINE void tile_block(int rows, int vectors, const tile_result *to, size_t first_row,
                        const tile_operands *from) {
    vreal sum[MOST_ROWS][BLOCK_VECTORS];
    const size_t a_row = from->a_row, a_step = from->a_step, b_step = from->b_step;
    const real *a = from->a + first_row * a_row, *b = from->b;
    VEACH (r, rows)
        VEACH (v, vectors)
            sum[r][v] = vzero();
    for (size_t k = from->depth; k > 0; k--, a += a_step, b += b_step) {
        vreal row[BLOCK_VECTORS];
        VEACH (v, vectors)
            row[v] = vload(b + v * VLEN);
        VEACH (r, rows) {
            const vreal x = vbroadcast(a + (size_t)r * a_row);
            VEACH (v, vectors)
                sum[r][v] += x * row[v];
        }
    }
    real *c = to->c + first_row * to->c_row;
    VEACH (r, rows) {
        VEACH (v, vectors) {
            vreal total = sum[r][v];
            if (to->into == TILE_ADD)
                total += vload(c + v * VLEN);
            else if (to->into == TILE_RESCALE)
                total += vload(c + v * VLEN) * vload(to->keep + v * VLEN);
            vstore(c + v * VLEN, total);
        }
        c += to->c_row;
    }
}

/* All rows of a column strip of `vectors`, a constant where this is inlined. */
VINLINE void tile_strip(int vectors, const tile_result *to, size_t rows,
                        const tile_operands *from) {
    size_t r = 0;
    if (vectors <= BLOCK_VECTORS / 2)
        for (; r + TALL_ROWS <= rows; r += TALL_ROWS)
            tile_block(TALL_ROWS, vectors, to, r, from);
    for (; r + BLOCK_ROWS <= rows; r += BLOCK_ROWS)
        tile_block(BLOCK_ROWS, vectors, to, r, from);
    switch (rows - r) {
    case 1:
        tile_block(1, vectors, to, r, from);
        break;
    case 2:
        tile_block(2, vectors, to, r, from);
        break;
    case 3:
        tile_block(3, vectors, to, r, from);
        break;
#if VBYTES > 16 /* blocks of six rows */
    case 4:
        tile_block(4, vectors, to, r, from);
        break;
    case 5:
        tile_block(5, vectors, to, r, from);
        break;
#endif
    default:
        break;
    }
}

/* The whole product, `rows` x `vectors` vectors. Strips are as equal as can be: five vectors are
 * cut into 3 + 2, not 4 + 1. */
static void tile_product(const tile_result *result, size_t rows, size_t vectors,
                         const tile_operands *operands) {
    tile_result to = *result;
    tile_operands from = *operands;
    for (size_t strips = (vectors + BLOCK_VECTORS - 1) / BLOCK_VECTORS; strips > 0; strips--) {
        const size_t width = (vectors + strips - 1) / strips;
        switch (width) {
#if VBYTES == 64
        case 4:
            tile_strip(4, &to, rows, &from);
            break;
        case 3:
            tile_strip(3, &to, rows, &from);
            break;
#endif
        case 2:
            tile_strip(2, &to, rows, &from);
            break;
        default:
            tile_strip(1, &to, rows, &from);
            break;
        }
        vectors -= width;
        to.c += width * VLEN;
        if (to.into == TILE_RESCALE)
            to.keep += width * VLEN;
        from.b += width * VLEN;
    }
}

#endif
