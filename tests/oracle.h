/*
 * oracle.h - attention as plain nested loops in double, to hold the library against. Written from
 * the equations alone; shares nothing with src/.
 */
#ifndef ORACLE_H
#define ORACLE_H

#include "test.h"

/* Results, contiguous: o, dq (B,H,Lq,d), dk, dv (B,Hkv,Lk,d), p (before dropout) and dbias
 * (B,H,Lq,Lk), lse (B,H,Lq), dsinks and dslopes (H). */
typedef struct oracle {
    attn_real *o, *dq, *dk, *dv, *p, *lse, *dbias, *dsinks, *dslopes;
} oracle;

static inline double oracle_offset(const attn_mask *mask, const attn_shape *s) {
    return mask->causal_align == ATTN_CAUSAL_BOTTOM_RIGHT ? (double)s->len_k - (double)s->len_q
           : mask->causal_align == ATTN_CAUSAL_TOP_LEFT   ? 0
                                                          : (double)mask->causal_offset;
}

static inline bool oracle_allows(const attn_mask *mask, const attn_shape *s, size_t b, size_t h,
                                 size_t i, size_t j) {
    if (mask->padding &&
        mask->padding[b * (mask->padding_stride ? mask->padding_stride : s->len_k) + j])
        return false;
    const attn_broadcast *a = &mask->attend_strides;
    if (mask->attend && !mask->attend[b * a->batch + h * a->head + i * a->query + j * a->key])
        return false;
    const attn_window *w = &mask->window;
    double place = (double)i + oracle_offset(mask, s);
    return (!mask->causal || (double)j <= place) &&
           (!w->left_on || (double)j >= place - (double)w->left) &&
           (!w->right_on || (double)j <= place + (double)w->right);
}

static inline size_t oracle_kv_heads(const attn_shape *s) {
    return s->num_kv_heads ? s->num_kv_heads : s->num_heads;
}

static inline size_t oracle_at(const attn_strides *s, size_t b, size_t h, size_t t) {
    return b * s->batch + h * s->head + t * s->token;
}

/* A slope of the standard ones: of 2^(-8 (h+1) / H), with every second one of twice as many heads
 * where H is no power of two. */
static inline double oracle_slope(size_t h, size_t num_heads) {
    size_t power = 1;
    while (2 * power <= num_heads)
        power *= 2;
    if (h >= power) {
        h = 2 * (h - power);
        power *= 2;
    }
    return pow(2, -8 * (double)(h + 1) / (double)power);
}

/* What dropout multiplies weight (b, h, i, j) by. */
static inline double oracle_keep(const attn_sdpa_config *config, const attn_sdpa_input *in,
                                 size_t b, size_t h, size_t i, size_t j) {
    if (config->dropout == 0)
        return 1;
    const uint32_t counter[4] = {(uint32_t)(j / 4), (uint32_t)i, (uint32_t)h, (uint32_t)b};
    uint32_t words[4];
    attn_philox4x32(words, counter, in->dropout_seed);
    return words[j % 4] >= config->dropout * 4294967296.0 ? 1 / (1 - config->dropout) : 0;
}

static inline double oracle_bias(const attn_sdpa_input *in, size_t b, size_t h, size_t i,
                                 size_t j) {
    const attn_broadcast *s = &in->bias_strides;
    return in->bias ? (double)in->bias[b * s->batch + h * s->head + i * s->query + j * s->key] : 0;
}

