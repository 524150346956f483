/* What the layer refuses, and that a refusal changes nothing; the bytes it asks for. */
#include "mha_fixture.h"

/* Everything a failed call must leave as it was. */
typedef struct snapshot {
    attn_mha_saved saved;
    size_t used, high_water;
    attn_real *y, *dtheta, *dx_q, *dx_k, *dx_v, *weights, *lse, *dbias;
} snapshot;

static attn_real *copy(const attn_real *x, size_t n) {
    attn_real *same = malloc((n ? n : 1) * sizeof *same);
    ck_assert_ptr_nonnull(same);
    if (x)
        memcpy(same, x, n * sizeof *x);
    return same;
}

static size_t num_rows(const mha_run *run) {
    return run->size_q / run->cfg.d_model * run->cfg.num_heads;
}

static snapshot take(const mha_run *run) {
    return (snapshot){.saved = run->saved,
                      .used = run->arena.used,
                      .high_water = run->arena.high_water,
                      .y = copy(run->y, run->size_q),
                      .dtheta = copy(run->dtheta, run->num_params),
                      .dx_q = copy(run->dx_q, run->size_q),
                      .dx_k = copy(run->dx_k, run->size_k),
                      .dx_v = copy(run->dx_v, run->size_k),
                      .weights = copy(run->weights, num_rows(run) * run->len_k),
                      .lse = copy(run->lse, num_rows(run)),
                      .dbias = copy(run->dbias, run->size_bias)};
}

static void expect_unchanged(snapshot *was, const mha_run *run) {
    ck_assert(memcmp(&was->saved, &run->saved, sizeof was->saved) == 0);
    ck_assert_uint_eq(was->used, run->arena.used);
    ck_assert_uint_eq(was->high_water, run->arena.high_water);
    test_same_bits("y", run->y, was->y, run->size_q);
    test_same_bits("dparams", run->dtheta, was->dtheta, run->num_params);
    test_same_bits("dx_q", run->dx_q, was->dx_q, run->size_q);
    if (run->dx_k) {
        test_same_bits("dx_k", run->dx_k, was->dx_k, run->size_k);
        test_same_bits("dx_v", run->dx_v, was->dx_v, run->size_k);
    }
    if (run->weights)
        test_same_bits("weights", run->weights, was->weights, num_rows(run) * run->len_k);
    if (run->lse)
        test_same_bits("lse", run->lse, was->lse, num_rows(run));
    if (run->dbias)
        test_same_bits("dbias", run->dbias, was->dbias, run->size_bias);
    free(was->dbias);
    free(was->y);
    free(was->dtheta);
    free(was->dx_q);
    free(was->dx_k);
    free(was->dx_v);
    free(was->weights);
    free(was->lse);
}

static const mha_case self_case = {
    .batch = 2, .len_q = 3, .d_model = 8, .num_heads = 2, .want_weights = true, .want_lse = true};
static const mha_case cross_case = {.batch = 2,
                                    .len_q = 3,
                                    .len_k = 4,
                                    .d_model = 8,
                                    .num_heads = 2,
                                    .want_weights = true,
                                    .want_lse = true};

static const mha_case terms_case = {.batch = 2,
                                    .len_q = 3,
                                    .d_model = 8,
                                    .num_heads = 2,
                                    .softcap = 2,
                                    .alibi = true,
                                    .alibi_learned = true,
                                    .sinks = true,
                                    .bias_rank = 2,
                                    .dropout = 0.5,
                                    .want_lse = true};

