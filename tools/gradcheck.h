/*
 * gradcheck.h - the parts of `attn gradcheck`: configurations of the layer, and their check.
 */
#ifndef GRADCHECK_H
#define GRADCHECK_H

#include <attn/gradcheck.h>
#include <attn/mha.h>

#include <stdbool.h>

enum { MAX_TENSORS = 14 };

typedef enum check_padding {
    NO_PADDING,
    RIGHT_PADDING, /* the last key of the last sample */
    LEFT_PADDING,  /* the first key of the last sample */
    WHOLE_SAMPLE   /* every key of the last sample: its rows are fully masked */
} check_padding;

/* Which biases of the projections there are. */
typedef enum check_biases {
    ALL_BIASES,
    NO_BIASES,
    BQ_AND_BO /* the others are NULL in the parameters */
} check_biases;

/* One configuration, as plain data; its arrays come and go with its check. `attend` and `bias` name
 * the dimensions of "bhqk" that are not broadcast; NULL = no such array. */
typedef struct check_case {
    char name[320];
    size_t batch, len_q, len_k; /* without `cross`, len_k is len_q */
    bool cross;
    attn_mha_config config;
    bool has_rope_position;
    int64_t rope_position, rope_key_position;
    attn_mask mask; /* without its arrays */
    check_padding padding;
    const char *attend, *bias;
    bool bias_blocks;                        /* a fifth of the bias is -inf */
    bool attend_by_columns, bias_by_columns; /* key by key, not query by query */
    bool packed;                             /* sequences end to end: the last of two is shorter */
    bool projected; /* keys and values are projected beforehand; with `cross` */
    check_biases biases;
    bool separate; /* the parameters stand in arrays of their own, not in one block */
    uint64_t array_seed;
} check_case;

/* What came out, tensor by tensor. */
typedef struct check_outcome {
    attn_gradcheck_report report;
    attn_gradcheck_tensor tensors[MAX_TENSORS];
    attn_gradcheck_tensor_report reports[MAX_TENSORS];
    size_t num_tensors;
} check_outcome;

/* What the options ask for. */
typedef struct check_request {
    attn_kernel kernels[2];
    size_t num_kernels;
    uint64_t seed;
    bool json, every;
} check_request;

/* The table of shapes by masks, and its exit status. */
int check_table(const check_request *request);

/* Rows in which every two variants that go together occur together, and their exit status. */
int check_all(const check_request *request);

/* A named fault in a backward that is composed here: the check must fail. `name` may be "list". */
int check_broken(const char *name, uint64_t seed, bool json);

/* Checks every element of every gradient of the layer. */
attn_status check_layer(check_outcome *outcome, const check_case *c, uint64_t seed);

/* Runs the checker over count reals at x. `magnitude` is the sum of the absolute values of the
 * terms that f adds up: where they cancel, |f| alone would belittle its rounding error. */
attn_status check_run(check_outcome *outcome, attn_gradcheck_function *function, void *user,
                      attn_real *x, size_t count, double magnitude);

/* sum |a_i b_i| */
double check_magnitude(const double *a, const double *b, size_t count);

#endif
