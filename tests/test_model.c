#include "test.h"

enum { BATCH = 3 };

static const struct setup {
    attn_model_config config;
    size_t len;
} setups[] = {
    {{.vocab = 5, .context = 6, .d_model = 8, .num_heads = 2, .num_layers = 2, .bias = true}, 6},
    {{.vocab = 7, .context = 9, .d_model = 6, .num_heads = 3, .num_layers = 1}, 7},
    {{.vocab = 4,
      .context = 5,
      .d_model = 5,
      .num_heads = 2,
      .d_head = 3,
      .num_layers = 3,
      .bias = true,
      .has_scale = true,
      .scale = 1.5,
      .kernel = ATTN_KERNEL_REFERENCE},
     4},
    {{.vocab = 5,
      .context = 6,
      .d_model = 8,
      .num_heads = 2,
      .num_layers = 2,
      .bias = true,
      .rope = ATTN_ROPE_HALF,
      .rope_base = 30},
     5},
    {{.vocab = 5,
      .context = 7,
      .d_model = 8,
      .num_heads = 4,
      .num_kv_heads = 2,
      .num_layers = 2,
      .bias = true,
      .softcap = 2,
      .alibi = true,
      .alibi_learned = true,
      .sinks = true,
      .dropout = 0.3,
      .window = {.left_on = true, .left = 2}},
     7},
    {{.vocab = 3, .context = 4, .d_model = 4, .num_heads = 1, .num_layers = 0, .bias = true}, 4},
    {{.vocab = 1, .context = 1, .d_model = 1, .num_heads = 1, .num_layers = 1, .bias = true}, 1},
};
enum { NUM_SETUPS = sizeof setups / sizeof *setups };

/* One model with parameters away from their initial values, data, and room for one step. */
typedef struct bench {
    attn_model_config config;
    attn_model_input input;
    size_t n, rows, num_logits;
    attn_real *theta, *dtheta;
    attn_model_params w, dw;
    int32_t *tokens, *targets;
    attn_memory memory;
    attn_arena arena;
} bench;

static bench set_up(const struct setup *s) {
    bench m = {.config = s->config, .n = attn_model_num_params(&s->config)};
    m.rows = BATCH * s->len;
    m.num_logits = m.rows * s->config.vocab;
    m.theta = test_normal(m.n, .4, 21);
    m.dtheta = calloc(m.n, sizeof *m.dtheta);
    m.w = attn_model_params_view(&m.config, m.theta);
    m.dw = attn_model_params_view(&m.config, m.dtheta);
    m.tokens = malloc(m.rows * sizeof *m.tokens);
    m.targets = malloc(m.rows * sizeof *m.targets);
    attn_random random = attn_random_seed(3, 4);
    for (size_t i = 0; i < m.rows; i++) {
        m.tokens[i] = (int32_t)attn_random_below(&random, (uint32_t)s->config.vocab);
        m.targets[i] =
            i % 4 == 1 ? -1 : (int32_t)attn_random_below(&random, (uint32_t)s->config.vocab);
    }
    m.input = (attn_model_input){.batch = BATCH,
                                 .len = s->len,
                                 .tokens = m.tokens,
                                 .targets = m.targets,
                                 .dropout_seed = 77};
    test_ok(attn_model_memory(&m.config, &m.input, &m.memory));
    m.arena = test_arena(m.memory.training);
    return m;
}

static void tear_down(bench *m) {
    attn_arena_destroy(&m->arena);
    free(m->theta);
    free(m->dtheta);
    free(m->tokens);
    free(m->targets);
}

static double loss_of(bench *m) {
    attn_loss loss;
    test_ok(attn_model_forward(&m->config, &m->w, &m->input, &loss, &m->arena, NULL));
    return loss.mean;
}

static void step(bench *m, attn_loss *loss) {
    attn_model_saved saved;
    test_ok(attn_model_forward(&m->config, &m->w, &m->input, loss, &m->arena, &saved));
    test_ok(attn_model_backward(&m->config, &m->w, &saved, &m->dw, &m->arena));
    attn_arena_reset(&m->arena);
}

