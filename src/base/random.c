#include <attn/random.h>

#include <math.h>

/* Multipliers and Weyl increments: Salmon et al. 2011, Table 2 and section 3.4. */
#define PHILOX_M0 UINT64_C(0xD2511F53)
#define PHILOX_M1 UINT64_C(0xCD9E8D57)
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

void attn_philox4x32(uint32_t words[4], const uint32_t counter[4], uint64_t key) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = PHILOX_M0 * c0, p1 = PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

attn_random attn_random_seed(uint64_t seed, uint64_t stream) {
    return (attn_random){.seed = seed, .stream = stream, .next = 4};
}

uint32_t attn_random_u32(attn_random *random) {
    if (random->next >= 4) {
        uint32_t counter[4] = {(uint32_t)random->block, (uint32_t)(random->block >> 32),
                               (uint32_t)random->stream, (uint32_t)(random->stream >> 32)};
        attn_philox4x32(random->words, counter, random->seed);
        random->block++;
        random->next = 0;
    }
    return random->words[random->next++];
}

uint32_t attn_random_below(attn_random *random, uint32_t n) {
    if (n == 0)
        return 0;
    /* Words below 2^32 mod n would favour small results: draw again. */
    uint32_t word, refuse = (0u - n) % n;
    do
        word = attn_random_u32(random);
    while (word < refuse);
    return word % n;
}

double attn_random_uniform(attn_random *random) {
    uint64_t high = attn_random_u32(random) >> 5, low = attn_random_u32(random) >> 6;
    return (double)(high << 26 | low) * 0x1p-53;
}

double attn_random_normal(attn_random *random) {
    double u = 1.0 - attn_random_uniform(random); /* (0, 1]: its logarithm is finite */
    double v = attn_random_uniform(random);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}
