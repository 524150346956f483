/*
 * band_ops.h (internal) - the single operations on one band (see band.h), on one thread. The public
 * operations loop over all bands; the reference path runs them one after the other on each.
 *
 * Shapes: q, o (Lq,d) and k, v (Lk,d) of the head; s, p (rows,keys) of the band. Gradients alike.
 */
#ifndef ATTNI_BAND_OPS_H
#define ATTNI_BAND_OPS_H

#include "ops/masked_product.h"

/* d_head is at least 1 and the sizes of q, k, v and o do not wrap; for pairs, (B,H,Lq,Lk) does not
 * either. `function` begins the message. */
attn_status attni_shape_check(const char *function, const attn_shape *shape);
attn_status attni_pairs_check(const char *function, const attn_shape *shape);

/* s = scale · q kᵀ, -inf where blocked */
void attni_scores_band_forward(attni_matrix s, attni_operand q, attni_operand k, double scale,
                               const attni_band *band);
/* dq is overwritten, dk added to; either may be not wanted. ds is 0 where blocked. */
void attni_scores_band_backward(attni_matrix dq, attni_matrix dk, attni_operand ds, attni_operand q,
                                attni_operand k, double scale, const attni_band *band);

/* Which row of the weights (B,H,Lq,Lk). */
typedef struct attni_pair_row {
    size_t b, h, query;
} attni_pair_row;

/* A row of dropout.h's pair, the first n columns; in place if y == x. */
void attni_dropout_row(real *y, const real *x, double p, uint64_t seed, const attni_pair_row *row,
                       size_t n);
attn_status attni_dropout_check(const char *function, const attn_shape *shape);

/* The standard slope of head h of num_heads. */
real attni_alibi_slope(size_t h, size_t num_heads);

/* What score_terms.h does to the scores of one head. */
typedef struct attni_head_terms {
    real softcap;     /* 0 = off */
    const real *bias; /* of pair (i, j) at i·bias_query + j·bias_key; NULL = none */
    size_t bias_query, bias_key;
    bool alibi;
    real slope;
    double place; /* of query 0 among the keys */
} attni_head_terms;

/* The scores s of query i and its first n keys; in place if u == s. */
void attni_score_terms_row_forward(real *u, const real *s, const attni_head_terms *terms, size_t i,
                                   size_t n);
/* ds = du · (1 - tanh²(s / c)); in place if ds == du or ds == s. */
void attni_softcap_row_backward(real *ds, const real *du, const real *s, real c, size_t n);
/* A row's share of dslope. */
double attni_alibi_row_backward(const real *du, const attni_head_terms *terms, size_t i, size_t n);
/* A score-like array (B,H,Lq,Lk); of packed sequences, one (H,Lq,Lk) after the other, and the
 * lengths of the shape are the longest. */
typedef struct attni_pairs {
    const real *at;
    attn_shape shape;
    const size_t *offsets_q, *offsets_k; /* or both NULL */
} attni_pairs;

/* dbias, through its strides, from du, which is not read where mask blocks, unless mask is NULL. */
void attni_bias_backward(real *dbias, const attn_broadcast *strides, const attni_pairs *du,
                         const attni_mask *mask, size_t max_threads);

attn_status attni_softcap_check(const char *function, double softcap);
real attni_softcap(double softcap); /* of a checked one: what to divide by */
attn_status attni_bias_check(const char *function, const real *bias, const attn_broadcast *strides,
                             const attn_shape *shape);
attn_status attni_dbias_check(const char *function, const attn_broadcast *strides,
                              const attn_shape *shape);

/* One row of softmax.h's pairs; in place if p == s, ds == dp. lse may be NULL, and sink, when there
 * is no *sink_weight. The backward returns sum(dp ∘ p), which the sink's gradient needs. */
void attni_softmax_row_forward(real *p, real *lse, real *sink_weight, const real *s,
                               const real *sink, size_t n);
double attni_softmax_row_backward(real *ds, const real *dp, const real *p, size_t n);

/* o = p v; p is 0 where blocked */
void attni_values_band_forward(attni_matrix o, attni_operand p, attni_operand v,
                               const attni_band *band);
/* dp is overwritten, 0 where blocked, dv added to; either may be not wanted. */
void attni_values_band_backward(attni_matrix dp, attni_matrix dv, attni_operand d_o,
                                attni_operand p, attni_operand v, const attni_band *band);

#endif
