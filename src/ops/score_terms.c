#include <attn/score_terms.h>

#include "base/fail.h"
#include "ops/band_ops.h"
#include "ops/parallel.h"
#include "ops/strides.h"

#include <stdbool.h>
#include <string.h>
#include <tgmath.h>

/* The slopes of P heads, a power of two, run from 2^(-8/P) to 2^-8 by equal ratios. */
real attni_alibi_slope(size_t h, size_t num_heads) {
    size_t power = 1;
    while (power <= num_heads / 2)
        power *= 2;
    /* past P heads: numbers 0, 2, 4, ... of those of 2P */
    const double step =
        h < power ? (double)(h + 1) / (double)power : ((double)(h - power) + 0.5) / (double)power;
    return (real)exp2(-8 * step);
}

attn_status attn_alibi_slopes(attn_real *slopes, size_t num_heads) {
    if (!slopes && num_heads > 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_alibi_slopes: slopes is NULL");
    for (size_t h = 0; h < num_heads; h++)
        slopes[h] = attni_alibi_slope(h, num_heads);
    return ATTN_OK;
}

attn_status attni_softcap_check(const char *function, double softcap) {
    if (!(softcap >= 0) || !isfinite((real)softcap)) /* NaN too */
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: softcap %g is not finite and >= 0", function,
                          softcap);
    return ATTN_OK;
}

/* A cap below the smallest normal number makes every score 0, as that number does, but divides. */
real attni_softcap(double softcap) {
    return softcap > 0 ? (real)fmax(softcap, (double)REAL_MIN) : 0;
}

attn_status attni_bias_check(const char *function, const real *bias, const attn_broadcast *strides,
                             const attn_shape *shape) {
    if (bias && attni_places_wrap(strides, shape, sizeof(real)))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "%s: bias_strides (%zu, %zu, %zu, %zu): the last element's place wraps",
                          function, strides->batch, strides->head, strides->query, strides->key);
    return ATTN_OK;
}

attn_status attni_dbias_check(const char *function, const attn_broadcast *strides,
                              const attn_shape *shape) {
    attni_axis axes[4] = {{shape->len_k, strides->key},
                          {shape->len_q, strides->query},
                          {shape->num_heads, strides->head},
                          {shape->batch, strides->batch}};
    for (size_t n = 0; n < 4; n++)
        if (axes[n].stride == 0)
            axes[n].size = 1;
    if (attni_axes_overlap(axes, 4, 1))
        return attni_fail(ATTN_ERROR_SHAPE,
                          "%s: bias_strides (%zu, %zu, %zu, %zu): elements of the gradient overlap",
                          function, strides->batch, strides->head, strides->query, strides->key);
    return ATTN_OK;
}

/* |p - j|. Positions may be anything, so their difference is no integer's business. */
static real distance(const attni_head_terms *terms, size_t i, size_t j) {
    return (real)fabs(terms->place + (double)i - (double)j);
}

/* t_j = c tanh(s_j / c)
 * u_j = t_j + bias_ij - slope |p - j|      of every pair: blocked ones are filled in afterwards */
void attni_score_terms_row_forward(real *u, const real *s, const attni_head_terms *terms, size_t i,
                                   size_t n) {
    const real c = terms->softcap;
    const real *bias = terms->bias ? terms->bias + i * terms->bias_query : NULL;
    if (c == 0 && !bias && !terms->alibi) {
        memmove(u, s, n * sizeof(real));
        return;
    }
    for (size_t j = 0; j < n; j++) {
        real t = c > 0 ? c * tanh(s[j] / c) : s[j];
        if (bias)
            t += bias[j * terms->bias_key];
        if (terms->alibi)
            t -= terms->slope * distance(terms, i, j);
        u[j] = t;
    }
}

/* ds_j = du_j (1 - tanh²(s_j / c)) */
void attni_softcap_row_backward(real *ds, const real *du, const real *s, real c, size_t n) {
    for (size_t j = 0; j < n; j++) {
        const real t = tanh(s[j] / c);
        ds[j] = du[j] * (1 - t * t);
    }
}

/* dslope = -sum_j du_j |p - j| */
double attni_alibi_row_backward(const real *du, const attni_head_terms *terms, size_t i, size_t n) {
    double sum = 0;
    for (size_t j = 0; j < n; j++)
        sum -= (double)du[j] * (double)distance(terms, i, j);
    return sum;
}

static size_t length_of(const size_t *offsets, size_t b, size_t len) {
    return offsets ? offsets[b + 1] - offsets[b] : len;
}

