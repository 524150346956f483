/*
 * mha_call.h (internal) - one call of the layer: valid, with its defaults filled in.
 *
 * Everything a public function of the layer refuses is refused here, before anything is written.
 */
#ifndef ATTNI_LAYER_MHA_CALL_H
#define ATTNI_LAYER_MHA_CALL_H

#include "base/real.h"
#include "ops/rope.h"

#include <attn/mha.h>

typedef struct attni_mha {
    attn_shape shape;      /* B, H, Lq, Lk, d, Hkv */
    size_t d_model;        /* D */
    size_t d_inner;        /* H·d */
    size_t d_kv;           /* Hkv·d */
    size_t rows_q, rows_k; /* B·Lq, B·Lk */
    bool self;           /* one input serves as query, key and value: q, k and v lie side by side */
    bool given;          /* keys and values were projected beforehand */
    size_t row_q, row_k; /* reals from row to row of q; of k and v */
    attni_rope_rows rope_q, rope_k; /* pairing ATTN_ROPE_NONE: nothing is turned */
    bool turn_as_one;               /* q and k side by side, at the same positions */
    attn_sdpa_config core;
    bool sinks, learned_slopes; /* parameters that the core reads */
} attni_mha;

/* Sizes and settings; fails where an array of the call could not exist. */
attn_status attni_mha_resolve(attni_mha *call, const attn_mha_config *config,
                              const attn_mha_input *input);

/* The parameters that a call of this configuration reads. */
attn_status attni_mha_check_params(const attni_mha *call, const attn_mha_params *params);

/* The arrays that a forward reads and writes. */
attn_status attni_mha_check_forward(const attni_mha *call, const attn_mha_params *params,
                                    const attn_mha_input *input, const real *y);

/* A forward of this call filled `saved`. */
attn_status attni_mha_check_saved(const attni_mha *call, const attn_mha_saved *saved);

/* The arrays that a backward reads and writes; dparams and dinput may be NULL. */
attn_status attni_mha_check_backward(const attni_mha *call, const attn_mha_params *params,
                                     const attn_mha_input *input, const real *dy,
                                     const attn_mha_params *dparams,
                                     const attn_mha_input_grads *dinput);

#endif