/* One thing wrong with a forward, in `run` or in `w`. */
typedef void (*mistake)(mha_run *run);
static void no_heads(mha_run *run) {
    run->cfg.num_heads = 0;
}
static void no_width(mha_run *run) {
    run->cfg.d_model = 0;
}
static void odd_heads(mha_run *run) {
    run->cfg.num_heads = 3;
}
static void nan_scale(mha_run *run) {
    run->cfg.has_scale = true;
    run->cfg.scale = NAN;
}
static void odd_kernel(mha_run *run) {
    run->cfg.kernel = (attn_kernel)17;
}
static void far_queries(mha_run *run) {
    run->cfg.rope = ATTN_ROPE_HALF;
    run->in.has_rope_position = true;
    run->in.rope_position = INT64_MAX - 1;
}
static void far_keys(mha_run *run) {
    run->cfg.rope = ATTN_ROPE_HALF;
    run->in.rope_key_position = INT64_MAX - 2;
}
static void no_wq(mha_run *run) {
    run->w.wq = NULL;
}
static void no_wk(mha_run *run) {
    run->w.wk = NULL;
}
static void no_wv(mha_run *run) {
    run->w.wv = NULL;
}
static void no_wo(mha_run *run) {
    run->w.wo = NULL;
}
static void no_sinks(mha_run *run) {
    run->w.sinks = NULL;
}
static void no_slopes(mha_run *run) {
    run->w.alibi_slopes = NULL;
}
static void full_dropout(mha_run *run) {
    run->cfg.dropout = 1;
}
static void negative_softcap(mha_run *run) {
    run->cfg.softcap = -2;
}
static void slopes_without_alibi(mha_run *run) {
    run->cfg.alibi = false;
}
static void wide_bias(mha_run *run) {
    run->in.bias_strides.query = SIZE_MAX / 2;
}
static void no_query(mha_run *run) {
    run->in.query = NULL;
}
static void no_key(mha_run *run) {
    run->in.key = NULL;
}
static void no_value(mha_run *run) {
    run->in.value = NULL;
}
static void other_len_k(mha_run *run) {
    run->in.len_k = 7;
}
static void huge_batch(mha_run *run) {
    run->in.batch = SIZE_MAX - 8;
}
static void huge_len_q(mha_run *run) {
    run->in.len_q = SIZE_MAX / 2 + 1;
}
static void huge_len_k(mha_run *run) {
    run->in.len_k = SIZE_MAX / 2 + 1;
}
static void huge_both(mha_run *run) {
    run->in.batch = run->in.len_q = (size_t)1 << 32;
}
static void odd_align(mha_run *run) {
    run->in.mask.causal = true;
    run->in.mask.causal_align = (attn_causal_align)9;
}
static void fused_weights(mha_run *run) {
    run->cfg.kernel = ATTN_KERNEL_FUSED;
}

static const struct {
    const char *name;
    const mha_case *c;
    mistake make;
    attn_status status;
    const char *words; /* part of the message */
    bool needs_arrays; /* sizes alone do not show it, so attn_mha_memory has nothing to say */
} forwards[] = {
    {"num_heads 0", &self_case, no_heads, ATTN_ERROR_ARGUMENT, "num_heads 0", false},
    {"d_model 0", &self_case, no_width, ATTN_ERROR_ARGUMENT, "d_model 0", false},
    {"3 heads over 8", &self_case, odd_heads, ATTN_ERROR_SHAPE,
     "num_heads 3 does not divide d_model 8", false},
    {"scale NaN", &self_case, nan_scale, ATTN_ERROR_ARGUMENT, "scale nan", false},
    {"kernel 17", &self_case, odd_kernel, ATTN_ERROR_ARGUMENT, "17", false},
    {"query positions wrap", &self_case, far_queries, ATTN_ERROR_OVERFLOW, "queries: rope position",
     false},
    {"key positions wrap", &cross_case, far_keys, ATTN_ERROR_OVERFLOW, "keys: rope position",
     false},
    {"no wq", &self_case, no_wq, ATTN_ERROR_ARGUMENT, "params.wq", true},
    {"no wk", &self_case, no_wk, ATTN_ERROR_ARGUMENT, "params.wk", true},
    {"no wv", &self_case, no_wv, ATTN_ERROR_ARGUMENT, "params.wv", true},
    {"no wo", &self_case, no_wo, ATTN_ERROR_ARGUMENT, "params.wo", true},
    {"no sinks", &terms_case, no_sinks, ATTN_ERROR_ARGUMENT, "params.sinks", true},
    {"no slopes", &terms_case, no_slopes, ATTN_ERROR_ARGUMENT, "params.alibi_slopes", true},
    {"dropout 1", &terms_case, full_dropout, ATTN_ERROR_ARGUMENT, "dropout 1", false},
    {"softcap -2", &terms_case, negative_softcap, ATTN_ERROR_ARGUMENT, "softcap -2", false},
    {"slopes without ALiBi", &terms_case, slopes_without_alibi, ATTN_ERROR_ARGUMENT, "alibi",
     false},
    {"bias strides wrap", &terms_case, wide_bias, ATTN_ERROR_OVERFLOW, "bias", false},
    {"no query", &self_case, no_query, ATTN_ERROR_ARGUMENT, "input.query", true},
    {"value without key", &cross_case, no_key, ATTN_ERROR_ARGUMENT, "value without key", false},
    {"key without value", &cross_case, no_value, ATTN_ERROR_ARGUMENT, "key without value", false},
    {"len_k in self-attention", &self_case, other_len_k, ATTN_ERROR_SHAPE, "len_k 7", false},
    {"batch wraps", &self_case, huge_batch, ATTN_ERROR_OVERFLOW, "18446744073709551607", false},
    {"len_q wraps", &self_case, huge_len_q, ATTN_ERROR_OVERFLOW, "overflow", false},
    {"len_k wraps", &cross_case, huge_len_k, ATTN_ERROR_OVERFLOW, "overflow", false},
    {"batch and len_q wrap", &self_case, huge_both, ATTN_ERROR_OVERFLOW, "4294967296", false},
    {"causal_align 9", &self_case, odd_align, ATTN_ERROR_ARGUMENT, "9", false},
    {"weights from the fused path", &self_case, fused_weights, ATTN_ERROR_UNSUPPORTED,
     "fused kernel", false},
};

