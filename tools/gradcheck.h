/*
 * gradcheck.h - the parts of `attn gradcheck`: configurations of the layer, and their check.
 */
#ifndef GRADCHECK_H
#define GRADCHECK_H

#include <attn/gradcheck.h>
#include <attn/mha.h>

#include <stdbool.h>

enum { MAX_TENSORS = 11, MAX_BATCH = 2, MAX_LEN = 5, MAX_HEADS = 4 };

/* A shape of the layer; without `cross`, len_k is len_q. */
typedef struct check_shape {
    const char *name;
    size_t batch, len_q, len_k, d_model, num_heads, d_head;
    bool cross, no_bias, has_scale;
    double scale;
    attn_rope rope;
    bool has_rope_position;
    int64_t rope_position, rope_key_position;
    size_t num_kv_heads; /* 0 = num_heads */
} check_shape;

/* One configuration. The mask points into the struct itself: do not copy it. */
typedef struct check_case {
    const check_shape *shape;
    const char *mask_name;
    attn_kernel kernel;
    attn_mask mask;
    uint8_t padding[MAX_BATCH * MAX_LEN];
    uint8_t attend[MAX_BATCH * MAX_HEADS * MAX_LEN * MAX_LEN];
} check_case;

/* What came out, tensor by tensor. */
typedef struct check_outcome {
    attn_gradcheck_report report;
    attn_gradcheck_tensor tensors[MAX_TENSORS];
    attn_gradcheck_tensor_report reports[MAX_TENSORS];
    size_t num_tensors;
} check_outcome;

extern const check_shape check_shapes[];
extern const size_t check_num_shapes, check_num_masks;

/* The case of one shape and one kind of mask. */
attn_status check_case_make(check_case *c, size_t shape, size_t mask, attn_kernel kernel);

/* Checks every element of every gradient of the layer. */
attn_status check_layer(check_outcome *outcome, const check_case *c, uint64_t seed);

/* Runs the checker over count reals at x. `magnitude` is the sum of the absolute values of the
 * terms that f adds up: where they cancel, |f| alone would belittle its rounding error. */
attn_status check_run(check_outcome *outcome, attn_gradcheck_function *function, void *user,
                      attn_real *x, size_t count, double magnitude);

/* sum |a_i b_i| */
double check_magnitude(const double *a, const double *b, size_t count);

/* A tensor of which something disagrees. One that is zero, and claimed to be, does not fail. */
bool check_failed(const attn_gradcheck_tensor_report *report);

#endif
