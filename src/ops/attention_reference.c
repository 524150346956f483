/*
 * The textbook path: scores, softmax and weighted sum of values, one after the other, on every band
 * of every head. P is held whole, (B,H,Lq,Lk), for the backward or where it is asked for.
 *
 *     forward     S = scale·Q Kᵀ, -inf where blocked    (Lq,Lk) = (Lq,d) (d,Lk)
 *                 U = c·tanh(S / c) + bias - slope·|p - j|
 *                 P = softmax(U), one more score, the sink, in every row
 *                 P' = dropout(P)
 *                 O = P' V                              (Lq,d)  = (Lq,Lk) (Lk,d)
 *
 *     backward    dP' = dO Vᵀ,  dV = P'ᵀ dO             (Lq,Lk), (Lk,d)
 *                 dP = dropout(dP')                     the same weights dropped
 *                 dU = P ∘ (dP - D),  D = rowsum(dP ∘ P)
 *                 dsink = -sum of p_sink D,  dslope = -sum of dU |p - j|,  dbias = sums of dU
 *                 dS = dU ∘ (1 - tanh²(S / c))
 *                 dQ = scale·dS K,  dK = scale·dSᵀ Q    (Lq,d), (Lk,d)
 *
 * A task of the forward is a head; one of the backward is the group of heads that share keys and
 * values, so that dK and dV sum over heads and bands in one order for any number of threads.
 */
#include "base/fail.h"
#include "ops/parallel.h"
#include "ops/sdpa_head.h"
#include "ops/sdpa_internal.h"

#include <math.h>
#include <string.h>

/* Scratch of one thread, and where P goes. Bands are (BAND_ROWS,Lk). */
typedef struct forward_arrays {
    real *value;          /* (Lk, d): v without rows that are not finite */
    real *weights;        /* P (B,H,Lq,Lk), or NULL: */
    real *band;           /* a band of it is enough */
    real *dropped;        /* with dropout: a band of P' */
    real *weights_wanted; /* a copy of P for the caller, or NULL */
    real *sink_weights;   /* (B,H,Lq), or NULL */
} forward_arrays;

static void forward_band(const attni_sdpa *call, const attni_head *head, const attni_band *band,
                         const attn_sdpa_output *output, attni_matrix o, attni_operand q,
                         attni_operand k, attni_operand v, const forward_arrays *arrays) {
    const size_t i = band->begin, len_k = band->len_k, row = head->row + i;
    const size_t pair = head->pair + i * len_k;
    /* in place: s turns into u and into p */
    real *p = arrays->weights ? arrays->weights + pair : arrays->band;
    real *dropped = arrays->dropped ? arrays->dropped : p;
    attni_scores_band_forward((attni_matrix){p, len_k}, q, k, call->scale, band);
    for (size_t r = 0; r < band->rows; r++)
        attni_score_terms_row_forward(p + r * len_k, p + r * len_k, &head->terms, i + r,
                                      band->keys);
    if (head->terms.softcap > 0 || head->terms.bias) /* which may have made numbers of blocks */
        attni_band_fill_blocked(band, p, len_k, (real)-INFINITY);
    for (size_t r = 0; r < band->rows; r++) {
        real *p_row = p + r * len_k, sink_weight;
        attni_softmax_row_forward(p_row, output->lse ? output->lse + row + r : NULL, &sink_weight,
                                  p_row, head->sink, band->keys);
        if (arrays->sink_weights)
            arrays->sink_weights[row + r] = sink_weight;
        if (arrays->dropped)
            attni_dropout_row(dropped + r * len_k, p_row, call->dropout, call->input->dropout_seed,
                              &(attni_pair_row){band->b, band->h, i + r}, band->keys);
    }
    attni_values_band_forward(o, operand_at(dropped, 0, len_k), v, band);
    if (arrays->weights)
        attni_band_fill_beyond(band, p, len_k, 0);
    if (arrays->weights_wanted)
        memcpy(arrays->weights_wanted + pair, p, band->rows * len_k * sizeof(real));
}

static void forward_head(const attni_sdpa *call, const attn_sdpa_output *output, size_t index,
                         const forward_arrays *arrays) {
    const attn_sdpa_input *in = call->input;
    const attni_head head = head_at(call, index);
    const attni_operand q = head_query(&head, in->query, &in->query_strides);
    const attni_operand k = head_key(&head, in->key, &in->key_strides);
    attni_operand v = head_key(&head, in->value, &in->value_strides);
    const attni_matrix o = head_dquery(&head, output->context, &output->context_strides);
    attni_operand_clean(&v, head.shape.len_k, head.shape.d_head, arrays->value);
    for (size_t i = 0; i < head.shape.len_q; i += BAND_ROWS) {
        const attni_band band = band_at(&head.mask, &head.shape, index, i);
        forward_band(call, &head, &band, output, o, q, k, v, arrays);
    }
}

