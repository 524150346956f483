#include "test.h"

/* The known answers that the authors of Philox publish for philox4x32 with ten rounds. */
START_TEST(known_answers) {
    static const struct {
        uint32_t counter[4];
        uint64_t key;
        uint32_t words[4];
    } answers[] = {
        {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         0xffffffffffffffff,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         0x299f31d0a4093822,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        uint32_t words[4];
        attn_philox4x32(words, answers[i].counter, answers[i].key);
        for (int w = 0; w < 4; w++)
            ck_assert_msg(words[w] == answers[i].words[w], "answer %zu, word %d: %08x", i, w,
                          words[w]);
    }
}
END_TEST

START_TEST(seeds_and_streams_are_apart) {
    attn_random a = attn_random_seed(1, 0), same = attn_random_seed(1, 0);
    attn_random stream = attn_random_seed(1, 1), seed = attn_random_seed(2, 0);
    int equal_stream = 0, equal_seed = 0;
    for (int i = 0; i < 1000; i++) {
        uint32_t word = attn_random_u32(&a);
        ck_assert_uint_eq(word, attn_random_u32(&same));
        equal_stream += word == attn_random_u32(&stream);
        equal_seed += word == attn_random_u32(&seed);
    }
    ck_assert_int_eq(equal_stream, 0);
    ck_assert_int_eq(equal_seed, 0);
}
END_TEST

START_TEST(below_stays_below_and_is_even) {
    attn_random random = attn_random_seed(3, 0);
    int counts[6] = {0};
    for (int i = 0; i < 60000; i++) {
        uint32_t x = attn_random_below(&random, 6);
        ck_assert_uint_lt(x, 6);
        counts[x]++;
    }
    for (int i = 0; i < 6; i++) /* 10000 expected, standard deviation 91 */
        ck_assert_msg(abs(counts[i] - 10000) < 500, "%d came %d times", i, counts[i]);
    ck_assert_uint_eq(attn_random_below(&random, 1), 0);
    ck_assert_uint_eq(attn_random_below(&random, 0), 0);
}
END_TEST

/* Mean and deviation of 100,000 draws, within five standard errors. */
static void check_moments(double (*draw)(attn_random *), double mean, double deviation, double low,
                          double high) {
    enum { N = 100000 };
    attn_random random = attn_random_seed(4, 0);
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        double x = draw(&random);
        ck_assert(x >= low && x < high);
        sum += x;
        squares += (x - mean) * (x - mean);
    }
    ck_assert_double_eq_tol(sum / N, mean, 5 * deviation / sqrt(N));
    ck_assert_double_eq_tol(sqrt(squares / N), deviation, 5 * deviation / sqrt(N));
}

START_TEST(uniform_and_normal_have_their_moments) {
    check_moments(attn_random_uniform, 0.5, sqrt(1.0 / 12), 0, 1);
    check_moments(attn_random_normal, 0, 1, -10, 10);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("random");
    TCase *tc = tcase_create("random");
    tcase_add_test(tc, known_answers);
    tcase_add_test(tc, seeds_and_streams_are_apart);
    tcase_add_test(tc, below_stays_below_and_is_even);
    tcase_add_test(tc, uniform_and_normal_have_their_moments);
    suite_add_tcase(suite, tc);
    return test_main(suite);
}
