/* Packed sequences: end to end, without padding, they give what each gives alone, and what the
 * padded batch gives. */
#include "mha_fixture.h"

#ifdef ATTN_DOUBLE
static const double tolerance = 1e-12;
#else
static const double tolerance = 2e-5;
#endif

enum { SEQUENCES = 5, QUERIES = 90, KEYS = 100, LONGEST = 70 };
static const size_t offsets_q[SEQUENCES + 1] = {0, 3, 3, 73, 74, QUERIES};
static const size_t offsets_k[SEQUENCES + 1] = {0, 5, 9, 69, 70, KEYS};

/* One sample of all tokens in a row: the arrays of the packed call. */
static const mha_case cases[] = {
    {"self, causal", SIZES(1, QUERIES, 0, 8, 2, 0), .causal = true, .want_lse = true},
    {"self, all", SIZES(1, QUERIES, 0, 8, 4, 0), .causal = true, .rope = ATTN_ROPE_HALF,
     .num_kv_heads = 2, .window = {.left_on = true, .left = 9}, .softcap = 3, .alibi = true,
     .alibi_learned = true, .sinks = true, .max_threads = 2},
    {"cross", SIZES(1, QUERIES, KEYS, 8, 2, 0), .want_lse = true},
    {"cross, causal, rope", SIZES(1, QUERIES, KEYS, 8, 2, 0), .causal = true,
     .rope = ATTN_ROPE_INTERLEAVED, .alibi = true},
    {"cross, rope positions", SIZES(1, QUERIES, KEYS, 8, 2, 0), .rope = ATTN_ROPE_HALF,
     .has_rope_position = true, .rope_position = 4, .rope_key_position = -3},
};
enum { NUM_CASES = sizeof cases / sizeof *cases, NUM_SELF = 2 };

static mha_run packed_run(const mha_case *c, uint64_t seed) {
    mha_run run = mha_setup(c, seed);
    run.in.batch = SEQUENCES;
    run.in.offsets_q = offsets_q;
    run.in.offsets_k = c->len_k ? offsets_k : NULL;
    return run;
}

static void copy_rows(attn_real *to, const attn_real *from, size_t rows, size_t width) {
    if (to && rows > 0)
        memcpy(to, from, rows * width * sizeof *to);
}

/* Compares some rows of all that the calls give. */
static void same_rows(const char *what, const mha_run *packed, size_t first, const mha_run *other,
                      size_t other_first, size_t rows) {
    const size_t d = packed->cfg.d_model;
    test_close(what, packed->y + first * d, other->y + other_first * d, rows * d, tolerance,
               tolerance);
    test_close(what, packed->dx_q + first * d, other->dx_q + other_first * d, rows * d, tolerance,
               tolerance);
}

/* Against a call for each sequence. */
START_TEST(each_sequence_alone) {
    mha_case c = cases[_i % NUM_CASES];
    c.kernel = mha_kernels[_i / NUM_CASES];
    mha_run run = packed_run(&c, 90);
    attn_real *sum = test_normal(run.num_params, 0, 1);
    const size_t d = c.d_model;
    mha_step(&run);
    ck_assert_uint_eq(run.arena.high_water, run.need.training);
    ck_assert_uint_eq(run.arena.used, run.need.saved);
    for (size_t s = 0; s < SEQUENCES; s++) {
        char what[80];
        mha_case one = c;
        one.len_q = offsets_q[s + 1] - offsets_q[s];
        one.len_k = c.len_k ? offsets_k[s + 1] - offsets_k[s] : 0;
        mha_run alone = mha_setup(&one, 90);
        snprintf(what, sizeof what, "%s, kernel %d, sequence %zu", c.name, (int)c.kernel, s);
        copy_rows(alone.x_q, run.x_q + offsets_q[s] * d, one.len_q, d);
        copy_rows(alone.dy, run.dy + offsets_q[s] * d, one.len_q, d);
        if (c.len_k) {
            copy_rows(alone.x_k, run.x_k + offsets_k[s] * d, one.len_k, d);
            copy_rows(alone.x_v, run.x_v + offsets_k[s] * d, one.len_k, d);
        }
        mha_step(&alone);
        same_rows(what, &run, offsets_q[s], &alone, 0, one.len_q);
        if (c.len_k) {
            test_close(what, run.dx_k + offsets_k[s] * d, alone.dx_k, one.len_k * d, tolerance,
                       tolerance);
            test_close(what, run.dx_v + offsets_k[s] * d, alone.dx_v, one.len_k * d, tolerance,
                       tolerance);
        }
        for (size_t h = 0; run.lse && h < c.num_heads; h++)
            test_close(what, run.lse + h * QUERIES + offsets_q[s], alone.lse + h * one.len_q,
                       one.len_q, tolerance, tolerance);
        for (size_t i = 0; i < run.num_params; i++)
            sum[i] += alone.dtheta[i];
        mha_free(&alone);
    }
    test_close("dparams", run.dtheta, sum, run.num_params, tolerance, tolerance);
    free(sum);
    mha_free(&run);
}
END_TEST

/* Against the batch with padding, whose padded queries nothing is asked of: dropout draws for
 * (sample, query, key), which are the same. */