/* Scratch of one thread, and where sums go. Bands are (BAND_ROWS,Lk). */
typedef struct backward_arrays {
    real *band;               /* dP, which turns into dU; NULL where dV alone is wanted ... */
    real *dscores;            /* ... or a band of this, (B,H,Lq,Lk), which dbias sums up */
    real *dropped;            /* with dropout: a band of P' */
    real *capped;             /* with softcap: a band of S, which turns into dS */
    real *query, *dcontext;   /* (Lq,d): q and dO without rows that are not finite */
    real *key;                /* (Lk,d): k alike */
    double *dsinks, *dslopes; /* (B,H), or NULL */
} backward_arrays;

/* What the heads of a group share: k and v, and the dk and dv that they add to. */
typedef struct shared_rows {
    attni_operand k, v;
    attni_matrix dk, dv;
} shared_rows;

static void backward_band(const attni_sdpa *call, const attni_head *head, const attni_band *band,
                          const attn_sdpa_saved *saved, attni_operand d_o, attni_operand q,
                          attni_matrix dq, const shared_rows *shared,
                          const backward_arrays *arrays) {
    const size_t i = band->begin, len_k = band->len_k, keys = band->keys;
    const size_t pair = head->pair + i * len_k;
    const real *p = saved->weights + pair, *dropped = arrays->dropped ? arrays->dropped : p;
    real *du = arrays->dscores ? arrays->dscores + pair : arrays->band, *ds = du;
    for (size_t r = 0; arrays->dropped && r < band->rows; r++)
        attni_dropout_row(arrays->dropped + r * len_k, p + r * len_k, call->dropout,
                          call->input->dropout_seed, &(attni_pair_row){band->b, band->h, i + r},
                          keys);
    attni_values_band_backward((attni_matrix){du, len_k}, shared->dv, d_o,
                               operand_at(dropped, 0, len_k), shared->v, band);
    if (!du)
        return;
    for (size_t r = 0; r < band->rows; r++) {
        real *du_row = du + r * len_k;
        if (arrays->dropped)
            attni_dropout_row(du_row, du_row, call->dropout, call->input->dropout_seed,
                              &(attni_pair_row){band->b, band->h, i + r}, keys);
        const double row_sum = attni_softmax_row_backward(du_row, du_row, p + r * len_k, keys);
        if (arrays->dsinks)
            arrays->dsinks[head->index] -= (double)saved->sink_weights[head->row + i + r] * row_sum;
    }
    attni_band_fill_blocked(band, du, len_k, 0); /* 0 already, except in a row whose sum is NaN */
    for (size_t r = 0; arrays->dslopes && r < band->rows; r++)
        arrays->dslopes[head->index] +=
            attni_alibi_row_backward(du + r * len_k, &head->terms, i + r, keys);
    if (arrays->dscores)
        attni_band_fill_beyond(band, du, len_k, 0);
    if (arrays->capped) {
        ds = arrays->capped;
        attni_scores_band_forward((attni_matrix){ds, len_k}, q, shared->k, call->scale, band);
        for (size_t r = 0; r < band->rows; r++)
            attni_softcap_row_backward(ds + r * len_k, du + r * len_k, ds + r * len_k,
                                       head->terms.softcap, keys);
    }
    attni_scores_band_backward(dq, shared->dk, operand_at(ds, 0, len_k), q, shared->k, call->scale,
                               band);
}

static void backward_head(const attni_sdpa *call, const attn_sdpa_saved *saved,
                          const real *dcontext, const attn_strides *dcontext_strides,
                          const attn_sdpa_grads *grads, const shared_rows *shared, size_t index,
                          const backward_arrays *arrays) {
    const attni_head head = head_at(call, index);
    const size_t len_q = head.shape.len_q, d = head.shape.d_head;
    attni_operand q = head_query(&head, call->input->query, &call->input->query_strides);
    attni_operand d_o = head_query(&head, dcontext, dcontext_strides);
    const attni_matrix dq = head_dquery(&head, grads->query, &grads->query_strides);
    attni_operand_clean(&q, len_q, d, arrays->query);
    attni_operand_clean(&d_o, len_q, d, arrays->dcontext);
    if (arrays->dsinks)
        arrays->dsinks[index] = 0;
    if (arrays->dslopes)
        arrays->dslopes[index] = 0;
    for (size_t i = 0; i < len_q; i += BAND_ROWS) {
        const attni_band band = band_at(&head.mask, &head.shape, index, i);
        backward_band(call, &head, &band, saved, d_o, q, dq, shared, arrays);
    }
}

