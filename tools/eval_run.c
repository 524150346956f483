/* Runs a case in one precision: the layer, or the core alone, and the result's file. */
#include "eval.h"
#include "tool.h"

#include <attn/mha.h>

#include <stdlib.h>

enum { RESULTS_MAX = 16 };

/* The tensors of a result, each in memory of its own. */
typedef struct result {
    attn_tensor tensors[RESULTS_MAX];
    size_t dims[RESULTS_MAX][4];
    size_t count;
} result;

static size_t count_of(const attn_tensor *tensor) {
    size_t count = 1;
    for (size_t i = 0; i < tensor->rank; i++)
        count *= tensor->dims[i];
    return count;
}

/* A tensor of the result, zeros so far; the file's sizes bound all products but Lq·Lk. */
static attn_real *add(result *r, const eval_case *c, const char *name, size_t rank,
                      const size_t *dims) {
    size_t count = 1;
    for (size_t i = 0; i < rank; i++) {
        r->dims[r->count][i] = dims[i];
        if (dims[i] > SIZE_MAX / sizeof(attn_real) / count)
            exit(tool_fail("%s: '%s' is too large", c->path, name));
        count *= dims[i];
    }
    attn_real *data = tool_alloc(count, sizeof *data);
    r->tensors[r->count] = (attn_tensor){
        .name = name, .dtype = c->dtype, .rank = rank, .dims = r->dims[r->count], .data = data};
    r->count++;
    return data;
}

/* The results and an arena of `bytes`, in memory that the machine has. */
static attn_status create_arena(attn_arena *arena, const eval_case *c, const result *r,
                                size_t bytes) {
    double wants = (double)bytes;
    for (size_t i = 0; i < r->count; i++)
        wants += (double)count_of(&r->tensors[i]) * sizeof(attn_real);
    if (wants > tool_memory())
        exit(tool_fail("%s: needs %.3g GB of memory, the machine has %.3g GB", c->path, wants / 1e9,
                       tool_memory() / 1e9));
    return attn_arena_create(arena, bytes);
}

/* A gradient shaped like `input`; NULL where that is absent or no backward is asked for. */
static attn_real *add_gradient(result *r, const eval_case *c, const char *name,
                               const attn_tensor *input) {
    return input && c->grad_output ? add(r, c, name, input->rank, input->dims) : NULL;
}

static void result_free(result *r) {
    for (size_t i = 0; i < r->count; i++)
        free((void *)r->tensors[i].data);
}

/* An aligned copy of a tensor of the case; NULL where it is absent. */
static attn_real *copy(const attn_tensor *tensor) {
    if (!tensor)
        return NULL;
    attn_real *data = tool_alloc(count_of(tensor), sizeof *data);
    if (attn_tensor_copy(data, tensor, tensor->name, tensor->dtype, tensor->dims, tensor->rank) !=
        ATTN_OK)
        exit(tool_fail("%s", attn_error_message()));
    return data;
}

static attn_mask mask_of(const eval_case *c) {
    return (attn_mask){.padding = c->padding_mask ? c->padding_mask->data : NULL,
                       .attend = c->attend_mask ? c->attend_mask->data : NULL,
                       .attend_strides = c->attend_strides,
                       .causal = c->causal,
                       .causal_align =
                           c->causal_auto ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_OFFSET,
                       .causal_offset = c->causal_offset,
                       .window = {.left_on = c->window_left >= 0,
                                  .right_on = c->window_right >= 0,
                                  .left = (size_t)c->window_left,
                                  .right = (size_t)c->window_right}};
}

/* The arrays both kinds of run read and write. */
typedef struct arrays {
    attn_real *query, *key, *value, *grad_output, *bias, *sinks;
    attn_real *output, *lse, *weights;
    attn_real *grad_query, *grad_key, *grad_value, *grad_bias, *grad_sinks;
} arrays;

static arrays arrays_make(const eval_case *c, result *r) {
    const attn_shape *s = &c->shape;
    arrays a = {.query = copy(c->query),
                .key = copy(c->key),
                .value = copy(c->value),
                .grad_output = copy(c->grad_output),
                .bias = copy(c->attn_bias),
                .sinks = copy(c->sinks)};
    a.output = add(r, c, "output", 3, (size_t[]){s->batch, s->len_q, c->d_model});
    a.lse = add(r, c, "lse", 3, (size_t[]){s->batch, s->num_heads, s->len_q});
    if (c->weights)
        a.weights = add(r, c, "weights", 4, (size_t[]){s->batch, s->num_heads, s->len_q, s->len_k});
    a.grad_query = add_gradient(r, c, "grad_query", c->query);
    a.grad_key = add_gradient(r, c, "grad_key", c->key);
    a.grad_value = add_gradient(r, c, "grad_value", c->value);
    a.grad_bias = add_gradient(r, c, "grad_attn_bias", c->attn_bias);
    a.grad_sinks = add_gradient(r, c, "grad_sinks", c->sinks);
    return a;
}