/* The mean loss as a function of all parameters. */
static attn_status loss_function(void *user, const attn_real *x, double *value,
                                 attn_real *gradient) {
    bench *m = user;
    attn_model_saved saved;
    attn_loss loss = {0};
    ck_assert(x == m->theta);
    attn_arena_reset(&m->arena);
    attn_status status = attn_model_forward(&m->config, &m->w, &m->input, &loss, &m->arena, &saved);
    *value = loss.mean;
    if (status != ATTN_OK || !gradient)
        return status;
    attn_model_params dw = attn_model_params_view(&m->config, gradient);
    memset(gradient, 0, m->n * sizeof *gradient);
    return attn_model_backward(&m->config, &m->w, &saved, &dw, &m->arena);
}

START_TEST(every_gradient_is_the_slope) {
    bench m = set_up(&setups[_i]);
    attn_gradcheck_problem problem = {
        .function = loss_function, .user = &m, .x = m.theta, .count = m.n};
    attn_gradcheck_report report;
    attn_memory memory;
    test_ok(attn_gradcheck_memory(&problem, NULL, &memory));
    attn_arena arena = test_arena(memory.inference);
    test_ok(attn_gradcheck_run(&report, NULL, &problem, NULL, &arena));
    /* A vocabulary of one has a loss of zero whatever the parameters. */
    attn_gradcheck_result want =
        m.config.vocab == 1 ? ATTN_GRADCHECK_VACUOUS : ATTN_GRADCHECK_PASSED;
    ck_assert_msg(report.result == want,
                  "setup %d (%s): %s: element %zu of %zu: %.17g, measured %.17g, error %g", _i,
                  TEST_PRECISION, report.reason, report.worst.worst, m.n, report.worst.claimed,
                  report.worst.measured, report.worst.error);
    ck_assert_uint_eq(report.checked, m.n);
    attn_arena_destroy(&arena);
    tear_down(&m);
}
END_TEST

/* The same model, put together from the public operations, each array its own. */
static double compose(const bench *m, attn_real *dtheta) {
    const attn_model_config *c = &m->config;
    const attn_model_input *in = &m->input;
    const size_t width = m->rows * c->d_model, layers = c->num_layers;
    attn_mha_config layer = attn_model_layer_config(c);
    attn_model_params dw = attn_model_params_view(c, dtheta);
    attn_real *x = test_poison(width * (layers + 1)), *logits = test_poison(m->num_logits);
    attn_real *dx = test_poison(width), *dz = test_poison(width);
    attn_mha_saved *saved = calloc(layers + 1, sizeof *saved);
    attn_arena arena = test_arena(1 << 20);
    attn_loss loss;
    test_ok(attn_embedding_forward(x, in->tokens, m->w.token_embedding, m->w.position_embedding,
                                   in->batch, in->len, c->vocab, c->d_model));
    for (size_t l = 0; l < layers; l++) {
        attn_mha_params w = attn_model_layer_view(c, &m->w, l);
        attn_mha_input input = {.batch = in->batch,
                                .len_q = in->len,
                                .query = x + l * width,
                                .mask = {.causal = true, .window = c->window},
                                .dropout_seed = attn_model_layer_seed(in->dropout_seed, l)};
        attn_real *next = x + (l + 1) * width;
        test_ok(attn_mha_forward(&layer, &w, &input, next, &arena, &saved[l]));
        for (size_t i = 0; i < width; i++)
            next[i] += x[l * width + i];
    }
    const attn_real *last = x + layers * width;
    test_ok(attn_linear_forward(logits, last, m->w.head_weight, m->w.head_bias, m->rows, c->d_model,
                                c->vocab));
    test_ok(attn_cross_entropy_forward(&loss, logits, in->targets, m->rows, c->vocab));
    test_ok(attn_cross_entropy_backward(logits, 1, logits, in->targets, m->rows, c->vocab));
    test_ok(attn_linear_backward(dx, dw.head_weight, dw.head_bias, logits, last, m->w.head_weight,
                                 m->rows, c->d_model, c->vocab));
    for (size_t l = layers; l-- > 0;) {
        attn_mha_params w = attn_model_layer_view(c, &m->w, l);
        attn_mha_params dlayer = attn_model_layer_view(c, &dw, l);
        attn_mha_input_grads dinput = {.query = dz};
        test_ok(attn_mha_backward(&layer, &w, &saved[l], dx, &dlayer, &dinput, &arena));
        for (size_t i = 0; i < width; i++)
            dx[i] += dz[i];
    }
    test_ok(attn_embedding_backward(dw.token_embedding, dw.position_embedding, dx, in->tokens,
                                    in->batch, in->len, c->vocab, c->d_model));
    attn_arena_destroy(&arena);
    free(x);
    free(logits);
    free(dx);
    free(dz);
    free(saved);
    return loss.mean;
}

