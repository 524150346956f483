/* Softcap, bias and ALiBi on a matrix of scores, forward and backward, against plain loops. */
#include "terms.h"

#define TOLERANCE (64 * TEST_EPSILON)

START_TEST(standard_slopes) {
    attn_real slopes[12];
    test_ok(attn_alibi_slopes(slopes, 6));
    test_close("6", slopes,
               (attn_real[]){0.25, 0.0625, 0.015625, 0.00390625, 0.5, (attn_real)0.125}, 6, 0, 0);
    test_ok(attn_alibi_slopes(slopes, 3));
    test_close("3", slopes, (attn_real[]){0.0625, 0.00390625, 0.25}, 3, 0, 0);
    test_ok(attn_alibi_slopes(slopes, 12));
    test_close("12", slopes + 8,
               (attn_real[]){(attn_real)sqrt(0.5), (attn_real)sqrt(0.125), (attn_real)sqrt(0.03125),
                             (attn_real)sqrt(0.0078125)},
               4, TEST_EPSILON, 0);
    test_ok(attn_alibi_slopes(slopes, 8));
    test_close("8", slopes,
               (attn_real[]){0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625}, 8,
               0, 0);
    test_ok(attn_alibi_slopes(slopes, 1));
    ck_assert(slopes[0] == (attn_real)0.00390625 && slopes[1] == 0.25);
    test_ok(attn_alibi_slopes(NULL, 0));
    test_refused(attn_alibi_slopes(NULL, 1), ATTN_ERROR_ARGUMENT);
}
END_TEST

/* What one plan does to random scores, by loops. */
typedef struct loops {
    attn_real *u, *ds, *dbias, dslopes[8];
} loops;

static loops run_loops(const term_problem *p, const attn_real *scores, const attn_real *du,
                       const attn_real *slopes) {
    const attn_sdpa_input *in = &p->base.in;
    const attn_shape *s = &in->shape;
    const size_t count = s->batch * s->num_heads * s->len_q * s->len_k;
    loops out = {.u = test_poison(count), .ds = test_poison(count)};
    attn_real *pairs = test_poison(count);
    double sums[8] = {0};
    const double c = p->config.softcap;
    for (size_t n = 0; n < count; n++) {
        const size_t j = n % s->len_k, i = n / s->len_k % s->len_q;
        const size_t h = n / s->len_k / s->len_q % s->num_heads;
        const size_t b = n / s->len_k / s->len_q / s->num_heads;
        const double bias = oracle_bias(in, b, h, i, j);
        out.u[n] = (attn_real)-INFINITY;
        out.ds[n] = pairs[n] = 0;
        if (!oracle_allows(&in->mask, s, b, h, i, j) || bias == -INFINITY)
            continue;
        const double far = fabs((double)i + oracle_offset(&in->mask, s) - (double)j);
        const double t = c > 0 ? tanh((double)scores[n] / c) : 0;
        out.u[n] = (attn_real)((c > 0 ? c * t : (double)scores[n]) + bias -
                               (slopes ? (double)slopes[h] * far : 0));
        pairs[n] = du[n];
        out.ds[n] = (attn_real)((double)du[n] * (1 - t * t));
        sums[h] -= (double)du[n] * far;
    }
    out.dbias = terms_reduce(p, pairs);
    for (size_t h = 0; h < s->num_heads; h++)
        out.dslopes[h] = (attn_real)sums[h];
    free(pairs);
    return out;
}

