/*
 * problem.h - random attention problems: tensors in several layouts between NaN guards, and masks
 * of every kind.
 */
#ifndef PROBLEM_H
#define PROBLEM_H

#include "oracle.h"

/* A tensor (B,H,T,d) inside a block of NaN, which surrounds it and fills its gaps. */
typedef struct tensor {
    attn_real *block, *data;
    attn_strides strides;
    size_t heads, num_heads, len, width, size; /* size: reals of the block */
} tensor;

typedef enum layout { BTHD, BHTD, BTHD_GAPS, LAYOUT_COUNT } layout;

enum { TENSOR_GUARD = 37 };

static inline tensor tensor_make(layout form, const attn_shape *s, size_t num_heads, size_t len) {
    tensor t = {.heads = s->batch * num_heads,
                .num_heads = num_heads,
                .len = len,
                .width = s->d_head,
                .strides = form == BHTD ? attn_strides_bhtd(len, num_heads, s->d_head)
                                        : attn_strides_bthd(len, num_heads, s->d_head)};
    if (form == BTHD_GAPS) /* 3 reals after each head, 5 after each token, 7 after each sample */
        t.strides = (attn_strides){.head = s->d_head + 3,
                                   .token = num_heads * (s->d_head + 3) + 5,
                                   .batch = len * (num_heads * (s->d_head + 3) + 5) + 7,
                                   .element = 1};
    t.size = 2 * TENSOR_GUARD + s->batch * t.strides.batch;
    if (form == BHTD)
        t.size = 2 * TENSOR_GUARD + t.heads * len * t.width;
    t.block = test_poison(t.size);
    t.data = t.block + TENSOR_GUARD;
    return t;
}

static inline attn_real *tensor_row(const tensor *t, size_t head, size_t token) {
    return t->data + oracle_at(&t->strides, head / t->num_heads, head % t->num_heads, token);
}

static inline void tensor_fill_normal(tensor *t, double deviation, uint64_t seed) {
    attn_random random = attn_random_seed(seed, 0x7E5);
    for (size_t head = 0; head < t->heads; head++)
        for (size_t n = 0; n < t->len * t->width; n++)
            tensor_row(t, head, n / t->width)[n % t->width] =
                (attn_real)(deviation * attn_random_normal(&random));
}

/* Compares with contiguous (B,H,T,d) and sees that nothing else in the block was written. */
static inline void tensor_check(const char *what, const tensor *t, const attn_real *want,
                                double absolute, double relative) {
    size_t count = t->heads * t->len * t->width, written = 0, wanted = 0;
    attn_real *got = test_poison(count);
    for (size_t n = 0; n < count; n++) {
        size_t row = n / t->width;
        got[n] = tensor_row(t, row / t->len, row % t->len)[n % t->width];
        wanted += isnan(got[n]) ? 0 : 1;
    }
    test_close(what, got, want, count, absolute, relative);
    for (size_t n = 0; n < t->size; n++)
        written += isnan(t->block[n]) ? 0 : 1;
    ck_assert_msg(written == wanted, "%s: %zu reals written outside of the tensor", what,
                  written - wanted);
    free(got);
}

/* How the masks of a problem are made. Zeroed: none. */
typedef struct mask_plan {
    bool padding;         /* a random third of the keys */
    size_t attend_rank;   /* 0 = none, else 2, 3 or 4 dimensions ... */
    unsigned attend_ones; /* ... of which these are 1: bit 0 the last (keys), bit 1 queries, ... */
    bool causal;
    attn_causal_align align;
    int64_t offset;
    bool block_row; /* with attend: query 0 of every head may see nothing */
    attn_window window;
} mask_plan;

