/*
 * mha.h - the multi-head attention layer, forward and backward.
 *
 *     attn_mha_config cfg = {.d_model = 64, .num_heads = 4, .bias = true};
 *     attn_mha_params w = attn_mha_params_view(&cfg, theta);
 *     attn_mha_params dw = attn_mha_params_view(&cfg, dtheta);
 *     attn_mha_params_init(&cfg, theta, seed);
 *     attn_mha_input in = {.batch = B, .len_q = T, .query = x, .mask = {.causal = true}};
 *     attn_mha_saved saved;
 *     attn_mha_forward(&cfg, &w, &in, y, arena, &saved);
 *     attn_mha_backward(&cfg, &w, &saved, dy, &dw, &(attn_mha_input_grads){.query = dx}, arena);
 *
 *     q = x_q Wqᵀ + bq   k = x_k Wkᵀ + bk   v = x_v Wvᵀ + bv      (B,L,D)     -> (B,L,H·d)
 *     split into heads                                            (B,L,H·d)   -> (B,H,L,d)
 *     with rope: every q and k turned by its position (rope.h)    (B,H,L,d)
 *     S = scale·q kᵀ, terms, masks, P = softmax(S), O = P v       (B,H,Lq,d) from (B,H,Lq,Lk)
 *     merge heads                                                 (B,H,Lq,d)  -> (B,Lq,H·d)
 *     y = O Woᵀ + bo                                              (B,Lq,H·d)  -> (B,Lq,D)
 *
 * With num_kv_heads below num_heads, k and v have Hkv heads: (B,Lk,Hkv·d), see scores.h. The terms
 * of a score are softcap, bias and ALiBi (score_terms.h); sinks and dropout are those of sdpa.h.
 *
 * Vaswani et al., "Attention is all you need" (2017), section 3.2.
 */
#ifndef ATTN_MHA_H
#define ATTN_MHA_H

#include <attn/rope.h>
#include <attn/sdpa.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_mha_config {
    size_t d_model;   /* D, width of inputs and output */
    size_t num_heads; /* H */
    size_t d_head;    /* d; 0 = d_model / num_heads, which must then divide */
    bool bias;        /* biases bq, bk, bv, bo in the parameter block */
    bool has_scale;   /* false: scale = 1/sqrt(d) */
    double scale;
    attn_rope rope;   /* rotary positions of queries and keys; d must then be even */
    double rope_base; /* 0 = 10000 */
    attn_kernel kernel;
    size_t max_threads;  /* 0 = as many as OpenMP would use */
    size_t num_kv_heads; /* Hkv, heads of keys and values, which must divide H; 0 = num_heads */
    double softcap;      /* c: s becomes c·tanh(s/c); 0 = off */
    bool alibi;          /* s becomes s - slope_h·|p - j|, by the standard slopes or by */
    bool alibi_learned;  /* those of the parameter block, which then train */
    bool sinks;          /* one more logit in every row of a head, learnt: in the parameter block */
    double dropout; /* probability in [0, 1) that a weight is dropped, in a forward that saves */
} attn_mha_config;

/* Pointers into one flat block, in this order, each array contiguous. The same type serves
 * parameters, gradients and optimiser moments. A NULL bias counts as zero; a NULL matrix is
 * refused, and so are NULL sinks and slopes where the configuration has them. As a gradient, NULL
 * vectors are not wanted. */
typedef struct attn_mha_params {
    attn_real *wq, *wk, *wv; /* wq (H·d, D), wk and wv (Hkv·d, D) */
    attn_real *wo;           /* (D, H·d) */
    attn_real *bq, *bk, *bv; /* bq (H·d), bk and bv (Hkv·d) */
    attn_real *bo;           /* (D) */
    attn_real *sinks;        /* (H), with config.sinks */
    attn_real *alibi_slopes; /* (H), with config.alibi_learned */
} attn_mha_params;

