/*
 * terms.h - problems with softcap, bias, ALiBi, sinks and dropout, on top of problem.h.
 */
#ifndef TERMS_H
#define TERMS_H

#include "problem.h"

typedef struct term_plan {
    double softcap, dropout;
    size_t bias_rank;   /* 0 = none, else 2, 3 or 4 dimensions ... */
    unsigned bias_ones; /* ... of which these are 1: bit 0 the last (keys), bit 1 queries, ... */
    bool alibi, slopes; /* standard ones, or given */
    bool sinks;
} term_plan;

static const term_plan problem_terms[] = {
    {.softcap = 0.8},
    {.bias_rank = 2},
    {.bias_rank = 2, .bias_ones = 1},
    {.bias_rank = 2, .bias_ones = 2},
    {.bias_rank = 2, .bias_ones = 3},
    {.bias_rank = 3},
    {.bias_rank = 3, .bias_ones = 5},
    {.bias_rank = 4},
    {.bias_rank = 4, .bias_ones = 2},
    {.bias_rank = 4, .bias_ones = 8},
    {.bias_rank = 4, .bias_ones = 11},
    {.alibi = true},
    {.alibi = true, .slopes = true},
    {.sinks = true},
    {.dropout = 0.3},
    {.dropout = 0.9, .sinks = true},
    {.softcap = 2, .bias_rank = 4, .alibi = true, .slopes = true},
    {.softcap = 1.5, .bias_rank = 2, .alibi = true, .sinks = true, .dropout = 0.25},
};

enum { TERMS = sizeof problem_terms / sizeof *problem_terms };

/* A problem and the arrays of its terms. */
typedef struct term_problem {
    problem base;
    attn_sdpa_config config;
    attn_real *bias, *slopes, *sinks, *dbias, *dslopes, *dsinks;
    size_t bias_count;
} term_problem;

/* The contiguous array of a plan's bias: its number of elements, and strides that broadcast it. */
static inline size_t terms_bias_shape(attn_broadcast *strides, const term_plan *plan,
                                      const attn_shape *s) {
    const size_t full[4] = {s->batch, s->num_heads, s->len_q, s->len_k};
    size_t dims[4], rank = 0, count = 1;
    for (size_t axis = 0; axis < 4; axis++) {
        if ((axis == 0 && plan->bias_rank < 3) || (axis == 1 && plan->bias_rank < 4))
            continue;
        dims[rank] = plan->bias_ones >> (3 - axis) & 1 ? 1 : full[axis];
        count *= dims[rank++];
    }
    test_ok(
        attn_broadcast_strides(strides, dims, rank, s->batch, s->num_heads, s->len_q, s->len_k));
    return count;
}

static inline size_t terms_bias_at(const term_problem *p, size_t b, size_t h, size_t i, size_t j) {
    const attn_broadcast *s = &p->base.in.bias_strides;
    return b * s->batch + h * s->head + i * s->query + j * s->key;
}

/* One in six is -inf; where a mask blocks all that an element stands for, it is NaN. */
static inline void terms_fill_bias(term_problem *p, uint64_t seed) {
    const attn_shape *s = &p->base.shape;
    attn_random random = attn_random_seed(seed, 0xB1A5);
    bool *seen = calloc(p->bias_count + 1, sizeof *seen);
    ck_assert_ptr_nonnull(seen);
    for (size_t b = 0; b < s->batch; b++)
        for (size_t h = 0; h < s->num_heads; h++)
            for (size_t i = 0; i < s->len_q; i++)
                for (size_t j = 0; j < s->len_k; j++)
                    if (oracle_allows(&p->base.in.mask, s, b, h, i, j))
                        seen[terms_bias_at(p, b, h, i, j)] = true;
    for (size_t n = 0; n < p->bias_count; n++)
        p->bias[n] = !seen[n]                             ? (attn_real)NAN
                     : attn_random_below(&random, 6) == 0 ? (attn_real)-INFINITY
                                                          : (attn_real)attn_random_normal(&random);
    free(seen);
}