static void zero_rows(attni_matrix m, size_t rows, size_t width) {
    for (size_t t = 0; m.data && t < rows; t++)
        memset(m.data + t * m.stride, 0, width * sizeof(real));
}

/* The heads that read key-value head `group`, one after the other. */
static void backward_group(const attni_sdpa *call, const attn_sdpa_saved *saved,
                           const real *dcontext, const attn_strides *dcontext_strides,
                           const attn_sdpa_grads *grads, size_t group,
                           const backward_arrays *arrays) {
    const attn_sdpa_input *in = call->input;
    const size_t heads = shape_group(&call->shape);
    const attni_head first = head_at(call, group * heads);
    const size_t len_k = first.shape.len_k, d = first.shape.d_head;
    shared_rows shared = {.k = head_key(&first, in->key, &in->key_strides),
                          .v = head_key(&first, in->value, &in->value_strides),
                          .dk = head_dkey(&first, grads->key, &grads->key_strides),
                          .dv = head_dkey(&first, grads->value, &grads->value_strides)};
    attni_operand_clean(&shared.k, len_k, d, arrays->key);
    zero_rows(shared.dk, len_k, d);
    zero_rows(shared.dv, len_k, d);
    for (size_t index = group * heads; index < (group + 1) * heads; index++)
        backward_head(call, saved, dcontext, dcontext_strides, grads, &shared, index, arrays);
}

/* The rest hands out memory and work. */

static size_t total_heads(const attni_sdpa *call) {
    return call->shape.batch * call->shape.num_heads;
}

/* Threads, and so slots of scratch, for tasks of `heads` heads each. */
static size_t num_slots(const attni_sdpa *call, size_t heads) {
    const attn_shape *s = &call->shape;
    size_t tasks = total_heads(call) / heads;
    return tasks
               ? (size_t)threads_for(call->threads, tasks, heads * s->len_q * s->len_k * s->d_head)
               : 0;
}

/* rows x width reals for each of `slots` slots, if they are wanted. */
static attn_status carve(real **array, attn_arena *arena, bool wanted, size_t slots, size_t rows,
                         size_t width) {
    void *object = NULL;
    size_t count;
    if (!size_product(&count, (size_t[]){slots, rows, width}, 3))
        return attni_fail(ATTN_ERROR_OVERFLOW, "attn_sdpa: %zu x %zu x %zu reals: the size wraps",
                          slots, rows, width);
    if (wanted)
        ATTNI_TRY(attn_arena_alloc(arena, &object, count, sizeof(real)));
    *array = object;
    return ATTN_OK;
}

/* The part of an array of `count` reals a slot, which may be absent. */
static real *slot_of(real *array, size_t slot, size_t count) {
    return array ? array + slot * count : NULL;
}

attn_status attni_reference_forward(const attni_sdpa *call, const attn_sdpa_output *output,
                                    attn_arena *arena, attn_sdpa_saved *saved) {
    const attn_shape *s = &call->shape;
    const size_t heads = total_heads(call), slots = num_slots(call, 1);
    const size_t rows = size_min(BAND_ROWS, s->len_q), len_k = s->len_k, d = s->d_head;
    forward_arrays all = {.weights = saved ? NULL : output->weights};
    if (call->pairs > SIZE_MAX / sizeof(real))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "attn_sdpa_forward, reference: batch %zu, num_heads %zu, len_q %zu, "
                          "len_k %zu: the size of the weights wraps",
                          s->batch, s->num_heads, s->len_q, len_k);
    if (saved) {
        ATTNI_TRY(carve(&all.weights, arena, true, 1, call->pairs, 1));
        ATTNI_TRY(carve(&all.sink_weights, arena, call->input->sinks, 1, call->rows, 1));
    }
    const size_t mark = attn_arena_mark(arena);
    ATTNI_TRY(carve(&all.band, arena, !saved && !output->weights, slots, rows, len_k));
    ATTNI_TRY(carve(&all.dropped, arena, call->dropout > 0, slots, rows, len_k));
    ATTNI_TRY(carve(&all.value, arena, true, slots, len_k, d));
    if (saved) {
        saved->weights = all.weights;
        saved->sink_weights = all.sink_weights;
        all.weights_wanted = output->weights;
    }
    if (!arena->measuring) {
#pragma omp parallel for schedule(dynamic) num_threads((int)size_max(1, slots))
        for (size_t head = 0; head < heads; head++) {
            const size_t slot = thread_slot();
            forward_arrays mine = all;
            mine.band = slot_of(all.band, slot, rows * len_k);
            mine.dropped = slot_of(all.dropped, slot, rows * len_k);
            mine.value = slot_of(all.value, slot, len_k * d);
            forward_head(call, output, head, &mine);
        }
    }
    return attn_arena_rewind(arena, mark);
}

