/* Softcap, bias, ALiBi, sinks and dropout through the core: cases small enough to be written down,
 * gradients against finite differences, and what is refused. */
#include "terms.h"

#include <float.h>

#define TOLERANCE (64 * TEST_EPSILON)

#ifdef ATTN_DOUBLE
#define REAL_MAX DBL_MAX
#else
#define REAL_MAX FLT_MAX
#endif

static const attn_kernel paths[] = {ATTN_KERNEL_REFERENCE, ATTN_KERNEL_FUSED};

/* One head of one sample, d = 1, scale 1 unless config has one: at most 8 keys and queries. */
typedef struct small {
    size_t len_q, len_k;
    attn_sdpa_config config;
    attn_sdpa_input in; /* masks and terms; q, k and v are the arrays below */
    attn_real q[8], k[8], v[8], d_o[8];
    attn_real o[8], lse[8], dq[8], dk[8], dv[8], dbias[8], dslopes[1], dsinks[1];
} small;

static void solve(small *s, attn_kernel kernel) {
    const attn_strides rows_q = attn_strides_bhtd(s->len_q, 1, 1);
    const attn_strides rows_k = attn_strides_bhtd(s->len_k, 1, 1);
    s->config.kernel = kernel;
    s->in.shape = (attn_shape){1, 1, s->len_q, s->len_k, 1};
    s->in.query = s->q;
    s->in.key = s->k;
    s->in.value = s->v;
    s->in.query_strides = rows_q;
    s->in.key_strides = s->in.value_strides = rows_k;
    const attn_sdpa_output out = {.context = s->o, .context_strides = rows_q, .lse = s->lse};
    const attn_sdpa_grads grads = {.query = s->dq,
                                   .key = s->dk,
                                   .value = s->dv,
                                   .query_strides = rows_q,
                                   .key_strides = rows_k,
                                   .value_strides = rows_k,
                                   .bias = s->in.bias ? s->dbias : NULL,
                                   .alibi_slopes = s->config.alibi ? s->dslopes : NULL,
                                   .sinks = s->in.sinks ? s->dsinks : NULL};
    attn_memory need;
    attn_sdpa_saved saved;
    test_ok(attn_sdpa_memory(&s->config, &s->in, &out, &need));
    attn_arena arena = test_arena(need.training);
    test_ok(attn_sdpa_forward(&s->config, &s->in, &out, &arena, &saved));
    test_ok(attn_sdpa_backward(&s->config, &saved, s->d_o, &rows_q, &grads, &arena));
    attn_arena_destroy(&arena);
}

#define CHECK(name, got, ...)                                                             \
    do {                                                                                  \
        const attn_real want_[] = {__VA_ARGS__};                                          \
        test_close(name, got, want_, sizeof want_ / sizeof *want_, TOLERANCE, TOLERANCE); \
    } while (0)

/* A bias is not scaled: with scale 1/2, weights 3/4 and 1/4. dP = v, D = o. */
START_TEST(bias_is_not_scaled) {
    const attn_real bias[2] = {0, (attn_real)-log(3)};
    small s = {.len_q = 1,
               .len_k = 2,
               .config = {.has_scale = true, .scale = 0.5},
               .in = {.bias = bias, .bias_strides = {.key = 1}},
               .v = {0, 1},
               .d_o = {1}};
    solve(&s, paths[_i]);
    CHECK("y", s.o, 0.25);
    CHECK("dbias", s.dbias, -0.1875, 0.1875);
    CHECK("lse", s.lse, (attn_real)log(4.0 / 3));
}
END_TEST

/* The lowest number blocks no key, and where it meets a mask the mask blocks. */
START_TEST(lowest_bias_and_mask) {
    const attn_real bias[2] = {-REAL_MAX, 0}, low[2] = {-REAL_MAX, -REAL_MAX};
    const uint8_t attend[2] = {0, 1};
    small s = {.len_q = 1,
               .len_k = 2,
               .in = {.bias = bias,
                      .bias_strides = {.key = 1},
                      .mask = {.attend = attend, .attend_strides = {.key = 1}}},
               .v = {5, 7},
               .d_o = {1}};
    solve(&s, paths[_i]);
    CHECK("y", s.o, 7);
    CHECK("dv", s.dv, 0, 1);
    s.in.bias = low;
    s.in.mask = (attn_mask){0};
    solve(&s, paths[_i]);
    CHECK("y of two low ones", s.o, 6);
    CHECK("dbias of two low ones", s.dbias, -0.5, 0.5);
    CHECK("dv of two low ones", s.dv, 0.5, 0.5);
}
END_TEST

