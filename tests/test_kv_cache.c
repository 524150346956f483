/* The cache: its bytes, its lengths, what it refuses, and that a refusal changes nothing. */
#include "decode_fixture.h"

#include <stdint.h>

/* One head of width 1 whose scores are all 0, and whose values are the tokens: y is the mean of
 * what is seen. */
static const decode_case mean_case = {"mean", 1, 8, 8, {.d_model = 1, .num_heads = 1}, {0}};

static decode_run mean_setup(const decode_case *c, const attn_real *x) {
    decode_run run = decode_setup(c, 1);
    run.w.wq[0] = 0;
    run.w.wk[0] = run.w.wv[0] = run.w.wo[0] = 1;
    memcpy(run.x, x, c->batch * c->len * sizeof *x);
    return run;
}

static const attn_real tokens[8] = {1, 2, 6, 7, 4, 10, 5, 5};

/* CASES 12: capacity 8, 3 written, v = 1, 2, 6. */
START_TEST(a_token_sees_what_is_written) {
    decode_run run = mean_setup(&mean_case, tokens);
    attn_real y[8];
    for (size_t t = 0; t < 3; t++)
        decode_next_even(&run, y, 1);
    ck_assert(y[0] == 1 && fabs((double)y[1] - 1.5) < 1e-6 && fabs((double)y[2] - 3) < 1e-6);
    decode_free(&run);
}
END_TEST

/* CASES 11: two new tokens behind three, v = 1 .. 5: 2.5 and 3. */
START_TEST(new_tokens_stand_at_the_end) {
    const attn_real x[8] = {1, 2, 3, 4, 5};
    decode_run run = mean_setup(&mean_case, x);
    attn_real y[8];
    decode_next_even(&run, y, 3);
    decode_next_even(&run, y, 2);
    ck_assert(fabs((double)y[3] - 2.5) < 1e-6 && fabs((double)y[4] - 3) < 1e-6);
    decode_free(&run);
}
END_TEST

/* Every byte that a refused call might have changed. */
typedef struct snapshot {
    attn_kv_cache cache;
    size_t used, bytes;
    unsigned char *contents;
} snapshot;

/* The arrays of a cache, one behind the other, unless `to` is NULL; their bytes. */
static size_t copy_arrays(unsigned char *to, const attn_kv_cache *c) {
    const size_t rows = c->batch * sizeof *c->lengths;
    const size_t reals = c->batch * attn_mha_kv_heads(&c->config) * c->capacity *
                         attn_mha_d_head(&c->config) * sizeof *c->key;
    const void *arrays[] = {c->lengths, c->oldest, c->key, c->value};
    const size_t bytes[] = {rows, rows, reals, reals};
    size_t total = 0;
    for (size_t n = 0; n < 4; total += bytes[n++])
        if (to)
            memcpy(to + total, arrays[n], bytes[n]);
    return total;
}

static snapshot take(const decode_run *run) {
    snapshot s = {
        .cache = run->cache, .used = run->arena.used, .bytes = copy_arrays(NULL, &run->cache)};
    s.contents = malloc(s.bytes);
    copy_arrays(s.contents, &run->cache);
    return s;
}

static void expect_unchanged(snapshot *was, const decode_run *run) {
    snapshot is = take(run);
    ck_assert_mem_eq(&was->cache, &is.cache, sizeof is.cache);
    ck_assert_mem_eq(was->contents, is.contents, was->bytes);
    ck_assert_uint_eq(was->used, is.used);
    free(is.contents);
    free(was->contents);
}

