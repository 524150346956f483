/*
 * rope.h (internal) - rotation of a tensor whose call is known to be valid.
 */
#ifndef ATTNI_OPS_ROPE_H
#define ATTNI_OPS_ROPE_H

#include "base/real.h"

#include <attn/rope.h>

/* Pairing, base, the positions of len tokens and an even d. `function` begins the messages. */
attn_status attni_rope_check(const char *function, const attn_rope_config *config, size_t len,
                             size_t d_head);

/* Turns every row of x (B,H,len,d) into y, forward or back. */
void attni_rope_rotate(real *y, const real *x, const attn_strides *strides,
                       const attn_rope_config *config, const attn_shape *shape, size_t len,
                       bool back, size_t max_threads);

#endif