/* Reals before sample b. */
static size_t pairs_before(const attni_pairs *pairs, size_t b) {
    const attn_shape *s = &pairs->shape;
    size_t count = 0;
    if (!pairs->offsets_q)
        return b * s->num_heads * s->len_q * s->len_k;
    for (size_t n = 0; n < b; n++)
        count +=
            s->num_heads * length_of(pairs->offsets_q, n, 0) * length_of(pairs->offsets_k, n, 0);
    return count;
}

enum { COLUMNS = 64 };

/* The pairs that a row of dbias sums up: COLUMNS of its keys, from `begin`. */
typedef struct bias_part {
    size_t b, end_b, h, end_h, i, end_i, begin, columns;
} bias_part;

static void sum_pairs(double *sum, const attni_pairs *du, const attni_mask *mask,
                      const bias_part *part) {
    const real *sample = du->at + pairs_before(du, part->b);
    for (size_t b = part->b; b < part->end_b; b++) {
        const size_t len_q = length_of(du->offsets_q, b, du->shape.len_q);
        const size_t len_k = length_of(du->offsets_k, b, du->shape.len_k);
        const size_t columns = size_min(part->columns, len_k - size_min(len_k, part->begin));
        for (size_t h = part->h; columns > 0 && h < part->end_h; h++)
            for (size_t i = part->i; i < size_min(part->end_i, len_q); i++) {
                const real *row = sample + (h * len_q + i) * len_k + part->begin;
                for (size_t j = 0; j < columns; j++)
                    if (!mask || mask_allows(mask, b, h, i, part->begin + j, len_k))
                        sum[j] += (double)row[j];
            }
        sample += du->shape.num_heads * len_q * len_k;
    }
}

static void bias_row_backward(real *dbias, const attn_broadcast *strides, const attni_pairs *du,
                              const attni_mask *mask, size_t b, size_t h, size_t i) {
    const attn_shape *s = &du->shape;
    double total = 0;
    bias_part part = {.b = b,
                      .end_b = strides->batch ? b + 1 : s->batch,
                      .h = h,
                      .end_h = strides->head ? h + 1 : s->num_heads,
                      .i = i,
                      .end_i = strides->query ? i + 1 : s->len_q};
    dbias += broadcast_row(strides, b, h, i);
    for (; part.begin < s->len_k; part.begin += COLUMNS) {
        double sum[COLUMNS] = {0};
        part.columns = size_min(COLUMNS, s->len_k - part.begin);
        sum_pairs(sum, du, mask, &part);
        for (size_t j = 0; j < part.columns; j++) {
            total += sum[j];
            if (strides->key)
                dbias[(part.begin + j) * strides->key] = (real)sum[j];
        }
    }
    if (!strides->key)
        *dbias = (real)total;
}

/* dbias = sum of du over the dimensions whose stride is 0, always in the same order. */
void attni_bias_backward(real *dbias, const attn_broadcast *strides, const attni_pairs *du,
                         const attni_mask *mask, size_t max_threads) {
    const attn_shape *s = &du->shape;
    const size_t batch = strides->batch ? s->batch : 1;
    const size_t heads = strides->head ? s->num_heads : 1;
    const size_t len_q = strides->query ? s->len_q : 1;
    const size_t rows = batch * heads * len_q;
    const int threads = threads_for(max_threads, rows, s->len_k);
    (void)threads; /* without OpenMP */
#pragma omp parallel for schedule(static) num_threads(threads)
    for (size_t row = 0; row < rows; row++)
        bias_row_backward(dbias, strides, du, mask, row / len_q / heads, row / len_q % heads,
                          row % len_q);
}

static attn_status check_call(const char *function, attni_mask *resolved,
                              const attn_score_terms *terms, const attn_mask *mask,
                              const attn_shape *shape) {
    ATTNI_TRY(attni_pairs_check(function, shape));
    if (!terms)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: terms is NULL", function);
    ATTNI_TRY(attni_softcap_check(function, terms->softcap));
    ATTNI_TRY(attni_bias_check(function, terms->bias, &terms->bias_strides, shape));
    ATTNI_TRY(attni_mask_resolve(resolved, mask, shape));
    resolved->bias = terms->bias;
    resolved->bias_strides = terms->bias_strides;
    return ATTN_OK;
}

static attni_head_terms terms_of(const attn_score_terms *terms, const attni_mask *mask, size_t b,
                                 size_t h) {
    const attn_broadcast *s = &terms->bias_strides;
    return (attni_head_terms){.softcap = attni_softcap(terms->softcap),
                              .bias = terms->bias ? terms->bias + broadcast_row(s, b, h, 0) : NULL,
                              .bias_query = s->query,
                              .bias_key = s->key,
                              .alibi = terms->alibi_slopes != NULL,
                              .slope = terms->alibi_slopes ? terms->alibi_slopes[h] : 0,
                              .place = (double)mask->offset};
}

