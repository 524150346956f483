/*
 * sdpa_head.h (internal) - one head of one sample of a call: its sizes, its mask, what is done to
 * its scores, and where it lies in each array.
 */
#ifndef ATTNI_SDPA_HEAD_H
#define ATTNI_SDPA_HEAD_H

#include "ops/sdpa_internal.h"

typedef struct attni_head {
    size_t index, b, h; /* index = b·H + h */
    attn_shape shape;
    attni_mask mask;
    attni_head_terms terms;
    const real *sink; /* or NULL */
    size_t row;       /* of its first query in (B,H,Lq) */
    size_t pair;      /* of its first pair in (B,H,Lq,Lk) */
} attni_head;

static inline attni_head head_at(const attni_sdpa *call, size_t index) {
    const attn_shape *s = &call->shape;
    const attn_sdpa_input *in = call->input;
    const attn_broadcast *bias = &in->bias_strides;
    const size_t b = index / s->num_heads, h = index % s->num_heads;
    return (attni_head){
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
                  .slope = sdpa_slope(call, h),
                  .place = (double)call->mask.offset},
        .sink = in->sinks ? in->sinks + h : NULL,
        .row = index * s->len_q,
        .pair = index * s->len_q * s->len_k,
    };
}

/* Where head h of the head's sample begins in a tensor. */
static inline size_t head_place(const attni_head *head, size_t h, const attn_strides *strides) {
    return head->b * strides->batch + h * strides->head;
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
    return operand_at(data, head_place(head, head->h, strides), head_step(head, strides));
}

static inline attni_matrix head_dquery(const attni_head *head, real *data,
                                       const attn_strides *strides) {
    return matrix_at(data, head_place(head, head->h, strides), head_step(head, strides));
}

/* ... and in one of keys or values, (B,Hkv,Lk,d). */
static inline attni_operand head_key(const attni_head *head, const real *data,
                                     const attn_strides *strides) {
    return operand_at(data, head_place(head, head_kv(head), strides), head_step(head, strides));
}

static inline attni_matrix head_dkey(const attni_head *head, real *data,
                                     const attn_strides *strides) {
    return matrix_at(data, head_place(head, head_kv(head), strides), head_step(head, strides));
}

#endif
