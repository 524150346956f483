/* The weighted sum of values, against hand-computed values and loops in double. */
#include "problem.h"
#include "threads.h"

#include <attn/values.h>

#define INF ((attn_real)INFINITY)
#define NUM ((attn_real)NAN)

/* Two queries, three keys, the second one padding: its value and its weights are not numbers. */
START_TEST(by_hand) {
    const attn_shape shape = {1, 1, 2, 3, 2};
    const uint8_t padding[3] = {0, 2, 0};
    const attn_mask mask = {.padding = padding};
    const attn_real p[6] = {0.25, NUM, 0.75, 0.5, NUM, 0.5}, v[6] = {4, 8, NUM, INF, 12, -4};
    const attn_real d_o[4] = {1, 2, -4, 8};
    attn_real o[4], dp[6], dv[6];
    test_ok(attn_values_forward(o, p, v, &mask, &shape));
    const attn_real want_o[4] = {10, -1, 8, 2};
    test_close("o", o, want_o, 4, 0, 0);
    test_ok(attn_values_backward(dp, dv, d_o, p, v, &mask, &shape));
    const attn_real want_dp[6] = {20, 0, 4, 48, 0, -80},
                    want_dv[6] = {-1.75, 4.5, 0, 0, -1.25, 5.5};
    test_close("dp", dp, want_dp, 6, 0, 0);
    test_close("dv", dv, want_dv, 6, 0, 0);
}
END_TEST

