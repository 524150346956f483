/* Every element of every gradient of the layer against central differences, over a table of
 * configurations: 1e-7 in double. */
#include "mha_fixture.h"

static const mha_case cases[] = {
    {"one token", SIZES(2, 1, 0, 4, 2, 0)},
    {"self", SIZES(2, 4, 0, 6, 2, 0)},
    {"self, causal", SIZES(2, 5, 0, 6, 3, 0), .causal = true},
    {"self, wide heads", SIZES(1, 4, 0, 4, 2, 5), .causal = true},
    {"self, narrow heads", SIZES(2, 3, 0, 7, 3, 1)},
    {"self, padded", SIZES(3, 4, 0, 4, 2, 0), .padded = 1},
    {"self, one sample wholly padded", SIZES(2, 4, 0, 4, 2, 0), .padded = 2, .causal = true},
    {"self, attend (Lq,Lk)", SIZES(2, 4, 0, 4, 2, 0), .attend_rank = 2},
    {"self, attend (B,H,Lq,Lk)", SIZES(2, 4, 0, 4, 2, 0), .attend_rank = 4},
    {"self, all masks", SIZES(2, 6, 0, 4, 2, 0), .causal = true, .padded = 1, .attend_rank = 3},
    {"cross, more keys", SIZES(2, 3, 5, 6, 2, 0)},
    {"cross, fewer keys, causal", SIZES(2, 5, 3, 6, 2, 0), .causal = true},
    {"cross, causal top left", SIZES(1, 4, 6, 4, 2, 3), .causal = true,
     .align = ATTN_CAUSAL_TOP_LEFT},
    {"cross, all masks", SIZES(2, 4, 5, 4, 2, 0), .causal = true, .padded = 2, .attend_rank = 4},
    {"no biases", SIZES(2, 4, 3, 6, 2, 0), .without = NO_BQ | NO_BK | NO_BV | NO_BO},
    {"no bk and bo", SIZES(2, 4, 0, 6, 2, 0), .without = NO_BK | NO_BO},
    {"scale 0.9", SIZES(2, 4, 0, 6, 2, 0), .has_scale = true, .scale = 0.9},
    {"scale -1.2", SIZES(2, 4, 0, 6, 2, 0), .has_scale = true, .scale = -1.2},
    {"rope, interleaved", SIZES(2, 4, 0, 4, 2, 0), .rope = ATTN_ROPE_INTERLEAVED, .causal = true},
    {"rope, half", SIZES(2, 3, 0, 6, 2, 4), .rope = ATTN_ROPE_HALF, .padded = 1},
    {"rope, half, positions", SIZES(1, 3, 4, 4, 2, 0), .rope = ATTN_ROPE_HALF, .rope_base = 20,
     .has_rope_position = true, .rope_position = -2, .rope_key_position = 5},
    {"rope, interleaved, more keys", SIZES(2, 2, 4, 4, 2, 0), .rope = ATTN_ROPE_INTERLEAVED,
     .causal = true, .without = NO_BK},
    {"4 heads over 2, window", SIZES(2, 5, 0, 5, 4, 2), .num_kv_heads = 2, .causal = true,
     .window = {.left_on = true, .left = 1}},
    {"cross, 3 heads over 1, padded", SIZES(2, 3, 4, 6, 3, 0), .num_kv_heads = 1, .padded = 1},
    {"window to both sides", SIZES(2, 5, 0, 4, 2, 0),
     .window = {.left_on = true, .right_on = true, .left = 1, .right = 2}},
    {"softcap", SIZES(2, 4, 0, 4, 2, 0), .softcap = 1.1, .causal = true},
    {"bias (Lq,Lk)", SIZES(2, 4, 0, 4, 2, 0), .bias_rank = 2},
    {"cross, bias (B,H,Lq,Lk), padded", SIZES(2, 3, 4, 4, 2, 0), .bias_rank = 4, .padded = 1},
    {"ALiBi", SIZES(2, 4, 0, 6, 3, 0), .alibi = true, .causal = true},
    {"learnt slopes", SIZES(2, 4, 3, 4, 2, 0), .alibi = true, .alibi_learned = true},
    {"sinks", SIZES(2, 4, 0, 4, 2, 0), .sinks = true, .causal = true},
    {"dropout", SIZES(2, 5, 0, 4, 2, 0), .dropout = 0.4, .causal = true},
    {"everything", SIZES(2, 5, 6, 5, 4, 2), .num_kv_heads = 2, .causal = true, .padded = 1,
     .rope = ATTN_ROPE_HALF, .window = {.left_on = true, .left = 3}, .softcap = 2, .alibi = true,
     .alibi_learned = true, .sinks = true, .bias_rank = 3, .dropout = 0.3},
};
enum { NUM_CASES = sizeof cases / sizeof *cases };

/* The variables of the check, one after the other: parameters, then inputs. */
static size_t num_variables(const mha_run *run) {
    return run->num_params + run->size_q + (run->x_k ? 2 * run->size_k : 0) + run->size_bias;
}

