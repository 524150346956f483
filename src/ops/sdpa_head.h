/*
 * sdpa_head.h (internal) - one head of one sample of a call: its sizes, its mask, what is done to
 * its scores, and where it lies in each array. Packed sequences are samples with sizes of their
 * own.
 */
#ifndef ATTNI_SDPA_HEAD_H
#define ATTNI_SDPA_HEAD_H

#include "ops/sdpa_internal.h"

typedef struct attni_head {
    size_t index, b, h; /* index = b·H + h */
    attn_shape shape;
    attni_mask mask;
    attni_head_terms terms;
    const real *sink;        /* or NULL */
    bool packed;             /* its tokens begin at ... */
    size_t first_q, first_k; /* ... these of all */
    size_t row;              /* of its first query in (B,H,Lq) */
    size_t pair;             /* of its first pair in (B,H,Lq,Lk) */
} attni_head;

/* Sizes and places of a head of a packed sequence. */
static inline void head_unpack(attni_head *head, const attni_sdpa *call) {
    const size_t *q = call->input->offsets_q, *k = call->input->offsets_k;
    const size_t b = head->b, len_q = q[b + 1] - q[b], len_k = k[b + 1] - k[b];
    head->packed = true;
    head->shape.len_q = len_q;
    head->shape.len_k = len_k;
    head->first_q = len_q > 0 ? q[b] : 0; /* behind the last token nothing need be an address */
    head->first_k = len_k > 0 ? k[b] : 0;
    head->row = head->h * call->tokens.len_q + q[b];
    head->pair = head->h * len_q * len_k;
    for (size_t n = 0; n < b; n++)
        head->pair += call->shape.num_heads * (q[n + 1] - q[n]) * (k[n + 1] - k[n]);
    if (call->input->mask.causal_align == ATTN_CAUSAL_BOTTOM_RIGHT)
        head->mask.offset = (int64_t)len_k - (int64_t)len_q;
}

static inline attni_head head_at(const attni_sdpa *call, size_t index) {
    const attn_shape *s = &call->shape;
    const attn_sdpa_input *in = call->input;
    const attn_broadcast *bias = &in->bias_strides;
    const size_t b = index / s->num_heads, h = index % s->num_heads;
    attni_head head = {
        .index = index,
        .b = b,
        .h = h,
        .shape = *s,
        .mask = call->mask,
        .terms = {.softcap = (real)call->softcap,
                  .bias = in->bias ? in->bias + broadcast_row(bias, b, h, 0) : NULL,
                  .bias_query = bias->query,
                  .bias_key = bias->key,
                  .alibi = call->alibi,
                  .slope = sdpa_slope(call, h)},
        .sink = in->sinks ? in->sinks + h : NULL,
        .row = index * s->len_q,
        .pair = index * s->len_q * s->len_k,
    };
    if (in->offsets_q)
        head_unpack(&head, call);
    head.terms.place = (double)head.mask.offset;
    return head;
}

/* Where head h of the head's sample begins in a tensor, `first` being its first token. */
static inline size_t head_place(const attni_head *head, size_t h, size_t first,
                                const attn_strides *strides) {
    return (head->packed ? first * strides->token : head->b * strides->batch) + h * strides->head;
}

static inline size_t head_step(const attni_head *head, const attn_strides *strides) {
    return size_max(strides->token, head->shape.d_head); /* of a single row: anything */
}

static inline size_t head_kv(const attni_head *head) {
    return head->h / shape_group(&head->shape);
}

/* Its rows in a tensor (B,H,Lq,d) ... */
static inline attni_operand head_query(const attni_head *head, const real *data,
                                       const attn_strides *strides) {
    return operand_at(data, head_place(head, head->h, head->first_q, strides),
                      head_step(head, strides));
}

static inline attni_matrix head_dquery(const attni_head *head, real *data,
                                       const attn_strides *strides) {
    return matrix_at(data, head_place(head, head->h, head->first_q, strides),
                     head_step(head, strides));
}

/* ... and in one of keys or values, (B,Hkv,Lk,d). */
static inline attni_operand head_key(const attni_head *head, const real *data,
                                     const attn_strides *strides) {
    return operand_at(data, head_place(head, head_kv(head), head->first_k, strides),
                      head_step(head, strides));
}

static inline attni_matrix head_dkey(const attni_head *head, real *data,
                                     const attn_strides *strides) {
    return matrix_at(data, head_place(head, head_kv(head), head->first_k, strides),
                     head_step(head, strides));
}

#endif
