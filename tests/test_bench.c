/* attn bench: what it says, in JSON and in words, and what it refuses. */
#include "command_json.h"
#include "test.h"

static const char *text(json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_string(value), "no text '%s'", key);
    return json_string_value(value);
}

/* The derived figures follow from the times, for B, T, D = 2, 16, 8. */
static void check_figures(json_t *object, double forward_flops, double both_flops) {
    const double forward = number(object, "forward_gflops"),
                 peak = number(object, "fma_peak_gflops");
    const double both = number(object, "forward_backward_gflops");
    ck_assert_double_eq_tol(forward * number(object, "forward_ms") * 1e6 / forward_flops, 1, 1e-9);
    ck_assert_double_eq_tol(both * number(object, "forward_backward_ms") * 1e6 / both_flops, 1,
                            1e-9);
    ck_assert_double_eq_tol(number(object, "forward_fraction") * peak / forward, 1, 1e-9);
    ck_assert_double_eq_tol(number(object, "forward_backward_fraction") * peak / both, 1, 1e-9);
    ck_assert(number(object, "arena_bytes") > 0);
}

START_TEST(layer_in_json) {
    command_run run = ATTN("bench", "layer", "--shape=2,16,8,2", "--causal", "--threads=1",
                           "--budget=0", "--json");
    json_t *object = object_of(&run);
    const double attention = 4 * 2 * 16 * 16 * 8 / 2, projections = 8 * 2 * 16 * 8 * 8;
    check_figures(object, attention + projections, 3.5 * attention + 3 * projections);
    ck_assert_str_eq(text(object, "shape"), "2,16,8,2");
    ck_assert_str_eq(text(object, "kernel"), "fused");
    ck_assert(json_is_true(json_object_get(object, "causal")));
    ck_assert_double_eq(number(object, "threads"), 1);
    json_decref(object);
    command_free(&run);
}
END_TEST

START_TEST(core_in_json) {
    command_run run = ATTN("bench", "core", "--shape=2,16,8,2", "--kernel=reference", "--threads=1",
                           "--budget=0", "--double", "--json");
    json_t *object = object_of(&run);
    const double attention = 4 * 2 * 16 * 16 * 8;
    check_figures(object, attention, 3.5 * attention);
    ck_assert_str_eq(text(object, "kernel"), "reference");
    ck_assert_str_eq(text(object, "precision"), "double");
    ck_assert(json_is_false(json_object_get(object, "causal")));
    json_decref(object);
    command_free(&run);
}
END_TEST

/* A window of 4: each query but the first three sees 4 keys. 2 heads over 1 take half the width of
 * the projections of keys and values. */
START_TEST(variants_count_what_is_useful) {
    command_run run = ATTN("bench", "layer", "--shape=2,16,8,2", "--causal", "--window=4",
                           "--kv-heads=1", "--rope=half", "--threads=1", "--budget=0", "--json");
    json_t *object = object_of(&run);
    const double attention = 4 * 2 * 8 * (1 + 2 + 3 + 13 * 4), projections = 4 * 2 * 16 * 8 * 12;
    check_figures(object, attention + projections, 3.5 * attention + 3 * projections);
    ck_assert_double_eq(number(object, "window"), 4);
    ck_assert_double_eq(number(object, "kv_heads"), 1);
    ck_assert_str_eq(text(object, "rope"), "half");
    ck_assert(json_is_null(json_object_get(object, "bias")));
    ck_assert(number(object, "plain_forward_backward_ms") > 0);
    ck_assert(number(object, "plain_ratio") > 0);
    ck_assert(number(object, "plain_forward_ratio") > 0);
    json_decref(object);
    command_free(&run);
}
END_TEST

/* A window of the whole length is the causal triangle, counted as half of all pairs. */
START_TEST(a_window_of_everything_is_causal) {
    command_run run = ATTN("bench", "core", "--shape=2,16,8,2", "--window=100", "--rope",
                           "interleaved", "--threads=1", "--budget=0", "--json");
    json_t *object = object_of(&run);
    const double attention = 4 * 2 * 16 * 16 * 8 / 2;
    check_figures(object, attention, 3.5 * attention);
    ck_assert_str_eq(text(object, "rope"), "interleaved");
    json_decref(object);
    command_free(&run);
    run = ATTN("bench", "core", "--shape=2,16,8,2", "--kv-heads=1", "--budget=0");
    ck_assert_int_eq(run.status, 0);
    ck_assert_ptr_nonnull(strstr(run.out, "kv-heads 1\n"));
    ck_assert_ptr_nonnull(strstr(run.out, "plain, in turns with it"));
    command_free(&run);
}
END_TEST

/* Plain attention is measured alone, and nothing is said of a ratio. */
START_TEST(plain_attention_has_no_ratio) {
    command_run run = ATTN("bench", "core", "--shape=2,16,8,2", "--budget=0", "--json");
    json_t *object = object_of(&run);
    ck_assert_ptr_null(json_object_get(object, "plain_ratio"));
    ck_assert_double_eq(number(object, "kv_heads"), 2);
    ck_assert_double_eq(number(object, "dropout"), 0);
    json_decref(object);
    command_free(&run);
}
END_TEST

