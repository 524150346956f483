/* Softcap, bias, ALiBi, sinks and dropout through the core, on every path, against plain loops. */
#include "terms.h"
#include "threads.h"

#define TOLERANCE (256 * TEST_EPSILON)

static const attn_kernel paths[] = {ATTN_KERNEL_REFERENCE, ATTN_KERNEL_FUSED};

/* A place of 2^63 times a slope leaves no digits of the score. */
static bool is_far(const mask_plan *masks) {
    return masks->align == ATTN_CAUSAL_OFFSET &&
           (masks->offset == INT64_MIN || masks->offset == INT64_MAX);
}

/* Runs one problem. */
static void check(const char *what, attn_kernel kernel, attn_shape s, layout form,
                  const mask_plan *masks, const term_plan *plan, uint64_t seed, size_t threads) {
    if (plan->alibi && is_far(masks))
        masks = &problem_plans[0];
    term_problem p = terms_make(s, form, masks, plan, seed);
    p.config.kernel = kernel;
    p.config.max_threads = threads;
    terms_check(what, &p, TOLERANCE);
    terms_free(&p);
}

/* Every term and some together, over shapes, layouts and masks in turn. */
START_TEST(equals_plain_loops) {
    static const attn_shape shapes[] = {{1, 1, 1, 1, 1},      {2, 2, 2, 5, 1}, {2, 3, 5, 2, 3},
                                        {2, 2, 17, 33, 7},    {1, 2, 9, 9, 8}, {1, 1, 130, 5, 4},
                                        {1, 3, 129, 131, 17}, {3, 1, 1, 65, 8}};
    for (size_t t = 0; t < TERMS; t++)
        for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
            for (size_t m = 0; m<PLANS; m += shapes[n].len_q> 100 ? 6 : 1) {
                char what[64];
                snprintf(what, sizeof what, "terms %zu, masks %zu", t, m);
                check(what, paths[_i], shapes[n], (layout)((t + m + n) % LAYOUT_COUNT),
                      &problem_plans[m], &problem_terms[t], 100 * t + 10 * n + m, 1 + n % 3);
            }
}
END_TEST

/* The same with windows, and with heads that share keys and values. */
START_TEST(groups_and_windows) {
    static const attn_shape shapes[] = {
        {2, 6, 5, 9, 4, 3}, {1, 6, 131, 70, 7, 2}, {2, 6, 9, 70, 3, 1}};
    for (size_t t = 0; t < TERMS; t++)
        for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
            const mask_plan *masks = &problem_windows[(3 * t + n) % WINDOWS];
            char what[64];
            snprintf(what, sizeof what, "terms %zu, window %d", t, (int)(masks - problem_windows));
            check(what, paths[_i], shapes[n], (layout)(n % LAYOUT_COUNT), masks, &problem_terms[t],
                  t, 2);
        }
}
END_TEST

/* NaN in rows of q, k, v and dO reaches the results that may see them, through every term. */
START_TEST(nan_spreads_as_far_as_it_may) {
    for (size_t t = 0; t < TERMS; t++)
        for (size_t m = 1; m < PLANS; m += 3) {
            term_problem p = terms_make((attn_shape){2, 2, 70, 75, 5}, BTHD, &problem_plans[m],
                                        &problem_terms[t], 10 * t + m);
            p.config.kernel = paths[_i];
            tensor *const operands[4] = {&p.base.q, &p.base.k, &p.base.v, &p.base.d_o};
            tensor_row(operands[m % 4], 1, 3)[0] = (attn_real)NAN;
            tensor_row(operands[m / 3 % 4], 2, 68)[4] = (attn_real)NAN;
            char what[64];
            snprintf(what, sizeof what, "NaN, terms %zu, masks %zu", t, m);
            if (p.config.dropout == 0)
                terms_check(what, &p, TOLERANCE);
            terms_free(&p);
        }
}
END_TEST