static inline term_problem terms_make(attn_shape s, layout form, const mask_plan *masks,
                                      const term_plan *plan, uint64_t seed) {
    term_problem p = {
        .base = problem_make(s, form, masks, seed),
        .config = {.softcap = plan->softcap, .dropout = plan->dropout, .alibi = plan->alibi}};
    attn_sdpa_input *in = &p.base.in;
    in->dropout_seed = seed * UINT64_C(0x9E3779B97F4A7C15);
    if (plan->bias_rank) {
        p.bias_count = terms_bias_shape(&in->bias_strides, plan, &s);
        p.bias = test_poison(p.bias_count);
        terms_fill_bias(&p, seed);
        in->bias = p.bias;
        p.base.grads.bias = p.dbias = test_poison(p.bias_count);
    }
    if (plan->slopes) {
        in->alibi_slopes = p.slopes = test_normal(s.num_heads, 0.1, seed + 5);
    }
    if (plan->alibi)
        p.base.grads.alibi_slopes = p.dslopes = test_poison(s.num_heads);
    if (plan->sinks) {
        in->sinks = p.sinks = test_normal(s.num_heads, 1, seed + 6);
        p.base.grads.sinks = p.dsinks = test_poison(s.num_heads);
    }
    return p;
}

static inline void terms_free(term_problem *p) {
    attn_real *const all[] = {p->bias, p->slopes, p->sinks, p->dbias, p->dslopes, p->dsinks};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        free(all[n]);
    problem_free(&p->base);
}

/* The gradient of every pair, summed to the places of the bias. */
static inline attn_real *terms_reduce(const term_problem *p, const attn_real *pairs) {
    const attn_shape *s = &p->base.shape;
    double *sums = calloc(p->bias_count + 1, sizeof *sums);
    attn_real *out = test_poison(p->bias_count);
    ck_assert_ptr_nonnull(sums);
    for (size_t b = 0; b < s->batch; b++)
        for (size_t h = 0; h < s->num_heads; h++)
            for (size_t i = 0; i < s->len_q; i++)
                for (size_t j = 0; j < s->len_k; j++)
                    sums[terms_bias_at(p, b, h, i, j)] += (double)*pairs++;
    for (size_t n = 0; n < p->bias_count; n++)
        out[n] = (attn_real)sums[n];
    free(sums);
    return out;
}

/* Runs a problem on a path and holds every result against the loops. */
static inline void terms_check(const char *what, term_problem *p, double tolerance) {
    problem *base = &p->base;
    const attn_shape *s = &base->shape;
    oracle want = oracle_run(&p->config, &base->in, base->d_o.data, base->d_o.strides);
    problem_run(&p->config, base);
    attn_real *dbias = terms_reduce(p, want.dbias);
    const struct {
        const char *name;
        const tensor *got;
        const attn_real *want;
    } tensors[] = {{"o", &base->o, want.o},
                   {"dq", &base->dq, want.dq},
                   {"dk", &base->dk, want.dk},
                   {"dv", &base->dv, want.dv}};
    const struct {
        const char *name;
        const attn_real *got, *want;
        size_t count;
    } arrays[] = {{"lse", base->lse, want.lse, s->batch * s->num_heads * s->len_q},
                  {"dbias", p->dbias, dbias, p->dbias ? p->bias_count : 0},
                  {"dsinks", p->dsinks, want.dsinks, p->dsinks ? s->num_heads : 0},
                  {"dslopes", p->dslopes, want.dslopes, p->dslopes ? s->num_heads : 0}};
    char line[256];
    for (size_t n = 0; n < 8; n++) {
        snprintf(line, sizeof line, "%s of %s, kernel %d, B%zu H%zu/%zu Lq%zu Lk%zu d%zu",
                 n < 4 ? tensors[n].name : arrays[n - 4].name, what, (int)p->config.kernel,
                 s->batch, s->num_heads, s->num_kv_heads, s->len_q, s->len_k, s->d_head);
        if (n < 4)
            tensor_check(line, tensors[n].got, tensors[n].want, tolerance, tolerance);
        else
            test_close(line, arrays[n - 4].got, arrays[n - 4].want, arrays[n - 4].count,
                       n == 5 ? 16 * tolerance : tolerance, tolerance); /* sums near 0 */
    }
    free(dbias);
    oracle_free(&want);
}

#endif