/* CASES 13: a fifth token in a cache of 4; after a reset there is room. */
START_TEST(a_full_cache_refuses_and_stays) {
    decode_case c = mean_case;
    c.capacity = 4;
    decode_run run = mean_setup(&c, tokens);
    attn_real y[8];
    decode_next_even(&run, y, 4);
    for (size_t t = 0; t < 8; t++)
        y[t] = -1;
    snapshot was = take(&run);
    const attn_decode_input input = {.len = 1, .query = run.x + 4};
    test_refused(attn_mha_decode(&run.cfg, &run.w, &run.cache, &input, y, &run.arena),
                 ATTN_ERROR_MEMORY);
    ck_assert_msg(strstr(attn_error_message(), "capacity of 4"), "'%s'", attn_error_message());
    expect_unchanged(&was, &run);
    ck_assert(y[0] == -1);
    test_ok(attn_kv_cache_reset(&run.cache));
    ck_assert_uint_eq(attn_kv_cache_length(&run.cache, 0), 0);
    decode_next_even(&run, y, 1);
    ck_assert(y[0] == 1);
    decode_free(&run);
}
END_TEST

/* One sequence that has no room is enough to refuse them all. */
START_TEST(one_full_sequence_refuses_the_batch) {
    const decode_case c = {"batch", 2, 6, 6, {.d_model = 4, .num_heads = 2}, {0}};
    decode_run run = decode_setup(&c, 2);
    attn_real y[2 * 6 * 4];
    decode_next(&run, y, (size_t[]){2, 6});
    snapshot was = take(&run);
    const attn_decode_input input = {.len = 1, .query = run.x};
    test_refused(attn_mha_decode(&run.cfg, &run.w, &run.cache, &input, y, &run.arena),
                 ATTN_ERROR_MEMORY);
    ck_assert_msg(strstr(attn_error_message(), "row 1"), "'%s'", attn_error_message());
    expect_unchanged(&was, &run);
    decode_next(&run, y, (size_t[]){1, 0}); /* who has none to add needs no room */
    decode_free(&run);
}
END_TEST

/* CASES 14 */
START_TEST(a_reset_cache_is_as_good_as_new) {
    const decode_case c = {
        "reset", 2, 9, 9, {.d_model = 12, .num_heads = 3, .rope = ATTN_ROPE_HALF}, {0}};
    decode_run run = decode_setup(&c, 3);
    attn_real first[2 * 9 * 12], again[2 * 9 * 12];
    for (int pass = 0; pass < 2; pass++) {
        attn_real *y = pass ? again : first;
        decode_next_even(&run, y, 5);
        for (size_t t = 5; t < 9; t++)
            decode_next_even(&run, y, 1);
        test_ok(attn_kv_cache_reset(&run.cache));
    }
    ck_assert_mem_eq(first, again, sizeof first);
    decode_free(&run);
}
END_TEST

/* CASES 15: two layers, each with its cache, prefilled with 3. */
START_TEST(layers_have_lengths_of_their_own) {
    decode_run one = mean_setup(&mean_case, tokens), two = mean_setup(&mean_case, tokens);
    attn_real y[8];
    decode_next_even(&one, y, 3);
    ck_assert_uint_eq(attn_kv_cache_length(&one.cache, 0), 3);
    ck_assert_uint_eq(attn_kv_cache_length(&two.cache, 0), 0);
    decode_next_even(&two, y, 3);
    ck_assert_uint_eq(attn_kv_cache_length(&one.cache, 0), 3);
    ck_assert_uint_eq(attn_kv_cache_length(&two.cache, 0), 3);
    decode_free(&one);
    decode_free(&two);
}
END_TEST

