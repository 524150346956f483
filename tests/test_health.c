/* What `attn health` claims: with the scaling nothing depends on the head width, without it the
 * typical row goes dead while a few rows keep the mean up. */
#include "command.h"
#include "test.h"

#include <jansson.h>

enum { WIDTHS = 11 };

typedef struct row {
    double entropy, max_weight, jacobian_mean, jacobian_median, dq_mean, dq_median, dk_mean,
        dk_median, fd_error;
} row;

static double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "no number %s", key);
    return json_number_value(value);
}

/* table[scaled][i] for width 2^i. */
static void measure(row table[2][WIDTHS]) {
    command_run run = ATTN("health", "--json");
    ck_assert_msg(run.status == 0, "%s", run.err);
    ck_assert_str_eq(run.err, "");
    ck_assert_uint_eq(command_lines(run.out), 1);
    json_error_t error;
    json_t *list = json_loads(run.out, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json_is_array(list), "%s", error.text);
    ck_assert_uint_eq(json_array_size(list), 2 * WIDTHS);
    bool seen[2][WIDTHS] = {{false}};
    for (size_t i = 0; i < 2 * WIDTHS; i++) {
        const json_t *o = json_array_get(list, i);
        int width = 0, scaled = json_is_true(json_object_get(o, "scaled"));
        while (width < WIDTHS && (double)(1 << width) != number(o, "d_head"))
            width++;
        ck_assert(width < WIDTHS && !seen[scaled][width]);
        seen[scaled][width] = true;
        table[scaled][width] = (row){
            number(o, "entropy"),
            number(o, "max_weight"),
            number(o, "jacobian_norm_mean"),
            number(o, "jacobian_norm_median"),
            number(o, "dq_norm_mean"),
            number(o, "dq_norm_median"),
            number(o, "dk_norm_mean"),
            number(o, "dk_norm_median"),
            number(o, "fd_relative_error"),
        };
    }
    json_decref(list);
    command_free(&run);
}

START_TEST(scaling_keeps_the_gradient_alive) {
    row table[2][WIDTHS];
    measure(table);
    const row *scaled = table[true], *unscaled = table[false];
    double low = INFINITY, high = 0, low_mean = INFINITY, high_mean = 0;
    for (int i = 0; i < WIDTHS; i++) {
        low = fmin(low, scaled[i].jacobian_median);
        high = fmax(high, scaled[i].jacobian_median);
        low_mean = fmin(low_mean, scaled[i].jacobian_mean);
        high_mean = fmax(high_mean, scaled[i].jacobian_mean);
        ck_assert_msg(scaled[i].fd_error < 1e-7 && unscaled[i].fd_error < 1e-7,
                      "d = %d: finite differences are off by %g and %g", 1 << i, scaled[i].fd_error,
                      unscaled[i].fd_error);
    }
    ck_assert_msg(high <= 2 * low, "scaled medians run from %g to %g", low, high);
    ck_assert_msg(high_mean <= 2 * low_mean, "scaled means run from %g to %g", low_mean, high_mean);

    /* Width 1 has scale 1: both curves start from the same point. */
    ck_assert_mem_eq(&scaled[0], &unscaled[0], sizeof(row));

    const row *narrow = &unscaled[2], *wide = &unscaled[WIDTHS - 1]; /* d = 4 and 1024 */
    double fall = narrow->jacobian_median / wide->jacobian_median;
    ck_assert_msg(fall >= 300, "the unscaled median falls %.3g-fold", fall);
    ck_assert_msg(narrow->jacobian_median > 0.2 && narrow->jacobian_median < 0.32 &&
                      wide->jacobian_median < 1e-3,
                  "from %g to %g", narrow->jacobian_median, wide->jacobian_median);
    ck_assert_msg(wide->max_weight > 0.9, "largest weight %g", wide->max_weight);
    /* The other half of the truth: the mean hardly falls, the gradient's mean norm even grows. */
    double mean_fall = narrow->jacobian_mean / wide->jacobian_mean;
    ck_assert_msg(mean_fall > 2 && mean_fall < 8, "the unscaled mean falls %.3g-fold", mean_fall);
    ck_assert_msg(wide->dq_mean > narrow->dq_mean && wide->dq_median < narrow->dq_median / 10,
                  "|dQ| mean %g to %g, median %g to %g", narrow->dq_mean, wide->dq_mean,
                  narrow->dq_median, wide->dq_median);
}
END_TEST

START_TEST(plots_keep_their_data) {
    char *dir = command_scratch();
    const char *const quiet[] = {"GNUTERM=qt", "DISPLAY", NULL};
    command_run run = ATTN_WITH(quiet, "health", "--rows", "64", "--plots", dir);
    ck_assert_msg(run.status == 0, "%s", run.err);
    ck_assert(command_exists(dir, "health.csv") && command_exists(dir, "health.gp"));
    ck_assert(command_exists(dir, "copy.csv") && command_exists(dir, "copy.gp"));
    /* The consequence: the wide head learns with the scaling and gets stuck without. */
    double loss[2], accuracy[2];
    const char *copy = strstr(run.out, "copy task, one head of width 256");
    ck_assert_msg(copy && sscanf(strchr(copy, ':'),
                                 ": loss %lf and accuracy %lf %% with the scaling, %lf and %lf",
                                 &loss[1], &accuracy[1], &loss[0], &accuracy[0]) == 4,
                  "%s", run.out);
    ck_assert_msg(loss[1] < 0.01 && accuracy[1] > 99.9, "scaled: %g, %g", loss[1], accuracy[1]);
    ck_assert_msg(loss[0] > 0.1 && accuracy[0] < 97, "unscaled: %g, %g", loss[0], accuracy[0]);
    command_free(&run);
    command_remove(dir);
}
END_TEST

START_TEST(bad_options_are_refused) {
    command_refused(ATTN("health", "--rows", "0"), 2, "--rows", "'0'");
    command_refused(ATTN("health", "--rows", "1e3"), 2, "--rows", "'1e3'");
    command_refused(ATTN("health", "--seed", "-1"), 2, "--seed", "'-1'");
    command_refused(ATTN("health", "--depth"), 2, "--depth", "unknown");
    command_refused(ATTN("health", "now"), 2, "now", "surplus");
    command_refused(ATTN("health", "--plots", "/dev/null/x"), 1, "/dev/null", "directory");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("health");
    TCase *tests = tcase_create("health");
    tcase_add_test(tests, scaling_keeps_the_gradient_alive);
    tcase_add_test(tests, plots_keep_their_data);
    tcase_add_test(tests, bad_options_are_refused);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
