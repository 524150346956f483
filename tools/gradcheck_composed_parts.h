/*
 * gradcheck_composed_parts.h - what the forward of the composed layer shares with its backward.
 */
#ifndef GRADCHECK_COMPOSED_PARTS_H
#define GRADCHECK_COMPOSED_PARTS_H

#include "gradcheck_composed.h"

#include <attn/rope.h>
#include <attn/score_terms.h>

enum {
    B = COMPOSED_BATCH,
    T = COMPOSED_LEN,
    H = COMPOSED_HEADS,
    DH = COMPOSED_D_HEAD,
    D = COMPOSED_D_MODEL,
    HKV = COMPOSED_KV_HEADS,
    DKV = COMPOSED_D_KV,
    TOKENS = T * D,      /* one sample's (T, D), or (H, T, d) */
    KV_TOKENS = T * DKV, /* its keys or values, (T, Hkv·d), or (Hkv, T, d) */
    PAIRS = H * T * T,   /* one sample's (H, T, T) */
};

/* One sample's attention. */
static const attn_shape composed_shape = {1, H, T, T, DH, HKV};

static const attn_rope_config composed_rope = {.pairing = ATTN_ROPE_HALF};

/* What the scores of one sample go through on their way to the weights. */
typedef struct composed_terms {
    attn_score_terms scores;
    double slopes[H];
    const double *sinks; /* (H); NULL = none */
    double dropout;
    uint64_t seed;
} composed_terms;

typedef struct composed_weights {
    double s[PAIRS];              /* scores, before the terms */
    double p[PAIRS], sink[H * T]; /* weights */
    double kept[PAIRS];           /* weights after dropout */
} composed_weights;

/* What the forward of one sample leaves behind. */
typedef struct composed_saved {
    double q[TOKENS];                  /* (H, T, d) */
    double k[KV_TOKENS], v[KV_TOKENS]; /* (Hkv, T, d) */
    composed_weights weights;
    double context[TOKENS]; /* (T, D), heads merged */
} composed_saved;

/* Returns from the calling function when an operation fails. */
#define TRY(call)                     \
    do {                              \
        attn_status status_ = (call); \
        if (status_ != ATTN_OK)       \
            return status_;           \
    } while (0)

attn_mask composed_mask(size_t sample, bool full);

void composed_terms_take(composed_terms *terms, const composed_values *values, size_t sample,
                         bool full);

attn_status composed_weigh(composed_weights *w, const composed_saved *s, const attn_mask *mask,
                           const composed_terms *terms);

/* y (T, D) of one sample. */
attn_status composed_sample(double *y, composed_saved *s, const composed_values *values,
                            size_t sample, bool full);

#endif