/* Rolled back, a sequence goes on as if the later tokens had never been there; others stay. */
START_TEST(rolling_back) {
    const decode_case c = {
        "truncate", 2, 9, 9, {.d_model = 12, .num_heads = 3, .rope = ATTN_ROPE_HALF}, {0}};
    decode_run run = decode_setup(&c, 4);
    attn_real *want = decode_whole(&run);
    attn_real y[2 * 9 * 12];
    decode_next_even(&run, y, 9);
    test_ok(attn_kv_cache_truncate(&run.cache, 1, 9)); /* to where it is */
    test_ok(attn_kv_cache_truncate(&run.cache, 1, 4));
    ck_assert_uint_eq(attn_kv_cache_length(&run.cache, 0), 9);
    ck_assert_uint_eq(attn_kv_cache_length(&run.cache, 1), 4);
    for (size_t i = 0; i < 12 * 5; i++)
        y[13 * 12 + i] = (attn_real)NAN;
    decode_next(&run, y, (size_t[]){0, 2});
    decode_next(&run, y, (size_t[]){0, 3});
    test_close("rolled back", y, want, 2 * 9 * 12, 0, 60 * TEST_EPSILON);
    test_refused(attn_kv_cache_truncate(&run.cache, 1, 10), ATTN_ERROR_ARGUMENT);
    test_refused(attn_kv_cache_truncate(&run.cache, 2, 0), ATTN_ERROR_ARGUMENT);
    ck_assert_uint_eq(attn_kv_cache_length(&run.cache, 1), 9);
    test_ok(attn_kv_cache_truncate(&run.cache, 1, 0));
    ck_assert_uint_eq(attn_kv_cache_length(&run.cache, 1), 0);
    free(want);
    decode_free(&run);
}
END_TEST

/* A ring can be rolled back as far as it still holds a window. */
START_TEST(rolling_back_a_ring) {
    const decode_case c = {
        "ring", 1, 30, 10, {.d_model = 4, .num_heads = 2}, {.left_on = true, .left = 4}};
    decode_run run = decode_setup(&c, 5);
    attn_real *want = decode_whole(&run), y[30 * 4];
    for (size_t t = 0; t < 20; t++)
        decode_next_even(&run, y, 1);
    /* positions 10 .. 19 are there; the token at 14 sees 10, the one at 13 would see 9 */
    test_refused(attn_kv_cache_truncate(&run.cache, 0, 13), ATTN_ERROR_ARGUMENT);
    ck_assert_uint_eq(attn_kv_cache_length(&run.cache, 0), 20);
    test_ok(attn_kv_cache_truncate(&run.cache, 0, 14));
    test_refused(attn_kv_cache_truncate(&run.cache, 0, 13), ATTN_ERROR_ARGUMENT);
    decode_next_even(&run, y, 1);
    test_refused(attn_kv_cache_truncate(&run.cache, 0, 13), ATTN_ERROR_ARGUMENT);
    for (size_t t = 15; t < 30; t++)
        decode_next_even(&run, y, 1);
    test_close("ring", y, want, 30 * 4, 0, 60 * TEST_EPSILON);
    test_ok(attn_kv_cache_truncate(&run.cache, 0, 0));
    for (size_t t = 0; t < 12; t++)
        decode_next_even(&run, y, 1);
    test_close("from the start", y, want, 12 * 4, 0, 60 * TEST_EPSILON);
    free(want);
    decode_free(&run);
}
END_TEST

/* The arithmetic: 12 heads to 3 makes the cache 4 times smaller. */
START_TEST(bytes_are_those_of_keys_and_values) {
    attn_mha_config cfg = {.d_model = 768, .num_heads = 12};
    size_t all, grouped;
    test_ok(attn_kv_cache_memory(&cfg, 1, 4096, &all));
    cfg.num_kv_heads = 3;
    test_ok(attn_kv_cache_memory(&cfg, 1, 4096, &grouped));
    ck_assert_uint_ge(all, 2 * 4096 * 768 * sizeof(attn_real));
    ck_assert_uint_le(all, 2 * 4096 * 768 * sizeof(attn_real) + 1024);
    ck_assert_uint_le(all - 1024, 4 * grouped);
}
END_TEST

