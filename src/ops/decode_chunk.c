/* Long chunks of new tokens, such as prompts: there are queries enough to fill the tiles of the
 * fused path, which reads keys and values where they lie in the cache. */
#include "ops/decode.h"

#include "base/fail.h"

/* From so many tokens on the tiles are faster. */
enum { LONG_CHUNK = 32 };

bool attni_decode_is_long(const attni_decode *call) {
    return call->most >= LONG_CHUNK;
}

/* `batch` samples from b on, each with `count` new tokens behind `past` ones. */
static attn_status attend(const attni_decode *call, size_t b, size_t batch, size_t count,
                          size_t past, attn_arena *arena) {
    const size_t d = call->d_head, heads = call->num_heads, kv_heads = call->num_kv_heads;
    const size_t width = (heads + 2 * kv_heads) * d, cached = kv_heads * call->capacity * d;
    const size_t row = call->starts ? call->starts[b] : 0;
    const attn_strides cache_strides = attn_strides_bhtd(call->capacity, kv_heads, d);
    const bool there = !arena->measuring;
    const attn_sdpa_config config = {.has_scale = true,
                                     .scale = call->scale,
                                     .kernel = ATTN_KERNEL_FUSED,
                                     .max_threads = call->max_threads,
                                     .softcap = call->softcap,
                                     .alibi = call->alibi};
    const attn_sdpa_input input = {
        .shape = {.batch = batch,
                  .num_heads = heads,
                  .len_q = count,
                  .len_k = past + count,
                  .d_head = d,
                  .num_kv_heads = kv_heads},
        .query = there ? call->projected + row * width : NULL,
        .key = there ? call->key + b * cached : NULL,
        .value = there ? call->value + b * cached : NULL,
        .query_strides = {count * width, d, width, 1},
        .key_strides = cache_strides,
        .value_strides = cache_strides,
        .mask = {.causal = true, .window = {.left_on = call->left < SIZE_MAX, .left = call->left}},
        .alibi_slopes = call->slopes,
        .sinks = call->sinks,
    };
    const attn_sdpa_output output = {.context = there ? call->context + row * heads * d : NULL,
                                     .context_strides = attn_strides_bthd(count, heads, d)};
    return attn_sdpa_forward(&config, &input, &output, arena, NULL);
}

/* A measuring arena counts all samples with as many tokens as a call can bring behind as many as
 * the cache can hold: that is the most. */
attn_status attni_decode_attend_long(const attni_decode *call, bool together, attn_arena *arena) {
    if (call->batch == 0)
        return ATTN_OK;
    if (arena->measuring)
        return attend(call, 0, call->batch, call->most,
                      call->capacity > call->most ? call->capacity - call->most : 0, arena);
    if (together)
        return attend(call, 0, call->batch, call->counts[0], call->lengths[0], arena);
    for (size_t b = 0; b < call->batch; b++)
        ATTNI_TRY(attend(call, b, 1, call->counts[b], call->lengths[b], arena));
    return ATTN_OK;
}
