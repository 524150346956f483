/*
 * row_dots.h (internal) - dot products of a few vectors with many rows, which are read once, as
 * they lie in memory.
 *
 *     dots[x, j] = sum over c of X[x, c] · R[j, c]
 *
 * The columns c lie in the lanes. VLEN sums are kept at once, a vector each; in the end the lanes
 * of all of them are added in one go. The rows are read in the order in which they lie, two vectors
 * at a time: what looks ahead in the processor follows that best.
 */
#ifndef ATTNI_KERNELS_ROW_DOTS_H
#define ATTNI_KERNELS_ROW_DOTS_H

#include "base/size.h"
#include "kernels/simd.h"

/* Two vectors a and b become one of half the sums of each: where the low list takes an element, the
 * high one takes its partner. Lists of one level stay within 16 bytes where they can, which is
 * cheaper. After all levels lane i holds the sum of vector i. */
#if VLEN == 2
#define VFOLD_LOW_1_  0, 2
#define VFOLD_HIGH_1_ 1, 3
#elif VLEN == 4 && defined(ATTN_DOUBLE)
#define VFOLD_LOW_1_  0, 4, 2, 6
#define VFOLD_HIGH_1_ 1, 5, 3, 7
#define VFOLD_LOW_2_  0, 1, 4, 5
#define VFOLD_HIGH_2_ 2, 3, 6, 7
#elif VLEN == 4
#define VFOLD_LOW_1_  0, 4, 1, 5
#define VFOLD_HIGH_1_ 2, 6, 3, 7
#define VFOLD_LOW_2_  0, 1, 4, 5
#define VFOLD_HIGH_2_ 2, 3, 6, 7
#elif VLEN == 8 && defined(ATTN_DOUBLE)
#define VFOLD_LOW_1_  0, 8, 2, 10, 4, 12, 6, 14
#define VFOLD_HIGH_1_ 1, 9, 3, 11, 5, 13, 7, 15
#define VFOLD_LOW_2_  0, 1, 2, 3, 8, 9, 10, 11
#define VFOLD_HIGH_2_ 4, 5, 6, 7, 12, 13, 14, 15
#define VFOLD_LOW_3_  0, 1, 4, 5, 8, 9, 12, 13
#define VFOLD_HIGH_3_ 2, 3, 6, 7, 10, 11, 14, 15
#elif VLEN == 8
#define VFOLD_LOW_1_  0, 8, 1, 9, 4, 12, 5, 13
#define VFOLD_HIGH_1_ 2, 10, 3, 11, 6, 14, 7, 15
#define VFOLD_LOW_2_  0, 1, 8, 9, 4, 5, 12, 13
#define VFOLD_HIGH_2_ 2, 3, 10, 11, 6, 7, 14, 15
#define VFOLD_LOW_3_  0, 1, 2, 3, 8, 9, 10, 11
#define VFOLD_HIGH_3_ 4, 5, 6, 7, 12, 13, 14, 15
#else
#define VFOLD_LOW_1_  0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define VFOLD_HIGH_1_ 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define VFOLD_LOW_2_  0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define VFOLD_HIGH_2_ 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define VFOLD_LOW_3_  0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define VFOLD_HIGH_3_ 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define VFOLD_LOW_4_  0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define VFOLD_HIGH_4_ 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
#endif

