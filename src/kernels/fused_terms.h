/*
 * fused_terms.h (internal) - what is done to the scores of one tile before its masks
 * (attn/score_terms.h).
 *
 *     forward     t = tanh(s/c)                          with softcap
 *                 u = c·t + bias - slope·|p - j|         p = i + place
 *
 *     backward    dbias += dU,  dslope -= sum of dU·|p - j|,  dS = dU·(1 - t²)
 *
 * ALiBi takes p from the nearest key where it lies outside of them. That takes one number, how far
 * outside it is, from every |p - j| of a row: P is as it was, and however far the keys are a float
 * still tells their distances apart. The row's maximum m is higher by slope times that number. A
 * sink is no key and would have to be raised as well; beside one nothing is left out.
 */
#ifndef ATTNI_KERNELS_FUSED_TERMS_H
#define ATTNI_KERNELS_FUSED_TERMS_H

#include "kernels/fused_tile.h"
#include "kernels/vtanh.h"

static inline bool head_has_terms(const attni_fused_head *head) {
    return head->softcap > 0 || head->bias || head->slope != 0;
}

/* S = c·tanh(S/c); factors, or NULL, = 1 - tanh². */
static inline void tile_softcap(real *scores, real *factors, const tile *t, real cap) {
    const vreal c = vsplat(cap), inverse = vsplat(1 / cap);
    for (size_t v = 0; v < t->vectors; v++)
        for (size_t j = t->first[v]; j < t->limit[v]; j++) {
            const size_t at = j * QUERY_TILE + v * VLEN;
            const vreal x = vtanh(vload(scores + at) * inverse);
            vstore(scores + at, c * x);
            if (factors)
                vstore(factors + at, vsplat(1) - x * x);
        }
}

/* p of query 0, where more than Lq before the first key or Lk behind it makes no difference. */
static inline int64_t alibi_place(const attni_fused_head *head) {
    const int64_t low = -(int64_t)head->len_q, high = (int64_t)head->len_k;
    return head->place < low ? low : head->place > high ? high : head->place;
}

/* Places of the queries of vector v among the tile's keys. */
VINLINE vreal alibi_places(const tile *t, const attni_fused_head *head, size_t v) {
    const size_t query = t->query + v * VLEN;
    if (head->has_sink)
        return vsplat((real)((double)query + (double)head->place - (double)t->key)) + vlane();
    const int64_t first = (int64_t)query + alibi_place(head) - (int64_t)t->key;
    const vreal low = vsplat((real) - (int64_t)t->key);
    const vreal high = vsplat((real)((int64_t)(head->len_k - 1) - (int64_t)t->key));
    const vreal place = vsplat((real)first) + vlane();
    return -vmax(-vmax(place, low), -high);
}

/* S -= slope · |p - j| */
static inline void tile_alibi(real *scores, const tile *t, const attni_fused_head *head) {
    const vreal slope = vsplat(head->slope);
    for (size_t v = 0; v < t->vectors; v++) {
        const vreal place = alibi_places(t, head, v);
        real *s = scores + v * VLEN;
        for (size_t j = t->first[v]; j < t->limit[v]; j++) {
            const vreal distance = vabs(place - vsplat((real)j));
            vstore(s + j * QUERY_TILE, vload(s + j * QUERY_TILE) - slope * distance);
        }
    }
}

/* sum of dU·|p - j| */
static inline double tile_distances(const real *dscores, const tile *t,
                                    const attni_fused_head *head) {
    double total = 0;
    for (size_t v = 0; v < t->vectors; v++) {
        const vreal place = alibi_places(t, head, v);
        const real *ds = dscores + v * VLEN;
        vreal sum = vzero();
        for (size_t j = t->first[v]; j < t->limit[v]; j++)
            sum += vload(ds + j * QUERY_TILE) * vabs(place - vsplat((real)j));
        total += (double)vsum(sum);
    }
    return total;
}

/* How a bias lies in memory decides how a tile of it is read, with queries in the lanes:
 *
 *     queries contiguous or all one    vectors of queries, key by key
 *     else                             vectors of keys, query by query, transposed
 */
static inline bool bias_by_keys(const attni_fused_head *head) {
    return head->bias_query <= 1;
}

