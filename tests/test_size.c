/* Sizes that cannot wrap. */
#include "test.h"

#include "base/size.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

START_TEST(products) {
    static const struct {
        size_t a, b, product;
        bool fits;
    } rows[] = {
        {0, SIZE_MAX, 0, true},
        {SIZE_MAX, 0, 0, true},
        {1, SIZE_MAX, SIZE_MAX, true},
        {SIZE_MAX, 1, SIZE_MAX, true},
        {SIZE_MAX / 2, 2, SIZE_MAX - 1, true},
        {SIZE_MAX / 2 + 1, 2, 7, false},
        {2, SIZE_MAX / 2 + 1, 7, false},
        {SIZE_MAX, SIZE_MAX, 7, false},
        {(size_t)1 << (sizeof(size_t) * 4), (size_t)1 << (sizeof(size_t) * 4), 7, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t product = 7;
        ck_assert_msg(size_mul(&product, rows[i].a, rows[i].b) == rows[i].fits &&
                          product == rows[i].product,
                      "%zu * %zu = %zu", rows[i].a, rows[i].b, product);
    }
}
END_TEST

START_TEST(sums) {
    size_t sum = 7;
    ck_assert(size_add(&sum, SIZE_MAX - 8, 8));
    ck_assert_uint_eq(sum, SIZE_MAX);
    ck_assert(!size_add(&sum, SIZE_MAX - 8, 9));
    ck_assert(!size_add(&sum, 1, SIZE_MAX));
    ck_assert_uint_eq(sum, SIZE_MAX);
    ck_assert(size_add(&sum, 0, 0));
    ck_assert_uint_eq(sum, 0);
}
END_TEST

START_TEST(products_of_many) {
    static const struct {
        size_t factors[4], count, product;
        bool fits;
    } rows[] = {
        {{2, 3, 5, 7}, 4, 210, true},
        {{0}, 0, 1, true},
        {{4194305, 4194305, 211106198978564u, 1}, 3, 7, false},
        /* a zero makes nothing of it, wherever it stands */
        {{SIZE_MAX, SIZE_MAX, SIZE_MAX, 0}, 4, 0, true},
        {{0, SIZE_MAX, SIZE_MAX, 2}, 4, 0, true},
        {{SIZE_MAX, 2, 1, 1}, 4, 7, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t product = 7;
        ck_assert_msg(size_product(&product, rows[i].factors, rows[i].count) == rows[i].fits &&
                          product == rows[i].product,
                      "row %zu: %zu", i, product);
    }
}
END_TEST

START_TEST(the_rest) {
    ck_assert_uint_eq(size_min(2, 3), 2);
    ck_assert_uint_eq(size_max(2, 3), 3);
    ck_assert_uint_eq(size_div_up(0, 4), 0);
    ck_assert_uint_eq(size_div_up(8, 4), 2);
    ck_assert_uint_eq(size_div_up(9, 4), 3);
    ck_assert_uint_eq(size_div_up(SIZE_MAX, 2), SIZE_MAX / 2 + 1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("size");
    TCase *tests = tcase_create("size");
    tcase_add_test(tests, products);
    tcase_add_test(tests, sums);
    tcase_add_test(tests, products_of_many);
    tcase_add_test(tests, the_rest);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
