/*
 * random.h - counter-based random numbers: Philox4x32-10.
 *
 * J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3"
 * (SC 2011). A pure function from (key, counter) to four 32-bit words: nothing is stored, any word
 * can be drawn again, in any order, on any thread.
 */
#ifndef ATTN_RANDOM_H
#define ATTN_RANDOM_H

#include <attn/real.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Four words for a 64-bit key (low word first) and a 128-bit counter (counter[0] lowest). */
ATTN_API void attn_philox4x32(uint32_t words[4], const uint32_t counter[4], uint64_t key);

/* A stream over it for sequential use: `stream` tells independent sequences of one seed apart. */
typedef struct attn_random {
    uint64_t seed, stream, block;
    uint32_t words[4];
    uint32_t next; /* index of the next unused word; 4 = draw a new block */
} attn_random;

ATTN_API attn_random attn_random_seed(uint64_t seed, uint64_t stream);
ATTN_API uint32_t attn_random_u32(attn_random *random);
/* Uniform in [0, n) without bias; n = 0 gives 0. */
ATTN_API uint32_t attn_random_below(attn_random *random, uint32_t n);
/* Uniform in [0, 1), 53 bits. */
ATTN_API double attn_random_uniform(attn_random *random);
/* Standard normal (Box-Muller, one value from two words' worth of uniforms). */
ATTN_API double attn_random_normal(attn_random *random);

#ifdef __cplusplus
}
#endif

#endif