START_TEST(the_model_is_its_parts) {
    bench m = set_up(&setups[_i]);
    attn_real *want = calloc(m.n, sizeof *want);
    attn_loss loss;
    double mean = compose(&m, want);
    step(&m, &loss);
    ck_assert_msg(loss.mean == mean, "setup %d: loss %.17g, parts %.17g", _i, loss.mean, mean);
    char what[40];
    snprintf(what, sizeof what, "dtheta of setup %d", _i);
    test_close(what, m.dtheta, want, m.n, 0, 0);
    free(want);
    tear_down(&m);
}
END_TEST

START_TEST(inference_gives_the_numbers_of_training_in_less_memory) {
    bench m = set_up(&setups[_i]);
    attn_loss trained, inferred;
    attn_model_saved saved;
    attn_real *logits = test_poison(m.num_logits);
    attn_model_config keeps = m.config; /* inference drops nothing, whatever the configuration */
    keeps.dropout = 0;
    test_ok(attn_model_forward(&keeps, &m.w, &m.input, &trained, &m.arena, &saved));
    ck_assert_uint_eq(m.arena.used, m.memory.saved);
    attn_model_input with_logits = m.input;
    with_logits.logits = logits;
    attn_memory memory;
    test_ok(attn_model_memory(&m.config, &with_logits, &memory));
    ck_assert_uint_le(memory.inference, m.memory.inference);
    attn_arena arena = test_arena(memory.inference);
    test_ok(attn_model_forward(&m.config, &m.w, &with_logits, &inferred, &arena, NULL));
    ck_assert_uint_eq(arena.used, 0);
    ck_assert_uint_eq(arena.high_water, memory.inference);
    ck_assert(trained.mean == inferred.mean && trained.correct == inferred.correct);
    ck_assert(memcmp(logits, saved.logits, m.num_logits * sizeof *logits) == 0);
    /* without targets there is no loss, and none is needed */
    with_logits.targets = NULL;
    test_ok(attn_model_forward(&m.config, &m.w, &with_logits, NULL, &arena, NULL));
    test_ok(attn_model_forward(&m.config, &m.w, &with_logits, &inferred, &arena, NULL));
    ck_assert(inferred.mean == 0 && inferred.counted == 0);
    attn_arena_destroy(&arena);
    free(logits);
    tear_down(&m);
}
END_TEST

START_TEST(memory_is_exact_and_a_byte_less_is_refused_before_anything_is_written) {
    bench m = set_up(&setups[_i]);
    attn_loss loss;
    step(&m, &loss);
    ck_assert_uint_eq(m.arena.high_water, m.memory.training);

    attn_model_input input = m.input;
    attn_memory memory;
    input.logits = test_poison(m.num_logits);
    test_ok(attn_model_memory(&m.config, &input, &memory));
    attn_arena small = test_arena(memory.inference - 1);
    attn_loss untouched = {-1, 2, 3};
    test_refused(attn_model_forward(&m.config, &m.w, &input, &untouched, &small, NULL),
                 ATTN_ERROR_MEMORY);
    ck_assert(untouched.mean == -1 && untouched.counted == 2 && untouched.correct == 3);
    for (size_t i = 0; i < m.num_logits; i++)
        ck_assert(isnan(input.logits[i]));
    ck_assert_uint_eq(small.used, 0);
    attn_arena_destroy(&small);

    /* room for the forward, but not for the backward: gradients stay as they are */
    small = test_arena(m.memory.training - 1);
    attn_model_saved saved;
    memset(m.dtheta, 0, m.n * sizeof *m.dtheta);
    if (attn_model_forward(&m.config, &m.w, &m.input, &loss, &small, &saved) == ATTN_OK) {
        size_t used = small.used;
        test_refused(attn_model_backward(&m.config, &m.w, &saved, &m.dw, &small),
                     ATTN_ERROR_MEMORY);
        ck_assert_uint_eq(small.used, used);
    }
    for (size_t i = 0; i < m.n; i++)
        ck_assert(m.dtheta[i] == 0);
    attn_arena_destroy(&small);
    free(input.logits);
    tear_down(&m);
}
END_TEST