static void arrays_free(arrays *a) {
    free(a->query);
    free(a->key);
    free(a->value);
    free(a->grad_output);
    free(a->bias);
    free(a->sinks);
}

/* Whether something is asked of what the forward keeps. */
static bool keeps(const eval_case *c) {
    return c->grad_output || c->weights;
}

static attn_status run_layer(const eval_case *c, const arrays *a, result *r) {
    attn_mha_config config = {.d_model = c->d_model,
                              .num_heads = c->shape.num_heads,
                              .num_kv_heads = c->shape.num_kv_heads,
                              .d_head = c->shape.d_head,
                              .has_scale = c->has_scale,
                              .scale = c->scale,
                              .rope = c->rope,
                              .rope_base = c->rope_base,
                              .softcap = c->softcap,
                              .alibi = c->alibi,
                              .sinks = c->sinks != NULL,
                              .kernel = c->kernel};
    const attn_mha_params w = {.wq = copy(c->wq),
                               .wk = copy(c->wk),
                               .wv = copy(c->wv),
                               .wo = copy(c->wo),
                               .bq = copy(c->bq),
                               .bk = copy(c->bk),
                               .bv = copy(c->bv),
                               .bo = copy(c->bo),
                               .sinks = a->sinks};
    const attn_mha_params dw = {.wq = add_gradient(r, c, "grad_wq", c->wq),
                                .wk = add_gradient(r, c, "grad_wk", c->wk),
                                .wv = add_gradient(r, c, "grad_wv", c->wv),
                                .wo = add_gradient(r, c, "grad_wo", c->wo),
                                .bq = add_gradient(r, c, "grad_bq", c->bq),
                                .bk = add_gradient(r, c, "grad_bk", c->bk),
                                .bv = add_gradient(r, c, "grad_bv", c->bv),
                                .bo = add_gradient(r, c, "grad_bo", c->bo),
                                .sinks = a->grad_sinks};
    const attn_mha_input in = {.batch = c->shape.batch,
                               .len_q = c->shape.len_q,
                               .len_k = c->shape.len_k,
                               .query = a->query,
                               .key = a->key,
                               .value = a->value,
                               .mask = mask_of(c),
                               .has_rope_position = c->has_rope_position,
                               .rope_position = c->rope_position,
                               .rope_key_position = c->rope_key_position,
                               .lse = a->lse,
                               .bias = a->bias,
                               .bias_strides = c->bias_strides};
    const attn_mha_input_grads dx = {a->grad_query, a->grad_key, a->grad_value, a->grad_bias};
    attn_arena arena = {0};
    attn_memory need = {0};
    attn_mha_saved saved;
    attn_status status = attn_mha_memory(&config, &in, &need);
    if (status == ATTN_OK)
        status = create_arena(&arena, c, r, keeps(c) ? need.training : need.inference);
    if (status == ATTN_OK)
        status = attn_mha_forward(&config, &w, &in, a->output, &arena, keeps(c) ? &saved : NULL);
    if (status == ATTN_OK && c->weights)
        status = attn_mha_weights(&config, &saved, ATTN_ALL_HEADS, a->weights, &arena);
    if (status == ATTN_OK && c->grad_output)
        status = attn_mha_backward(&config, &w, &saved, a->grad_output, &dw, &dx, &arena);
    attn_arena_destroy(&arena);
    attn_real *const copies[] = {w.wq, w.wk, w.wv, w.wo, w.bq, w.bk, w.bv, w.bo};
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
        free(copies[i]);
    return status;
}

/* In self-attention the gradient of the one input is the sum over its three uses. */
static void add_self_gradients(const eval_case *c, const arrays *a, const attn_real *dkey,
                               const attn_real *dvalue) {
    for (size_t i = 0; i < count_of(c->query); i++)
        a->grad_query[i] += dkey[i] + dvalue[i];
}

/* What the layer does between projection and core. */
typedef attn_status rotate(attn_real *, const attn_real *, const attn_strides *,
                           const attn_rope_config *, size_t, size_t, size_t, size_t);

