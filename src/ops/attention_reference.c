/*
 * The textbook path: scores, softmax and weighted sum of values, one after the other, on every band
 * of every head. P is held whole, (B,H,Lq,Lk), for the backward or where it is asked for.
 *
 *     forward     S = scale·Q Kᵀ, -inf where blocked    (Lq,Lk) = (Lq,d) (d,Lk)
 *                 P = softmax(S)                        (Lq,Lk)
 *                 O = P V                               (Lq,d)  = (Lq,Lk) (Lk,d)
 *
 *     backward    dP = dO Vᵀ,  dV = Pᵀ dO               (Lq,Lk), (Lk,d)
 *                 dS = P ∘ (dP - rowsum(dP ∘ P))        (Lq,Lk)
 *                 dQ = scale·dS K,  dK = scale·dSᵀ Q    (Lq,d), (Lk,d)
 *
 * A task of the forward is a head; one of the backward is the group of heads that share keys and
 * values, so that dK and dV sum over heads and bands in one order for any number of threads.
 */
#include "base/fail.h"
#include "ops/band_ops.h"
#include "ops/parallel.h"
#include "ops/sdpa_internal.h"

#include <math.h>
#include <string.h>

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

/* `count` reals for each of `slots` slots, slot n at n·count. */
static attn_status carve(real **array, attn_arena *arena, size_t slots, size_t rows, size_t width) {
    void *object;
    size_t count;
    if (!size_product(&count, (size_t[]){slots, rows, width}, 3))
        return attni_fail(ATTN_ERROR_OVERFLOW, "attn_sdpa: %zu x %zu x %zu reals: the size wraps",
                          slots, rows, width);
    ATTNI_TRY(attn_arena_alloc(arena, &object, count, sizeof(real)));
    *array = object;
    return ATTN_OK;
}

/* Where head h of sample b lies in a tensor of `num_heads` heads; head = b·num_heads + h. */
static size_t head_offset(size_t head, size_t num_heads, const attn_strides *strides) {
    return head / num_heads * strides->batch + head % num_heads * strides->head;
}

static size_t row_stride(const attni_sdpa *call, const attn_strides *strides) {
    return size_max(strides->token, call->shape.d_head); /* of a single row: anything */
}

static attni_operand q_head(const attni_sdpa *call, size_t head, const real *data,
                            const attn_strides *strides) {
    return operand_at(data, head_offset(head, call->shape.num_heads, strides),
                      row_stride(call, strides));
}

static attni_operand kv_head(const attni_sdpa *call, size_t head, const real *data,
                             const attn_strides *strides) {
    return operand_at(data, head_offset(head, call->shape.num_kv_heads, strides),
                      row_stride(call, strides));
}

static attni_matrix dq_head(const attni_sdpa *call, size_t head, real *data,
                            const attn_strides *strides) {
    return matrix_at(data, head_offset(head, call->shape.num_heads, strides),
                     row_stride(call, strides));
}

static attni_matrix dkv_head(const attni_sdpa *call, size_t head, real *data,
                             const attn_strides *strides) {
    return matrix_at(data, head_offset(head, call->shape.num_kv_heads, strides),
                     row_stride(call, strides));
}

/* Scratch of one thread, and where P goes. */
typedef struct forward_arrays {
    real *value;          /* (Lk, d): v without rows that are not finite */
    real *weights;        /* P (B,H,Lq,Lk), or NULL: */
    real *band;           /* a band of it, (BAND_ROWS,Lk), is enough */
    real *weights_wanted; /* a copy of P for the caller, or NULL */
} forward_arrays;

