/*
 * core.h - one attn_sdpa call on contiguous arrays, its gradients, and these against differences.
 */
#ifndef CORE_H
#define CORE_H

#include "lesson.h"

/* What is asked for, and every array by its letter. */
typedef struct core {
    attn_sdpa_config cfg;
    attn_sdpa_input in;
} core;

/* q (B,H,Lq,d), k and v (B,Hkv,Lk,d), contiguous. */
static inline core core_of(attn_shape s, const attn_real *q, const attn_real *k,
                           const attn_real *v) {
    const size_t kv_heads = s.num_kv_heads ? s.num_kv_heads : s.num_heads;
    const attn_strides strides = attn_strides_bhtd(s.len_k, kv_heads, s.d_head);
    core c = {.in = {.shape = s, .query = q, .key = k, .value = v}};
    c.in.query_strides = attn_strides_bhtd(s.len_q, s.num_heads, s.d_head);
    c.in.key_strides = c.in.value_strides = strides;
    return c;
}

/* o (B,H,Lq,d) and, unless NULL, weights (B,H,Lq,Lk) of an inference. */
static inline void attend(const core *c, attn_real *o, attn_real *weights) {
    const attn_sdpa_output out = {
        .context = o, .context_strides = c->in.query_strides, .weights = weights};
    attn_memory need;
    attn_arena arena;
    must(attn_sdpa_memory(&c->cfg, &c->in, &out, &need));
    must(attn_arena_create(&arena, need.inference));
    must(attn_sdpa_forward(&c->cfg, &c->in, &out, &arena, NULL));
    attn_arena_destroy(&arena);
}

/* A forward that saves, o, and from d_o the gradients that are not NULL. */
static inline void attend_and_back(const core *c, attn_real *o, const attn_real *d_o,
                                   attn_sdpa_grads grads) {
    const attn_sdpa_output out = {.context = o, .context_strides = c->in.query_strides};
    attn_memory need;
    attn_arena arena;
    attn_sdpa_saved saved;
    grads.query_strides = c->in.query_strides;
    grads.key_strides = grads.value_strides = c->in.key_strides;
    must(attn_sdpa_memory(&c->cfg, &c->in, &out, &need));
    must(attn_arena_create(&arena, need.training));
    must(attn_sdpa_forward(&c->cfg, &c->in, &out, &arena, &saved));
    must(attn_sdpa_backward(&c->cfg, &saved, d_o, &c->in.query_strides, &grads, &arena));
    attn_arena_destroy(&arena);
}

/* The gradient of an array that lies in the block x lies at the same place in the block dx. */
static inline attn_real *beside(attn_real *dx, const attn_real *x, const attn_real *array) {
    return array ? dx + (array - x) : NULL;
}

/* f = sum of r·o with random r, as attn_gradcheck wants it. The arrays of the call lie in x. */
static inline attn_status core_loss(void *user, const attn_real *x, double *value, attn_real *dx) {
    const core *c = user;
    const attn_shape *s = &c->in.shape;
    const size_t n = s->batch * s->num_heads * s->len_q * s->d_head;
    attn_real *o = malloc(2 * n * sizeof *o), *r = o + n;
    if (!o)
        exit(1);
    attn_sdpa_grads grads = {0};
    if (dx)
        grads = (attn_sdpa_grads){.query = beside(dx, x, c->in.query),
                                  .key = beside(dx, x, c->in.key),
                                  .value = beside(dx, x, c->in.value),
                                  .bias = beside(dx, x, c->in.bias),
                                  .alibi_slopes = beside(dx, x, c->in.alibi_slopes),
                                  .sinks = beside(dx, x, c->in.sinks)};
    fill(r, n, 1, 7);
    attend_and_back(c, o, r, grads);
    *value = dot(r, o, n);
    free(o);
    return ATTN_OK;
}

/* Chapter 6 on a function of x: prints a line for each part of x, and says how the check ended. */
static inline attn_gradcheck_result check_gradients(attn_gradcheck_function *f, void *user,
                                                    attn_real *x,
                                                    const attn_gradcheck_tensor *parts,
                                                    size_t num_parts) {
    const attn_gradcheck_tensor *last = &parts[num_parts - 1];
    const attn_gradcheck_problem problem = {f,     user,     x, last->offset + last->count,
                                            parts, num_parts};
    attn_gradcheck_tensor_report found[8];
    attn_gradcheck_report report;
    attn_memory need;
    attn_arena arena;
    must(attn_gradcheck_memory(&problem, NULL, &need));
    must(attn_arena_create(&arena, need.inference));
    must(attn_gradcheck_run(&report, found, &problem, NULL, &arena));
    attn_arena_destroy(&arena);
    for (size_t n = 0; n < num_parts; n++)
        printf("  d%-8s %3zu elements, %3zu wrong, largest error %.0e\n", parts[n].name,
               found[n].checked, found[n].wrong, found[n].error);
    return report.result;
}

#endif
