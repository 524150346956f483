/*
 * sdpa.h - scaled dot-product attention on projected queries, keys and values.
 *
 *     S = scale · Q Kᵀ,  softcap, bias, ALiBi (score_terms.h),  masks,
 *     P = softmax(S),  dropout,  O = P V
 *
 *     attn_sdpa_input in = {.shape = {B, H, Lq, Lk, d}, .query = q, .key = k, .value = v,
 *                           .query_strides = attn_strides_bthd(Lq, H, d), ...,
 *                           .mask = {.causal = true}};
 *     attn_sdpa_output out = {.context = o, .context_strides = attn_strides_bthd(Lq, H, d)};
 *     attn_sdpa_forward(&cfg, &in, &out, &arena, &saved);
 *     attn_sdpa_backward(&cfg, &saved, d_o, strides, &grads, &arena);
 *
 * Two paths compute the same thing. The reference path composes the single operations and holds P,
 * (B,H,Lq,Lk), for the backward. The fused path works tile by tile and holds neither: it saves O
 * and, per row, the maximum m and the sum l of the softmax, and computes P again in the backward.
 */
#ifndef ATTN_SDPA_H
#define ATTN_SDPA_H

#include <attn/arena.h>
#include <attn/scores.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attn_kernel {
    ATTN_KERNEL_AUTO = 0,  /* fused, unless it cannot do what the call asks for, as weights */
    ATTN_KERNEL_REFERENCE, /* the textbook: holds the (B,H,Lq,Lk) weights */
    ATTN_KERNEL_FUSED      /* tiles: memory linear in Lq and Lk */
} attn_kernel;

typedef struct attn_sdpa_config {
    bool has_scale; /* false: scale = 1/sqrt(d_head) */
    double scale;   /* finite; zero and negative are legal */
    attn_kernel kernel;
    size_t max_threads; /* 0 = as many as OpenMP would use */
    double softcap;     /* c, finite: s becomes c·tanh(s/c); 0 = off, negative is refused */
    bool alibi;         /* s becomes s - slope_h·|p - j|, p = i + offset as in mask.h */
    double dropout;     /* probability in [0, 1) that a weight is dropped, in a forward that saves;
                           weights, lse and an inference know nothing of it (dropout.h) */
} attn_sdpa_config;

/* Element (b, h, t, c) of a tensor (B,H,T,d) stands at b·batch + h·head + t·token + c·element, in
 * reals. The d numbers of a row are contiguous: `element` must be 1, and `token` at least d where
 * T > 1 (ATTN_ERROR_UNSUPPORTED). A batch or head stride of 0 shares an input among samples or
 * heads; elements of an output must not overlap (ATTN_ERROR_SHAPE). */
typedef struct attn_strides {
    size_t batch, head, token, element;
} attn_strides;

/* Strides of a contiguous (B,T,H,d), as a projection writes it, and of a contiguous (B,H,T,d). */
ATTN_API attn_strides attn_strides_bthd(size_t len, size_t num_heads, size_t d_head);
ATTN_API attn_strides attn_strides_bhtd(size_t len, size_t num_heads, size_t d_head);

/* Everything is borrowed, unchanged, until the backward. */
typedef struct attn_sdpa_input {
    attn_shape shape;
    const attn_real *query; /* (B,H,Lq,d) through query_strides */
    const attn_real *key;   /* (B,Hkv,Lk,d); Hkv = H unless shape.num_kv_heads says otherwise */
    const attn_real *value; /* (B,Hkv,Lk,d) */
    attn_strides query_strides, key_strides, value_strides;
    attn_mask mask;
    const attn_real *bias;         /* added to the score of (b, h, i, j); -inf blocks the pair, no
                                      finite value does unless the sum overflows to -inf, and one
                                      under a mask is not read; or NULL */
    attn_broadcast bias_strides;   /* in reals; stride 0 broadcasts */
    const attn_real *alibi_slopes; /* (H), with config.alibi; NULL = attn_alibi_slopes */
    const attn_real *sinks;        /* (H): one more logit in every row of head h, without a key or
                                      a value and touched by nothing else; or NULL */
    uint64_t dropout_seed;         /* with config.dropout: another one for every call of a step */
    const size_t *offsets_q;       /* (B + 1) each, of packed sequences, see below; or both NULL */
    const size_t *offsets_k;
} attn_sdpa_input;

