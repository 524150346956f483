/* Scaled dot-product attention through its public calls, both paths by name, against plain loops.
 */
#include "problem.h"

#define TOLERANCE (64 * TEST_EPSILON)

static const attn_shape shapes[] = {
    {1, 1, 1, 1, 1},   {2, 2, 2, 5, 1},   {2, 3, 5, 2, 3},      {1, 2, 9, 9, 8},
    {2, 2, 17, 33, 7}, {1, 1, 130, 5, 4}, {1, 3, 129, 131, 63}, {3, 1, 1, 65, 80},
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Runs a problem and holds every result against the loops. `what` tells which problem it is. */
static void check_problem(const char *what, const attn_sdpa_config *config, problem *p) {
    const attn_shape *s = &p->shape;
    oracle want = oracle_run(config, &p->in, p->d_o.data, p->d_o.strides);
    problem_run(config, p);
    const struct {
        const char *name;
        const tensor *got;
        const attn_real *want;
    } results[] = {{"o", &p->o, want.o},
                   {"dq", &p->dq, want.dq},
                   {"dk", &p->dk, want.dk},
                   {"dv", &p->dv, want.dv}};
    char line[256];
    for (size_t n = 0; n < 5; n++) {
        snprintf(line, sizeof line, "%s of %s, kernel %d, B%zu H%zu Lq%zu Lk%zu d%zu, %s",
                 n < 4 ? results[n].name : "lse", what, (int)config->kernel, s->batch, s->num_heads,
                 s->len_q, s->len_k, s->d_head, attn_isa_name(attn_isa_current()));
        if (n < 4)
            tensor_check(line, results[n].got, results[n].want, TOLERANCE, TOLERANCE);
        else
            test_close(line, p->lse, want.lse, s->batch * s->num_heads * s->len_q, TOLERANCE,
                       TOLERANCE);
    }
    oracle_free(&want);
}

/* Values, gradients and log-sum-exp of every mask kind, shape and layout; reads or writes outside
 * the tensors meet NaN. */
START_TEST(equals_plain_loops) {
    for (size_t m = 0; m < PLANS; m++)
        for (size_t n = 0; n < SHAPES; n++)
            for (int form = 0; form < LAYOUT_COUNT; form++) {
                attn_sdpa_config config = {
                    .kernel = (attn_kernel)_i, .has_scale = n % 3 == 0, .scale = -0.7};
                problem p = problem_make(shapes[n], (layout)form, &problem_plans[m], 100 * m + n);
                char what[64];
                snprintf(what, sizeof what, "plan %zu, layout %d", m, form);
                check_problem(what, &config, &p);
                problem_free(&p);
            }
}
END_TEST

/* Windows from 0 to SIZE_MAX about positions anywhere, with and without causality. */
START_TEST(windows_equal_plain_loops) {
    for (size_t m = 0; m < WINDOWS; m++)
        for (size_t n = 0; n < SHAPES; n++) {
            attn_sdpa_config config = {.kernel = (attn_kernel)_i};
            problem p = problem_make(shapes[n], (layout)((m + n) % LAYOUT_COUNT),
                                     &problem_windows[m], 100 * m + n);
            char what[64];
            snprintf(what, sizeof what, "window %zu", m);
            check_problem(what, &config, &p);
            problem_free(&p);
        }
}
END_TEST

/* Heads that share keys and values: 6 over 3, over 2 and over 1, under every mask. */
START_TEST(grouped_heads_equal_plain_loops) {
    static const attn_shape grouped[] = {
        {2, 6, 5, 9, 4, 3}, {1, 6, 131, 17, 7, 2}, {3, 6, 9, 70, 3, 1}, {2, 4, 1, 1, 2, 4}};
    for (size_t m = 0; m < PLANS + WINDOWS; m++)
        for (size_t n = 0; n < sizeof grouped / sizeof *grouped; n++) {
            attn_sdpa_config config = {.kernel = (attn_kernel)_i, .max_threads = 1 + n};
            const mask_plan *plan = m < PLANS ? &problem_plans[m] : &problem_windows[m - PLANS];
            problem p = problem_make(grouped[n], (layout)((m + n) % LAYOUT_COUNT), plan, m + n);
            char what[64];
            snprintf(what, sizeof what, "plan %zu, %zu kv heads", m, grouped[n].num_kv_heads);
            check_problem(what, &config, &p);
            problem_free(&p);
        }
}
END_TEST

/* Lengths on both sides of every tile edge, and heads of odd width. */
START_TEST(tails_and_widths) {
    static const size_t lengths[] = {1, 2, 9, 63, 64, 65, 127, 128, 129, 193};
    static const size_t widths[] = {1, 3, 63, 80, 96, 160, 257};
    const attn_sdpa_config config = {.kernel = (attn_kernel)_i};
    for (size_t n = 0; n < 100; n++) {
        const attn_shape s = {1, 1, lengths[n / 10], lengths[n % 10], 5};
        problem p = problem_make(s, BTHD, &problem_plans[n % PLANS], n);
        check_problem("tails", &config, &p);
        problem_free(&p);
    }
    for (size_t n = 0; n < 7; n++) {
        problem p = problem_make((attn_shape){1, 2, 19, 21, widths[n]}, BTHD_GAPS,
                                 &problem_plans[3 * n % PLANS], n);
        check_problem("widths", &config, &p);
        problem_free(&p);
    }
    problem p = problem_make((attn_shape){1, 1, 1001, 503, 3}, BHTD, &problem_plans[PLANS - 2], 7);
    check_problem("a long one", &config, &p);
    problem_free(&p);
}
END_TEST

/* The same where a NaN row is shared by a group of heads and hidden by windows. */
START_TEST(nan_in_a_group_under_windows) {
    const attn_sdpa_config config = {.kernel = (attn_kernel)_i};
    for (size_t m = 0; m < WINDOWS; m++) {
        problem p = problem_make((attn_shape){2, 4, 70, 75, 5, 2}, BTHD, &problem_windows[m], m);
        tensor_row(&p.k, 1, 3)[0] = (attn_real)NAN;
        tensor_row(&p.v, 2, 68)[4] = (attn_real)INFINITY;
        tensor_row(&p.d_o, 5, 30)[2] = (attn_real)NAN;
        check_problem("NaN", &config, &p);
        problem_free(&p);
    }
}
END_TEST

/* NaN in rows of q, k, v and dO reaches the results that may see them, and no others: with a third
 * of the pairs blocked, that is a different set for every row. */
START_TEST(nan_spreads_as_far_as_it_may) {
    const attn_sdpa_config config = {.kernel = (attn_kernel)_i};
    const attn_shape s = {2, 2, 70, 75, 5};
    for (size_t m = 0; m < PLANS; m++)
        for (unsigned spoilt = 1; spoilt < 16; spoilt <<= 1) {
            problem p = problem_make(s, BTHD, &problem_plans[m], m);
            tensor *const operands[4] = {&p.q, &p.k, &p.v, &p.d_o};
            for (size_t n = 0; n < 4; n++)
                if (spoilt >> n & 1) {
                    tensor_row(operands[n], 1, 3)[0] = (attn_real)NAN;
                    tensor_row(operands[n], 1, 68)[4] = (attn_real)NAN;
                    tensor_row(operands[n], 2, 30)[2] = (attn_real)NAN;
                }
            char what[64];
            snprintf(what, sizeof what, "plan %zu, NaN in operands %u", m, spoilt);
            check_problem(what, &config, &p);
            problem_free(&p);
        }
}
END_TEST

/* Results of a problem small enough to be written down, contiguous (B,H,T,d). */
typedef struct small {
    attn_shape shape;
    const attn_real *q, *k, *v, *d_o;
    attn_mask mask;
    double scale; /* 0 = the default */
    attn_real o[32], dq[32], dk[32], dv[32], weights[64], lse[32];
    bool want_weights;
} small;

static const attn_real zeros[32], ones[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                              1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* q and k default to zeros, so that weights are uniform over the allowed keys; dO to ones. */
static void solve(small *s, int kernel) {
    const attn_sdpa_config config = {.kernel =
                                         s->want_weights ? ATTN_KERNEL_AUTO : (attn_kernel)kernel,
                                     .has_scale = s->scale != 0,
                                     .scale = s->scale};
    const attn_shape *z = &s->shape;
    attn_strides rows_q = attn_strides_bhtd(z->len_q, z->num_heads, z->d_head);
    attn_strides rows_k = attn_strides_bhtd(z->len_k, oracle_kv_heads(z), z->d_head);
    attn_sdpa_input in = {.shape = *z,
                          .query = s->q ? s->q : zeros,
                          .key = s->k ? s->k : zeros,
                          .value = s->v ? s->v : zeros,
                          .query_strides = rows_q,
                          .key_strides = rows_k,
                          .value_strides = rows_k,
                          .mask = s->mask};
    attn_sdpa_output out = {.context = s->o,
                            .context_strides = rows_q,
                            .weights = s->want_weights ? s->weights : NULL,
                            .lse = s->lse};
    attn_sdpa_grads grads = {s->dq, s->dk, s->dv, rows_q, rows_k, rows_k};
    attn_memory need;
    attn_sdpa_saved saved;
    test_ok(attn_sdpa_memory(&config, &in, &out, &need));
    attn_arena arena = test_arena(need.training);
    test_ok(attn_sdpa_forward(&config, &in, &out, &arena, &saved));
    test_ok(attn_sdpa_backward(&config, &saved, s->d_o ? s->d_o : ones, &rows_q, &grads, &arena));
    attn_arena_destroy(&arena);
}

#define CHECK(name, got, ...)                                                     \
    do {                                                                          \
        const attn_real want_[] = {__VA_ARGS__};                                  \
        test_close(name, got, want_, sizeof want_ / sizeof *want_, 0, TOLERANCE); \
    } while (0)

/* Causal and left padding together: query 0 may see nothing. */
START_TEST(causal_and_left_padding) {
    const uint8_t padding[3] = {1, 0, 0};
    const attn_real v[3] = {100, 2, 4};
    small s = {.shape = {1, 1, 3, 3, 1}, .v = v, .mask = {.causal = true, .padding = padding}};
    solve(&s, _i);
    CHECK("y", s.o, 0, 2, 3);
    CHECK("dv", s.dv, 0, 1.5, 0.5);
    CHECK("lse", s.lse, (attn_real)-INFINITY, 0, (attn_real)log(2.0));
}
END_TEST

/* One head wholly masked: its weights and output are 0, the other head is as without masks, and
 * asking for weights changes no output. */
START_TEST(one_head_fully_masked) {
    const uint8_t attend[2] = {0, 1};
    const attn_real v[4] = {1, 2, 3, 5};
    small s = {.shape = {1, 2, 1, 2, 1},
               .v = v,
               .mask = {.attend = attend, .attend_strides = {.head = 1}}};
    solve(&s, _i);
    CHECK("y", s.o, 0, 4);
    s.want_weights = true;
    solve(&s, _i);
    CHECK("y with weights", s.o, 0, 4);
    CHECK("weights", s.weights, 0, 0, 0.5, 0.5);
    CHECK("dv", s.dv, 0, 0, 0.5, 0.5);
}
END_TEST

/* Non-zero means padded for one mask and visible for the other, whatever the non-zero byte. */
START_TEST(polarity) {
    const attn_real v[2] = {10, 20};
    for (int byte = 1; byte < 256; byte += byte == 1 ? 1 : 253) {
        const uint8_t padding[2] = {0, (uint8_t)byte}, attend[2] = {(uint8_t)byte, 0};
        small s = {.shape = {1, 1, 2, 2, 1}, .v = v, .mask = {.padding = padding}};
        solve(&s, _i);
        CHECK("y, padding", s.o, 10, 10);
        s.mask = (attn_mask){.attend = attend, .attend_strides = {.key = 1}};
        solve(&s, _i);
        CHECK("y, attend", s.o, 10, 10);
    }
}
END_TEST

/* A mask by sample, and one by sample and head, are not mixed up. */
START_TEST(mask_of_sample_and_head) {
    const attn_real v[8] = {1, 9, 1, 9, 1, 9, 1, 9};
    const uint8_t padding[4] = {0, 1, 0, 0}, attend[8] = {1, 1, 1, 0, 0, 1, 0, 0};
    small s = {.shape = {2, 2, 2, 2, 1}, .v = v, .mask = {.padding = padding}};
    solve(&s, _i);
    CHECK("y by sample", s.o, 1, 1, 1, 1, 5, 5, 5, 5);
    s.mask = (attn_mask){.attend = attend, .attend_strides = {.batch = 4, .head = 2, .key = 1}};
    solve(&s, _i);
    CHECK("y by head", s.o, 5, 5, 1, 1, 9, 9, 0, 0);
}
END_TEST

/* A mask of one column, without a byte behind it. */
START_TEST(mask_of_one_column) {
    uint8_t *attend = malloc(2);
    ck_assert_ptr_nonnull(attend);
    attend[0] = 0;
    attend[1] = 1;
    const attn_real v[3] = {1, 2, 6};
    small s = {.shape = {1, 1, 2, 3, 1}, .v = v, .mask = {.attend = attend}};
    test_ok(attn_broadcast_strides(&s.mask.attend_strides, (size_t[]){2, 1}, 2, 1, 1, 2, 3));
    solve(&s, _i);
    CHECK("y", s.o, 0, 3);
    free(attend);
}
END_TEST

/* Rows of a mask further apart than they are long, with garbage between. */
START_TEST(mask_rows_apart) {
    const attn_real v[5] = {1, 2, 4, 8, 16};
    uint8_t attend[5 * 8];
    memset(attend, 0xEE, sizeof attend);
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 5; j++)
            attend[i * 8 + j] = j == i;
    small s = {.shape = {1, 1, 5, 5, 1},
               .v = v,
               .mask = {.attend = attend, .attend_strides = {.query = 8, .key = 1}}};
    solve(&s, _i);
    CHECK("y", s.o, 1, 2, 4, 8, 16);
    const uint8_t padding[16] = {0, 0, 9, 9, 9, 9, 9, 9, 0, 7, 9, 9, 9, 9, 9, 9};
    s = (small){
        .shape = {2, 1, 1, 2, 1}, .v = v, .mask = {.padding = padding, .padding_stride = 8}};
    solve(&s, _i);
    CHECK("y, padding", s.o, 1.5, 4);
}
END_TEST

/* NaN behind a mask stays there; at a key that may be seen it shows. */
START_TEST(nan_behind_a_mask) {
    const attn_real nan = (attn_real)NAN, kv[2] = {2, nan}, q[1] = {0.5};
    const uint8_t padding[2] = {0, 1};
    small s = {.shape = {1, 1, 1, 2, 1}, .q = q, .k = kv, .v = kv, .mask = {.padding = padding}};
    solve(&s, _i);
    CHECK("y", s.o, 2);
    CHECK("dk", s.dk, 0, 0);
    CHECK("dv", s.dv, 1, 0);
    ck_assert(isfinite(s.dq[0]));
    s.mask.padding = NULL;
    solve(&s, _i);
    ck_assert(isnan(s.o[0]));
}
END_TEST

/* Where query 0 stands when there are more keys than queries, and fewer. */
START_TEST(causal_alignment) {
    const attn_real v[5] = {1, 2, 3, 4, 5};
    small s = {.shape = {1, 1, 2, 5, 1}, .v = v, .mask = {.causal = true}};
    solve(&s, _i);
    CHECK("bottom right, 2 x 5", s.o, 2.5, 3);
    s.mask.causal_align = ATTN_CAUSAL_TOP_LEFT;
    solve(&s, _i);
    CHECK("top left, 2 x 5", s.o, 1, 1.5);
    s = (small){.shape = {1, 1, 5, 2, 1}, .v = v, .mask = {.causal = true}};
    solve(&s, _i);
    CHECK("bottom right, 5 x 2", s.o, 0, 0, 0, 1, 1.5);
    s.mask.causal_align = ATTN_CAUSAL_TOP_LEFT;
    solve(&s, _i);
    CHECK("top left, 5 x 2", s.o, 1, 1.5, 1.5, 1.5, 1.5);
}
END_TEST

/* Ten keys, the own one included, of 640: whole tiles of keys hidden before the first visible one.
 */
START_TEST(window_of_ten) {
    enum { T = 640 };
    const attn_sdpa_config config = {.kernel = (attn_kernel)_i};
    const mask_plan plan = {.causal = true, .window = {.left_on = true, .left = 9}};
    problem p = problem_make((attn_shape){1, 1, T, T, 1}, BHTD, &plan, 1);
    for (size_t t = 0; t < T; t++) {
        *tensor_row(&p.q, 0, t) = *tensor_row(&p.k, 0, t) = 0;
        *tensor_row(&p.v, 0, t) = (attn_real)t;
        *tensor_row(&p.d_o, 0, t) = 1;
    }
    problem_run(&config, &p);
    ck_assert(fabs((double)*tensor_row(&p.o, 0, 639) - 634.5) < 1e-3);
    ck_assert(fabs((double)*tensor_row(&p.dv, 0, 0) - 2.928968254) <
              1e-6); /* 1 + 1/2 + ... + 1/10 */
    ck_assert(fabs((double)*tensor_row(&p.dv, 0, 639) - 0.1) < 1e-6);
    problem_free(&p);
}
END_TEST

/* Which head of keys and values a query head reads, and the sum of what comes back. */
START_TEST(grouped_heads) {
    const attn_real v[2] = {1, 10}, d_o[6] = {1, 2, 3, 4, 5, 6};
    small s = {.shape = {1, 6, 1, 1, 1, 2}, .v = v, .d_o = d_o};
    solve(&s, _i);
    CHECK("y", s.o, 1, 1, 1, 10, 10, 10);
    CHECK("dv", s.dv, 6, 15);
    s.shape.num_kv_heads = 1;
    solve(&s, _i);
    CHECK("dv of one head", s.dv, 21);
}
END_TEST

/* A width of 257 of which only the last number counts. */
START_TEST(last_of_257) {
    attn_real q[257] = {0}, k[2 * 257] = {0}, v[2 * 257] = {0}, o[257];
    q[256] = (attn_real)17.612095;
    k[2 * 257 - 1] = 1;
    v[0] = 4;
    const attn_sdpa_config config = {.kernel = (attn_kernel)_i};
    attn_strides rows = attn_strides_bhtd(2, 1, 257);
    const attn_sdpa_input in = {.shape = {1, 1, 1, 2, 257},
                                .query = q,
                                .key = k,
                                .value = v,
                                .query_strides = rows,
                                .key_strides = rows,
                                .value_strides = rows};
    const attn_sdpa_output out = {.context = o, .context_strides = rows};
    attn_memory need;
    test_ok(attn_sdpa_memory(&config, &in, &out, &need));
    attn_arena arena = test_arena(need.inference);
    test_ok(attn_sdpa_forward(&config, &in, &out, &arena, NULL));
    ck_assert(fabs((double)o[0] - 1) < 1e-6); /* weights 1/4 and 3/4 */
    attn_arena_destroy(&arena);
}
END_TEST

/* One key: its weight is 1, whatever the score, and no gradient reaches q and k. */
START_TEST(one_key) {
    const attn_sdpa_config config = {.kernel = (attn_kernel)_i};
    problem p = problem_make((attn_shape){2, 2, 1, 1, 64}, BTHD, &(mask_plan){0}, 5);
    problem_run(&config, &p);
    for (size_t head = 0; head < 4; head++)
        for (size_t c = 0; c < 64; c++) {
            ck_assert(tensor_row(&p.o, head, 0)[c] == tensor_row(&p.v, head, 0)[c]);
            ck_assert(tensor_row(&p.dv, head, 0)[c] == tensor_row(&p.d_o, head, 0)[c]);
            ck_assert(tensor_row(&p.dq, head, 0)[c] == 0 && tensor_row(&p.dk, head, 0)[c] == 0);
        }
    problem_free(&p);
}
END_TEST

/* Causal outputs, log-sum-exps and query gradients stay the same bits when later tokens change,
 * even to NaN. */
START_TEST(later_tokens_leave_no_trace) {
    enum { T = 150, AT = 71 };
    const attn_sdpa_config config = {.kernel = (attn_kernel)_i};
    const mask_plan causal = {.causal = true};
    problem p = problem_make((attn_shape){1, 2, T, T, 7}, BHTD, &causal, 1);
    problem changed = problem_make((attn_shape){1, 2, T, T, 7}, BHTD, &causal, 1);
    for (size_t head = 0; head < 2; head++)
        for (size_t t = AT; t < T; t++)
            for (size_t c = 0; c < 7; c++) {
                tensor_row(&changed.q, head, t)[c] = head ? (attn_real)NAN : 3;
                tensor_row(&changed.k, head, t)[c] = head ? (attn_real)INFINITY : -2;
                tensor_row(&changed.v, head, t)[c] = head ? (attn_real)NAN : 50;
                tensor_row(&changed.d_o, head, t)[c] = head ? (attn_real)NAN : 1;
            }
    problem_run(&config, &p);
    problem_run(&config, &changed);
    for (size_t head = 0; head < 2; head++) {
        const size_t bytes = AT * 7 * sizeof(attn_real);
        ck_assert_mem_eq(tensor_row(&changed.o, head, 0), tensor_row(&p.o, head, 0), bytes);
        ck_assert_mem_eq(tensor_row(&changed.dq, head, 0), tensor_row(&p.dq, head, 0), bytes);
        ck_assert_mem_eq(changed.lse + head * T, p.lse + head * T, AT * sizeof(attn_real));
    }
    problem_free(&p);
    problem_free(&changed);
}
END_TEST

/* Weights through AUTO: those of the loops, 0 at every blocked pair, and the copy is the caller's:
 * the backward does not read it. */
START_TEST(weights_on_request) {
    for (size_t m = 0; m < PLANS; m++) {
        problem p = problem_make((attn_shape){2, 2, 131, 9, 3}, BTHD_GAPS, &problem_plans[m], m);
        const size_t pairs = 2 * 2 * 131 * 9;
        oracle want = oracle_run(&(attn_sdpa_config){0}, &p.in, p.d_o.data, p.d_o.strides);
        attn_real *weights = test_poison(pairs);
        p.out.weights = weights;
        const attn_sdpa_config config = {.max_threads = 2};
        attn_memory need;
        attn_sdpa_saved saved;
        test_ok(attn_sdpa_memory(&config, &p.in, &p.out, &need));
        attn_arena arena = test_arena(need.training);
        test_ok(attn_sdpa_forward(&config, &p.in, &p.out, &arena, &saved));
        ck_assert_int_eq(saved.kernel, ATTN_KERNEL_REFERENCE);
        test_close("weights", weights, want.p, pairs, TOLERANCE, 0);
        memset(weights, 0xFF, pairs * sizeof *weights);
        test_ok(attn_sdpa_backward(&config, &saved, p.d_o.data, &p.d_o.strides, &p.grads, &arena));
        tensor_check("dk", &p.dk, want.dk, TOLERANCE, TOLERANCE);
        attn_arena_reset(&arena);
        test_ok(attn_sdpa_forward(&config, &p.in, &p.out, &arena, NULL));
        test_close("weights of inference", weights, want.p, pairs, TOLERANCE, 0);
        attn_arena_destroy(&arena);
        free(weights);
        oracle_free(&want);
        problem_free(&p);
    }
}
END_TEST

/* Strides of 0 share one head of keys and values among all heads, or one sample. */
START_TEST(inputs_may_broadcast) {
    const attn_sdpa_config config = {.kernel = (attn_kernel)_i};
    problem p = problem_make((attn_shape){2, 3, 9, 11, 4}, BTHD, &problem_plans[1], 6);
    p.in.key_strides.head = p.k.strides.head = 0;
    p.in.value_strides.batch = p.v.strides.batch = 0;
    check_problem("broadcast", &config, &p);
    problem_free(&p);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("sdpa");
    TCase *tests = tcase_create("sdpa");
    const TTest *const of_both_paths[] = {
        equals_plain_loops,
        tails_and_widths,
        nan_spreads_as_far_as_it_may,
        causal_and_left_padding,
        one_head_fully_masked,
        polarity,
        mask_of_sample_and_head,
        mask_of_one_column,
        mask_rows_apart,
        nan_behind_a_mask,
        causal_alignment,
        last_of_257,
        one_key,
        later_tokens_leave_no_trace,
        inputs_may_broadcast,
        windows_equal_plain_loops,
        window_of_ten,
        grouped_heads_equal_plain_loops,
        nan_in_a_group_under_windows,
        grouped_heads,
    };
    for (size_t n = 0; n < sizeof of_both_paths / sizeof *of_both_paths; n++)
        tcase_add_loop_test(tests, of_both_paths[n], ATTN_KERNEL_REFERENCE, ATTN_KERNEL_FUSED + 1);
    tcase_add_test(tests, weights_on_request);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