/* A sum that overflows to -inf is -inf: the pair is blocked, and nothing is NaN. */
START_TEST(sum_that_overflows) {
    const attn_real bias[1] = {-REAL_MAX};
    const double root = sqrt((double)REAL_MAX / 3);
    small s = {.len_q = 1,
               .len_k = 1,
               .in = {.bias = bias},
               .q = {(attn_real)root},
               .k = {(attn_real)-root},
               .v = {3},
               .d_o = {1}};
    solve(&s, paths[_i]);
    CHECK("y", s.o, 0);
    CHECK("lse", s.lse, (attn_real)-INFINITY);
    CHECK("dq", s.dq, 0);
    CHECK("dk", s.dk, 0);
    CHECK("dv", s.dv, 0);
    CHECK("dbias", s.dbias, 0);
}
END_TEST

/* A product that overflows to -inf is a score like any other: the cap makes -1 of it. */
START_TEST(capped_overflow) {
    const attn_real huge = (attn_real)sqrt(REAL_MAX) * 4;
    small s = {.len_q = 1,
               .len_k = 2,
               .config = {.has_scale = true, .scale = 1, .softcap = 1},
               .q = {huge},
               .k = {-huge, 0},
               .v = {1, 0},
               .d_o = {1}};
    solve(&s, paths[_i]);
    CHECK("y", s.o, (attn_real)(1 / (1 + exp(1))));
    CHECK("dk", s.dk, 0, -huge * (attn_real)(exp(1) / ((1 + exp(1)) * (1 + exp(1)))));
}
END_TEST

/* -inf blocks, for one key and for a whole row. */
START_TEST(infinite_bias_blocks) {
    const attn_real inf = (attn_real)INFINITY, bias[4] = {-inf, 0, -inf, -inf};
    small s = {.len_q = 2,
               .len_k = 2,
               .in = {.bias = bias, .bias_strides = {.query = 2, .key = 1}},
               .v = {5, 7},
               .d_o = {1, 1}};
    solve(&s, paths[_i]);
    CHECK("y", s.o, 7, 0);
    CHECK("lse", s.lse, 0, -inf);
    CHECK("dv", s.dv, 0, 1);
    CHECK("dbias", s.dbias, 0, 0, 0, 0);
}
END_TEST

/* A sink with as much weight as each of three keys; a blocked row leaves it all. */
START_TEST(sink_takes_its_share) {
    const attn_real sinks[1] = {0};
    const uint8_t attend[2] = {1, 0};
    small s = {.len_q = 2,
               .len_k = 3,
               .in = {.sinks = sinks, .mask = {.attend = attend, .attend_strides = {.query = 1}}},
               .v = {1, 2, 9},
               .d_o = {1, 1}};
    solve(&s, paths[_i]);
    CHECK("y", s.o, 3, 0);
    CHECK("lse", s.lse, (attn_real)log(4), 0);
    CHECK("dv", s.dv, 0.25, 0.25, 0.25);
    CHECK("dsinks", s.dsinks, -0.75);
}
END_TEST

/* Places from the bottom right: query i stands at key i + 1. Slope ln 2, so weights halve with each
 * step. */
START_TEST(alibi_by_hand) {
    const attn_real slopes[1] = {(attn_real)log(2)};
    small s = {.len_q = 2,
               .len_k = 3,
               .config = {.alibi = true},
               .in = {.alibi_slopes = slopes},
               .v = {4, 8, 16},
               .d_o = {1, 0}};
    solve(&s, paths[_i]);
    CHECK("y", s.o, 9, (attn_real)(1 + 16.0 / 7 + 64.0 / 7 - 3.0 / 7));
    /* du = p (v - y) = (-5/4, -1/2, 7/4), distances 1, 0, 1 */
    CHECK("dslopes", s.dslopes, -0.5);
    s.config.alibi = false; /* slopes alone do nothing */
    solve(&s, paths[_i]);
    CHECK("y without", s.o, (attn_real)(28.0 / 3), (attn_real)(28.0 / 3));
}
END_TEST

