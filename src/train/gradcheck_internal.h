/*
 * gradcheck_internal.h - what a run of the gradient checker carries around.
 */
#ifndef ATTNI_GRADCHECK_INTERNAL_H
#define ATTNI_GRADCHECK_INTERNAL_H

#include "base/real.h"

#include <attn/gradcheck.h>
#include <attn/random.h>

/* Beyond this |x| a step relative to x leaves the neighbourhood that a gradient speaks of. */
#define GRADCHECK_X_MAX 1e6

/* A comparison to be judged: an element, or a direction. */
typedef struct gradcheck_item {
    size_t index;
    double claimed, measured;
    double noise; /* what the rounding of f can do to `measured` */
    bool rough;
} gradcheck_item;

typedef struct gradcheck_run {
    const attn_gradcheck_problem *problem;
    attn_gradcheck_options options; /* defaults filled in */
    double floor;                   /* of the scale, as a share of a tensor's largest gradient */
    attn_arena *arena;
    real *saved;                           /* the user's x */
    real *sent;                            /* what x is during an evaluation */
    real *gradient;                        /* the claim */
    real *again;                           /* the claim, asked for once more */
    gradcheck_item *items;                 /* of the tensor being checked */
    attn_gradcheck_tensor_report *reports; /* one per tensor, until the run is complete */
    attn_random random;
    double value; /* f(x) */
    size_t evaluations;
    double largest_claim; /* over all tensors judged so far */
    bool seen;            /* one gradient at least stands out of the rounding of f */
    /* what ended the run early, or PASSED */
    attn_gradcheck_result stopped;
    const char *reason;
} gradcheck_run;

typedef enum gradcheck_outcome {
    GRADCHECK_MEASURED,
    GRADCHECK_SKIPPED,    /* every |x| too large */
    GRADCHECK_UNRESOLVED, /* the step vanishes */
    GRADCHECK_NOT_FINITE  /* a value beside x, or a claim */
} gradcheck_outcome;

/* One call of the user's function. It may stop the run: run->stopped. */
attn_status attni_gradcheck_evaluate(gradcheck_run *run, double *value, real *gradient);

/* Moves x[begin..end) together, each element by a random sign times its step, and measures the
 * derivative in that direction by differences. */
attn_status attni_gradcheck_probe(gradcheck_run *run, size_t begin, size_t end,
                                  gradcheck_outcome *outcome, gradcheck_item *item);

#endif
