/* Keys and values projected once and attended to by several calls: the numbers and the gradients of
 * calls that project them each time. */
#include "mha_fixture.h"

#ifdef ATTN_DOUBLE
static const double tolerance = 1e-13;
#else
static const double tolerance = 1e-5;
#endif

static const mha_case cases[] = {
    {"plain", SIZES(2, 5, 7, 8, 2, 0)},
    {"padded, sinks", SIZES(3, 5, 7, 8, 2, 0), .padded = 1, .sinks = true},
    {"grouped, rope", SIZES(2, 5, 7, 8, 4, 0), .num_kv_heads = 2, .rope = ATTN_ROPE_HALF,
     .has_rope_position = true, .rope_position = 3, .rope_key_position = -2},
    {"no bk, wide heads, rope", SIZES(1, 5, 90, 6, 3, 4), .without = NO_BK,
     .rope = ATTN_ROPE_INTERLEAVED, .has_rope_position = true},
    {"big enough for threads", SIZES(2, 40, 70, 96, 3, 0), .max_threads = 2},
};
enum { NUM_CASES = sizeof cases / sizeof *cases };

/* What a call is given instead of keys and values, and where their gradients gather. */
typedef struct memory {
    attn_mha_input input;
    size_t n;
    attn_real *k, *v, *dk, *dv;
} memory;

static memory project(const mha_run *run) {
    memory m = {.input = {.batch = run->in.batch,
                          .len_k = run->in.len_k,
                          .key = run->x_k,
                          .value = run->x_v,
                          .rope_key_position = run->in.rope_key_position},
                .n = run->in.batch * run->len_k * run->d_kv};
    m.k = test_poison(m.n);
    m.v = test_poison(m.n);
    m.dk = test_normal(m.n, 0, 1);
    m.dv = test_normal(m.n, 0, 1);
    test_ok(attn_mha_keys_forward(&run->cfg, &run->w, &m.input, m.k, m.v));
    return m;
}

static void free_memory(memory *m) {
    free(m->k);
    free(m->v);
    free(m->dk);
    free(m->dv);
}

/* Queries first .. first + count - 1 of every sample: inference, a step of training, and the share
 * of dx_q. They are copied out of (B,Lq,D), for a call takes whole samples. */
static void attend(mha_run *run, const memory *m, attn_real *y, size_t first, size_t count) {
    const size_t d = run->cfg.d_model, row = run->in.len_q * d, n = count * d;
    attn_real *x = test_poison(run->in.batch * n), *dy = test_poison(run->in.batch * n);
    attn_real *part = test_poison(run->in.batch * n), *dx = test_poison(run->in.batch * n);
    attn_mha_input in = run->in;
    attn_mha_saved saved;
    attn_memory need;
    for (size_t b = 0; b < run->in.batch; b++) {
        memcpy(x + b * n, run->x_q + b * row + first * d, n * sizeof *x);
        memcpy(dy + b * n, run->dy + b * row + first * d, n * sizeof *x);
    }
    in.len_q = count;
    in.query = x;
    in.key = in.value = NULL;
    in.projected_key = m->k;
    in.projected_value = m->v;
    in.rope_position += (int64_t)first;
    test_ok(attn_mha_memory(&run->cfg, &in, &need));
    attn_arena arena = test_arena(need.training);
    test_ok(attn_mha_forward(&run->cfg, &run->w, &in, part, &arena, NULL));
    ck_assert_uint_eq(arena.used, 0);
    ck_assert_uint_eq(arena.high_water, need.inference);
    for (size_t b = 0; b < run->in.batch; b++)
        memcpy(y + b * row + first * d, part + b * n, n * sizeof *y);
    test_ok(attn_mha_forward(&run->cfg, &run->w, &in, dx, &arena, &saved));
    test_same_bits("training", dx, part, run->in.batch * n);
    ck_assert_uint_eq(arena.used, need.saved);
    ck_assert_ptr_eq(saved.k, m->k);
    const attn_mha_input_grads dinput = {
        .query = dx, .projected_key = m->dk, .projected_value = m->dv};
    test_ok(attn_mha_backward(&run->cfg, &run->w, &saved, dy, &run->dw, &dinput, &arena));
    ck_assert_uint_eq(arena.high_water, need.training);
    for (size_t b = 0; b < run->in.batch; b++)
        memcpy(run->dx_q + b * row + first * d, dx + b * n, n * sizeof *dx);
    attn_arena_destroy(&arena);
    free(x);
    free(dy);
    free(part);
    free(dx);
}

/* Two calls over one projection, and their gradients gathered, against one call that does it all.
 */
START_TEST(projected_once_for_many_calls) {
    mha_case c = cases[_i % NUM_CASES];
    c.kernel = mha_kernels[_i / NUM_CASES];
    mha_run want = mha_setup(&c, 80), run = mha_setup(&c, 80);
    attn_real *y = test_poison(run.size_q);
    mha_step(&want);
    memory m = project(&run);
    attend(&run, &m, y, 0, 2);
    attend(&run, &m, y, 2, c.len_q - 2);
    const attn_mha_input_grads dinput = {.key = run.dx_k, .value = run.dx_v};
    test_ok(attn_mha_keys_backward(&run.cfg, &run.w, &m.input, m.dk, m.dv, &run.dw, &dinput));
    test_close("y", y, want.y, run.size_q, tolerance, tolerance);
    test_close("dx_q", run.dx_q, want.dx_q, run.size_q, tolerance, tolerance);
    test_close("dx_k", run.dx_k, want.dx_k, run.size_k, tolerance, tolerance);
    test_close("dx_v", run.dx_v, want.dx_v, run.size_k, tolerance, tolerance);
    test_close("dparams", run.dtheta, want.dtheta, run.num_params, tolerance, tolerance);
    free_memory(&m);
    free(y);
    mha_free(&want);
    mha_free(&run);
}
END_TEST

