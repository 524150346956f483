/* A build without jansson: files are refused in words, everything else of the header works. */
#include "test.h"

#include <attn/safetensors.h>

START_TEST(files_are_refused_in_words) {
    attn_safetensors file;
    test_refused(attn_safetensors_open(&file, "any"), ATTN_ERROR_UNSUPPORTED);
    ck_assert_ptr_null(file.tensors);
    test_refused(attn_safetensors_save("any", NULL, 0, NULL, 0), ATTN_ERROR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(attn_error_message(), "jansson"));
    attn_safetensors_close(&file);
    ck_assert_str_eq(attn_dtype_name(ATTN_DTYPE_F32), "F32");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("safetensors_absent");
    TCase *tests = tcase_create("safetensors_absent");
    tcase_add_test(tests, files_are_refused_in_words);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
