/* Names of statuses; messages that belong to one thread. */
#include "test.h"

#include "base/fail.h"

#include <pthread.h>

START_TEST(every_status_has_its_name) {
    static const struct {
        attn_status status;
        const char *name;
    } names[] = {
        {ATTN_OK, "ATTN_OK"},
        {ATTN_ERROR_ARGUMENT, "ATTN_ERROR_ARGUMENT"},
        {ATTN_ERROR_SHAPE, "ATTN_ERROR_SHAPE"},
        {ATTN_ERROR_OVERFLOW, "ATTN_ERROR_OVERFLOW"},
        {ATTN_ERROR_MEMORY, "ATTN_ERROR_MEMORY"},
        {ATTN_ERROR_UNSUPPORTED, "ATTN_ERROR_UNSUPPORTED"},
        {ATTN_ERROR_FORMAT, "ATTN_ERROR_FORMAT"},
        {ATTN_ERROR_IO, "ATTN_ERROR_IO"},
        {(attn_status)(ATTN_ERROR_IO + 1), "unknown status"},
        {(attn_status)-1, "unknown status"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_str_eq(attn_status_name(names[i].status), names[i].name);
}
END_TEST

START_TEST(a_message_stays_until_the_next_failure) {
    ck_assert_str_eq(attn_error_message(), "");
    ck_assert_int_eq(attni_fail(ATTN_ERROR_SHAPE, "d_model %d", 65), ATTN_ERROR_SHAPE);
    ck_assert_str_eq(attn_error_message(), "d_model 65");
    attn_arena arena;
    test_ok(attn_arena_create(&arena, 64));
    ck_assert_str_eq(attn_error_message(), "d_model 65");
    void *object;
    test_refused(attn_arena_alloc(&arena, &object, 1000, 1), ATTN_ERROR_MEMORY);
    ck_assert_ptr_nonnull(strstr(attn_error_message(), "arena full"));
    attn_arena_destroy(&arena);
}
END_TEST

START_TEST(a_long_message_is_cut) {
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    attni_fail(ATTN_ERROR_IO, "%s", text);
    size_t length = strlen(attn_error_message());
    ck_assert(length >= 200 && length < sizeof text);
}
END_TEST

static attn_status forward_failure(int *after) {
    ATTNI_TRY(ATTN_OK);
    ATTNI_TRY(attni_fail(ATTN_ERROR_FORMAT, "inner"));
    (*after)++;
    return ATTN_OK;
}

START_TEST(try_passes_failures_on) {
    int after = 0;
    test_refused(forward_failure(&after), ATTN_ERROR_FORMAT);
    ck_assert_int_eq(after, 0);
}
END_TEST

static void *fails_elsewhere(void *saw_empty) {
    *(bool *)saw_empty = attn_error_message()[0] == '\0';
    attni_fail(ATTN_ERROR_IO, "another thread's");
    return NULL;
}

START_TEST(messages_belong_to_a_thread) {
    attni_fail(ATTN_ERROR_IO, "mine");
    pthread_t thread;
    bool saw_empty = false;
    ck_assert_int_eq(pthread_create(&thread, NULL, fails_elsewhere, &saw_empty), 0);
    pthread_join(thread, NULL);
    ck_assert(saw_empty);
    ck_assert_str_eq(attn_error_message(), "mine");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("status");
    TCase *tests = tcase_create("status");
    tcase_add_test(tests, every_status_has_its_name);
    tcase_add_test(tests, a_message_stays_until_the_next_failure);
    tcase_add_test(tests, a_long_message_is_cut);
    tcase_add_test(tests, try_passes_failures_on);
    tcase_add_test(tests, messages_belong_to_a_thread);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