/*
 * Packed sequences lie end to end, without padding: the tokens of a tensor are those of all B
 * sequences, shape.len_q and shape.len_k of them in all, and sequence b has the queries
 * offsets_q[b] .. offsets_q[b+1] and the keys offsets_k[b] .. offsets_k[b+1]. Offsets rise from 0
 * to the total; a sequence may be empty. Nobody sees another sequence, and the cost is the sum of
 * the sequences'. The batch strides of tensors are not used, and lse is (H, len_q). Everything else
 * counts within each sequence: i and j in masks, bias, positions and dropout, and Lk - Lq.
 * Padding (there is none: ATTN_ERROR_ARGUMENT) and weights (ATTN_ERROR_UNSUPPORTED) are refused.
 */

/* Where results go. context is overwritten; weights and lse are written if they are not NULL. */
typedef struct attn_sdpa_output {
    attn_real *context; /* (B,H,Lq,d) through context_strides; borrowed until the backward too */
    attn_strides context_strides;
    attn_real *weights; /* (B,H,Lq,Lk) contiguous, or NULL */
    attn_real *lse;     /* (B,H,Lq) contiguous, log-sum-exp of each row's scores, or NULL */
} attn_sdpa_output;

/* What the forward kept. The path that ran decides which of the arrays exist. */
typedef struct attn_sdpa_saved {
    attn_sdpa_input input;
    attn_sdpa_output output;
    attn_kernel kernel; /* the path taken: reference or fused */
    double scale;       /* of the forward, as the three below: the backward refuses others */
    double softcap, dropout;
    bool alibi;
    attn_real *weights;      /* reference: P (B,H,Lq,Lk), before dropout */
    attn_real *sink_weights; /* reference, with sinks: of the sink in each row (B,H,Lq) */
    attn_real *row_max;      /* fused: m (B,H,Lq), -inf for a fully masked row */
    attn_real *row_sum;      /* fused: l (B,H,Lq), 0 for a fully masked row */
} attn_sdpa_saved;

/* Gradients, overwritten; each may be NULL. Fully masked rows give 0. key and value, (B,Hkv,Lk,d),
 * sum over the query heads that share them. */
typedef struct attn_sdpa_grads {
    attn_real *query, *key, *value;
    attn_strides query_strides, key_strides, value_strides;
    attn_real *bias; /* through the strides of the input's bias, summed over broadcast dimensions;
                        elements must not overlap */
    attn_real *alibi_slopes; /* (H) */
    attn_real *sinks;        /* (H) */
} attn_sdpa_grads;

/* The arena bytes of a call with this shape, these masks and these wishes; pointers are not read
 * through and may be any address, but NULL means absent. Offsets alone are read: they are sizes. */
ATTN_API attn_status attn_sdpa_memory(const attn_sdpa_config *config, const attn_sdpa_input *input,
                                      const attn_sdpa_output *output, attn_memory *memory);

/* saved == NULL: inference, nothing stays in the arena. Otherwise the arena holds `saved` until it
 * is rewound or reset.
 *
 * Statuses of all of these: ATTN_ERROR_ARGUMENT (a missing array, a value outside its range, a
 * `saved` of another call), ATTN_ERROR_SHAPE (sizes that do not fit together, elements that
 * overlap), ATTN_ERROR_OVERFLOW (a size that wraps), ATTN_ERROR_MEMORY (the arena has too little
 * room left), ATTN_ERROR_UNSUPPORTED (see attn_strides, packed sequences, and the weights on the
 * fused path). All are found before anything is written, and leave arrays, arena and `saved` as
 * they were. Thread-safe on different data; the same bits for any number of threads. */
ATTN_API attn_status attn_sdpa_forward(const attn_sdpa_config *config, const attn_sdpa_input *input,
                                       const attn_sdpa_output *output, attn_arena *arena,
                                       attn_sdpa_saved *saved);

/* dcontext (B,H,Lq,d) through dcontext_strides. Scratch is given back to the arena. */
ATTN_API attn_status attn_sdpa_backward(const attn_sdpa_config *config,
                                        const attn_sdpa_saved *saved, const attn_real *dcontext,
                                        const attn_strides *dcontext_strides,
                                        const attn_sdpa_grads *grads, attn_arena *arena);

/* The number that stands for all heads. */
#define ATTN_ALL_HEADS SIZE_MAX

/* P of a forward that saved, before dropout: (Lq,Lk) of head b·H + h, or (B,H,Lq,Lk) of
 * ATTN_ALL_HEADS. The fused path, which never holds P, computes it again from m and l, so that
 * looking at weights forces nobody onto the reference path. config as for the backward. Of packed
 * sequences one head at a time, with the lengths of its sequence. Scratch is given back. */
ATTN_API attn_status attn_sdpa_weights(const attn_sdpa_config *config, const attn_sdpa_saved *saved,
                                       size_t head, attn_real *weights, attn_arena *arena);

#ifdef __cplusplus
}
#endif

#endif
