/*
 * strides.h (internal) - what the strides of a tensor may be.
 */
#ifndef ATTNI_OPS_STRIDES_H
#define ATTNI_OPS_STRIDES_H

#include "base/real.h"

#include <attn/sdpa.h>

/* A tensor (B,H,T,d) in the caller's memory. `name` begins its messages. */
typedef struct attni_tensor {
    const char *name;
    const real *data;
    attn_strides strides;
    size_t len;
    bool written; /* its elements must not overlap */
} attni_tensor;

/* One dimension of an array. */
typedef struct attni_axis {
    size_t size, stride;
} attni_axis;

/* Whether elements of `extent` numbers share a place. Sorts the axes. The last place does not wrap.
 */
bool attni_axes_overlap(attni_axis *axes, size_t count, size_t extent);

/* B, H and d come from the shape, whose product with len must not wrap. `function` begins the
 * messages. */
attn_status attni_tensor_check(const char *function, const attni_tensor *tensor,
                               const attn_shape *shape, bool may_be_null);

#endif
