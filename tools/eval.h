/*
 * eval.h - a case of attention read from a file (tests/cases/README.md has the format), and its run
 * in the precision of the case.
 */
#ifndef EVAL_H
#define EVAL_H

#include "names64_tools.h"

#include <attn/rope.h>
#include <attn/safetensors.h>
#include <attn/sdpa.h>

/* A valid case: every shape and every setting fits the others. Tensors that are absent are NULL. */
typedef struct eval_case {
    const char *path;
    attn_safetensors file; /* owns all that follows */
    attn_dtype dtype;      /* F32 or F64 */
    attn_shape shape;      /* all set, num_kv_heads too */
    size_t d_model;        /* D; core only: H·d */
    const attn_tensor *query, *key, *value;
    const attn_tensor *wq, *wk, *wv, *wo; /* all, or none: core only */
    const attn_tensor *bq, *bk, *bv, *bo;
    const attn_tensor *padding_mask, *attend_mask, *attn_bias, *sinks, *grad_output;
    attn_broadcast attend_strides, bias_strides;
    bool causal, causal_auto, has_scale, alibi, weights;
    int64_t causal_offset, window_left, window_right; /* windows: -1 = no limit */
    double scale, softcap;
    attn_rope rope;
    double rope_base;
    bool has_rope_position;
    int64_t rope_position, rope_key_position;
    attn_kernel kernel;
} eval_case;

/* Reads and checks a case; otherwise one line on stderr, and TOOL_FAILED. Freed by eval_case_free
 * in either event. */
int eval_case_read(eval_case *c, const char *path);
void eval_case_free(eval_case *c);

/* Runs the case and writes the result; an exit status. */
int eval_run(const eval_case *c, const char *result_path);
int eval64_run(const eval_case *c, const char *result_path);

#endif
