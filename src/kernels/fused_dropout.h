/*
 * fused_dropout.h (internal) - dropout on the weights of one tile (attn/dropout.h).
 *
 *     forward     O = 1/(1-p) · (keep∘P) V               the softmax sums the undropped P
 *     backward    dV = 1/(1-p) · (keep∘P)ᵀ dO
 *                 dP = 1/(1-p) · keep∘(dO Vᵀ)            D = rowsum(dO∘O) = rowsum(dP∘P) as ever
 *                 dS = P∘(dP - D), which is -P∘D where a weight was dropped
 *
 * The factor is applied to whole rows: to O at the end, and to dO when it is packed.
 */
#ifndef ATTNI_KERNELS_FUSED_DROPOUT_H
#define ATTNI_KERNELS_FUSED_DROPOUT_H

#include "kernels/fused_tile.h"
#include "kernels/vphilox.h"

/* 1/(1-p) */
static inline real dropout_factor(const attni_fused_head *head) {
    return head->dropout.on ? head->dropout.factor : 1;
}

/* Rows of one block of words, in one vector of queries. A pair that is blocked has E = 0, and D may
 * be NaN there. */
VINLINE void drop_row(vmask keep, real *weights, real *dscores, vreal delta) {
    const vreal weight = vload(weights);
    vstore(weights, vselect(keep, weight, vzero()));
    if (!dscores)
        return;
    const vreal lost = vselect(vequal(weight, vzero()), vzero(), -weight * delta);
    vstore(dscores, vselect(keep, vload(dscores), lost));
}

VINLINE void drop_columns(const tile *t, const attni_fused_dropout *dropout,
                          const philox_head *philox, size_t v, real *weights, real *dscores,
                          vreal delta) {
    const vuint last = (vuint){0} + dropout->last;
    const size_t begin = t->key + t->first[v], end = t->key + t->limit[v];
    vwide count[PHILOX_HALVES];
    philox_queries queries[PHILOX_HALVES];
    philox_count(count, t->query + v * VLEN);
    VEACH (half, PHILOX_HALVES)
        queries[half] = philox_for_queries(philox, count[half]);
    for (size_t key = begin / 4 * 4; key < end; key += 4) {
        vwide words[PHILOX_HALVES][4];
        const philox_keys keys = philox_for_keys(philox, (uint32_t)(key / 4));
        philox_words(PHILOX_HALVES, words, philox, &keys, queries);
        VEACH (word, 4) {
            if (key + (size_t)word < begin || key + (size_t)word >= end)
                continue;
            const size_t row = key + (size_t)word - t->key;
            const size_t at = row * QUERY_TILE + v * VLEN;
            drop_row(vabove(philox_join(words, word), last), weights + at,
                     dscores ? dscores + at : NULL, delta);
        }
    }
}

/* Forward: E becomes keep∘E. */
static inline void tile_drop(const tile *t, const attni_fused_dropout *dropout, real *weights) {
    const philox_head philox = philox_for_head(dropout->seed, dropout->head, dropout->sample);
    for (size_t v = 0; v < t->vectors; v++)
        drop_columns(t, dropout, &philox, v, weights, NULL, vzero());
}

/* Backward: the same, and dS of the dropped weights. delta: D of the tile's queries. */
static inline void tile_drop_backward(const tile *t, const attni_fused_dropout *dropout,
                                      real *weights, real *dscores, const real *delta) {
    const philox_head philox = philox_for_head(dropout->seed, dropout->head, dropout->sample);
    for (size_t v = 0; v < t->vectors; v++)
        drop_columns(t, dropout, &philox, v, weights, dscores, vload(delta + v * VLEN));
}

#endif