attn_status attn_score_terms_forward(attn_real *out, const attn_real *scores,
                                     const attn_score_terms *terms, const attn_mask *mask,
                                     const attn_shape *shape) {
    attni_mask resolved;
    ATTNI_TRY(check_call("attn_score_terms_forward", &resolved, terms, mask, shape));
    const size_t heads = shape->batch * shape->num_heads;
    const size_t len_q = shape->len_q, len_k = shape->len_k;
    if (heads * len_q * len_k == 0)
        return ATTN_OK;
    if (!out || !scores)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_score_terms_forward: %s is NULL",
                          out ? "scores" : "out");
#pragma omp parallel for schedule(dynamic) num_threads(threads_for(0, heads, 8 * len_q * len_k))
    for (size_t head = 0; head < heads; head++) {
        const attni_head_terms of_head =
            terms_of(terms, &resolved, head / shape->num_heads, head % shape->num_heads);
        for (size_t i = 0; i < len_q; i += BAND_ROWS) {
            const attni_band band = band_at(&resolved, shape, head, i);
            const size_t first = (head * len_q + i) * len_k;
            for (size_t r = 0; r < band.rows; r++)
                attni_score_terms_row_forward(out + first + r * len_k, scores + first + r * len_k,
                                              &of_head, i + r, band.keys);
            attni_band_fill_blocked(&band, out + first, len_k, (real)-INFINITY);
            attni_band_fill_beyond(&band, out + first, len_k, (real)-INFINITY);
        }
    }
    return ATTN_OK;
}

/* Blocked pairs are skipped: what is there may be NaN. */
static void slope_backward(real *dslope, const real *du, const attn_score_terms *terms,
                           const attni_mask *mask, const attn_shape *shape, size_t h) {
    double sum = 0;
    for (size_t b = 0; b < shape->batch; b++) {
        const attni_head_terms of_head = terms_of(terms, mask, b, h);
        for (size_t i = 0; i < shape->len_q; i++)
            for (size_t j = 0; j < shape->len_k; j++) {
                const size_t row = (b * shape->num_heads + h) * shape->len_q + i;
                if (mask_allows(mask, b, h, i, j, shape->len_k))
                    sum -= (double)du[row * shape->len_k + j] * (double)distance(&of_head, i, j);
            }
    }
    *dslope = (real)sum;
}

attn_status attn_score_terms_backward(attn_real *dscores, attn_real *dbias, attn_real *dslopes,
                                      const attn_real *dout, const attn_real *scores,
                                      const attn_score_terms *terms, const attn_mask *mask,
                                      const attn_shape *shape) {
    attni_mask resolved;
    ATTNI_TRY(check_call("attn_score_terms_backward", &resolved, terms, mask, shape));
    const size_t heads = shape->batch * shape->num_heads;
    const size_t len_q = shape->len_q, len_k = shape->len_k;
    const bool has_pairs = heads * len_q * len_k > 0;
    if (has_pairs && (!dout || (!scores && dscores && terms->softcap > 0)))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_score_terms_backward: %s is NULL",
                          dout ? "scores" : "dout");
    if ((dbias && !terms->bias) || (dslopes && !terms->alibi_slopes))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_score_terms_backward: %s, but there is no %s",
                          dbias && !terms->bias ? "dbias" : "dslopes",
                          dbias && !terms->bias ? "bias" : "slope");
    if (dbias) {
        ATTNI_TRY(attni_dbias_check("attn_score_terms_backward", &terms->bias_strides, shape));
        attni_bias_backward(dbias, &terms->bias_strides,
                            &(attni_pairs){.at = dout, .shape = *shape}, &resolved, 0);
    }
    if (dslopes) {
#pragma omp parallel for schedule(static) \
    num_threads(threads_for(0, shape->num_heads, shape->batch *len_q *len_k))
        for (size_t h = 0; h < shape->num_heads; h++)
            slope_backward(dslopes + h, dout, terms, &resolved, shape, h);
    }
    if (!dscores || !has_pairs)
        return ATTN_OK;
    const real c = attni_softcap(terms->softcap);
#pragma omp parallel for schedule(dynamic) num_threads(threads_for(0, heads, 8 * len_q * len_k))
    for (size_t head = 0; head < heads; head++)
        for (size_t i = 0; i < len_q; i += BAND_ROWS) {
            const attni_band band = band_at(&resolved, shape, head, i);
            const size_t first = (head * len_q + i) * len_k, count = band.rows * len_k;
            real *ds = dscores + first;
            if (c > 0)
                attni_softcap_row_backward(ds, dout + first, scores + first, c, count);
            else
                memmove(ds, dout + first, count * sizeof(real));
            attni_band_fill_blocked(&band, ds, len_k, 0);
            attni_band_fill_beyond(&band, ds, len_k, 0);
        }
    return ATTN_OK;
}