/* Where a pair is blocked, NaN in the score and in du is not read. */
START_TEST(equals_plain_loops) {
    static const attn_shape shapes[] = {{2, 3, 5, 7, 1}, {1, 2, 131, 9, 1}, {2, 4, 1, 33, 1}};
    for (size_t t = 0; t < TERMS; t++)
        for (size_t n = 0; n < 3; n++)
            for (size_t m = 0; m < PLANS + WINDOWS; m++) {
                const mask_plan *masks =
                    m < PLANS ? &problem_plans[m] : &problem_windows[m - PLANS];
                if (masks->offset == INT64_MIN || masks->offset == INT64_MAX)
                    continue;
                const attn_shape *s = &shapes[n];
                term_problem p = terms_make(*s, BTHD, masks, &problem_terms[t], 31 * t + n);
                const attn_sdpa_input *in = &p.base.in;
                const size_t count = s->batch * s->num_heads * s->len_q * s->len_k;
                attn_real *scores = test_normal(count, 2, t), *du = test_normal(count, 1, t + 1);
                attn_real *u = test_poison(count), *ds = test_poison(count);
                attn_real *dbias = p.dbias ? test_poison(p.bias_count) : NULL, dslopes[8];
                attn_real standard[8];
                test_ok(attn_alibi_slopes(standard, s->num_heads));
                const attn_score_terms terms = {.softcap = p.config.softcap,
                                                .bias = in->bias,
                                                .bias_strides = in->bias_strides,
                                                .alibi_slopes = !p.config.alibi ? NULL
                                                                : p.slopes      ? p.slopes
                                                                                : standard};
                const loops want = run_loops(&p, scores, du, terms.alibi_slopes);
                for (size_t e = 0; e < count; e++)
                    if (want.u[e] == (attn_real)-INFINITY)
                        scores[e] = du[e] = (attn_real)NAN;
                char what[64];
                snprintf(what, sizeof what, "terms %zu, masks %zu, shape %zu", t, m, n);
                test_ok(attn_score_terms_forward(u, scores, &terms, &in->mask, s));
                test_close(what, u, want.u, count, TOLERANCE, TOLERANCE);
                test_ok(attn_score_terms_backward(ds, dbias, terms.alibi_slopes ? dslopes : NULL,
                                                  du, scores, &terms, &in->mask, s));
                test_close(what, ds, want.ds, count, TOLERANCE, TOLERANCE);
                if (dbias)
                    test_close(what, dbias, want.dbias, p.bias_count, TOLERANCE, TOLERANCE);
                if (terms.alibi_slopes)
                    test_close(what, dslopes, want.dslopes, s->num_heads, TOLERANCE, TOLERANCE);
                test_ok(
                    attn_score_terms_backward(du, NULL, NULL, du, scores, &terms, &in->mask, s));
                ck_assert_mem_eq(du, ds, count * sizeof *du);
                test_ok(attn_score_terms_forward(scores, scores, &terms, &in->mask, s));
                ck_assert_mem_eq(scores, u, count * sizeof *u);
                attn_real *const all[] = {scores, du, u, ds, dbias, want.u, want.ds, want.dbias};
                for (size_t e = 0; e < 8; e++)
                    free(all[e]);
                terms_free(&p);
            }
}
END_TEST

/* A score that is -inf already stays so and adds nothing; a mask that is not there is no mask, and
 * places are counted from the bottom right. */
START_TEST(blocked_before) {
    const attn_shape s = {1, 1, 1, 3, 1};
    const attn_real scores[3] = {1, (attn_real)-INFINITY, 2}, slopes[1] = {0.5};
    const attn_real bias[3] = {1, 1, 1}, du[3] = {1, 0, 1};
    const attn_score_terms terms = {
        .softcap = 1e4, .bias = bias, .bias_strides = {.key = 1}, .alibi_slopes = slopes};
    const uint8_t attend[3] = {1, 0, 1};
    const attn_mask mask = {.attend = attend, .attend_strides = {.key = 1}};
    attn_real u[3], ds[3], dslopes[1];
    test_ok(attn_score_terms_forward(u, scores, &terms, &mask, &s));
    test_close("u", u, (attn_real[]){1, (attn_real)-INFINITY, 3}, 3, 1e-6, 0);
    test_ok(attn_score_terms_backward(ds, NULL, dslopes, du, scores, &terms, &mask, &s));
    test_close("ds", ds, (attn_real[]){1, 0, 1}, 3, 1e-6, 0);
    ck_assert(dslopes[0] == -2);
}
END_TEST