/* Masks of every kind, alone and together; the last ones combine all. */
static const mask_plan problem_plans[] = {
    {0},
    {.padding = true},
    {.attend_rank = 2},
    {.attend_rank = 2, .attend_ones = 1},
    {.attend_rank = 2, .attend_ones = 2},
    {.attend_rank = 2, .attend_ones = 3},
    {.attend_rank = 3},
    {.attend_rank = 3, .attend_ones = 2},
    {.attend_rank = 4},
    {.attend_rank = 4, .attend_ones = 4},
    {.attend_rank = 4, .attend_ones = 8},
    {.attend_rank = 4, .block_row = true},
    {.causal = true},
    {.causal = true, .align = ATTN_CAUSAL_TOP_LEFT},
    {.causal = true, .align = ATTN_CAUSAL_OFFSET, .offset = 3},
    {.causal = true, .align = ATTN_CAUSAL_OFFSET, .offset = -2},
    {.causal = true, .align = ATTN_CAUSAL_OFFSET, .offset = INT64_MIN},
    {.causal = true, .align = ATTN_CAUSAL_OFFSET, .offset = INT64_MAX},
    {.padding = true, .attend_rank = 4, .causal = true},
    {.padding = true,
     .attend_rank = 3,
     .attend_ones = 4,
     .causal = true,
     .offset = -1,
     .align = ATTN_CAUSAL_OFFSET,
     .block_row = true},
};

/* Windows. */
static const mask_plan problem_windows[] = {
    {.window = {.left_on = true, .left = 2}},
    {.window = {.right_on = true, .right = 1}, .align = ATTN_CAUSAL_TOP_LEFT},
    {.window = {.left_on = true, .right_on = true, .left = 0, .right = 0}},
    {.window = {.left_on = true, .right_on = true, .left = 3, .right = 1},
     .align = ATTN_CAUSAL_OFFSET,
     .offset = -2},
    {.causal = true, .window = {.left_on = true, .left = 7}},
    {.causal = true, .window = {.left_on = true, .right_on = true, .left = 40, .right = 9}},
    {.window = {.left_on = true, .right_on = true, .left = SIZE_MAX, .right = SIZE_MAX}},
    {.window = {.left_on = true, .left = SIZE_MAX},
     .align = ATTN_CAUSAL_OFFSET,
     .offset = INT64_MIN},
    {.window = {.right_on = true, .right = SIZE_MAX},
     .align = ATTN_CAUSAL_OFFSET,
     .offset = INT64_MIN},
    {.window = {.left_on = true, .left = 5}, .align = ATTN_CAUSAL_OFFSET, .offset = INT64_MAX},
    {.padding = true, .attend_rank = 4, .causal = true, .window = {.left_on = true, .left = 11}},
};

enum { WINDOWS = sizeof problem_windows / sizeof *problem_windows };

enum { PLANS = sizeof problem_plans / sizeof *problem_plans };

typedef struct problem {
    attn_shape shape;
    tensor q, k, v, o, d_o, dq, dk, dv;
    uint8_t *padding, *attend;
    attn_real *lse;
    attn_sdpa_input in;
    attn_sdpa_output out;
    attn_sdpa_grads grads;
} problem;

static inline uint8_t *problem_attend(const mask_plan *plan, const attn_shape *s,
                                      attn_broadcast *strides, uint64_t seed) {
    const size_t full[4] = {s->batch, s->num_heads, s->len_q, s->len_k};
    size_t four[4], dims[4], count = 1;
    for (size_t axis = 0; axis < 4; axis++) {
        bool absent = (axis == 0 && plan->attend_rank < 3) || (axis == 1 && plan->attend_rank < 4);
        four[axis] = absent || (plan->attend_ones >> (3 - axis) & 1) ? 1 : full[axis];
        count *= four[axis];
    }
    size_t rank = 0; /* (Lq,Lk), (B,Lq,Lk) or (B,H,Lq,Lk) */
    for (size_t axis = 0; axis < 4; axis++)
        if (axis >= 2 || (axis == 0 && plan->attend_rank >= 3) ||
            (axis == 1 && plan->attend_rank == 4))
            dims[rank++] = four[axis];
    test_ok(
        attn_broadcast_strides(strides, dims, rank, s->batch, s->num_heads, s->len_q, s->len_k));
    uint8_t *attend = malloc(count + 1);
    ck_assert_ptr_nonnull(attend);
    attn_random random = attn_random_seed(seed, 0xA77);
    static const uint8_t bytes[5] = {0, 0, 1, 2, 255};
    for (size_t n = 0; n < count; n++) {
        bool first_row = n / four[3] % four[2] == 0;
        attend[n] = plan->block_row && first_row ? 0 : bytes[attn_random_below(&random, 5)];
    }
    return attend;
}

