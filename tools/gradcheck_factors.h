/*
 * gradcheck_factors.h - the variants of attention as factors and their levels, for `--all`.
 */
#ifndef GRADCHECK_FACTORS_H
#define GRADCHECK_FACTORS_H

#include "gradcheck.h"
#include "gradcheck_pairs.h"

/* The factors as a problem of pairs. */
const pairs_problem *check_factors(void);

const char *check_factor_name(size_t factor);
const char *check_level_name(size_t factor, size_t level);

/* The configuration that a row stands for, on one path. */
void check_case_of_row(check_case *c, const pairs_row *row, attn_kernel kernel);

#endif
