/*
 * kv_cache.h (internal) - what decoding asks of a cache before it writes.
 */
#ifndef ATTNI_LAYER_KV_CACHE_H
#define ATTNI_LAYER_KV_CACHE_H

#include "base/real.h"

#include <attn/kv_cache.h>

/* The cache was made, for this configuration. */
attn_status attni_kv_cache_check(const attn_kv_cache *cache, const attn_mha_config *config);

/* Sequence `row` can take `count` more tokens. */
attn_status attni_kv_cache_has_room(const attn_kv_cache *cache, size_t row, size_t count);

/* It has taken them. */
void attni_kv_cache_grow(attn_kv_cache *cache, size_t row, size_t count);

/* Keys before its own that a token sees. */
size_t attni_kv_cache_left(const attn_kv_cache *cache);

#endif
