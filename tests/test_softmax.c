/* Softmax and its Jacobian product, against hand-computed values and loops in double. */
#include "test.h"
#include "threads.h"

#define INF ((attn_real)INFINITY)

static const struct {
    size_t rows, cols;
    double deviation;
    bool blocked; /* a third of the scores is -inf, the first row wholly */
} shapes[] = {{1, 1, 1, false},  {3, 2, 1, false},   {4, 7, 10, true},    {5, 8, 3, true},
              {5, 9, 100, true}, {1, 1000, 1, true}, {67, 131, 1, false}, {300, 500, 2, true}};

/* Random scores, of a shape above. */
static attn_real *make_scores(int shape) {
    size_t cols = shapes[shape].cols, n = shapes[shape].rows * cols;
    attn_real *s = test_normal(n, shapes[shape].deviation, 11);
    for (size_t e = 0; shapes[shape].blocked && e < n; e++)
        if (e < cols || e * 2654435761u % 3 == 0)
            s[e] = -INF;
    return s;
}

/* e^0 : e^ln 3 = 1 : 3; a constant added to a row changes nothing but lse. */
START_TEST(forward_by_hand) {
    const attn_real ln3 = (attn_real)log(3.0);
    const attn_real s[8] = {0, ln3, 1000, 1000, -1000 + ln3, -1000, -INF, 5};
    const attn_real want[8] = {0.25, 0.75, 0.5, 0.5, 0.75, 0.25, 0, 1};
    const attn_real want_lse[4] = {(attn_real)log(4.0), (attn_real)(1000 + log(2.0)),
                                   (attn_real)(-1000 + log(4.0)), 5};
    attn_real p[8], lse[4];
    test_ok(attn_softmax_forward(p, lse, s, 4, 2));
    /* -1000 + ln 3 is rounded to 2^-14 in float before softmax sees it */
    test_close("p", p, want, 8, 256 * TEST_EPSILON, 0);
    test_close("lse", lse, want_lse, 4, 256 * TEST_EPSILON, TEST_EPSILON);
}
END_TEST

/* p = (1/4, 3/4), dp = (1, 0): D = 1/4, ds = (3/16, -3/16). */
START_TEST(backward_by_hand) {
    const attn_real p[2] = {0.25, 0.75}, dp[2] = {1, 0}, want[2] = {0.1875, -0.1875};
    attn_real ds[2];
    test_ok(attn_softmax_backward(ds, dp, p, 1, 2));
    test_close("ds", ds, want, 2, 0, 0);
}
END_TEST

/* Weights and lse against exp in double; the backward against the whole Jacobian diag(p) - p pᵀ. */
START_TEST(equals_plain_loops) {
    const size_t rows = shapes[_i].rows, cols = shapes[_i].cols, n = rows * cols;
    attn_real *s = make_scores(_i), *dp = test_normal(n, 1, 12);
    attn_real *p = test_poison(n), *ds = test_poison(n), *lse = test_poison(rows);
    attn_real *want_p = test_poison(n), *want_ds = test_poison(n), *want_lse = test_poison(rows);
    test_ok(attn_softmax_forward(p, lse, s, rows, cols));
    test_ok(attn_softmax_backward(ds, dp, p, rows, cols));
    for (size_t i = 0; i < rows; i++) {
        double max = -INFINITY, sum = 0;
        for (size_t j = 0; j < cols; j++)
            max = fmax(max, (double)s[i * cols + j]);
        for (size_t j = 0; j < cols; j++)
            sum += isfinite(s[i * cols + j]) ? exp((double)s[i * cols + j] - max) : 0;
        want_lse[i] = (attn_real)(sum > 0 ? max + log(sum) : -INFINITY);
        for (size_t j = 0; j < cols; j++)
            want_p[i * cols + j] =
                (attn_real)(isfinite(s[i * cols + j]) ? exp((double)s[i * cols + j] - max) / sum
                                                      : 0);
        for (size_t j = 0; j < cols; j++) {
            double d = 0;
            for (size_t k = 0; k < cols; k++)
                d += (double)dp[i * cols + k] *
                     ((j == k ? (double)want_p[i * cols + j] : 0) -
                      (double)want_p[i * cols + k] * (double)want_p[i * cols + j]);
            want_ds[i * cols + j] = (attn_real)d;
        }
    }
    /* s - m is rounded to reals before its exponential is taken */
    double tolerance = 4 * TEST_EPSILON * (1 + 4 * shapes[_i].deviation);
    char what[64];
    snprintf(what, sizeof what, "shape %d, %zu x %zu", _i, rows, cols);
    test_close(what, p, want_p, n, tolerance, 0);
    test_close(what, lse, want_lse, rows, tolerance, TEST_EPSILON);
    test_close(what, ds, want_ds, n, tolerance, tolerance);
    for (size_t i = 0; i < rows; i++) {
        double sum = 0;
        for (size_t j = 0; j < cols; j++)
            sum += (double)p[i * cols + j];
        ck_assert(lse[i] == -INF ? sum == 0 : fabs(sum - 1) <= 1e-6);
    }
    free(s);
    free(dp);
    free(p);
    free(ds);
    free(lse);
    free(want_p);
    free(want_ds);
    free(want_lse);
}
END_TEST

