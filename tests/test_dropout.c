/* Dropout on weights: which are kept, what becomes of them, and how many they are. */
#include "test.h"

static size_t count_of(const attn_shape *s) {
    return s->batch * s->num_heads * s->len_q * s->len_k;
}

/* Weight (b, h, i, j) is word j mod 4 of Philox(seed, (j/4, i, h, b)), kept iff it is at least
 * p·2³², and then divided by 1 - p; in place too. The backward is the same. */
START_TEST(pattern) {
    const attn_shape shapes[] = {
        {1, 1, 1, 1, 1}, {2, 3, 5, 7, 1}, {1, 2, 3, 64, 1}, {3, 1, 40, 130, 1}};
    const double ps[] = {0, 0.25, 0.5, 0.999, 1e-12};
    for (size_t n = 0; n < 4; n++)
        for (size_t m = 0; m < 5; m++) {
            const attn_shape *s = &shapes[n];
            const size_t count = count_of(s);
            const uint64_t seed = UINT64_C(0xFEDCBA9876543210) + n;
            attn_real *x = test_normal(count, 1, n), *y = test_poison(count);
            attn_real *want = test_poison(count), *w = want;
            for (size_t b = 0; b < s->batch; b++)
                for (size_t h = 0; h < s->num_heads; h++)
                    for (size_t i = 0; i < s->len_q; i++)
                        for (size_t j = 0; j < s->len_k; j++, w++) {
                            uint32_t words[4];
                            attn_philox4x32(words,
                                            (uint32_t[]){(uint32_t)(j / 4), (uint32_t)i,
                                                         (uint32_t)h, (uint32_t)b},
                                            seed);
                            *w = words[j % 4] >= ps[m] * 0x1p32
                                     ? (attn_real)((double)x[w - want] / (1 - ps[m]))
                                     : 0;
                        }
            test_ok(attn_dropout_forward(y, x, ps[m], seed, s));
            test_close("y", y, want, count, 0, 4 * TEST_EPSILON);
            test_ok(attn_dropout_backward(y, x, ps[m], seed, s));
            test_close("dx", y, want, count, 0, 4 * TEST_EPSILON);
            test_ok(attn_dropout_forward(x, x, ps[m], seed, s));
            ck_assert_mem_eq(x, y, count * sizeof *x);
            free(x);
            free(y);
            free(want);
        }
}
END_TEST

/* The share that is kept, over all and over each quarter of the words, and no two seeds, samples,
 * heads or queries with one pattern. */
START_TEST(share_kept) {
    const attn_shape s = {2, 2, 512, 512, 1};
    const size_t count = count_of(&s);
    attn_real *x = test_poison(count), *y = test_poison(count);
    for (size_t n = 0; n < count; n++)
        x[n] = 1;
    for (int percent = 10; percent < 100; percent += 20) {
        const double p = percent / 100.0;
        double kept[4] = {0}, sum = 0;
        test_ok(attn_dropout_forward(y, x, p, (uint64_t)percent, &s));
        for (size_t n = 0; n < count; n++) {
            kept[n % 4] += y[n] != 0;
            sum += (double)y[n];
        }
        /* five standard deviations */
        const double quarter = (double)count / 4, slack = 5 * sqrt(p * (1 - p) / quarter);
        for (size_t word = 0; word < 4; word++)
            ck_assert_msg(fabs(kept[word] / quarter - (1 - p)) < slack, "p %g, word %zu: kept %g",
                          p, word, kept[word] / quarter);
        ck_assert(fabs(sum / (double)count - 1) < slack / (1 - p));
    }
    test_ok(attn_dropout_forward(y, x, 0.5, 1, &s));
    for (size_t row = 1; row < 2 * 2 * 512; row++)
        ck_assert_mem_ne(y + row * 512, y, 512 * sizeof *y);
    test_ok(attn_dropout_forward(x, x, 0.5, 2, &s));
    ck_assert_mem_ne(x, y, 512 * sizeof *y);
    free(x);
    free(y);
}
END_TEST

/* Where a weight is dropped, NaN is too. */
START_TEST(dropped_is_zero) {
    const attn_shape s = {1, 1, 1, 64, 1};
    attn_real *x = test_poison(64), ones[64], y[64];
    for (size_t n = 0; n < 64; n++)
        ones[n] = 1;
    test_ok(attn_dropout_forward(y, ones, 0.5, 3, &s));
    test_ok(attn_dropout_forward(x, x, 0.5, 3, &s));
    for (size_t n = 0; n < 64; n++)
        ck_assert(y[n] == 0 ? x[n] == 0 : isnan(x[n]));
    free(x);
}
END_TEST

START_TEST(refusals) {
    const attn_shape s = {1, 1, 1, 2, 1};
    attn_real x[2] = {3, 4};
    const double ps[] = {-0.1, 1, 1.5, NAN, INFINITY, -INFINITY};
    for (size_t n = 0; n < 6; n++) {
        test_refused(attn_dropout_forward(x, x, ps[n], 0, &s), ATTN_ERROR_ARGUMENT);
        test_refused(attn_dropout_backward(x, x, ps[n], 0, &s), ATTN_ERROR_ARGUMENT);
    }
    test_refused(attn_dropout_forward(NULL, x, 0.5, 0, &s), ATTN_ERROR_ARGUMENT);
    test_refused(attn_dropout_backward(x, NULL, 0.5, 0, &s), ATTN_ERROR_ARGUMENT);
    test_refused(attn_dropout_forward(x, x, 0.5, 0, NULL), ATTN_ERROR_ARGUMENT);
    const size_t big = (size_t)1 << 32;
    const attn_shape large[] = {
        {big, 1, 1, 0, 1}, {1, big, 0, 1, 1}, {1, 1, big, 0, 1}, {1, 1, 0, 4 * big, 1}};
    for (size_t n = 0; n < 4; n++)
        test_refused(attn_dropout_forward(x, x, 0.5, 0, &large[n]), ATTN_ERROR_SHAPE);
    ck_assert(x[0] == 3 && x[1] == 4);
    test_ok(attn_dropout_forward(NULL, NULL, 0.5, 0, &(attn_shape){1, 1, 5, 0, 1}));
    test_ok(attn_dropout_forward(NULL, NULL, 0.5, 0, &(attn_shape){0, 1, 5, 3, 1}));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("dropout");
    TCase *tests = tcase_create("dropout");
    tcase_add_test(tests, pattern);
    tcase_add_test(tests, share_kept);
    tcase_add_test(tests, dropped_is_zero);
    tcase_add_test(tests, refusals);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
