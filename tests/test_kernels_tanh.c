/* The vector tanh on every instruction set of this machine, against libm in long double. */
#include "test.h"

#include "kernels/kernels.h"

#include <float.h>

#ifdef ATTN_DOUBLE
#define SMALLEST DBL_MIN
#define DIGITS   DBL_MANT_DIG
#else
#define SMALLEST FLT_MIN
#define DIGITS   FLT_MANT_DIG
#endif

enum { BLOCK = 1000 };

static void check_tanh(attn_real x, attn_real y, attn_isa isa) {
    const long double want = tanhl((long double)x);
    int exponent;
    frexpl(fmaxl(fabsl(want), (long double)SMALLEST), &exponent);
    const long double ulps = fabsl((long double)y - want) / ldexpl(1, exponent - DIGITS);
    ck_assert_msg(ulps <= 4 && signbit(y) == signbit(x) && fabs((double)y) <= 1,
                  "%s: tanh(%.17g) = %.17g, off by %Lg ulp", attn_isa_name(isa), (double)x,
                  (double)y, ulps);
}

static void check_sweep(const attni_kernels *kernels, double from, double to, size_t points) {
    attn_real x[BLOCK], y[BLOCK];
    for (size_t i = 0; i < points; i += BLOCK) {
        for (size_t j = 0; j < BLOCK; j++)
            x[j] = (attn_real)(from + (to - from) * (double)(i + j) / (double)points);
        kernels->tanh(y, x, BLOCK);
        for (size_t j = 0; j < BLOCK; j++)
            check_tanh(x[j], y[j], kernels->isa);
    }
}

START_TEST(sweeps_stay_within_four_ulp) {
    const attni_kernels *kernels = attni_kernels_for((attn_isa)_i);
    if (!kernels)
        return;
    check_sweep(kernels, -25, 25, 400000);
    check_sweep(kernels, -1, 1, 400000);
    check_sweep(kernels, 0.3, 0.4, 100000); /* where n becomes -1 */
    check_sweep(kernels, -1e-4, 1e-4, 10000);
    check_sweep(kernels, -1e-30, 1e-30, 1000);
}
END_TEST

START_TEST(special_values) {
    const attni_kernels *kernels = attni_kernels_for((attn_isa)_i);
    if (!kernels)
        return;
    const attn_real x[] = {
        0, (attn_real)-0.0, -INFINITY, INFINITY, (attn_real)-3e38, (attn_real)3e38, (attn_real)NAN};
    const attn_real want[] = {0, (attn_real)-0.0, -1, 1, -1, 1, (attn_real)NAN};
    attn_real y[7];
    kernels->tanh(y, x, 7);
    for (size_t i = 0; i < 7; i++)
        ck_assert_msg((y[i] == want[i] && !signbit(y[i]) == !signbit(want[i])) ||
                          (isnan(y[i]) && isnan(want[i])),
                      "%s: tanh(%g) = %g", attn_isa_name(kernels->isa), (double)x[i], (double)y[i]);
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
                x[i] = (attn_real)0.03 * (attn_real)i;
                y[i] = -7;
            }
            kernels->tanh(y + offset, x + offset, n);
            for (size_t i = 0; i < MOST + 2; i++)
                if (i >= offset && i < offset + n)
                    check_tanh(x[i], y[i], kernels->isa);
                else
                    ck_assert(y[i] == -7);
        }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_tanh");
    TCase *tcase = tcase_create("tanh");
    tcase_add_loop_test(tcase, sweeps_stay_within_four_ulp, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, special_values, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, any_length_at_any_address, 0, ATTN_ISA_COUNT);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
