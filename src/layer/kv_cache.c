#include "layer/kv_cache.h"

#include "base/dry_run.h"
#include "base/fail.h"
#include "base/size.h"
#include "ops/rope.h"

#include <string.h>

/* The lengths and the two tensors (B,Hkv,capacity,d); NULL pointers when measuring. */
static attn_status carve(attn_kv_cache *cache, size_t kv_heads, size_t d_head, attn_arena *arena) {
    void *lengths, *oldest, *key, *value;
    size_t reals;
    if (!size_product(&reals, (size_t[]){cache->batch, kv_heads, cache->capacity, d_head}, 4))
        return attni_fail(
            ATTN_ERROR_OVERFLOW,
            "cache: batch %zu, kv heads %zu, capacity %zu, d_head %zu: the size wraps",
            cache->batch, kv_heads, cache->capacity, d_head);
    ATTNI_TRY(attn_arena_alloc(arena, &lengths, cache->batch, sizeof(size_t)));
    ATTNI_TRY(attn_arena_alloc(arena, &oldest, cache->batch, sizeof(size_t)));
    ATTNI_TRY(attn_arena_alloc(arena, &key, reals, sizeof(real)));
    ATTNI_TRY(attn_arena_alloc(arena, &value, reals, sizeof(real)));
    cache->lengths = lengths;
    cache->oldest = oldest;
    cache->key = key;
    cache->value = value;
    return ATTN_OK;
}

static void empty(attn_kv_cache *cache) {
    if (cache->batch == 0)
        return;
    memset(cache->lengths, 0, cache->batch * sizeof *cache->lengths);
    memset(cache->oldest, 0, cache->batch * sizeof *cache->oldest);
}

attn_status attn_kv_cache_init(attn_kv_cache *cache, const attn_mha_config *config, size_t batch,
                               size_t capacity, const attn_window *window, attn_arena *arena) {
    if (!cache || !arena)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s is NULL", cache ? "arena" : "cache");
    ATTNI_TRY(attn_mha_config_check(config));
    if (capacity == 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "cache: capacity %zu must be at least 1", capacity);
    attn_kv_cache made = {.config = *config, .batch = batch, .capacity = capacity};
    if (window)
        made.window = *window;
    const size_t mark = attn_arena_mark(arena), high_water = arena->high_water;
    const attn_status status =
        carve(&made, attn_mha_kv_heads(config), attn_mha_d_head(config), arena);
    if (status != ATTN_OK) {
        arena_give_up(arena, mark, high_water);
        return status;
    }
    if (!arena->measuring)
        empty(&made);
    *cache = made;
    return ATTN_OK;
}

attn_status attn_kv_cache_memory(const attn_mha_config *config, size_t batch, size_t capacity,
                                 size_t *bytes) {
    attn_arena arena;
    attn_kv_cache cache;
    if (!bytes)
        return attni_fail(ATTN_ERROR_ARGUMENT, "bytes is NULL");
    ATTNI_TRY(attn_arena_init_measuring(&arena));
    ATTNI_TRY(attn_kv_cache_init(&cache, config, batch, capacity, NULL, &arena));
    *bytes = arena.used;
    return ATTN_OK;
}

static attn_status check_made(const attn_kv_cache *cache) {
    if (!cache)
        return attni_fail(ATTN_ERROR_ARGUMENT, "cache is NULL");
    if (cache->capacity == 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "cache was not made by attn_kv_cache_init");
    return ATTN_OK;
}

/* A row of a cache that has memory. */
static attn_status check_row(const attn_kv_cache *cache, size_t row) {
    ATTNI_TRY(check_made(cache));
    if (row >= cache->batch)
        return attni_fail(ATTN_ERROR_ARGUMENT, "cache: row %zu of a batch of %zu", row,
                          cache->batch);
    if (!cache->lengths || !cache->oldest)
        return attni_fail(ATTN_ERROR_ARGUMENT, "cache was only measured: it has no memory");
    return ATTN_OK;
}

attn_status attn_kv_cache_reset(attn_kv_cache *cache) {
    ATTNI_TRY(check_made(cache));
    if (cache->batch > 0)
        ATTNI_TRY(check_row(cache, 0));
    empty(cache);
    return ATTN_OK;
}

