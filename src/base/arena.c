#if defined(__linux__)
#define _DEFAULT_SOURCE /* madvise */
#endif
#include <attn/arena.h>

#include "base/fail.h"
#include "base/red_zone.h"
#include "base/size.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

enum { ALIGNMENT = 64 };

/* Bytes that an object occupies: its own, a red zone, and padding to the next boundary. */
static bool footprint(size_t *bytes, size_t count, size_t size) {
    size_t n;
    if (!size_mul(&n, count, size) || !size_add(&n, n, RED_ZONE) || !size_add(&n, n, ALIGNMENT - 1))
        return false;
    *bytes = n & ~(size_t)(ALIGNMENT - 1);
    return true;
}

/* Matrices with long rows touch a page per row: pages of 2 MiB spare the processor a tenth of its
 * time there. Only a hint, given for whole pages within the block. */
static void prefer_huge_pages(void *block, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t huge = (uintptr_t)1 << 21, start = ((uintptr_t)block + huge - 1) & ~(huge - 1);
    const uintptr_t end = ((uintptr_t)block + bytes) & ~(huge - 1);
    if (start < end)
        (void)madvise((void *)start, end - start, MADV_HUGEPAGE);
#else
    (void)block;
    (void)bytes;
#endif
}

attn_status attn_arena_create(attn_arena *arena, size_t capacity) {
    if (!arena)
        return attni_fail(ATTN_ERROR_ARGUMENT, "arena is NULL");
    memset(arena, 0, sizeof *arena);
    size_t padded;
    if (!size_add(&padded, capacity, ALIGNMENT - 1))
        return attni_fail(ATTN_ERROR_OVERFLOW, "arena of %zu bytes: the size wraps", capacity);
    void *block = malloc(padded ? padded : 1);
    if (!block)
        return attni_fail(ATTN_ERROR_MEMORY, "arena of %zu bytes: the system has no memory",
                          capacity);
    prefer_huge_pages(block, padded);
    uintptr_t past = (uintptr_t)block % ALIGNMENT;
    arena->owned = block;
    arena->base = (unsigned char *)block + (past ? ALIGNMENT - past : 0);
    arena->capacity = capacity;
    red_zone_close(arena->base, capacity);
    return ATTN_OK;
}

attn_status attn_arena_init(attn_arena *arena, void *memory, size_t size) {
    if (!arena || (!memory && size > 0))
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s is NULL", arena ? "memory" : "arena");
    memset(arena, 0, sizeof *arena);
    uintptr_t past = (uintptr_t)memory % ALIGNMENT;
    size_t skip = past ? ALIGNMENT - past : 0;
    if (skip > size)
        skip = size;
    arena->base = memory ? (unsigned char *)memory + skip : NULL;
    arena->capacity = size - skip;
    if (memory)
        red_zone_close(arena->base, arena->capacity);
    return ATTN_OK;
}

attn_status attn_arena_init_measuring(attn_arena *arena) {
    if (!arena)
        return attni_fail(ATTN_ERROR_ARGUMENT, "arena is NULL");
    memset(arena, 0, sizeof *arena);
    arena->capacity = SIZE_MAX;
    arena->measuring = true;
    return ATTN_OK;
}

void attn_arena_destroy(attn_arena *arena) {
    if (!arena)
        return;
    if (arena->base)
        red_zone_open(arena->base, arena->capacity);
    free(arena->owned);
    memset(arena, 0, sizeof *arena);
}

attn_status attn_arena_alloc(attn_arena *arena, void **object, size_t count, size_t size) {
    if (!arena || !object)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s is NULL", arena ? "object" : "arena");
    size_t bytes, end;
    if (!footprint(&bytes, count, size) || !size_add(&end, arena->used, bytes))
        return attni_fail(ATTN_ERROR_OVERFLOW, "%zu objects of %zu bytes: the size wraps", count,
                          size);
    if (end > arena->capacity)
        return attni_fail(ATTN_ERROR_MEMORY, "arena full: %zu bytes wanted, %zu of %zu in use",
                          bytes, arena->used, arena->capacity);
    *object = NULL;
    if (!arena->measuring && arena->base) {
        *object = arena->base + arena->used;
        red_zone_open(*object, count * size);
    }
    arena->used = end;
    arena->high_water = size_max(arena->high_water, end);
    return ATTN_OK;
}

size_t attn_arena_mark(const attn_arena *arena) {
    return arena ? arena->used : 0;
}

attn_status attn_arena_rewind(attn_arena *arena, size_t mark) {
    if (!arena)
        return attni_fail(ATTN_ERROR_ARGUMENT, "arena is NULL");
    if (mark > arena->used)
        return attni_fail(ATTN_ERROR_ARGUMENT, "rewind to %zu, but only %zu bytes are in use", mark,
                          arena->used);
    if (arena->base)
        red_zone_close(arena->base + mark, arena->used - mark);
    arena->used = mark;
    return ATTN_OK;
}

void attn_arena_reset(attn_arena *arena) {
    if (arena)
        (void)attn_arena_rewind(arena, 0);
}