/* Scores of ±1000 end at ±ln 3; far beyond the cap no gradient passes. */
START_TEST(softcap_by_hand) {
    small s = {.len_q = 1,
               .len_k = 2,
               .config = {.softcap = log(3)},
               .q = {1000},
               .k = {1, -1},
               .v = {10, 0},
               .d_o = {1}};
    solve(&s, paths[_i]);
    CHECK("y", s.o, 9);
    CHECK("dq", s.dq, 0);
    CHECK("dk", s.dk, 0, 0);
    s.q[0] = 0;
    solve(&s, paths[_i]);
    CHECK("y", s.o, 5);
    CHECK("dq", s.dq, 5); /* p (dp - D) k = 1/4·10·2 */
}
END_TEST

/* Dropout is for training: inferences with p = 0.8 have the bits of p = 0, and so have the lse and
 * the weights of training. */
START_TEST(dropout_in_training_only) {
    const term_plan plan = {.dropout = 0.8, .sinks = true};
    term_problem p = terms_make((attn_shape){2, 3, 33, 70, 5}, BTHD, &problem_plans[18], &plan, 5);
    const size_t bytes = p.base.o.size * sizeof(attn_real), rows = 2 * 3 * 33;
    p.config.kernel = paths[_i];
    attn_real *plain = test_poison(p.base.o.size), *plain_lse = test_poison(rows);
    attn_memory need;
    attn_sdpa_saved saved;
    test_ok(attn_sdpa_memory(&p.config, &p.base.in, &p.base.out, &need));
    attn_arena arena = test_arena(need.training);
    for (int run = 0; run < 3; run++) {
        p.config.dropout = run == 0 ? 0 : 0.8;
        test_ok(attn_sdpa_forward(&p.config, &p.base.in, &p.base.out, &arena, NULL));
        if (run == 0) {
            memcpy(plain, p.base.o.block, bytes);
            memcpy(plain_lse, p.base.lse, rows * sizeof *plain_lse);
        }
        ck_assert_mem_eq(plain, p.base.o.block, bytes);
    }
    test_ok(attn_sdpa_forward(&p.config, &p.base.in, &p.base.out, &arena, &saved));
    ck_assert_mem_ne(plain, p.base.o.block, bytes);
    ck_assert_mem_eq(plain_lse, p.base.lse, rows * sizeof *plain_lse);
    attn_arena_destroy(&arena);
    free(plain);
    free(plain_lse);
    terms_free(&p);
}
END_TEST

/* 0-logits and values of 1: each row is the share kept, divided by 1 - p. */
START_TEST(dropout_keeps_the_mean) {
    const size_t T = 1024;
    const attn_strides rows = attn_strides_bhtd(T, 1, 1);
    attn_real *zeros = calloc(T, sizeof *zeros), *v = test_poison(T), *o = test_poison(T);
    ck_assert_ptr_nonnull(zeros);
    for (size_t t = 0; t < T; t++)
        v[t] = 1;
    const attn_sdpa_config config = {.kernel = paths[_i], .dropout = 0.25};
    const attn_sdpa_input in = {.shape = {1, 1, T, T, 1},
                                .query = zeros,
                                .key = zeros,
                                .value = v,
                                .query_strides = rows,
                                .key_strides = rows,
                                .value_strides = rows,
                                .dropout_seed = 29};
    const attn_sdpa_output out = {.context = o, .context_strides = rows};
    attn_memory need;
    test_ok(attn_sdpa_memory(&config, &in, &out, &need));
    attn_sdpa_saved saved;
    attn_arena arena = test_arena(need.training);
    double sum = 0;
    test_ok(attn_sdpa_forward(&config, &in, &out, &arena, &saved));
    for (size_t t = 0; t < T; t++) {
        ck_assert_msg(fabs((double)o[t] - 1) < 5 * 0.018, "row %zu: %g", t, (double)o[t]);
        sum += (double)o[t];
    }
    ck_assert(fabs(sum / (double)T * 0.75 - 0.75) < 0.002);
    attn_arena_destroy(&arena);
    free(zeros);
    free(v);
    free(o);
}
END_TEST

