/* The backward of the composed layer, with a fault in it. */
#include "gradcheck_composed_parts.h"

#include <attn/dropout.h>
#include <attn/heads.h>
#include <attn/linear.h>
#include <attn/softmax.h>
#include <attn/values.h>

#include <string.h>

/* Wrong masks: padding inverted, and the heads of attend swapped. */
static const uint8_t inverted_padding[B * T] = {1, 1, 1, 1, 1, 0, 1, 1, 1, 1};
static const uint8_t swapped_attend[PAIRS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0,
                                              1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                              1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static void transpose(double *to, const double *from, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            to[j * n + i] = from[i * n + j];
}

static void transpose_heads(double *to, const double *from) {
    for (size_t h = 0; h < H; h++)
        transpose(to + h * T * T, from + h * T * T, T);
}

static void scale_by(double *x, size_t n, double factor) {
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

/* Swaps two arrays of n elements. */
static void swap(double *a, double *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double t = a[i];
        a[i] = b[i];
        b[i] = t;
    }
}

/* The mask that the backward believes in. */
static attn_mask backward_mask(size_t sample, bool full, composed_fault fault) {
    attn_mask mask = composed_mask(sample, full);
    if (fault == FAULT_MASK_IGNORED || fault == FAULT_MASKED_ROW_UNIFORM)
        memset(&mask, 0, sizeof mask);
    if (fault == FAULT_PADDING_POLARITY)
        mask.padding = inverted_padding + sample * T;
    if (fault == FAULT_MASK_HEADS_SWAPPED)
        mask.attend = swapped_attend;
    if (fault == FAULT_CAUSAL_OFF_BY_ONE) {
        mask.causal_align = ATTN_CAUSAL_OFFSET;
        mask.causal_offset = 1;
    }
    if (fault == FAULT_WINDOW_IGNORED)
        mask.window = (attn_window){0};
    return mask;
}

/* The terms that the backward believes in. */
static void backward_terms(composed_terms *terms, const composed_values *values, size_t sample,
                           bool full, composed_fault fault) {
    composed_terms_take(terms, values, sample, full);
    for (size_t h = 0; h < H && fault == FAULT_ALIBI_SIGN; h++)
        terms->slopes[h] = -terms->slopes[h];
    if (fault == FAULT_SINK_LEFT_OUT)
        terms->sinks = NULL;
    if (fault == FAULT_DROPOUT_PATTERN_OTHER)
        terms->seed += 100;
}

/* The weights that the backward works with, computed again: under a wrong mask or with wrong terms
 * they are not the forward's. */
static attn_status backward_weights(composed_weights *w, const composed_saved *s,
                                    const attn_mask *mask, const composed_terms *terms,
                                    composed_fault fault) {
    *w = s->weights;
    if (fault != FAULT_MASKED_ROW_UNIFORM)
        TRY(composed_weigh(w, s, mask, terms));
    if (fault == FAULT_DROPOUT_UNSCALED)
        scale_by(w->kept, PAIRS, 1 - terms->dropout);
    for (size_t row = 0; row < (size_t)H * T && fault == FAULT_MASKED_ROW_UNIFORM; row++) {
        double sum = 0;
        for (size_t j = 0; j < T; j++)
            sum += w->p[row * T + j];
        for (size_t j = 0; j < T && sum == 0; j++)
            w->p[row * T + j] = w->kept[row * T + j] = 1.0 / T;
    }
    return ATTN_OK;
}

/* y = O Woᵀ + bo: dO = dY Wo, dWo += dYᵀ O, dbo += sum of dY over tokens. */
static attn_status output_backward(double *dcontext, composed_values *g, const composed_values *w,
                                   const double *dy, const composed_saved *s,
                                   composed_fault fault) {
    double turned[D * D], db[D] = {0};
    transpose(turned, w->wo, D);
    TRY(attn_linear_backward(dcontext, g->wo, db, dy, s->context,
                             fault == FAULT_WO_TRANSPOSED ? turned : w->wo, T, D, D));
    if (fault == FAULT_BO_AVERAGED)
        scale_by(db, D, 1.0 / T);
    for (size_t c = 0; c < D && fault != FAULT_BO_MISSING; c++)
        g->bo[c] += db[c];
    if (fault == FAULT_WO_SKIPPED)
        memcpy(dcontext, dy, TOKENS * sizeof *dy);
    return ATTN_OK;
}

/* Nothing but the last head of (H,T,T) is left. */
static void keep_last_head(double *to, const double *from) {
    memset(to, 0, PAIRS * sizeof *to);
    memcpy(to + PAIRS - T * T, from + PAIRS - T * T, (size_t)T * T * sizeof *to);
}

/* O = P V: dP = dO Vᵀ, dV = Pᵀ dO, summed over the heads that share V. */
static attn_status values_backward(double *dp, double *dv, const double *dcontext, const double *p,
                                   const composed_saved *s, const attn_mask *mask,
                                   composed_fault fault) {
    double heads[TOKENS], turned[PAIRS];
    TRY(attn_merge_heads_backward(heads, dcontext, 1, T, H, DH));
    if (fault == FAULT_HEADS_TRANSPOSED)
        memcpy(heads, dcontext, sizeof heads);
    TRY(attn_values_backward(dp, dv, heads, p, s->v, mask, &composed_shape));
    if (fault == FAULT_GROUP_SUM_MISSING) {
        keep_last_head(turned, p);
        return attn_values_backward(NULL, dv, heads, turned, s->v, mask, &composed_shape);
    }
    if (fault == FAULT_LAST_KEY_DROPPED)
        for (size_t h = 0; h < HKV; h++)
            memset(dv + (h * T + T - 1) * DH, 0, DH * sizeof *dv);
    if (fault != FAULT_DV_TRANSPOSED)
        return ATTN_OK;
    transpose_heads(turned, p);
    return attn_values_backward(NULL, dv, heads, turned, s->v, NULL, &composed_shape);
}

/* The kept weights are P / (1 - p): so is dP, where they are kept. In place. */
static attn_status dropout_backward(double *dp, const composed_terms *terms, composed_fault fault) {
    TRY(attn_dropout_backward(dp, dp, terms->dropout, terms->seed, &composed_shape));
    if (fault == FAULT_DROPOUT_UNSCALED)
        scale_by(dp, PAIRS, 1 - terms->dropout);
    return ATTN_OK;
}

/* P = softmax(S): dS = P ∘ (dP - rowsum(dP ∘ P)), and for a sink dz = -P_sink rowsum(dP ∘ P). */
static attn_status softmax_backward(double *ds, composed_values *g, const double *dp,
                                    const composed_weights *w, const composed_terms *terms,
                                    composed_fault fault) {
    const double *p = w->p;
    double dsinks[H] = {0};
    if (terms->sinks)
        TRY(attn_softmax_sinks_backward(ds, dsinks, dp, p, w->sink, &composed_shape));
    else
        TRY(attn_softmax_backward(ds, dp, p, (size_t)H * T, T));
    for (size_t h = 0; h < H; h++)
        g->sinks[h] += fault == FAULT_SINK_GRADIENT_SIGN ? -dsinks[h] : dsinks[h];
    for (size_t i = 0; i < PAIRS; i++) {
        if (fault == FAULT_ROW_SUM_MISSING)
            ds[i] = p[i] * dp[i];
        if (fault == FAULT_SIGN_FLIPPED)
            ds[i] = 2 * p[i] * dp[i] - ds[i];
        if (fault == FAULT_JACOBIAN_DIAGONAL)
            ds[i] = p[i] * (1 - p[i]) * dp[i];
        if (fault == FAULT_SOFTMAX_DETACHED)
            ds[i] = 0;
    }
    return ATTN_OK;
}

/* U = c tanh(S / c) + bias - slope |p - j|: dS = dU (1 - tanh²), dbias = dU summed over queries,
 * dslope = -sum of dU |p - j|. */
static attn_status terms_backward(double *ds, composed_values *g, const double *du,
                                  const composed_weights *w, const attn_mask *mask,
                                  const composed_terms *terms, bool full, composed_fault fault) {
    double dbias[H * T] = {0}, dslopes[H] = {0};
    TRY(attn_score_terms_backward(ds, full ? dbias : NULL, full ? dslopes : NULL, du, w->s,
                                  &terms->scores, mask, &composed_shape));
    if (fault == FAULT_SOFTCAP_FACTOR_MISSING)
        memcpy(ds, du, PAIRS * sizeof *ds);
    if (fault == FAULT_BIAS_SCALED)
        scale_by(dbias, (size_t)H * T, attn_default_scale(DH));
    for (size_t h = 0; h < H && fault == FAULT_BIAS_NOT_REDUCED; h++)
        memcpy(dbias + h * T, du + (h * T + T - 1) * T, T * sizeof *dbias);
    for (size_t i = 0; i < (size_t)H * T; i++)
        g->bias[i] += dbias[i];
    for (size_t h = 0; h < H && fault != FAULT_SLOPE_GRADIENT_MISSING; h++)
        g->alibi_slopes[h] += dslopes[h];
    return ATTN_OK;
}

/* S = scale·Q Kᵀ: dQ = scale·dS K, dK = scale·dSᵀ Q, summed over the heads that share K. */
static attn_status scores_backward(double *dq, double *dk, const double *ds,
                                   const composed_saved *s, const attn_mask *mask,
                                   composed_fault fault) {
    double scale = attn_default_scale(DH), turned[PAIRS];
    if (fault == FAULT_SCALE_DROPPED)
        scale = 1;
    if (fault == FAULT_SCALE_TWICE)
        scale *= scale;
    if (fault == FAULT_DS_TRANSPOSED) {
        transpose_heads(turned, ds);
        ds = turned;
        mask = NULL;
    }
    TRY(attn_scores_backward(dq, dk, ds, s->q, s->k, mask, scale, &composed_shape));
    if (fault == FAULT_GROUP_SUM_MISSING) {
        keep_last_head(turned, ds);
        return attn_scores_backward(NULL, dk, turned, s->q, s->k, mask, scale, &composed_shape);
    }
    if (fault == FAULT_DK_TIMES_1_01)
        scale_by(dk, KV_TOKENS, 1.01);
    if (fault == FAULT_DQ_DK_SWAPPED)
        swap(dq, dk, KV_TOKENS);
    if (fault == FAULT_DQ_HEADS_SWAPPED)
        swap(dq, dq + T * DH, (size_t)T * DH);
    if (fault == FAULT_LAST_KEY_DROPPED)
        for (size_t h = 0; h < HKV; h++)
            memset(dk + (h * T + T - 1) * DH, 0, DH * sizeof *dk);
    return ATTN_OK;
}

/* A rotation's backward turns back. */
static attn_status turn_back(double *dheads, size_t num_heads) {
    const attn_strides strides = attn_strides_bhtd(T, num_heads, DH);
    return attn_rope_backward(dheads, dheads, &strides, &composed_rope, 1, num_heads, T, DH);
}

/* heads = split(x Wᵀ + b): dW += dheadsᵀ x, db += sum over tokens; dx = dheads W. */
static attn_status project_backward(double *dx, double *dw, double *db, const double *dheads,
                                    const double *x, const double *w, size_t num_heads) {
    double flat[TOKENS];
    TRY(attn_split_heads_backward(flat, dheads, 1, T, num_heads, DH));
    return attn_linear_backward(dx, dw, db, flat, x, w, T, D, num_heads * DH);
}

/* x feeds queries, keys and values: three paths add up in dx. */
static attn_status input_backward(double *dx, composed_values *g, const composed_values *w,
                                  const double *x, const double *dq, const double *dk,
                                  const double *dv, const composed_saved *s, composed_fault fault) {
    double path[3][TOKENS];
    double flat_q[TOKENS];
    TRY(attn_merge_heads_forward(flat_q, s->q, 1, T, H, DH));
    TRY(project_backward(path[0], NULL, g->bq, dq, x, w->wq, H));
    TRY(project_backward(NULL, g->wq, NULL, dq, fault == FAULT_DWQ_WRONG_INPUT ? flat_q : x, NULL,
                         H));
    TRY(project_backward(path[1], g->wk, g->bk, dk, x, w->wk, HKV));
    TRY(project_backward(path[2], g->wv, g->bv, dv, x, w->wv, HKV));
    for (size_t i = 0; i < TOKENS; i++) {
        dx[i] = path[0][i] + path[1][i] + path[2][i];
        if (fault == FAULT_DX_PATH_LOST)
            dx[i] -= path[1][i];
        if (fault == FAULT_DX_OVERWRITTEN)
            dx[i] = path[2][i];
    }
    return ATTN_OK;
}

/* The forward of one sample undone from the last step to the first. */
static attn_status backward(composed_values *g, const composed_values *values, const double *dy,
                            const composed_saved *s, size_t sample, bool full,
                            composed_fault fault) {
    double dcontext[TOKENS], dq[TOKENS], dk[KV_TOKENS], dv[KV_TOKENS];
    double dp[PAIRS], du[PAIRS], ds[PAIRS];
    const attn_mask mask = backward_mask(sample, full, fault);
    composed_terms terms;
    composed_weights w;
    backward_terms(&terms, values, sample, full, fault);
    TRY(backward_weights(&w, s, &mask, &terms, fault));
    TRY(output_backward(dcontext, g, values, dy, s, fault));
    TRY(values_backward(dp, dv, dcontext, w.kept, s, &mask, fault));
    TRY(dropout_backward(dp, &terms, fault));
    TRY(softmax_backward(du, g, dp, &w, &terms, fault));
    TRY(terms_backward(ds, g, du, &w, &mask, &terms, full, fault));
    TRY(scores_backward(dq, dk, ds, s, &mask, fault));
    if (full && fault != FAULT_ROPE_NOT_TURNED_BACK) {
        TRY(turn_back(dq, H));
        TRY(turn_back(dk, HKV));
    }
    return input_backward(g->x + sample * TOKENS, g, values, values->x + sample * TOKENS, dq, dk,
                          dv, s, fault);
}

/* "=" where "+=" belongs: what earlier samples gave is gone. */
static void overwrite(composed_values *g, composed_fault fault) {
    if (fault == FAULT_BIAS_GRAD_OVERWRITTEN) {
        memset(g->bq, 0, sizeof g->bq);
        memset(g->bk, 0, sizeof g->bk);
        memset(g->bv, 0, sizeof g->bv);
        memset(g->bo, 0, sizeof g->bo);
    }
    if (fault == FAULT_WEIGHT_GRAD_OVERWRITTEN) {
        memset(g->wq, 0, sizeof g->wq);
        memset(g->wk, 0, sizeof g->wk);
        memset(g->wv, 0, sizeof g->wv);
        memset(g->wo, 0, sizeof g->wo);
    }
}

attn_status composed_backward(composed_values *gradients, const composed_values *values,
                              const double *dy, bool full, composed_fault fault) {
    memset(gradients, 0, sizeof *gradients);
    for (size_t sample = 0; sample < B; sample++) {
        double y[TOKENS];
        composed_saved s;
        TRY(composed_sample(y, &s, values, sample, full));
        overwrite(gradients, fault);
        TRY(backward(gradients, values, dy + sample * TOKENS, &s, sample, full, fault));
    }
    return ATTN_OK;
}
