/*
 * mha_oracle.h - the layer written a second time, in double, one number at a time: no matrix
 * products, no arena, no shared code. What the layer must agree with.
 */
#ifndef MHA_ORACLE_H
#define MHA_ORACLE_H

#include "mha_fixture.h"

/* Results laid out like the arrays of mha_run; dtheta like the parameter block. */
typedef struct mha_oracle {
    attn_real *y, *weights, *lse, *dtheta, *dx_q, *dx_k, *dx_v, *dbias;
} mha_oracle;

static inline long long oracle_place(const mha_run *run, size_t i) {
    const attn_mask *m = &run->in.mask;
    return (long long)i + (m->causal_align == ATTN_CAUSAL_TOP_LEFT ? 0
                           : m->causal_align == ATTN_CAUSAL_OFFSET
                               ? (long long)m->causal_offset
                               : (long long)run->len_k - (long long)run->in.len_q);
}

static inline size_t oracle_broadcast(const attn_broadcast *s, size_t b, size_t h, size_t i,
                                      size_t j) {
    return b * s->batch + h * s->head + i * s->query + j * s->key;
}

static inline double oracle_bias(const mha_run *run, size_t b, size_t h, size_t i, size_t j) {
    return run->bias ? (double)run->bias[oracle_broadcast(&run->in.bias_strides, b, h, i, j)] : 0;
}

static inline bool oracle_allows(const mha_run *run, size_t b, size_t h, size_t i, size_t j) {
    const attn_mask *m = &run->in.mask;
    const long long p = oracle_place(run, i);
    if (m->causal && (long long)j > p)
        return false;
    if (m->window.left_on && (long long)j < p - (long long)m->window.left)
        return false;
    if (m->window.right_on && (long long)j > p + (long long)m->window.right)
        return false;
    if (m->padding && m->padding[b * run->len_k + j] != 0)
        return false;
    if (m->attend && m->attend[oracle_broadcast(&m->attend_strides, b, h, i, j)] == 0)
        return false;
    return oracle_bias(run, b, h, i, j) > -INFINITY;
}

/* Standard slopes: 2^(-8 (h + 1) / H), with every second one of twice as many heads where H is no
 * power of two. */
static inline double oracle_slope(const mha_run *run, size_t h) {
    const size_t num_heads = run->cfg.num_heads;
    size_t power = 1;
    while (2 * power <= num_heads)
        power *= 2;
    if (!run->cfg.alibi)
        return 0;
    if (run->cfg.alibi_learned)
        return (double)run->w.alibi_slopes[h];
    return h < power ? pow(2, -8 * (double)(h + 1) / (double)power)
                     : pow(2, -8 * (double)(2 * (h - power) + 1) / (double)(2 * power));
}

/* What dropout multiplies a weight by. */
static inline double oracle_keep(const mha_run *run, size_t b, size_t h, size_t i, size_t j) {
    const double p = run->cfg.dropout;
    uint32_t words[4];
    attn_philox4x32(words, (uint32_t[]){(uint32_t)(j / 4), (uint32_t)i, (uint32_t)h, (uint32_t)b},
                    run->in.dropout_seed);
    return p > 0 && words[j % 4] < p * 4294967296.0 ? 0 : 1 / (1 - p);
}

static inline double *oracle_zeros(size_t n) {
    double *x = calloc(n ? n : 1, sizeof *x);
    ck_assert_ptr_nonnull(x);
    return x;
}

static inline attn_real *oracle_round(double *x, size_t n) {
    attn_real *rounded = malloc((n ? n : 1) * sizeof *rounded);
    ck_assert_ptr_nonnull(rounded);
    for (size_t i = 0; i < n; i++)
        rounded[i] = (attn_real)x[i];
    free(x);
    return rounded;
}