/* Weights that are returned are those before dropout: their rows add up to 1. */
START_TEST(weights_before_dropout) {
    const term_plan plan = {.dropout = 0.5};
    term_problem p = terms_make((attn_shape){1, 2, 9, 70, 3}, BTHD, &problem_plans[0], &plan, 6);
    attn_real weights[2 * 9 * 70];
    p.base.out.weights = weights;
    problem_run(&p.config, &p.base);
    for (size_t row = 0; row < 18; row++) {
        double sum = 0;
        for (size_t j = 0; j < 70; j++)
            sum += (double)weights[row * 70 + j];
        ck_assert(fabs(sum - 1) < 1e-6);
    }
    terms_free(&p);
}
END_TEST

/* q, k, v and the parameters of the terms, one after the other, are the point; the loss weighs
 * every output. */
typedef struct gradient_problem {
    term_problem *terms;
    attn_arena arena;
    attn_gradcheck_tensor tensors[6];
    attn_real *parts[6], *gradients[6]; /* where they are, and their gradients */
    size_t num_tensors, count;
} gradient_problem;

static attn_status loss(void *user, const attn_real *x, double *value, attn_real *gradient) {
    gradient_problem *g = user;
    problem *p = &g->terms->base;
    attn_sdpa_saved saved;
    for (size_t n = 0; n < g->num_tensors; n++)
        memcpy(g->parts[n], x + g->tensors[n].offset, g->tensors[n].count * sizeof *x);
    attn_arena_reset(&g->arena);
    attn_status status = attn_sdpa_forward(&g->terms->config, &p->in, &p->out, &g->arena, &saved);
    if (status == ATTN_OK)
        status = attn_gradcheck_project(value, p->d_o.data, p->o.data,
                                        p->o.heads * p->o.len * p->o.width, 77);
    if (status == ATTN_OK && gradient)
        status = attn_sdpa_backward(&g->terms->config, &saved, p->d_o.data, &p->o.strides,
                                    &p->grads, &g->arena);
    for (size_t n = 0; status == ATTN_OK && gradient && n < g->num_tensors; n++)
        memcpy(gradient + g->tensors[n].offset, g->gradients[n],
               g->tensors[n].count * sizeof *gradient);
    return status;
}

static void add_tensor(gradient_problem *g, const char *name, attn_real *part, attn_real *gradient,
                       size_t count) {
    if (!part)
        return;
    g->tensors[g->num_tensors] = (attn_gradcheck_tensor){name, g->count, count};
    g->parts[g->num_tensors] = part;
    g->gradients[g->num_tensors++] = gradient;
    g->count += count;
}

/* Every gradient of every plan, dropout on and masks in turn, against finite differences. */
START_TEST(gradients_are_gradients) {
    for (size_t t = 0; t < TERMS; t++) {
        term_problem p = terms_make((attn_shape){2, 4, 5, 7, 3, 2}, BHTD,
                                    &problem_plans[5 * t % PLANS], &problem_terms[t], t);
        p.config.kernel = paths[_i];
        if (problem_terms[t].alibi && problem_plans[5 * t % PLANS].align == ATTN_CAUSAL_OFFSET)
            p.base.in.mask = (attn_mask){.causal = true};
        for (size_t n = 0; n < p.bias_count; n++) /* finite differences want finite numbers */
            p.bias[n] = isfinite(p.bias[n]) ? p.bias[n] : 0;
        gradient_problem g = {.terms = &p};
        add_tensor(&g, "q", p.base.q.data, p.base.dq.data, 2 * 4 * 5 * 3);
        add_tensor(&g, "k", p.base.k.data, p.base.dk.data, 2 * 2 * 7 * 3);
        add_tensor(&g, "v", p.base.v.data, p.base.dv.data, 2 * 2 * 7 * 3);
        add_tensor(&g, "bias", p.bias, p.dbias, p.bias_count);
        add_tensor(&g, "slopes", p.slopes, p.dslopes, 4);
        add_tensor(&g, "sinks", p.sinks, p.dsinks, 4);
        attn_real *x = test_poison(g.count);
        for (size_t n = 0; n < g.num_tensors; n++)
            memcpy(x + g.tensors[n].offset, g.parts[n], g.tensors[n].count * sizeof *x);
        const attn_gradcheck_problem check = {.function = loss,
                                              .user = &g,
                                              .x = x,
                                              .count = g.count,
                                              .tensors = g.tensors,
                                              .num_tensors = g.num_tensors};
        attn_gradcheck_tensor_report tensors[6];
        attn_gradcheck_report report;
        attn_memory need, scratch;
        test_ok(attn_sdpa_memory(&p.config, &p.base.in, &p.base.out, &need));
        test_ok(attn_gradcheck_memory(&check, NULL, &scratch));
        g.arena = test_arena(need.training);
        attn_arena arena = test_arena(scratch.inference);
        test_ok(attn_gradcheck_run(&report, tensors, &check, NULL, &arena));
        for (size_t n = 0; n < g.num_tensors; n++) {
            /* a constant added to all of a row changes nothing: such a bias has gradient 0 */
            const bool zero = tensors[n].result == ATTN_GRADCHECK_VACUOUS;
            ck_assert_msg(tensors[n].result == ATTN_GRADCHECK_PASSED || zero,
                          "kernel %d, terms %zu, %s: %s, element %zu: %g, measured %g, error %g",
                          (int)paths[_i], t, g.tensors[n].name,
                          attn_gradcheck_result_name(tensors[n].result), tensors[n].worst,
                          tensors[n].claimed, tensors[n].measured, tensors[n].error);
        }
        attn_arena_destroy(&g.arena);
        attn_arena_destroy(&arena);
        free(x);
        terms_free(&p);
    }
}
END_TEST