#define VFOLD_(level, v)                                                               \
    VEACH (i, VLEN >> level)                                                           \
        v[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], VFOLD_LOW_##level##_) + \
               __builtin_shufflevector(v[2 * i], v[2 * i + 1], VFOLD_HIGH_##level##_);

/* Lane i of the result is the sum of the lanes of v[i], always in the same order. */
VINLINE vreal vsum_each(vreal v[VLEN]) {
    VFOLD_(1, v)
#if VLEN >= 4
    VFOLD_(2, v)
#endif
#if VLEN >= 8
    VFOLD_(3, v)
#endif
#if VLEN >= 16
    VFOLD_(4, v)
#endif
    return v[0];
}

enum {
    DOT_MOST_X = VLEN < 4 ? VLEN : 4, /* vectors that share a pass */
    DOT_GROUPS = VLEN < 8 ? 2 : 1,    /* of VLEN sums that share a pass */
    DOT_SUMS = DOT_GROUPS * VLEN,
    DOT_CHUNK = 2 /* vectors of a row that are read at a time */
};

typedef struct row_dots {
    const real *x; /* num_x rows of d reals; asked for more, the last one serves again */
    size_t x_stride, num_x;
    const real *rows;
    size_t row_stride, d;
    real *dots; /* row x starts at dots + x · dots_stride */
    size_t dots_stride;
} row_dots;

/* Asks for what lies so many bytes behind `at`, if any: also past the end of what there is. */
VINLINE void fetch_ahead(const real *at, int vectors, size_t bytes) {
    for (int byte = 0; bytes > 0 && byte < vectors * VBYTES; byte += 64)
        __builtin_prefetch((const void *)((uintptr_t)at + bytes + (uintptr_t)byte));
}

/* The sums of columns c .. c + vectors·VLEN, or of `part` < VLEN columns from c on. Rows past
 * `rows` are the last one again. */
VINLINE void dots_columns(int count_x, int vectors, size_t ahead, vreal sum[DOT_SUMS],
                          const row_dots *job, size_t first, size_t rows, size_t c, size_t part) {
    const int per_x = DOT_SUMS / count_x;
    vreal x[DOT_MOST_X][DOT_CHUNK];
    VEACH (n, count_x)
        VEACH (v, vectors) {
            const size_t row = size_min((size_t)n, job->num_x - 1);
            const real *at = job->x + row * job->x_stride + c + (size_t)v * VLEN;
            x[n][v] = part > 0 ? vload_part(at, part) : vload(at);
        }
    VEACH (i, per_x) {
        const size_t j = first + ((size_t)i < rows ? (size_t)i : rows - 1);
        const real *row = job->rows + j * job->row_stride + c;
        fetch_ahead(row, vectors, ahead);
        VEACH (v, vectors) {
            const vreal y = part > 0 ? vload_part(row, part) : vload(row + (size_t)v * VLEN);
            VEACH (n, count_x)
                sum[n * per_x + i] += x[n][v] * y;
        }
    }
}

/* Up to DOT_SUMS / count_x rows from `first` on. */
VINLINE void dots_block(int count_x, size_t ahead, const row_dots *job, size_t first, size_t rows) {
    const int per_x = DOT_SUMS / count_x;
    vreal sum[DOT_SUMS];
    real dots[DOT_SUMS];
    VEACH (i, DOT_SUMS)
        sum[i] = vzero();
    size_t c = 0;
    for (; c + DOT_CHUNK * VLEN <= job->d; c += DOT_CHUNK * VLEN)
        dots_columns(count_x, DOT_CHUNK, ahead, sum, job, first, rows, c, 0);
    if (c + VLEN <= job->d) {
        dots_columns(count_x, 1, ahead, sum, job, first, rows, c, 0);
        c += VLEN;
    }
    if (c < job->d)
        dots_columns(count_x, 1, ahead, sum, job, first, rows, c, job->d - c);
    VEACH (g, DOT_GROUPS)
        vstore(dots + g * VLEN, vsum_each(sum + g * VLEN));
    VEACH (n, count_x)
        memcpy(job->dots + (size_t)n * job->dots_stride + first, dots + n * per_x,
               rows * sizeof *dots);
}

/* dots (count_x, n), count_x a constant power of two, at most DOT_MOST_X. Rows that lie one behind
 * the other may be fetched so many bytes ahead, a constant too; 0 = not. */
VINLINE void dots_of(int count_x, size_t ahead, const row_dots *job, size_t n) {
    const size_t step = (size_t)(DOT_SUMS / count_x);
    size_t j = 0;
    for (; j + step <= n; j += step)
        dots_block(count_x, ahead, job, j, step);
    if (j < n)
        dots_block(count_x, ahead, job, j, n - j);
}

#endif
