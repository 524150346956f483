/* Which instruction set is chosen, by name and by ATTN_ISA. Each test has a process of its own. */
#include "test.h"

#include <attn/isa.h>

static attn_isa best(void) {
    int isa = ATTN_ISA_COUNT - 1;
    while (!attn_isa_available((attn_isa)isa))
        isa--;
    return (attn_isa)isa;
}

START_TEST(each_available_set_can_be_chosen) {
    ck_assert(attn_isa_available(ATTN_ISA_BASELINE));
    for (int isa = 0; isa < ATTN_ISA_COUNT; isa++) {
        attn_isa before = attn_isa_current();
        const char *name = attn_isa_name((attn_isa)isa);
        if (attn_isa_available((attn_isa)isa)) {
            test_ok(attn_isa_select(name));
            ck_assert_int_eq(attn_isa_current(), isa);
        } else {
            test_refused(attn_isa_select(name), ATTN_ERROR_UNSUPPORTED);
            ck_assert_int_eq(attn_isa_current(), before);
            ck_assert_ptr_nonnull(strstr(attn_error_message(), name));
        }
    }
}
END_TEST

START_TEST(unknown_names_leave_the_choice) {
    static const char *const names[] = {"AVX2", "avx", "avx512f", "baseline ", "sse", "1"};
    test_ok(attn_isa_select("baseline"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        test_refused(attn_isa_select(names[i]), ATTN_ERROR_ARGUMENT);
        ck_assert_int_eq(attn_isa_current(), ATTN_ISA_BASELINE);
        ck_assert_ptr_nonnull(strstr(attn_error_message(), names[i]));
    }
}
END_TEST

START_TEST(the_environment_lowers_the_choice) {
    setenv("ATTN_ISA", "baseline", 1);
    ck_assert_int_eq(attn_isa_current(), ATTN_ISA_BASELINE);
    setenv("ATTN_ISA", "", 1);
    test_ok(attn_isa_select(NULL));
    ck_assert_int_eq(attn_isa_current(), best());
    setenv("ATTN_ISA", "baseline", 1);
    test_ok(attn_isa_select(NULL));
    ck_assert_int_eq(attn_isa_current(), ATTN_ISA_BASELINE);
    unsetenv("ATTN_ISA");
    test_ok(attn_isa_select(NULL));
    ck_assert_int_eq(attn_isa_current(), best());
}
END_TEST

/* A program that selects hears of a bad ATTN_ISA; one that does not runs on the best set. */
START_TEST(a_bad_environment_is_reported_or_ignored) {
    setenv("ATTN_ISA", "mmx", 1);
    ck_assert_int_eq(attn_isa_current(), best());
    test_refused(attn_isa_select(NULL), ATTN_ERROR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(attn_error_message(), "'mmx'"));
    ck_assert_int_eq(attn_isa_current(), best());
}
END_TEST

START_TEST(names_and_builds) {
    ck_assert_str_eq(attn_isa_name(ATTN_ISA_BASELINE), "baseline");
    ck_assert_str_eq(attn_isa_name(ATTN_ISA_COUNT), "unknown");
    ck_assert_str_eq(attn_isa_name((attn_isa)-1), "unknown");
    ck_assert(!attn_isa_available(ATTN_ISA_COUNT));
    ck_assert_int_gt((int)strlen(attn_version()), 0);
    ck_assert(strcmp(attn_gemm_name(), "oneDNN") == 0 || strcmp(attn_gemm_name(), "built-in") == 0);
}
END_TEST

/* Neither a wrong answer nor a process that ends, nor one that never comes back. */
START_TEST(the_peak_of_any_number_of_threads) {
    const size_t threads[] = {0, 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        double peak = attn_fma_peak(threads[i]);
        ck_assert(peak > 0 && peak < 1e6);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("isa");
    TCase *tests = tcase_create("isa");
    tcase_add_test(tests, each_available_set_can_be_chosen);
    tcase_add_test(tests, unknown_names_leave_the_choice);
    tcase_add_test(tests, the_environment_lowers_the_choice);
    tcase_add_test(tests, a_bad_environment_is_reported_or_ignored);
    tcase_add_test(tests, names_and_builds);
    tcase_add_test(tests, the_peak_of_any_number_of_threads);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
