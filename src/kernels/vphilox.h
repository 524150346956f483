/*
 * vphilox.h (internal) - Philox4x32-10 (attn/random.h) for counters that differ in one word.
 *
 * The blocks of attention's dropout have the counters (keys / 4, query, head, sample). Here queries
 * lie in the lanes, and what the lanes have in common is worked out once: head and sample for a
 * whole head, the keys for all its queries, the queries for all their keys. Of the ten rounds that
 * leaves seven and a half.
 *
 *     round:  c0, c1, c2, c3  <-  hi(M1 c2)^c1^k0, lo(M1 c2), hi(M0 c0)^c3^k1, lo(M0 c0)
 *
 *     before round 1    keys           query          head           sample
 *     after round 1     query, head    head           keys, sample   keys
 *     after round 2     keys, head     keys, sample   all            query, head
 *     after round 3     all            all            all            keys, head
 *
 * A word of 32 bits has a lane of 64, whose upper half holds anything: no multiplication reads it.
 */
#ifndef ATTNI_KERNELS_VPHILOX_H
#define ATTNI_KERNELS_VPHILOX_H

#include "kernels/simd.h"

#define PHILOX_M0 UINT64_C(0xD2511F53)
#define PHILOX_M1 UINT64_C(0xCD9E8D57)
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

enum { PHILOX_ROUNDS = 10 };

typedef struct philox_head {
    uint64_t key[PHILOX_ROUNDS][2];
    uint32_t query_xor; /* becomes c0 after round 1, with the query */
    uint32_t c1;        /* after round 1 */
    uint32_t sample;
} philox_head;

/* For four keys: c0 and c1 after round 2, halves of M0 c0 in round 3, what c2 takes in round 2. */
typedef struct philox_keys {
    uint32_t c1, c2_xor;
    uint64_t high, low;
} philox_keys;

/* For as many queries as there are lanes: halves of M0 c0 in round 2. */
typedef struct philox_queries {
    vwide high, low;
} philox_queries;

static inline philox_head philox_for_head(uint64_t seed, uint32_t head, uint32_t sample) {
    philox_head h;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++, k0 += PHILOX_W0, k1 += PHILOX_W1) {
        h.key[round][0] = k0;
        h.key[round][1] = k1;
    }
    const uint64_t p1 = PHILOX_M1 * head;
    h.query_xor = (uint32_t)((p1 >> 32) ^ h.key[0][0]);
    h.c1 = (uint32_t)p1;
    h.sample = sample;
    return h;
}

static inline philox_keys philox_for_keys(const philox_head *h, uint32_t keys) {
    const uint64_t first = PHILOX_M0 * keys;
    const uint32_t c2 = (uint32_t)((first >> 32) ^ h->sample ^ h->key[0][1]);
    const uint64_t second = PHILOX_M1 * c2;
    const uint32_t c0 = (uint32_t)((second >> 32) ^ h->c1 ^ h->key[1][0]);
    const uint64_t third = PHILOX_M0 * c0;
    return (philox_keys){.c1 = (uint32_t)second,
                         .c2_xor = (uint32_t)(first ^ h->key[1][1]),
                         .high = third >> 32,
                         .low = (uint32_t)third};
}

VINLINE philox_queries philox_for_queries(const philox_head *h, vwide queries) {
    const vwide p0 = vwide_multiply(queries ^ vwide_splat(h->query_xor), vwide_splat(PHILOX_M0));
    return (philox_queries){p0 >> 32, p0};
}

/* words[n] = the four words of block n of `count`, in the lower halves. The blocks of one call take
 * turns, since a round waits for its multiplications. */
VINLINE void philox_words(int count, vwide words[][4], const philox_head *h,
                          const philox_keys *keys, const philox_queries *queries) {
    const vwide m0 = vwide_splat(PHILOX_M0), m1 = vwide_splat(PHILOX_M1);
    VEACH (n, count) {
        const vwide c2 = queries[n].high ^ vwide_splat(keys->c2_xor);
        const vwide p1 = vwide_multiply(c2, m1);
        words[n][0] = (p1 >> 32) ^ vwide_splat(keys->c1 ^ h->key[2][0]);
        words[n][1] = p1;
        words[n][2] = queries[n].low ^ vwide_splat(keys->high ^ h->key[2][1]);
        words[n][3] = vwide_splat(keys->low);
    }
    VEACH (round, PHILOX_ROUNDS - 3)
        VEACH (n, count) {
            const vwide p0 = vwide_multiply(words[n][0], m0), p1 = vwide_multiply(words[n][2], m1);
            words[n][0] = (p1 >> 32) ^ words[n][1] ^ vwide_splat(h->key[3 + round][0]);
            words[n][1] = p1;
            words[n][2] = (p0 >> 32) ^ words[n][3] ^ vwide_splat(h->key[3 + round][1]);
            words[n][3] = p0;
        }
}

/* Lanes 0, 1, 2, ... of `real` go in order to the vectors of 64-bit lanes: in float to the even
 * and the odd half, in turn. */
#ifdef ATTN_DOUBLE
enum { PHILOX_HALVES = 1 };
#else
enum { PHILOX_HALVES = 2 };
#endif

/* The numbers first, first + 1, ... of VLEN lanes. */
VINLINE void philox_count(vwide halves[PHILOX_HALVES], uint64_t first) {
    vwide lane = {0};
    for (int i = 0; i < VWIDE_LEN; i++)
        lane[i] = (uint64_t)(i * PHILOX_HALVES);
    VEACH (half, PHILOX_HALVES)
        halves[half] = lane + vwide_splat(first + (uint64_t)half);
}

/* A word for each of VLEN lanes. */
VINLINE vuint philox_join(vwide halves[][4], int word) {
    const vwide even = halves[0][word] & vwide_splat(UINT32_MAX);
#ifdef ATTN_DOUBLE
    return (vuint)even;
#else
    return (vuint)(even | halves[1][word] << 32);
#endif
}

#endif
