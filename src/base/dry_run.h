/*
 * dry_run.h (internal) - a call runs its own code on a measuring arena first, so that it cannot
 * fail half-way, with some of its results written.
 */
#ifndef ATTNI_DRY_RUN_H
#define ATTNI_DRY_RUN_H

#include "base/fail.h"

#include <attn/arena.h>

/* Refuses what the dry run says will not fit. */
static inline attn_status dry_run_fits(const attn_arena *dry, const attn_arena *arena) {
    const size_t left = arena->capacity - arena->used;
    if (dry->high_water > left)
        return attni_fail(ATTN_ERROR_MEMORY, "arena: %zu bytes needed, %zu of %zu left",
                          dry->high_water, left, arena->capacity);
    return ATTN_OK;
}

/* Back to where a call that failed found the arena, its high water included. */
static inline void arena_give_up(attn_arena *arena, size_t used, size_t high_water) {
    (void)attn_arena_rewind(arena, used);
    arena->high_water = high_water;
}

#endif
