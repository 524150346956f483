/*
 * sdpa_internal.h - what sdpa.c hands to the path that does the work: a call that is valid, with
 * its defaults filled in.
 */
#ifndef ATTNI_SDPA_INTERNAL_H
#define ATTNI_SDPA_INTERNAL_H

#include "ops/band_ops.h"

#include <attn/sdpa.h>

typedef struct attni_sdpa {
    const attn_sdpa_input *input;
    attn_shape shape;   /* of packed sequences: the lengths are those of the longest */
    attn_shape tokens;  /* of the tensors: packed ones have one sample, with all tokens */
    size_t rows, pairs; /* numbers in (B,H,Lq) and (B,H,Lq,Lk): sums over sequences */
    attni_mask mask;    /* its offset is that of a sequence, see head_at in sdpa_head.h */
    double scale;
    size_t threads; /* at least 1 */
    double softcap; /* 0 = off */
    bool alibi;
    double dropout; /* probability; 0 = off, as in every inference */
} attni_sdpa;

/* Whether offsets (batch + 1) rise from 0 to the total; *longest is the length of the longest
 * sequence. `function` and `name` begin the messages. */
attn_status attni_offsets_check(const char *function, const char *name, const size_t *offsets,
                                size_t batch, size_t total, size_t *longest);

/* Whether there is a bias that can have a gradient: its elements do not overlap. The input is known
 * to be valid. */
bool attni_sdpa_has_dbias(const attn_sdpa_input *input);

/* The slope of head h: the caller's or the standard one, 0 without ALiBi. */
static inline real sdpa_slope(const attni_sdpa *call, size_t h) {
    const real *slopes = call->input->alibi_slopes;
    return !call->alibi ? 0 : slopes ? slopes[h] : attni_alibi_slope(h, call->shape.num_heads);
}

/*
 * Both paths carve first, from `arena`, and return at once when it is measuring, so that
 * attn_sdpa_memory counts with the very same code. With saved == NULL a forward is inference. A
 * forward leaves only what `saved` points to in the arena, a backward nothing. A forward fills the
 * arrays of `saved` (weights, or row_max and row_sum); sdpa.c fills the rest of it.
 */
attn_status attni_reference_forward(const attni_sdpa *call, const attn_sdpa_output *output,
                                    attn_arena *arena, attn_sdpa_saved *saved);
attn_status attni_reference_backward(const attni_sdpa *call, const attn_sdpa_saved *saved,
                                     const real *dcontext, const attn_strides *dcontext_strides,
                                     const attn_sdpa_grads *grads, attn_arena *arena);
attn_status attni_fused_forward(const attni_sdpa *call, const attn_sdpa_output *output,
                                attn_arena *arena, attn_sdpa_saved *saved);
attn_status attni_fused_backward(const attni_sdpa *call, const attn_sdpa_saved *saved,
                                 const real *dcontext, const attn_strides *dcontext_strides,
                                 const attn_sdpa_grads *grads, attn_arena *arena);

/* P (Lq,Lk) of one head, or (B,H,Lq,Lk) of all of them, of a fused forward; see attn_sdpa_weights.
 */
attn_status attni_fused_weights(const attni_sdpa *call, const attn_sdpa_saved *saved, size_t head,
                                real *weights, attn_arena *arena);

/* The call that filled `saved`, for `function`, which goes on from there. */
attn_status attni_sdpa_resume(attni_sdpa *call, const char *function,
                              const attn_sdpa_config *config, const attn_sdpa_saved *saved,
                              bool measuring);

#endif