/* In place and for any number of threads: the same bits. */
START_TEST(in_place_and_threads) {
    const size_t rows = shapes[_i].rows, cols = shapes[_i].cols, n = rows * cols;
    const size_t bytes = n * sizeof(attn_real);
    attn_real *s = make_scores(_i), *dp = test_normal(n, 1, 13);
    attn_real *p = test_poison(n), *ds = test_poison(n), *p2 = test_poison(n),
              *ds2 = test_poison(n);
    test_set_threads(1);
    test_ok(attn_softmax_forward(p, NULL, s, rows, cols));
    test_ok(attn_softmax_backward(ds, dp, p, rows, cols));
    for (size_t t = 0; t < sizeof test_thread_counts / sizeof *test_thread_counts; t++) {
        test_set_threads(test_thread_counts[t]);
        memcpy(p2, s, bytes);
        memcpy(ds2, dp, bytes);
        test_ok(attn_softmax_forward(p2, NULL, p2, rows, cols));
        test_ok(attn_softmax_backward(ds2, ds2, p2, rows, cols));
        ck_assert_mem_eq(p2, p, bytes);
        ck_assert_mem_eq(ds2, ds, bytes);
    }
    free(s);
    free(dp);
    free(p);
    free(ds);
    free(p2);
    free(ds2);
}
END_TEST

/* A row of -inf alone: weights 0, lse -inf, no gradient, however wild dp is elsewhere. */
START_TEST(fully_masked_row) {
    const attn_real s[6] = {-INF, -INF, -INF, 1, 1, -INF}, dp[6] = {5, -6, 7, 1, 2, 3};
    const attn_real want_p[6] = {0, 0, 0, 0.5, 0.5, 0}, want_ds[6] = {0, 0, 0, -0.25, 0.25, 0};
    attn_real p[6], ds[6], lse[2];
    test_ok(attn_softmax_forward(p, lse, s, 2, 3));
    test_ok(attn_softmax_backward(ds, dp, p, 2, 3));
    test_close("p", p, want_p, 6, TEST_EPSILON, 0);
    test_close("ds", ds, want_ds, 6, TEST_EPSILON, 0);
    ck_assert(lse[0] == -INF);
}
END_TEST

/* 4096 equal scores: each weight exactly 2^-12, as a cheap exp would not have it. */
START_TEST(equal_scores) {
    enum { N = 4096 };
    attn_real *p = test_normal(N, 0, 1), lse;
    for (size_t j = 0; j < N; j++)
        p[j] = (attn_real)0.3;
    test_ok(attn_softmax_forward(p, &lse, p, 1, N));
    for (size_t j = 0; j < N; j++)
        ck_assert(p[j] == (attn_real)0x1p-12);
    ck_assert(fabs((double)lse - (double)(attn_real)0.3 - 12 * log(2.0)) < 8 * TEST_EPSILON * 8);
    free(p);
}
END_TEST

/* Scores as far apart as reals go, without NaN; -FLT_MAX or -DBL_MAX is a number, not a block. */
START_TEST(extreme_scores) {
    const attn_real top = sizeof(attn_real) == 4 ? (attn_real)3.4028234663852886e38
                                                 : (attn_real)1.7976931348623157e308;
    const attn_real s[6] = {top, -top, 0, -top, -top, -INF};
    const attn_real want[6] = {1, 0, 0, 0.5, 0.5, 0};
    attn_real p[6], lse[2];
    test_ok(attn_softmax_forward(p, lse, s, 2, 3));
    test_close("p", p, want, 6, 0, 0);
    ck_assert(lse[0] == top && lse[1] == -top);
}
END_TEST