/* Each layer and each step has a pattern of its own. */
START_TEST(dropout_seeds_differ) {
    uint64_t seeds[12];
    for (size_t i = 0; i < 12; i++) {
        seeds[i] = attn_model_layer_seed(i / 4, i % 4);
        ck_assert(seeds[i] == attn_model_layer_seed(i / 4, i % 4));
        for (size_t j = 0; j < i; j++)
            ck_assert(seeds[i] != seeds[j]);
    }
}
END_TEST

START_TEST(gradients_are_added) {
    bench m = set_up(&setups[0]);
    attn_model_saved saved;
    attn_loss loss;
    test_ok(attn_model_forward(&m.config, &m.w, &m.input, &loss, &m.arena, &saved));
    test_ok(attn_model_backward(&m.config, &m.w, &saved, &m.dw, &m.arena));
    attn_real *twice = malloc(m.n * sizeof *twice);
    for (size_t i = 0; i < m.n; i++)
        twice[i] = 2 * m.dtheta[i];
    test_ok(attn_model_backward(&m.config, &m.w, &saved, &m.dw, &m.arena));
    test_close("second backward", m.dtheta, twice, m.n, 0, 4 * TEST_EPSILON);
    free(twice);
    tear_down(&m);
}
END_TEST

START_TEST(later_tokens_change_no_bit_of_earlier_logits) {
    bench m = set_up(&setups[0]);
    const size_t len = m.input.len, vocab = m.config.vocab, changed_from = 3;
    attn_real *before = test_poison(m.num_logits), *after = test_poison(m.num_logits);
    m.input.targets = NULL;
    m.input.logits = before;
    test_ok(attn_model_forward(&m.config, &m.w, &m.input, NULL, &m.arena, NULL));
    for (size_t b = 0; b < BATCH; b++)
        for (size_t t = changed_from; t < len; t++)
            m.tokens[b * len + t] = (m.tokens[b * len + t] + 1) % (int32_t)vocab;
    m.input.logits = after;
    test_ok(attn_model_forward(&m.config, &m.w, &m.input, NULL, &m.arena, NULL));
    for (size_t b = 0; b < BATCH; b++)
        for (size_t t = 0; t < len; t++) {
            size_t at = (b * len + t) * vocab;
            bool same = memcmp(before + at, after + at, vocab * sizeof *before) == 0;
            ck_assert_msg(same == (t < changed_from), "sample %zu, position %zu", b, t);
        }
    free(before);
    free(after);
    tear_down(&m);
}
END_TEST

START_TEST(weights_of_the_layer_asked_for) {
    bench m = set_up(&setups[0]);
    const size_t heads = m.config.num_heads, len = m.input.len, n = BATCH * heads * len * len;
    attn_real *weights[2];
    double without = loss_of(&m);
    for (size_t layer = 0; layer < 2; layer++) {
        weights[layer] = test_poison(n);
        m.input.weights = weights[layer];
        m.input.weights_layer = layer;
        attn_memory memory;
        test_ok(attn_model_memory(&m.config, &m.input, &memory));
        attn_arena arena = test_arena(memory.inference);
        attn_loss loss;
        test_ok(attn_model_forward(&m.config, &m.w, &m.input, &loss, &arena, NULL));
        attn_arena_destroy(&arena);
        ck_assert_double_eq_tol(loss.mean, without, 32 * TEST_EPSILON);
        for (size_t row = 0; row < n / len; row++) {
            double sum = 0;
            for (size_t j = 0; j < len; j++) {
                double p = (double)weights[layer][row * len + j];
                ck_assert_msg(j <= row % len ? p > 0 : p == 0, "row %zu key %zu: %g", row, j, p);
                sum += p;
            }
            ck_assert_double_eq_tol(sum, 1, 16 * TEST_EPSILON);
        }
    }
    ck_assert(memcmp(weights[0], weights[1], n * sizeof *weights[0]) != 0);
    free(weights[0]);
    free(weights[1]);
    tear_down(&m);
}
END_TEST

START_TEST(threads_change_no_bit) {
    struct setup s = {{.vocab = 40,
                       .context = 48,
                       .d_model = 64,
                       .num_heads = 4,
                       .num_layers = 2,
                       .bias = true,
                       .max_threads = 1},
                      48};
    bench one = set_up(&s);
    s.config.max_threads = 4;
    bench four = set_up(&s);
    attn_loss loss_one, loss_four;
    step(&one, &loss_one);
    step(&four, &loss_four);
    ck_assert(loss_one.mean == loss_four.mean);
    ck_assert(memcmp(one.dtheta, four.dtheta, one.n * sizeof *one.dtheta) == 0);
    tear_down(&one);
    tear_down(&four);
}
END_TEST

