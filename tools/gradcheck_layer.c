/*
 * The layer as a function of one vector x = [parameters | query | key | value | bias]:
 *
 *     f(x) = sum(r ∘ attention(x)),  r random
 */
#include "gradcheck.h"
#include "gradcheck_arrays.h"
#include "tool.h"

#include <attn/random.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A part of x. `member` is its place in attn_mha_params, or NOT_A_PARAM. */
typedef struct part {
    const char *name;
    size_t member, count, offset;
} part;

enum { NUM_PARAMS = 10, NOT_A_PARAM = sizeof(attn_mha_params), GAP = 1 };

typedef struct layer {
    const check_case *c;
    part parts[MAX_TENSORS]; /* as they follow one another in x */
    size_t num_parts, count, num_params;
    attn_mha_input input; /* pointers into x and the arrays */
    size_t num_output;
    attn_real *y, *dy; /* (B, Lq, D) */
    check_arrays arrays;
    uint64_t seed;
    attn_arena arena;
} layer;

static void add_part(layer *l, const char *name, size_t member, size_t count) {
    if (count == 0)
        return;
    l->parts[l->num_parts++] = (part){name, member, count, l->count};
    l->count += count;
}

static bool has_bias(const check_case *c, bool of_all) {
    return c->biases == ALL_BIASES || (c->biases == BQ_AND_BO && of_all);
}