START_TEST(bad_forwards_change_nothing) {
    mha_run run = mha_setup(forwards[_i].c, 1);
    attn_mha_config cfg = run.cfg;
    attn_memory memory = {1, 2, 3};
    mha_step(&run); /* so that saved and arena hold something */
    snapshot was = take(&run);
    forwards[_i].make(&run);
    attn_status status = attn_mha_forward(&run.cfg, &run.w, &run.in, run.y, &run.arena, &run.saved);
    ck_assert_msg(status == forwards[_i].status, "%s: %s", forwards[_i].name,
                  attn_status_name(status));
    ck_assert_msg(strstr(attn_error_message(), forwards[_i].words), "%s: '%s'", forwards[_i].name,
                  attn_error_message());
    if (!forwards[_i].needs_arrays) {
        test_refused(attn_mha_memory(&run.cfg, &run.in, &memory), forwards[_i].status);
        ck_assert(memory.saved == 1 && memory.training == 2 && memory.inference == 3);
    }
    run.cfg = cfg;
    expect_unchanged(&was, &run);
    mha_free(&run);
}
END_TEST

START_TEST(missing_arguments_of_a_forward) {
    mha_run run = mha_setup(&self_case, 1);
    attn_memory memory;
    mha_step(&run);
    snapshot was = take(&run);
    test_refused(attn_mha_forward(NULL, &run.w, &run.in, run.y, &run.arena, &run.saved),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_forward(&run.cfg, NULL, &run.in, run.y, &run.arena, &run.saved),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_forward(&run.cfg, &run.w, NULL, run.y, &run.arena, &run.saved),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_forward(&run.cfg, &run.w, &run.in, NULL, &run.arena, &run.saved),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_forward(&run.cfg, &run.w, &run.in, run.y, NULL, &run.saved),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_memory(NULL, &run.in, &memory), ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_memory(&run.cfg, NULL, &memory), ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_memory(&run.cfg, &run.in, NULL), ATTN_ERROR_ARGUMENT);
    expect_unchanged(&was, &run);
    mha_free(&run);
}
END_TEST

static void backward_refused(mha_run *run, const attn_mha_config *cfg, const attn_mha_params *w,
                             const attn_mha_saved *saved, const attn_real *dy,
                             const attn_mha_params *dw, const attn_mha_input_grads *dx,
                             attn_arena *arena, attn_status status, const char *words) {
    snapshot was = take(run);
    test_refused(attn_mha_backward(cfg, w, saved, dy, dw, dx, arena), status);
    ck_assert_msg(strstr(attn_error_message(), words), "'%s' lacks '%s'", attn_error_message(),
                  words);
    expect_unchanged(&was, run);
}

