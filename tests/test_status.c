#include "test.h"

#include <pthread.h>

START_TEST(every_status_has_its_name) {
    static const struct {
        attn_status status;
        const char *name;
    } names[] = {{ATTN_OK, "ATTN_OK"},
                 {ATTN_ERROR_ARGUMENT, "ATTN_ERROR_ARGUMENT"},
                 {ATTN_ERROR_SHAPE, "ATTN_ERROR_SHAPE"},
                 {ATTN_ERROR_OVERFLOW, "ATTN_ERROR_OVERFLOW"},
                 {ATTN_ERROR_MEMORY, "ATTN_ERROR_MEMORY"},
                 {ATTN_ERROR_UNSUPPORTED, "ATTN_ERROR_UNSUPPORTED"},
                 {ATTN_ERROR_FORMAT, "ATTN_ERROR_FORMAT"},
                 {ATTN_ERROR_IO, "ATTN_ERROR_IO"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_str_eq(attn_status_name(names[i].status), names[i].name);
    ck_assert_str_eq(attn_status_name((attn_status)99), "unknown status");
}
END_TEST

static void *message_of_a_new_thread(void *empty) {
    *(bool *)empty = attn_error_message()[0] == '\0';
    (void)attn_arena_create(NULL, 0);
    return NULL;
}

START_TEST(each_thread_has_its_last_failure) {
    attn_arena arena = test_arena(64);
    void *object;
    test_refused(attn_arena_alloc(&arena, &object, 4096, 1), ATTN_ERROR_MEMORY);
    char before[400];
    snprintf(before, sizeof before, "%s", attn_error_message());
    ck_assert_ptr_nonnull(strstr(before, "4096"));

    test_ok(attn_arena_alloc(&arena, &object, 0, 1)); /* a success leaves it alone */
    bool empty = false;
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, message_of_a_new_thread, &empty), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert(empty);
    ck_assert_str_eq(attn_error_message(), before);
    attn_arena_destroy(&arena);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("status");
    TCase *tc = tcase_create("status");
    tcase_add_test(tc, every_status_has_its_name);
    tcase_add_test(tc, each_thread_has_its_last_failure);
    suite_add_tcase(suite, tc);
    return test_main(suite);
}
