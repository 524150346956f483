#include "gradcheck_composed_parts.h"

#include <attn/dropout.h>
#include <attn/heads.h>
#include <attn/linear.h>
#include <attn/softmax.h>
#include <attn/values.h>

#include <string.h>

/* Padding (B, T) hides key 0 of sample 1; attend (H, T, T) hides key 1 from query 3 in head 1. */
static const uint8_t padding[B * T] = {0, 0, 0, 0, 0, 1, 0, 0, 0, 0};
static const uint8_t attend[PAIRS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                      1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                      1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1};

attn_mask composed_mask(size_t sample, bool full) {
    return (attn_mask){.padding = padding + sample * T,
                       .attend = attend,
                       .attend_strides = {.head = (size_t)T * T, .query = T, .key = 1},
                       .causal = true,
                       .window = {.left_on = full, .left = 2}};
}

/* Terms point into themselves and the values. */
void composed_terms_take(composed_terms *terms, const composed_values *values, size_t sample,
                         bool full) {
    *terms = (composed_terms){0};
    if (!full)
        return;
    memcpy(terms->slopes, values->alibi_slopes, sizeof terms->slopes);
    terms->scores = (attn_score_terms){.softcap = 1.5,
                                       .bias = values->bias,
                                       .bias_strides = {.head = T, .key = 1},
                                       .alibi_slopes = terms->slopes};
    terms->sinks = values->sinks;
    terms->dropout = 0.25;
    terms->seed = 5 + sample;
}

/* heads (num_heads,T,d) <- x (T,D) Wᵀ + b */
static attn_status project(double *heads, const double *x, const double *w, const double *b,
                           size_t num_heads) {
    double flat[TOKENS];
    TRY(attn_linear_forward(flat, x, w, b, T, D, num_heads * DH));
    return attn_split_heads_forward(heads, flat, 1, T, num_heads, DH);
}

static attn_status turn(double *heads, size_t num_heads) {
    const attn_strides strides = attn_strides_bhtd(T, num_heads, DH);
    return attn_rope_forward(heads, heads, &strides, &composed_rope, 1, num_heads, T, DH);
}

attn_status composed_weigh(composed_weights *w, const composed_saved *s, const attn_mask *mask,
                           const composed_terms *terms) {
    double u[PAIRS];
    TRY(attn_scores_forward(w->s, s->q, s->k, mask, attn_default_scale(DH), &composed_shape));
    TRY(attn_score_terms_forward(u, w->s, &terms->scores, mask, &composed_shape));
    if (terms->sinks)
        TRY(attn_softmax_sinks_forward(w->p, w->sink, NULL, u, terms->sinks, &composed_shape));
    else
        TRY(attn_softmax_forward(w->p, NULL, u, (size_t)H * T, T));
    return attn_dropout_forward(w->kept, w->p, terms->dropout, terms->seed, &composed_shape);
}

attn_status composed_sample(double *y, composed_saved *s, const composed_values *values,
                            size_t sample, bool full) {
    const composed_values *w = values;
    const double *x = w->x + sample * TOKENS;
    const attn_mask mask = composed_mask(sample, full);
    composed_terms terms;
    double heads[TOKENS];
    composed_terms_take(&terms, values, sample, full);
    TRY(project(s->q, x, w->wq, w->bq, H));
    TRY(project(s->k, x, w->wk, w->bk, HKV));
    TRY(project(s->v, x, w->wv, w->bv, HKV));
    if (full) {
        TRY(turn(s->q, H));
        TRY(turn(s->k, HKV));
    }
    TRY(composed_weigh(&s->weights, s, &mask, &terms));
    TRY(attn_values_forward(heads, s->weights.kept, s->v, &mask, &composed_shape));
    TRY(attn_merge_heads_forward(s->context, heads, 1, T, H, DH));
    return attn_linear_forward(y, s->context, w->wo, w->bo, T, D, D);
}

attn_status composed_forward(double *y, const composed_values *values, bool full) {
    for (size_t sample = 0; sample < B; sample++) {
        composed_saved s;
        TRY(composed_sample(y + sample * TOKENS, &s, values, sample, full));
    }
    return ATTN_OK;
}