static void forward_head(const attni_sdpa *call, const attn_sdpa_output *output, size_t head,
                         const forward_arrays *arrays) {
    const attn_sdpa_input *in = call->input;
    const size_t len_q = call->shape.len_q, len_k = call->shape.len_k;
    const size_t shared = head / shape_group(&call->shape);
    const attni_operand q = q_head(call, head, in->query, &in->query_strides);
    const attni_operand k = kv_head(call, shared, in->key, &in->key_strides);
    attni_operand v = kv_head(call, shared, in->value, &in->value_strides);
    const attni_matrix o = dq_head(call, head, output->context, &output->context_strides);
    attni_operand_clean(&v, len_k, call->shape.d_head, arrays->value);
    for (size_t i = 0; i < len_q; i += BAND_ROWS) {
        const attni_band band = band_at(&call->mask, &call->shape, head, i);
        const size_t row = head * len_q + i;
        /* softmax works in place: s turns into p */
        real *p = arrays->weights ? arrays->weights + row * len_k : arrays->band;
        attni_scores_band_forward((attni_matrix){p, len_k}, q, k, call->scale, &band);
        for (size_t r = 0; r < band.rows; r++)
            attni_softmax_row_forward(p + r * len_k, output->lse ? output->lse + row + r : NULL,
                                      p + r * len_k, band.keys);
        attni_values_band_forward(o, operand_at(p, 0, len_k), v, &band);
        if (arrays->weights)
            attni_band_fill_beyond(&band, p, len_k, 0);
        if (arrays->weights_wanted)
            memcpy(arrays->weights_wanted + row * len_k, p, band.rows * len_k * sizeof(real));
    }
}

attn_status attni_reference_forward(const attni_sdpa *call, const attn_sdpa_output *output,
                                    attn_arena *arena, attn_sdpa_saved *saved) {
    const attn_shape *shape = &call->shape;
    size_t heads = total_heads(call), slots = num_slots(call, 1);
    forward_arrays all = {.weights = saved ? NULL : output->weights};
    ATTNI_TRY(attni_pairs_check("attn_sdpa_forward, reference", shape));
    if (saved)
        ATTNI_TRY(carve(&all.weights, arena, heads, shape->len_q, shape->len_k));
    size_t mark = attn_arena_mark(arena);
    if (!saved && !output->weights)
        ATTNI_TRY(carve(&all.band, arena, slots, size_min(BAND_ROWS, shape->len_q), shape->len_k));
    ATTNI_TRY(carve(&all.value, arena, slots, shape->len_k, shape->d_head));
    if (saved) {
        saved->weights = all.weights;
        all.weights_wanted = output->weights;
    }
    if (!arena->measuring) {
#pragma omp parallel for schedule(dynamic) num_threads((int)size_max(1, slots))
        for (size_t head = 0; head < heads; head++) {
            size_t slot = thread_slot();
            forward_arrays mine = all;
            if (all.band)
                mine.band += slot * size_min(BAND_ROWS, shape->len_q) * shape->len_k;
            mine.value += slot * shape->len_k * shape->d_head;
            forward_head(call, output, head, &mine);
        }
    }
    return attn_arena_rewind(arena, mark);
}

/* Scratch of one thread. */
typedef struct backward_arrays {
    real *band;             /* (BAND_ROWS,Lk): dP, which turns into dS */
    real *query, *dcontext; /* (Lq,d): q and dO without rows that are not finite */
    real *key;              /* (Lk,d): k alike */
} backward_arrays;

static void zero_rows(attni_matrix m, size_t rows, size_t width) {
    for (size_t t = 0; m.data && t < rows; t++)
        memset(m.data + t * m.stride, 0, width * sizeof(real));
}

/* What the heads of a group share: k and v, and the dk and dv that they add to. */
typedef struct shared_rows {
    attni_operand k, v;
    attni_matrix dk, dv;
} shared_rows;