/* out[r][o] = b[o] + sum over c of x[r][c] w[o][c] */
static inline double *oracle_linear(const double *x, const attn_real *w, const attn_real *b,
                                    size_t rows, size_t d_in, size_t d_out) {
    double *out = oracle_zeros(rows * d_out);
    for (size_t r = 0; r < rows; r++)
        for (size_t o = 0; o < d_out; o++) {
            double sum = b ? (double)b[o] : 0;
            for (size_t c = 0; c < d_in; c++)
                sum += x[r * d_in + c] * (double)w[o * d_in + c];
            out[r * d_out + o] = sum;
        }
    return out;
}

/* Every use of w and b in oracle_linear sends its share of g back; db may be NULL. */
static inline void oracle_linear_back(double *dx, double *dw, double *db, const double *g,
                                      const double *x, const attn_real *w, size_t rows, size_t d_in,
                                      size_t d_out) {
    for (size_t r = 0; r < rows; r++)
        for (size_t o = 0; o < d_out; o++) {
            double up = g[r * d_out + o];
            if (db)
                db[o] += up;
            for (size_t c = 0; c < d_in; c++) {
                dw[o * d_in + c] += up * x[r * d_in + c];
                dx[r * d_in + c] += up * (double)w[o * d_in + c];
            }
        }
}

/* Multiplies each row of a head of x (B,T,W) by its rotation, written as a matrix, or by the
 * transpose of that. */
static inline void oracle_turn(double *x, const mha_run *run, size_t heads, size_t len,
                               int64_t position, bool transpose) {
    const size_t d = run->d_inner / run->cfg.num_heads;
    const double base = run->cfg.rope_base > 0 ? run->cfg.rope_base : 10000;
    double *turned = oracle_zeros(d);
    for (size_t row = 0; run->cfg.rope && row < run->in.batch * len * heads; row++) {
        double *of = &x[row * d];
        memset(turned, 0, d * sizeof *turned);
        for (size_t m = 0; m < d / 2; m++) {
            const size_t a = run->cfg.rope == ATTN_ROPE_HALF ? m : 2 * m;
            const size_t b = run->cfg.rope == ATTN_ROPE_HALF ? m + d / 2 : 2 * m + 1;
            const double angle = (double)(position + (int64_t)(row / heads % len)) /
                                 pow(base, 2 * (double)m / (double)d);
            const double rotation[2][2] = {{cos(angle), -sin(angle)}, {sin(angle), cos(angle)}};
            turned[a] = rotation[0][0] * of[a] + rotation[transpose][!transpose] * of[b];
            turned[b] = rotation[!transpose][transpose] * of[a] + rotation[1][1] * of[b];
        }
        memcpy(of, turned, d * sizeof *of);
    }
    free(turned);
}

static inline double *oracle_widen(const attn_real *x, size_t n) {
    double *wide = oracle_zeros(n);
    for (size_t i = 0; i < n; i++)
        wide[i] = (double)x[i];
    return wide;
}