/* One query of one head, with room for 3·Lk numbers; dk, dv (Lk,d), dsink, dslope are added to. */
static inline void oracle_row(const attn_sdpa_config *config, const attn_sdpa_input *in,
                              const attn_real *d_o, size_t b, size_t h, size_t i, double *room,
                              oracle *out, double *dk, double *dv, double *dsink, double *dslope) {
    const attn_shape *s = &in->shape;
    const size_t d = s->d_head, row = (b * s->num_heads + h) * s->len_q + i;
    const size_t kv = h * oracle_kv_heads(s) / s->num_heads;
    const attn_real *q = in->query + oracle_at(&in->query_strides, b, h, i);
    const double scale = config->has_scale ? config->scale : 1 / sqrt((double)d);
    const double slope = !config->alibi     ? 0
                         : in->alibi_slopes ? (double)in->alibi_slopes[h]
                                            : oracle_slope(h, s->num_heads);
    double *p = room, *dp = p + s->len_k, *cap = dp + s->len_k;
    double max = in->sinks ? (double)in->sinks[h] : -INFINITY, sum = 0, row_sum = 0;
    for (size_t j = 0; j < s->len_k; j++) {
        const attn_real *k = in->key + oracle_at(&in->key_strides, b, kv, j);
        p[j] = -INFINITY;
        if (!oracle_allows(&in->mask, s, b, h, i, j) || oracle_bias(in, b, h, i, j) == -INFINITY)
            continue;
        p[j] = 0;
        for (size_t c = 0; c < d; c++)
            p[j] += (double)q[c] * (double)k[c];
        p[j] *= scale;
        cap[j] = 1;
        if (config->softcap > 0) {
            const double t = tanh(p[j] / config->softcap);
            cap[j] = 1 - t * t;
            p[j] = config->softcap * t;
        }
        p[j] += oracle_bias(in, b, h, i, j);
        p[j] -= slope * fabs((double)i + oracle_offset(&in->mask, s) - (double)j);
        max = p[j] > max || isnan(p[j]) ? p[j] : max;
    }
    const double infinite = -INFINITY;
    if (in->sinks)
        sum += exp((double)in->sinks[h] - max);
    for (size_t j = 0; j < s->len_k; j++)
        sum += p[j] == infinite ? 0 : exp(p[j] - max);
    out->lse[row] = (attn_real)(sum == 0 ? -INFINITY : max + log(sum));
    const double sink = in->sinks ? exp((double)in->sinks[h] - max) / sum : 0;
    for (size_t j = 0; j < s->len_k; j++) {
        if (p[j] == infinite) {
            p[j] = cap[j] = 0;
            dp[j] = -1; /* blocked */
        } else {
            p[j] = exp(p[j] - max) / sum;
            dp[j] = 1;
        }
        out->p[row * s->len_k + j] = (attn_real)p[j];
    }
    for (size_t c = 0; c < d; c++) {
        double o = 0;
        for (size_t j = 0; j < s->len_k; j++)
            if (dp[j] > 0)
                o += p[j] * oracle_keep(config, in, b, h, i, j) *
                     (double)in->value[oracle_at(&in->value_strides, b, kv, j) + c];
        out->o[row * d + c] = (attn_real)o;
    }
    for (size_t j = 0; j < s->len_k; j++) {
        if (dp[j] < 0) {
            out->dbias[row * s->len_k + j] = 0;
            p[j] = -1; /* blocked, from here on */
            continue;
        }
        const double keep = oracle_keep(config, in, b, h, i, j);
        dp[j] = 0;
        for (size_t c = 0; c < d; c++) {
            dp[j] +=
                (double)d_o[c] * (double)in->value[oracle_at(&in->value_strides, b, kv, j) + c];
            dv[j * d + c] += p[j] * keep * (double)d_o[c];
        }
        dp[j] = keep > 0 ? dp[j] * keep : 0;
        row_sum += dp[j] * p[j];
    }
    *dsink -= sink * row_sum;
    for (size_t j = 0; j < s->len_k; j++)
        if (!(p[j] < 0)) {
            const double du = p[j] * (dp[j] - row_sum);
            out->dbias[row * s->len_k + j] = (attn_real)du;
            *dslope -= du * fabs((double)i + oracle_offset(&in->mask, s) - (double)j);
        }
    for (size_t c = 0; c < d; c++) {
        double dq = 0;
        for (size_t j = 0; j < s->len_k; j++)
            if (!(p[j] < 0)) {
                double ds = p[j] * (dp[j] - row_sum) * cap[j];
                dq += scale * ds * (double)in->key[oracle_at(&in->key_strides, b, kv, j) + c];
                dk[j * d + c] += scale * ds * (double)q[c];
            }
        out->dq[row * d + c] = (attn_real)dq;
    }
}

/* Everything of one call that saves, for the upstream gradient d_o through d_o_strides. */
static inline oracle oracle_run(const attn_sdpa_config *config, const attn_sdpa_input *in,
                                const attn_real *d_o, attn_strides d_o_strides) {
    const attn_shape *s = &in->shape;
    const size_t heads = s->batch * s->num_heads, d = s->d_head, keys = s->len_k * d;
    const size_t kv_heads = oracle_kv_heads(s), group = s->num_heads / kv_heads;
    oracle out = {.o = test_poison(heads * s->len_q * d),
                  .dq = test_poison(heads * s->len_q * d),
                  .dk = test_poison(heads / group * keys),
                  .dv = test_poison(heads / group * keys),
                  .p = test_poison(heads * s->len_q * s->len_k),
                  .lse = test_poison(heads * s->len_q),
                  .dbias = test_poison(heads * s->len_q * s->len_k),
                  .dsinks = test_poison(s->num_heads),
                  .dslopes = test_poison(s->num_heads)};
    double *sums = calloc(2 * s->num_heads, sizeof *sums);
    double *room = malloc((3 * s->len_k + 2 * keys + 1) * sizeof *room);
    ck_assert(room && sums);
    double *dk = room + 3 * s->len_k, *dv = dk + keys;
    for (size_t b = 0; b < s->batch; b++)
        for (size_t h = 0; h < s->num_heads; h++) {
            if (h % group == 0)
                memset(dk, 0, 2 * keys * sizeof *dk);
            for (size_t i = 0; i < s->len_q; i++)
                oracle_row(config, in, d_o + oracle_at(&d_o_strides, b, h, i), b, h, i, room, &out,
                           dk, dv, sums + 2 * h, sums + 2 * h + 1);
            for (size_t n = 0; n < keys; n++) {
                out.dk[(b * kv_heads + h / group) * keys + n] = (attn_real)dk[n];
                out.dv[(b * kv_heads + h / group) * keys + n] = (attn_real)dv[n];
            }
        }
    for (size_t h = 0; h < s->num_heads; h++) {
        out.dsinks[h] = (attn_real)sums[2 * h];
        out.dslopes[h] = (attn_real)sums[2 * h + 1];
    }
    free(room);
    free(sums);
    return out;
}

static inline void oracle_free(oracle *out) {
    free(out->o);
    free(out->dq);
    free(out->dk);
    free(out->dv);
    free(out->p);
    free(out->lse);
    free(out->dbias);
    free(out->dsinks);
    free(out->dslopes);
}

#endif
