/*
 * decode.h (internal) - attention of a few new tokens to many cached keys, on one thread.
 *
 *     s_j = scale · q·k_j, softcap, ALiBi     for the keys j that the token may see
 *     m = max s_j,  l = sum of exp(s_j - m),  O = sum of exp(s_j - m) v_j
 *
 * Decoding reads every key and value for the sake of a query or two: it is as fast as memory is. So
 * a block of keys is read once for all the query heads that share them and all the new tokens, and
 * its values right after it; the columns of a head lie in the lanes. (The tiles of fused.h hold
 * queries in the lanes, of which there would be one.)
 *
 * m, l and O of several ranges of keys are added up by whoever cut them (ops/decode.c).
 */
#ifndef ATTNI_KERNELS_DECODE_H
#define ATTNI_KERNELS_DECODE_H

#include "base/real.h"

#include <stddef.h>

/* The query heads of some tokens that share a key-value head, and what is cached of that. Tokens
 * and keys are counted by their positions in the sequence. */
typedef struct attni_decode_head {
    size_t d_head, group, tokens;
    const real *query; /* head g of token t: d reals at t·query_token + g·d */
    size_t query_token;
    const real *key, *value; /* (capacity, d); position p lies in row p mod capacity */
    size_t capacity;
    size_t position;     /* of the first token; token t sees no key past position + t, */
    size_t left;         /* and none more than so many before it */
    real scale, softcap; /* softcap 0 = off */
    const real *slopes;  /* (group), of ALiBi; NULL = off */
    real *max, *sum;     /* (tokens, group): -inf and 0 where no key was seen */
    real *context;       /* (tokens, group, d) */
} attni_decode_head;

#endif
