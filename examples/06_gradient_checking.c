/* Chapter 6: gradient checking, and how checkers get fooled. In double. The text is in
 * 06_gradient_checking.md. */
#include "lesson.h"

enum { ROWS = 4, COLS = 6, N = ROWS * COLS };

/* The function under test: f(s) = sum(r * softmax(s)), with a fault of choice in its gradient. */
typedef enum fault { NONE, SIGN_FLIPPED, ROW_SUM_MISSING, NOT_REPEATABLE } fault;
typedef struct subject {
    fault fault;
    bool upstream_of_ones;
    unsigned calls;
} subject;

static attn_status weighted_softmax(void *user, const attn_real *s, double *value, attn_real *ds) {
    subject *me = user;
    attn_real p[N], dp[N];
    must(attn_softmax_forward(p, NULL, s, ROWS, COLS));
    must(attn_gradcheck_project(value, dp, p, N, 7));
    if (me->upstream_of_ones) {
        *value = 0;
        for (size_t i = 0; i < N; i++) {
            dp[i] = 1;
            *value += p[i];
        }
    }
    if (me->fault == NOT_REPEATABLE)
        *value += 1e-9 * me->calls++;
    if (!ds)
        return ATTN_OK;
    must(attn_softmax_backward(ds, dp, p, ROWS, COLS));
    for (size_t i = 0; i < N; i++)
        ds[i] = me->fault == SIGN_FLIPPED      ? -ds[i]
                : me->fault == ROW_SUM_MISSING ? p[i] * dp[i]
                                               : ds[i];
    return ATTN_OK;
}

static double value_at(attn_real *s, size_t i, double x) {
    subject honest = {.fault = NONE};
    const attn_real was = s[i];
    double value;
    s[i] = x;
    must(weighted_softmax(&honest, s, &value, NULL));
    s[i] = was;
    return value;
}

static void which_step(attn_real *s) {
    subject honest = {.fault = NONE};
    attn_real ds[N];
    double value, plain_best = 1, richardson_best = 1;
    must(weighted_softmax(&honest, s, &value, ds));
    printf("relative error of a difference at one element\n         h     central  Richardson\n");
    for (double h = 0.1; h > 1e-9; h /= 10) {
        double x = s[3];
        double wide = (value_at(s, 3, x + h) - value_at(s, 3, x - h)) / (x + h - (x - h));
        double half =
            (value_at(s, 3, x + h / 2) - value_at(s, 3, x - h / 2)) / (x + h / 2 - (x - h / 2));
        double plain = fabs(wide / ds[3] - 1), better = fabs((4 * half - wide) / 3 / ds[3] - 1);
        printf("  %8.0e    %8.1e    %8.1e\n", h, plain, better);
        plain_best = fmin(plain_best, plain);
        richardson_best = fmin(richardson_best, better);
    }
    claim(richardson_best < plain_best && richardson_best < 1e-10,
          "two steps combined reach further than the best single one");
}

static attn_gradcheck_report check(attn_real *s, subject me) {
    attn_gradcheck_problem problem = {
        .function = weighted_softmax, .user = &me, .x = s, .count = N};
    attn_gradcheck_report report;
    attn_memory need;
    attn_arena arena;
    must(attn_gradcheck_memory(&problem, NULL, &need));
    must(attn_arena_create(&arena, need.inference));
    must(attn_gradcheck_run(&report, NULL, &problem, NULL, &arena));
    attn_arena_destroy(&arena);
    printf("  %-16s %zu of %zu wrong, claimed %9.6f, measured %9.6f, error %.0e\n",
           attn_gradcheck_result_name(report.result), report.wrong, report.checked,
           report.worst.claimed, report.worst.measured, report.worst.error);
    return report;
}

int main(void) {
    attn_real s[N];
    fill(s, N, 1, 5);
    which_step(s);

    printf("\na random upstream gradient\n");
    claim(check(s, (subject){.fault = NONE}).result == ATTN_GRADCHECK_PASSED, "softmax passes");
    claim(check(s, (subject){.fault = SIGN_FLIPPED}).result == ATTN_GRADCHECK_WRONG,
          "a flipped sign is found");
    claim(check(s, (subject){.fault = ROW_SUM_MISSING}).result == ATTN_GRADCHECK_WRONG,
          "a missing row sum is found");

    printf("\nan upstream gradient of ones\n");
    attn_gradcheck_report fooled = check(s, (subject){SIGN_FLIPPED, true, 0});
    claim(fooled.wrong == 0, "hides the flipped sign: weights sum to 1 whatever the scores");
    claim(fooled.result == ATTN_GRADCHECK_VACUOUS, "but the checker does not call that a pass");

    printf("\na function that answers differently each time\n");
    claim(check(s, (subject){.fault = NOT_REPEATABLE}).result == ATTN_GRADCHECK_NOT_REPEATABLE,
          "is not a wrong gradient, it cannot be checked");

    volatile float x = 64, moved = x + 1e-6f;
    printf("\nin float, 64 + 1e-6 is %.7g\n", (double)moved);
    claim(moved == x, "a step that vanishes measures a slope of 0 for every function");
    return 0;
}