/* Inputs, masks and wishes of one call; all borrowed, unchanged, until the backward. Empty inputs
 * are legal: without a key every row of y is bo. (Cross-attention over no keys still passes
 * pointers that are not NULL, which tell it from self-attention.) */
typedef struct attn_mha_input {
    size_t batch, len_q;
    size_t len_k;           /* cross-attention only; in self-attention 0 or len_q */
    const attn_real *query; /* (B, Lq, D) */
    const attn_real *key;   /* (B, Lk, D); key and value both NULL = self-attention */
    const attn_real *value; /* (B, Lk, D) */
    /* Instead of key and value: (B, Lk, Hkv·d) both, made by attn_mha_keys_forward. */
    const attn_real *projected_key, *projected_value;
    attn_mask mask;
    bool has_rope_position; /* false: rope_position = Lk - Lq, the last query is at the last key */
    int64_t rope_position;  /* of query 0; may be negative */
    int64_t rope_key_position;   /* of key 0 */
    attn_real *weights;          /* output, or NULL: attention weights (B,H,Lq,Lk) */
    attn_real *lse;              /* output, or NULL: log-sum-exp of each row's scores (B,H,Lq) */
    const attn_real *bias;       /* added to the scores, as in sdpa.h; or NULL */
    attn_broadcast bias_strides; /* in reals; stride 0 broadcasts */
    uint64_t dropout_seed;       /* another one for every step and every layer */
    const size_t *offsets_q;     /* (B + 1), of packed sequences, see below; or NULL */
    const size_t *offsets_k;     /* (B + 1), cross-attention only */
} attn_mha_input;

/* Packed sequences lie end to end without padding, (total, D), and nobody sees another sequence
 * (sdpa.h): sequence b is rows offsets[b] .. offsets[b+1] - 1, len_q and len_k are the totals, lse
 * is (H, len_q). Positions count within each sequence: query 0 of each is at rope_position, or as
 * far on as its sequence has more keys than queries. */

/* What the forward kept for the backward, in the arena. In self-attention q, k and v are parts of
 * the rows of one array, (B, T, (H + 2·Hkv)·d): each lies as core.input says, query_strides for q.
 */
typedef struct attn_mha_saved {
    attn_mha_config config; /* of the forward; the backward refuses one that computes otherwise */
    attn_mha_input input;
    const attn_real *q, *k, *v; /* projected queries, keys, values; q and k turned, with rope */
    attn_real *context;         /* O, before the output projection */
    attn_sdpa_saved core;
} attn_mha_saved;

/* Input gradients, overwritten, different arrays; each may be NULL. In self-attention `query` is
 * the whole gradient of the shared input, and key and value must be NULL. `bias` lies as the bias
 * of the input does and sums over what its strides broadcast. Gradients of projected keys and
 * values are added to, since several calls may share those. */
typedef struct attn_mha_input_grads {
    attn_real *query, *key, *value;
    attn_real *bias;
    attn_real *projected_key, *projected_value;
} attn_mha_input_grads;

/* Checks a configuration: sizes at least 1, heads that divide, a finite scale, with rope an even
 * d_head and a base above 0, a softcap that is finite and not negative, a dropout in [0, 1), learnt
 * slopes only with ALiBi, no overflow. */
ATTN_API attn_status attn_mha_config_check(const attn_mha_config *config);

/* num_kv_heads, resolved; 0 for an invalid configuration. */
ATTN_API size_t attn_mha_kv_heads(const attn_mha_config *config);

/* d_head, resolved; 0 for an invalid configuration. */
ATTN_API size_t attn_mha_d_head(const attn_mha_config *config);

/* Reals in the flat parameter block; 0 for an invalid configuration. */
ATTN_API size_t attn_mha_num_params(const attn_mha_config *config);

/* Pointers into `block`. All NULL for an invalid configuration or a NULL block. */
ATTN_API attn_mha_params attn_mha_params_view(const attn_mha_config *config, attn_real *block);

/* Xavier-uniform weights (Glorot and Bengio 2010, equation 16) from Philox(seed), zero biases and
 * sinks, standard slopes. */
