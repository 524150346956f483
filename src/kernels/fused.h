/*
 * fused.h (internal) - attention of one head without its (Lq,Lk) matrices, on one thread.
 *
 *     forward     S = scale · Q Kᵀ, masks, P = softmax(S), O = P V
 *                 tile by tile, keeping per row the maximum m of S and l = sum exp(S - m)
 *     backward    P = exp(S - m) / l         computed again, tile by tile
 *                 dP = dO Vᵀ                 D = rowsum(dO∘O)
 *                 dS = P∘(dP - D)
 *                 dV = Pᵀ dO    dQ = scale · dS K    dK = scale · dSᵀ Q
 *
 * Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et al.,
 * "FlashAttention" (2022).
 */
#ifndef ATTNI_KERNELS_FUSED_H
#define ATTNI_KERNELS_FUSED_H

#include "base/real.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Row t of a matrix starts at `at` + t · `stride`; the numbers of a row are contiguous. */
typedef struct attni_rows {
    const real *at;
    size_t stride;
} attni_rows;

typedef struct attni_rows_out {
    real *at;
    size_t stride;
} attni_rows_out;

/* Weight (i, j) is dropped iff word j mod 4 of Philox(seed, (j / 4, i, head, sample)) <= last. */
typedef struct attni_fused_dropout {
    bool on;
    uint32_t last; /* the last number below p·2³² */
    uint32_t head, sample;
    uint64_t seed;
    real factor; /* 1 / (1 - p) */
} attni_fused_dropout;

/* One head of one sample. */
typedef struct attni_fused_head {
    size_t len_q, len_k, d_head;
    real scale;
    attni_rows query, key, value;

    const uint8_t *padding; /* (Lk), non-zero = hidden from every query; NULL = none */
    const uint8_t
        *attend; /* pair (i, j) at i·attend_query + j·attend_key, 0 = blocked; NULL = none */
    size_t attend_query, attend_key;
    int64_t low, high; /* query i sees keys i + low <= j <= i + high; both within -Lq .. Lk, which
                          mean no lower and no upper bound */

    real softcap;     /* c: s becomes c·tanh(s/c); 0 = off */
    const real *bias; /* added to pair (i, j): at i·bias_query + j·bias_key; NULL = none */
    size_t bias_query, bias_key;
    real slope;    /* ALiBi: s becomes s - slope·(|i + place - j| - outside); 0 = off */
    int64_t place; /* of query 0 among the keys: not clamped as the bounds are */
    bool has_sink;
    real sink; /* one more logit of every row */
    attni_fused_dropout dropout;

    attni_rows_out context; /* O; read again in the backward */
    real *row_max,
        *row_sum; /* m, of the scores as they are here, and l, (Lq) each; -inf and 0 where no key is
                     visible. May be NULL in a forward that needs no backward. */
} attni_fused_head;

/* How far query i stands outside of the keys 0 .. Lk - 1, where that is left out of its distances:
 * see fused_terms.h. */
static inline double attni_fused_outside(const attni_fused_head *head, size_t i) {
    const double place = (double)i + (double)head->place, last = (double)head->len_k - 1;
    if (head->has_sink || head->len_k == 0)
        return 0;
    return place < 0 ? -place : place > last ? place - last : 0;
}

/* What the backward of a head reads and writes besides; a gradient not wanted has at == NULL. */
typedef struct attni_fused_grads {
    attni_rows dcontext;
    attni_rows_out dquery, dkey, dvalue;
    bool add_queries,
        add_keys;   /* whether dquery, and dkey and dvalue, are added to or overwritten */
    real *dbias;    /* added to, at the places of the head's bias; NULL = not wanted */
    double *dslope; /* added to; NULL = not wanted */
} attni_fused_grads;

/* A half-open range of tokens. */
typedef struct attni_range {
    size_t begin, end;
} attni_range;

#endif
