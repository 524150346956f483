/*
 * model.h - a toy Transformer: the least that must stand around attention layers to learn a task.
 *
 *     attn_model_config cfg = {.vocab = 17, .context = 32, .d_model = 64, .num_heads = 4,
 *                              .num_layers = 1, .bias = true};
 *     attn_model_params w = attn_model_params_view(&cfg, theta); // attn_model_num_params() reals
 *     attn_model_params dw = attn_model_params_view(&cfg, dtheta);
 *     attn_model_params_init(&cfg, theta, seed);
 *     attn_model_input in = {.batch = B, .len = T, .tokens = tokens, .targets = targets};
 *     attn_model_forward(&cfg, &w, &in, &loss, arena, &saved);
 *     attn_model_backward(&cfg, &w, &saved, &dw, arena);          // dtheta += the mean's gradient
 *
 *     x_0     = token embedding + position embedding              (B,T) -> (B,T,D)
 *     x_(l+1) = x_l + attention_l(x_l), causal                    (B,T,D), l = 0 .. N - 1
 *     logits  = x_N Whᵀ + bh                                      (B,T,D) -> (B,T,V)
 *     loss    = mean cross-entropy of logits against targets      one number
 *
 * There is no normalisation and no feed-forward block: what such a model learns, attention learnt.
 */
#ifndef ATTN_MODEL_H
#define ATTN_MODEL_H

#include <attn/cross_entropy.h>
#include <attn/mha.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_model_config {
    size_t vocab;      /* V, tokens are 0 .. V - 1 */
    size_t context;    /* longest sequence, rows of the position table */
    size_t d_model;    /* D */
    size_t num_heads;  /* H */
    size_t d_head;     /* d; 0 = d_model / num_heads, which must then divide */
    size_t num_layers; /* N; 0 is legal: a table of bigrams with positions */
    bool bias;         /* biases in the layers and in the output head */
    bool has_scale;    /* false: scores are scaled by 1/sqrt(d) */
    double scale;
    attn_rope rope;   /* rotary positions in the layers, beside the position embeddings */
    double rope_base; /* 0 = 10000 */
    attn_kernel kernel;
    size_t max_threads; /* 0 = as many as OpenMP would use */
    /* In every layer, as in mha.h: */
    size_t num_kv_heads; /* 0 = num_heads */
    double softcap;
    bool alibi, alibi_learned, sinks;
    double dropout;
    attn_window window; /* beside causality */
} attn_model_config;

/* Pointers into one flat block, in this order. The same type serves parameters, gradients and
 * optimiser moments. */
typedef struct attn_model_params {
    attn_real *token_embedding;    /* E (V, D) */
    attn_real *position_embedding; /* P (context, D) */
    attn_real *layers;             /* N blocks of attn_mha_num_params() reals */
    attn_real *head_weight;        /* Wh (V, D) */
    attn_real *head_bias;          /* bh (V), NULL without biases */
} attn_model_params;

/* Inputs and wishes of one call, all borrowed, unchanged, until the backward. */
typedef struct attn_model_input {
    size_t batch, len;      /* B, and T <= context */
    const int32_t *tokens;  /* (B,T) */
    const int32_t *targets; /* (B,T), -1 = not counted; NULL = no loss (and no backward) */
    attn_real *logits;      /* output, or NULL: (B,T,V) */
    attn_real *weights;     /* output, or NULL: attention weights (B,H,T,T) of one layer */
    size_t weights_layer;   /* the layer meant */
    uint64_t dropout_seed;  /* another one for every step */
} attn_model_input;

/* What the forward kept for the backward, in the arena. */
typedef struct attn_model_saved {
    attn_model_input input;
    attn_real *residual;    /* (N+1,B,T,D): what entered each layer, and what left the last */
    attn_mha_saved *layers; /* N */
    attn_real *logits;      /* (B,T,V) */
} attn_model_saved;

/* Checks a configuration: sizes at least 1 (num_layers may be 0), heads that divide, no overflow.
 */
ATTN_API attn_status attn_model_config_check(const attn_model_config *config);

/* The configuration of one of its layers. */
ATTN_API attn_mha_config attn_model_layer_config(const attn_model_config *config);

/* The dropout seed of one of its layers in a call with dropout_seed `seed`. */
ATTN_API uint64_t attn_model_layer_seed(uint64_t seed, size_t layer);

/* Reals in the flat parameter block; 0 for an invalid configuration. */
ATTN_API size_t attn_model_num_params(const attn_model_config *config);

/* Pointers into `block`. All NULL for an invalid configuration or a NULL block. */
ATTN_API attn_model_params attn_model_params_view(const attn_model_config *config,
                                                  attn_real *block);

/* Pointers into the block of one layer. All NULL where there is no such layer. */
ATTN_API attn_mha_params attn_model_layer_view(const attn_model_config *config,
                                               const attn_model_params *params, size_t layer);

/* Both embeddings normal with deviation 0.1, other weights Xavier-uniform, biases and sinks zero,
 * slopes the standard ones, from Philox(seed). */
ATTN_API attn_status attn_model_params_init(const attn_model_config *config, attn_real *block,
                                            uint64_t seed);

/* The arena bytes of a call like `input`, exactly; array pointers are only compared with NULL. */
ATTN_API attn_status attn_model_memory(const attn_model_config *config,
                                       const attn_model_input *input, attn_memory *memory);

/* *loss is overwritten (zeroed without targets; may be NULL). saved == NULL: inference, nothing
 * stays in the arena and nothing is dropped. Statuses: a token or target out of range
 * ATTN_ERROR_ARGUMENT, a sequence longer than the context ATTN_ERROR_SHAPE, a full arena
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_model_forward(const attn_model_config *config,
                                        const attn_model_params *params,
                                        const attn_model_input *input, attn_loss *loss,
                                        attn_arena *arena, attn_model_saved *saved);

/* Adds the gradient of the mean loss to `dparams`. Scratch is given back; `saved` stays valid until
 * the arena is rewound, so the backward may run again. */
ATTN_API attn_status attn_model_backward(const attn_model_config *config,
                                         const attn_model_params *params,
                                         const attn_model_saved *saved,
                                         const attn_model_params *dparams, attn_arena *arena);

#ifdef __cplusplus
}
#endif

#endif
