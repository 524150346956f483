#include "gradcheck_composed.h"

#include <attn/heads.h>
#include <attn/linear.h>
#include <attn/scores.h>
#include <attn/softmax.h>
#include <attn/values.h>

#include <stdbool.h>
#include <string.h>

enum {
    B = COMPOSED_BATCH,
    T = COMPOSED_LEN,
    H = COMPOSED_HEADS,
    DH = COMPOSED_D_HEAD,
    D = COMPOSED_D_MODEL,
    HKV = COMPOSED_KV_HEADS,
    DKV = COMPOSED_D_KV,
    TOKENS = T * D,      /* one sample's (T, D), or (H, T, d) */
    KV_TOKENS = T * DKV, /* its keys or values, (T, Hkv·d), or (Hkv, T, d) */
    PAIRS = H * T * T,   /* one sample's (H, T, T) */
};

static const attn_shape shape = {1, H, T, T, DH, HKV};

/* Padding (B, T) hides key 0 of sample 1; attend (H, T, T) hides key 1 from query 3 in head 1. */
static const uint8_t padding[B * T] = {0, 0, 0, 0, 0, 1, 0, 0, 0, 0};
static const uint8_t inverted_padding[B * T] = {1, 1, 1, 1, 1, 0, 1, 1, 1, 1};
static const uint8_t attend[PAIRS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                      1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                      1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1};
static const uint8_t swapped_attend[PAIRS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0,
                                              1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                              1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* What the forward of one sample leaves behind. */
typedef struct saved {
    double q[TOKENS];                  /* (H, T, d) */
    double k[KV_TOKENS], v[KV_TOKENS]; /* (Hkv, T, d) */
    double p[PAIRS];                   /* (H, T, T) */
    double context[TOKENS];            /* (T, D), heads merged */
} saved;

/* Returns from the calling function when an operation fails. */
#define TRY(call)                     \
    do {                              \
        attn_status status_ = (call); \
        if (status_ != ATTN_OK)       \
            return status_;           \
    } while (0)

static attn_mask mask_of(size_t sample) {
    return (attn_mask){.padding = padding + sample * T,
                       .attend = attend,
                       .attend_strides = {.head = (size_t)T * T, .query = T, .key = 1},
                       .causal = true};
}

/* heads (num_heads,T,d) <- x (T,D) Wᵀ + b */
static attn_status project(double *heads, const double *x, const double *w, const double *b,
                           size_t num_heads) {
    double flat[TOKENS];
    TRY(attn_linear_forward(flat, x, w, b, T, D, num_heads * DH));
    return attn_split_heads_forward(heads, flat, 1, T, num_heads, DH);
}

static attn_status weights_under(double *p, const saved *s, const attn_mask *mask) {
    TRY(attn_scores_forward(p, s->q, s->k, mask, attn_default_scale(DH), &shape));
    return attn_softmax_forward(p, NULL, p, (size_t)H * T, T);
}

/* y (T, D) of one sample. */
static attn_status forward(double *y, saved *s, const composed_values *w, size_t sample) {
    const double *x = w->x + sample * TOKENS;
    attn_mask mask = mask_of(sample);
    double heads[TOKENS];
    TRY(project(s->q, x, w->wq, w->bq, H));
    TRY(project(s->k, x, w->wk, w->bk, HKV));
    TRY(project(s->v, x, w->wv, w->bv, HKV));
    TRY(weights_under(s->p, s, &mask));
    TRY(attn_values_forward(heads, s->p, s->v, &mask, &shape));
    TRY(attn_merge_heads_forward(s->context, heads, 1, T, H, DH));
    return attn_linear_forward(y, s->context, w->wo, w->bo, T, D, D);
}

attn_status composed_forward(double *y, const composed_values *values) {
    for (size_t sample = 0; sample < B; sample++) {
        saved s;
        TRY(forward(y + sample * TOKENS, &s, values, sample));
    }
    return ATTN_OK;
}

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
static attn_mask backward_mask(size_t sample, composed_fault fault) {
    attn_mask mask = mask_of(sample);
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
    return mask;
}

/* The weights that the backward works with: the forward's, or computed again under a wrong mask. */
static attn_status backward_weights(double *p, const saved *s, const attn_mask *mask,
                                    composed_fault fault) {
    if (fault != FAULT_MASKED_ROW_UNIFORM)
        return weights_under(p, s, mask);
    memcpy(p, s->p, sizeof s->p);
    for (size_t row = 0; row < (size_t)H * T; row++) {
        double sum = 0;
        for (size_t j = 0; j < T; j++)
            sum += p[row * T + j];
        for (size_t j = 0; j < T && sum == 0; j++)
            p[row * T + j] = 1.0 / T;
    }
    return ATTN_OK;
}

/* y = O Woᵀ + bo: dO = dY Wo, dWo += dYᵀ O, dbo += sum of dY over tokens. */
static attn_status output_backward(double *dcontext, composed_values *g, const composed_values *w,
                                   const double *dy, const saved *s, composed_fault fault) {
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
                                   const saved *s, const attn_mask *mask, composed_fault fault) {
    double heads[TOKENS], turned[PAIRS];
    TRY(attn_merge_heads_backward(heads, dcontext, 1, T, H, DH));
    if (fault == FAULT_HEADS_TRANSPOSED)
        memcpy(heads, dcontext, sizeof heads);
    TRY(attn_values_backward(dp, dv, heads, p, s->v, mask, &shape));
    if (fault == FAULT_GROUP_SUM_MISSING) {
        keep_last_head(turned, p);
        return attn_values_backward(NULL, dv, heads, turned, s->v, mask, &shape);
    }
    if (fault == FAULT_LAST_KEY_DROPPED)
        for (size_t h = 0; h < HKV; h++)
            memset(dv + (h * T + T - 1) * DH, 0, DH * sizeof *dv);
    if (fault != FAULT_DV_TRANSPOSED)
        return ATTN_OK;
    transpose_heads(turned, p);
    return attn_values_backward(NULL, dv, heads, turned, s->v, NULL, &shape);
}

/* P = softmax(S): dS = P ∘ (dP - rowsum(dP ∘ P)). */
static attn_status softmax_backward(double *ds, const double *dp, const double *p,
                                    composed_fault fault) {
    TRY(attn_softmax_backward(ds, dp, p, (size_t)H * T, T));
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

/* S = scale·Q Kᵀ: dQ = scale·dS K, dK = scale·dSᵀ Q, summed over the heads that share K. */
static attn_status scores_backward(double *dq, double *dk, const double *ds, const saved *s,
                                   const attn_mask *mask, composed_fault fault) {
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
    TRY(attn_scores_backward(dq, dk, ds, s->q, s->k, mask, scale, &shape));
    if (fault == FAULT_GROUP_SUM_MISSING) {
        keep_last_head(turned, ds);
        return attn_scores_backward(NULL, dk, turned, s->q, s->k, mask, scale, &shape);
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
                                  const double *dv, const saved *s, composed_fault fault) {
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
static attn_status backward(composed_values *g, const composed_values *w, const double *dy,
                            const saved *s, size_t sample, composed_fault fault) {
    double dcontext[TOKENS], dq[TOKENS], dk[KV_TOKENS], dv[KV_TOKENS];
    double p[PAIRS], dp[PAIRS], ds[PAIRS];
    attn_mask mask = backward_mask(sample, fault);
    TRY(backward_weights(p, s, &mask, fault));
    TRY(output_backward(dcontext, g, w, dy, s, fault));
    TRY(values_backward(dp, dv, dcontext, p, s, &mask, fault));
    TRY(softmax_backward(ds, dp, p, fault));
    TRY(scores_backward(dq, dk, ds, s, &mask, fault));
    return input_backward(g->x + sample * TOKENS, g, w, w->x + sample * TOKENS, dq, dk, dv, s,
                          fault);
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
                              const double *dy, composed_fault fault) {
    memset(gradients, 0, sizeof *gradients);
    for (size_t sample = 0; sample < B; sample++) {
        double y[TOKENS];
        saved s;
        TRY(forward(y, &s, values, sample));
        overwrite(gradients, fault);
        TRY(backward(gradients, values, dy + sample * TOKENS, &s, sample, fault));
    }
    return ATTN_OK;
}

static const struct {
    const char *name, *words;
} faults[FAULT_COUNT] = {
    [FAULT_SCALE_DROPPED] = {"scale-dropped", "dQ and dK without the scale"},
    [FAULT_SCALE_TWICE] = {"scale-twice", "dQ and dK with the scale squared"},
    [FAULT_SIGN_FLIPPED] = {"sign-flipped", "dS = P * (dP + rowsum) instead of minus"},
    [FAULT_ROW_SUM_MISSING] = {"row-sum-missing", "dS = P * dP"},
    [FAULT_JACOBIAN_DIAGONAL] = {"jacobian-diagonal", "dS = P * (1 - P) * dP, as for a sigmoid"},
    [FAULT_SOFTMAX_DETACHED] = {"softmax-detached", "dS = 0: the weights taken for constants"},
    [FAULT_DK_TIMES_1_01] = {"dk-times-1.01", "dK one per cent too large"},
    [FAULT_DQ_DK_SWAPPED] = {"dq-dk-swapped", "dK and the dQ of head 0 exchanged"},
    [FAULT_DS_TRANSPOSED] = {"ds-transposed", "dQ and dK from the transpose of dS"},
    [FAULT_DV_TRANSPOSED] = {"dv-transposed", "dV = P dO instead of the transpose of P"},
    [FAULT_LAST_KEY_DROPPED] = {"last-key-dropped", "dK and dV of the last key never written"},
    [FAULT_GROUP_SUM_MISSING] = {"group-sum-missing",
                                 "dK and dV of the last head of a group alone"},
    [FAULT_MASK_IGNORED] = {"mask-ignored", "P computed again without any mask"},
    [FAULT_PADDING_POLARITY] = {"padding-polarity", "P computed again with the padding inverted"},
    [FAULT_CAUSAL_OFF_BY_ONE] = {"causal-off-by-one", "P computed again with one key too many"},
    [FAULT_MASK_HEADS_SWAPPED] = {"mask-heads-swapped", "each head takes the other one's mask"},
    [FAULT_MASKED_ROW_UNIFORM] = {"masked-row-uniform", "a fully masked row counts as uniform"},
    [FAULT_HEADS_TRANSPOSED] = {"heads-transposed", "dO taken for (B,H,T,d) without a transpose"},
    [FAULT_DQ_HEADS_SWAPPED] = {"dq-heads-swapped", "dQ of the heads in the wrong order"},
    [FAULT_WO_SKIPPED] = {"wo-skipped", "dO = dY, not through Wo"},
    [FAULT_WO_TRANSPOSED] = {"wo-transposed", "dO = dY times the transpose of Wo"},
    [FAULT_DWQ_WRONG_INPUT] = {"dwq-wrong-input", "dWq from the queries instead of x"},
    [FAULT_BO_MISSING] = {"bo-missing", "dbo never added"},
    [FAULT_BO_AVERAGED] = {"bo-averaged", "dbo is the mean over tokens, not the sum"},
    [FAULT_BIAS_GRAD_OVERWRITTEN] = {"bias-grad-overwritten", "= instead of += for bias gradients"},
    [FAULT_WEIGHT_GRAD_OVERWRITTEN] = {"weight-grad-overwritten",
                                       "= instead of += for weight gradients"},
    [FAULT_DX_PATH_LOST] = {"dx-path-lost", "dx without the path through the keys"},
    [FAULT_DX_OVERWRITTEN] = {"dx-overwritten", "dx of the last path alone"},
};

const char *composed_fault_name(composed_fault fault) {
    return faults[fault].name;
}

const char *composed_fault_words(composed_fault fault) {
    return faults[fault].words;
}
