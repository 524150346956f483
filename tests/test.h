/*
 * test.h - what the Check suites share: random arrays, guarded buffers, comparisons that say where.
 */
#ifndef TEST_H
#define TEST_H

#include <attn/attn.h>

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef ATTN_DOUBLE
#define TEST_PRECISION "double"
#define TEST_EPSILON   0x1p-52
#else
#define TEST_PRECISION "float"
#define TEST_EPSILON   0x1p-23
#endif

/* Runs one suite; the program's exit status. */
static inline int test_main(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* n standard normal numbers times `deviation`; freed by the caller. */
static inline attn_real *test_normal(size_t n, double deviation, uint64_t seed) {
    attn_real *x = malloc((n ? n : 1) * sizeof *x);
    ck_assert_ptr_nonnull(x);
    attn_random random = attn_random_seed(seed, 0x7E57);
    for (size_t i = 0; i < n; i++)
        x[i] = (attn_real)(deviation * attn_random_normal(&random));
    return x;
}

/* n reals of NaN, so that an element never written shows. */
static inline attn_real *test_poison(size_t n) {
    attn_real *x = malloc((n ? n : 1) * sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (attn_real)NAN;
    return x;
}

/* Fails with the worst element unless |got - want| <= absolute + relative · max|want| everywhere.
 * `what` names tensor, shape, seed and instruction set. */
static inline void test_close(const char *what, const attn_real *got, const attn_real *want,
                              size_t n, double absolute, double relative) {
    double top = 0, worst = -1;
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(want[i]))
            top = fmax(top, fabs((double)want[i]));
    for (size_t i = 0; i < n; i++) {
        double error = fabs((double)got[i] - (double)want[i]);
        if (got[i] == want[i] || (isnan(got[i]) && isnan(want[i])))
            error = 0;
        else if (!isfinite(error))
            error = INFINITY;
        if (error > worst) {
            worst = error;
            at = i;
        }
    }
    if (worst > absolute + relative * top)
        ck_abort_msg("%s (%s): element %zu is %.17g, expected %.17g, error %.3g, allowed %.3g",
                     what, TEST_PRECISION, at, (double)got[at], (double)want[at], worst,
                     absolute + relative * top);
}

/* An arena for a call of `bytes`, to be destroyed by the caller. What it hands out is NaN, so that
 * nobody gets by with memory that happens to be 0. */
static inline attn_arena test_arena(size_t bytes) {
    attn_arena arena;
    void *all;
    size_t blocks = bytes / 64;
    ck_assert_int_eq(attn_arena_create(&arena, bytes), ATTN_OK);
    while (blocks > 0 && attn_arena_alloc(&arena, &all, blocks, 64) != ATTN_OK)
        blocks--; /* the rest is a checker's red zone */
    if (blocks > 0)
        memset(all, 0xFF, blocks * 64);
    attn_arena_reset(&arena);
    arena.high_water = 0;
    return arena;
}

/* Asserts success and shows the library's own words otherwise. */
#define test_ok(call) ck_assert_msg((call) == ATTN_OK, "%s: %s", #call, attn_error_message())
/* Asserts one status. */
#define test_refused(call, status)                                                             \
    do {                                                                                       \
        attn_status got_ = (call);                                                             \
        ck_assert_msg(got_ == (status), "%s: %s instead of %s", #call, attn_status_name(got_), \
                      attn_status_name(status));                                               \
    } while (0)

#endif