ATTN_API attn_status attn_mha_params_init(const attn_mha_config *config, attn_real *block,
                                          uint64_t seed);

/* The arena bytes of a call like `input`, exactly; but for offsets, array pointers are only
 * compared with NULL. */
ATTN_API attn_status attn_mha_memory(const attn_mha_config *config, const attn_mha_input *input,
                                     attn_memory *memory);

/* y (B, Lq, D) is overwritten. saved == NULL: inference, nothing stays in the arena.
 *
 * Statuses of both: ATTN_ERROR_ARGUMENT (a missing array, a value outside its range),
 * ATTN_ERROR_SHAPE (sizes that do not fit together), ATTN_ERROR_OVERFLOW (a size that wraps),
 * ATTN_ERROR_MEMORY (the arena has too little room left; the message names the bytes),
 * ATTN_ERROR_UNSUPPORTED (what kernel fused cannot do: weights, sdpa.h). All are found before
 * anything is written, and leave arrays, arena and `saved` as they were. With a measuring arena the
 * calls only count: arrays may be NULL and none is touched. Thread-safe on different data; the same
 * bits for any number of threads. */
ATTN_API attn_status attn_mha_forward(const attn_mha_config *config, const attn_mha_params *params,
                                      const attn_mha_input *input, attn_real *y, attn_arena *arena,
                                      attn_mha_saved *saved);

/* dy (B, Lq, D). dparams (NULL = not wanted) is added to, dinput (NULL = not wanted) overwritten.
 * Scratch is given back; `saved` stays valid until the arena is rewound, so the backward may run
 * again. */
ATTN_API attn_status attn_mha_backward(const attn_mha_config *config, const attn_mha_params *params,
                                       const attn_mha_saved *saved, const attn_real *dy,
                                       const attn_mha_params *dparams,
                                       const attn_mha_input_grads *dinput, attn_arena *arena);

/* Keys and values projected once for many calls: the output of an encoder to which a decoder
 * attends again and again.
 *
 *     attn_mha_input memory = {.batch = B, .len_k = Lk, .key = z, .value = z};
 *     attn_mha_keys_forward(&cfg, &w, &memory, k, v);
 *     while (...) {
 *         attn_mha_input in = {.batch = B, .len_q = 1, .len_k = Lk, .query = x,
 *                              .projected_key = k, .projected_value = v,
 *                              .mask = {.padding = pad}};
 *         attn_mha_forward(&cfg, &w, &in, y, &arena, NULL);
 *     }
 *
 * gives what calls with .key = z and .value = z give, without their projections. Of `input` batch,
 * len_k, key, value, rope_key_position and offsets_k count; k and v are (B, Lk, Hkv·d), and k is
 * turned, with rope. Statuses as attn_mha_forward; nothing is written where one is not ATTN_OK. */
ATTN_API attn_status attn_mha_keys_forward(const attn_mha_config *config,
                                           const attn_mha_params *params,
                                           const attn_mha_input *input, attn_real *k, attn_real *v);

/* Back from dk and dv, in which the backwards of all those calls gathered their share
 * (dinput.projected_key and .projected_value, zeroed beforehand): wk, wv, bk and bv of dparams are
 * added to, key and value of dinput overwritten, and nothing else of the two; either may be NULL.
 * dk and dv are used up: with rope dk is turned back in place. */
ATTN_API attn_status attn_mha_keys_backward(const attn_mha_config *config,
                                            const attn_mha_params *params,
                                            const attn_mha_input *input, attn_real *dk,
                                            attn_real *dv, const attn_mha_params *dparams,
                                            const attn_mha_input_grads *dinput);

/* The attention weights of a forward that saved, on either path: attn_sdpa_weights. */
ATTN_API attn_status attn_mha_weights(const attn_mha_config *config, const attn_mha_saved *saved,
                                      size_t head, attn_real *weights, attn_arena *arena);

#ifdef __cplusplus
}
#endif

#endif