START_TEST(bad_backwards_change_nothing) {
    mha_run run = mha_setup(_i ? &cross_case : &self_case, 2);
    mha_step(&run);
    attn_mha_config cfg = run.cfg;
    attn_mha_saved never = {0};
    const attn_mha_config *c = &run.cfg;
    backward_refused(&run, NULL, &run.w, &run.saved, run.dy, &run.dw, &run.dx, &run.arena,
                     ATTN_ERROR_ARGUMENT, "config");
    backward_refused(&run, c, NULL, &run.saved, run.dy, &run.dw, &run.dx, &run.arena,
                     ATTN_ERROR_ARGUMENT, "params");
    backward_refused(&run, c, &run.w, NULL, run.dy, &run.dw, &run.dx, &run.arena,
                     ATTN_ERROR_ARGUMENT, "saved");
    backward_refused(&run, c, &run.w, &never, run.dy, &run.dw, &run.dx, &run.arena,
                     ATTN_ERROR_ARGUMENT, "saved");
    backward_refused(&run, c, &run.w, &run.saved, NULL, &run.dw, &run.dx, &run.arena,
                     ATTN_ERROR_ARGUMENT, "dy");
    backward_refused(&run, c, &run.w, &run.saved, run.dy, &run.dw, &run.dx, NULL,
                     ATTN_ERROR_ARGUMENT, "arena");
    for (size_t i = 0; i < 4; i++) {
        static const char *const names[] = {"dparams.wq", "dparams.wk", "dparams.wv", "dparams.wo"};
        attn_mha_params dw = run.dw;
        *(attn_real * *[]){&dw.wq, &dw.wk, &dw.wv, &dw.wo}[i] = NULL;
        backward_refused(&run, c, &run.w, &run.saved, run.dy, &dw, &run.dx, &run.arena,
                         ATTN_ERROR_ARGUMENT, names[i]);
    }
    cfg.num_heads = 4;
    backward_refused(&run, &cfg, &run.w, &run.saved, run.dy, &run.dw, &run.dx, &run.arena,
                     ATTN_ERROR_SHAPE, "num_heads 2");
    cfg = run.cfg; /* the same heads of another model: its rows have another length */
    cfg.d_head = attn_mha_d_head(c);
    cfg.d_model += 2;
    backward_refused(&run, &cfg, &run.w, &run.saved, run.dy, &run.dw, &run.dx, &run.arena,
                     ATTN_ERROR_SHAPE, "d_model");
    cfg = run.cfg;
    cfg.has_scale = true;
    cfg.scale = 17;
    backward_refused(&run, &cfg, &run.w, &run.saved, run.dy, &run.dw, &run.dx, &run.arena,
                     ATTN_ERROR_ARGUMENT, "scale is 17");
    cfg = run.cfg;
    cfg.rope = ATTN_ROPE_HALF;
    backward_refused(&run, &cfg, &run.w, &run.saved, run.dy, &run.dw, &run.dx, &run.arena,
                     ATTN_ERROR_ARGUMENT, "rope");
    attn_mha_saved larger = run.saved;
    larger.input.batch += 5;
    backward_refused(&run, c, &run.w, &larger, run.dy, &run.dw, &run.dx, &run.arena,
                     ATTN_ERROR_SHAPE, "saved.input");
    attn_mha_input_grads dx = {.query = run.dx_q, .key = run.y};
    if (!_i)
        backward_refused(&run, c, &run.w, &run.saved, run.dy, &run.dw, &dx, &run.arena,
                         ATTN_ERROR_ARGUMENT, "dinput.key in self-attention");
    dx = (attn_mha_input_grads){.key = run.dx_k, .value = run.dx_k};
    if (_i)
        backward_refused(&run, c, &run.w, &run.saved, run.dy, &run.dw, &dx, &run.arena,
                         ATTN_ERROR_ARGUMENT, "different arrays");
    mha_free(&run);
}
END_TEST

/* A backward of another computation than the forward's. */
START_TEST(a_backward_of_other_terms_is_refused) {
    mha_run run = mha_setup(&terms_case, 2);
    mha_step(&run);
    attn_mha_config cfg[6];
    for (size_t i = 0; i < 6; i++)
        cfg[i] = run.cfg;
    cfg[0].softcap = 3;
    cfg[1].dropout = 0;
    cfg[2].sinks = false;
    cfg[3].alibi_learned = false;
    cfg[4].alibi = cfg[4].alibi_learned = false;
    cfg[5].softcap = 0;
    static const char *const words[] = {"softcap is 3",  "dropout 0", "sinks",
                                        "alibi_learned", "alibi",     "softcap is 0"};
    for (size_t i = 0; i < 6; i++)
        backward_refused(&run, &cfg[i], &run.w, &run.saved, run.dy, &run.dw, &run.dx, &run.arena,
                         ATTN_ERROR_ARGUMENT, words[i]);
    attn_mha_params w = run.w;
    w.sinks = NULL;
    backward_refused(&run, &run.cfg, &w, &run.saved, run.dy, &run.dw, &run.dx, &run.arena,
                     ATTN_ERROR_ARGUMENT, "params.sinks");
    attn_mha_input_grads dx = {.query = run.dx_q, .bias = run.dx_q};
    backward_refused(&run, &run.cfg, &run.w, &run.saved, run.dy, &run.dw, &dx, &run.arena,
                     ATTN_ERROR_ARGUMENT, "different arrays");
    mha_free(&run);
    run = mha_setup(&self_case, 2);
    mha_step(&run);
    dx = (attn_mha_input_grads){.bias = run.dx_q};
    backward_refused(&run, &run.cfg, &run.w, &run.saved, run.dy, &run.dw, &dx, &run.arena,
                     ATTN_ERROR_ARGUMENT, "input.bias");
    mha_free(&run);
}
END_TEST

