#include "test.h"

static attn_isa best(void) {
    attn_isa isa = ATTN_ISA_BASELINE;
    for (int i = 0; i < ATTN_ISA_COUNT; i++)
        if (attn_isa_available((attn_isa)i))
            isa = (attn_isa)i;
    return isa;
}

START_TEST(names_choose) {
    ck_assert(attn_isa_available(ATTN_ISA_BASELINE));
    for (int i = 0; i < ATTN_ISA_COUNT; i++) {
        const char *name = attn_isa_name((attn_isa)i);
        if (attn_isa_available((attn_isa)i)) {
            test_ok(attn_isa_select(name));
            ck_assert_int_eq(attn_isa_current(), i);
        } else {
            attn_isa before = attn_isa_current();
            test_refused(attn_isa_select(name), ATTN_ERROR_UNSUPPORTED);
            ck_assert_int_eq(attn_isa_current(), before);
        }
    }
    ck_assert_str_eq(attn_isa_name(ATTN_ISA_COUNT), "unknown");
    ck_assert(!attn_isa_available(ATTN_ISA_COUNT));
}
END_TEST

START_TEST(an_unknown_name_changes_nothing) {
    test_ok(attn_isa_select("baseline"));
    test_refused(attn_isa_select("avx9"), ATTN_ERROR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(attn_error_message(), "'avx9'"));
    ck_assert_int_eq(attn_isa_current(), ATTN_ISA_BASELINE);
}
END_TEST

START_TEST(the_environment_lowers_the_choice) {
    ck_assert_int_eq(setenv("ATTN_ISA", "baseline", 1), 0);
    test_ok(attn_isa_select(NULL));
    ck_assert_int_eq(attn_isa_current(), ATTN_ISA_BASELINE);
    ck_assert_int_eq(setenv("ATTN_ISA", "", 1), 0);
    test_ok(attn_isa_select(NULL));
    ck_assert_int_eq(attn_isa_current(), best());
    ck_assert_int_eq(setenv("ATTN_ISA", "sse9", 1), 0);
    test_refused(attn_isa_select(NULL), ATTN_ERROR_ARGUMENT);
    ck_assert_int_eq(attn_isa_current(), best());
    ck_assert_int_eq(unsetenv("ATTN_ISA"), 0);
}
END_TEST

START_TEST(the_library_says_what_it_is) {
    ck_assert_int_ge((int)strlen(attn_version()), 5);
    const char *gemm = attn_gemm_name();
    ck_assert(strcmp(gemm, "oneDNN") == 0 || strcmp(gemm, "built-in") == 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("isa");
    TCase *tc = tcase_create("isa");
    tcase_add_test(tc, names_choose);
    tcase_add_test(tc, an_unknown_name_changes_nothing);
    tcase_add_test(tc, the_environment_lowers_the_choice);
    tcase_add_test(tc, the_library_says_what_it_is);
    suite_add_tcase(suite, tc);
    return test_main(suite);
}