static void backward_head(const attni_sdpa *call, const real *weights, attni_operand d_o,
                          attni_matrix dq, const shared_rows *shared, size_t head,
                          const backward_arrays *arrays) {
    const size_t len_q = call->shape.len_q, len_k = call->shape.len_k, d = call->shape.d_head;
    attni_operand q = q_head(call, head, call->input->query, &call->input->query_strides);
    real *ds = dq.data || shared->dk.data ? arrays->band : NULL; /* dV alone needs no dP, dS */
    attni_operand_clean(&q, len_q, d, arrays->query);
    attni_operand_clean(&d_o, len_q, d, arrays->dcontext);
    for (size_t i = 0; i < len_q; i += BAND_ROWS) {
        const attni_band band = band_at(&call->mask, &call->shape, head, i);
        const attni_operand p = operand_at(weights, (head * len_q + i) * len_k, len_k);
        attni_values_band_backward((attni_matrix){ds, len_k}, shared->dv, d_o, p, shared->v, &band);
        if (!ds)
            continue;
        for (size_t r = 0; r < band.rows; r++)
            attni_softmax_row_backward(ds + r * len_k, ds + r * len_k, p.data + r * len_k,
                                       band.keys);
        /* 0 already, except in a row whose sum is NaN */
        attni_band_fill_blocked(&band, ds, len_k, 0);
        attni_scores_band_backward(dq, shared->dk, operand_at(ds, 0, len_k), q, shared->k,
                                   call->scale, &band);
    }
}

/* The heads that read key-value head `group`, one after the other. */
static void backward_group(const attni_sdpa *call, const real *weights, const real *dcontext,
                           const attn_strides *dcontext_strides, const attn_sdpa_grads *grads,
                           size_t group, const backward_arrays *arrays) {
    const attn_sdpa_input *in = call->input;
    const size_t len_k = call->shape.len_k, d = call->shape.d_head;
    const size_t heads = shape_group(&call->shape);
    shared_rows shared = {.k = kv_head(call, group, in->key, &in->key_strides),
                          .v = kv_head(call, group, in->value, &in->value_strides),
                          .dk = dkv_head(call, group, grads->key, &grads->key_strides),
                          .dv = dkv_head(call, group, grads->value, &grads->value_strides)};
    attni_operand_clean(&shared.k, len_k, d, arrays->key);
    zero_rows(shared.dk, len_k, d);
    zero_rows(shared.dv, len_k, d);
    for (size_t head = group * heads; head < (group + 1) * heads; head++)
        backward_head(call, weights, q_head(call, head, dcontext, dcontext_strides),
                      dq_head(call, head, grads->query, &grads->query_strides), &shared, head,
                      arrays);
}

attn_status attni_reference_backward(const attni_sdpa *call, const attn_sdpa_saved *saved,
                                     const real *dcontext, const attn_strides *dcontext_strides,
                                     const attn_sdpa_grads *grads, attn_arena *arena) {
    const attn_shape *shape = &call->shape;
    size_t group = shape_group(shape), slots = num_slots(call, group);
    size_t groups = total_heads(call) / group;
    size_t band_rows = size_min(BAND_ROWS, shape->len_q);
    size_t len_q = shape->len_q, len_k = shape->len_k, d = shape->d_head;
    size_t mark = attn_arena_mark(arena);
    backward_arrays all;
    ATTNI_TRY(carve(&all.band, arena, slots, band_rows, len_k));
    ATTNI_TRY(carve(&all.query, arena, slots, len_q, d));
    ATTNI_TRY(carve(&all.dcontext, arena, slots, len_q, d));
    ATTNI_TRY(carve(&all.key, arena, slots, len_k, d));
    if (!arena->measuring) {
#pragma omp parallel for schedule(dynamic) num_threads((int)size_max(1, slots))
        for (size_t n = 0; n < groups; n++) {
            size_t slot = thread_slot();
            backward_arrays mine = {.band = all.band + slot * band_rows * len_k,
                                    .query = all.query + slot * len_q * d,
                                    .dcontext = all.dcontext + slot * len_q * d,
                                    .key = all.key + slot * len_k * d};
            backward_group(call, saved->weights, dcontext, dcontext_strides, grads, n, &mine);
        }
    }
    return attn_arena_rewind(arena, mark);
}
