/*
 * gradcheck_composed.h - a small attention layer whose backward is composed here from the library's
 * single operations, so that a fault can be put into any of its terms. In double.
 *
 * Two samples of five tokens, self-attention, causal, two heads of width 4 that share one head of
 * keys and values. A key of sample 1 is left padding, so that its query 0 may see nothing; one pair
 * is blocked in head 1 alone. Samples are taken one after the other, as micro-batches are:
 * gradients of parameters add up.
 *
 * Faults of a variant go into the full layer, which has them all: rotary positions, a window of
 * three keys, softcap, a bias by head and key, ALiBi with learned slopes, sinks, dropout.
 */
#ifndef GRADCHECK_COMPOSED_H
#define GRADCHECK_COMPOSED_H

#include <attn/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    COMPOSED_BATCH = 2,
    COMPOSED_LEN = 5,
    COMPOSED_HEADS = 2,
    COMPOSED_KV_HEADS = 1,
    COMPOSED_D_HEAD = 4,
    COMPOSED_D_MODEL = COMPOSED_HEADS * COMPOSED_D_HEAD,
    COMPOSED_D_KV = COMPOSED_KV_HEADS * COMPOSED_D_HEAD
};

/* Everything that has a gradient; the same type holds the gradients. What only the full layer has
 * comes last. */
typedef struct composed_values {
    double wq[COMPOSED_D_MODEL * COMPOSED_D_MODEL], wk[COMPOSED_D_KV * COMPOSED_D_MODEL];
    double wv[COMPOSED_D_KV * COMPOSED_D_MODEL], wo[COMPOSED_D_MODEL * COMPOSED_D_MODEL];
    double bq[COMPOSED_D_MODEL], bk[COMPOSED_D_KV], bv[COMPOSED_D_KV], bo[COMPOSED_D_MODEL];
    double x[COMPOSED_BATCH * COMPOSED_LEN * COMPOSED_D_MODEL];
    double bias[COMPOSED_HEADS * COMPOSED_LEN]; /* (1,H,1,T) */
    double sinks[COMPOSED_HEADS], alibi_slopes[COMPOSED_HEADS];
} composed_values;

/* What can be wrong in the backward; gradcheck_faults.c says how. From FIRST_FULL on it is the
 * backward of the full layer. */
typedef enum composed_fault {
    FAULT_NONE = -1,
    FAULT_SCALE_DROPPED,
    FAULT_SCALE_TWICE,
    FAULT_SIGN_FLIPPED,
    FAULT_ROW_SUM_MISSING,
    FAULT_JACOBIAN_DIAGONAL,
    FAULT_SOFTMAX_DETACHED,
    FAULT_DK_TIMES_1_01,
    FAULT_DQ_DK_SWAPPED,
    FAULT_DS_TRANSPOSED,
    FAULT_DV_TRANSPOSED,
    FAULT_LAST_KEY_DROPPED,
    FAULT_GROUP_SUM_MISSING,
    FAULT_MASK_IGNORED,
    FAULT_PADDING_POLARITY,
    FAULT_CAUSAL_OFF_BY_ONE,
    FAULT_MASK_HEADS_SWAPPED,
    FAULT_MASKED_ROW_UNIFORM,
    FAULT_HEADS_TRANSPOSED,
    FAULT_DQ_HEADS_SWAPPED,
    FAULT_WO_SKIPPED,
    FAULT_WO_TRANSPOSED,
    FAULT_DWQ_WRONG_INPUT,
    FAULT_BO_MISSING,
    FAULT_BO_AVERAGED,
    FAULT_BIAS_GRAD_OVERWRITTEN,
    FAULT_WEIGHT_GRAD_OVERWRITTEN,
    FAULT_DX_PATH_LOST,
    FAULT_DX_OVERWRITTEN,
    FAULT_FIRST_FULL,
    FAULT_WINDOW_IGNORED = FAULT_FIRST_FULL,
    FAULT_ROPE_NOT_TURNED_BACK,
    FAULT_SOFTCAP_FACTOR_MISSING,
    FAULT_BIAS_NOT_REDUCED,
    FAULT_BIAS_SCALED,
    FAULT_ALIBI_SIGN,
    FAULT_SLOPE_GRADIENT_MISSING,
    FAULT_SINK_LEFT_OUT,
    FAULT_SINK_GRADIENT_SIGN,
    FAULT_DROPOUT_PATTERN_OTHER,
    FAULT_DROPOUT_UNSCALED,
    FAULT_COUNT
} composed_fault;

/* Its name on the command line, and what it does in a few words. */
const char *composed_fault_name(composed_fault fault);
const char *composed_fault_words(composed_fault fault);

/* y (B,T,D). */
attn_status composed_forward(double *y, const composed_values *values, bool full);

/* The gradients of sum(dy ∘ y), all overwritten, with one fault or FAULT_NONE. */
attn_status composed_backward(composed_values *gradients, const composed_values *values,
                              const double *dy, bool full, composed_fault fault);

#endif
