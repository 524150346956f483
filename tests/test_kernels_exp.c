/* The vector exp on every instruction set of this machine, against libm in long double. */
#include "test.h"

#include "kernels/kernels.h"

#include <float.h>

#ifdef ATTN_DOUBLE
#define LOWEST   -745.2
#define HIGHEST  710.0
#define SMALLEST DBL_MIN
#define DIGITS   DBL_MANT_DIG
#else
#define LOWEST   -104.0
#define HIGHEST  89.0
#define SMALLEST FLT_MIN
#define DIGITS   FLT_MANT_DIG
#endif

enum { BLOCK = 1000 };

/* Asserts that y is exp(x) within 2 ulp, 0 below the normal numbers, +inf above all. */
static void check_exp(attn_real x, attn_real y, attn_isa isa) {
    const long double want = expl((long double)x);
    if (isinf((attn_real)want) || want < (long double)SMALLEST * (1 - 1e-6L)) {
        const attn_real exact = isinf((attn_real)want) ? (attn_real)INFINITY : 0;
        ck_assert_msg(y == exact, "%s: exp(%.17g) = %.17g", attn_isa_name(isa), (double)x,
                      (double)y);
        return;
    }
    int exponent;
    frexpl(want, &exponent);
    const long double ulps = fabsl((long double)y - want) / ldexpl(1, exponent - DIGITS);
    if (want < (long double)SMALLEST && y == 0)
        return;
    ck_assert_msg(ulps <= 2, "%s: exp(%.17g) = %.17g, off by %Lg ulp", attn_isa_name(isa),
                  (double)x, (double)y, ulps);
}

static void check_sweep(const attni_kernels *kernels, double from, double to, size_t points) {
    attn_real x[BLOCK], y[BLOCK];
    for (size_t i = 0; i < points; i += BLOCK) {
        for (size_t j = 0; j < BLOCK; j++)
            x[j] = (attn_real)(from + (to - from) * (double)(i + j) / (double)points);
        kernels->exp(y, x, BLOCK);
        for (size_t j = 0; j < BLOCK; j++)
            check_exp(x[j], y[j], kernels->isa);
    }
}

START_TEST(sweeps_stay_within_two_ulp) {
    const attni_kernels *kernels = attni_kernels_for((attn_isa)_i);
    if (!kernels)
        return;
    check_sweep(kernels, LOWEST, HIGHEST, 1000000);
    check_sweep(kernels, -1, 1, 300000);
    check_sweep(kernels, -1e-5, 1e-5, 10000);
    check_sweep(kernels, LOWEST * 0.845, LOWEST * 0.835, 100000); /* where results get denormal */
    check_sweep(kernels, HIGHEST * 0.995, HIGHEST, 100000);       /* where they overflow */
}
END_TEST

START_TEST(special_values) {
    const attni_kernels *kernels = attni_kernels_for((attn_isa)_i);
    if (!kernels)
        return;
    const attn_real x[] = {
        0, (attn_real)-0.0, -INFINITY, INFINITY, (attn_real)-3e38, (attn_real)3e38, (attn_real)NAN};
    const attn_real want[] = {1, 1, 0, INFINITY, 0, INFINITY, (attn_real)NAN};
    attn_real y[7];
    kernels->exp(y, x, 7);
    for (size_t i = 0; i < 7; i++)
        ck_assert_msg(y[i] == want[i] || (isnan(y[i]) && isnan(want[i])), "%s: exp(%g) = %g",
                      attn_isa_name(kernels->isa), (double)x[i], (double)y[i]);
}
END_TEST

START_TEST(any_length_at_any_address) {
    const attni_kernels *kernels = attni_kernels_for((attn_isa)_i);
    if (!kernels)
        return;
    enum { MOST = 70 };
    attn_real x[MOST + 2], y[MOST + 2];
    for (size_t offset = 0; offset < 2; offset++)
        for (size_t n = 0; n <= MOST; n++) {
            for (size_t i = 0; i < MOST + 2; i++) {
                x[i] = (attn_real)0.01 * (attn_real)i;
                y[i] = -7;
            }
            kernels->exp(y + offset, x + offset, n);
            for (size_t i = 0; i < MOST + 2; i++)
                if (i >= offset && i < offset + n)
                    check_exp(x[i], y[i], kernels->isa);
                else
                    ck_assert(y[i] == -7);
        }
}
END_TEST

START_TEST(tables_name_their_set) {
    ck_assert_ptr_eq(attni_kernels_get(), attni_kernels_for(attn_isa_current()));
    for (int isa = 0; isa < ATTN_ISA_COUNT; isa++) {
        const attni_kernels *kernels = attni_kernels_for((attn_isa)isa);
        if (kernels)
            ck_assert_int_eq(kernels->isa, isa);
    }
    ck_assert_ptr_nonnull(attni_kernels_for(ATTN_ISA_BASELINE));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_exp");
    TCase *tcase = tcase_create("exp");
    tcase_add_loop_test(tcase, sweeps_stay_within_two_ulp, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, special_values, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, any_length_at_any_address, 0, ATTN_ISA_COUNT);
    tcase_add_test(tcase, tables_name_their_set);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
