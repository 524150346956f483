/* Reads a case: settings from the metadata, shapes that fit each other, and nothing else. */
#include "eval.h"
#include "options.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One line that begins with the case's path. */
__attribute__((format(printf, 2, 3))) static int refuse(const eval_case *c, const char *format,
                                                        ...) {
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return tool_fail("%s: %s", c->path, what);
}

static const char *const known_keys[] = {"format",        "num_heads",
                                         "num_kv_heads",  "causal",
                                         "causal_offset", "window_left",
                                         "window_right",  "scale",
                                         "softcap",       "alibi",
                                         "rope",          "rope_base",
                                         "rope_position", "rope_key_position",
                                         "kernel",        "weights",
                                         "expect",        NULL};

static const char *const known_tensors[] = {
    "query", "key", "value", "wq",           "wk",          "wv",        "wo",          "bq", "bk",
    "bv",    "bo",  "sinks", "padding_mask", "attend_mask", "attn_bias", "grad_output", NULL};

static bool is_known(const char *const *list, const char *name) {
    for (; *list; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

static int check_names(const eval_case *c) {
    for (size_t i = 0; i < c->file.num_metadata; i++)
        if (!is_known(known_keys, c->file.metadata[i].key))
            return refuse(c, "metadata '%.80s' is unknown", c->file.metadata[i].key);
    for (size_t i = 0; i < c->file.num_tensors; i++)
        if (!is_known(known_tensors, c->file.tensors[i].name))
            return refuse(c, "tensor '%.80s' is unknown", c->file.tensors[i].name);
    return TOOL_OK;
}

/* The getters leave *value, the default, where the key is absent. */
static int get_choice(const eval_case *c, const char *key, const char *const *choices,
                      size_t *value) {
    const char *text = attn_safetensors_metadata(&c->file, key);
    if (!text)
        return TOOL_OK;
    char list[100] = "";
    for (size_t i = 0; choices[i]; i++) {
        if (strcmp(text, choices[i]) == 0) {
            *value = i;
            return TOOL_OK;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", choices[i]);
    }
    return refuse(c, "%s '%.80s' is none of: %s", key, text, list);
}

static int get_flag(const eval_case *c, const char *key, bool *value) {
    static const char *const flags[] = {"false", "true", NULL};
    size_t chosen = *value;
    int status = get_choice(c, key, flags, &chosen);
    *value = chosen != 0;
    return status;
}

static int get_integer(const eval_case *c, const char *key, int64_t least, int64_t *value) {
    const char *text = attn_safetensors_metadata(&c->file, key);
    if (!text)
        return TOOL_OK;
    const char *digits = text + (*text == '-');
    size_t length = strlen(digits);
    if (length == 0 || strspn(digits, "0123456789") != length)
        return refuse(c, "%s '%.80s' is not an integer", key, text);
    while (*digits == '0' && digits[1])
        digits++;
    int64_t number = strlen(digits) <= 10 ? strtoll(digits, NULL, 10) : INT64_MAX;
    if (*text == '-')
        number = -number;
    if (number > INT32_MAX || number < INT32_MIN || number < least)
        return refuse(c, "%s %.80s is out of range, which is %lld to %lld", key, text,
                      (long long)least, (long long)INT32_MAX);
    *value = number;
    return TOOL_OK;
}

static int get_number(const eval_case *c, const char *key, double *value) {
    const char *text = attn_safetensors_metadata(&c->file, key);
    if (text && !tool_parse_number(text, value))
        return refuse(c, "%s '%.80s' is not a finite number", key, text);
    return TOOL_OK;
}

static int read_heads(eval_case *c) {
    int64_t heads = 0, kv_heads;
    if (!attn_safetensors_metadata(&c->file, "num_heads"))
        return refuse(c, "num_heads is missing");
    int status = get_integer(c, "num_heads", 1, &heads);
    kv_heads = heads;
    if (status == TOOL_OK)
        status = get_integer(c, "num_kv_heads", 1, &kv_heads);
    if (status != TOOL_OK)
        return status;
    if (heads % kv_heads != 0)
        return refuse(c, "num_heads %lld is not a multiple of num_kv_heads %lld", (long long)heads,
                      (long long)kv_heads);
    c->shape.num_heads = (size_t)heads;
    c->shape.num_kv_heads = (size_t)kv_heads;
    return TOOL_OK;
}

static int read_scores(eval_case *c) {
    const char *offset = attn_safetensors_metadata(&c->file, "causal_offset");
    c->has_scale = attn_safetensors_metadata(&c->file, "scale") != NULL;
    c->causal_auto = !offset || strcmp(offset, "auto") == 0;
    c->window_left = c->window_right = -1;
    int status = get_flag(c, "causal", &c->causal);
    if (status == TOOL_OK && !c->causal_auto)
        status = get_integer(c, "causal_offset", INT32_MIN, &c->causal_offset);
    if (status == TOOL_OK)
        status = get_integer(c, "window_left", -1, &c->window_left);
    if (status == TOOL_OK)
        status = get_integer(c, "window_right", -1, &c->window_right);
    if (status == TOOL_OK)
        status = get_number(c, "scale", &c->scale);
    if (status == TOOL_OK)
        status = get_number(c, "softcap", &c->softcap);
    if (status == TOOL_OK && c->softcap < 0)
        status = refuse(c, "softcap %g is below 0", c->softcap);
    if (status == TOOL_OK)
        status = get_flag(c, "alibi", &c->alibi);
    return status;
}

static int read_rope(eval_case *c) {
    static const char *const ropes[] = {"none", "interleaved", "half", NULL};
    size_t rope = ATTN_ROPE_NONE;
    c->rope_base = 10000;
    int status = get_choice(c, "rope", ropes, &rope);
    c->rope = (attn_rope)rope;
    c->has_rope_position = attn_safetensors_metadata(&c->file, "rope_position") != NULL;
    if (status == TOOL_OK)
        status = get_number(c, "rope_base", &c->rope_base);
    if (status == TOOL_OK && !(c->rope_base > 0))
        status = refuse(c, "rope_base %g is not above 0", c->rope_base);
    if (status == TOOL_OK)
        status = get_integer(c, "rope_position", INT32_MIN, &c->rope_position);
    if (status == TOOL_OK)
        status = get_integer(c, "rope_key_position", INT32_MIN, &c->rope_key_position);
    return status;
}

static int read_metadata(eval_case *c) {
    static const char *const formats[] = {"attn-case-1", NULL}, *const expects[] = {"error", NULL};
    static const char *const kernels[] = {"auto", "reference", "fused", NULL};
    size_t format = 0, expect = 0, kernel = ATTN_KERNEL_AUTO;
    int status = get_choice(c, "format", formats, &format);
    if (status == TOOL_OK)
        status = get_choice(c, "expect", expects, &expect);
    if (status == TOOL_OK)
        status = get_choice(c, "kernel", kernels, &kernel);
    c->kernel = (attn_kernel)kernel;
    if (status == TOOL_OK)
        status = get_flag(c, "weights", &c->weights);
    if (status == TOOL_OK)
        status = read_heads(c);
    if (status == TOOL_OK)
        status = read_scores(c);
    if (status == TOOL_OK)
        status = read_rope(c);
    return status;
}

/* A tensor of the case's precision with exactly these dimensions, or absent. */
static int expect_shape(const eval_case *c, const attn_tensor *tensor, size_t rank,
                        const size_t *dims) {
    if (!tensor)
        return TOOL_OK;
    if (tensor->dtype != c->dtype)
        return refuse(c, "tensor '%s' has dtype %s, but the query %s", tensor->name,
                      attn_dtype_name(tensor->dtype), attn_dtype_name(c->dtype));
    bool same = tensor->rank == rank;
    for (size_t i = 0; same && i < rank; i++)
        same = tensor->dims[i] == dims[i];
    if (same)
        return TOOL_OK;
    char wanted[100] = "";
    for (size_t i = 0; i < rank; i++) {
        size_t used = strlen(wanted);
        snprintf(wanted + used, sizeof wanted - used, "%s%zu", i ? ", " : "", dims[i]);
    }
    return refuse(c, "tensor '%s' does not have the shape (%s) that it should", tensor->name,
                  wanted);
}

static bool is_mask(const attn_tensor *tensor) {
    return tensor->dtype == ATTN_DTYPE_U8 || tensor->dtype == ATTN_DTYPE_BOOL;
}

/* B, Lq, Lk and D from query, key and value. */
static int read_lengths(eval_case *c) {
    const attn_tensor *q = c->query;
    if (!q)
        return refuse(c, "tensor 'query' is missing");
    if (q->dtype != ATTN_DTYPE_F32 && q->dtype != ATTN_DTYPE_F64)
        return refuse(c, "tensor 'query' has dtype %s, expected F32 or F64",
                      attn_dtype_name(q->dtype));
    if (q->rank != 3)
        return refuse(c, "tensor 'query' has %zu dimensions, expected (B, Lq, D)", q->rank);
    if (!c->key != !c->value)
        return refuse(c, "%s without %s: cross-attention needs both", c->key ? "key" : "value",
                      c->key ? "value" : "key");
    if (c->key && c->key->rank != 3)
        return refuse(c, "tensor 'key' has %zu dimensions, expected 3", c->key->rank);
    for (size_t i = 0; i < 3; i++)
        if (q->dims[i] == 0 || (c->key && c->key->dims[i] == 0))
            return refuse(c, "query or key is empty");
    c->dtype = q->dtype;
    c->shape.batch = q->dims[0];
    c->shape.len_q = q->dims[1];
    c->shape.len_k = c->key ? c->key->dims[1] : q->dims[1];
    c->d_model = q->dims[2];
    return TOOL_OK;
}

/* d and the shapes of the projections, or of key and value without them. */
static int read_widths(eval_case *c) {
    bool all = c->wq && c->wk && c->wv && c->wo, none = !c->wq && !c->wk && !c->wv && !c->wo;
    size_t heads = c->shape.num_heads, inner = c->d_model;
    if (!all && !none)
        return refuse(c, "a part of wq, wk, wv, wo is missing");
    if (none && (c->bq || c->bk || c->bv || c->bo))
        return refuse(c, "a bias of a projection, but no wq");
    if (all && (c->wq->rank != 2 || c->wq->dims[0] == 0))
        return refuse(c, "tensor 'wq' is no matrix of at least one row");
    if (all)
        inner = c->wq->dims[0];
    if (inner % heads != 0)
        return refuse(c, "%s %zu is not a multiple of num_heads %zu",
                      all ? "rows of wq:" : "width of query:", inner, heads);
    c->shape.d_head = inner / heads;
    if (c->rope != ATTN_ROPE_NONE && c->shape.d_head % 2 != 0)
        return refuse(c, "rope turns pairs, but the head width %zu is odd", c->shape.d_head);
    if (none && !c->key && c->shape.num_kv_heads != heads)
        return refuse(c, "self-attention without projections needs num_kv_heads = num_heads");
    size_t kv = c->shape.num_kv_heads * c->shape.d_head, d = c->d_model;
    const size_t key_dims[] = {c->shape.batch, c->shape.len_k, none ? kv : d};
    const struct {
        const attn_tensor *tensor;
        size_t rank, dims[3];
    } expected[] = {
        {c->key, 3, {key_dims[0], key_dims[1], key_dims[2]}},
        {c->value, 3, {key_dims[0], key_dims[1], key_dims[2]}},
        {c->wq, 2, {inner, d, 0}},
        {c->wk, 2, {kv, d, 0}},
        {c->wv, 2, {kv, d, 0}},
        {c->wo, 2, {d, inner, 0}},
        {c->bq, 1, {inner, 0, 0}},
        {c->bk, 1, {kv, 0, 0}},
        {c->bv, 1, {kv, 0, 0}},
        {c->bo, 1, {d, 0, 0}},
        {c->sinks, 1, {heads, 0, 0}},
        {c->grad_output, 3, {c->shape.batch, c->shape.len_q, d}},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (expect_shape(c, expected[i].tensor, expected[i].rank, expected[i].dims) != TOOL_OK)
            return TOOL_FAILED;
    return TOOL_OK;
}

static int read_broadcast(const eval_case *c, const attn_tensor *tensor, attn_broadcast *strides) {
    const attn_shape *s = &c->shape;
    if (attn_broadcast_strides(strides, tensor->dims, tensor->rank, s->batch, s->num_heads,
                               s->len_q, s->len_k) != ATTN_OK)
        return refuse(c, "tensor '%s' does not broadcast: %s", tensor->name, attn_error_message());
    return TOOL_OK;
}

static int read_masks(eval_case *c) {
    const attn_tensor *padding = c->padding_mask, *attend = c->attend_mask, *bias = c->attn_bias;
    if (padding && !is_mask(padding))
        return refuse(c, "tensor 'padding_mask' has dtype %s, expected U8 or BOOL",
                      attn_dtype_name(padding->dtype));
    if (padding && (padding->rank != 2 || padding->dims[0] != c->shape.batch ||
                    padding->dims[1] != c->shape.len_k))
        return refuse(c, "tensor 'padding_mask' does not have the shape (B, Lk) = (%zu, %zu)",
                      c->shape.batch, c->shape.len_k);
    if (attend && !is_mask(attend))
        return refuse(c, "tensor 'attend_mask' has dtype %s, expected U8 or BOOL",
                      attn_dtype_name(attend->dtype));
    if (attend && read_broadcast(c, attend, &c->attend_strides) != TOOL_OK)
        return TOOL_FAILED;
    if (bias && expect_shape(c, bias, bias->rank, bias->dims) != TOOL_OK) /* its precision */
        return TOOL_FAILED;
    return bias ? read_broadcast(c, bias, &c->bias_strides) : TOOL_OK;
}

static void find_tensors(eval_case *c) {
    const struct {
        const attn_tensor **tensor;
        const char *name;
    } names[] = {
        {&c->query, "query"},
        {&c->key, "key"},
        {&c->value, "value"},
        {&c->wq, "wq"},
        {&c->wk, "wk"},
        {&c->wv, "wv"},
        {&c->wo, "wo"},
        {&c->bq, "bq"},
        {&c->bk, "bk"},
        {&c->bv, "bv"},
        {&c->bo, "bo"},
        {&c->padding_mask, "padding_mask"},
        {&c->attend_mask, "attend_mask"},
        {&c->attn_bias, "attn_bias"},
        {&c->sinks, "sinks"},
        {&c->grad_output, "grad_output"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        *names[i].tensor = attn_safetensors_find(&c->file, names[i].name);
}

int eval_case_read(eval_case *c, const char *path) {
    *c = (eval_case){.path = path};
    if (attn_safetensors_open(&c->file, path) != ATTN_OK)
        return tool_fail("%s", attn_error_message());
    find_tensors(c);
    int status = check_names(c);
    if (status == TOOL_OK)
        status = read_metadata(c);
    if (status == TOOL_OK)
        status = read_lengths(c);
    if (status == TOOL_OK)
        status = read_widths(c);
    if (status == TOOL_OK)
        status = read_masks(c);
    return status;
}

void eval_case_free(eval_case *c) {
    attn_safetensors_close(&c->file);
}
