/*
 * projections.h (internal) - the ways of the inputs into the core and of gradients back.
 *
 *     forward     y = x Wᵀ + b                          (rows,width) = (rows,D) (D,width)
 *     backward    dx = y W     dW += yᵀ x     db += sum of y       with y's gradient in place of y
 *
 * Ways that start at one input and whose arrays lie one behind the other are one way: in
 * self-attention, with the parameters as attn_mha_params_view lays them, one product makes q, k and
 * v, and their gradients take one product each to x, to the matrices and to the biases.
 */
#ifndef ATTNI_LAYER_PROJECTIONS_H
#define ATTNI_LAYER_PROJECTIONS_H

#include "layer/mha_call.h"

typedef struct attni_way {
    const real *x; /* (rows, D) */
    real *y;       /* (rows, width), `stride` reals from row to row: q, k or v, or its gradient */
    size_t rows, width, stride;
    size_t column;      /* of y's first element, counted over the columns of q, k and v */
    const real *w, *b;  /* (width, D) and (width); b may be NULL */
    real *dx, *dw, *db; /* of the backward; NULL = not wanted */
} attni_way;

/* Joins ways, in place and in their order; returns how many are left. */
size_t attni_ways_join(attni_way *ways, size_t count, size_t d_model);

/* q, k and v, or their gradients. In self-attention they lie side by side (mha_call.h). */
typedef struct attni_projected {
    real *q, *k, *v;
} attni_projected;

/* From the inputs to those of q, k and v that are not NULL. With rope q and k are turned, block by
 * block, right after a product has written one. */
void attni_project(const attni_mha *call, const attni_projected *p, const attn_mha_params *w,
                   const attn_mha_input *input);

/* From the gradients that are not NULL to what is wanted of dw and dx (either may be NULL): dw is
 * added to, dx overwritten. With rope the gradients of q and k are turned back in place. */
void attni_project_back(const attni_mha *call, const attni_projected *p, const attn_mha_params *w,
                        const attn_mha_input *input, const attn_mha_params *dw,
                        const attn_mha_input_grads *dx);

#endif
