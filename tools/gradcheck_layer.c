/*
 * The layer as a function of one vector x (gradcheck_parts.h):
 *
 *     f(x) = sum(r ∘ attention(x)),  r random
 */
#include "gradcheck.h"
#include "gradcheck_arrays.h"
#include "gradcheck_parts.h"
#include "tool.h"

#include <attn/random.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct layer {
    const check_case *c;
    check_parts parts;
    check_arrays arrays;
    attn_mha_input input;  /* pointers into x and the arrays */
    attn_mha_input memory; /* keys and values, where they are projected beforehand */
    size_t num_projected;  /* reals of each */
    attn_real *x, *y, *dy; /* y and dy (B, Lq, D) */
    attn_real *k, *v, *dk, *dv;
    uint64_t seed;
    attn_arena arena;
} layer;

static attn_status forward(layer *l, const attn_mha_params *params, attn_mha_saved *saved) {
    if (l->c->projected) {
        const attn_status status =
            attn_mha_keys_forward(&l->c->config, params, &l->memory, l->k, l->v);
        if (status != ATTN_OK)
            return status;
    }
    return attn_mha_forward(&l->c->config, params, &l->input, l->y, &l->arena, saved);
}

static attn_status backward(layer *l, const attn_mha_params *params, const attn_mha_saved *saved,
                            attn_real *gradient) {
    const attn_mha_config *config = &l->c->config;
    memset(gradient, 0, l->parts.num_params * sizeof *gradient); /* these are added to */
    const attn_mha_params dparams = check_params_in(&l->parts, gradient);
    const attn_mha_input_grads dinput = check_inputs_in(&l->parts, gradient);
    if (!l->c->projected)
        return attn_mha_backward(config, params, saved, l->dy, &dparams, &dinput, &l->arena);
    const attn_mha_input_grads here = {.query = dinput.query,
                                       .bias = dinput.bias,
                                       .projected_key = l->dk,
                                       .projected_value = l->dv};
    memset(l->dk, 0, l->num_projected * sizeof *l->dk);
    memset(l->dv, 0, l->num_projected * sizeof *l->dv);
    const attn_status status =
        attn_mha_backward(config, params, saved, l->dy, &dparams, &here, &l->arena);
    const attn_mha_input_grads there = {.key = dinput.key, .value = dinput.value};
    return status != ATTN_OK
               ? status
               : attn_mha_keys_backward(config, params, &l->memory, l->dk, l->dv, &dparams, &there);
}

static attn_status run_layer(void *user, const attn_real *x, double *value, attn_real *gradient) {
    layer *l = user;
    const attn_mha_params params = check_params_in(&l->parts, (attn_real *)x);
    const bool training = gradient || l->c->config.dropout > 0; /* an inference drops nothing */
    attn_mha_saved saved;
    attn_arena_reset(&l->arena);
    check_arrays_take_bias(&l->arrays, check_inputs_in(&l->parts, (attn_real *)x).bias);
    attn_status status = forward(l, &params, training ? &saved : NULL);
    if (status == ATTN_OK)
        status = attn_gradcheck_project(value, l->dy, l->y, l->parts.num_queries, l->seed);
    return status != ATTN_OK || !gradient ? status : backward(l, &params, &saved, gradient);
}

/* Slopes are positive, so that what is far away weighs little: over 50 keys a step of 1e-3 in a
 * slope would otherwise be a step of 0.05 in a score. */
static void draw(layer *l) {
    attn_random random = attn_random_seed(l->seed, 1);
    for (size_t i = 0; i < l->parts.count; i++)
        l->x[i] = 0.7 * attn_random_normal(&random);
    attn_real *slopes = check_params_in(&l->parts, l->x).alibi_slopes;
    for (size_t h = 0; slopes && h < l->c->config.num_heads; h++)
        slopes[h] = 0.4 + 0.6 * attn_random_uniform(&random);
}

/* Lengths of packed sequences are totals. */
static attn_mha_input input_of(const layer *l) {
    const check_case *c = l->c;
    const check_arrays *a = &l->arrays;
    const attn_mha_input_grads inputs = check_inputs_in(&l->parts, l->x);
    attn_mha_input input = {.batch = c->batch,
                            .len_q = c->packed ? a->tokens_q : c->len_q,
                            .query = inputs.query,
                            .key = inputs.key,
                            .value = inputs.value,
                            .mask = c->mask,
                            .has_rope_position = c->has_rope_position,
                            .rope_position = c->rope_position,
                            .rope_key_position = c->rope_key_position,
                            .bias = a->bias,
                            .bias_strides = a->bias_strides,
                            .dropout_seed = c->array_seed,
                            .offsets_q = a->offsets_q};
    if (c->cross) {
        input.len_k = c->packed ? a->tokens_k : c->len_k;
        input.offsets_k = a->offsets_k;
    }
    input.mask.padding = a->padding;
    input.mask.attend = a->attend;
    input.mask.attend_strides = a->attend_strides;
    return input;
}

static attn_real *carve(attn_real **free_reals, size_t count) {
    attn_real *reals = *free_reals;
    *free_reals += count;
    return reals;
}

/* Everything that the calls read and write, in one block. */
static attn_real *allocate(layer *l) {
    const check_case *c = l->c;
    if (c->projected)
        l->num_projected =
            l->arrays.tokens_k * attn_mha_kv_heads(&c->config) * attn_mha_d_head(&c->config);
    attn_real *block =
        tool_alloc(l->parts.count + 2 * l->parts.num_queries + 4 * l->num_projected, sizeof *block);
    attn_real *rest = block;
    l->x = carve(&rest, l->parts.count);
    l->y = carve(&rest, l->parts.num_queries);
    l->dy = carve(&rest, l->parts.num_queries);
    l->k = carve(&rest, l->num_projected);
    l->v = carve(&rest, l->num_projected);
    l->dk = carve(&rest, l->num_projected);
    l->dv = carve(&rest, l->num_projected);
    return block;
}

static void configure(layer *l) {
    l->input = input_of(l);
    if (!l->c->projected)
        return;
    l->memory = l->input;
    l->input.key = l->input.value = NULL;
    l->input.projected_key = l->k;
    l->input.projected_value = l->v;
}

static attn_status check(layer *l, check_outcome *outcome) {
    attn_memory need;
    double value;
    outcome->num_tensors = l->parts.num_parts;
    for (size_t i = 0; i < l->parts.num_parts; i++) {
        const check_part *part = &l->parts.part[i];
        outcome->tensors[i] = (attn_gradcheck_tensor){part->name, part->offset, part->count};
    }
    attn_status status = attn_mha_memory(&l->c->config, &l->input, &need);
    if (status == ATTN_OK)
        status = attn_arena_create(&l->arena, need.training);
    if (status == ATTN_OK)
        status = run_layer(l, l->x, &value, NULL);
    if (status == ATTN_OK)
        status = check_run(outcome, run_layer, l, l->x, l->parts.count,
                           check_magnitude(l->y, l->dy, l->parts.num_queries));
    attn_arena_destroy(&l->arena);
    return status;
}

attn_status check_layer(check_outcome *outcome, const check_case *c, uint64_t seed) {
    layer l = {.c = c, .seed = seed};
    attn_status status = check_arrays_make(&l.arrays, c);
    if (status != ATTN_OK)
        return status;
    check_parts_place(&l.parts, c, &l.arrays);
    attn_real *block = allocate(&l);
    draw(&l);
    configure(&l);
    status = check(&l, outcome);
    check_arrays_free(&l.arrays);
    free(block);
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
