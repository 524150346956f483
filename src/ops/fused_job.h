/*
 * fused_job.h (internal) - one call of the fused path: what its heads are made of, how its work is
 * cut into tasks, and who does them.
 */
#ifndef ATTNI_FUSED_JOB_H
#define ATTNI_FUSED_JOB_H

#include "base/size.h"
#include "kernels/kernels.h"
#include "ops/sdpa_head.h"

typedef struct attni_fused_job attni_fused_job;

struct attni_fused_job {
    const attni_sdpa *call;
    const attni_kernels *kernels;
    void (*task)(const attni_fused_job *job, size_t task, real *scratch);
    const attn_sdpa_output *output;
    const attn_sdpa_grads *grads; /* NULL in the forward */
    const real *dcontext;
    attn_strides dcontext_strides;
    real *row_max, *row_sum; /* (B,H,Lq), or NULL */
    double *dslopes;         /* (B,H,parts), or NULL */
    real *weights;           /* if they are what is wanted: of the heads from first_head on */
    size_t first_head;

    size_t parts;          /* forward: ranges of queries of a head; backward: n */
    size_t part_q, part_k; /* tokens in each but the last */
    size_t first_q, first_k;
    size_t chain_samples, chain_heads; /* that follow each other in a task of the backward */
    bool banded;                       /* a window on both sides of the diagonal */
    size_t tasks;                      /* of the forward, or of a round of the backward */
    size_t round;
    size_t slots; /* threads with scratch */
    bool small;   /* many short tasks */
    real *scratch;
    size_t scratch_size; /* reals of one slot */
};

static inline attni_rows rows_of(attni_operand rows) {
    return (attni_rows){rows.data, rows.stride};
}

static inline attni_rows_out rows_out(attni_matrix rows) {
    return (attni_rows_out){rows.data, rows.stride};
}

/* offset + ahead - back, held within -Lq .. Lk: at or beyond the ends it is no bound, or one that
 * hides everything, whatever the number. */
static inline int64_t bound_within(int64_t offset, size_t ahead, size_t back,
                                   const attn_shape *shape) {
    const size_t lift = shape->len_q; /* i + bound = place - lift for i = 0 */
    const size_t place = mask_place(lift, offset, ahead, back, size_add_capped(shape->len_k, lift));
    return (int64_t)place - (int64_t)lift;
}

static inline int64_t low_bound(const attni_mask *mask, const attn_shape *shape) {
    return mask->window.left_on ? bound_within(mask->offset, 0, mask->window.left, shape)
                                : -(int64_t)shape->len_q;
}

static inline int64_t high_bound(const attni_mask *mask, const attn_shape *shape) {
    if (mask->causal)
        return bound_within(mask->offset, 0, 0, shape);
    return mask->window.right_on ? bound_within(mask->offset, mask->window.right, 0, shape)
                                 : (int64_t)shape->len_k;
}

/* Part `part` of `parts`, of `size` tokens from `first` on. What lies before and behind all of them
 * belongs to the first and to the last. */
static inline attni_range part_of(size_t part, size_t parts, size_t first, size_t size,
                                  size_t len) {
    const size_t begin = size_min(first + part * size, len);
    return (attni_range){part == 0 ? 0 : begin,
                         part + 1 == parts ? len : size_min(begin + size, len)};
}

/* What the kernels are told of a head; its numbers of rows are those of its own sequence. */
attni_fused_head attni_fused_head_of(const attni_fused_job *job, const attni_head *of);

/* How many threads, of at most `most` tasks; then scratch for so many. */
attn_status attni_fused_carve(attni_fused_job *job, size_t most, attn_arena *arena);

/* Does all tasks. */
void attni_fused_run(const attni_fused_job *job);

#endif