/* Turns queries and keys forward, or their gradients back, in place. */
static attn_status turn(const eval_case *c, rotate *way, attn_real *query, attn_real *key) {
    const attn_shape *s = &c->shape;
    const attn_strides query_strides = attn_strides_bthd(s->len_q, s->num_heads, s->d_head);
    const attn_strides key_strides = attn_strides_bthd(s->len_k, c->shape.num_kv_heads, s->d_head);
    attn_rope_config rope = {c->rope, c->rope_base, c->rope_position};
    if (c->rope == ATTN_ROPE_NONE)
        return ATTN_OK;
    if (!c->has_rope_position)
        rope.position = (int64_t)s->len_k - (int64_t)s->len_q;
    attn_status status =
        way(query, query, &query_strides, &rope, s->batch, s->num_heads, s->len_q, s->d_head);
    rope.position = c->rope_key_position;
    return status != ATTN_OK ? status
                             : way(key, key, &key_strides, &rope, s->batch, c->shape.num_kv_heads,
                                   s->len_k, s->d_head);
}

static attn_status run_core(const eval_case *c, const arrays *a, const result *r) {
    const attn_shape *s = &c->shape;
    const attn_strides query_strides = attn_strides_bthd(s->len_q, s->num_heads, s->d_head);
    const attn_strides key_strides = attn_strides_bthd(s->len_k, s->num_kv_heads, s->d_head);
    attn_sdpa_config config = {.has_scale = c->has_scale,
                               .scale = c->scale,
                               .softcap = c->softcap,
                               .alibi = c->alibi,
                               .kernel = c->kernel};
    /* In self-attention three arrays too: queries and keys are turned, values are not. */
    attn_real *self_key = c->key ? NULL : copy(c->query);
    attn_real *self_value = c->key ? NULL : copy(c->query);
    attn_real *key = c->key ? a->key : self_key;
    const attn_sdpa_input in = {.shape = *s,
                                .query = a->query,
                                .key = key,
                                .value = c->key ? a->value : self_value,
                                .query_strides = query_strides,
                                .key_strides = key_strides,
                                .value_strides = key_strides,
                                .mask = mask_of(c),
                                .bias = a->bias,
                                .bias_strides = c->bias_strides,
                                .sinks = a->sinks};
    const attn_sdpa_output out = {
        .context = a->output, .context_strides = query_strides, .lse = a->lse};
    const size_t count_k = s->batch * s->len_k * s->num_kv_heads * s->d_head;
    attn_real *self_dkey = c->key ? NULL : tool_alloc(count_k, sizeof *self_dkey);
    attn_real *self_dvalue = c->key ? NULL : tool_alloc(count_k, sizeof *self_dvalue);
    const attn_sdpa_grads grads = {.query = a->grad_query,
                                   .key = c->key ? a->grad_key : self_dkey,
                                   .value = c->key ? a->grad_value : self_dvalue,
                                   .query_strides = query_strides,
                                   .key_strides = key_strides,
                                   .value_strides = key_strides,
                                   .bias = a->grad_bias,
                                   .sinks = a->grad_sinks};
    attn_arena arena = {0};
    attn_memory need = {0};
    attn_sdpa_saved saved;
    attn_status status = turn(c, attn_rope_forward, a->query, key);
    if (status == ATTN_OK)
        status = attn_sdpa_memory(&config, &in, &out, &need);
    if (status == ATTN_OK)
        status = create_arena(&arena, c, r, keeps(c) ? need.training : need.inference);
    if (status == ATTN_OK)
        status = attn_sdpa_forward(&config, &in, &out, &arena, keeps(c) ? &saved : NULL);
    if (status == ATTN_OK && c->weights)
        status = attn_sdpa_weights(&config, &saved, ATTN_ALL_HEADS, a->weights, &arena);
    if (status == ATTN_OK && c->grad_output)
        status =
            attn_sdpa_backward(&config, &saved, a->grad_output, &query_strides, &grads, &arena);
    if (status == ATTN_OK && c->grad_output)
        status = turn(c, attn_rope_backward, grads.query, grads.key);
    if (status == ATTN_OK && c->grad_output && !c->key)
        add_self_gradients(c, a, self_dkey, self_dvalue);
    attn_arena_destroy(&arena);
    free(self_key);
    free(self_value);
    free(self_dkey);
    free(self_dvalue);
    return status;
}

int eval_run(const eval_case *c, const char *result_path) {
    result r = {.count = 0};
    arrays a = arrays_make(c, &r);
    attn_status status = c->wq ? run_layer(c, &a, &r) : run_core(c, &a, &r);
    int exit_status = TOOL_OK;
    if (status != ATTN_OK)
        exit_status = tool_fail("%s: %s", c->path, attn_error_message());
    else if (attn_safetensors_save(result_path, r.tensors, r.count, NULL, 0) != ATTN_OK)
        exit_status = tool_fail("%s", attn_error_message());
    arrays_free(&a);
    result_free(&r);
    return exit_status;
}
