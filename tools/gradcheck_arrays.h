/*
 * gradcheck_arrays.h - the masks, the bias and the sequences of a configuration.
 */
#ifndef GRADCHECK_ARRAYS_H
#define GRADCHECK_ARRAYS_H

#include "gradcheck.h"

typedef struct check_arrays {
    uint8_t *padding, *attend; /* NULL = none */
    attn_broadcast attend_strides;
    attn_real *bias; /* what the layer gets: that of x, with -inf here and there */
    uint8_t *blocks; /* where */
    attn_broadcast bias_strides;
    size_t bias_count;
    size_t *offsets_q, *offsets_k; /* of packed sequences, or NULL */
    size_t tokens_q, tokens_k;     /* of all samples together */
} check_arrays;

/* All of them zeroed on failure. */
attn_status check_arrays_make(check_arrays *a, const check_case *c);
void check_arrays_free(check_arrays *a);

/* Copies the bias of x into that of the layer. */
void check_arrays_take_bias(check_arrays *a, const attn_real *bias);

#endif
