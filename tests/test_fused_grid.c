/* How the fused path cuts its work: heads that share keys and values, ranges of queries and keys,
 * windows that few of the blocks meet. Results equal plain loops, and have the same bits on any
 * number of threads. */
#include "problem.h"
#include "threads.h"

static const struct {
    attn_shape shape;
    mask_plan plan;
} cases[] = {
    {{1, 4, 530, 530, 8, 2}, {.causal = true}},
    {{1, 6, 70, 1300, 5, 1}, {.padding = true}},
    {{2, 4, 600, 700, 4, 4}, {.causal = true, .window = {.left_on = true, .left = 99}}},
    {{1, 3, 1100, 800, 3, 1}, {.causal = true, .window = {.left_on = true, .left = 255}}},
    {{1, 2, 800, 1100, 4, 1},
     {.align = ATTN_CAUSAL_TOP_LEFT,
      .window = {.left_on = true, .right_on = true, .left = 30, .right = 70}}},
    {{1, 1, 1300, 1000, 3, 1},
     {.align = ATTN_CAUSAL_OFFSET,
      .offset = -700,
      .window = {.left_on = true, .right_on = true, .left = 5, .right = 300}}},
    {{1, 1, 600, 600, 3, 1},
     {.align = ATTN_CAUSAL_OFFSET, .offset = 700, .window = {.left_on = true, .left = 7}}},
};

enum { CASES = sizeof cases / sizeof *cases };

#define CLOSE(name, tensor, expected)                           \
    (snprintf(line, sizeof line, "%s of case %zu, %s", name, n, \
              attn_isa_name(attn_isa_current())),               \
     tensor_check(line, tensor, expected, 64 * TEST_EPSILON, 64 * TEST_EPSILON))

static void run_case(size_t n) {
    attn_sdpa_config config = {.kernel = ATTN_KERNEL_FUSED, .max_threads = 1};
    problem p = problem_make(cases[n].shape, (layout)(n % LAYOUT_COUNT), &cases[n].plan, n);
    problem_run(&config, &p);
    oracle want = oracle_run(&config, &p.in, p.d_o.data, p.d_o.strides);
    char line[96];
    CLOSE("o", &p.o, want.o);
    CLOSE("dq", &p.dq, want.dq);
    CLOSE("dk", &p.dk, want.dk);
    CLOSE("dv", &p.dv, want.dv);
    oracle_free(&want);
    for (size_t t = 1; t < sizeof test_thread_counts / sizeof *test_thread_counts; t++) {
        problem again = problem_make(cases[n].shape, (layout)(n % LAYOUT_COUNT), &cases[n].plan, n);
        const tensor *const first[] = {&p.o, &p.dq, &p.dk, &p.dv};
        const tensor *const other[] = {&again.o, &again.dq, &again.dk, &again.dv};
        config.max_threads = (size_t)test_thread_counts[t];
        problem_run(&config, &again);
        for (size_t i = 0; i < 4; i++)
            ck_assert_mem_eq(first[i]->block, other[i]->block,
                             first[i]->size * sizeof *first[i]->block);
        problem_free(&again);
    }
    problem_free(&p);
}

START_TEST(ranges_and_groups) {
    const attn_isa isa = (attn_isa)(_i / CASES);
    if (attn_isa_available(isa) && attn_isa_select(attn_isa_name(isa)) == ATTN_OK)
        run_case((size_t)_i % CASES);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fused_grid");
    TCase *tests = tcase_create("fused_grid");
    tcase_add_loop_test(tests, ranges_and_groups, 0, (int)ATTN_ISA_COUNT * CASES);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