START_TEST(initial_parameters) {
    const attn_model_config c = {
        .vocab = 50, .context = 60, .d_model = 32, .num_heads = 4, .num_layers = 2, .bias = true};
    size_t n = attn_model_num_params(&c);
    attn_real *a = test_poison(n), *b = test_poison(n);
    test_ok(attn_model_params_init(&c, a, 5));
    test_ok(attn_model_params_init(&c, b, 5));
    ck_assert(memcmp(a, b, n * sizeof *a) == 0);
    attn_model_params w = attn_model_params_view(&c, a);
    double square = 0, bound = sqrt(6.0 / (50 + 32)), top = 0;
    for (size_t i = 0; i < (50 + 60) * 32; i++)
        square += (double)a[i] * (double)a[i] / ((50 + 60) * 32);
    ck_assert_double_eq_tol(sqrt(square), .1, .005);
    for (size_t i = 0; i < 50 * 32; i++)
        top = fmax(top, fabs((double)w.head_weight[i]));
    ck_assert(top <= bound * (1 + TEST_EPSILON) && top > .95 * bound);
    for (size_t i = 0; i < 50; i++)
        ck_assert(w.head_bias[i] == 0);
    attn_mha_params first = attn_model_layer_view(&c, &w, 0);
    attn_mha_params second = attn_model_layer_view(&c, &w, 1);
    ck_assert(memcmp(first.wq, second.wq, 32 * 32 * sizeof *a) != 0);
    ck_assert(second.bo + 32 == w.head_weight);
    test_ok(attn_model_params_init(&c, b, 6));
    ck_assert(
        a[0] != b[0] &&
        first.wq[0] !=
            attn_model_layer_view(&c, &(attn_model_params){.layers = b + (50 + 60) * 32}, 0).wq[0]);
    free(a);
    free(b);
}
END_TEST

START_TEST(bad_configurations) {
    static const struct {
        attn_model_config config;
        attn_status status;
    } bad[] = {
        {{.vocab = 0, .context = 4, .d_model = 4, .num_heads = 1}, ATTN_ERROR_ARGUMENT},
        {{.vocab = 4, .context = 0, .d_model = 4, .num_heads = 1}, ATTN_ERROR_ARGUMENT},
        {{.vocab = 4, .context = 4, .d_model = 0, .num_heads = 1}, ATTN_ERROR_ARGUMENT},
        {{.vocab = 4, .context = 4, .d_model = 4, .num_heads = 0}, ATTN_ERROR_ARGUMENT},
        {{.vocab = 4, .context = 4, .d_model = 64, .num_heads = 5}, ATTN_ERROR_SHAPE},
        {{.vocab = 4, .context = 4, .d_model = 4, .num_heads = 1, .num_layers = SIZE_MAX / 4},
         ATTN_ERROR_OVERFLOW},
        {{.vocab = 4, .context = SIZE_MAX / 2, .d_model = 4, .num_heads = 1}, ATTN_ERROR_OVERFLOW},
        {{.vocab = 4,
          .context = 4,
          .d_model = 4,
          .num_heads = 1,
          .has_scale = true,
          .scale = INFINITY},
         ATTN_ERROR_ARGUMENT},
        {{.vocab = 4, .context = 4, .d_model = 3, .num_heads = 1, .rope = ATTN_ROPE_HALF},
         ATTN_ERROR_SHAPE},
        {{.vocab = 4, .context = 4, .d_model = 4, .num_heads = 4, .num_kv_heads = 3},
         ATTN_ERROR_SHAPE},
        {{.vocab = 4, .context = 4, .d_model = 4, .num_heads = 1, .dropout = 1},
         ATTN_ERROR_ARGUMENT},
        {{.vocab = 4, .context = 4, .d_model = 4, .num_heads = 1, .softcap = -1},
         ATTN_ERROR_ARGUMENT},
    };
    attn_real block[64];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        test_refused(attn_model_config_check(&bad[i].config), bad[i].status);
        ck_assert_uint_eq(attn_model_num_params(&bad[i].config), 0);
        ck_assert_ptr_null(attn_model_params_view(&bad[i].config, block).token_embedding);
        test_refused(attn_model_params_init(&bad[i].config, block, 1), bad[i].status);
    }
    test_refused(attn_model_config_check(NULL), ATTN_ERROR_ARGUMENT);
}
END_TEST

