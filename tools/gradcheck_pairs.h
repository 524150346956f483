/*
 * gradcheck_pairs.h - rows of choices in which any two choices occur together.
 *
 * There are factors, each with some levels; a row takes one level of each. Testing every row is out
 * of the question with twenty factors, but most faults show where two levels meet, and rows for all
 * pairs are few: about as many as the two largest factors have pairs.
 *
 * The rows are found greedily: each begins with a pair that is still open and is filled up factor
 * by factor, with the level that closes most; of some such rows the best is kept. (Cohen, Dalal,
 * Fredman and Patton, "The AETG system", 1997.) The same input gives the same rows.
 */
#ifndef GRADCHECK_PAIRS_H
#define GRADCHECK_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PAIRS_MAX_FACTORS = 24, PAIRS_MAX_LEVELS = 24 };

typedef struct pairs_row {
    uint8_t level[PAIRS_MAX_FACTORS];
} pairs_row;

typedef struct pairs_problem {
    size_t num_factors;
    size_t num_levels[PAIRS_MAX_FACTORS];
    /* Whether level a of factor f goes with level b of factor g, f < g; NULL = all do. */
    bool (*allowed)(size_t f, size_t a, size_t g, size_t b);
} pairs_problem;

/* The number of rows written, or 0 if max_rows are too few or a pair, allowed as such, fits no row.
 */
size_t pairs_cover(pairs_row *rows, size_t max_rows, const pairs_problem *problem);

#endif
