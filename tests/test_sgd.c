/* SGD with momentum against a hand-computed run; clipping in and at the edge of the range. */
#include "test.h"

#include <attn/sgd.h>

#include <float.h>

#ifdef ATTN_DOUBLE
#define REAL_MAX DBL_MAX
#define REAL_MIN DBL_MIN
#else
#define REAL_MAX FLT_MAX
#define REAL_MIN FLT_MIN
#endif

/* rate 0.5, momentum 0.5, gradients 1 then 2 then -4 (exact in binary):
 * v = 1, 2.5, -2.75; theta = 8 - .5 = 7.5, 7.5 - 1.25 = 6.25, 6.25 + 1.375 = 7.625 */
START_TEST(three_steps_by_hand) {
    attn_real theta[2] = {8, -8}, velocity[2] = {0, 0};
    const attn_real gradients[3][2] = {{1, -1}, {2, -2}, {-4, 4}};
    const attn_real thetas[3] = {7.5f, 6.25f, 7.625f}, velocities[3] = {1, 2.5f, -2.75f};
    attn_sgd_config config = {.learning_rate = 0.5, .momentum = 0.5};
    for (int step = 0; step < 3; step++) {
        test_ok(attn_sgd_step(theta, velocity, gradients[step], 2, &config));
        ck_assert(theta[0] == thetas[step] && theta[1] == -thetas[step]);
        ck_assert(velocity[0] == velocities[step] && velocity[1] == -velocities[step]);
    }
}
END_TEST

START_TEST(without_momentum_no_velocity_is_needed) {
    attn_real with[3] = {1, 2, 3}, without[3] = {1, 2, 3}, velocity[3] = {9, 9, 9};
    const attn_real gradient[3] = {0.5f, -1, 0.1f};
    attn_sgd_config config = {.learning_rate = 0.25};
    test_ok(attn_sgd_step(with, velocity, gradient, 3, &config));
    test_ok(attn_sgd_step(without, NULL, gradient, 3, &config));
    ck_assert_mem_eq(with, without, sizeof with);
    ck_assert_mem_eq(velocity, gradient, sizeof velocity);
}
END_TEST

START_TEST(settings_out_of_range_change_nothing) {
    static const attn_sgd_config bad[] = {{NAN, 0},   {INFINITY, 0}, {-1, 0},        {1e300, 1},
                                          {0.1, NAN}, {0.1, -0.1},   {0.1, INFINITY}};
    attn_real theta[1] = {1}, velocity[1] = {2};
    const attn_real gradient[1] = {3};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        test_refused(attn_sgd_step(theta, velocity, gradient, 1, &bad[i]), ATTN_ERROR_ARGUMENT);
    attn_sgd_config good = {0.1, 0.9};
    test_refused(attn_sgd_step(theta, NULL, gradient, 1, &good), ATTN_ERROR_ARGUMENT);
    test_refused(attn_sgd_step(theta, velocity, NULL, 1, &good), ATTN_ERROR_ARGUMENT);
    test_refused(attn_sgd_step(NULL, velocity, gradient, 1, &good), ATTN_ERROR_ARGUMENT);
    test_refused(attn_sgd_step(theta, velocity, gradient, 1, NULL), ATTN_ERROR_ARGUMENT);
    ck_assert(theta[0] == 1 && velocity[0] == 2);
    test_ok(attn_sgd_step(NULL, NULL, NULL, 0, &good));
}
END_TEST

/* A quadratic bowl with curvatures 1 and 10: momentum 0.5 at rate 0.1 reaches its bottom. */
START_TEST(it_finds_the_bottom) {
    attn_real theta[2] = {3, -2}, velocity[2] = {0, 0};
    attn_sgd_config config = {0.1, 0.5};
    for (int step = 0; step < 300; step++) {
        const attn_real gradient[2] = {theta[0] - 1, 10 * (theta[1] - 2)};
        test_ok(attn_sgd_step(theta, velocity, gradient, 2, &config));
    }
    test_close("bottom", theta, (attn_real[]){1, 2}, 2, 4 * TEST_EPSILON, 0);
}
END_TEST

