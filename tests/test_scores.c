/* Scaled masked scores, against hand-computed values and loops in double. */
#include "problem.h"
#include "threads.h"

#define INF ((attn_real)INFINITY)
#define NUM ((attn_real)NAN)

/* d = 2, scale 1/2: q = (1,2), (0,-1); k = (1,0), (3,1), (5,5). The second key is padding. */
START_TEST(by_hand) {
    const attn_shape shape = {1, 1, 2, 3, 2};
    const attn_real q[4] = {1, 2, 0, -1}, k[6] = {1, 0, 3, 1, 5, 5};
    const uint8_t padding[3] = {0, 255, 0};
    const attn_mask mask = {.padding = padding};
    attn_real s[6], dq[4], dk[6];
    test_ok(attn_scores_forward(s, q, k, &mask, 0.5, &shape));
    const attn_real want[6] = {0.5, -INF, 7.5, 0, -INF, -2.5};
    test_close("s", s, want, 6, 0, 0);
    test_ok(attn_scores_forward(s, q, k, NULL, -1, &shape));
    const attn_real want_free[6] = {-1, -5, -15, 0, 1, 5};
    test_close("s without masks", s, want_free, 6, 0, 0);
    const attn_real ds[6] = {2, NUM, 4, 6, NUM, 8};
    test_ok(attn_scores_backward(dq, dk, ds, q, k, &mask, 0.5, &shape));
    const attn_real want_dq[4] = {11, 10, 23, 20}, want_dk[6] = {1, -1, 0, 0, 2, 0};
    test_close("dq", dq, want_dq, 4, 0, 0);
    test_close("dk", dk, want_dk, 6, 0, 0);
}
END_TEST

START_TEST(default_scale) {
    ck_assert(attn_default_scale(1) == 1 && attn_default_scale(64) == 0.125);
    ck_assert(fabs(attn_default_scale(3) * sqrt(3.0) - 1) < 1e-15);
}
END_TEST