/* Caps near the ends of the range cap, and divide by nothing that vanishes. */
START_TEST(extreme_caps) {
    const attn_shape s = {1, 1, 1, 3, 1};
    const attn_real scores[3] = {-5, 0, 7};
    attn_score_terms terms = {.softcap = 1e-320};
    attn_real u[3];
    test_ok(attn_score_terms_forward(u, scores, &terms, NULL, &s));
    test_close("tiny", u, (attn_real[]){0, 0, 0}, 3, 1e-30, 0);
    terms.softcap = 1e30;
    test_ok(attn_score_terms_forward(u, scores, &terms, NULL, &s));
    test_close("huge", u, scores, 3, 0, 4 * TEST_EPSILON);
}
END_TEST

START_TEST(refusals_and_empties) {
    const attn_shape s = {2, 1, 2, 2, 1};
    attn_real x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, before[8], y[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    memcpy(before, x, sizeof x);
    const double caps[] = {-1, NAN, INFINITY};
    const attn_score_terms none = {0};
    for (size_t n = 0; n < 3; n++) {
        const attn_score_terms terms = {.softcap = caps[n]};
        test_refused(attn_score_terms_forward(x, x, &terms, NULL, &s), ATTN_ERROR_ARGUMENT);
        test_refused(attn_score_terms_backward(x, NULL, NULL, x, x, &terms, NULL, &s),
                     ATTN_ERROR_ARGUMENT);
    }
    test_refused(attn_score_terms_forward(x, x, NULL, NULL, &s), ATTN_ERROR_ARGUMENT);
    test_refused(attn_score_terms_forward(x, x, &none, NULL, NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_score_terms_forward(NULL, x, &none, NULL, &s), ATTN_ERROR_ARGUMENT);
    test_refused(attn_score_terms_forward(x, NULL, &none, NULL, &s), ATTN_ERROR_ARGUMENT);
    test_refused(attn_score_terms_backward(x, y, NULL, x, x, &none, NULL, &s), ATTN_ERROR_ARGUMENT);
    test_refused(attn_score_terms_backward(x, NULL, y, x, x, &none, NULL, &s), ATTN_ERROR_ARGUMENT);
    test_refused(attn_score_terms_backward(x, NULL, NULL, NULL, x, &none, NULL, &s),
                 ATTN_ERROR_ARGUMENT);
    attn_score_terms terms = {.bias = before, .bias_strides = {.batch = SIZE_MAX}};
    test_refused(attn_score_terms_forward(x, x, &terms, NULL, &s), ATTN_ERROR_OVERFLOW);
    /* read like this, but not to be written */
    terms.bias_strides = (attn_broadcast){.query = 1, .key = 1};
    test_refused(attn_score_terms_backward(x, y, NULL, x, x, &terms, NULL, &s), ATTN_ERROR_SHAPE);
    ck_assert_mem_eq(x, before, sizeof x);
    for (size_t n = 0; n < 8; n++)
        ck_assert(y[n] == 9);
    /* gradients of nothing are 0 */
    const attn_shape empty = {0, 1, 2, 2, 1};
    terms.bias_strides = (attn_broadcast){.query = 2, .key = 1};
    terms.alibi_slopes = before;
    test_ok(attn_score_terms_forward(NULL, NULL, &terms, NULL, &empty));
    test_ok(attn_score_terms_backward(NULL, y, y + 4, NULL, NULL, &terms, NULL, &empty));
    for (size_t n = 0; n < 5; n++)
        ck_assert(y[n] == 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("score_terms");
    TCase *tests = tcase_create("score_terms");
    tcase_add_test(tests, standard_slopes);
    tcase_add_test(tests, equals_plain_loops);
    tcase_add_test(tests, blocked_before);
    tcase_add_test(tests, extreme_caps);
    tcase_add_test(tests, refusals_and_empties);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