/* A refused call leaves its outputs, and the arena, as they were. */
static void refused(term_problem *p, attn_status want, const char *word) {
    attn_sdpa_saved saved;
    attn_memory need;
    attn_arena arena = test_arena((size_t)1 << 20);
    test_refused(attn_sdpa_forward(&p->config, &p->base.in, &p->base.out, &arena, &saved), want);
    ck_assert_msg(strstr(attn_error_message(), word), "no '%s' in: %s", word, attn_error_message());
    test_refused(attn_sdpa_forward(&p->config, &p->base.in, &p->base.out, &arena, NULL), want);
    test_refused(attn_sdpa_memory(&p->config, &p->base.in, &p->base.out, &need), want);
    ck_assert_uint_eq(arena.used, 0);
    for (size_t n = 0; n < p->base.o.size; n++)
        ck_assert(isnan(p->base.o.block[n]));
    attn_arena_destroy(&arena);
}

START_TEST(forward_refuses) {
    const attn_shape s = {2, 2, 3, 4, 2};
    const double caps[] = {-1, NAN, INFINITY, -INFINITY};
    const double drops[] = {-0.1, 1, 1.5, NAN, INFINITY};
    term_problem p = terms_make(s, BTHD, &problem_plans[0], &problem_terms[7], 1);
    p.config.kernel = paths[_i];
    for (size_t n = 0; n < 4; n++) {
        p.config.softcap = caps[n];
        refused(&p, ATTN_ERROR_ARGUMENT, "softcap");
    }
    p.config.softcap = 0;
    for (size_t n = 0; n < 5; n++) {
        p.config.dropout = drops[n];
        refused(&p, ATTN_ERROR_ARGUMENT, "dropout");
    }
    p.config.dropout = 0;
    p.base.in.bias_strides.head = SIZE_MAX / 2;
    refused(&p, ATTN_ERROR_OVERFLOW, "bias_strides");
    terms_free(&p);
}
END_TEST

/* What computes otherwise than the forward did, or asks for the gradient of what was not there. */
START_TEST(backward_refuses) {
    const attn_shape s = {2, 2, 3, 4, 2};
    term_problem p = terms_make(s, BTHD, &problem_plans[0], &problem_terms[0], 1);
    p.config.kernel = paths[_i];
    p.config.softcap = 0;
    attn_real other[8] = {0};
    attn_sdpa_saved saved;
    attn_arena arena = test_arena((size_t)1 << 20);
    test_ok(attn_sdpa_forward(&p.config, &p.base.in, &p.base.out, &arena, &saved));
    const size_t used = arena.used;
    const attn_sdpa_config configs[] = {
        {.softcap = 1}, {.alibi = true}, {.dropout = 0.5}, {.has_scale = true, .scale = 3}};
    const attn_sdpa_grads plain = p.base.grads;
    attn_sdpa_grads grads[5] = {plain, plain, plain, plain, plain};
    grads[0].bias = grads[1].sinks = grads[2].alibi_slopes = other;
    grads[3].key = plain.query;
    grads[4].value = plain.key;
    for (size_t n = 0; n < 4; n++)
        test_refused(attn_sdpa_backward(&configs[n], &saved, p.base.d_o.data, &p.base.d_o.strides,
                                        &plain, &arena),
                     ATTN_ERROR_ARGUMENT);
    for (size_t n = 0; n < 5; n++)
        test_refused(attn_sdpa_backward(&p.config, &saved, p.base.d_o.data, &p.base.d_o.strides,
                                        &grads[n], &arena),
                     ATTN_ERROR_ARGUMENT);
    ck_assert_uint_eq(arena.used, used);
    for (size_t n = 0; n < p.base.dq.size; n++)
        ck_assert(isnan(p.base.dq.block[n]));
    ck_assert(other[0] == 0);
    attn_arena_destroy(&arena);
    terms_free(&p);
}
END_TEST

