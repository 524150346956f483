/*
 * rope.h (internal) - rotation of a tensor whose call is known to be valid.
 */
#ifndef ATTNI_OPS_ROPE_H
#define ATTNI_OPS_ROPE_H

#include "base/real.h"

#include <attn/rope.h>

/* The base that a configuration means: 0 = 10000. */
static inline double rope_base(double base) {
    return base == 0 ? 10000 : base;
}

/* Pairing, base, the positions of len tokens and an even d. `function` begins the messages. */
attn_status attni_rope_check(const char *function, const attn_rope_config *config, size_t len,
                             size_t d_head);

/* Rows of sequences laid end to end, and their positions in them. */
typedef struct attni_rope_rows {
    attn_rope_config config; /* position: of the first row of each sequence */
    size_t d_head;
    size_t len;            /* rows of every sequence; or */
    const size_t *offsets; /* sequence s is rows offsets[s] .. offsets[s + 1] - 1; NULL = len */
    size_t sequences;      /* with offsets */
    const size_t *keys;    /* (sequences + 1), or NULL: position counts from where the last row of
                              a sequence stands at the last of keys[s + 1] - keys[s] */
} attni_rope_rows;

/* Turns rows first .. end - 1, `row` reals apart, of `heads` heads side by side, in place; x is the
 * first of them. On the calling thread. */
void attni_rope_turn(real *x, size_t row, size_t heads, size_t first, size_t end,
                     const attni_rope_rows *where, bool back);

/* The same for rows 0 .. count - 1 on several threads. */
void attni_rope_turn_all(real *x, size_t row, size_t heads, size_t count,
                         const attni_rope_rows *where, bool back, size_t max_threads);

/* Turns every row of x (B,H,len,d) into y, forward or back. */
void attni_rope_rotate(real *y, const real *x, const attn_strides *strides,
                       const attn_rope_config *config, const attn_shape *shape, size_t len,
                       bool back, size_t max_threads);

#endif
