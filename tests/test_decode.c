/* Decoding: token by token, in chunks and in one pass it is the causal forward over everything,
 * whatever the kind of attention and the lengths. */
#include "decode_fixture.h"
#include "threads.h"

/* Both sides go through three products of depth D and a softmax in different orders; each rounds
 * about as often as the depth has square roots, 8 to 20 times here, on numbers below the largest.
 */
static const double tolerance = 60 * TEST_EPSILON;

#define CONFIG(d_model_, heads_, kv_) \
    .d_model = (d_model_), .num_heads = (heads_), .num_kv_heads = (kv_), .bias = true

static const decode_case cases[] = {
    {"plain", 2, 23, 23, {CONFIG(32, 4, 0)}, {0}},
    {"one head, odd width", 1, 9, 12, {CONFIG(5, 1, 0)}, {0}},
    {"other width, own scale",
     2,
     17,
     20,
     {CONFIG(12, 2, 0), .d_head = 10, .has_scale = true, .scale = -0.3},
     {0}},
    {"scale 0", 1, 17, 20, {CONFIG(12, 2, 0), .has_scale = true, .scale = 0}, {0}},
    {"grouped", 2, 40, 64, {CONFIG(48, 6, 2)}, {0}},
    {"multi-query", 1, 40, 64, {CONFIG(48, 6, 1)}, {0}},
    {"rope, interleaved", 2, 21, 30, {CONFIG(32, 4, 2), .rope = ATTN_ROPE_INTERLEAVED}, {0}},
    {"rope, half", 2, 21, 30, {CONFIG(32, 2, 0), .rope = ATTN_ROPE_HALF, .rope_base = 500}, {0}},
    {"softcap", 1, 21, 21, {CONFIG(32, 4, 0), .softcap = 0.7}, {0}},
    {"alibi", 2, 33, 40, {CONFIG(24, 3, 0), .alibi = true}, {0}},
    {"learnt slopes", 1, 33, 40, {CONFIG(24, 3, 0), .alibi = true, .alibi_learned = true}, {0}},
    {"sinks", 2, 33, 40, {CONFIG(24, 3, 1), .sinks = true}, {0}},
    {"all of them",
     2,
     33,
     40,
     {CONFIG(24, 6, 3), .rope = ATTN_ROPE_HALF, .softcap = 2, .alibi = true, .sinks = true},
     {0}},
    {"dropout is off", 1, 20, 20, {CONFIG(16, 2, 0), .dropout = 0.5}, {0}},
    {"window", 2, 40, 40, {CONFIG(24, 3, 1)}, {.left_on = true, .left = 7}},
    {"window of one", 1, 9, 9, {CONFIG(8, 1, 0)}, {.left_on = true, .left = 0}},
    {"window with a right side", 1, 20, 20, {CONFIG(8, 1, 0)}, {true, true, 4, 2}},
    {"long", 1, 1200, 1300, {CONFIG(16, 2, 1)}, {0}},
};
enum { NUM_CASES = sizeof cases / sizeof *cases };

static void expect_whole(const decode_run *run, const char *how, const attn_real *y) {
    attn_real *want = decode_whole(run);
    char what[128];
    snprintf(what, sizeof what, "%s, %s", run->c->name, how);
    test_close(what, y, want, run->c->batch * run->c->len * run->cfg.d_model, 0, tolerance);
    free(want);
}

static attn_real *poisoned_y(const decode_run *run) {
    return test_poison(run->c->batch * run->c->len * run->cfg.d_model);
}

START_TEST(token_by_token) {
    decode_run run = decode_setup(&cases[_i], 11);
    attn_real *y = poisoned_y(&run);
    for (size_t t = 0; t < run.c->len; t++)
        decode_next_even(&run, y, 1);
    expect_whole(&run, "token by token", y);
    free(y);
    decode_free(&run);
}
END_TEST

START_TEST(in_chunks) {
    static const size_t sizes[] = {5, 1, 2, 30, 17, 3, 600};
    decode_run run = decode_setup(&cases[_i], 12);
    attn_real *y = poisoned_y(&run);
    for (size_t t = 0, n = 0; t < run.c->len; n++) {
        const size_t count = sizes[n % 7] < run.c->len - t ? sizes[n % 7] : run.c->len - t;
        decode_next_even(&run, y, count);
        t += count;
    }
    expect_whole(&run, "chunks", y);
    free(y);
    decode_free(&run);
}
END_TEST

START_TEST(in_one_pass) {
    decode_run run = decode_setup(&cases[_i], 13);
    attn_real *y = poisoned_y(&run);
    decode_next_even(&run, y, run.c->len);
    expect_whole(&run, "one pass", y);
    ck_assert_uint_le(run.arena.high_water, run.arena.capacity);
    free(y);
    decode_free(&run);
}
END_TEST

/* Sequences take 0, 1 or more tokens at a time, so that their lengths drift apart (CASES 18). */
START_TEST(each_sequence_at_its_own_length) {
    decode_case c = cases[_i];
    c.batch = 5;
    decode_run run = decode_setup(&c, 14);
    attn_real *y = poisoned_y(&run);
    attn_random random = attn_random_seed(15, 0);
    for (bool more = true; more;) {
        size_t counts[5];
        more = false;
        for (size_t b = 0; b < 5; b++) {
            const size_t left = c.len - attn_kv_cache_length(&run.cache, b);
            const size_t most = b == 0 ? c.len / 3 : 3 + b;
            counts[b] = attn_random_below(&random, (uint32_t)most + 1);
            counts[b] = counts[b] < left ? counts[b] : left;
            more = more || counts[b] < left;
        }
        decode_next(&run, y, counts);
    }
    expect_whole(&run, "ragged", y);
    free(y);
    decode_free(&run);
}
END_TEST

