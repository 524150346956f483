#include "test.h"

#include "ops/cross_entropy.h"

/* The definition, in long double. */
static long double log_sum_exp(const attn_real *s, size_t n) {
    long double top = s[0], sum = 0;
    for (size_t j = 1; j < n; j++)
        if (s[j] > top)
            top = s[j];
    for (size_t j = 0; j < n; j++)
        sum += expl((long double)s[j] - top);
    return top + logl(sum);
}

static const struct shape {
    size_t rows, vocab;
    double deviation;
} shapes[] = {{1, 1, 1},     {1, 2, 1},    {7, 17, 1},    {64, 5, 30},
              {65, 255, 10}, {3, 257, 50}, {130, 600, 4}, {1, 513, 1000}};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

/* Random targets, every third one not counted. */
static int32_t *draw_targets(const struct shape *s) {
    int32_t *targets = malloc(s->rows * sizeof *targets);
    attn_random random = attn_random_seed(s->rows, s->vocab);
    for (size_t i = 0; i < s->rows; i++)
        targets[i] = i % 3 == 2 ? -1 : (int32_t)attn_random_below(&random, (uint32_t)s->vocab);
    return targets;
}

START_TEST(forward_and_backward_are_the_definition) {
    const struct shape *s = &shapes[_i];
    size_t n = s->rows * s->vocab, counted = 0, correct = 0;
    attn_real *logits = test_normal(n, s->deviation, 11), *want = test_poison(n),
              *got = test_poison(n);
    int32_t *targets = draw_targets(s);
    const double dloss = -1.75;
    long double mean = 0;
    for (size_t i = 0; i < s->rows; i++)
        counted += targets[i] >= 0;
    for (size_t i = 0; i < s->rows; i++) {
        const attn_real *row = logits + i * s->vocab;
        long double lse = log_sum_exp(row, s->vocab);
        size_t top = 0;
        for (size_t j = 0; j < s->vocab; j++) {
            top = row[j] > row[top] ? j : top;
            long double p = expl((long double)row[j] - lse) - ((int32_t)j == targets[i]);
            want[i * s->vocab + j] =
                (attn_real)(targets[i] < 0 ? 0 : p * (long double)dloss / (long double)counted);
        }
        if (targets[i] < 0)
            continue;
        mean += (lse - (long double)row[targets[i]]) / (long double)counted;
        correct += (int32_t)top == targets[i];
    }
    char what[80];
    snprintf(what, sizeof what, "dlogits (%zu,%zu), deviation %g", s->rows, s->vocab, s->deviation);

    attn_loss loss = {-1, 0, 0};
    test_ok(attn_cross_entropy_forward(&loss, logits, targets, s->rows, s->vocab));
    ck_assert_msg(fabs(loss.mean - (double)mean) <= 16 * TEST_EPSILON * fmax(1, (double)mean),
                  "%s: loss %.17g, expected %.17g", what, loss.mean, (double)mean);
    ck_assert_uint_eq(loss.counted, counted);
    ck_assert_uint_eq(loss.correct, correct);
    test_ok(attn_cross_entropy_backward(got, dloss, logits, targets, s->rows, s->vocab));
    test_close(what, got, want, n, 0, 32 * TEST_EPSILON);

    test_ok(attn_cross_entropy_backward(logits, dloss, logits, targets, s->rows, s->vocab));
    ck_assert_msg(memcmp(logits, got, n * sizeof *got) == 0, "%s: in place differs", what);
    free(logits);
    free(want);
    free(got);
    free(targets);
}
END_TEST

START_TEST(logits_of_a_thousand_are_right) {
    const attn_real logits[8] = {1000, -1000, 1000, -1000, 1000, 1000, -1000, -1000};
    const int32_t targets[4] = {0, 0, 1, 0}, one[1] = {1};
    attn_real dlogits[8];
    attn_loss loss;
    /* rows: right (0), right (0), a tie (ln 2), a tie (ln 2) */
    test_ok(attn_cross_entropy_forward(&loss, logits, targets, 4, 2));
    ck_assert_double_eq_tol(loss.mean, 2 * log(2) / 4, TEST_EPSILON);
    ck_assert_uint_eq(loss.correct, 3); /* of two equal logits the first one is the answer */
    test_ok(attn_cross_entropy_backward(dlogits, 1, logits, targets, 4, 2));
    const attn_real want[8] = {0, 0, 0, 0, .125f, -.125f, -.125f, .125f};
    test_close("dlogits", dlogits, want, 8, TEST_EPSILON, 0);
    /* as wrong as can be: the loss is the distance */
    test_ok(attn_cross_entropy_forward(&loss, logits, one, 1, 2));
    ck_assert_double_eq(loss.mean, 2000);
    ck_assert_uint_eq(loss.correct, 0);
}
END_TEST

