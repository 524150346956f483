/*
 * gradcheck_factors.h - the variants of attention as factors and their levels, for `--all`.
 */
#ifndef GRADCHECK_FACTORS_H
#define GRADCHECK_FACTORS_H

#include "gradcheck_pairs.h"

struct check_case;

/* The factors as a problem of pairs. */
const pairs_problem *check_factors(void);

const char *check_factor_name(size_t factor);
const char *check_level_name(size_t factor, size_t level);

/* The configuration that a row stands for. */
void check_case_of_row(struct check_case *c, const pairs_row *row);

#endif
