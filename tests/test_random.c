/* Philox against its published answers; streams; moments of what is drawn from it. */
#include "test.h"

#include <attn/random.h>

#include <stdint.h>

/* Known answers of the authors' own Random123 library (kat_vectors, philox4x32 with 10 rounds):
 * zeros, ones, and the digits of pi. */
static const struct {
    uint32_t counter[4], key[2], words[4];
} known[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

START_TEST(published_answers) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t words[4];
        attn_philox4x32(words, known[i].counter, (uint64_t)known[i].key[1] << 32 | known[i].key[0]);
        for (int w = 0; w < 4; w++)
            ck_assert_msg(words[w] == known[i].words[w], "vector %zu, word %d: %08x, expected %08x",
                          i, w, words[w], known[i].words[w]);
    }
}
END_TEST

/* A stream is the blocks of its key with counters (block, stream), in order. */
START_TEST(a_stream_is_philox_in_order) {
    const uint64_t seed = UINT64_C(0x123456789ABCDEF0), stream = UINT64_C(0xFEDCBA9876543210);
    attn_random random = attn_random_seed(seed, stream);
    for (uint32_t block = 0; block < 3; block++) {
        uint32_t words[4];
        attn_philox4x32(words, (uint32_t[]){block, 0, (uint32_t)stream, (uint32_t)(stream >> 32)},
                        seed);
        for (int w = 0; w < 4; w++)
            ck_assert_uint_eq(attn_random_u32(&random), words[w]);
    }
    /* Past 2^32 blocks the high word counts on. */
    random = attn_random_seed(seed, stream);
    random.block = UINT64_C(1) << 32;
    uint32_t words[4];
    attn_philox4x32(words, (uint32_t[]){0, 1, (uint32_t)stream, (uint32_t)(stream >> 32)}, seed);
    ck_assert_uint_eq(attn_random_u32(&random), words[0]);
}
END_TEST

START_TEST(seeds_and_streams_differ) {
    attn_random a = attn_random_seed(1, 0), b = attn_random_seed(1, 1), c = attn_random_seed(2, 0);
    attn_random again = attn_random_seed(1, 0);
    int same_stream = 0, same_seed = 0;
    for (int i = 0; i < 1000; i++) {
        uint32_t word = attn_random_u32(&a);
        ck_assert_uint_eq(word, attn_random_u32(&again));
        same_stream += word == attn_random_u32(&b);
        same_seed += word == attn_random_u32(&c);
    }
    ck_assert_int_le(same_stream, 1);
    ck_assert_int_le(same_seed, 1);
}
END_TEST

/* Mean, variance, third and fourth moment about the mean, each within 5 deviations of its
 * estimate. */
static void check_moments(const char *what, double (*draw)(attn_random *), double mean,
                          const double moments[3], const double deviations[4]) {
    enum { DRAWS = 1000000 };
    attn_random random = attn_random_seed(2024, 7);
    double sums[4] = {0};
    for (int i = 0; i < DRAWS; i++) {
        double x = draw(&random) - mean;
        sums[0] += x;
        sums[1] += x * x;
        sums[2] += x * x * x;
        sums[3] += x * x * x * x;
    }
    for (int k = 0; k < 4; k++) {
        double expected = k ? moments[k - 1] : 0, got = sums[k] / DRAWS;
        ck_assert_msg(fabs(got - expected) < 5 * deviations[k] / 1000,
                      "%s: moment %d is %g, expected %g", what, k + 1, got, expected);
    }
}

START_TEST(moments_of_uniform_numbers) {
    const double moments[] = {1.0 / 12, 0, 1.0 / 80};
    const double deviations[] = {0.2887, 0.0745, 0.0472, 0.0167};
    check_moments("uniform", attn_random_uniform, 0.5, moments, deviations);
}
END_TEST

START_TEST(moments_of_normal_numbers) {
    const double moments[] = {1, 0, 3};
    const double deviations[] = {1, 1.4142, 3.873, 9.798};
    check_moments("normal", attn_random_normal, 0, moments, deviations);
}
END_TEST

START_TEST(uniform_numbers_stay_below_one) {
    attn_random random = attn_random_seed(3, 0);
    double least = 1, largest = 0;
    for (int i = 0; i < 1000000; i++) {
        double u = attn_random_uniform(&random);
        if (!(u >= 0 && u < 1))
            ck_abort_msg("draw %d is %.17g", i, u);
        least = fmin(least, u);
        largest = fmax(largest, u);
    }
    ck_assert_double_lt(least, 1e-5);
    ck_assert_double_gt(largest, 1 - 1e-5);
    /* All bits set gives the largest number below 1. */
    random = (attn_random){.words = {UINT32_MAX, UINT32_MAX}};
    ck_assert_double_eq(attn_random_uniform(&random), 1 - 0x1p-53);
    /* And the normal number from the smallest u and v is finite. */
    random = (attn_random){.words = {UINT32_MAX, UINT32_MAX, 0, 0}};
    ck_assert_double_lt(attn_random_normal(&random), 8.6);
}
END_TEST

START_TEST(numbers_below_n_are_evenly_spread) {
    static const uint32_t limits[] = {1, 2, 3, 7, 100};
    attn_random random = attn_random_seed(11, 0);
    for (size_t k = 0; k < 5; k++) {
        enum { DRAWS = 100000 };
        size_t counts[100] = {0};
        for (int i = 0; i < DRAWS; i++) {
            uint32_t word = attn_random_below(&random, limits[k]);
            if (word >= limits[k])
                ck_abort_msg("%u below %u", word, limits[k]);
            counts[word]++;
        }
        double expected = (double)DRAWS / limits[k], chi_square = 0;
        for (uint32_t w = 0; w < limits[k]; w++)
            chi_square += pow((double)counts[w] - expected, 2) / expected;
        double freedom = limits[k] - 1;
        ck_assert_msg(chi_square <= freedom + 5 * sqrt(2 * freedom + 1), "below %u: chi² %g",
                      limits[k], chi_square);
    }
    ck_assert_uint_eq(attn_random_below(&random, 0), 0);
    /* With n = 3·2^30 a plain remainder would favour the lower third twofold. */
    size_t low = 0;
    for (int i = 0; i < 30000; i++)
        low += attn_random_below(&random, 3u << 30) < 1u << 30;
    ck_assert_msg(low > 9500 && low < 10500, "%zu of 30000 in the lower third", low);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("random");
    TCase *tests = tcase_create("random");
    tcase_add_test(tests, published_answers);
    tcase_add_test(tests, a_stream_is_philox_in_order);
    tcase_add_test(tests, seeds_and_streams_differ);
    tcase_add_test(tests, moments_of_uniform_numbers);
    tcase_add_test(tests, moments_of_normal_numbers);
    tcase_add_test(tests, uniform_numbers_stay_below_one);
    tcase_add_test(tests, numbers_below_n_are_evenly_spread);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