/* Scratch for `slots` threads, and what all heads share. */
static attn_status carve_backward(backward_arrays *all, const attni_sdpa *call,
                                  const attn_sdpa_grads *grads, attn_arena *arena, size_t slots) {
    const attn_shape *s = &call->shape;
    const size_t heads = total_heads(call), len_k = s->len_k, d = s->d_head;
    const size_t rows = size_min(BAND_ROWS, s->len_q);
    const bool has_dscores = grads->query || grads->key || grads->bias || grads->alibi_slopes ||
                             grads->sinks; /* dV alone needs no dP */
    /* The memory of a call is enough for any gradients: with dbias no less than without, though
     * short packed sequences have fewer pairs than the bands have room for. */
    const size_t bands = size_mul_capped(size_mul_capped(slots, rows), len_k);
    void *sums = NULL;
    *all = (backward_arrays){0};
    ATTNI_TRY(carve(&all->band, arena, has_dscores && !grads->bias, slots, rows, len_k));
    ATTNI_TRY(carve(&all->dscores, arena, grads->bias, 1, size_max(call->pairs, bands), 1));
    ATTNI_TRY(carve(&all->dropped, arena, call->dropout > 0, slots, rows, len_k));
    ATTNI_TRY(carve(&all->capped, arena, call->softcap > 0 && (grads->query || grads->key), slots,
                    rows, len_k));
    ATTNI_TRY(carve(&all->query, arena, true, slots, s->len_q, d));
    ATTNI_TRY(carve(&all->dcontext, arena, true, slots, s->len_q, d));
    ATTNI_TRY(carve(&all->key, arena, true, slots, len_k, d));
    if (grads->sinks)
        ATTNI_TRY(attn_arena_alloc(arena, &sums, heads, sizeof(double)));
    all->dsinks = sums;
    sums = NULL;
    if (grads->alibi_slopes)
        ATTNI_TRY(attn_arena_alloc(arena, &sums, heads, sizeof(double)));
    all->dslopes = sums;
    return ATTN_OK;
}

/* out_h = sum over the samples of what each head of them adds. */
static void sum_over_batch(real *out, const double *sums, const attn_shape *shape) {
    for (size_t h = 0; out && h < shape->num_heads; h++) {
        double sum = 0;
        for (size_t b = 0; b < shape->batch; b++)
            sum += sums[b * shape->num_heads + h];
        out[h] = (real)sum;
    }
}

attn_status attni_reference_backward(const attni_sdpa *call, const attn_sdpa_saved *saved,
                                     const real *dcontext, const attn_strides *dcontext_strides,
                                     const attn_sdpa_grads *grads, attn_arena *arena) {
    const attn_shape *s = &call->shape;
    const size_t group = shape_group(s), slots = num_slots(call, group);
    const size_t groups = total_heads(call) / group;
    const size_t band = size_min(BAND_ROWS, s->len_q) * s->len_k, d = s->d_head;
    const size_t mark = attn_arena_mark(arena);
    backward_arrays all;
    ATTNI_TRY(carve_backward(&all, call, grads, arena, slots));
    if (!arena->measuring) {
#pragma omp parallel for schedule(dynamic) num_threads((int)size_max(1, slots))
        for (size_t n = 0; n < groups; n++) {
            const size_t slot = thread_slot();
            backward_arrays mine = all;
            mine.band = slot_of(all.band, slot, band);
            mine.dropped = slot_of(all.dropped, slot, band);
            mine.capped = slot_of(all.capped, slot, band);
            mine.query = slot_of(all.query, slot, s->len_q * d);
            mine.dcontext = slot_of(all.dcontext, slot, s->len_q * d);
            mine.key = slot_of(all.key, slot, s->len_k * d);
            backward_group(call, saved, dcontext, dcontext_strides, grads, n, &mine);
        }
        const attni_pairs du = {.at = all.dscores,
                                .shape = *s,
                                .offsets_q = call->input->offsets_q,
                                .offsets_k = call->input->offsets_k};
        if (grads->bias)
            attni_bias_backward(grads->bias, &call->input->bias_strides, &du, NULL, call->threads);
        sum_over_batch(grads->sinks, all.dsinks, s);
        sum_over_batch(grads->alibi_slopes, all.dslopes, s);
    }
    return attn_arena_rewind(arena, mark);
}
