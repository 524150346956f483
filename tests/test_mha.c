/* The layer on small cases with right values known beforehand, and on trouble that users of other
 * attention code have met. Every case runs on both paths. */
#include "mha_fixture.h"

#ifdef ATTN_DOUBLE
static const double tolerance = 1e-14;
#else
static const double tolerance = 1e-6;
#endif

/* Wq = Wk = qk·I, Wv = Wo = I, biases 0; with qk = 0 every allowed key has the same weight. */
static mha_run identity_layer(const mha_case *c, double qk, const attn_real *x) {
    mha_run run = mha_setup(c, 1);
    ck_assert_uint_eq(run.d_inner, c->d_model);
    memset(run.theta, 0, run.num_params * sizeof *run.theta);
    for (size_t i = 0; i < c->d_model; i++) {
        size_t diagonal = i * c->d_model + i;
        run.w.wq[diagonal] = run.w.wk[diagonal] = (attn_real)qk;
        run.w.wv[diagonal] = run.w.wo[diagonal] = 1;
    }
    memcpy(run.x_q, x, run.size_q * sizeof *x);
    for (size_t i = 0; i < run.size_q; i++)
        run.dy[i] = 1;
    return run;
}

#define EXPECT(got, ...)                                                                  \
    do {                                                                                  \
        const attn_real want_[] = {__VA_ARGS__};                                          \
        test_close(#got, got, want_, sizeof want_ / sizeof *want_, tolerance, tolerance); \
    } while (0)

static void expect_zero(const char *what, const attn_real *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(x[i] == 0, "%s: element %zu is %g, not exactly 0", what, i, (double)x[i]);
}

START_TEST(one_head_identity_projections) {
    /* Two tokens of width 2, scale 1: scores x xᵀ = [[1,2],[2,13]], worked out by hand. */
    const attn_real x[] = {1, 0, 2, 3};
    mha_case c = {.batch = 1,
                  .len_q = 2,
                  .d_model = 2,
                  .num_heads = 1,
                  .has_scale = true,
                  .scale = 1,
                  .want_lse = true,
                  .kernel = mha_kernels[_i]};
    c.want_weights = c.kernel == ATTN_KERNEL_REFERENCE;
    mha_run run = identity_layer(&c, 1, x);
    mha_step(&run);
    double a = 1 / (1 + exp(1)), b = 1 / (1 + exp(11)); /* weights of key 0 in rows 0 and 1 */
    EXPECT(run.y, (attn_real)(a + 2 * (1 - a)), (attn_real)(3 * (1 - a)),
           (attn_real)(b + 2 * (1 - b)), (attn_real)(3 * (1 - b)));
    EXPECT(run.lse, (attn_real)(2 + log1p(exp(-1))), (attn_real)(13 + log1p(exp(-11))));
    if (run.weights)
        EXPECT(run.weights, (attn_real)a, (attn_real)(1 - a), (attn_real)b, (attn_real)(1 - b));
    mha_free(&run);
}
END_TEST

START_TEST(later_tokens_change_no_earlier_output) {
    enum { T = 70, D = 24, CUT = 37 };
    mha_case c = {.batch = 2,
                  .len_q = T,
                  .d_model = D,
                  .num_heads = 3,
                  .causal = true,
                  .kernel = mha_kernels[_i]};
    mha_run before = mha_setup(&c, 5), after = mha_setup(&c, 5);
    for (size_t b = 0; b < 2; b++)
        for (size_t t = CUT; t < T; t++)
            for (size_t i = 0; i < D; i++)
                after.x_q[(b * T + t) * D + i] = (attn_real)(t == CUT ? INFINITY : 1e3 * (double)i);
    mha_step(&before);
    mha_step(&after);
    for (size_t b = 0; b < 2; b++)
        test_same_bits("y before the change", after.y + b * T * D, before.y + b * T * D, CUT * D);
    ck_assert(isnan(after.y[CUT * D])); /* and what may be seen is seen */
    mha_free(&before);
    mha_free(&after);
}
END_TEST

/* CASES 1 */
START_TEST(wholly_padded_sample_sends_no_gradient) {
    const attn_real x[] = {1, 2, 3};
    mha_case c = {.batch = 1,
                  .len_q = 3,
                  .d_model = 1,
                  .num_heads = 1,
                  .padded = 2,
                  .want_lse = true,
                  .kernel = mha_kernels[_i]};
    mha_run run = identity_layer(&c, 1, x);
    run.w.bo[0] = (attn_real)0.5;
    mha_step(&run);
    EXPECT(run.y, (attn_real)0.5, (attn_real)0.5, (attn_real)0.5);
    ck_assert(run.dw.bo[0] == 3);
    expect_zero("parameter gradients before bo", run.dtheta, run.num_params - 1);
    expect_zero("dx", run.dx_q, 3);
    for (size_t i = 0; i < 3; i++)
        ck_assert(isinf(run.lse[i]) && run.lse[i] < 0);
    mha_free(&run);
}
END_TEST

/* CASES 1, second half */
START_TEST(padded_neighbour_leaves_gradients_alone) {
    mha_case one = {
        .batch = 1, .len_q = 5, .d_model = 6, .num_heads = 2, .kernel = mha_kernels[_i]};
    mha_case two = one;
    two.batch = 2;
    uint8_t padding[10] = {[5] = 1, 1, 1, 1, 1};
    mha_run alone = mha_setup(&one, 9), pair = mha_setup(&two, 9);
    memcpy(pair.x_q, alone.x_q, alone.size_q * sizeof *alone.x_q);
    memcpy(pair.dy, alone.dy, alone.size_q * sizeof *alone.dy);
    pair.in.mask.padding = padding;
    mha_step(&alone);
    mha_step(&pair);
    test_close("parameter gradients but bo", pair.dtheta, alone.dtheta, alone.num_params - 6,
               tolerance, tolerance);
    for (size_t i = 0; i < 6; i++)
        for (size_t t = 5; t < 10; t++)
            alone.dw.bo[i] += pair.dy[t * 6 + i];
    test_close("dbo", pair.dw.bo, alone.dw.bo, 6, tolerance, tolerance);
    test_same_bits("dx of the visible sample", pair.dx_q, alone.dx_q, alone.size_q);
    expect_zero("dx of the padded sample", pair.dx_q + alone.size_q, alone.size_q);
    mha_free(&alone);
    mha_free(&pair);
}
END_TEST

/* CASES 2 */
START_TEST(one_head_wholly_blocked) {
    mha_case c = {
        .batch = 2, .len_q = 4, .d_model = 6, .num_heads = 2, .kernel = ATTN_KERNEL_REFERENCE};
    mha_case asked = c;
    asked.want_weights = true;
    const uint8_t head_allowed[] = {0, 1};
    mha_run open = mha_setup(&asked, 3), with = mha_setup(&asked, 3), without = mha_setup(&c, 3);
    with.in.mask.attend = without.in.mask.attend = head_allowed;
    with.in.mask.attend_strides.head = without.in.mask.attend_strides.head = 1;
    mha_step(&open);
    mha_step(&with);
    mha_step(&without);
    mha_same_bits("weights on and off", &with, &without);
    for (size_t b = 0; b < 2; b++) {
        expect_zero("weights of head 0", with.weights + b * 32, 16);
        test_same_bits("weights of head 1", with.weights + b * 32 + 16, open.weights + b * 32 + 16,
                       16);
    }
    mha_free(&open);
    mha_free(&with);
    mha_free(&without);
}
END_TEST

/* CASES 3 */
START_TEST(causal_with_left_padding) {
    const attn_real x[] = {100, 2, 4};
    const uint8_t padding[] = {1, 0, 0};
    mha_case c = {.batch = 1,
                  .len_q = 3,
                  .d_model = 1,
                  .num_heads = 1,
                  .causal = true,
                  .kernel = mha_kernels[_i]};
    mha_run run = identity_layer(&c, 0, x);
    run.in.mask.padding = padding;
    mha_step(&run);
    EXPECT(run.y, 0, 2, 3);
    EXPECT(run.dx_q, 0, (attn_real)1.5, (attn_real)0.5);
    mha_free(&run);
}
END_TEST

/* CASES 7 */
START_TEST(mask_polarity) {
    const attn_real x[] = {10, 20};
    const uint8_t padding[][2] = {{0, 1}, {0, 2}, {0, 255}},
                  attend[][2] = {{1, 0}, {2, 0}, {255, 0}};
    mha_case c = {.batch = 1, .len_q = 2, .d_model = 1, .num_heads = 1, .kernel = mha_kernels[_i]};
    for (size_t byte = 0; byte < 3; byte++)
        for (int by_padding = 0; by_padding < 2; by_padding++) {
            mha_run run = identity_layer(&c, 0, x);
            if (by_padding)
                run.in.mask.padding = padding[byte];
            else {
                run.in.mask.attend = attend[byte];
                run.in.mask.attend_strides.key = 1;
            }
            mha_step(&run);
            EXPECT(run.y, 10, 10);
            mha_free(&run);
        }
}
END_TEST

/* CASES 8 */
START_TEST(sample_mask_reaches_its_sample_only) {
    const attn_real x[] = {1, 1, 9, 9, 1, 1, 9, 9};
    const uint8_t attend[] = {1, 0, 1, 1}; /* (2,1,1,2) */
    mha_case c = {.batch = 2, .len_q = 2, .d_model = 2, .num_heads = 2, .kernel = mha_kernels[_i]};
    mha_run run = identity_layer(&c, 0, x);
    run.in.mask.attend = attend;
    test_ok(
        attn_broadcast_strides(&run.in.mask.attend_strides, (size_t[]){2, 1, 1, 2}, 4, 2, 2, 2, 2));
    mha_step(&run);
    EXPECT(run.y, 1, 1, 1, 1, 5, 5, 5, 5);
    mha_free(&run);
}
END_TEST

/* CASES 9 */
START_TEST(mask_dimension_of_one_is_broadcast) {
    mha_case c = {.batch = 1,
                  .len_q = 2,
                  .len_k = 3,
                  .d_model = 1,
                  .num_heads = 1,
                  .kernel = mha_kernels[_i]};
    mha_run run = identity_layer(&c, 0, (attn_real[]){0, 0});
    uint8_t *attend = malloc(2); /* exactly (2,1): a read past it is seen by a checker */
    attend[0] = 0;
    attend[1] = 1;
    for (size_t j = 0; j < 3; j++)
        run.x_v[j] = (attn_real)(1 + 4 * j);
    run.in.mask.attend = attend;
    test_ok(attn_broadcast_strides(&run.in.mask.attend_strides, (size_t[]){2, 1}, 2, 1, 1, 2, 3));
    mha_step(&run);
    EXPECT(run.y, 0, 5);
    free(attend);
    mha_free(&run);
}
END_TEST

/* CASES 10: what the layer can promise. A NaN in an input goes through the projections of its own
 * token; the mask keeps it from all others. */
START_TEST(nan_behind_a_mask_stays_there) {
    mha_case c = {.batch = 1,
                  .len_q = 3,
                  .len_k = 4,
                  .d_model = 4,
                  .num_heads = 2,
                  .padded = 1,
                  .kernel = mha_kernels[_i]};
    mha_run run = mha_setup(&c, 4), clean = mha_setup(&c, 4);
    run.padding[3] = clean.padding[3] = 1;
    for (size_t i = 0; i < 4; i++) {
        clean.x_k[3 * 4 + i] = clean.x_v[3 * 4 + i] = 7;
        run.x_k[3 * 4 + i] = run.x_v[3 * 4 + i] = (attn_real)NAN;
    }
    mha_step(&run);
    mha_step(&clean);
    test_close("y", run.y, clean.y, run.size_q, tolerance, tolerance);
    test_close("dx_q", run.dx_q, clean.dx_q, run.size_q, tolerance, tolerance);
    test_close("dx_k", run.dx_k, clean.dx_k, run.size_k, tolerance, tolerance);
    expect_zero("dx_k of the hidden key", run.dx_k + 12, 4);
    expect_zero("dx_v of the hidden key", run.dx_v + 12, 4);
    mha_free(&run);
    run = mha_setup(&c, 4);
    run.x_v[0] = (attn_real)NAN;
    mha_step(&run);
    ck_assert(isnan(run.y[0]));
    mha_free(&run);
    mha_free(&clean);
}
END_TEST

/* CASES 25 */
START_TEST(empty_inputs) {
    mha_case c = {.batch = 2,
                  .len_q = 3,
                  .len_k = 1,
                  .d_model = 4,
                  .num_heads = 2,
                  .want_lse = true,
                  .kernel = mha_kernels[_i]};
    mha_run no_keys = mha_setup(&c, 6), no_queries = mha_setup(&c, 6), no_batch = mha_setup(&c, 6);
    no_keys.in.len_k = 0;
    mha_step(&no_keys);
    for (size_t row = 0; row < 6; row++)
        test_same_bits("y is bo", no_keys.y + row * 4, no_keys.w.bo, 4);
    for (size_t i = 0; i < 12; i++)
        ck_assert(isinf(no_keys.lse[i]) && no_keys.lse[i] < 0);
    expect_zero("dx_q", no_keys.dx_q, no_keys.size_q);
    expect_zero("parameter gradients before bo", no_keys.dtheta, no_keys.num_params - 4);
    for (size_t i = 0; i < 4; i++) {
        double sum = 0;
        for (size_t row = 0; row < 6; row++)
            sum += (double)no_keys.dy[row * 4 + i];
        ck_assert_double_eq_tol((double)no_keys.dw.bo[i], sum, 10 * tolerance);
    }
    ck_assert(isnan(no_keys.dx_k[0])); /* no element of (B,0,D) was written */

    no_queries.in.len_q = 0;
    no_queries.in.query = NULL;
    mha_step(&no_queries);
    ck_assert(isnan(no_queries.y[0]) && isnan(no_queries.lse[0]));
    expect_zero("dx_k", no_queries.dx_k, no_queries.size_k);
    expect_zero("dx_v", no_queries.dx_v, no_queries.size_k);
    expect_zero("parameter gradients", no_queries.dtheta, no_queries.num_params);

    no_batch.in.batch = 0;
    mha_step(&no_batch);
    ck_assert(isnan(no_batch.y[0]) && isnan(no_batch.dx_q[0]) && isnan(no_batch.dx_k[0]));
    expect_zero("parameter gradients", no_batch.dtheta, no_batch.num_params);
    mha_free(&no_keys);
    mha_free(&no_queries);
    mha_free(&no_batch);
}
END_TEST

/* CASES 33 */
START_TEST(training_and_inference_give_the_same_bits) {
    mha_case c = {.batch = 3,
                  .len_q = 9,
                  .d_model = 8,
                  .num_heads = 2,
                  .padded = 2,
                  .causal = true,
                  .want_lse = true,
                  .kernel = mha_kernels[_i]};
    mha_run training = mha_setup(&c, 8), inference = mha_setup(&c, 8);
    mha_step(&training);
    test_ok(attn_mha_memory(&inference.cfg, &inference.in, &inference.need));
    inference.arena = test_arena(inference.need.inference);
    test_ok(attn_mha_forward(&inference.cfg, &inference.w, &inference.in, inference.y,
                             &inference.arena, NULL));
    ck_assert_uint_eq(inference.arena.used, 0);
    test_same_bits("y", inference.y, training.y, training.size_q);
    test_same_bits("lse", inference.lse, training.lse, 3 * 2 * 9);
    mha_free(&training);
    mha_free(&inference);
}
END_TEST

/* CASES 34 */
START_TEST(backward_twice_doubles_parameter_gradients) {
    mha_case c = {.batch = 2,
                  .len_q = 6,
                  .len_k = 5,
                  .d_model = 8,
                  .num_heads = 2,
                  .alibi = true,
                  .alibi_learned = true,
                  .sinks = true,
                  .bias_rank = 2};
    c.kernel = mha_kernels[_i];
    mha_run once = mha_setup(&c, 12), twice = mha_setup(&c, 12);
    mha_step(&once);
    mha_step(&twice);
    for (size_t i = 0; i < twice.size_q; i++)
        twice.dx_q[i] = (attn_real)NAN;
    for (size_t i = 0; i < twice.size_bias; i++)
        twice.dbias[i] = (attn_real)NAN;
    test_ok(attn_mha_backward(&twice.cfg, &twice.w, &twice.saved, twice.dy, &twice.dw, &twice.dx,
                              &twice.arena));
    for (size_t i = 0; i < once.num_params; i++)
        once.dtheta[i] *= 2;
    test_same_bits("parameter gradients", twice.dtheta, once.dtheta, once.num_params);
    test_same_bits("dx_q", twice.dx_q, once.dx_q, once.size_q);
    test_same_bits("dbias", twice.dbias, once.dbias, once.size_bias);
    mha_free(&once);
    mha_free(&twice);
}
END_TEST

/* Dropout belongs to training: inference is the layer without it, and weights and lse know nothing
 * of it. Another seed drops other weights. */
START_TEST(dropout_is_off_in_inference) {
    mha_case plain = {.batch = 2,
                      .len_q = 9,
                      .d_model = 8,
                      .num_heads = 2,
                      .want_lse = true,
                      .want_weights = mha_kernels[_i] == ATTN_KERNEL_REFERENCE,
                      .kernel = mha_kernels[_i]};
    mha_case dropped = plain;
    dropped.dropout = 0.5;
    mha_run want = mha_setup(&plain, 8), run = mha_setup(&dropped, 8),
            other = mha_setup(&dropped, 8);
    other.in.dropout_seed++;
    mha_step(&want);
    mha_step(&run);
    mha_step(&other);
    ck_assert(memcmp(run.y, want.y, run.size_q * sizeof *run.y) != 0);
    ck_assert(memcmp(run.y, other.y, run.size_q * sizeof *run.y) != 0);
    test_same_bits("lse", run.lse, want.lse, 2 * 2 * 9);
    if (run.weights)
        test_same_bits("weights", run.weights, want.weights, 2 * 2 * 9 * 9);
    attn_arena_reset(&run.arena);
    test_ok(attn_mha_forward(&run.cfg, &run.w, &run.in, run.y, &run.arena, NULL));
    test_same_bits("y of inference", run.y, want.y, run.size_q);
    mha_free(&want);
    mha_free(&run);
    mha_free(&other);
}
END_TEST

START_TEST(unwanted_gradients_change_no_wanted_ones) {
    mha_case c = {.batch = 2,
                  .len_q = 4,
                  .len_k = _i & 1 ? 6 : 0,
                  .d_model = 8,
                  .num_heads = 2,
                  .alibi = true,
                  .alibi_learned = true,
                  .sinks = true,
                  .bias_rank = 3};
    c.kernel = mha_kernels[_i / 2];
    mha_run all = mha_setup(&c, 21);
    mha_step(&all);
    for (unsigned wanted = 0; wanted < 32; wanted++) {
        mha_run some = mha_setup(&c, 21);
        if (!c.len_k && (wanted & 6)) { /* self-attention has no dx_k and dx_v */
            mha_free(&some);
            continue;
        }
        some.dx =
            (attn_mha_input_grads){wanted & 1 ? some.dx_q : NULL, wanted & 2 ? some.dx_k : NULL,
                                   wanted & 4 ? some.dx_v : NULL, wanted & 16 ? some.dbias : NULL};
        test_ok(attn_mha_memory(&some.cfg, &some.in, &some.need));
        some.arena = test_arena(some.need.training);
        test_ok(attn_mha_forward(&some.cfg, &some.w, &some.in, some.y, &some.arena, &some.saved));
        test_ok(attn_mha_backward(&some.cfg, &some.w, &some.saved, some.dy,
                                  wanted & 8 ? &some.dw : NULL, wanted ? &some.dx : NULL,
                                  &some.arena));
        if (wanted & 1)
            test_same_bits("dx_q", some.dx_q, all.dx_q, all.size_q);
        else
            ck_assert(isnan(some.dx_q[0]));
        if (wanted & 2)
            test_same_bits("dx_k", some.dx_k, all.dx_k, all.size_k);
        if (wanted & 4)
            test_same_bits("dx_v", some.dx_v, all.dx_v, all.size_k);
        if (wanted & 16)
            test_same_bits("dbias", some.dbias, all.dbias, all.size_bias);
        else
            ck_assert(isnan(some.dbias[0]));
        if (wanted & 8)
            test_same_bits("dparams", some.dtheta, all.dtheta, all.num_params);
        else
            expect_zero("dparams", some.dtheta, some.num_params);
        mha_free(&some);
    }
    mha_free(&all);
}
END_TEST

/* A bias along the diagonals, read through strides that overlap, has no gradient; the rest has. */
START_TEST(bias_whose_elements_overlap) {
    mha_case c = {.batch = 2,
                  .len_q = 5,
                  .d_model = 6,
                  .num_heads = 2,
                  .bias_rank = 2,
                  .kernel = mha_kernels[_i]};
    mha_run run = mha_setup(&c, 26), dense = mha_setup(&c, 26);
    run.in.bias_strides = (attn_broadcast){.query = 1, .key = 1};
    run.dx.bias = dense.dx.bias = NULL;
    mha_step(&run);
    for (size_t i = 0; i < c.len_q; i++)
        memcpy(dense.bias + i * c.len_q, run.bias + i, c.len_q * sizeof *run.bias);
    mha_step(&dense);
    mha_same_bits("overlapping bias", &run, &dense);
    run.dx.bias = run.dbias;
    test_refused(
        attn_mha_backward(&run.cfg, &run.w, &run.saved, run.dy, &run.dw, &run.dx, &run.arena),
        ATTN_ERROR_SHAPE);
    mha_free(&run);
    mha_free(&dense);
}
END_TEST

/* CASES 35, first half: x -> layer 1 -> layer 2, both saved sets and all scratch in one arena. */
START_TEST(two_layers_in_one_arena) {
    mha_case c = {.batch = 2,
                  .len_q = 9,
                  .d_model = 12,
                  .num_heads = 3,
                  .causal = true,
                  .kernel = mha_kernels[_i]};
    mha_run first[2] = {mha_setup(&c, 30), mha_setup(&c, 30)};
    mha_run second[2] = {mha_setup(&c, 31), mha_setup(&c, 31)};
    attn_memory need;
    test_ok(attn_mha_memory(&first[0].cfg, &first[0].in, &need));
    attn_arena shared = test_arena(need.saved + need.training);
    attn_arena own[2] = {test_arena(need.training), test_arena(need.training)};
    for (int separate = 0; separate < 2; separate++) {
        mha_run *a = &first[separate], *b = &second[separate];
        attn_arena *arena_a = separate ? &own[0] : &shared, *arena_b = separate ? &own[1] : &shared;
        b->in.query = a->y;
        test_ok(attn_mha_forward(&a->cfg, &a->w, &a->in, a->y, arena_a, &a->saved));
        test_ok(attn_mha_forward(&b->cfg, &b->w, &b->in, b->y, arena_b, &b->saved));
        test_ok(attn_mha_backward(&b->cfg, &b->w, &b->saved, b->dy, &b->dw, &b->dx, arena_b));
        test_ok(attn_mha_backward(&a->cfg, &a->w, &a->saved, b->dx_q, &a->dw, &a->dx, arena_a));
    }
    mha_same_bits("layer 1", &first[0], &first[1]);
    mha_same_bits("layer 2", &second[0], &second[1]);
    for (int i = 0; i < 2; i++) {
        mha_free(&first[i]);
        mha_free(&second[i]);
        attn_arena_destroy(&own[i]);
    }
    attn_arena_destroy(&shared);
}
END_TEST

/* CASES 35, second half */
START_TEST(used_arena_equals_fresh_one) {
    mha_case masked = {.batch = 2,
                       .len_q = 7,
                       .d_model = 8,
                       .num_heads = 2,
                       .padded = 2,
                       .causal = true,
                       .kernel = mha_kernels[_i]};
    mha_case open = {
        .batch = 2, .len_q = 7, .d_model = 8, .num_heads = 2, .kernel = mha_kernels[_i]};
    mha_run used = mha_setup(&masked, 40), again = mha_setup(&open, 41),
            fresh = mha_setup(&open, 41);
    mha_step(&used);
    attn_arena_reset(&used.arena);
    again.arena = used.arena;
    memset(&used.arena, 0, sizeof used.arena);
    mha_step(&again);
    mha_step(&fresh);
    mha_same_bits("unmasked after masked", &again, &fresh);
    mha_free(&used);
    mha_free(&again);
    mha_free(&fresh);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mha");
    TCase *tests = tcase_create("values");
    const int num_kernels = mha_num_kernels();
    tcase_add_loop_test(tests, one_head_identity_projections, 0, num_kernels);
    tcase_add_loop_test(tests, later_tokens_change_no_earlier_output, 0, num_kernels);
    tcase_add_loop_test(tests, wholly_padded_sample_sends_no_gradient, 0, num_kernels);
    tcase_add_loop_test(tests, padded_neighbour_leaves_gradients_alone, 0, num_kernels);
    tcase_add_test(tests, one_head_wholly_blocked);
    tcase_add_loop_test(tests, causal_with_left_padding, 0, num_kernels);
    tcase_add_loop_test(tests, mask_polarity, 0, num_kernels);
    tcase_add_loop_test(tests, sample_mask_reaches_its_sample_only, 0, num_kernels);
    tcase_add_loop_test(tests, mask_dimension_of_one_is_broadcast, 0, num_kernels);
    tcase_add_loop_test(tests, nan_behind_a_mask_stays_there, 0, num_kernels);
    tcase_add_loop_test(tests, empty_inputs, 0, num_kernels);
    tcase_add_loop_test(tests, training_and_inference_give_the_same_bits, 0, num_kernels);
    tcase_add_loop_test(tests, backward_twice_doubles_parameter_gradients, 0, num_kernels);
    tcase_add_loop_test(tests, dropout_is_off_in_inference, 0, num_kernels);
    tcase_add_loop_test(tests, unwanted_gradients_change_no_wanted_ones, 0, 2 * num_kernels);
    tcase_add_loop_test(tests, bias_whose_elements_overlap, 0, num_kernels);
    tcase_add_loop_test(tests, two_layers_in_one_arena, 0, num_kernels);
    tcase_add_loop_test(tests, used_arena_equals_fresh_one, 0, num_kernels);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