/* n <= VLEN numbers at p, step apart, zeros behind them. */
VINLINE vreal bias_load(const real *p, size_t step, size_t n) {
    if (step == 1 && n >= VLEN)
        return vload(p);
    real lane[VLEN] = {0};
    for (size_t i = 0; i < n && i < VLEN; i++)
        lane[i] = p[i * step];
    return vload(lane);
}

VINLINE void bias_add(real *p, size_t step, size_t n, vreal x) {
    if (step == 1 && n >= VLEN) {
        vstore(p, vload(p) + x);
        return;
    }
    for (size_t i = 0; i < n && i < VLEN; i++)
        p[i * step] += x[i];
}

/* u = s + bias; -inf blocks whatever s is. */
VINLINE void bias_into_score(real *s, vreal bias) {
    const vreal blocked = vsplat(-(real)INFINITY);
    vstore(s, vselect(vequal(bias, blocked), blocked, vload(s) + bias));
}

static inline void tile_bias_by_keys(real *scores, const tile *t, const attni_fused_head *head,
                                     const real *bias) {
    for (size_t v = 0; v < t->vectors; v++) {
        const size_t n = t->num_queries - v * VLEN;
        const real *b = bias + v * VLEN * head->bias_query + t->first[v] * head->bias_key;
        for (size_t j = t->first[v]; j < t->limit[v]; j++, b += head->bias_key)
            bias_into_score(scores + j * QUERY_TILE + v * VLEN,
                            head->bias_query ? bias_load(b, 1, n) : vbroadcast(b));
    }
}

/* VLEN queries of vector v by VLEN keys from row `row` on. */
static inline void tile_bias_by_queries(real *scores, const tile *t, const attni_fused_head *head,
                                        const real *bias) {
    for (size_t v = 0; v < t->vectors; v++)
        for (size_t row = t->first[v] / VLEN * VLEN; row < t->limit[v]; row += VLEN) {
            const size_t queries = t->num_queries - v * VLEN, keys = t->num_keys - row;
            const real *b = bias + v * VLEN * head->bias_query + row * head->bias_key;
            real *s = scores + row * QUERY_TILE + v * VLEN;
            vreal block[VLEN];
            for (size_t i = 0; i < VLEN; i++, b += head->bias_query)
                block[i] = i >= queries          ? vzero()
                           : head->bias_key == 0 ? vbroadcast(b)
                                                 : bias_load(b, head->bias_key, keys);
            vtranspose(block);
            for (size_t j = 0; j < VLEN && j < keys; j++, s += QUERY_TILE)
                bias_into_score(s, block[j]);
        }
}

/* A bias without keys, (Lq,1): dU summed over the keys. */
static inline void tile_dbias_of_queries(const real *dscores, const tile *t,
                                         const attni_fused_head *head, real *dbias) {
    vreal all = vzero();
    for (size_t v = 0; v < t->vectors; v++) {
        vreal sum = vzero();
        for (size_t j = t->first[v]; j < t->limit[v]; j++)
            sum += vload(dscores + j * QUERY_TILE + v * VLEN);
        if (head->bias_query)
            bias_add(dbias + v * VLEN * head->bias_query, head->bias_query,
                     t->num_queries - v * VLEN, sum);
        all += sum;
    }
    if (head->bias_query == 0)
        *dbias += vsum(all);
}

/* A bias without queries, (1,Lk): dU summed over the queries, VLEN keys at a time. */
static inline void tile_dbias_of_keys(const real *dscores, const tile *t,
                                      const attni_fused_head *head, real *dbias) {
    for (size_t row = 0; row < t->num_keys; row += VLEN) {
        vreal block[VLEN], sum = vzero();
        for (size_t j = 0; j < VLEN; j++) {
            block[j] = vzero();
            for (size_t v = 0; v < t->vectors; v++)
                if (row + j >= t->first[v] && row + j < t->limit[v])
                    block[j] += vload(dscores + (row + j) * QUERY_TILE + v * VLEN);
        }
        vtranspose(block);
        for (size_t i = 0; i < VLEN; i++)
            sum += block[i];
        bias_add(dbias + row * head->bias_key, head->bias_key, t->num_keys - row, sum);
    }
}