START_TEST(clipping_scales_to_the_norm) {
    attn_real g[2] = {3, -4};
    double norm;
    test_ok(attn_clip_gradient(g, 2, 10, &norm));
    ck_assert_double_eq(norm, 5);
    ck_assert(g[0] == 3 && g[1] == -4);
    test_ok(attn_clip_gradient(g, 2, 5, NULL)); /* at the limit: to the bit as it was */
    ck_assert(g[0] == 3 && g[1] == -4);
    test_ok(attn_clip_gradient(g, 2, 2.5, &norm));
    ck_assert_double_eq(norm, 5);
    ck_assert(g[0] == 1.5f && g[1] == -2);
    test_ok(attn_clip_gradient(g, 2, 0, &norm)); /* measures */
    ck_assert_double_eq(norm, 2.5);
    ck_assert(g[0] == 1.5f && g[1] == -2);
    test_ok(attn_clip_gradient(NULL, 0, 1, &norm));
    ck_assert_double_eq(norm, 0);
    attn_real zero[3] = {0};
    test_ok(attn_clip_gradient(zero, 3, 1, &norm));
    ck_assert_double_eq(norm, 0);
    ck_assert(zero[0] == 0);
}
END_TEST

START_TEST(neither_huge_nor_tiny_numbers_leave_the_range) {
    const double sizes[] = {(double)REAL_MAX / 4, (double)REAL_MIN, (double)REAL_MIN / 1024, 1e-30,
                            1e30};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        attn_real g[16];
        for (size_t i = 0; i < 16; i++)
            g[i] = (attn_real)(i % 2 ? -sizes[k] : sizes[k]);
        double one = (double)g[0], norm;
        if (one > (double)REAL_MAX / 8)
            g[1] = g[2] = g[3] = 0; /* 13 elements, norm sqrt(13) times */
        test_ok(attn_clip_gradient(g, 16, 1, &norm));
        double expected = one > (double)REAL_MAX / 8 ? sqrt(13) : 4;
        ck_assert_msg(fabs(norm / one - expected) < 1e-12, "size %g: norm %g", sizes[k], norm);
        double sum = 0;
        for (size_t i = 0; i < 16; i++)
            sum += (double)g[i] * (double)g[i];
        if (norm > 1)
            ck_assert_msg(fabs(sum - 1) < 1e-5, "size %g: clipped to %g", sizes[k], sqrt(sum));
    }
}
END_TEST

START_TEST(a_norm_that_is_not_finite_is_said_and_changes_nothing) {
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < 3; k++) {
        attn_real g[4] = {1, 2, (attn_real)bad[k], 1e4f};
        const attn_real before[4] = {1, 2, (attn_real)bad[k], 1e4f};
        double norm = 7;
        test_refused(attn_clip_gradient(g, 4, 1, &norm), ATTN_ERROR_ARGUMENT);
        ck_assert(!isfinite(norm));
        ck_assert_mem_eq(g, before, sizeof g);
        ck_assert_ptr_nonnull(strstr(attn_error_message(), "gradient[2]"));
    }
    attn_real g[4] = {1, 2, 3, 4};
    test_refused(attn_clip_gradient(g, 4, NAN, NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_clip_gradient(g, 4, -1, NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_clip_gradient(NULL, 4, 1, NULL), ATTN_ERROR_ARGUMENT);
    test_ok(attn_clip_gradient(g, 4, INFINITY, NULL));
    ck_assert(g[3] == 4);
#ifdef ATTN_DOUBLE
    attn_real beyond[2] = {DBL_MAX, DBL_MAX};
    double norm = 7;
    test_refused(attn_clip_gradient(beyond, 2, 1, &norm), ATTN_ERROR_ARGUMENT);
    ck_assert(isinf(norm) && beyond[0] == DBL_MAX);
#endif
}
END_TEST

/* In float, four million equal squares: a float sum would stop growing at 2^24 of them. */
START_TEST(long_sums_keep_their_digits) {
    enum { COUNT = 1 << 22 };
    attn_real *g = malloc(COUNT * sizeof *g);
    ck_assert_ptr_nonnull(g);
    for (size_t i = 0; i < COUNT; i++)
        g[i] = (attn_real)0.1f;
    double norm, expected = 2048 * (double)0.1f;
    test_ok(attn_clip_gradient(g, COUNT, 0, &norm));
    ck_assert_msg(fabs(norm / expected - 1) < 1e-9, "norm %.17g, expected %.17g", norm, expected);
    free(g);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("sgd");
    TCase *tests = tcase_create("sgd");
    tcase_add_test(tests, three_steps_by_hand);
    tcase_add_test(tests, without_momentum_no_velocity_is_needed);
    tcase_add_test(tests, settings_out_of_range_change_nothing);
    tcase_add_test(tests, it_finds_the_bottom);
    tcase_add_test(tests, clipping_scales_to_the_norm);
    tcase_add_test(tests, neither_huge_nor_tiny_numbers_leave_the_range);
    tcase_add_test(tests, a_norm_that_is_not_finite_is_said_and_changes_nothing);
    tcase_add_test(tests, long_sums_keep_their_digits);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
