/* Splitting and merging heads: permutations, each the other's backward. */
#include "test.h"
#include "threads.h"

/* (1,2,2·3): two tokens, two heads of width 3. */
START_TEST(split_by_hand) {
    const attn_real x[12] = {0, 1, 2, 10, 11, 12, 3, 4, 5, 13, 14, 15};
    const attn_real want[12] = {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15};
    attn_real heads[12], back[12];
    test_ok(attn_split_heads_forward(heads, x, 1, 2, 2, 3));
    test_close("split", heads, want, 12, 0, 0);
    test_ok(attn_merge_heads_forward(back, heads, 1, 2, 2, 3));
    test_close("merge", back, x, 12, 0, 0);
}
END_TEST

static const size_t shapes[][4] = {{1, 1, 1, 1}, {2, 3, 5, 7}, {3, 17, 2, 64}, {2, 300, 12, 80}};

/* Every element of every shape by its index; backwards undo forwards; any number of threads. */
START_TEST(permutes) {
    const size_t *s = shapes[_i], batch = s[0], len = s[1], num_heads = s[2], d = s[3];
    const size_t n = batch * len * num_heads * d;
    attn_real *x = test_normal(n, 1, 1), *heads = test_poison(n), *back = test_poison(n);
    for (size_t t = 0; t < sizeof test_thread_counts / sizeof *test_thread_counts; t++) {
        test_set_threads(test_thread_counts[t]);
        test_ok(attn_split_heads_forward(heads, x, batch, len, num_heads, d));
        for (size_t e = 0; e < n; e++) {
            size_t c = e % d, token = e / d % len, h = e / d / len % num_heads,
                   b = e / d / len / num_heads;
            attn_real want = x[((b * len + token) * num_heads + h) * d + c];
            if (heads[e] != want)
                ck_abort_msg("shape %d, element %zu: %g, not %g", _i, e, (double)heads[e],
                             (double)want);
        }
        test_ok(attn_split_heads_backward(back, heads, batch, len, num_heads, d));
        ck_assert_mem_eq(back, x, n * sizeof *x);
        test_ok(attn_merge_heads_forward(back, heads, batch, len, num_heads, d));
        ck_assert_mem_eq(back, x, n * sizeof *x);
        test_ok(attn_merge_heads_backward(back, x, batch, len, num_heads, d));
        ck_assert_mem_eq(back, heads, n * sizeof *x);
    }
    free(x);
    free(heads);
    free(back);
}
END_TEST

START_TEST(refuses_what_cannot_be) {
    attn_real x[4] = {0}, y[4] = {7, 7, 7, 7};
    test_refused(attn_split_heads_forward(NULL, x, 1, 2, 1, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_split_heads_backward(y, NULL, 1, 2, 1, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_merge_heads_forward(NULL, x, 1, 2, 1, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_merge_heads_backward(y, NULL, 1, 2, 1, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_split_heads_forward(y, x, SIZE_MAX / 2, 3, 1, 2), ATTN_ERROR_OVERFLOW);
    test_refused(attn_merge_heads_forward(y, x, (size_t)1 << 32, (size_t)1 << 32, 1, 1),
                 ATTN_ERROR_OVERFLOW);
    ck_assert(strstr(attn_error_message(), "attn_merge_heads_forward") != NULL);
    for (size_t n = 0; n < 4; n++)
        ck_assert(y[n] == 7);
}
END_TEST

/* Nothing to do, however large the other sizes. */
START_TEST(empty_succeeds) {
    test_ok(attn_split_heads_forward(NULL, NULL, 0, SIZE_MAX, 3, 2));
    test_ok(attn_split_heads_backward(NULL, NULL, SIZE_MAX, 0, 3, 2));
    test_ok(attn_merge_heads_forward(NULL, NULL, SIZE_MAX, SIZE_MAX, 0, 2));
    test_ok(attn_merge_heads_backward(NULL, NULL, SIZE_MAX, SIZE_MAX, 2, 0));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("heads");
    TCase *tests = tcase_create("heads");
    tcase_add_test(tests, split_by_hand);
    tcase_add_loop_test(tests, permutes, 0, sizeof shapes / sizeof *shapes);
    tcase_add_test(tests, refuses_what_cannot_be);
    tcase_add_test(tests, empty_succeeds);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
