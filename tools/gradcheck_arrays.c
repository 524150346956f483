#include "gradcheck_arrays.h"

#include "tool.h"

#include <attn/random.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint8_t *make_padding(const check_case *c) {
    if (c->padding == NO_PADDING)
        return NULL;
    uint8_t *padding = tool_alloc(c->batch * c->len_k, 1);
    uint8_t *last = padding + (c->batch - 1) * c->len_k;
    if (c->padding == WHOLE_SAMPLE)
        memset(last, 1, c->len_k);
    else
        last[c->padding == LEFT_PADDING ? 0 : c->len_k - 1] = 1;
    return padding;
}

/* The elements of an array whose dimensions of "bhqk" in `kept` are whole, and its strides. One
 * without a batch or head dimension is given as (Lq,Lk), as a caller would. By columns, all queries
 * of a key lie side by side. */
static attn_status broadcast(size_t *count, attn_broadcast *strides, const char *kept,
                             bool by_columns, const check_case *c) {
    const size_t full[4] = {c->batch, c->config.num_heads, c->len_q, c->len_k};
    size_t dims[4];
    *count = 1;
    for (size_t i = 0; i < 4; i++) {
        dims[i] = strchr(kept, "bhqk"[i]) ? full[i] : 1;
        *count *= dims[i];
    }
    const bool flat = !strpbrk(kept, "bh");
    const attn_status status =
        attn_broadcast_strides(strides, flat ? dims + 2 : dims, flat ? 2 : 4, c->batch,
                               c->config.num_heads, c->len_q, c->len_k);
    if (by_columns && dims[2] > 1 && dims[3] > 1) {
        strides->query = 1;
        strides->key = dims[2];
    }
    return status;
}

/* About `most - 1` of `most` are true, the first one certainly, the last of several not: pair (0,0)
 * is never blocked, and what has no keys dimension has a row without keys. */
static uint8_t *draw_bytes(size_t count, uint32_t most, uint64_t seed) {
    uint8_t *bytes = tool_alloc(count, 1);
    attn_random random = attn_random_seed(seed, 0xA77E);
    for (size_t i = 0; i < count; i++)
        bytes[i] = attn_random_below(&random, most) > 0;
    bytes[count - 1] = 0;
    bytes[0] = 1;
    return bytes;
}

/* Every sequence but the last of several has `len` tokens. */
static size_t *make_offsets(size_t batch, size_t len) {
    size_t *offsets = tool_alloc(batch + 1, sizeof *offsets);
    const size_t last = batch > 1 ? len - len / 3 : len;
    for (size_t b = 0; b < batch; b++)
        offsets[b + 1] = offsets[b] + (b + 1 < batch ? len : last);
    return offsets;
}

static void count_tokens(check_arrays *a, const check_case *c) {
    a->tokens_q = c->batch * c->len_q;
    a->tokens_k = c->batch * c->len_k;
    if (!c->packed)
        return;
    a->offsets_q = make_offsets(c->batch, c->len_q);
    a->offsets_k = make_offsets(c->batch, c->len_k);
    a->tokens_q = a->offsets_q[c->batch];
    a->tokens_k = a->offsets_k[c->batch];
}

attn_status check_arrays_make(check_arrays *a, const check_case *c) {
    size_t attend_count = 0;
    attn_status status = ATTN_OK;
    *a = (check_arrays){0};
    if (c->attend)
        status = broadcast(&attend_count, &a->attend_strides, c->attend, c->attend_by_columns, c);
    if (c->bias && status == ATTN_OK)
        status = broadcast(&a->bias_count, &a->bias_strides, c->bias, c->bias_by_columns, c);
    if (status != ATTN_OK)
        return status;
    count_tokens(a, c);
    a->padding = make_padding(c);
    if (c->attend)
        a->attend = draw_bytes(attend_count, 5, c->array_seed);
    if (c->bias)
        a->bias = tool_alloc(a->bias_count, sizeof *a->bias);
    if (c->bias && c->bias_blocks) {
        a->blocks = draw_bytes(a->bias_count, 5, c->array_seed + 1);
        for (size_t i = 0; i < a->bias_count; i++)
            a->blocks[i] = !a->blocks[i];
    }
    return ATTN_OK;
}

void check_arrays_free(check_arrays *a) {
    free(a->padding);
    free(a->attend);
    free(a->bias);
    free(a->blocks);
    free(a->offsets_q);
    free(a->offsets_k);
    *a = (check_arrays){0};
}

void check_arrays_take_bias(check_arrays *a, const attn_real *bias) {
    for (size_t i = 0; i < a->bias_count; i++)
        a->bias[i] = a->blocks && a->blocks[i] ? -INFINITY : bias[i];
}
