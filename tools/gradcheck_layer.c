/*
 * The layer as a function of one vector x = [parameters | query | key | value]:
 *
 *     f(x) = sum(r ∘ attention(x)),  r random
 */
#include "gradcheck.h"
#include "tool.h"

#include <attn/random.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct layer {
    attn_mha_config config;
    attn_mha_input input; /* pointers into x */
    size_t num_params, num_query, num_key;
    attn_real *y, *dy; /* (B, Lq, D) */
    uint64_t seed;
    attn_arena arena;
} layer;

static attn_status run_layer(void *user, const attn_real *x, double *value, attn_real *gradient) {
    layer *l = user;
    attn_mha_params params = attn_mha_params_view(&l->config, (attn_real *)x);
    attn_mha_saved saved;
    attn_arena_reset(&l->arena);
    attn_status status =
        attn_mha_forward(&l->config, &params, &l->input, l->y, &l->arena, gradient ? &saved : NULL);
    if (status == ATTN_OK)
        status = attn_gradcheck_project(value, l->dy, l->y, l->num_query, l->seed);
    if (status != ATTN_OK || !gradient)
        return status;
    memset(gradient, 0, l->num_params * sizeof *gradient); /* these are added to */
    attn_mha_params dparams = attn_mha_params_view(&l->config, gradient);
    attn_mha_input_grads dinput = {.query = gradient + l->num_params};
    if (l->input.key) {
        dinput.key = dinput.query + l->num_query;
        dinput.value = dinput.key + l->num_key;
    }
    return attn_mha_backward(&l->config, &params, &saved, l->dy, &dparams, &dinput, &l->arena);
}

static void add_tensor(check_outcome *outcome, const char *name, size_t *offset, size_t count) {
    outcome->tensors[outcome->num_tensors++] = (attn_gradcheck_tensor){name, *offset, count};
    *offset += count;
}

/* The order of attn_mha_params, then the inputs. */
static void list_tensors(check_outcome *outcome, const layer *l) {
    size_t width = l->config.num_heads * attn_mha_d_head(&l->config);
    size_t kv_width = attn_mha_kv_heads(&l->config) * attn_mha_d_head(&l->config);
    size_t d_model = l->config.d_model, offset = 0;
    outcome->num_tensors = 0;
    add_tensor(outcome, "dwq", &offset, width * d_model);
    add_tensor(outcome, "dwk", &offset, kv_width * d_model);
    add_tensor(outcome, "dwv", &offset, kv_width * d_model);
    add_tensor(outcome, "dwo", &offset, width * d_model);
    if (l->config.bias) {
        add_tensor(outcome, "dbq", &offset, width);
        add_tensor(outcome, "dbk", &offset, kv_width);
        add_tensor(outcome, "dbv", &offset, kv_width);
        add_tensor(outcome, "dbo", &offset, d_model);
    }
    add_tensor(outcome, l->input.key ? "dquery" : "dx", &offset, l->num_query);
    if (l->input.key) {
        add_tensor(outcome, "dkey", &offset, l->num_key);
        add_tensor(outcome, "dvalue", &offset, l->num_key);
    }
}

static layer layer_of(const check_case *c, uint64_t seed) {
    const check_shape *s = c->shape;
    layer l = {.config = {.d_model = s->d_model,
                          .num_heads = s->num_heads,
                          .d_head = s->d_head,
                          .bias = !s->no_bias,
                          .has_scale = s->has_scale,
                          .scale = s->scale,
                          .rope = s->rope,
                          .num_kv_heads = s->num_kv_heads,
                          .kernel = c->kernel,
                          .max_threads = 1},
               .input = {.batch = s->batch,
                         .len_q = s->len_q,
                         .mask = c->mask,
                         .has_rope_position = s->has_rope_position,
                         .rope_position = s->rope_position,
                         .rope_key_position = s->rope_key_position},
               .num_query = s->batch * s->len_q * s->d_model,
               .seed = seed};
    l.num_params = attn_mha_num_params(&l.config);
    if (s->cross) {
        l.input.len_k = s->len_k;
        l.num_key = s->batch * s->len_k * s->d_model;
    }
    return l;
}

attn_status check_layer(check_outcome *outcome, const check_case *c, uint64_t seed) {
    layer l = layer_of(c, seed);
    size_t count = l.num_params + l.num_query + 2 * l.num_key;
    attn_real *x = tool_alloc(count + 2 * l.num_query, sizeof *x);
    attn_random random = attn_random_seed(seed, 1);
    for (size_t i = 0; i < count; i++)
        x[i] = 0.7 * attn_random_normal(&random);
    l.y = x + count;
    l.dy = l.y + l.num_query;
    l.input.query = x + l.num_params;
    if (c->shape->cross) {
        l.input.key = l.input.query + l.num_query;
        l.input.value = l.input.key + l.num_key;
    }
    list_tensors(outcome, &l);
    attn_memory need;
    attn_status status = attn_mha_memory(&l.config, &l.input, &need);
    if (status == ATTN_OK)
        status = attn_arena_create(&l.arena, need.training);
    double value;
    if (status == ATTN_OK)
        status = run_layer(&l, x, &value, NULL);
    if (status == ATTN_OK)
        status =
            check_run(outcome, run_layer, &l, x, count, check_magnitude(l.y, l.dy, l.num_query));
    attn_arena_destroy(&l.arena);
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

bool check_failed(const attn_gradcheck_tensor_report *report) {
    return report->result != ATTN_GRADCHECK_PASSED && report->result != ATTN_GRADCHECK_VACUOUS;
}