START_TEST(bad_calls_are_refused) {
    bench m = set_up(&setups[0]);
    const attn_model_input good = m.input;
    attn_loss loss;
    attn_model_saved saved;
    m.tokens[4] = 5;
    test_refused(attn_model_forward(&m.config, &m.w, &good, &loss, &m.arena, &saved),
                 ATTN_ERROR_ARGUMENT);
    ck_assert_str_eq(attn_error_message(), "input.tokens[4] is 5, outside a vocabulary of 5");
    m.tokens[4] = 0;
    m.targets[2] = -2;
    test_refused(attn_model_forward(&m.config, &m.w, &good, &loss, &m.arena, &saved),
                 ATTN_ERROR_ARGUMENT);
    m.targets[2] = 1;
    attn_model_input bad = good;
    bad.len = 7;
    test_refused(attn_model_forward(&m.config, &m.w, &bad, &loss, &m.arena, &saved),
                 ATTN_ERROR_SHAPE);
    bad = good;
    bad.tokens = NULL;
    test_refused(attn_model_forward(&m.config, &m.w, &bad, &loss, &m.arena, &saved),
                 ATTN_ERROR_ARGUMENT);
    bad = good;
    bad.weights = m.theta;
    bad.weights_layer = 2;
    test_refused(attn_model_forward(&m.config, &m.w, &bad, &loss, &m.arena, &saved),
                 ATTN_ERROR_ARGUMENT);
    bad = good;
    bad.batch = SIZE_MAX / 8;
    attn_memory memory;
    test_refused(attn_model_memory(&m.config, &bad, &memory), ATTN_ERROR_OVERFLOW);
    attn_arena measuring;
    test_ok(attn_arena_init_measuring(&measuring));
    test_refused(attn_model_forward(&m.config, &m.w, &good, &loss, &measuring, &saved),
                 ATTN_ERROR_ARGUMENT);
    attn_model_params none = {0};
    test_refused(attn_model_forward(&m.config, &none, &good, &loss, &m.arena, &saved),
                 ATTN_ERROR_ARGUMENT);
    ck_assert_uint_eq(m.arena.used, 0);
    test_ok(attn_model_forward(&m.config, &m.w, &good, &loss, &m.arena, &saved));
    test_refused(attn_model_backward(&m.config, &m.w, &saved, &m.dw, &measuring),
                 ATTN_ERROR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(attn_error_message(), "measures"));
    attn_arena_reset(&m.arena);
    /* a forward without targets has nothing to go back from */
    bad = good;
    bad.targets = NULL;
    test_ok(attn_model_forward(&m.config, &m.w, &bad, &loss, &m.arena, &saved));
    test_refused(attn_model_backward(&m.config, &m.w, &saved, &m.dw, &m.arena),
                 ATTN_ERROR_ARGUMENT);
    tear_down(&m);
}
END_TEST

START_TEST(empty_batches) {
    bench m = set_up(&setups[0]);
    m.input.batch = 0;
    attn_loss loss = {1, 1, 1};
    step(&m, &loss);
    ck_assert(loss.mean == 0 && loss.counted == 0);
    for (size_t i = 0; i < m.n; i++)
        ck_assert(m.dtheta[i] == 0);
    tear_down(&m);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("model (" TEST_PRECISION ")");
    TCase *tcase = tcase_create("model");
    tcase_add_loop_test(tcase, every_gradient_is_the_slope, 0, NUM_SETUPS);
    tcase_add_loop_test(tcase, the_model_is_its_parts, 0, NUM_SETUPS);
    tcase_add_loop_test(tcase, inference_gives_the_numbers_of_training_in_less_memory, 0,
                        NUM_SETUPS);
    tcase_add_loop_test(tcase,
                        memory_is_exact_and_a_byte_less_is_refused_before_anything_is_written, 0,
                        NUM_SETUPS);
    tcase_add_test(tcase, dropout_seeds_differ);
    tcase_add_test(tcase, gradients_are_added);
    tcase_add_test(tcase, later_tokens_change_no_bit_of_earlier_logits);
    tcase_add_test(tcase, weights_of_the_layer_asked_for);
    tcase_add_test(tcase, threads_change_no_bit);
    tcase_add_test(tcase, initial_parameters);
    tcase_add_test(tcase, bad_configurations);
    tcase_add_test(tcase, bad_calls_are_refused);
    tcase_add_test(tcase, empty_batches);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