static const attn_shape shapes[] = {
    {1, 1, 1, 1, 1}, {2, 3, 4, 5, 3}, {1, 2, 131, 7, 9}, {2, 1, 9, 65, 80}, {1, 2, 257, 130, 16},
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Loops over the definition. ds is read at allowed pairs only. */
static void plain_loops(const problem *p, double scale, const attn_real *ds, attn_real *s,
                        attn_real *dq, attn_real *dk) {
    const attn_shape *z = &p->shape;
    const size_t d = z->d_head, heads = z->batch * z->num_heads;
    double *sum_q = calloc(heads * z->len_q * d, sizeof *sum_q);
    double *sum_k = calloc(heads * z->len_k * d, sizeof *sum_k);
    ck_assert(sum_q && sum_k);
    for (size_t pair = 0; pair < heads * z->len_q * z->len_k; pair++) {
        size_t j = pair % z->len_k, row = pair / z->len_k, i = row % z->len_q,
               head = row / z->len_q, key = head * z->len_k + j;
        s[pair] = -INF;
        if (!oracle_allows(&p->in.mask, z, head / z->num_heads, head % z->num_heads, i, j))
            continue;
        double dot = 0;
        for (size_t c = 0; c < d; c++) {
            double qc = (double)p->q.data[row * d + c], kc = (double)p->k.data[key * d + c];
            dot += qc * kc;
            sum_q[row * d + c] += scale * (double)ds[pair] * kc;
            sum_k[key * d + c] += scale * (double)ds[pair] * qc;
        }
        s[pair] = (attn_real)(scale * dot);
    }
    for (size_t n = 0; n < heads * z->len_q * d; n++)
        dq[n] = (attn_real)sum_q[n];
    for (size_t n = 0; n < heads * z->len_k * d; n++)
        dk[n] = (attn_real)sum_k[n];
    free(sum_q);
    free(sum_k);
}

static void check_problem(const attn_shape *shape, const mask_plan *plan, double scale,
                          bool poisoned, uint64_t seed) {
    problem p = problem_make(*shape, BHTD, plan, seed);
    const size_t heads = shape->batch * shape->num_heads,
                 pairs = heads * shape->len_q * shape->len_k;
    attn_real *ds = test_normal(pairs, 1, seed + 9), *s = test_poison(pairs);
    attn_real *want_s = test_poison(pairs),
              *want_dq = test_poison(heads * shape->len_q * shape->d_head),
              *want_dk = test_poison(heads * shape->len_k * shape->d_head);
    if (poisoned) {
        tensor_row(&p.q, heads - 1, shape->len_q / 2)[0] = NUM;
        tensor_row(&p.k, 0, shape->len_k - 1)[shape->d_head - 1] = INF;
        for (size_t n = 0; n < pairs; n++) /* garbage where ds must not be read */
            if (!oracle_allows(&p.in.mask, shape,
                               n / shape->len_k / shape->len_q / shape->num_heads,
                               n / shape->len_k / shape->len_q % shape->num_heads,
                               n / shape->len_k % shape->len_q, n % shape->len_k))
                ds[n] = n % 2 ? NUM : 1000;
    }
    plain_loops(&p, scale, ds, want_s, want_dq, want_dk);
    for (size_t t = 0; t < sizeof test_thread_counts / sizeof *test_thread_counts; t++) {
        test_set_threads(test_thread_counts[t]);
        test_ok(attn_scores_forward(s, p.q.data, p.k.data, &p.in.mask, scale, shape));
        test_ok(attn_scores_backward(p.dq.data, p.dk.data, ds, p.q.data, p.k.data, &p.in.mask,
                                     scale, shape));
        char what[128];
        snprintf(what, sizeof what, "plan %td, shape %td, poisoned %d, threads %d",
                 plan - problem_plans, shape - shapes, poisoned, test_thread_counts[t]);
        test_close(what, s, want_s, pairs, 0, 64 * TEST_EPSILON);
        tensor_check(what, &p.dq, want_dq, 0, 64 * TEST_EPSILON);
        tensor_check(what, &p.dk, want_dk, 0, 64 * TEST_EPSILON);
    }
    free(ds);
    free(s);
    free(want_s);
    free(want_dq);
    free(want_dk);
    problem_free(&p);
}

/* Every mask and shape; then the same with a NaN in q, an infinity in k, and garbage in ds at
 * blocked pairs, which reach exactly what may see them. */
START_TEST(equals_plain_loops) {
    for (size_t n = 0; n < SHAPES; n++) {
        check_problem(&shapes[n], &problem_plans[_i], n % 2 ? -0.3 : 1.7, false, 10 * n + 1);
        check_problem(&shapes[n], &problem_plans[_i], n % 2 ? -0.3 : 1.7, true, 10 * n + 2);
    }
}
END_TEST

/* A scale of 0 is a number like others: scores 0, but NaN where an operand is NaN. */
START_TEST(scale_zero) {
    const attn_shape shape = {1, 1, 1, 2, 1};
    const attn_real q[1] = {2}, k[2] = {3, NUM}, ds[2] = {1, 1};
    const attn_real want[2] = {0, NUM}, want_dk[2] = {0, 0};
    attn_real s[2], dq[1], dk[2];
    test_ok(attn_scores_forward(s, q, k, NULL, 0, &shape));
    test_close("s", s, want, 2, 0, 0);
    test_ok(attn_scores_backward(dq, dk, ds, q, k, NULL, 0, &shape));
    ck_assert(isnan(dq[0]));
    test_close("dk", dk, want_dk, 2, 0, 0);
    test_ok(attn_scores_backward(dq, dk, (attn_real[]){1, NUM}, q, (attn_real[]){3, 4}, NULL, 0,
                                 &shape));
    ck_assert(isnan(dq[0]) && dk[0] == 0 && isnan(dk[1]));
}
END_TEST

/* Each gradient may be left out, with the operand that only it needs. */
START_TEST(gradients_are_optional) {
    problem p = problem_make(shapes[1], BHTD, &problem_plans[PLANS - 2], 3);
    const attn_shape *z = &p.shape;
    attn_real *ds = test_normal(z->batch * z->num_heads * z->len_q * z->len_k, 1, 4);
    attn_real *s = test_poison(z->batch * z->num_heads * z->len_q * z->len_k);
    const size_t size_q = p.q.heads * p.q.len * p.q.width, size_k = p.k.heads * p.k.len * p.k.width;
    attn_real *want_dq = test_poison(size_q), *want_dk = test_poison(size_k);
    plain_loops(&p, 1, ds, s, want_dq, want_dk);
    test_ok(attn_scores_backward(p.dq.data, NULL, ds, NULL, p.k.data, &p.in.mask, 1, z));
    test_ok(attn_scores_backward(NULL, p.dk.data, ds, p.q.data, NULL, &p.in.mask, 1, z));
    test_ok(attn_scores_backward(NULL, NULL, ds, NULL, NULL, &p.in.mask, 1, z));
    tensor_check("dq alone", &p.dq, want_dq, 0, 64 * TEST_EPSILON);
    tensor_check("dk alone", &p.dk, want_dk, 0, 64 * TEST_EPSILON);
    free(ds);
    free(s);
    free(want_dq);
    free(want_dk);
    problem_free(&p);
}
END_TEST

START_TEST(refusals) {
    const attn_shape shape = {1, 1, 1, 1, 1}, no_width = {1, 1, 1, 1, 0};
    const size_t huge = (size_t)1 << 32;
    const attn_shape wraps = {huge, 1, huge, 1, 1}, pairs_wrap = {1, 1, huge, huge, 1};
    attn_real x = 7, y = 1;
    test_refused(attn_scores_forward(NULL, &y, &y, NULL, 1, &shape), ATTN_ERROR_ARGUMENT);
    test_refused(attn_scores_forward(&x, NULL, &y, NULL, 1, &shape), ATTN_ERROR_ARGUMENT);
    test_refused(attn_scores_forward(&x, &y, NULL, NULL, 1, &shape), ATTN_ERROR_ARGUMENT);
    test_refused(attn_scores_forward(&x, &y, &y, NULL, 1, NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_scores_forward(&x, &y, &y, NULL, 1, &no_width), ATTN_ERROR_ARGUMENT);
    test_refused(attn_scores_forward(&x, &y, &y, NULL, (double)NAN, &shape), ATTN_ERROR_ARGUMENT);
    test_refused(attn_scores_forward(&x, &y, &y, NULL, (double)INFINITY, &shape),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_scores_forward(&x, &y, &y, NULL, 1, &wraps), ATTN_ERROR_OVERFLOW);
    test_refused(attn_scores_forward(&x, &y, &y, NULL, 1, &pairs_wrap), ATTN_ERROR_OVERFLOW);
    test_refused(attn_scores_forward(
                     &x, &y, &y, &(attn_mask){.causal = true, .causal_align = (attn_causal_align)7},
                     1, &shape),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_scores_backward(&x, NULL, NULL, &y, &y, NULL, 1, &shape),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_scores_backward(&x, NULL, &y, &y, NULL, NULL, 1, &shape),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_scores_backward(NULL, &x, &y, NULL, &y, NULL, 1, &shape),
                 ATTN_ERROR_ARGUMENT);
    ck_assert(strstr(attn_error_message(), "query is NULL") != NULL);
    ck_assert(x == 7);
}
END_TEST

/* No queries: dk is 0. No keys: dq is 0. No samples: nothing is touched. */
START_TEST(empty_succeeds) {
    attn_real x[2] = {7, 7};
    test_ok(attn_scores_forward(NULL, NULL, NULL, NULL, 1, &(attn_shape){0, 3, 2, 2, 1}));
    test_ok(attn_scores_forward(NULL, NULL, NULL, NULL, 1, &(attn_shape){1, 1, 0, 2, 1}));
    test_ok(attn_scores_backward(NULL, x, NULL, NULL, NULL, NULL, 1, &(attn_shape){1, 1, 0, 2, 1}));
    ck_assert(x[0] == 0 && x[1] == 0);
    x[0] = x[1] = 7;
    test_ok(attn_scores_backward(x, NULL, NULL, NULL, NULL, NULL, 1, &(attn_shape){1, 1, 2, 0, 1}));
    ck_assert(x[0] == 0 && x[1] == 0);
    test_ok(
        attn_scores_backward(x, x, NULL, NULL, NULL, NULL, 1, &(attn_shape){SIZE_MAX, 1, 0, 0, 1}));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scores");
    TCase *tests = tcase_create("scores");
    tcase_add_test(tests, by_hand);
    tcase_add_test(tests, default_scale);
    tcase_add_loop_test(tests, equals_plain_loops, 0, PLANS);
    tcase_add_test(tests, scale_zero);
    tcase_add_test(tests, gradients_are_optional);
    tcase_add_test(tests, refusals);
    tcase_add_test(tests, empty_succeeds);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
