/* The vector Philox on every instruction set of this machine: published answers, and the scalar. */
#include "test.h"

#include "kernels/kernels.h"

/* Known answers of Random123 (kat_vectors): see test_random.c. */
static const struct {
    uint32_t counter[4];
    uint64_t key;
    uint32_t words[4];
} known[] = {
    {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     UINT64_MAX,
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     UINT64_C(0x299f31d0a4093822),
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

enum { MOST = 70 };

static void check_words(const attni_kernels *kernels, const uint32_t counter[4], uint64_t key,
                        size_t n) {
    uint32_t words[4 * MOST + 1];
    words[4 * n] = 0xABCDEF;
    kernels->philox(words, counter, key, n);
    for (size_t i = 0; i < n; i++) {
        const uint32_t place[4] = {counter[0], counter[1] + (uint32_t)i, counter[2], counter[3]};
        uint32_t want[4];
        attn_philox4x32(want, place, key);
        for (size_t w = 0; w < 4; w++)
            ck_assert_msg(words[4 * i + w] == want[w], "%s: word %zu of block %zu of %zu: %08x",
                          attn_isa_name(kernels->isa), w, i, n, words[4 * i + w]);
    }
    ck_assert_uint_eq(words[4 * n], 0xABCDEF);
}

START_TEST(published_answers) {
    const attni_kernels *kernels = attni_kernels_for((attn_isa)_i);
    for (size_t v = 0; kernels && v < sizeof known / sizeof *known; v++) {
        uint32_t words[4];
        kernels->philox(words, known[v].counter, known[v].key, 1);
        for (size_t w = 0; w < 4; w++)
            ck_assert_msg(words[w] == known[v].words[w], "%s: answer %zu, word %zu: %08x",
                          attn_isa_name(kernels->isa), v, w, words[w]);
    }
}
END_TEST

START_TEST(as_the_scalar_one) {
    const attni_kernels *kernels = attni_kernels_for((attn_isa)_i);
    attn_random random = attn_random_seed(99, 0);
    for (size_t n = 0; kernels && n <= MOST; n++) {
        uint32_t counter[4];
        for (size_t w = 0; w < 4; w++)
            counter[w] = attn_random_u32(&random);
        if (n % 3 == 0)
            counter[1] = 0u - (uint32_t)n / 2; /* the counter wraps on the way */
        const uint64_t low = attn_random_u32(&random), high = attn_random_u32(&random);
        check_words(kernels, counter, high << 32 | low, n);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_philox");
    TCase *tcase = tcase_create("philox");
    tcase_add_loop_test(tcase, published_answers, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, as_the_scalar_one, 0, ATTN_ISA_COUNT);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