START_TEST(rows_that_do_not_count) {
    const attn_real nan = (attn_real)NAN;
    attn_real logits[6] = {1, 2, nan, nan, 3, 3}, dlogits[6] = {7, 7, 7, 7, 7, 7};
    const int32_t none[3] = {-1, -1, -1}, last[3] = {-1, -1, 1};
    attn_loss loss = {9, 9, 9};
    test_ok(attn_cross_entropy_forward(&loss, logits, none, 3, 2));
    ck_assert(loss.mean == 0 && loss.counted == 0 && loss.correct == 0);
    test_ok(attn_cross_entropy_backward(dlogits, 1, logits, none, 3, 2));
    for (int i = 0; i < 6; i++)
        ck_assert(dlogits[i] == 0);
    /* the NaN of a row that does not count stays there */
    test_ok(attn_cross_entropy_forward(&loss, logits, last, 3, 2));
    ck_assert_double_eq_tol(loss.mean, log(2), TEST_EPSILON);
    test_ok(attn_cross_entropy_backward(dlogits, 1, logits, last, 3, 2));
    ck_assert(dlogits[2] == 0 && dlogits[3] == 0 && fabs((double)dlogits[5] + .5) < 1e-6);
    /* and the NaN of a row that counts shows */
    const int32_t middle[3] = {-1, 0, -1};
    test_ok(attn_cross_entropy_forward(&loss, logits, middle, 3, 2));
    ck_assert(isnan(loss.mean) && loss.correct == 0 && loss.counted == 1);
    test_ok(attn_cross_entropy_forward(&loss, NULL, NULL, 0, 2));
    ck_assert(loss.mean == 0 && loss.counted == 0);
}
END_TEST

START_TEST(threads_change_no_bit) {
    const struct shape s = {700, 256, 3};
    size_t n = s.rows * s.vocab;
    attn_real *logits = test_normal(n, s.deviation, 5), *one = test_poison(n),
              *four = test_poison(n);
    int32_t *targets = draw_targets(&s);
    attn_loss with_one, with_four;
    attni_cross_entropy_forward(&with_one, logits, targets, s.rows, s.vocab, 1);
    attni_cross_entropy_forward(&with_four, logits, targets, s.rows, s.vocab, 4);
    ck_assert(memcmp(&with_one.mean, &with_four.mean, sizeof with_one.mean) == 0);
    attni_cross_entropy_backward(one, 1, logits, targets, s.rows, s.vocab, 1);
    attni_cross_entropy_backward(four, 1, logits, targets, s.rows, s.vocab, 4);
    ck_assert(memcmp(one, four, n * sizeof *one) == 0);
    free(logits);
    free(one);
    free(four);
    free(targets);
}
END_TEST

START_TEST(bad_calls_are_refused_and_change_nothing) {
    const attn_real logits[4] = {1, 2, 3, 4};
    attn_real dlogits[4] = {9, 9, 9, 9};
    attn_loss loss = {5, 5, 5};
    const int32_t below[2] = {0, -2}, beyond[2] = {2, 0}, good[2] = {0, 1};
    test_refused(attn_cross_entropy_forward(&loss, logits, below, 2, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_cross_entropy_forward(&loss, logits, beyond, 2, 2), ATTN_ERROR_ARGUMENT);
    ck_assert_str_eq(attn_error_message(), "attn_cross_entropy_forward: targets[0] is 2, neither "
                                           "-1 nor in a vocabulary of 2");
    test_refused(attn_cross_entropy_backward(dlogits, 1, logits, beyond, 2, 2),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_cross_entropy_forward(&loss, NULL, good, 2, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_cross_entropy_forward(NULL, logits, good, 2, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_cross_entropy_forward(&loss, logits, NULL, 2, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_cross_entropy_forward(&loss, logits, good, 2, 0), ATTN_ERROR_ARGUMENT);
    test_refused(attn_cross_entropy_forward(&loss, logits, good, SIZE_MAX / 2, 4),
                 ATTN_ERROR_OVERFLOW);
    ck_assert(loss.mean == 5 && loss.counted == 5 && loss.correct == 5);
    for (int i = 0; i < 4; i++)
        ck_assert(dlogits[i] == 9);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cross-entropy (" TEST_PRECISION ")");
    TCase *tcase = tcase_create("cross-entropy");
    tcase_add_loop_test(tcase, forward_and_backward_are_the_definition, 0, NUM_SHAPES);
    tcase_add_test(tcase, logits_of_a_thousand_are_right);
    tcase_add_test(tcase, rows_that_do_not_count);
    tcase_add_test(tcase, threads_change_no_bit);
    tcase_add_test(tcase, bad_calls_are_refused_and_change_nothing);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