/* A bias may be read with strides that overlap, as one of distances j - i; its gradient cannot be
 * written so. */
START_TEST(overlapping_bias) {
    term_problem p =
        terms_make((attn_shape){1, 1, 3, 3, 2}, BHTD, &problem_plans[0], &problem_terms[1], 1);
    const attn_real distances[5] = {1, 2, 3, 4, 5};
    p.config.kernel = paths[_i];
    p.base.in.bias = distances;
    p.base.in.bias_strides = (attn_broadcast){.query = 1, .key = 1};
    attn_sdpa_saved saved;
    attn_memory need;
    test_ok(attn_sdpa_memory(&p.config, &p.base.in, &p.base.out, &need));
    attn_arena arena = test_arena(need.training);
    test_ok(attn_sdpa_forward(&p.config, &p.base.in, &p.base.out, &arena, &saved));
    test_refused(attn_sdpa_backward(&p.config, &saved, p.base.d_o.data, &p.base.d_o.strides,
                                    &p.base.grads, &arena),
                 ATTN_ERROR_SHAPE);
    p.base.grads.bias = NULL;
    test_ok(attn_sdpa_backward(&p.config, &saved, p.base.d_o.data, &p.base.d_o.strides,
                               &p.base.grads, &arena));
    attn_arena_destroy(&arena);
    terms_free(&p);
}
END_TEST

/* Without keys or queries or samples the gradients of the terms are 0. */
START_TEST(empty_inputs) {
    const attn_shape shapes[] = {{2, 2, 3, 0, 2}, {2, 2, 0, 3, 2}, {0, 2, 3, 3, 2}};
    for (size_t n = 0; n < 3; n++) {
        term_problem p =
            terms_make(shapes[n], BTHD, &problem_plans[0], &problem_terms[TERMS - 1], n);
        attn_real bias = 1, dbias = 9;
        p.base.in.bias = &bias;
        p.base.in.bias_strides = (attn_broadcast){0};
        p.base.grads.bias = &dbias;
        p.config.kernel = paths[_i];
        problem_run(&p.config, &p.base);
        ck_assert(dbias == 0 && p.dsinks[0] == 0 && p.dsinks[1] == 0 && p.dslopes[1] == 0);
        for (size_t row = 0; row < 12 && n == 0; row++)
            ck_assert(p.base.lse[row] == p.sinks[row / 3 % 2]);
        terms_free(&p);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("sdpa_terms_cases");
    TCase *all = tcase_create("cases");
    tcase_add_loop_test(all, bias_is_not_scaled, 0, 2);
    tcase_add_loop_test(all, lowest_bias_and_mask, 0, 2);
    tcase_add_loop_test(all, sum_that_overflows, 0, 2);
    tcase_add_loop_test(all, capped_overflow, 0, 2);
    tcase_add_loop_test(all, infinite_bias_blocks, 0, 2);
    tcase_add_loop_test(all, sink_takes_its_share, 0, 2);
    tcase_add_loop_test(all, alibi_by_hand, 0, 2);
    tcase_add_loop_test(all, softcap_by_hand, 0, 2);
    tcase_add_loop_test(all, dropout_in_training_only, 0, 2);
    tcase_add_loop_test(all, dropout_keeps_the_mean, 0, 2);
    tcase_add_test(all, weights_before_dropout);
    tcase_add_loop_test(all, gradients_are_gradients, 0, 2);
    tcase_add_loop_test(all, forward_refuses, 0, 2);
    tcase_add_loop_test(all, backward_refuses, 0, 2);
    tcase_add_loop_test(all, overlapping_bias, 0, 2);
    tcase_add_loop_test(all, empty_inputs, 0, 2);
    suite_add_tcase(s, all);
    return test_main(s);
}