/* In the order of the block; sizes of what is not there are 0. */
static void param_sizes(part sizes[NUM_PARAMS], const check_case *c) {
    const attn_mha_config *config = &c->config;
    const size_t rows = config->num_heads * attn_mha_d_head(config), d_model = config->d_model;
    const size_t kv_rows = attn_mha_kv_heads(config) * attn_mha_d_head(config);
    const size_t heads = config->num_heads;
    const part all[NUM_PARAMS] = {
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
static void place_in_block(layer *l, const part sizes[NUM_PARAMS]) {
    attn_real *block = tool_alloc(attn_mha_num_params(&l->c->config), sizeof *block);
    attn_mha_params view = attn_mha_params_view(&l->c->config, block);
    for (size_t i = 0; i < NUM_PARAMS; i++) {
        attn_real *at = *param_at(&view, sizes[i].member);
        if (sizes[i].count > 0)
            l->count = (size_t)(at - block);
        add_part(l, sizes[i].name, sizes[i].member, sizes[i].count);
    }
    l->count = attn_mha_num_params(&l->c->config);
    free(block);
}

/* From the last to the first, with something between them. */
static void place_apart(layer *l, const part sizes[NUM_PARAMS]) {
    for (size_t i = NUM_PARAMS; i-- > 0;) {
        add_part(l, sizes[i].name, sizes[i].member, sizes[i].count);
        l->count += GAP;
    }
}

static void place_parts(layer *l) {
    const check_case *c = l->c;
    const size_t keys = c->batch * c->len_k * c->config.d_model;
    part sizes[NUM_PARAMS];
    param_sizes(sizes, c);
    if (c->separate)
        place_apart(l, sizes);
    else
        place_in_block(l, sizes);
    l->num_params = l->count;
    l->num_output = c->batch * c->len_q * c->config.d_model;
    add_part(l, c->cross ? "dquery" : "dx", NOT_A_PARAM, l->num_output);
    add_part(l, "dkey", NOT_A_PARAM, c->cross ? keys : 0);
    add_part(l, "dvalue", NOT_A_PARAM, c->cross ? keys : 0);
    add_part(l, "dbias", NOT_A_PARAM, l->arrays.bias_count);
}

/* The parameters, or their gradients, in a vector like x. */
static attn_mha_params params_in(const layer *l, attn_real *x) {
    attn_mha_params params = {0};
    for (size_t i = 0; i < l->num_parts; i++)
        if (l->parts[i].member != NOT_A_PARAM)
            *param_at(&params, l->parts[i].member) = x + l->parts[i].offset;
    return params;
}

/* The inputs, or their gradients, in a vector like x. */
static attn_mha_input_grads inputs_in(const layer *l, attn_real *x) {
    attn_mha_input_grads inputs = {.query = x + l->num_params};
    if (l->c->cross) {
        const size_t keys = l->c->batch * l->c->len_k * l->c->config.d_model;
        inputs.key = inputs.query + l->num_output;
        inputs.value = inputs.key + keys;
    }
    if (l->c->bias)
        inputs.bias = x + l->count - l->arrays.bias_count;
    return inputs;
}

static attn_status run_layer(void *user, const attn_real *x, double *value, attn_real *gradient) {
    layer *l = user;
    const attn_mha_config *config = &l->c->config;
    const attn_mha_params params = params_in(l, (attn_real *)x);
    attn_mha_saved saved;
    attn_arena_reset(&l->arena);
    check_arrays_take_bias(&l->arrays, inputs_in(l, (attn_real *)x).bias);
    const bool training = gradient || config->dropout > 0; /* an inference drops nothing */
    attn_status status =
        attn_mha_forward(config, &params, &l->input, l->y, &l->arena, training ? &saved : NULL);
    if (status == ATTN_OK)
        status = attn_gradcheck_project(value, l->dy, l->y, l->num_output, l->seed);
    if (status != ATTN_OK || !gradient)
        return status;
    memset(gradient, 0, l->num_params * sizeof *gradient); /* these are added to */
    const attn_mha_params dparams = params_in(l, gradient);
    const attn_mha_input_grads dinput = inputs_in(l, gradient);
    return attn_mha_backward(config, &params, &saved, l->dy, &dparams, &dinput, &l->arena);
}

/* Slopes are positive, so that what is far away weighs little: over 50 keys a step of 1e-3 in a
 * slope would otherwise be a step of 0.05 in a score. */
static void draw(layer *l, attn_real *x) {
    attn_random random = attn_random_seed(l->seed, 1);
    for (size_t i = 0; i < l->count; i++)
        x[i] = 0.7 * attn_random_normal(&random);
    attn_real *slopes = params_in(l, x).alibi_slopes;
    for (size_t h = 0; slopes && h < l->c->config.num_heads; h++)
        slopes[h] = 0.4 + 0.6 * attn_random_uniform(&random);
}

static attn_mha_input input_of(const layer *l, attn_real *x) {
    const check_case *c = l->c;
    const attn_mha_input_grads inputs = inputs_in(l, x);
    attn_mha_input input = {.batch = c->batch,
                            .len_q = c->len_q,
                            .len_k = c->cross ? c->len_k : 0,
                            .query = inputs.query,
                            .key = inputs.key,
                            .value = inputs.value,
                            .mask = c->mask,
                            .has_rope_position = c->has_rope_position,
                            .rope_position = c->rope_position,
                            .rope_key_position = c->rope_key_position,
                            .bias = l->arrays.bias,
                            .bias_strides = l->arrays.bias_strides,
                            .dropout_seed = c->array_seed};
    input.mask.padding = l->arrays.padding;
    input.mask.attend = l->arrays.attend;
    input.mask.attend_strides = l->arrays.attend_strides;
    return input;
}

static void list_tensors(check_outcome *outcome, const layer *l) {
    outcome->num_tensors = l->num_parts;
    for (size_t i = 0; i < l->num_parts; i++)
        outcome->tensors[i] =
            (attn_gradcheck_tensor){l->parts[i].name, l->parts[i].offset, l->parts[i].count};
}

attn_status check_layer(check_outcome *outcome, const check_case *c, uint64_t seed) {
    layer l = {.c = c, .seed = seed};
    attn_status status = check_arrays_make(&l.arrays, c);
    if (status != ATTN_OK)
        return status;
    place_parts(&l);
    attn_real *x = tool_alloc(l.count + 2 * l.num_output, sizeof *x);
    l.y = x + l.count;
    l.dy = l.y + l.num_output;
    draw(&l, x);
    l.input = input_of(&l, x);
    list_tensors(outcome, &l);
    attn_memory need;
    double value;
    status = attn_mha_memory(&c->config, &l.input, &need);
    if (status == ATTN_OK)
        status = attn_arena_create(&l.arena, need.training);
    if (status == ATTN_OK)
        status = run_layer(&l, x, &value, NULL);
    if (status == ATTN_OK)
        status =
            check_run(outcome, run_layer, &l, x, l.count, check_magnitude(l.y, l.dy, l.num_output));
    attn_arena_destroy(&l.arena);
    check_arrays_free(&l.arrays);
    free(x);
    return status;
}

attn_status check_run(check_outcome *outcome, attn_gradcheck_function *function, void *user,
                      attn_real *x, size_t count, double magnitude) {
    attn_gradcheck_options options = {.value_noise = 16 * DBL_EPSILON * fmax(1, magnitude)};
    attn_gradcheck_problem problem = {.function = function,
                                      .user = user,
                                      .x = x,
                                      .count = count,
                                      .tensors = outcome->tensors,
                                      .num_tensors = outcome->num_tensors};
    attn_memory need;
    attn_arena arena = {0};
    attn_status status = attn_gradcheck_memory(&problem, &options, &need);
    if (status == ATTN_OK)
        status = attn_arena_create(&arena, need.inference);
    if (status == ATTN_OK)
        status = attn_gradcheck_run(&outcome->report, outcome->reports, &problem, &options, &arena);
    attn_arena_destroy(&arena);
    return status;
}

double check_magnitude(const double *a, const double *b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += fabs(a[i] * b[i]);
    return sum;
}