static const attn_shape shapes[] = {
    {1, 1, 1, 1, 1}, {2, 3, 4, 5, 3}, {1, 2, 131, 7, 9}, {2, 1, 9, 65, 80}, {1, 2, 257, 130, 16},
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Loops over the definition: a blocked pair is read nowhere. */
static void plain_loops(const problem *p, const attn_real *weights, const attn_real *d_o,
                        attn_real *o, attn_real *dp, attn_real *dv) {
    const attn_shape *z = &p->shape;
    const size_t d = z->d_head, heads = z->batch * z->num_heads;
    double *sum_o = calloc(heads * z->len_q * d, sizeof *sum_o);
    double *sum_v = calloc(heads * z->len_k * d, sizeof *sum_v);
    ck_assert(sum_o && sum_v);
    for (size_t pair = 0; pair < heads * z->len_q * z->len_k; pair++) {
        size_t j = pair % z->len_k, row = pair / z->len_k, i = row % z->len_q,
               head = row / z->len_q, key = head * z->len_k + j;
        dp[pair] = 0;
        if (!oracle_allows(&p->in.mask, z, head / z->num_heads, head % z->num_heads, i, j))
            continue;
        double dot = 0;
        for (size_t c = 0; c < d; c++) {
            double vc = (double)p->v.data[key * d + c], gc = (double)d_o[row * d + c];
            dot += gc * vc;
            sum_o[row * d + c] += (double)weights[pair] * vc;
            sum_v[key * d + c] += (double)weights[pair] * gc;
        }
        dp[pair] = (attn_real)dot;
    }
    for (size_t n = 0; n < heads * z->len_q * d; n++)
        o[n] = (attn_real)sum_o[n];
    for (size_t n = 0; n < heads * z->len_k * d; n++)
        dv[n] = (attn_real)sum_v[n];
    free(sum_o);
    free(sum_v);
}

/* How a problem is spoilt: clean; NaN and Inf in rows of v and dO, weights 0 at blocked pairs as
 * softmax leaves them; weights that are garbage at blocked pairs. */
typedef enum poison { CLEAN, ROWS, WEIGHTS, POISONS } poison;

static void check_problem(const attn_shape *shape, const mask_plan *plan, poison spoilt,
                          uint64_t seed) {
    problem p = problem_make(*shape, BHTD, plan, seed);
    const size_t heads = shape->batch * shape->num_heads, d = shape->d_head;
    const size_t pairs = heads * shape->len_q * shape->len_k;
    attn_real *weights = test_normal(pairs, 1, seed + 9), *dp = test_poison(pairs);
    attn_real *d_o = test_normal(heads * shape->len_q * d, 1, seed + 10);
    attn_real *want_dp = test_poison(pairs), *want_o = test_poison(heads * shape->len_q * d),
              *want_dv = test_poison(heads * shape->len_k * d);
    if (spoilt == ROWS) {
        tensor_row(&p.v, 0, shape->len_k - 1)[d - 1] = NUM;
        tensor_row(&p.v, heads - 1, shape->len_k / 2)[0] = INF;
        d_o[(heads - 1) * shape->len_q * d] = NUM;
    }
    for (size_t n = 0; n < pairs; n++)
        if (!oracle_allows(&p.in.mask, shape, n / shape->len_k / shape->len_q / shape->num_heads,
                           n / shape->len_k / shape->len_q % shape->num_heads,
                           n / shape->len_k % shape->len_q, n % shape->len_k))
            weights[n] = spoilt != WEIGHTS ? 0 : n % 2 ? NUM : 1000;
    plain_loops(&p, weights, d_o, want_o, want_dp, want_dv);
    for (size_t t = 0; t < sizeof test_thread_counts / sizeof *test_thread_counts; t++) {
        test_set_threads(test_thread_counts[t]);
        test_ok(attn_values_forward(p.o.data, weights, p.v.data, &p.in.mask, shape));
        test_ok(attn_values_backward(dp, p.dv.data, d_o, weights, p.v.data, &p.in.mask, shape));
        char what[128];
        snprintf(what, sizeof what, "plan %td, shape %td, spoilt %d, threads %d",
                 plan - problem_plans, shape - shapes, (int)spoilt, test_thread_counts[t]);
        tensor_check(what, &p.o, want_o, 0, 64 * TEST_EPSILON);
        test_close(what, dp, want_dp, pairs, 0, 64 * TEST_EPSILON);
        tensor_check(what, &p.dv, want_dv, 0, 64 * TEST_EPSILON);
    }
    free(weights);
    free(dp);
    free(d_o);
    free(want_dp);
    free(want_o);
    free(want_dv);
    problem_free(&p);
}

START_TEST(equals_plain_loops) {
    for (size_t n = 0; n < SHAPES; n++)
        for (int spoilt = 0; spoilt < POISONS; spoilt++)
            check_problem(&shapes[n], &problem_plans[_i], (poison)spoilt, 10 * n + 1);
}
END_TEST

/* A NaN value whose weight underflowed to 0, but which may be seen, shows. */
START_TEST(nan_at_allowed_key_shows) {
    const attn_shape shape = {1, 1, 1, 2, 1};
    const attn_real p[2] = {1, 0}, v[2] = {3, NUM}, d_o[1] = {INF};
    attn_real o[1], dv[2];
    test_ok(attn_values_forward(o, p, v, NULL, &shape));
    ck_assert(isnan(o[0]));
    test_ok(attn_values_backward(NULL, dv, d_o, p, v, NULL, &shape));
    ck_assert(dv[0] == INF && isnan(dv[1]));
}
END_TEST

START_TEST(gradients_are_optional) {
    const attn_shape shape = {1, 1, 1, 2, 1};
    const attn_real p[2] = {0.5, 0.25}, v[2] = {3, 4}, d_o[1] = {2};
    const attn_real want_dp[2] = {6, 8}, want_dv[2] = {1, 0.5};
    attn_real dp[2], dv[2];
    test_ok(attn_values_backward(dp, NULL, d_o, NULL, v, NULL, &shape));
    test_ok(attn_values_backward(NULL, dv, d_o, p, NULL, NULL, &shape));
    test_ok(attn_values_backward(NULL, NULL, d_o, NULL, NULL, NULL, &shape));
    test_close("dp alone", dp, want_dp, 2, 0, 0);
    test_close("dv alone", dv, want_dv, 2, 0, 0);
}
END_TEST

START_TEST(refusals) {
    const attn_shape shape = {1, 1, 1, 1, 1}, no_width = {1, 1, 1, 1, 0};
    const size_t huge = (size_t)1 << 32;
    const attn_shape wraps = {huge, 1, huge, 1, 1}, pairs_wrap = {1, 1, huge, huge, 1};
    attn_real x = 7, y = 1;
    test_refused(attn_values_forward(NULL, &y, &y, NULL, &shape), ATTN_ERROR_ARGUMENT);
    test_refused(attn_values_forward(&x, NULL, &y, NULL, &shape), ATTN_ERROR_ARGUMENT);
    test_refused(attn_values_forward(&x, &y, NULL, NULL, &shape), ATTN_ERROR_ARGUMENT);
    test_refused(attn_values_forward(&x, &y, &y, NULL, NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_values_forward(&x, &y, &y, NULL, &no_width), ATTN_ERROR_ARGUMENT);
    test_refused(attn_values_forward(&x, &y, &y, NULL, &wraps), ATTN_ERROR_OVERFLOW);
    test_refused(attn_values_backward(&x, &x, &y, &y, &y, NULL, &pairs_wrap), ATTN_ERROR_OVERFLOW);
    test_refused(attn_values_backward(&x, NULL, NULL, &y, &y, NULL, &shape), ATTN_ERROR_ARGUMENT);
    test_refused(attn_values_backward(&x, NULL, &y, &y, NULL, NULL, &shape), ATTN_ERROR_ARGUMENT);
    test_refused(attn_values_backward(NULL, &x, &y, NULL, &y, NULL, &shape), ATTN_ERROR_ARGUMENT);
    ck_assert(strstr(attn_error_message(), "weights is NULL") != NULL);
    ck_assert(x == 7);
}
END_TEST

/* No keys: o is 0. No queries: dv is 0. No samples: nothing is touched. */
START_TEST(empty_succeeds) {
    attn_real x[2] = {7, 7};
    test_ok(attn_values_forward(x, NULL, NULL, NULL, &(attn_shape){1, 1, 1, 0, 2}));
    ck_assert(x[0] == 0 && x[1] == 0);
    x[0] = x[1] = 7;
    test_ok(attn_values_backward(NULL, x, NULL, NULL, NULL, NULL, &(attn_shape){1, 1, 0, 2, 1}));
    ck_assert(x[0] == 0 && x[1] == 0);
    test_ok(attn_values_forward(NULL, NULL, NULL, NULL, &(attn_shape){0, 3, 2, 2, 1}));
    test_ok(attn_values_backward(NULL, NULL, NULL, NULL, NULL, NULL, &(attn_shape){1, 0, 2, 2, 1}));
    test_ok(attn_values_forward(NULL, NULL, NULL, NULL, &(attn_shape){SIZE_MAX, 1, 0, 0, 1}));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("values");
    TCase *tests = tcase_create("values");
    tcase_add_test(tests, by_hand);
    tcase_add_loop_test(tests, equals_plain_loops, 0, PLANS);
    tcase_add_test(tests, nan_at_allowed_key_shows);
    tcase_add_test(tests, gradients_are_optional);
    tcase_add_test(tests, refusals);
    tcase_add_test(tests, empty_succeeds);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