/* A windowed model needs no more slots than its window and the longest chunk less one; positions go
 * on past them. Chunks that cannot fit are refused, and smaller ones still fit then. */
static const decode_case rings[] = {
    {"ring", 2, 100, 8 + 1 - 1, {CONFIG(24, 3, 1)}, {.left_on = true, .left = 7}},
    {"ring, chunks",
     2,
     100,
     8 + 5 - 1,
     {CONFIG(24, 3, 1), .rope = ATTN_ROPE_HALF},
     {.left_on = true, .left = 7}},
    {"ring, all",
     1,
     90,
     12 + 20 - 1,
     {CONFIG(24, 6, 2), .alibi = true, .softcap = 1.5, .sinks = true},
     {.left_on = true, .left = 11}},
    {"ring of one", 3, 20, 1, {CONFIG(8, 1, 0)}, {.left_on = true, .left = 0}},
    {"long ring", 1, 2000, 600 + 40 - 1, {CONFIG(16, 2, 1)}, {.left_on = true, .left = 599}},
};
enum { NUM_RINGS = sizeof rings / sizeof *rings };

START_TEST(a_ring_goes_on) {
    const decode_case *c = &rings[_i];
    const size_t longest = c->capacity - c->window.left;
    decode_run run = decode_setup(c, 16);
    attn_real *y = poisoned_y(&run);
    attn_random random = attn_random_seed(17, 0);
    for (size_t t = 0; t < c->len;) {
        size_t count = 1 + attn_random_below(&random, (uint32_t)longest);
        count = count < c->len - t ? count : c->len - t;
        decode_next_even(&run, y, count);
        t += count;
    }
    expect_whole(&run, "ring", y);
    const attn_decode_input longer = {.len = longest + 1, .query = run.x};
    test_refused(attn_mha_decode(&run.cfg, &run.w, &run.cache, &longer, y, &run.arena),
                 ATTN_ERROR_MEMORY);
    ck_assert_uint_eq(attn_kv_cache_length(&run.cache, 0), c->len);
    free(y);
    decode_free(&run);
}
END_TEST

/* CASES 36, for decoding: the parts that keys are cut into do not depend on threads. */
static const decode_case threaded[] = {
    {"one token", 1, 4200, 4200, {CONFIG(64, 4, 0)}, {0}},
    {"one token, grouped", 2, 1500, 1600, {CONFIG(96, 6, 2), .rope = ATTN_ROPE_HALF}, {0}},
    {"chunk", 2, 700, 700, {CONFIG(64, 4, 1)}, {0}},
};

START_TEST(threads_give_the_same_bits) {
    const decode_case *c = &threaded[_i];
    const size_t n = c->batch * c->len * c->cfg.d_model;
    attn_real *first = NULL;
    for (size_t i = 0; i < sizeof test_thread_counts / sizeof *test_thread_counts; i++) {
        decode_case with = *c;
        with.cfg.max_threads = (size_t)test_thread_counts[i];
        decode_run run = decode_setup(&with, 18);
        attn_real *y = test_normal(n, 0, 1);
        decode_next_even(&run, y, c->len - 4);
        for (size_t t = 0; t < 4; t++)
            decode_next_even(&run, y, 1);
        if (first)
            for (size_t j = 0; j < n; j++)
                ck_assert_msg(memcmp(&y[j], &first[j], sizeof *y) == 0,
                              "%s, %d threads: element %zu is %.17g, not %.17g", c->name,
                              test_thread_counts[i], j, (double)y[j], (double)first[j]);
        else
            first = y;
        if (first != y)
            free(y);
        decode_free(&run);
    }
    free(first);
}
END_TEST

/* NaN in a token reaches those that may see it. */
START_TEST(nan_in_a_token_reaches_later_ones_alone) {
    const decode_case c = {"nan", 1, 12, 12, {CONFIG(8, 2, 0)}, {.left_on = true, .left = 4}};
    decode_run run = decode_setup(&c, 19);
    attn_real *y = poisoned_y(&run);
    run.x[5 * 8 + 2] = (attn_real)NAN;
    decode_next_even(&run, y, _i ? 12 : 3);
    for (size_t t = 3; t < 12 && !_i; t++)
        decode_next_even(&run, y, 1);
    for (size_t t = 0; t < 12; t++)
        ck_assert_msg(!isnan(y[t * 8]) == (t < 5 || t > 9), "token %zu: %g", t, (double)y[t * 8]);
    free(y);
    decode_free(&run);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("decode");
    TCase *tests = tcase_create("decode");
    tcase_add_loop_test(tests, token_by_token, 0, NUM_CASES);
    tcase_add_loop_test(tests, in_chunks, 0, NUM_CASES);
    tcase_add_loop_test(tests, in_one_pass, 0, NUM_CASES);
    tcase_add_loop_test(tests, each_sequence_at_its_own_length, 0, NUM_CASES);
    tcase_add_loop_test(tests, a_ring_goes_on, 0, NUM_RINGS);
    tcase_add_loop_test(tests, threads_give_the_same_bits, 0,
                        (int)(sizeof threaded / sizeof *threaded));
    tcase_add_loop_test(tests, nan_in_a_token_reaches_later_ones_alone, 0, 2);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