static inline problem problem_make(attn_shape s, layout form, const mask_plan *plan,
                                   uint64_t seed) {
    problem p = {.shape = s};
    tensor *const over_q[4] = {&p.q, &p.o, &p.d_o, &p.dq};
    tensor *const over_k[4] = {&p.k, &p.v, &p.dk, &p.dv};
    for (size_t n = 0; n < 4; n++) {
        /* dO lies differently from O, so that a path that takes one's strides for both shows. */
        *over_q[n] =
            tensor_make(n == 2 ? (form + 1) % LAYOUT_COUNT : form, &s, s.num_heads, s.len_q);
        *over_k[n] = tensor_make(form, &s, oracle_kv_heads(&s), s.len_k);
    }
    tensor_fill_normal(&p.q, 1, seed);
    tensor_fill_normal(&p.k, 1, seed + 1);
    tensor_fill_normal(&p.v, 1, seed + 2);
    tensor_fill_normal(&p.d_o, 1, seed + 3);
    p.lse = test_poison(s.batch * s.num_heads * s.len_q);
    p.in = (attn_sdpa_input){.shape = s,
                             .query = p.q.data,
                             .key = p.k.data,
                             .value = p.v.data,
                             .query_strides = p.q.strides,
                             .key_strides = p.k.strides,
                             .value_strides = p.v.strides,
                             .mask = {.causal = plan->causal,
                                      .causal_align = plan->align,
                                      .causal_offset = plan->offset,
                                      .window = plan->window}};
    p.out = (attn_sdpa_output){.context = p.o.data, .context_strides = p.o.strides, .lse = p.lse};
    p.grads = (attn_sdpa_grads){.query = p.dq.data,
                                .key = p.dk.data,
                                .value = p.dv.data,
                                .query_strides = p.dq.strides,
                                .key_strides = p.dk.strides,
                                .value_strides = p.dv.strides};
    if (plan->padding) {
        p.padding = malloc(s.batch * s.len_k + 1);
        ck_assert_ptr_nonnull(p.padding);
        attn_random random = attn_random_seed(seed, 0xBAD);
        static const uint8_t bytes[6] = {0, 0, 0, 0, 2, 255};
        for (size_t n = 0; n < s.batch * s.len_k; n++)
            p.padding[n] = bytes[attn_random_below(&random, 6)];
        p.in.mask.padding = p.padding;
    }
    if (plan->attend_rank) {
        p.attend = problem_attend(plan, &s, &p.in.mask.attend_strides, seed);
        p.in.mask.attend = p.attend;
    }
    return p;
}

static inline void problem_free(problem *p) {
    const tensor *const all[8] = {&p->q, &p->k, &p->v, &p->o, &p->d_o, &p->dq, &p->dk, &p->dv};
    for (size_t n = 0; n < 8; n++)
        free(all[n]->block);
    free(p->lse);
    free(p->padding);
    free(p->attend);
}

/* Forward that saves, then the backward, in an arena of exactly the announced size. */
static inline void problem_run(const attn_sdpa_config *config, problem *p) {
    attn_memory need;
    attn_sdpa_saved saved;
    test_ok(attn_sdpa_memory(config, &p->in, &p->out, &need));
    attn_arena arena = test_arena(need.training);
    test_ok(attn_sdpa_forward(config, &p->in, &p->out, &arena, &saved));
    ck_assert_uint_eq(arena.used, need.saved);
    test_ok(attn_sdpa_backward(config, &saved, p->d_o.data, &p->d_o.strides, &p->grads, &arena));
    ck_assert_uint_eq(arena.used, need.saved);
    ck_assert_uint_eq(arena.high_water, need.training);
    attn_arena_destroy(&arena);
}

#endif
