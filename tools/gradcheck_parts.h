/*
 * gradcheck_parts.h - where everything that has a gradient stands in one vector
 *
 *     x = [parameters | query | key | value | bias]
 */
#ifndef GRADCHECK_PARTS_H
#define GRADCHECK_PARTS_H

#include "gradcheck_arrays.h"

/* A part of x. `member` is its place in attn_mha_params, or NOT_A_PARAM. */
typedef struct check_part {
    const char *name;
    size_t member, count, offset;
} check_part;

typedef struct check_parts {
    check_part part[MAX_TENSORS]; /* as they follow one another */
    size_t num_parts;
    size_t count;                           /* of x */
    size_t num_params;                      /* with gaps */
    size_t num_queries, num_keys, num_bias; /* reals of query; key and value each; bias */
} check_parts;

void check_parts_place(check_parts *parts, const check_case *c, const check_arrays *arrays);

/* Pointers into x, or into its gradient. */
attn_mha_params check_params_in(const check_parts *parts, attn_real *x);
attn_mha_input_grads check_inputs_in(const check_parts *parts, attn_real *x);

#endif