/* The same bits for any number of threads. */
START_TEST(threads_change_no_bit) {
    const attn_shape s = {2, 6, 140, 131, 16, 3};
    for (size_t t = 0; t < TERMS; t++) {
        attn_real *first[4] = {0};
        for (size_t threads = 1; threads < 5; threads += threads) {
            term_problem p = terms_make(s, BTHD, &problem_plans[12], &problem_terms[t], t);
            p.config.kernel = paths[_i];
            p.config.max_threads = threads;
            problem_run(&p.config, &p.base);
            const struct {
                attn_real *data;
                size_t count;
            } all[4] = {{p.dbias, p.dbias ? p.bias_count : 0},
                        {p.dsinks, p.dsinks ? 6 : 0},
                        {p.dslopes, p.dslopes ? 6 : 0},
                        {p.base.dk.block, p.base.dk.size}};
            for (size_t n = 0; n < 4; n++)
                if (threads == 1) {
                    first[n] = test_poison(all[n].count);
                    for (size_t e = 0; e < all[n].count; e++)
                        first[n][e] = all[n].data[e];
                } else if (all[n].count > 0) {
                    ck_assert_mem_eq(all[n].data, first[n], all[n].count * sizeof(attn_real));
                }
            terms_free(&p);
        }
        for (size_t n = 0; n < 4; n++)
            free(first[n]);
    }
}
END_TEST

/* A gradient that is not wanted changes no other. */
START_TEST(gradients_in_part) {
    const term_plan plan = problem_terms[TERMS - 1];
    term_problem p = terms_make((attn_shape){2, 2, 33, 40, 6}, BTHD, &problem_plans[12], &plan, 3);
    p.config.kernel = paths[_i];
    problem_run(&p.config, &p.base);
    attn_real *const arrays[6] = {p.base.dq.block, p.base.dk.block, p.base.dv.block,
                                  p.dbias,         p.dslopes,       p.dsinks};
    const size_t counts[6] = {p.base.dq.size, p.base.dk.size, p.base.dv.size, p.bias_count, 2, 2};
    attn_real *first[6];
    for (size_t n = 0; n < 6; n++) {
        first[n] = test_poison(counts[n]);
        memcpy(first[n], arrays[n], counts[n] * sizeof(attn_real));
    }
    const attn_sdpa_grads grads = p.base.grads;
    for (unsigned wanted = 0; wanted < 64; wanted++) {
        for (size_t n = 0; n < 6; n++)
            for (size_t e = 0; e < counts[n]; e++)
                arrays[n][e] = (attn_real)NAN;
        p.base.grads = grads;
        p.base.grads.query = wanted & 1 ? grads.query : NULL;
        p.base.grads.key = wanted & 2 ? grads.key : NULL;
        p.base.grads.value = wanted & 4 ? grads.value : NULL;
        p.base.grads.bias = wanted & 8 ? grads.bias : NULL;
        p.base.grads.alibi_slopes = wanted & 16 ? grads.alibi_slopes : NULL;
        p.base.grads.sinks = wanted & 32 ? grads.sinks : NULL;
        attn_memory need;
        attn_sdpa_saved saved;
        test_ok(attn_sdpa_memory(&p.config, &p.base.in, &p.base.out, &need));
        attn_arena arena = test_arena(need.training);
        test_ok(attn_sdpa_forward(&p.config, &p.base.in, &p.base.out, &arena, &saved));
        test_ok(attn_sdpa_backward(&p.config, &saved, p.base.d_o.data, &p.base.d_o.strides,
                                   &p.base.grads, &arena));
        attn_arena_destroy(&arena);
        for (size_t n = 0; n < 6; n++)
            for (size_t e = 0; e < counts[n]; e++) {
                const bool same =
                    arrays[n][e] == first[n][e] || (isnan(arrays[n][e]) && isnan(first[n][e]));
                if (wanted >> n & 1 ? !same : !isnan(arrays[n][e]))
                    ck_abort_msg("wanted %u: gradient %zu, element %zu", wanted, n, e);
            }
    }
    for (size_t n = 0; n < 6; n++)
        free(first[n]);
    terms_free(&p);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("sdpa_terms");
    TCase *all = tcase_create("terms");
    tcase_add_loop_test(all, equals_plain_loops, 0, 2);
    tcase_add_loop_test(all, groups_and_windows, 0, 2);
    tcase_add_loop_test(all, nan_spreads_as_far_as_it_may, 0, 2);
    tcase_add_loop_test(all, threads_change_no_bit, 0, 2);
    tcase_add_loop_test(all, gradients_in_part, 0, 2);
    suite_add_tcase(s, all);
    return s;
}

int main(void) {
    return test_main(suite());
}