size_t attni_kv_cache_left(const attn_kv_cache *cache) {
    return cache->window.left_on ? cache->window.left : SIZE_MAX;
}

/* The first position that a token at `position` sees. */
static size_t first_seen(const attn_kv_cache *cache, size_t position) {
    const size_t left = attni_kv_cache_left(cache);
    return position > left ? position - left : 0;
}

attn_status attn_kv_cache_truncate(attn_kv_cache *cache, size_t row, size_t length) {
    ATTNI_TRY(check_row(cache, row));
    if (length > cache->lengths[row])
        return attni_fail(ATTN_ERROR_ARGUMENT, "cache: row %zu has %zu tokens, %zu are to stay",
                          row, cache->lengths[row], length);
    if (length > 0 && first_seen(cache, length) < cache->oldest[row])
        return attni_fail(
            ATTN_ERROR_ARGUMENT,
            "cache: a token at position %zu of row %zu sees position %zu, but the ring holds "
            "positions from %zu on",
            length, row, first_seen(cache, length), cache->oldest[row]);
    cache->lengths[row] = length;
    if (length == 0)
        cache->oldest[row] = 0;
    return ATTN_OK;
}

size_t attn_kv_cache_length(const attn_kv_cache *cache, size_t row) {
    return check_row(cache, row) == ATTN_OK ? cache->lengths[row] : 0;
}

static double scale_of(const attn_mha_config *config) {
    return config->has_scale ? config->scale : attn_default_scale(attn_mha_d_head(config));
}

/* Whatever decides what is cached and how it is attended to. */
attn_status attni_kv_cache_check(const attn_kv_cache *cache, const attn_mha_config *config) {
    ATTNI_TRY(check_made(cache));
    const attn_mha_config *was = &cache->config, *is = config;
    const bool turned = is->rope != ATTN_ROPE_NONE;
    const struct {
        const char *name;
        double is, was;
    } settings[] = {
        {"d_model", (double)is->d_model, (double)was->d_model},
        {"num_heads", (double)is->num_heads, (double)was->num_heads},
        {"num_kv_heads", (double)attn_mha_kv_heads(is), (double)attn_mha_kv_heads(was)},
        {"d_head", (double)attn_mha_d_head(is), (double)attn_mha_d_head(was)},
        {"scale", scale_of(is), scale_of(was)},
        {"rope", is->rope, was->rope},
        {"rope_base", turned ? rope_base(is->rope_base) : 0,
         turned ? rope_base(was->rope_base) : 0},
        {"softcap", is->softcap, was->softcap},
        {"alibi", is->alibi, was->alibi},
        {"alibi_learned", is->alibi_learned, was->alibi_learned},
        {"sinks", is->sinks, was->sinks},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (settings[i].is != settings[i].was)
            return attni_fail(ATTN_ERROR_ARGUMENT,
                              "cache belongs to another configuration: its %s is %g, here it is %g",
                              settings[i].name, settings[i].was, settings[i].is);
    return ATTN_OK;
}

/* A cache without a window is full when it is full. A ring may write over what nobody sees any
 * more: the first of the new tokens, at position L, sees back to L - left, and the last one lies
 * count - 1 further. */
attn_status attni_kv_cache_has_room(const attn_kv_cache *cache, size_t row, size_t count) {
    const size_t length = cache->lengths[row], left = attni_kv_cache_left(cache);
    if (count > (size_t)INT64_MAX - size_min(length, INT64_MAX))
        return attni_fail(ATTN_ERROR_OVERFLOW, "cache: row %zu has %zu tokens, %zu more wrap", row,
                          length, count);
    if (length + count > cache->capacity && size_add_capped(left, count) > cache->capacity)
        return attni_fail(ATTN_ERROR_MEMORY,
                          "cache: row %zu has %zu tokens, %zu more exceed its capacity of %zu", row,
                          length, count, cache->capacity);
    return ATTN_OK;
}

void attni_kv_cache_grow(attn_kv_cache *cache, size_t row, size_t count) {
    const size_t length = cache->lengths[row] + count;
    if (length > cache->capacity)
        cache->oldest[row] = size_max(cache->oldest[row], length - cache->capacity);
    cache->lengths[row] = length;
}
