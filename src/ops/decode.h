/*
 * decode.h (internal) - new tokens of several sequences, each at its own position, against what is
 * cached of them. The call is known to be valid.
 */
#ifndef ATTNI_OPS_DECODE_H
#define ATTNI_OPS_DECODE_H

#include "kernels/gemm.h"

#include <attn/sdpa.h>

/* Sample b has counts[b] new tokens, packed: its first one is row starts[b] of every array with a
 * row per token. Before them its cache holds lengths[b] tokens. */
typedef struct attni_decode {
    size_t batch, num_heads, num_kv_heads, d_head, capacity;
    size_t most; /* new tokens of a sample */
    const size_t *lengths, *counts, *starts;
    real *key, *value;     /* (B,Hkv,capacity,d); position p lies in slot p mod capacity */
    const real *projected; /* a row per token: q (H,d), k (Hkv,d), v (Hkv,d); q and k turned */
    real *context;         /* a row per token: O (H,d) */
    size_t left;           /* keys before its own that a token sees; SIZE_MAX = all */
    double scale, softcap;
    bool alibi;
    const real *slopes, *sinks; /* (H), or NULL; not there yet where an arena only counts */
    size_t max_threads;         /* 0 = as many as OpenMP would use */
} attni_decode;

/* Keys and values of the new tokens into their slots. */
void attni_decode_write(const attni_decode *call);

/* O of the new tokens, which are in the cache by now. Scratch is given back. A measuring arena
 * counts what a full cache takes, which is the most. */
attn_status attni_decode_attend(const attni_decode *call, attn_arena *arena);

/* The same for long chunks where no position is past the capacity, so that they lie in order. With
 * `together` all samples have as many tokens at the same positions. */
bool attni_decode_is_long(const attni_decode *call);
attn_status attni_decode_attend_long(const attni_decode *call, bool together, attn_arena *arena);

#endif