static const mha_case memory_cases[] = {
    {"self", SIZES(2, 9, 0, 12, 3, 0), .kernel = ATTN_KERNEL_REFERENCE},
    {"self, weights", SIZES(2, 9, 0, 12, 3, 0), .want_weights = true, .want_lse = true},
    {"cross", SIZES(3, 5, 8, 6, 2, 5), .causal = true, .padded = 1},
    {"self, auto", SIZES(2, 70, 0, 12, 3, 0)},
    {"cross, auto", SIZES(3, 33, 80, 6, 2, 5), .causal = true, .padded = 1, .want_lse = true},
    {"self, 8 threads", SIZES(2, 70, 0, 96, 3, 0), .max_threads = 8},
    {"no batch", SIZES(0, 4, 0, 6, 2, 0)},
    {"everything", SIZES(2, 70, 0, 12, 3, 0), .softcap = 2, .alibi = true, .alibi_learned = true,
     .sinks = true, .bias_rank = 2, .dropout = 0.5, .want_lse = true},
};

START_TEST(memory_is_exact) {
    mha_run run = mha_setup(&memory_cases[_i], 3);
    mha_step(&run); /* in an arena of need.training bytes */
    ck_assert_uint_eq(run.arena.high_water, run.need.training);
    ck_assert_uint_eq(run.arena.used, run.need.saved);
    attn_arena_reset(&run.arena);
    run.arena.high_water = 0;
    test_ok(attn_mha_forward(&run.cfg, &run.w, &run.in, run.y, &run.arena, NULL));
    ck_assert_uint_eq(run.arena.high_water, run.need.inference);
    ck_assert_uint_eq(run.arena.used, 0);
    mha_free(&run);
}
END_TEST

/* q, k, v and context stay, and what the core asks for; in inference the core keeps nothing. */
START_TEST(saved_set_is_no_more_than_the_backward_needs) {
    mha_run run = mha_setup(&memory_cases[_i], 3);
    attn_shape shape = {run.in.batch, run.cfg.num_heads, run.in.len_q, run.len_k,
                        attn_mha_d_head(&run.cfg)};
    attn_strides q = attn_strides_bthd(shape.len_q, shape.num_heads, shape.d_head);
    attn_strides k = attn_strides_bthd(shape.len_k, shape.num_heads, shape.d_head);
    attn_sdpa_config config = {.kernel = run.cfg.kernel,
                               .max_threads = run.cfg.max_threads,
                               .softcap = run.cfg.softcap,
                               .alibi = run.cfg.alibi,
                               .dropout = run.cfg.dropout};
    attn_sdpa_input input = {.shape = shape,
                             .query = run.y,
                             .key = run.y,
                             .value = run.y,
                             .query_strides = q,
                             .key_strides = k,
                             .value_strides = k,
                             .mask = run.in.mask,
                             .bias = run.bias,
                             .bias_strides = run.in.bias_strides,
                             .sinks = run.w.sinks,
                             .alibi_slopes = run.w.alibi_slopes};
    attn_sdpa_output output = {
        .context = run.y, .context_strides = q, .weights = run.weights, .lse = run.lse};
    attn_memory core;
    attn_arena arrays;
    void *array;
    test_ok(attn_mha_memory(&run.cfg, &run.in, &run.need));
    test_ok(attn_sdpa_memory(&config, &input, &output, &core));
    test_ok(attn_arena_init_measuring(&arrays));
    const size_t rows_q = shape.batch * shape.len_q, rows_k = shape.batch * shape.len_k;
    const size_t self[] = {rows_q * 3 * run.d_inner, rows_q * run.d_inner, 0, 0};
    const size_t cross[] = {rows_q * run.d_inner, rows_k * run.d_inner, rows_k * run.d_inner,
                            rows_q * run.d_inner};
    for (size_t i = 0; i < (run.in.key ? 4 : 2); i++)
        test_ok(
            attn_arena_alloc(&arrays, &array, (run.in.key ? cross : self)[i], sizeof(attn_real)));
    ck_assert_uint_eq(run.need.saved, arrays.used + core.saved);
    ck_assert_uint_eq(run.need.inference, arrays.used + core.inference);
    /* H reals each, and a checker's red zone */
    const size_t vectors = 2 * 64 * ((size_t)run.cfg.sinks + (size_t)run.cfg.alibi_learned);
    ck_assert_uint_le(run.need.training, 2 * arrays.used + core.training + vectors);
    mha_free(&run);
}
END_TEST

