/* Scaled dot-product attention through its public calls, both paths by name, against plain loops.
 */
#include "problem.h"

#define TOLERANCE (64 * TEST_EPSILON)

static const mask_plan plans[] = {
    {0},
    {.padding = true},
    {.attend_rank = 2},
    {.attend_rank = 2, .attend_ones = 1},
    {.attend_rank = 2, .attend_ones = 2},
    {.attend_rank = 2, .attend_ones = 3},
    {.attend_rank = 3},
    {.attend_rank = 3, .attend_ones = 2},
    {.attend_rank = 4},
    {.attend_rank = 4, .attend_ones = 4},
    {.attend_rank = 4, .attend_ones = 8},
    {.attend_rank = 4, .block_row = true},
    {.causal = true},
    {.causal = true, .align = ATTN_CAUSAL_TOP_LEFT},
    {.causal = true, .align = ATTN_CAUSAL_OFFSET, .offset = 3},
    {.causal = true, .align = ATTN_CAUSAL_OFFSET, .offset = -2},
    {.causal = true, .align = ATTN_CAUSAL_OFFSET, .offset = INT64_MIN},
    {.causal = true, .align = ATTN_CAUSAL_OFFSET, .offset = INT64_MAX},
    {.padding = true, .attend_rank = 4, .causal = true},
    {.padding = true,
     .attend_rank = 3,
     .attend_ones = 4,
     .causal = true,
     .offset = -1,
     .align = ATTN_CAUSAL_OFFSET,
     .block_row = true},
};

static const attn_shape shapes[] = {
    {1, 1, 1, 1, 1},   {2, 2, 2, 5, 1},   {2, 3, 5, 2, 3},      {1, 2, 9, 9, 8},
    {2, 2, 17, 33, 7}, {1, 1, 130, 5, 4}, {1, 3, 129, 131, 63}, {3, 1, 1, 65, 80},
};

static void run(const attn_sdpa_config *config, problem *p, attn_arena *arena) {
    attn_sdpa_saved saved;
    test_ok(attn_sdpa_forward(config, &p->in, &p->out, arena, &saved));
    test_ok(attn_sdpa_backward(config, &saved, p->d_o.data, &p->d_o.strides, &p->grads, arena));
}

static void check_against_oracle(attn_kernel kernel, double scale, attn_shape shape, layout form,
                                 const mask_plan *plan, uint64_t seed) {
    attn_sdpa_config config = {.kernel = kernel, .has_scale = scale != 0, .scale = scale};
    problem p = problem_make(shape, form, plan, seed);
    oracle want = oracle_run(&p.in, scale != 0 ? scale : attn_default_scale(shape.d_head),
                             p.d_o.data, p.d_o.strides);
    attn_memory need;
    test_ok(attn_sdpa_memory(&config, &p.in, &p.out, &need));
    attn_arena arena = test_arena(need.training);
    run(&config, &p, &arena);
    const struct {
        const char *name;
        const tensor *got;
        const attn_real *want;
    } results[] = {{"o", &p.o, want.o},
                   {"dq", &p.dq, want.dq},
                   {"dk", &p.dk, want.dk},
                   {"dv", &p.dv, want.dv}};
    char what[200];
    for (size_t n = 0; n < 4; n++) {
        snprintf(what, sizeof what,
                 "%s: kernel %d, plan %td, layout %d, seed %llu, B%zu H%zu Lq%zu Lk%zu d%zu",
                 results[n].name, (int)kernel, plan - plans, (int)form, (unsigned long long)seed,
                 shape.batch, shape.num_heads, shape.len_q, shape.len_k, shape.d_head);
        tensor_check(what, results[n].got, results[n].want, TOLERANCE, TOLERANCE);
    }
    test_close("lse", p.lse, want.lse, shape.batch * shape.num_heads * shape.len_q, TOLERANCE,
               TOLERANCE);
    attn_arena_destroy(&arena);
    oracle_free(&want);
    problem_free(&p);
}

/* Values, gradients and log-sum-exp of every mask kind, shape and layout; reads or writes outside
 * the tensors meet NaN. */
START_TEST(equals_plain_loops) {
    for (size_t m = 0; m < sizeof plans / sizeof *plans; m++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int form = 0; form < LAYOUT_COUNT; form++)
                check_against_oracle((attn_kernel)_i, s % 3 == 0 ? -0.7 : 0, shapes[s],
                                     (layout)form, &plans[m], 100 * m + s);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("sdpa");
    TCase *tests = tcase_create("sdpa");
    tcase_add_loop_test(tests, equals_plain_loops, ATTN_KERNEL_REFERENCE, ATTN_KERNEL_FUSED + 1);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
