/*
 * arena.h - a bump allocator over one block.
 *
 * Every activation and every scratch buffer of attn comes out of an arena that the caller owns:
 *
 *     attn_memory need;
 *     attn_mha_memory(&cfg, &in, &need);            // exact, before anything is allocated
 *     attn_arena arena;
 *     attn_arena_create(&arena, need.training);
 *     for (step = 0; step < steps; step++) {
 *         attn_mha_forward(&cfg, &w, &in, y, &arena, &saved);
 *         attn_mha_backward(&cfg, &w, &saved, dy, &dw, &dx, &arena);
 *         attn_arena_reset(&arena);
 *     }
 *     attn_arena_destroy(&arena);
 *
 *     base                                  used             high_water          capacity
 *      |  object  | pad |  object  | pad |   |  free, was used  |   never used       |
 *      64-byte aligned   64-byte aligned
 *
 * Objects start on 64-byte boundaries and never move. Memory is given back in bulk: to a mark
 * (rewind) or all of it (reset). In debug builds with a checker (AddressSanitizer, or Valgrind's
 * headers at build time) a red zone follows each object and freed parts are poisoned.
 *
 * An arena belongs to one thread at a time.
 */
#ifndef ATTN_ARENA_H
#define ATTN_ARENA_H

#include <attn/status.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fields are for reading; change them through the functions. */
typedef struct attn_arena {
    unsigned char *base; /* first byte handed out; NULL when measuring */
    size_t capacity;     /* bytes from base that may be handed out */
    size_t used;         /* bytes handed out, padding included */
    size_t high_water;   /* the most that `used` has been since create or init */
    void *owned;         /* block to free in destroy, or NULL */
    bool measuring;      /* only counts: hands out NULL */
} attn_arena;

/* Bytes of arena that a call needs, for a block that starts on a 64-byte boundary. */
typedef struct attn_memory {
    size_t saved;     /* kept from the forward until the backward */
    size_t training;  /* peak of a forward that saves, then its backward */
    size_t inference; /* peak of a forward with saved == NULL */
} attn_memory;

/* An arena over `capacity` bytes of its own, 64-byte aligned. ATTN_ERROR_MEMORY if the system has
 * none, ATTN_ERROR_OVERFLOW if the size wraps; *arena is then an empty arena that may be destroyed.
 */
ATTN_API attn_status attn_arena_create(attn_arena *arena, size_t capacity);

/* An arena over the caller's `size` bytes at `memory`, which outlive it. Up to 63 bytes are lost
 * where memory is not 64-byte aligned. */
ATTN_API attn_status attn_arena_init(attn_arena *arena, void *memory, size_t size);

/* An arena that hands out NULL and counts, to learn the bytes of a piece of code in advance. */
ATTN_API attn_status attn_arena_init_measuring(attn_arena *arena);

/* Frees the arena's own block, if it has one; the caller's memory is the caller's again (a checker
 * that watches the arena would complain before). Harmless on a zeroed arena. */
ATTN_API void attn_arena_destroy(attn_arena *arena);

/* Hands out count·size bytes, uninitialised, in *object (NULL when measuring). A request of zero
 * bytes succeeds. ATTN_ERROR_MEMORY if they do not fit, ATTN_ERROR_OVERFLOW if the product wraps;
 * the arena is unchanged then and stays usable. */
ATTN_API attn_status attn_arena_alloc(attn_arena *arena, void **object, size_t count, size_t size);

/* A point to come back to: everything handed out after it is given back by attn_arena_rewind. */
ATTN_API size_t attn_arena_mark(const attn_arena *arena);

/* Gives back everything handed out since `mark`. ATTN_ERROR_ARGUMENT for a mark from the future. */
ATTN_API attn_status attn_arena_rewind(attn_arena *arena, size_t mark);

/* Gives back everything; high_water stays. */
ATTN_API void attn_arena_reset(attn_arena *arena);

#ifdef __cplusplus
}
#endif

#endif