/* Sends the run's parameters and inputs, or its gradients, to their places in one array. */
static void place(mha_run *run, attn_real *x, attn_real *gradient) {
    const size_t query = run->num_params, key = query + run->size_q, value = key + run->size_k;
    const size_t bias = num_variables(run) - run->size_bias;
    const attn_mha_params was = run->w;
    run->w = attn_mha_params_view(&run->cfg, x);
    run->dw = attn_mha_params_view(&run->cfg, gradient);
    if (!was.bq)
        run->w.bq = run->dw.bq = NULL;
    if (!was.bk)
        run->w.bk = run->dw.bk = NULL;
    if (!was.bv)
        run->w.bv = run->dw.bv = NULL;
    if (!was.bo)
        run->w.bo = run->dw.bo = NULL;
    run->in.query = x + query;
    run->dx.query = gradient ? gradient + query : NULL;
    if (run->bias) {
        run->in.bias = x + bias;
        run->dx.bias = gradient ? gradient + bias : NULL;
    }
    if (run->x_k) {
        run->in.key = x + key;
        run->in.value = x + value;
        run->dx.key = gradient ? gradient + key : NULL;
        run->dx.value = gradient ? gradient + value : NULL;
    }
}

/* The sum of y ∘ r for a fixed random r, and its gradient. Only a forward that saves drops weights.
 */
static attn_status projected_layer(void *user, const attn_real *x, double *value,
                                   attn_real *gradient) {
    mha_run *run = user;
    attn_status status;
    place(run, (attn_real *)x, gradient);
    attn_arena_reset(&run->arena);
    attn_mha_saved *saved = gradient || run->cfg.dropout > 0 ? &run->saved : NULL;
    status = attn_mha_forward(&run->cfg, &run->w, &run->in, run->y, &run->arena, saved);
    if (status == ATTN_OK)
        status = attn_gradcheck_project(value, run->dy, run->y, run->size_q, 99);
    if (status != ATTN_OK || !gradient)
        return status;
    memset(gradient, 0, run->num_params * sizeof *gradient);
    return attn_mha_backward(&run->cfg, &run->w, &run->saved, run->dy, &run->dw, &run->dx,
                             &run->arena);
}

START_TEST(every_gradient_is_the_gradient) {
    mha_case c = cases[_i % NUM_CASES];
    c.kernel = mha_kernels[_i / NUM_CASES];
    mha_run run = mha_setup(&c, 300 + (uint64_t)_i % NUM_CASES);
    const size_t matrix = run.d_inner * c.d_model, kv = run.d_kv * c.d_model, d = run.d_inner;
    const size_t biases = 2 * (matrix + kv), inputs = run.num_params, n = num_variables(&run);
    const size_t heads = biases + d + 2 * run.d_kv + c.d_model;
    attn_gradcheck_tensor tensors[14] = {{"wq", 0, matrix},
                                         {"wk", matrix, kv},
                                         {"wv", matrix + kv, kv},
                                         {"wo", matrix + 2 * kv, matrix},
                                         {"bq", biases, d},
                                         {"bk", biases + d, run.d_kv},
                                         {"bv", biases + d + run.d_kv, run.d_kv},
                                         {"bo", biases + d + 2 * run.d_kv, c.d_model}};
    size_t count = 8;
    if (c.sinks)
        tensors[count++] = (attn_gradcheck_tensor){"sinks", heads, c.num_heads};
    if (c.alibi_learned)
        tensors[count++] =
            (attn_gradcheck_tensor){"slopes", run.num_params - c.num_heads, c.num_heads};
    tensors[count++] = (attn_gradcheck_tensor){"query", inputs, run.size_q};
    if (run.x_k) {
        const size_t key = inputs + run.size_q;
        tensors[count++] = (attn_gradcheck_tensor){"key", key, run.size_k};
        tensors[count++] = (attn_gradcheck_tensor){"value", key + run.size_k, run.size_k};
    }
    if (run.bias)
        tensors[count++] = (attn_gradcheck_tensor){"bias", n - run.size_bias, run.size_bias};
    attn_real *x = test_poison(n);
    memcpy(x, run.theta, run.num_params * sizeof *x);
    memcpy(x + inputs, run.x_q, run.size_q * sizeof *x);
    if (run.x_k) {
        memcpy(x + inputs + run.size_q, run.x_k, run.size_k * sizeof *x);
        memcpy(x + inputs + run.size_q + run.size_k, run.x_v, run.size_k * sizeof *x);
    }
    if (run.bias)
        memcpy(x + n - run.size_bias, run.bias, run.size_bias * sizeof *x);
    attn_gradcheck_problem problem = {.function = projected_layer,
                                      .user = &run,
                                      .x = x,
                                      .count = n,
                                      .tensors = tensors,
                                      .num_tensors = count};
    attn_gradcheck_report report;
    attn_memory scratch;
    test_ok(attn_mha_memory(&run.cfg, &run.in, &run.need));
    run.arena = test_arena(run.need.training);
    test_ok(attn_gradcheck_memory(&problem, NULL, &scratch));
    attn_arena arena = test_arena(scratch.inference);
    test_ok(attn_gradcheck_run(&report, NULL, &problem, NULL, &arena));
    ck_assert_msg(report.result == ATTN_GRADCHECK_PASSED,
                  "%s, kernel %d: %s; %s[%zu] claimed %.12g, measured %.12g, error %.3g", c.name,
                  (int)c.kernel, report.reason, tensors[report.worst_tensor].name,
                  report.worst.worst, report.worst.claimed, report.worst.measured,
                  report.worst.error);
    ck_assert_uint_eq(report.checked, n);
#ifdef ATTN_DOUBLE
    ck_assert_double_le(report.tolerance, 1e-7);
#endif
    free(x);
    attn_arena_destroy(&arena);
    mha_free(&run);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mha_gradients");
    TCase *tests = tcase_create("gradients");
    tcase_add_loop_test(tests, every_gradient_is_the_gradient, 0, NUM_CASES * mha_num_kernels());
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