/* One call with all queries has the bits of one that projects for itself. */
START_TEST(the_same_bits_as_projecting) {
    mha_case c = cases[_i];
    mha_run want = mha_setup(&c, 81), run = mha_setup(&c, 81);
    mha_step(&want);
    memory m = project(&run);
    attend(&run, &m, run.y, 0, c.len_q);
    test_same_bits("y", run.y, want.y, run.size_q);
    test_same_bits("dx_q", run.dx_q, want.dx_q, run.size_q);
    free_memory(&m);
    mha_free(&want);
    mha_free(&run);
}
END_TEST

static void refused(attn_status got, attn_status want, const char *words) {
    ck_assert_msg(got == want, "%s instead of %s: %s", attn_status_name(got),
                  attn_status_name(want), words);
    ck_assert_msg(strstr(attn_error_message(), words), "'%s' lacks '%s'", attn_error_message(),
                  words);
}

START_TEST(mistakes_are_refused) {
    mha_run run = mha_setup(&cases[0], 82);
    memory m = project(&run);
    attn_mha_input in = run.in;
    attn_memory need;
    const attn_mha_config *c = &run.cfg;
    in.projected_key = m.k;
    in.projected_value = m.v;
    refused(attn_mha_memory(c, &in, &need), ATTN_ERROR_ARGUMENT, "key beside projected_key");
    in.key = in.value = NULL;
    in.projected_value = NULL;
    refused(attn_mha_memory(c, &in, &need), ATTN_ERROR_ARGUMENT, "without projected_value");
    in.projected_value = m.v;
    test_ok(attn_mha_memory(c, &in, &need));
    run.arena = test_arena(need.training);
    test_ok(attn_mha_forward(c, &run.w, &in, run.y, &run.arena, &run.saved));
    attn_mha_input_grads dx = {.key = run.dx_k};
    refused(attn_mha_backward(c, &run.w, &run.saved, run.dy, NULL, &dx, &run.arena),
            ATTN_ERROR_ARGUMENT, "projected beforehand");
    dx = (attn_mha_input_grads){.projected_key = m.dk, .projected_value = m.dk};
    refused(attn_mha_backward(c, &run.w, &run.saved, run.dy, NULL, &dx, &run.arena),
            ATTN_ERROR_ARGUMENT, "different arrays");
    attn_arena_reset(&run.arena);

    attn_real *k = test_poison(m.n);
    attn_mha_params w = run.w;
    w.wv = NULL;
    refused(attn_mha_keys_forward(NULL, &run.w, &m.input, k, m.v), ATTN_ERROR_ARGUMENT, "config");
    refused(attn_mha_keys_forward(c, &w, &m.input, k, m.v), ATTN_ERROR_ARGUMENT, "params.wv");
    refused(attn_mha_keys_forward(c, &run.w, NULL, k, m.v), ATTN_ERROR_ARGUMENT, "input");
    refused(attn_mha_keys_forward(c, &run.w, &in, k, m.v), ATTN_ERROR_ARGUMENT, "projected_key");
    refused(attn_mha_keys_forward(c, &run.w, &m.input, NULL, m.v), ATTN_ERROR_ARGUMENT, "k is");
    refused(attn_mha_keys_forward(c, &run.w, &m.input, k, k), ATTN_ERROR_ARGUMENT, "one array");
    in = m.input;
    in.value = NULL;
    refused(attn_mha_keys_forward(c, &run.w, &in, k, m.v), ATTN_ERROR_ARGUMENT, "without value");
    in = m.input;
    in.key = in.value = NULL;
    refused(attn_mha_keys_forward(c, &run.w, &in, k, m.v), ATTN_ERROR_ARGUMENT, "input.key");
    attn_mha_params dw = run.dw;
    dw.wk = NULL;
    refused(attn_mha_keys_backward(c, &run.w, &m.input, m.dk, m.dv, &dw, NULL), ATTN_ERROR_ARGUMENT,
            "dparams.wk");
    dx = (attn_mha_input_grads){.key = run.dx_k, .value = run.dx_k};
    refused(attn_mha_keys_backward(c, &run.w, &m.input, m.dk, m.dv, NULL, &dx), ATTN_ERROR_ARGUMENT,
            "different arrays");
    for (size_t i = 0; i < m.n; i++)
        ck_assert(isnan(k[i]) && m.dk[i] == 0);
    for (size_t i = 0; i < run.num_params; i++)
        ck_assert(run.dtheta[i] == 0);

    attn_mha_input nothing = m.input; /* no keys: nothing to do, and nothing needed */
    nothing.len_k = 0;
    test_ok(attn_mha_keys_forward(c, &run.w, &nothing, NULL, NULL));
    free(k);
    free_memory(&m);
    mha_free(&run);
    run = mha_setup(&cases[0], 82);
    mha_step(&run);
    dx = (attn_mha_input_grads){.projected_key = run.dx_k};
    refused(attn_mha_backward(c, &run.w, &run.saved, run.dy, NULL, &dx, &run.arena),
            ATTN_ERROR_ARGUMENT, "projected keys and values itself");
    mha_free(&run);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mha_keys");
    TCase *tests = tcase_create("keys");
    tcase_add_loop_test(tests, projected_once_for_many_calls, 0, NUM_CASES * mha_num_kernels());
    tcase_add_loop_test(tests, the_same_bits_as_projecting, 0, NUM_CASES);
    tcase_add_test(tests, mistakes_are_refused);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
