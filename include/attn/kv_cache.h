/*
 * kv_cache.h - decoding: a layer that remembers the keys and values of the tokens it has seen.
 *
 *     attn_kv_cache cache;
 *     attn_kv_cache_memory(&cfg, B, capacity, &bytes);     // exact, for an arena of its own
 *     attn_kv_cache_init(&cache, &cfg, B, capacity, NULL, &cache_arena);
 *     attn_mha_decode_memory(&cfg, &cache, prompt, &bytes);
 *     attn_mha_decode(&cfg, &w, &cache, &(attn_decode_input){prompt, x}, y, &arena);
 *     while (...)
 *         attn_mha_decode(&cfg, &w, &cache, &(attn_decode_input){1, x}, y, &arena);
 *
 * Row b of y is what a causal forward (mha.h) over all tokens of sequence b would have at the same
 * place, at the cost of the new tokens alone:
 *
 *     q, k, v of the new tokens         (B,T,D) -> (B,T,H·d), (B,T,Hkv·d), (B,T,Hkv·d)
 *     with rope: q and k turned by their positions, lengths[b] + t
 *     k, v into the cache               (B,Hkv,capacity,d)
 *     O = softmax(scale·q kᵀ) v         over what is written and not later than the query
 *     y = O Woᵀ + bo                    (B,T,H·d) -> (B,T,D)
 *
 * Sequences of a batch have lengths of their own. Each layer of a model has a cache of its own;
 * grouped heads (num_kv_heads) make it H / Hkv times smaller.
 *
 * A window makes the cache a ring: position p lies in slot p mod capacity, and sequences go on for
 * as long as they like in a cache of window + longest chunk - 1 tokens.
 */
#ifndef ATTN_KV_CACHE_H
#define ATTN_KV_CACHE_H

#include <attn/mha.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fields are for reading; change them through the functions, unless you restore what you saved of a
 * cache: then fill key, value, lengths and oldest (0 without a window). What lies in slots that no
 * length covers is never read. */
typedef struct attn_kv_cache {
    attn_mha_config config; /* of the layer whose keys and values these are */
    size_t batch, capacity;
    attn_window window;     /* of the model; zeroed = none */
    size_t *lengths;        /* (B) tokens that sequence b has: the position of its next one */
    size_t *oldest;         /* (B) position of the first token that a ring still holds */
    attn_real *key, *value; /* (B,Hkv,capacity,d); keys are turned, with rope */
} attn_kv_cache;

/* New tokens, borrowed for the call. */
typedef struct attn_decode_input {
    size_t len;             /* T, tokens of a sequence in query and y */
    const attn_real *query; /* (B, T, D) */
    const size_t *counts;   /* (B): only the first counts[b] <= T tokens of sequence b are there, 0
                               for none; NULL = all T */
} attn_decode_input;

/* The arena bytes of a cache, exactly. */
ATTN_API attn_status attn_kv_cache_memory(const attn_mha_config *config, size_t batch,
                                          size_t capacity, size_t *bytes);

/* An empty cache in the arena, which it needs until the last call. `window` (NULL = none) is the
 * sliding window of the model (mask.h); its right side hides nothing, since nobody sees later
 * tokens. A measuring arena counts; such a cache is good for attn_mha_decode_memory alone.
 *
 * Statuses: those of attn_mha_config_check, ATTN_ERROR_ARGUMENT (a missing argument, a capacity of
 * 0), ATTN_ERROR_OVERFLOW, ATTN_ERROR_MEMORY; cache and arena are then unchanged. */
ATTN_API attn_status attn_kv_cache_init(attn_kv_cache *cache, const attn_mha_config *config,
                                        size_t batch, size_t capacity, const attn_window *window,
                                        attn_arena *arena);

/* Empties all sequences. */
ATTN_API attn_status attn_kv_cache_reset(attn_kv_cache *cache);

/* Rolls sequence `row` back to its first `length` tokens. ATTN_ERROR_ARGUMENT, and nothing changes,
 * if there is no such row, if it has fewer tokens, or if a ring no longer holds what the next token
 * would see. */
ATTN_API attn_status attn_kv_cache_truncate(attn_kv_cache *cache, size_t row, size_t length);

/* Tokens of sequence `row`; 0 where there is no such row. */
ATTN_API size_t attn_kv_cache_length(const attn_kv_cache *cache, size_t row);

/* The arena bytes that suffice for any call with at most `len` tokens of each sequence, whatever
 * the lengths; a call with `len` and counts asks for exactly so many. */
ATTN_API attn_status attn_mha_decode_memory(const attn_mha_config *config,
                                            const attn_kv_cache *cache, size_t len, size_t *bytes);

/* Appends the new tokens and writes their rows of y (B, T, D); rows past counts[b] are left alone.
 * It is inference: dropout is off. kernel of the configuration is not used.
 *
 * Statuses: as attn_mha_forward (mha.h), and ATTN_ERROR_MEMORY where a sequence would not fit the
 * cache, ATTN_ERROR_ARGUMENT where config is not the one that the cache was made for (kernel,
 * max_threads, dropout and bias may differ). All are found before anything is written: lengths,
 * contents, y and arena stay as they were. Scratch is given back to the arena. Thread-safe on
 * different caches; the same bits for any number of threads. */
ATTN_API attn_status attn_mha_decode(const attn_mha_config *config, const attn_mha_params *params,
                                     attn_kv_cache *cache, const attn_decode_input *input,
                                     attn_real *y, attn_arena *arena);

#ifdef __cplusplus
}
#endif

#endif
