/*
 * band.h (internal) - attention is computed a band at a time: a few queries of one head against all
 * the keys they may see.
 *
 *              0          keys      Lk
 *        begin | S or P    |  blocked |     A band's scores fit into a core's cache, and a causal
 *     + rows   |           |          |     band does no work to the right of its last query's key.
 *
 * Arrays of the head (q, k, v, o and their gradients) are given whole, from their row 0; score-like
 * arrays (s, p, ds, dp) are the band's, from its first query, and only columns below `keys` are
 * read or written.
 */
#ifndef ATTNI_BAND_H
#define ATTNI_BAND_H

#include "base/size.h"
#include "ops/mask.h"

enum { BAND_ROWS = 128 };

typedef struct attni_band {
    const attni_mask *mask;
    size_t b, h;        /* the head */
    size_t begin, rows; /* its queries begin .. begin + rows */
    size_t len_k;
    size_t keys; /* keys at or past this are hidden from all of them by position */
    size_t d_head;
} attni_band;

/* The band of head `head` = b·H + h that starts at query `begin`. */
static inline attni_band band_at(const attni_mask *mask, const attn_shape *shape, size_t head,
                                 size_t begin) {
    size_t rows = size_min(BAND_ROWS, shape->len_q - begin);
    return (attni_band){.mask = mask,
                        .b = head / shape->num_heads,
                        .h = head % shape->num_heads,
                        .begin = begin,
                        .rows = rows,
                        .len_k = shape->len_k,
                        .keys = mask_key_end(mask, begin + rows - 1, shape->len_k),
                        .d_head = shape->d_head};
}

static inline bool band_allows(const attni_band *band, size_t row, size_t key) {
    return mask_allows(band->mask, band->b, band->h, band->begin + row, key, band->len_k);
}

/* x (rows, keys), rows `stride` apart: x_ij = value wherever (i,j) is blocked. */
void attni_band_fill_blocked(const attni_band *band, real *x, size_t stride, real value);

/* The same for the columns from `keys` to len_k, for arrays that are returned. */
void attni_band_fill_beyond(const attni_band *band, real *x, size_t stride, real value);

/* Whether x is 0 wherever (i,j) is blocked. */
bool attni_band_blocked_is_zero(const attni_band *band, const real *x, size_t stride);

#endif
