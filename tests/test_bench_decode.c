/* attn bench decode: figures that follow from each other, refusals, and the plot. */
#include "command_json.h"
#include "test.h"

/* One shape, 2 sequences of 50 tokens with 4 heads of width 8, in both precisions; with 2 key-value
 * heads and a window of 20. */
static const struct {
    const char *kv_heads, *window, *precision;
    double heads, seen, real;
} cases[] = {{"--kv-heads=4", "--threads=1", "--no-double", 4, 50, 4},
             {"--kv-heads=2", "--window=20", "--no-double", 2, 20, 4},
             {"--kv-heads=1", "--threads=2", "--double", 1, 50, 8}};

START_TEST(figures_in_json) {
    command_run run =
        ATTN("bench", "decode", "--shape=2,50,32,4", cases[_i].kv_heads, cases[_i].window,
             cases[_i].precision, "--rope=half", "--alibi", "--sinks", "--budget=0", "--json");
    json_t *o = object_of(&run);
    const double kv_width = cases[_i].heads * 8, attention = number(o, "attention_ms") * 1e-3;
    const double step = number(o, "step_ms") * 1e-3, weights = number(o, "weight_bytes");
    const double token = number(o, "bytes_per_token");
    ck_assert_double_eq(token, 2 * cases[_i].seen * kv_width * cases[_i].real);
    /* matrices, biases, slopes that do not learn, sinks */
    ck_assert_double_eq(weights, cases[_i].real *
                                     (2 * 32 * 32 + 2 * kv_width * 32 + 2 * 32 + 2 * kv_width + 4));
    ck_assert_double_ge(number(o, "cache_bytes"), 2 * 2 * 50 * kv_width * cases[_i].real);
    ck_assert_double_eq_tol(number(o, "tokens_per_second") * step, 2, 1e-9);
    ck_assert_double_eq_tol(number(o, "bandwidth_fraction") * number(o, "read_bandwidth_gbs") *
                                1e9 * attention / (2 * token),
                            1, 1e-9);
    ck_assert_double_eq_tol(number(o, "step_bandwidth_fraction") *
                                number(o, "step_read_bandwidth_gbs") * 1e9 * step /
                                (2 * token + weights),
                            1, 1e-9);
    ck_assert(attention > 0 && number(o, "projections_ms") > 0);
    ck_assert_double_eq(number(o, "kv_heads"), cases[_i].heads);
    json_decref(o);
    command_free(&run);
}
END_TEST

START_TEST(in_words) {
    command_run run = ATTN("bench", "decode", "--shape=1,16,8,2", "--budget=0");
    ck_assert_msg(run.status == 0, "%s", run.err);
    ck_assert_ptr_nonnull(strstr(run.out, "tokens/s"));
    ck_assert_ptr_nonnull(strstr(run.out, "attention"));
    command_free(&run);
}
END_TEST

/* A row for each doubling of the position and one for the last; both times in each. */
START_TEST(plot_of_time_per_token) {
    char *dir = command_scratch(), path[512], line[128];
    snprintf(path, sizeof path, "--plot=%s", dir);
    command_run run = ATTN("bench", "decode", "--shape=1,40,8,2", "--budget=0", "--json", path);
    ck_assert_msg(run.status == 0, "%s", run.err);
    ck_assert_uint_eq(command_lines(run.out), 1);
    ck_assert(command_exists(dir, "decode.csv") && command_exists(dir, "decode.gp"));
    snprintf(path, sizeof path, "%s/decode.csv", dir);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    size_t at = 0, rows = 0;
    double without, with;
    const size_t positions[] = {16, 32, 40};
    ck_assert(fgets(line, sizeof line, file) != NULL);
    for (; fgets(line, sizeof line, file); rows++) {
        ck_assert_msg(sscanf(line, "%zu,%lf,%lf", &at, &without, &with) == 3, "'%s'", line);
        ck_assert(rows < 3 && at == positions[rows] && without > 0 && with > 0);
    }
    ck_assert_uint_eq(rows, 3);
    fclose(file);
    command_free(&run);
    command_remove(dir);
}
END_TEST

START_TEST(wrong_command_lines_are_refused) {
    command_refused(ATTN("bench", "decode", "--shape=1,2,3"), 2, "1,2,3", "--shape");
    command_refused(ATTN("bench", "decode", "--shape=1,2,8,3"), 2, "1,2,8,3", "divide");
    command_refused(ATTN("bench", "decode", "--kv-heads=5"), 2, "5", "kv-heads");
    command_refused(ATTN("bench", "decode", "--all"), 2, "decode", "--all");
    command_refused(ATTN("bench", "decode", "--bias=1,1,1,1"), 2, "decode", "--bias");
    command_refused(ATTN("bench", "decode", "--dropout=.5"), 2, "decode", "--dropout");
    command_refused(ATTN("bench", "decode", "--kernel=fused"), 2, "decode", "--kernel");
    command_refused(ATTN("bench", "decode", "--shape=1,8,6,2", "--rope=half"), 2, "--rope",
                    "makes no pairs");
    command_refused(ATTN("bench", "decode", "--plot=/dev/null/plots"), 1, "/dev/null", "");
    command_refused(ATTN("bench", "decode", "--shape=1099511627776,1099511627776,64,1"), 1,
                    "1099511627776", "wraps");
    command_refused(ATTN("bench", "decode", "--shape=1,17179869184,768,12"), 1, "17179869184",
                    "cannot be had");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("bench_decode");
    TCase *tcase = tcase_create("bench_decode");
    tcase_set_timeout(tcase, 200);
    tcase_add_loop_test(tcase, figures_in_json, 0, (int)(sizeof cases / sizeof *cases));
    tcase_add_test(tcase, in_words);
    tcase_add_test(tcase, plot_of_time_per_token);
    tcase_add_test(tcase, wrong_command_lines_are_refused);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
