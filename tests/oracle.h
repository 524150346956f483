/*
 * oracle.h - attention as plain nested loops in double, to hold the library against. Written from
 * the equations alone; shares nothing with src/.
 */
#ifndef ORACLE_H
#define ORACLE_H

#include "test.h"

/* Results, contiguous: o, dq (B,H,Lq,d), dk, dv (B,Hkv,Lk,d), p (B,H,Lq,Lk), lse (B,H,Lq). */
typedef struct oracle {
    attn_real *o, *dq, *dk, *dv, *p, *lse;
} oracle;

static inline bool oracle_allows(const attn_mask *mask, const attn_shape *s, size_t b, size_t h,
                                 size_t i, size_t j) {
    if (mask->padding &&
        mask->padding[b * (mask->padding_stride ? mask->padding_stride : s->len_k) + j])
        return false;
    const attn_broadcast *a = &mask->attend_strides;
    if (mask->attend && !mask->attend[b * a->batch + h * a->head + i * a->query + j * a->key])
        return false;
    double offset = mask->causal_align == ATTN_CAUSAL_BOTTOM_RIGHT
                        ? (double)s->len_k - (double)s->len_q
                    : mask->causal_align == ATTN_CAUSAL_TOP_LEFT ? 0
                                                                 : (double)mask->causal_offset;
    const attn_window *w = &mask->window;
    double place = (double)i + offset;
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

/* One query of one head; `p` and `dp` are room for Lk numbers, dk and dv (Lk,d) are added to. */
static inline void oracle_row(const attn_sdpa_input *in, double scale, const attn_real *d_o,
                              size_t b, size_t h, size_t i, double *p, double *dp, oracle *out,
                              double *dk, double *dv) {
    const attn_shape *s = &in->shape;
    const size_t d = s->d_head, row = (b * s->num_heads + h) * s->len_q + i;
    const size_t kv = h * oracle_kv_heads(s) / s->num_heads;
    const attn_real *q = in->query + oracle_at(&in->query_strides, b, h, i);
    double max = -INFINITY, sum = 0, row_sum = 0;
    for (size_t j = 0; j < s->len_k; j++) {
        const attn_real *k = in->key + oracle_at(&in->key_strides, b, kv, j);
        p[j] = -INFINITY;
        if (!oracle_allows(&in->mask, s, b, h, i, j))
            continue;
        p[j] = 0;
        for (size_t c = 0; c < d; c++)
            p[j] += (double)q[c] * (double)k[c];
        p[j] *= scale;
        max = p[j] > max || isnan(p[j]) ? p[j] : max;
    }
    for (size_t j = 0; j < s->len_k; j++)
        if (oracle_allows(&in->mask, s, b, h, i, j))
            sum += exp(p[j] - max);
    out->lse[row] = (attn_real)(sum == 0 ? -INFINITY : max + log(sum));
    for (size_t j = 0; j < s->len_k; j++) {
        p[j] = oracle_allows(&in->mask, s, b, h, i, j) ? exp(p[j] - max) / sum : 0;
        out->p[row * s->len_k + j] = (attn_real)p[j];
    }
    for (size_t c = 0; c < d; c++) {
        double o = 0;
        for (size_t j = 0; j < s->len_k; j++)
            if (oracle_allows(&in->mask, s, b, h, i, j))
                o += p[j] * (double)in->value[oracle_at(&in->value_strides, b, kv, j) + c];
        out->o[row * d + c] = (attn_real)o;
    }
    for (size_t j = 0; j < s->len_k; j++) {
        dp[j] = 0;
        if (!oracle_allows(&in->mask, s, b, h, i, j))
            continue;
        for (size_t c = 0; c < d; c++) {
            dp[j] +=
                (double)d_o[c] * (double)in->value[oracle_at(&in->value_strides, b, kv, j) + c];
            dv[j * d + c] += p[j] * (double)d_o[c];
        }
        row_sum += dp[j] * p[j];
    }
    for (size_t c = 0; c < d; c++) {
        double dq = 0;
        for (size_t j = 0; j < s->len_k; j++)
            if (oracle_allows(&in->mask, s, b, h, i, j)) {
                double ds = p[j] * (dp[j] - row_sum);
                dq += scale * ds * (double)in->key[oracle_at(&in->key_strides, b, kv, j) + c];
                dk[j * d + c] += scale * ds * (double)q[c];
            }
        out->dq[row * d + c] = (attn_real)dq;
    }
}

/* Everything of one call, for the upstream gradient d_o through d_o_strides. */
static inline oracle oracle_run(const attn_sdpa_input *in, double scale, const attn_real *d_o,
                                attn_strides d_o_strides) {
    const attn_shape *s = &in->shape;
    const size_t heads = s->batch * s->num_heads, d = s->d_head, keys = s->len_k * d;
    const size_t kv_heads = oracle_kv_heads(s), group = s->num_heads / kv_heads;
    oracle out = {.o = test_poison(heads * s->len_q * d),
                  .dq = test_poison(heads * s->len_q * d),
                  .dk = test_poison(heads / group * keys),
                  .dv = test_poison(heads / group * keys),
                  .p = test_poison(heads * s->len_q * s->len_k),
                  .lse = test_poison(heads * s->len_q)};
    double *room = malloc((2 * s->len_k + 2 * keys + 1) * sizeof *room);
    ck_assert_ptr_nonnull(room);
    double *p = room, *dp = p + s->len_k, *dk = dp + s->len_k, *dv = dk + keys;
    for (size_t b = 0; b < s->batch; b++)
        for (size_t h = 0; h < s->num_heads; h++) {
            if (h % group == 0)
                memset(dk, 0, 2 * keys * sizeof *dk);
            for (size_t i = 0; i < s->len_q; i++)
                oracle_row(in, scale, d_o + oracle_at(&d_o_strides, b, h, i), b, h, i, p, dp, &out,
                           dk, dv);
            for (size_t n = 0; n < keys; n++) {
                out.dk[(b * kv_heads + h / group) * keys + n] = (attn_real)dk[n];
                out.dv[(b * kv_heads + h / group) * keys + n] = (attn_real)dv[n];
            }
        }
    free(room);
    return out;
}

static inline void oracle_free(oracle *out) {
    free(out->o);
    free(out->dq);
    free(out->dk);
    free(out->dv);
    free(out->p);
    free(out->lse);
}

#endif
