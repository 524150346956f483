/* How the fused path cuts its work: heads that share keys, values or a bias, ranges of queries and
 * keys, windows that few of the blocks meet. Results equal plain loops, and have the same bits on
 * any number of threads. */
#include "terms.h"
#include "threads.h"

static const struct {
    attn_shape shape;
    mask_plan masks;
    term_plan terms;
} cases[] = {
    {{1, 4, 530, 530, 8, 2}, {.causal = true}, {.sinks = true}},
    {{1, 6, 70, 1300, 5, 1}, {.padding = true}, {.alibi = true, .slopes = true}},
    {{2, 4, 600, 700, 4, 4}, {.causal = true, .window = {.left_on = true, .left = 99}}, {0}},
    {{1, 3, 1100, 800, 3, 1}, {.causal = true, .window = {.left_on = true, .left = 255}}, {0}},
    {{1, 2, 800, 1100, 4, 1},
     {.align = ATTN_CAUSAL_TOP_LEFT,
      .window = {.left_on = true, .right_on = true, .left = 30, .right = 70}},
     {0}},
    {{1, 1, 1300, 1000, 3, 1},
     {.align = ATTN_CAUSAL_OFFSET,
      .offset = -700,
      .window = {.left_on = true, .right_on = true, .left = 5, .right = 300}},
     {0}},
    {{1, 1, 600, 600, 3, 1},
     {.align = ATTN_CAUSAL_OFFSET, .offset = 700, .window = {.left_on = true, .left = 7}},
     {0}},
    /* one query in each head of a group: the group is one head, unless its heads differ */
    {{2, 12, 1, 150, 5, 3}, {.causal = true, .window = {.left_on = true, .left = 77}}, {0}},
    {{1, 40, 1, 70, 4, 1}, {.padding = true}, {.bias_rank = 4}},
    {{2, 6, 1, 140, 9, 2}, {.attend_rank = 4}, {.bias_rank = 2, .softcap = 3}},
    {{2, 6, 1, 140, 9, 2},
     {.align = ATTN_CAUSAL_OFFSET,
      .offset = 90,
      .attend_rank = 2,
      .padding = true,
      .window = {.left_on = true, .right_on = true, .left = 30, .right = 40}},
     {.bias_rank = 4, .bias_ones = 4}},
    {{2, 6, 1, 140, 9, 2},
     {.align = ATTN_CAUSAL_OFFSET, .offset = 200, .window = {.left_on = true, .left = 30}},
     {0}},
    {{1, 6, 1, 140, 9, 2}, {.causal = true}, {.alibi = true}},
    {{1, 6, 1, 140, 9, 2}, {.causal = true}, {.sinks = true, .dropout = 0.2}},
    /* a bias (Lq,Lk), (1,Lk), (Lq,1), (1,1), (B,1,Lq,Lk), (1,H,Lq,Lk), (B,H,Lq,Lk) */
    {{2, 4, 530, 600, 3, 2}, {.causal = true}, {.bias_rank = 2}},
    {{2, 2, 530, 530, 3}, {0}, {.bias_rank = 2, .bias_ones = 1, .alibi = true}},
    {{2, 2, 530, 530, 3}, {.causal = true}, {.bias_rank = 2, .bias_ones = 2, .sinks = true}},
    {{1, 2, 530, 530, 3}, {.causal = true}, {.bias_rank = 2, .bias_ones = 3}},
    {{2, 4, 530, 530, 3, 2}, {0}, {.bias_rank = 4, .bias_ones = 4}},
    {{2, 4, 600, 530, 3, 1}, {.causal = true}, {.bias_rank = 4, .bias_ones = 8}},
    {{1, 4, 530, 530, 3, 2},
     {.causal = true, .window = {.left_on = true, .left = 60}},
     {.softcap = 2, .bias_rank = 4, .alibi = true, .sinks = true, .dropout = 0.1}},
};

enum { CASES = sizeof cases / sizeof *cases };

static term_problem make_case(size_t n, size_t threads) {
    term_problem p =
        terms_make(cases[n].shape, (layout)(n % LAYOUT_COUNT), &cases[n].masks, &cases[n].terms, n);
    p.config.kernel = ATTN_KERNEL_FUSED;
    p.config.max_threads = threads;
    return p;
}

static void check_bits(const char *what, const attn_real *first, const attn_real *again,
                       size_t count) {
    for (size_t n = 0; first && n < count; n++)
        if (memcmp(first + n, again + n, sizeof *first) != 0)
            ck_abort_msg("%s, element %zu: %.17g and %.17g", what, n, (double)first[n],
                         (double)again[n]);
}

static void run_case(size_t n) {
    term_problem p = make_case(n, 1);
    char what[96];
    snprintf(what, sizeof what, "case %zu, %s", n, attn_isa_name(attn_isa_current()));
    terms_check(what, &p, 512 * TEST_EPSILON);
    for (size_t t = 1; t < sizeof test_thread_counts / sizeof *test_thread_counts; t++) {
        term_problem again = make_case(n, (size_t)test_thread_counts[t]);
        problem_run(&again.config, &again.base);
        const tensor *const first[] = {&p.base.o, &p.base.dq, &p.base.dk, &p.base.dv};
        const tensor *const other[] = {&again.base.o, &again.base.dq, &again.base.dk,
                                       &again.base.dv};
        for (size_t i = 0; i < 4; i++)
            check_bits("o, dq, dk, dv", first[i]->block, other[i]->block, first[i]->size);
        check_bits("dbias", p.dbias, again.dbias, p.bias_count);
        check_bits("dslopes", p.dslopes, again.dslopes, p.base.shape.num_heads);
        check_bits("dsinks", p.dsinks, again.dsinks, p.base.shape.num_heads);
        terms_free(&again);
    }
    terms_free(&p);
}

START_TEST(ranges_and_groups) {
    const attn_isa isa = (attn_isa)(_i / CASES);
    if (attn_isa_available(isa) && attn_isa_select(attn_isa_name(isa)) == ATTN_OK)
        run_case((size_t)_i % CASES);
}
END_TEST

/* dO of a row that sees no key does not reach the sink. */
START_TEST(sink_of_a_blocked_row) {
    const mask_plan masks = {.attend_rank = 2, .block_row = true};
    const term_plan terms = {.sinks = true};
    attn_real dsinks[2];
    for (int poisoned = 0; poisoned < 2; poisoned++) {
        term_problem p = terms_make((attn_shape){1, 1, 5, 7, 4}, BTHD, &masks, &terms, 3);
        p.config.kernel = (attn_kernel)_i;
        if (poisoned)
            tensor_row(&p.base.d_o, 0, 0)[1] = (attn_real)NAN;
        problem_run(&p.config, &p.base);
        dsinks[poisoned] = p.dsinks[0];
        terms_free(&p);
    }
    ck_assert_msg(dsinks[0] != 0 && dsinks[0] == dsinks[1], "%g, with NaN %g", (double)dsinks[0],
                  (double)dsinks[1]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fused_grid");
    TCase *tests = tcase_create("fused_grid");
    tcase_add_loop_test(tests, ranges_and_groups, 0, (int)ATTN_ISA_COUNT * CASES);
    tcase_add_loop_test(tests, sink_of_a_blocked_row, ATTN_KERNEL_REFERENCE, ATTN_KERNEL_FUSED + 1);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
