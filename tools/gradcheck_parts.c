#include "gradcheck_parts.h"

#include "tool.h"

#include <stdlib.h>
#include <string.h>

enum { NUM_PARAMS = 10, NOT_A_PARAM = sizeof(attn_mha_params), GAP = 1 };

static void add_part(check_parts *parts, const char *name, size_t member, size_t count) {
    if (count == 0)
        return;
    parts->part[parts->num_parts++] = (check_part){name, member, count, parts->count};
    parts->count += count;
}

static bool has_bias(const check_case *c, bool of_all) {
    return c->biases == ALL_BIASES || (c->biases == BQ_AND_BO && of_all);
}

/* In the order of the block; sizes of what is not there are 0. */
static void param_sizes(check_part sizes[NUM_PARAMS], const check_case *c) {
    const attn_mha_config *config = &c->config;
    const size_t rows = config->num_heads * attn_mha_d_head(config), d_model = config->d_model;
    const size_t kv_rows = attn_mha_kv_heads(config) * attn_mha_d_head(config);
    const size_t heads = config->num_heads;
    const check_part all[NUM_PARAMS] = {
#define PARAM(member, count) {"d" #member, offsetof(attn_mha_params, member), count, 0}
        PARAM(wq, rows * d_model),
        PARAM(wk, kv_rows * d_model),
        PARAM(wv, kv_rows * d_model),
        PARAM(wo, d_model * rows),
        PARAM(bq, has_bias(c, true) ? rows : 0),
        PARAM(bk, has_bias(c, false) ? kv_rows : 0),
        PARAM(bv, has_bias(c, false) ? kv_rows : 0),
        PARAM(bo, has_bias(c, true) ? d_model : 0),
        PARAM(sinks, config->sinks ? heads : 0),
        PARAM(alibi_slopes, config->alibi_learned ? heads : 0),
#undef PARAM
    };
    memcpy(sizes, all, sizeof all);
}

static attn_real **param_at(attn_mha_params *params, size_t member) {
    return (attn_real **)(void *)((char *)params + member);
}

/* Where the block of attn_mha_params_view has them. Biases that are not there leave holes. */
static void place_in_block(check_parts *parts, const check_part sizes[NUM_PARAMS],
                           const attn_mha_config *config) {
    attn_real *block = tool_alloc(attn_mha_num_params(config), sizeof *block);
    attn_mha_params view = attn_mha_params_view(config, block);
    for (size_t i = 0; i < NUM_PARAMS; i++) {
        if (sizes[i].count > 0)
            parts->count = (size_t)(*param_at(&view, sizes[i].member) - block);
        add_part(parts, sizes[i].name, sizes[i].member, sizes[i].count);
    }
    parts->count = attn_mha_num_params(config);
    free(block);
}

/* From the last to the first, with something between them. */
static void place_apart(check_parts *parts, const check_part sizes[NUM_PARAMS]) {
    for (size_t i = NUM_PARAMS; i-- > 0;) {
        add_part(parts, sizes[i].name, sizes[i].member, sizes[i].count);
        parts->count += GAP;
    }
}

void check_parts_place(check_parts *parts, const check_case *c, const check_arrays *arrays) {
    check_part sizes[NUM_PARAMS];
    *parts = (check_parts){.num_queries = arrays->tokens_q * c->config.d_model,
                           .num_keys = c->cross ? arrays->tokens_k * c->config.d_model : 0,
                           .num_bias = arrays->bias_count};
    param_sizes(sizes, c);
    if (c->separate)
        place_apart(parts, sizes);
    else
        place_in_block(parts, sizes, &c->config);
    parts->num_params = parts->count;
    add_part(parts, c->cross ? "dquery" : "dx", NOT_A_PARAM, parts->num_queries);
    add_part(parts, "dkey", NOT_A_PARAM, parts->num_keys);
    add_part(parts, "dvalue", NOT_A_PARAM, parts->num_keys);
    add_part(parts, "dbias", NOT_A_PARAM, parts->num_bias);
}

attn_mha_params check_params_in(const check_parts *parts, attn_real *x) {
    attn_mha_params params = {0};
    for (size_t i = 0; i < parts->num_parts; i++)
        if (parts->part[i].member != NOT_A_PARAM)
            *param_at(&params, parts->part[i].member) = x + parts->part[i].offset;
    return params;
}

attn_mha_input_grads check_inputs_in(const check_parts *parts, attn_real *x) {
    attn_mha_input_grads inputs = {.query = x + parts->num_params};
    attn_real *key = inputs.query + parts->num_queries;
    if (parts->num_keys > 0) {
        inputs.key = key;
        inputs.value = key + parts->num_keys;
    }
    if (parts->num_bias > 0)
        inputs.bias = key + 2 * parts->num_keys;
    return inputs;
}
