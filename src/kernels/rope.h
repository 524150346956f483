/*
 * rope.h (internal) - rows of heads turned by their positions, on one thread.
 *
 *     (x, y) -> (x cos a - y sin a, x sin a + y cos a)      a = position · frequency of the pair
 */
#ifndef ATTNI_KERNELS_ROPE_H
#define ATTNI_KERNELS_ROPE_H

#include "base/real.h"

#include <stdbool.h>
#include <stddef.h>

/* Pairs are taken some at a time, so that tables fit on the stack whatever d is. */
enum { ATTNI_ROPE_PAIRS = 64 };

/* Cosines and sines of pairs first .. first + count - 1 of a row at one position, and of the angles
 * from there to the next. */
typedef struct attni_angles {
    size_t first, count;
    double cosine[ATTNI_ROPE_PAIRS], sine[ATTNI_ROPE_PAIRS];
    double step_cosine[ATTNI_ROPE_PAIRS], step_sine[ATTNI_ROPE_PAIRS];
} attni_angles;

/* `rows` rows at successive positions, each of `heads` heads of width d_head. */
typedef struct attni_turn {
    real *x;
    size_t row, head; /* reals from row to row, from head to head */
    size_t rows, heads, d_head;
    bool interleaved; /* pair m is (2m, 2m + 1), else (m, m + d/2) */
    bool back;        /* by -a */
} attni_turn;

#endif