START_TEST(the_padded_batch) {
    mha_case c = cases[_i % NUM_SELF];
    c.dropout = 0.3;
    c.want_lse = false;
    c.kernel = mha_kernels[_i / NUM_SELF];
    mha_run run = packed_run(&c, 91);
    mha_case wide = c;
    wide.batch = SEQUENCES;
    wide.len_q = LONGEST;
    mha_run padded = mha_setup(&wide, 91);
    const size_t d = c.d_model;
    uint8_t padding[SEQUENCES * LONGEST];
    memset(padding, 1, sizeof padding);
    memset(padded.dy, 0, padded.size_q * sizeof *padded.dy);
    for (size_t s = 0; s < SEQUENCES; s++) {
        const size_t len = offsets_q[s + 1] - offsets_q[s];
        memset(padding + s * LONGEST, 0, len);
        copy_rows(padded.x_q + s * LONGEST * d, run.x_q + offsets_q[s] * d, len, d);
        copy_rows(padded.dy + s * LONGEST * d, run.dy + offsets_q[s] * d, len, d);
    }
    padded.in.mask.padding = padding;
    mha_step(&run);
    mha_step(&padded);
    for (size_t s = 0; s < SEQUENCES; s++)
        same_rows(c.name, &run, offsets_q[s], &padded, s * LONGEST,
                  offsets_q[s + 1] - offsets_q[s]);
    test_close("dparams", run.dtheta, padded.dtheta, run.num_params, tolerance, tolerance);
    mha_free(&run);
    mha_free(&padded);
}
END_TEST

/* Keys and values of packed sequences, projected once. */
START_TEST(projected_keys_of_packed_sequences) {
    const mha_case *c = &cases[4];
    mha_run want = packed_run(c, 92), run = packed_run(c, 92);
    const size_t n = KEYS * run.d_kv;
    attn_real *k = test_poison(n), *v = test_poison(n);
    attn_real *dk = test_normal(n, 0, 1), *dv = test_normal(n, 0, 1);
    const attn_mha_input keys = run.in;
    mha_step(&want);
    test_ok(attn_mha_keys_forward(&run.cfg, &run.w, &keys, k, v));
    run.in.key = run.in.value = NULL;
    run.in.projected_key = k;
    run.in.projected_value = v;
    const attn_mha_input_grads of_keys = {.key = run.dx_k, .value = run.dx_v};
    run.dx.key = run.dx.value = NULL;
    run.dx.projected_key = dk;
    run.dx.projected_value = dv;
    mha_step(&run);
    test_ok(attn_mha_keys_backward(&run.cfg, &run.w, &keys, dk, dv, &run.dw, &of_keys));
    mha_same_bits("packed", &run, &want);
    free(k);
    free(v);
    free(dk);
    free(dv);
    mha_free(&want);
    mha_free(&run);
}
END_TEST

/* No sequences, and sequences without tokens. */
START_TEST(nothing_packed) {
    static const size_t none[SEQUENCES + 1];
    const mha_case *c = &cases[1];
    for (size_t sequences = 0; sequences <= SEQUENCES; sequences += SEQUENCES) {
        mha_run run = packed_run(c, 93);
        run.in.batch = sequences;
        run.in.len_q = 0;
        run.in.query = NULL;
        run.in.offsets_q = none;
        mha_step(&run);
        ck_assert(isnan(run.y[0]));
        for (size_t i = 0; i < run.num_params; i++)
            ck_assert(run.dtheta[i] == 0);
        mha_free(&run);
    }
}
END_TEST

START_TEST(mistakes_are_refused) {
    const size_t falling[SEQUENCES + 1] = {0, 3, 2, 73, 74, QUERIES};
    const size_t late[SEQUENCES + 1] = {1, 3, 3, 73, 74, QUERIES};
    const size_t short_of[SEQUENCES + 1] = {0, 3, 3, 73, 74, QUERIES - 1};
    const uint8_t padding[SEQUENCES * QUERIES] = {0};
    const size_t *const wrong[] = {falling, late, short_of};
    mha_run run = packed_run(&cases[2], 94);
    mha_step(&run);
    attn_real *y = test_poison(run.size_q), *k = test_poison(KEYS * run.d_kv);
    attn_mha_input in[8];
    for (size_t i = 0; i < 8; i++)
        in[i] = run.in;
    for (size_t i = 0; i < 3; i++) {
        in[i].offsets_q = wrong[i];
        in[3].offsets_k = wrong[0];
    }
    in[4].offsets_k = NULL;
    in[5].offsets_q = NULL;
    in[6].mask.padding = padding;
    in[7].key = in[7].value = NULL; /* self-attention with offsets_k */
    in[7].len_k = 0;
    attn_arena_reset(&run.arena);
    for (size_t i = 0; i < 8; i++) {
        attn_memory need;
        test_refused(attn_mha_memory(&run.cfg, &in[i], &need), ATTN_ERROR_ARGUMENT);
        test_refused(attn_mha_forward(&run.cfg, &run.w, &in[i], y, &run.arena, NULL),
                     ATTN_ERROR_ARGUMENT);
    }
    test_refused(attn_mha_keys_forward(&run.cfg, &run.w, &in[3], k, y), ATTN_ERROR_ARGUMENT);
    ck_assert(isnan(y[0]) && isnan(k[0]));
    ck_assert_uint_eq(run.arena.used, 0);
    in[0] = run.in;
    in[0].weights = y;
    test_refused(attn_mha_forward(&run.cfg, &run.w, &in[0], y, &run.arena, NULL),
                 ATTN_ERROR_UNSUPPORTED);
    free(y);
    free(k);
    mha_free(&run);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mha_packed");
    TCase *tests = tcase_create("packed");
    const int num_kernels = mha_num_kernels();
    tcase_add_loop_test(tests, each_sequence_alone, 0, NUM_CASES * num_kernels);
    tcase_add_loop_test(tests, the_padded_batch, 0, NUM_SELF * num_kernels);
    tcase_add_test(tests, projected_keys_of_packed_sequences);
    tcase_add_test(tests, nothing_packed);
    tcase_add_test(tests, mistakes_are_refused);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