/* Exactly the bytes asked for suffice; one fewer is refused with both numbers, by the forward or by
 * the backward, whichever needs the most. */
START_TEST(one_byte_less_is_refused) {
    mha_run run = mha_setup(&memory_cases[_i], 3);
    test_ok(attn_mha_memory(&run.cfg, &run.in, &run.need));
    if (run.need.training == 0) {
        mha_free(&run);
        return;
    }
    for (int training = 0; training < 2; training++) {
        size_t need = training ? run.need.training : run.need.inference;
        char words[64];
        run.arena = test_arena(need - 1);
        snapshot was = take(&run);
        attn_mha_saved *saved = training ? &run.saved : NULL;
        attn_status status = attn_mha_forward(&run.cfg, &run.w, &run.in, run.y, &run.arena, saved);
        if (training && status == ATTN_OK) {
            snapshot between = take(&run);
            status = attn_mha_backward(&run.cfg, &run.w, &run.saved, run.dy, &run.dw, &run.dx,
                                       &run.arena);
            expect_unchanged(&between, &run);
            was.saved = run.saved;
            was.used = run.arena.used;
            was.high_water = run.arena.high_water;
            memcpy(was.y, run.y, run.size_q * sizeof *run.y);
            if (run.weights)
                memcpy(was.weights, run.weights, num_rows(&run) * run.len_k * sizeof *run.weights);
            if (run.lse)
                memcpy(was.lse, run.lse, num_rows(&run) * sizeof *run.lse);
        }
        ck_assert_int_eq(status, ATTN_ERROR_MEMORY);
        snprintf(words, sizeof words, "of %zu left", need - 1);
        ck_assert_msg(strstr(attn_error_message(), words), "'%s'", attn_error_message());
        expect_unchanged(&was, &run);
        attn_arena_destroy(&run.arena);
    }
    mha_free(&run);
}
END_TEST

START_TEST(measuring_arenas_are_served) {
    mha_run run = mha_setup(&memory_cases[_i], 3);
    attn_arena arena;
    test_ok(attn_mha_memory(&run.cfg, &run.in, &run.need));
    test_ok(attn_arena_init_measuring(&arena));
    test_ok(attn_mha_forward(&run.cfg, &run.w, &run.in, run.y, &arena, &run.saved));
    ck_assert_uint_eq(arena.used, run.need.saved);
    test_ok(attn_mha_backward(&run.cfg, &run.w, &run.saved, run.dy, &run.dw, &run.dx, &arena));
    ck_assert_uint_eq(arena.high_water, run.need.training);
    for (size_t i = 0; i < run.size_q; i++)
        ck_assert(isnan(run.y[i]) && isnan(run.dx_q[i]));
    mha_free(&run);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mha_refusals");
    TCase *tests = tcase_create("refusals");
    const int num_memory_cases = (int)(sizeof memory_cases / sizeof *memory_cases);
    tcase_add_loop_test(tests, bad_forwards_change_nothing, 0,
                        (int)(sizeof forwards / sizeof *forwards));
    tcase_add_test(tests, missing_arguments_of_a_forward);
    tcase_add_loop_test(tests, bad_backwards_change_nothing, 0, 2);
    tcase_add_test(tests, a_backward_of_other_terms_is_refused);
    tcase_add_loop_test(tests, memory_is_exact, 0, num_memory_cases);
    tcase_add_loop_test(tests, saved_set_is_no_more_than_the_backward_needs, 0, num_memory_cases);
    tcase_add_loop_test(tests, one_byte_less_is_refused, 0, num_memory_cases);
    tcase_add_loop_test(tests, measuring_arenas_are_served, 0, num_memory_cases);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