/* Exactly the bytes asked for suffice, for every length; one fewer is refused. */
START_TEST(memory_of_a_call) {
    const decode_case c = {"memory", 2, 700, 700, {.d_model = 12, .num_heads = 3}, {0}};
    decode_run run = decode_setup(&c, 6);
    attn_real *y = test_poison(2 * 700 * 12);
    const size_t lens[] = {0, 1, 3, 16, 17, 40}, all[2] = {0, 0};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        size_t bytes;
        test_ok(attn_mha_decode_memory(&run.cfg, &run.cache, lens[i], &bytes));
        for (int full = 0; full < 2; full++) {
            attn_arena arena = test_arena(bytes), small = test_arena(bytes - 1);
            const attn_decode_input input = {.len = lens[i], .query = run.x, .counts = all};
            const attn_decode_input plain = {.len = lens[i], .query = run.x};
            test_ok(attn_kv_cache_reset(&run.cache));
            if (full)
                decode_next_even(&run, y, 700 - lens[i]);
            test_ok(attn_mha_decode(&run.cfg, &run.w, &run.cache, &input, y, &arena));
            ck_assert_uint_le(arena.high_water, bytes); /* long chunks go one of two ways */
            ck_assert(lens[i] > 17 || arena.high_water == bytes);
            test_ok(attn_mha_decode(&run.cfg, &run.w, &run.cache, &plain, y, &arena));
            ck_assert_uint_eq(arena.used, 0);
            snapshot was = take(&run);
            test_refused(attn_mha_decode(&run.cfg, &run.w, &run.cache, &input, y, &small),
                         ATTN_ERROR_MEMORY);
            expect_unchanged(&was, &run);
            attn_arena_destroy(&arena);
            attn_arena_destroy(&small);
        }
    }
    free(y);
    decode_free(&run);
}
END_TEST

/* A cache that is measured serves to measure calls, and nothing else. */
START_TEST(measuring) {
    const attn_mha_config cfg = {.d_model = 8, .num_heads = 2};
    attn_real theta[4 * 64] = {0}, x[8] = {0}, y[8];
    const attn_mha_params w = attn_mha_params_view(&cfg, theta);
    attn_arena arena, real_arena = test_arena(100000);
    attn_kv_cache cache, made;
    size_t bytes, want;
    test_ok(attn_arena_init_measuring(&arena));
    test_ok(attn_kv_cache_init(&cache, &cfg, 1, 5, NULL, &arena));
    test_ok(attn_kv_cache_memory(&cfg, 1, 5, &want));
    ck_assert_uint_eq(arena.used, want);
    test_ok(attn_kv_cache_init(&made, &cfg, 1, 5, NULL, &real_arena));
    test_ok(attn_mha_decode_memory(&cfg, &made, 1, &want));
    test_ok(attn_mha_decode_memory(&cfg, &cache, 1, &bytes));
    ck_assert_uint_eq(bytes, want);
    const attn_decode_input input = {.len = 1, .query = x};
    test_refused(attn_mha_decode(&cfg, &w, &cache, &input, y, &real_arena), ATTN_ERROR_ARGUMENT);
    test_refused(attn_kv_cache_reset(&cache), ATTN_ERROR_ARGUMENT);
    test_refused(attn_kv_cache_truncate(&cache, 0, 0), ATTN_ERROR_ARGUMENT);
    ck_assert_uint_eq(attn_kv_cache_length(&cache, 0), 0);
    test_ok(
        attn_mha_decode(&cfg, &w, &made, &input, NULL, &arena)); /* counts, and touches nothing */
    ck_assert_uint_eq(attn_kv_cache_length(&made, 0), 0);
    attn_arena_destroy(&real_arena);
}
END_TEST