/* A NaN or +inf spoils the numbers of its row, but not what -inf blocks, and no other row. */
START_TEST(not_finite_scores) {
    const attn_real nan = (attn_real)NAN;
    const attn_real s[12] = {1, nan, -INF, 1, INF, -INF, -INF, nan, -INF, 2, 2, -INF};
    const attn_real want[12] = {nan, nan, 0, nan, nan, 0, 0, nan, 0, 0.5, 0.5, 0};
    attn_real p[12], lse[4];
    test_ok(attn_softmax_forward(p, lse, s, 4, 3));
    test_close("p", p, want, 12, TEST_EPSILON, 0);
    ck_assert(isnan(lse[0]) && isnan(lse[1]) && isnan(lse[2]) && isfinite(lse[3]));
}
END_TEST

START_TEST(refusals_and_empties) {
    attn_real x[2] = {3, 4}, lse = 5;
    test_refused(attn_softmax_forward(NULL, NULL, x, 1, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_softmax_forward(x, NULL, NULL, 1, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_softmax_backward(x, x, NULL, 1, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_softmax_backward(x, NULL, x, 1, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_softmax_backward(NULL, x, x, 1, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_softmax_forward(x, NULL, x, SIZE_MAX / 2, 3), ATTN_ERROR_OVERFLOW);
    ck_assert(x[0] == 3 && x[1] == 4);
    test_ok(attn_softmax_forward(NULL, NULL, NULL, 0, 2));
    test_ok(attn_softmax_backward(NULL, NULL, NULL, 0, 2));
    test_ok(attn_softmax_forward(NULL, &lse, NULL, 1, 0));
    ck_assert(lse == -INF);
}
END_TEST

/* A sink is a column more, whose dp is 0 and whose gradient is summed per head. Head 1 has the sink
 * -inf, as if it had none; row 0 is blocked but for its sink. */
START_TEST(sink_is_a_column) {
    const attn_shape s = {3, 2, 4, 9, 1};
    enum { ROWS = 24, COLS = 9 };
    attn_real *scores = test_normal(ROWS * COLS, 3, 21), *dp = test_normal(ROWS * COLS, 1, 22);
    const attn_real sinks[2] = {(attn_real)1.5, -INF};
    attn_real p[ROWS * COLS], ds[ROWS * COLS], sink_weights[ROWS], lse[ROWS], dsinks[2];
    attn_real wide[ROWS * (COLS + 1)], wide_dp[ROWS * (COLS + 1)], wide_lse[ROWS];
    attn_real want[ROWS * COLS], want_ds[ROWS * COLS], want_weights[ROWS];
    double sums[2] = {0};
    for (size_t j = 0; j < COLS; j++)
        scores[j] = -INF;
    for (size_t i = 0; i < ROWS; i++) {
        memcpy(wide + i * (COLS + 1), scores + i * COLS, COLS * sizeof *wide);
        memcpy(wide_dp + i * (COLS + 1), dp + i * COLS, COLS * sizeof *wide);
        wide[i * (COLS + 1) + COLS] = sinks[i / 4 % 2];
        wide_dp[i * (COLS + 1) + COLS] = 0;
    }
    test_ok(attn_softmax_forward(wide, wide_lse, wide, ROWS, COLS + 1));
    test_ok(attn_softmax_backward(wide_dp, wide_dp, wide, ROWS, COLS + 1));
    for (size_t i = 0; i < ROWS; i++) {
        memcpy(want + i * COLS, wide + i * (COLS + 1), COLS * sizeof *want);
        memcpy(want_ds + i * COLS, wide_dp + i * (COLS + 1), COLS * sizeof *want);
        want_weights[i] = wide[i * (COLS + 1) + COLS];
        sums[i / 4 % 2] += (double)wide_dp[i * (COLS + 1) + COLS];
    }
    test_ok(attn_softmax_sinks_forward(p, sink_weights, lse, scores, sinks, &s));
    test_ok(attn_softmax_sinks_backward(ds, dsinks, dp, p, sink_weights, &s));
    test_close("p", p, want, ROWS * COLS, 8 * TEST_EPSILON, 0);
    test_close("sink weights", sink_weights, want_weights, ROWS, 8 * TEST_EPSILON, 0);
    test_close("lse", lse, wide_lse, ROWS, 8 * TEST_EPSILON, 8 * TEST_EPSILON);
    test_close("ds", ds, want_ds, ROWS * COLS, 16 * TEST_EPSILON, 0);
    test_close("dsinks", dsinks, (attn_real[]){(attn_real)sums[0], (attn_real)sums[1]}, 2,
               64 * TEST_EPSILON, 0);
    ck_assert(sink_weights[0] == 1 && lse[0] == sinks[0] && p[0] == 0 && ds[0] == 0);
    ck_assert(dsinks[1] == 0);
    /* in place */
    memcpy(ds, dp, sizeof ds);
    test_ok(attn_softmax_sinks_forward(scores, sink_weights, NULL, scores, sinks, &s));
    ck_assert_mem_eq(scores, p, sizeof p);
    test_ok(attn_softmax_sinks_backward(ds, dsinks, ds, p, sink_weights, &s));
    test_close("ds in place", ds, want_ds, ROWS * COLS, 16 * TEST_EPSILON, 0);
    free(scores);
    free(dp);
}
END_TEST

/* Nothing overflows or vanishes about a sink that is as low as the scores, or far above them; NaN
 * in it shows. */
START_TEST(extreme_sinks) {
    const attn_shape s = {1, 3, 1, 2, 1};
    const attn_real low = (attn_real)-1e30, scores[6] = {low, low, 0, 1, 0, -INF};
    const attn_real sinks[3] = {low, (attn_real)1e30, (attn_real)NAN};
    attn_real p[6], sink_weights[3], lse[3];
    test_ok(attn_softmax_sinks_forward(p, sink_weights, lse, scores, sinks, &s));
    const attn_real third = (attn_real)1 / 3;
    test_close("p", p, (attn_real[]){third, third, 0, 0, (attn_real)NAN, 0}, 6, TEST_EPSILON, 0);
    test_close("sink", sink_weights, (attn_real[]){third, 1, (attn_real)NAN}, 3, TEST_EPSILON, 0);
    test_close("lse", lse, (attn_real[]){low, (attn_real)1e30, (attn_real)NAN}, 3, 0, TEST_EPSILON);
}
END_TEST

START_TEST(sinks_refusals) {
    const attn_shape s = {1, 2, 1, 1, 1}, none = {0, 2, 3, 1, 1};
    attn_real x[2] = {3, 4}, y[2] = {5, 6};
    test_refused(attn_softmax_sinks_forward(x, y, NULL, x, NULL, &s), ATTN_ERROR_ARGUMENT);
    test_refused(attn_softmax_sinks_forward(x, NULL, NULL, x, y, &s), ATTN_ERROR_ARGUMENT);
    test_refused(attn_softmax_sinks_forward(NULL, x, NULL, x, y, &s), ATTN_ERROR_ARGUMENT);
    test_refused(attn_softmax_sinks_forward(x, y, NULL, x, y, NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_softmax_sinks_backward(x, y, x, x, NULL, &s), ATTN_ERROR_ARGUMENT);
    test_refused(attn_softmax_sinks_backward(x, NULL, x, x, x, &s), ATTN_ERROR_ARGUMENT);
    test_refused(attn_softmax_sinks_backward(x, y, NULL, x, x, &s), ATTN_ERROR_ARGUMENT);
    ck_assert(x[0] == 3 && x[1] == 4 && y[0] == 5 && y[1] == 6);
    test_ok(attn_softmax_sinks_forward(NULL, NULL, NULL, NULL, NULL, &none));
    test_ok(attn_softmax_sinks_backward(NULL, y, NULL, NULL, NULL, &none));
    ck_assert(y[0] == 0 && y[1] == 0);
}
END_TEST

int main(void) {
    const int count = sizeof shapes / sizeof *shapes;
    Suite *suite = suite_create("softmax");
    TCase *tests = tcase_create("softmax");
    tcase_add_test(tests, forward_by_hand);
    tcase_add_test(tests, backward_by_hand);
    tcase_add_loop_test(tests, equals_plain_loops, 0, count);
    tcase_add_loop_test(tests, in_place_and_threads, 0, count);
    tcase_add_test(tests, fully_masked_row);
    tcase_add_test(tests, equal_scores);
    tcase_add_test(tests, extreme_scores);
    tcase_add_test(tests, not_finite_scores);
    tcase_add_test(tests, refusals_and_empties);
    tcase_add_test(tests, sink_is_a_column);
    tcase_add_test(tests, extreme_sinks);
    tcase_add_test(tests, sinks_refusals);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