/* Runs the case of `run` forward and backward on its inputs; freed by mha_oracle_free. */
static inline mha_oracle mha_oracle_run(const mha_run *run) {
    size_t B = run->in.batch, Lq = run->in.len_q, Lk = run->len_k, D = run->cfg.d_model;
    size_t H = run->cfg.num_heads, W = run->d_inner, d = W / H;
    size_t K = attn_mha_kv_heads(&run->cfg) * d, group = W / K; /* width of keys and values */
    bool self = !run->in.key;
    double scale = run->cfg.has_scale ? run->cfg.scale : 1 / sqrt((double)d);
    const attn_mha_params *w = &run->w;

    double *x_q = oracle_widen(run->x_q, run->size_q);
    double *x_k = oracle_widen(self ? run->x_q : run->x_k, run->size_k);
    double *x_v = oracle_widen(self ? run->x_q : run->x_v, run->size_k);
    double *q = oracle_linear(x_q, w->wq, w->bq, B * Lq, D, W);
    double *k = oracle_linear(x_k, w->wk, w->bk, B * Lk, D, K);
    double *v = oracle_linear(x_v, w->wv, w->bv, B * Lk, D, K);
    const int64_t position =
        run->in.has_rope_position ? run->in.rope_position : (int64_t)Lk - (int64_t)Lq;
    oracle_turn(q, run, H, Lq, position, false);
    oracle_turn(k, run, K / d, Lk, run->in.rope_key_position, false);
    double *o = oracle_zeros(B * Lq * W), *p = oracle_zeros(B * H * Lq * Lk);
    double *lse = oracle_zeros(B * H * Lq), *cap = oracle_zeros(B * H * Lq * Lk); /* dt/ds */
    double *p_sink = oracle_zeros(B * H * Lq);
    for (size_t b = 0; b < B; b++)
        for (size_t h = 0; h < H; h++)
            for (size_t i = 0; i < Lq; i++) {
                const size_t row_index = (b * H + h) * Lq + i;
                double *row = &p[row_index * Lk], *row_cap = &cap[row_index * Lk];
                const double sink = run->cfg.sinks ? (double)w->sinks[h] : -INFINITY;
                double top = sink, sum;
                const double *qi = &q[(b * Lq + i) * W + h * d];
                for (size_t j = 0; j < Lk; j++) {
                    row[j] = -INFINITY;
                    if (!oracle_allows(run, b, h, i, j))
                        continue;
                    double dot = 0;
                    for (size_t c = 0; c < d; c++)
                        dot += qi[c] * k[(b * Lk + j) * K + h / group * d + c];
                    const double softcap = run->cfg.softcap, s = scale * dot;
                    const double t = softcap > 0 ? softcap * tanh(s / softcap) : s;
                    row_cap[j] = softcap > 0 ? 1 - t / softcap * (t / softcap) : 1;
                    row[j] = t + oracle_bias(run, b, h, i, j) -
                             oracle_slope(run, h) * fabs((double)oracle_place(run, i) - (double)j);
                    top = fmax(top, row[j]);
                }
                sum = run->cfg.sinks ? exp(sink - top) : 0;
                for (size_t j = 0; j < Lk; j++)
                    sum += row[j] > -INFINITY ? exp(row[j] - top) : 0;
                lse[row_index] = sum > 0 ? top + log(sum) : -INFINITY;
                p_sink[row_index] = run->cfg.sinks ? exp(sink - top) / sum : 0;
                for (size_t j = 0; j < Lk; j++) {
                    row[j] = row[j] > -INFINITY ? exp(row[j] - top) / sum : 0;
                    for (size_t c = 0; c < d; c++)
                        o[(b * Lq + i) * W + h * d + c] += row[j] * oracle_keep(run, b, h, i, j) *
                                                           v[(b * Lk + j) * K + h / group * d + c];
                }
            }
    double *y = oracle_linear(o, w->wo, w->bo, B * Lq, W, D);

    double *dtheta = oracle_zeros(run->num_params);
    double *dwq = dtheta, *dwk = dwq + W * D, *dwv = dwk + K * D, *dwo = dwv + K * D;
    double *dbq = dwo + W * D, *dbk = dbq + W, *dbv = dbk + K, *dbo = dbv + K;
    double *dsinks = oracle_zeros(H), *dslopes = oracle_zeros(H);
    double *dbias = oracle_zeros(run->size_bias);
    double *dy = oracle_widen(run->dy, run->size_q);
    double *d_o = oracle_zeros(B * Lq * W), *dq = oracle_zeros(B * Lq * W);
    double *dk = oracle_zeros(B * Lk * K), *dv = oracle_zeros(B * Lk * K);
    oracle_linear_back(d_o, dwo, w->bo ? dbo : NULL, dy, o, w->wo, B * Lq, W, D);
    for (size_t b = 0; b < B; b++)
        for (size_t h = 0; h < H; h++)
            for (size_t i = 0; i < Lq; i++) {
                const size_t row_index = (b * H + h) * Lq + i;
                const double *row = &p[row_index * Lk];
                const size_t at = (b * Lq + i) * W + h * d;
                for (size_t j = 0; j < Lk; j++) {
                    /* ds_ij = sum over l of dp_il · (Jacobian of softmax)_lj, spelled out */
                    double du = 0;
                    for (size_t l = 0; l < Lk; l++) {
                        double dp = 0;
                        for (size_t c = 0; c < d; c++)
                            dp += d_o[at + c] * v[(b * Lk + l) * K + h / group * d + c];
                        dp *= oracle_keep(run, b, h, i, l);
                        du += dp * row[l] * ((l == j ? 1 : 0) - row[j]);
                        if (j == 0)
                            dsinks[h] -= dp * row[l] * p_sink[row_index];
                    }
                    dslopes[h] -= du * fabs((double)oracle_place(run, i) - (double)j);
                    if (run->bias)
                        dbias[oracle_broadcast(&run->in.bias_strides, b, h, i, j)] += du;
                    const double ds = du * cap[row_index * Lk + j];
                    for (size_t c = 0; c < d; c++) {
                        const size_t key = (b * Lk + j) * K + h / group * d + c;
                        dq[at + c] += scale * ds * k[key];
                        dk[key] += scale * ds * q[at + c];
                        dv[key] += row[j] * oracle_keep(run, b, h, i, j) * d_o[at + c];
                    }
                }
            }
    oracle_turn(dq, run, H, Lq, position, true);
    oracle_turn(dk, run, K / d, Lk, run->in.rope_key_position, true);
    double *dx_q = oracle_zeros(run->size_q), *dx_k = oracle_zeros(run->size_k);
    double *dx_v = oracle_zeros(run->size_k);
    oracle_linear_back(dx_q, dwq, w->bq ? dbq : NULL, dq, x_q, w->wq, B * Lq, D, W);
    oracle_linear_back(dx_k, dwk, w->bk ? dbk : NULL, dk, x_k, w->wk, B * Lk, D, K);
    oracle_linear_back(dx_v, dwv, w->bv ? dbv : NULL, dv, x_v, w->wv, B * Lk, D, K);
    for (size_t i = 0; self && i < run->size_q; i++)
        dx_q[i] += dx_k[i] + dx_v[i];

    for (size_t h = 0; h < H; h++) {
        if (run->cfg.sinks)
            dtheta[w->sinks - run->theta + (ptrdiff_t)h] = dsinks[h];
        if (run->cfg.alibi_learned)
            dtheta[w->alibi_slopes - run->theta + (ptrdiff_t)h] = dslopes[h];
    }

    double *scratch[] = {x_q, x_k, x_v, q,  k,   v,      o,      dy,
                         d_o, dq,  dk,  dv, cap, p_sink, dsinks, dslopes};
    for (size_t i = 0; i < sizeof scratch / sizeof *scratch; i++)
        free(scratch[i]);
    return (mha_oracle){.y = oracle_round(y, run->size_q),
                        .weights = oracle_round(p, B * H * Lq * Lk),
                        .lse = oracle_round(lse, B * H * Lq),
                        .dtheta = oracle_round(dtheta, run->num_params),
                        .dx_q = oracle_round(dx_q, run->size_q),
                        .dx_k = oracle_round(dx_k, run->size_k),
                        .dx_v = oracle_round(dx_v, run->size_k),
                        .dbias = oracle_round(dbias, run->size_bias)};
}

static inline void mha_oracle_free(mha_oracle *oracle) {
    free(oracle->y);
    free(oracle->weights);
    free(oracle->lse);
    free(oracle->dtheta);
    free(oracle->dx_q);
    free(oracle->dx_k);
    free(oracle->dx_v);
    free(oracle->dbias);
}

#endif