static inline void tile_dbias_by_keys(const real *dscores, const tile *t,
                                      const attni_fused_head *head, real *dbias) {
    for (size_t v = 0; v < t->vectors; v++)
        for (size_t j = t->first[v]; j < t->limit[v]; j++)
            bias_add(dbias + j * head->bias_key + v * VLEN, 1, t->num_queries - v * VLEN,
                     vload(dscores + j * QUERY_TILE + v * VLEN));
}

static inline void tile_dbias_by_queries(const real *dscores, const tile *t,
                                         const attni_fused_head *head, real *dbias) {
    for (size_t v = 0; v < t->vectors; v++)
        for (size_t row = t->first[v] / VLEN * VLEN; row < t->limit[v]; row += VLEN) {
            const size_t queries = t->num_queries - v * VLEN, keys = t->limit[v] - row;
            real *db = dbias + v * VLEN * head->bias_query + row * head->bias_key;
            vreal block[VLEN];
            for (size_t j = 0; j < VLEN; j++) /* what lies beyond the limits may be anything */
                block[j] = row + j >= t->first[v] && j < keys
                               ? vload(dscores + (row + j) * QUERY_TILE + v * VLEN)
                               : vzero();
            vtranspose(block);
            for (size_t i = 0; i < VLEN && i < queries; i++, db += head->bias_query)
                bias_add(db, head->bias_key, keys, block[i]);
        }
}

static inline size_t bias_place(const tile *t, const attni_fused_head *head) {
    return t->query * head->bias_query + t->key * head->bias_key;
}

static inline void tile_dbias(const real *dscores, const tile *t, const attni_fused_head *head,
                              real *dbias) {
    dbias += bias_place(t, head);
    if (head->bias_key == 0)
        tile_dbias_of_queries(dscores, t, head, dbias);
    else if (head->bias_query == 0)
        tile_dbias_of_keys(dscores, t, head, dbias);
    else if (bias_by_keys(head))
        tile_dbias_by_keys(dscores, t, head, dbias);
    else
        tile_dbias_by_queries(dscores, t, head, dbias);
}

/* S becomes U within the limits. factors: room for what the backward needs of the softcap, or NULL.
 */
static inline void tile_terms(real *scores, real *factors, const tile *t,
                              const attni_fused_head *head) {
    if (head->softcap > 0)
        tile_softcap(scores, factors, t, head->softcap);
    if (head->bias && bias_by_keys(head))
        tile_bias_by_keys(scores, t, head, head->bias + bias_place(t, head));
    else if (head->bias)
        tile_bias_by_queries(scores, t, head, head->bias + bias_place(t, head));
    if (head->slope != 0)
        tile_alibi(scores, t, head);
}

/* Lanes without a query hold anything, and the sums over queries must not. */
static inline void clear_empty_lanes(real *dscores, const tile *t) {
    const size_t last = t->vectors - 1, n = t->num_queries - last * VLEN;
    if (n == VLEN)
        return;
    const vmask empty = vless(vsplat((real)n - (real)0.5), vlane());
    for (size_t j = t->first[last]; j < t->limit[last]; j++) {
        real *ds = dscores + j * QUERY_TILE + last * VLEN;
        vstore(ds, vselect(empty, vzero(), vload(ds)));
    }
}

/* dU becomes dS, its share of the other gradients added to them. A pair with dU = 0 may be blocked,
 * and its factor NaN. */
static inline void tile_terms_backward(real *dscores, const real *factors, const tile *t,
                                       const attni_fused_head *head,
                                       const attni_fused_grads *grads) {
    clear_empty_lanes(dscores, t);
    if (grads->dbias)
        tile_dbias(dscores, t, head, grads->dbias);
    if (grads->dslope)
        *grads->dslope -= tile_distances(dscores, t, head);
    for (size_t v = 0; v < t->vectors && head->softcap > 0; v++)
        for (size_t j = t->first[v]; j < t->limit[v]; j++) {
            const size_t at = j * QUERY_TILE + v * VLEN;
            const vreal ds = vload(dscores + at);
            vstore(dscores + at, vselect(vequal(ds, vzero()), vzero(), ds * vload(factors + at)));
        }
}

#endif