START_TEST(wrong_variants_are_refused) {
    command_refused(ATTN("bench", "core", "--kv-heads=5"), 2, "--kv-heads", "5 do not divide");
    command_refused(ATTN("bench", "core", "--kv-heads=0"), 2, "--kv-heads", "'0'");
    command_refused(ATTN("bench", "core", "--window=0"), 2, "--window", "'0'");
    command_refused(ATTN("bench", "core", "--window=-3"), 2, "--window", "'-3'");
    command_refused(ATTN("bench", "core", "--dropout=1"), 2, "--dropout", "1 drops");
    command_refused(ATTN("bench", "core", "--dropout=-0.1"), 2, "--dropout", "'-0.1'");
    command_refused(ATTN("bench", "core", "--softcap=nan"), 2, "--softcap", "'nan'");
    command_refused(ATTN("bench", "core", "--rope=full"), 2, "--rope", "'full'");
    command_refused(ATTN("bench", "core", "--rope=half", "--shape=1,4,6,2"), 2, "--rope",
                    "width of 3");
    command_refused(ATTN("bench", "core", "--bias=1,1,4"), 2, "--bias", "'1,1,4'");
    command_refused(ATTN("bench", "core", "--bias=1,1,1024,5"), 2, "--bias", "5 keys");
    command_refused(ATTN("bench", "core", "--bias=3,1,1,1"), 2, "--bias", "3 batch");
    command_refused(ATTN("bench", "--all", "--sinks"), 2, "--all", "variant");
    command_refused(ATTN("bench", "--plot=plots", "--alibi"), 2, "--plot", "variant");
}
END_TEST

START_TEST(core_in_words) {
    command_run run = ATTN("bench", "core", "--shape", "toy", "--budget=0");
    ck_assert_int_eq(run.status, 0);
    ck_assert_ptr_nonnull(strstr(run.out, "toy"));
    ck_assert_ptr_nonnull(strstr(run.out, "GFLOP/s"));
    command_free(&run);
}
END_TEST

START_TEST(wrong_command_lines_are_refused) {
    command_refused(ATTN("bench"), 2, "layer, core", "missing");
    command_refused(ATTN("bench", "--plot=plots", "--json"), 2, "--json", "layer, core");
    /* before the numbers are measured, not after */
    command_refused(ATTN("bench", "layer", "--shape=1,2,8,2", "--plot=/dev/null"), 1, "/dev/null",
                    "not a directory");
    command_refused(ATTN("bench", "model"), 2, "model", "neither layer, core nor decode");
    command_refused(ATTN("bench", "layer", "--shape=huge"), 2, "huge", "--shape");
    command_refused(ATTN("bench", "layer", "--shape=1,2,3"), 2, "1,2,3", "--shape");
    command_refused(ATTN("bench", "layer", "--shape=1,2,3,1,5"), 2, "1,2,3,1,5", "--shape");
    command_refused(ATTN("bench", "layer", "--shape=1,0,8,2"), 2, "1,0,8,2", "--shape");
    command_refused(ATTN("bench", "layer", "--shape=1,-2,8,2"), 2, "1,-2,8,2", "--shape");
    command_refused(ATTN("bench", "layer", "--shape=1,2,8,3"), 2, "1,2,8,3", "divide");
    command_refused(ATTN("bench", "layer", "--kernel=fast"), 2, "fast", "kernel");
    command_refused(ATTN("bench", "layer", "--threads=0"), 2, "0", "threads");
    command_refused(ATTN("bench", "layer", "--all"), 2, "layer", "--all");
    command_refused(ATTN("bench", "--all", "--shape=toy"), 2, "--shape", "--all");
}
END_TEST

/* (1, 2^20, 64, 1) on the reference path: two matrices of 4 TiB each. */
START_TEST(an_arena_that_cannot_be_had_is_refused_with_its_bytes) {
    command_run run = ATTN("bench", "core", "--shape=1,1048576,64,1", "--kernel=reference");
    unsigned long long bytes = 0;
    const char *words = strstr(run.err, "an arena of ");
    ck_assert_msg(words != NULL, "status %d, stderr:\n%s", run.status, run.err);
    ck_assert_int_eq(sscanf(words, "an arena of %llu bytes", &bytes), 1);
    ck_assert(bytes > 1ULL << 42);
    command_refused(run, 1, "1,1048576,64,1", "cannot be had");
    command_refused(ATTN("bench", "layer", "--shape=1099511627776,1099511627776,64,1"), 1,
                    "1099511627776", "overflow");
}
END_TEST

START_TEST(a_folder_that_cannot_be_made_is_refused) {
    command_refused(ATTN("bench", "--plot=/dev/null/plots"), 1, "/dev/null", "");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("bench");
    TCase *tcase = tcase_create("bench");
    tcase_set_timeout(tcase, 200);
    tcase_add_test(tcase, layer_in_json);
    tcase_add_test(tcase, core_in_json);
    tcase_add_test(tcase, variants_count_what_is_useful);
    tcase_add_test(tcase, a_window_of_everything_is_causal);
    tcase_add_test(tcase, plain_attention_has_no_ratio);
    tcase_add_test(tcase, wrong_variants_are_refused);
    tcase_add_test(tcase, core_in_words);
    tcase_add_test(tcase, wrong_command_lines_are_refused);
    tcase_add_test(tcase, an_arena_that_cannot_be_had_is_refused_with_its_bytes);
    tcase_add_test(tcase, a_folder_that_cannot_be_made_is_refused);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