/* No sequence, no token, no tokens of any sequence. */
START_TEST(empty_calls_succeed) {
    const attn_mha_config cfg = {.d_model = 8, .num_heads = 2};
    attn_real theta[4 * 64] = {0};
    const attn_mha_params w = attn_mha_params_view(&cfg, theta);
    attn_arena arena = test_arena(100000);
    attn_kv_cache cache;
    test_ok(attn_kv_cache_init(&cache, &cfg, 0, 5, NULL, &arena));
    test_ok(attn_kv_cache_reset(&cache));
    test_ok(attn_mha_decode(&cfg, &w, &cache, &(attn_decode_input){.len = 3}, NULL, &arena));
    test_ok(attn_kv_cache_init(&cache, &cfg, 2, 5, NULL, &arena));
    test_ok(attn_mha_decode(&cfg, &w, &cache, &(attn_decode_input){.len = 0}, NULL, &arena));
    ck_assert_uint_eq(attn_kv_cache_length(&cache, 1), 0);
    attn_arena_destroy(&arena);
}
END_TEST

START_TEST(caches_that_cannot_be) {
    const attn_mha_config good = {.d_model = 8, .num_heads = 2};
    attn_mha_config odd = good;
    attn_arena arena = test_arena(4096);
    attn_kv_cache cache = {.capacity = 17}, was = cache;
    size_t bytes = 5;
    test_refused(attn_kv_cache_init(NULL, &good, 1, 4, NULL, &arena), ATTN_ERROR_ARGUMENT);
    test_refused(attn_kv_cache_init(&cache, NULL, 1, 4, NULL, &arena), ATTN_ERROR_ARGUMENT);
    test_refused(attn_kv_cache_init(&cache, &good, 1, 4, NULL, NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_kv_cache_init(&cache, &good, 1, 0, NULL, &arena), ATTN_ERROR_ARGUMENT);
    test_refused(attn_kv_cache_init(&cache, &good, SIZE_MAX / 4, 4, NULL, &arena),
                 ATTN_ERROR_OVERFLOW);
    test_refused(attn_kv_cache_init(&cache, &good, 1, SIZE_MAX / 2, NULL, &arena),
                 ATTN_ERROR_OVERFLOW);
    test_refused(attn_kv_cache_init(&cache, &good, 1, 1000, NULL, &arena), ATTN_ERROR_MEMORY);
    odd.has_scale = true;
    odd.scale = NAN;
    test_refused(attn_kv_cache_init(&cache, &odd, 1, 4, NULL, &arena), ATTN_ERROR_ARGUMENT);
    odd = good;
    odd.d_head = 3;
    odd.rope = ATTN_ROPE_HALF;
    test_refused(attn_kv_cache_init(&cache, &odd, 1, 4, NULL, &arena), ATTN_ERROR_SHAPE);
    ck_assert_mem_eq(&cache, &was, sizeof cache);
    ck_assert_uint_eq(arena.used + arena.high_water, 0);
    test_refused(attn_kv_cache_memory(&good, 1, 0, &bytes), ATTN_ERROR_ARGUMENT);
    test_refused(attn_kv_cache_memory(&good, 1, 4, NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_kv_cache_memory(&good, SIZE_MAX, 4, &bytes), ATTN_ERROR_OVERFLOW);
    ck_assert_uint_eq(bytes, 5);
    test_refused(attn_kv_cache_reset(NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_kv_cache_truncate(NULL, 0, 0), ATTN_ERROR_ARGUMENT);
    ck_assert_uint_eq(attn_kv_cache_length(NULL, 0), 0);
    const attn_kv_cache never = {0};
    ck_assert_uint_eq(attn_kv_cache_length(&never, 0), 0);
    ck_assert_msg(strstr(attn_error_message(), "attn_kv_cache_init"), "'%s'", attn_error_message());
    attn_arena_destroy(&arena);
}
END_TEST

/* One thing wrong with a call, and part of the words. */
typedef struct mistake {
    const char *name;
    void (*make)(decode_run *run, attn_decode_input *input);
    attn_status status;
    const char *words;
} mistake;

static const decode_case mistaken_case = {
    "mistake", 2, 6, 6, {.d_model = 8, .num_heads = 4, .num_kv_heads = 2, .bias = true}, {0}};
static size_t counts[2] = {3, 1};

static void nan_scale(decode_run *run, attn_decode_input *input) {
    (void)input;
    run->cfg.has_scale = true;
    run->cfg.scale = NAN;
}
static void other_scale(decode_run *run, attn_decode_input *input) {
    (void)input;
    run->cfg.has_scale = true;
    run->cfg.scale = 3;
}
static void other_kv_heads(decode_run *run, attn_decode_input *input) {
    (void)input;
    run->cfg.num_kv_heads = 1;
}
static void other_heads(decode_run *run, attn_decode_input *input) {
    (void)input;
    run->cfg.num_heads = 2;
    run->cfg.d_head = 2;
}
static void other_d_model(decode_run *run, attn_decode_input *input) {
    (void)input;
    run->cfg.d_model = 16;
    run->cfg.d_head = 2;
}
static void other_rope(decode_run *run, attn_decode_input *input) {
    (void)input;
    run->cfg.rope = ATTN_ROPE_HALF;
}
static void other_softcap(decode_run *run, attn_decode_input *input) {
    (void)input;
    run->cfg.softcap = 30;
}
static void other_alibi(decode_run *run, attn_decode_input *input) {
    (void)input;
    run->cfg.alibi = true;
}
static void other_sinks(decode_run *run, attn_decode_input *input) {
    (void)input;
    run->cfg.sinks = true;
}
static void no_query(decode_run *run, attn_decode_input *input) {
    (void)run;
    input->query = NULL;
}
static void no_wk(decode_run *run, attn_decode_input *input) {
    (void)input;
    run->w.wk = NULL;
}
static void surplus_count(decode_run *run, attn_decode_input *input) {
    (void)run;
    counts[1] = 2;
    counts[0] = 4;
    input->counts = counts;
}
static void huge_len(decode_run *run, attn_decode_input *input) {
    (void)run;
    input->len = SIZE_MAX / 8;
}
static void one_too_many(decode_run *run, attn_decode_input *input) {
    (void)run;
    counts[0] = 1;
    counts[1] = 2;
    input->counts = counts;
}
static void no_cache(decode_run *run, attn_decode_input *input) {
    (void)input;
    run->cache.capacity = 0;
}

static const mistake mistakes[] = {
    {"scale NaN", nan_scale, ATTN_ERROR_ARGUMENT, "scale nan"},
    {"other scale", other_scale, ATTN_ERROR_ARGUMENT, "its scale is 0.707107, here it is 3"},
    {"other kv heads", other_kv_heads, ATTN_ERROR_ARGUMENT, "num_kv_heads is 2, here it is 1"},
    {"other heads", other_heads, ATTN_ERROR_ARGUMENT, "num_heads is 4"},
    {"other d_model", other_d_model, ATTN_ERROR_ARGUMENT, "d_model is 8"},
    {"other rope", other_rope, ATTN_ERROR_ARGUMENT, "another configuration: its rope"},
    {"other softcap", other_softcap, ATTN_ERROR_ARGUMENT, "softcap is 0, here it is 30"},
    {"other alibi", other_alibi, ATTN_ERROR_ARGUMENT, "alibi"},
    {"other sinks", other_sinks, ATTN_ERROR_ARGUMENT, "sinks"},
    {"no query", no_query, ATTN_ERROR_ARGUMENT, "query is NULL"},
    {"no wk", no_wk, ATTN_ERROR_ARGUMENT, "params.wk"},
    {"a count above len", surplus_count, ATTN_ERROR_ARGUMENT, "counts[0] is 4, above len 3"},
    {"len wraps", huge_len, ATTN_ERROR_OVERFLOW, "overflow"},
    {"row 1 is full", one_too_many, ATTN_ERROR_MEMORY, "row 1 has 5 tokens, 2 more"},
    {"never made", no_cache, ATTN_ERROR_ARGUMENT, "attn_kv_cache_init"},
};

START_TEST(bad_calls_change_nothing) {
    const mistake *m = &mistakes[_i];
    decode_run run = decode_setup(&mistaken_case, 7);
    attn_real y[2 * 6 * 8], before[2 * 6 * 8];
    decode_next(&run, y, (size_t[]){2, 5});
    memcpy(before, y, sizeof y);
    attn_decode_input input = {.len = 3, .query = run.x, .counts = counts};
    m->make(&run, &input);
    snapshot was = take(&run);
    const attn_status status = attn_mha_decode(&run.cfg, &run.w, &run.cache, &input, y, &run.arena);
    ck_assert_msg(status == m->status, "%s: %s", m->name, attn_status_name(status));
    ck_assert_msg(strstr(attn_error_message(), m->words), "%s: '%s'", m->name,
                  attn_error_message());
    expect_unchanged(&was, &run);
    ck_assert_mem_eq(y, before, sizeof y);
    decode_free(&run);
}
END_TEST

/* Settings that change neither what is cached nor what is computed may differ. */
START_TEST(kernel_threads_and_dropout_may_differ) {
    decode_run run = decode_setup(&mistaken_case, 8);
    attn_real y[2 * 6 * 8];
    run.cfg.kernel = ATTN_KERNEL_REFERENCE;
    run.cfg.max_threads = 1;
    run.cfg.dropout = 0.25;
    run.cfg.has_scale = true;
    run.cfg.scale = attn_default_scale(2);
    run.cfg.d_head = 2;
    run.cfg.rope_base = 17; /* without rope */
    decode_next_even(&run, y, 2);
    decode_free(&run);
}
END_TEST

START_TEST(missing_arguments) {
    decode_run run = decode_setup(&mistaken_case, 9);
    attn_real y[2 * 6 * 8];
    size_t bytes = 5;
    const attn_decode_input in = {.len = 1, .query = run.x};
    snapshot was = take(&run);
    test_refused(attn_mha_decode(NULL, &run.w, &run.cache, &in, y, &run.arena),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_decode(&run.cfg, NULL, &run.cache, &in, y, &run.arena),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_decode(&run.cfg, &run.w, NULL, &in, y, &run.arena), ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_decode(&run.cfg, &run.w, &run.cache, NULL, y, &run.arena),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_decode(&run.cfg, &run.w, &run.cache, &in, NULL, &run.arena),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_decode(&run.cfg, &run.w, &run.cache, &in, y, NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_decode_memory(NULL, &run.cache, 1, &bytes), ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_decode_memory(&run.cfg, NULL, 1, &bytes), ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_decode_memory(&run.cfg, &run.cache, 1, NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_decode_memory(&run.cfg, &run.cache, SIZE_MAX / 4, &bytes),
                 ATTN_ERROR_OVERFLOW);
    ck_assert_uint_eq(bytes, 5);
    expect_unchanged(&was, &run);
    decode_free(&run);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kv_cache");
    TCase *tests = tcase_create("kv_cache");
    tcase_add_test(tests, a_token_sees_what_is_written);
    tcase_add_test(tests, new_tokens_stand_at_the_end);
    tcase_add_test(tests, a_full_cache_refuses_and_stays);
    tcase_add_test(tests, one_full_sequence_refuses_the_batch);
    tcase_add_test(tests, a_reset_cache_is_as_good_as_new);
    tcase_add_test(tests, layers_have_lengths_of_their_own);
    tcase_add_test(tests, rolling_back);
    tcase_add_test(tests, rolling_back_a_ring);
    tcase_add_test(tests, bytes_are_those_of_keys_and_values);
    tcase_add_test(tests, memory_of_a_call);
    tcase_add_test(tests, measuring);
    tcase_add_test(tests, empty_calls_succeed);
    tcase_add_test(tests, caches_that_cannot_be);
    tcase_add_loop_test(tests, bad_calls_change_nothing, 0,
                        (int)(sizeof mistakes / sizeof *mistakes));
    tcase_add_test(tests, kernel_threads_and_dropout_may_differ);
    tcase_add_test(tests, missing_arguments);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
