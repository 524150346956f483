/* The gradient checker: right gradients pass, each way to be wrong has its own result, and what
 * fools other checkers does not fool this one. */
#include "test.h"

#include <attn/gradcheck.h>

#include <float.h>

#ifdef ATTN_DOUBLE
#define SMALL_ERROR 1e-6 /* relative error of a gradient that must be noticed */
#else
#define SMALL_ERROR 5e-2
#endif

enum { N = 12, SPLIT = 8 };

static const attn_gradcheck_tensor two_tensors[] = {{"w", 0, SPLIT}, {"b", SPLIT, N - SPLIT}};

typedef enum injected {
    NONE,
    ONE_OFF, /* element `at` off by SMALL_ERROR */
    SIGN_FLIPPED,
    ONE_MISSING,
    TENSOR_ZEROED,
    NEVER_WRITTEN,
    ADDED_TO,
    ALL_NAN,
    ONE_INFINITE,
    VALUE_NAN,
    VALUE_NAN_BESIDE,
    VALUE_UNSET,
    RESEEDED,
    CREEPING,
    LATE_STATE,
    GRADIENT_RESEEDED,
    OTHER_WITHOUT_GRADIENT,
    X_CHANGED,
    X_CHANGED_BESIDE,
    STALE_COPY,
    CONSTANT,
    FAILS_AT_ONCE,
    FAILS_LATER
} injected;

typedef struct model {
    injected fault;
    size_t at; /* the element concerned */
    size_t calls;
    attn_real start[N];
    double offset; /* a constant added to f */
} model;

/* f = sum sin(x_i) (i + 1)/4 + x_i x_{i+1}, and its gradient with a fault. */
static attn_status wavy(void *user, const attn_real *x, double *value, attn_real *gradient) {
    model *m = user;
    m->calls++;
    if (m->fault == FAILS_AT_ONCE || (m->fault == FAILS_LATER && m->calls == 9))
        return ATTN_ERROR_UNSUPPORTED;
    double f = m->offset;
    for (size_t i = 0; i < N; i++) {
        double here = m->fault == STALE_COPY ? (double)m->start[i] : (double)x[i];
        double next = (double)x[(i + 1) % N];
        f += sin(here) * (double)(i + 1) / 4 + here * next;
        if (gradient) {
            attn_real g = (attn_real)(cos((double)x[i]) * (double)(i + 1) / 4 + next +
                                      (double)x[(i + N - 1) % N]);
            bool one = i == m->at, written = !(m->fault == NEVER_WRITTEN && one);
            if (one && m->fault == ONE_OFF)
                g *= (attn_real)(1 + SMALL_ERROR);
            if (one && m->fault == SIGN_FLIPPED)
                g = -g;
            if ((one && m->fault == ONE_MISSING) || (i >= SPLIT && m->fault == TENSOR_ZEROED))
                g = 0;
            if (m->fault == ALL_NAN)
                g = (attn_real)NAN;
            if (one && m->fault == ONE_INFINITE)
                g = (attn_real)INFINITY;
            if (m->fault == GRADIENT_RESEEDED && one)
                g *= (attn_real)(1 + (double)m->calls * 1e-6);
            if (m->fault == ADDED_TO)
                gradient[i] += g;
            else if (written)
                gradient[i] = g;
        }
    }
    if (m->fault == RESEEDED)
        f *= 1 + 1e-3 * (double)m->calls;
    if (m->fault == CREEPING && m->calls > 1)
        f = nextafter(f, INFINITY);
    if (m->fault == LATE_STATE && m->calls > 20)
        f += 1e-12;
    if (m->fault == OTHER_WITHOUT_GRADIENT && !gradient)
        f *= 1.25;
    if (m->fault == VALUE_NAN || (m->fault == VALUE_NAN_BESIDE && x[m->at] != m->start[m->at]))
        f = NAN;
    if (m->fault == CONSTANT)
        f = 3;
    if (m->fault == X_CHANGED || (m->fault == X_CHANGED_BESIDE && m->calls > 5))
        ((attn_real *)x)[0] += 1;
    if (m->fault != VALUE_UNSET)
        *value = f;
    return ATTN_OK;
}

static void fill(model *m, injected fault, size_t at, attn_real *x) {
    *m = (model){.fault = fault, .at = at};
    for (size_t i = 0; i < N; i++)
        m->start[i] = x[i] = (attn_real)((double)i * 0.37 - 1.9);
}

/* Runs the check in an arena of exactly the bytes announced; x must come back to the bit. */
static attn_status run_check(attn_gradcheck_report *report, attn_gradcheck_tensor_report *tensors,
                             const attn_gradcheck_problem *problem,
                             const attn_gradcheck_options *options) {
    attn_memory need;
    test_ok(attn_gradcheck_memory(problem, options, &need));
    attn_arena arena = test_arena(need.inference);
    size_t bytes = problem->count * sizeof *problem->x;
    attn_real *before = malloc(bytes + 1);
    ck_assert_ptr_nonnull(before);
    memcpy(before, problem->x, bytes);
    attn_status status = attn_gradcheck_run(report, tensors, problem, options, &arena);
    ck_assert_msg(memcmp(before, problem->x, bytes) == 0, "x was not restored");
    ck_assert_uint_eq(arena.used, 0);
    ck_assert_uint_eq(arena.high_water, need.inference);
    attn_arena_destroy(&arena);
    free(before);
    return status;
}

static attn_gradcheck_report check_fault(injected fault, size_t at,
                                         attn_gradcheck_tensor_report tensors[2],
                                         const attn_gradcheck_options *options) {
    model m;
    attn_real x[N];
    fill(&m, fault, at, x);
    attn_gradcheck_problem problem = {wavy, &m, x, N, two_tensors, 2};
    attn_gradcheck_report report;
    test_ok(run_check(&report, tensors, &problem, options));
    ck_assert_uint_eq(report.evaluations, m.calls);
    ck_assert_ptr_nonnull(report.reason);
    return report;
}

#define expect_result(report, expected)                                            \
    ck_assert_msg((report).result == (expected), "%s instead of %s: %s, error %g", \
                  attn_gradcheck_result_name((report).result),                     \
                  attn_gradcheck_result_name(expected), (report).reason, (report).worst.error)

static const attn_gradcheck_options modes[] = {
    {.mode = ATTN_GRADCHECK_EVERY},
    {.mode = ATTN_GRADCHECK_SUBSET, .samples = 3, .seed = 4},
    {.mode = ATTN_GRADCHECK_DIRECTIONS, .samples = 5, .seed = 6},
};

START_TEST(a_right_gradient_passes) {
    attn_gradcheck_tensor_report tensors[2];
    attn_gradcheck_report report = check_fault(NONE, 0, tensors, &modes[_i]);
    expect_result(report, ATTN_GRADCHECK_PASSED);
    const size_t checked[] = {N, 6, 10};
    ck_assert_uint_eq(report.checked, checked[_i]);
    ck_assert_uint_eq(report.evaluations, 4 * checked[_i] + 4);
    ck_assert_uint_eq(tensors[0].checked + tensors[1].checked, checked[_i]);
    ck_assert_uint_eq(report.wrong + report.skipped + report.unresolved + report.not_finite +
                          report.unlisted + report.coarse,
                      0);
    ck_assert_double_gt(tensors[0].largest, 0.1);
#ifdef ATTN_DOUBLE
    ck_assert_double_lt(report.worst.error, 1e-9);
#endif
}
END_TEST

START_TEST(each_wrong_element_is_found_and_named) {
    static const injected kinds[] = {ONE_OFF, SIGN_FLIPPED, ONE_MISSING};
    for (size_t k = 0; k < 3; k++) {
        attn_gradcheck_tensor_report tensors[2];
        attn_gradcheck_report report = check_fault(kinds[k], (size_t)_i, tensors, NULL);
        size_t tensor = _i >= SPLIT, element = (size_t)_i - two_tensors[tensor].offset;
        expect_result(report, ATTN_GRADCHECK_WRONG);
        ck_assert_uint_eq(report.wrong, 1);
        ck_assert_uint_eq(report.rough, 0);
        ck_assert_uint_eq(report.worst_tensor, tensor);
        ck_assert_uint_eq(tensors[tensor].worst, element);
        ck_assert_int_eq(tensors[tensor].result, ATTN_GRADCHECK_WRONG);
        ck_assert_int_eq(tensors[1 - tensor].result, ATTN_GRADCHECK_PASSED);
        ck_assert_double_ne(tensors[tensor].claimed, tensors[tensor].measured);
    }
}
END_TEST

/* Directions move all elements of a tensor: a fault anywhere in it shows in nearly each one. */
START_TEST(directions_find_wrong_elements_too) {
    for (size_t at = 0; at < N; at++) {
        attn_gradcheck_tensor_report tensors[2];
        attn_gradcheck_report report = check_fault(SIGN_FLIPPED, at, tensors, &modes[2]);
        expect_result(report, ATTN_GRADCHECK_WRONG);
        ck_assert_int_eq(tensors[at < SPLIT].result, ATTN_GRADCHECK_PASSED);
        ck_assert_uint_ge(tensors[at >= SPLIT].wrong, 4);
    }
}
END_TEST

static const struct {
    injected fault;
    attn_gradcheck_result result;
    const char *reason;
} faults[] = {
    {TENSOR_ZEROED, ATTN_GRADCHECK_WRONG, "differs"},
    {NEVER_WRITTEN, ATTN_GRADCHECK_NOT_FINITE, "never written"},
    {ADDED_TO, ATTN_GRADCHECK_NOT_FINITE, "never written"},
    {ALL_NAN, ATTN_GRADCHECK_NOT_FINITE, "not finite"},
    {ONE_INFINITE, ATTN_GRADCHECK_NOT_FINITE, "not finite"},
    {VALUE_NAN, ATTN_GRADCHECK_NOT_FINITE, "value at x"},
    {VALUE_UNSET, ATTN_GRADCHECK_NOT_FINITE, "value at x"},
    {VALUE_NAN_BESIDE, ATTN_GRADCHECK_NOT_FINITE, "beside x"},
    {RESEEDED, ATTN_GRADCHECK_NOT_REPEATABLE, "two values"},
    {CREEPING, ATTN_GRADCHECK_NOT_REPEATABLE, "two values"},
    {GRADIENT_RESEEDED, ATTN_GRADCHECK_NOT_REPEATABLE, "two gradients"},
    {OTHER_WITHOUT_GRADIENT, ATTN_GRADCHECK_NOT_REPEATABLE, "no gradient"},
    {LATE_STATE, ATTN_GRADCHECK_NOT_REPEATABLE, "keeps state"},
    {X_CHANGED, ATTN_GRADCHECK_NOT_REPEATABLE, "changed x"},
    {X_CHANGED_BESIDE, ATTN_GRADCHECK_NOT_REPEATABLE, "changed x"},
    {STALE_COPY, ATTN_GRADCHECK_WRONG, "differs"},
    {CONSTANT, ATTN_GRADCHECK_WRONG, "differs"},
};

START_TEST(each_fault_has_its_result) {
    /* Neither the subset nor the directions may miss a fault of the whole function. */
    bool whole = faults[_i].fault != NEVER_WRITTEN && faults[_i].fault != VALUE_NAN_BESIDE &&
                 faults[_i].fault != ONE_INFINITE;
    for (size_t k = 0; k < (whole ? 3 : 1); k++) {
        attn_gradcheck_tensor_report tensors[2];
        attn_gradcheck_report report = check_fault(faults[_i].fault, 9, tensors, &modes[k]);
        ck_assert_msg(report.result == faults[_i].result &&
                          strstr(report.reason, faults[_i].reason),
                      "fault %d, mode %zu: %s, %s", faults[_i].fault, k,
                      attn_gradcheck_result_name(report.result), report.reason);
        if (faults[_i].fault == TENSOR_ZEROED)
            ck_assert_int_eq(tensors[0].result, ATTN_GRADCHECK_PASSED);
    }
}
END_TEST

START_TEST(one_bad_claim_is_pointed_at) {
    attn_gradcheck_tensor_report tensors[2];
    attn_gradcheck_report report = check_fault(NEVER_WRITTEN, 9, tensors, NULL);
    ck_assert_uint_eq(report.not_finite, 1);
    ck_assert_uint_eq(report.worst_tensor, 1);
    ck_assert_uint_eq(tensors[1].worst, 1);
    ck_assert_int_eq(tensors[0].result, ATTN_GRADCHECK_PASSED);
    report = check_fault(NEVER_WRITTEN, 9, tensors, &modes[2]);
    expect_result(report, ATTN_GRADCHECK_NOT_FINITE);
    ck_assert_uint_eq(tensors[1].worst, 1);
}
END_TEST

START_TEST(a_failing_function_is_passed_on) {
    for (size_t k = 0; k < 2; k++) {
        model m;
        attn_real x[N];
        fill(&m, k ? FAILS_LATER : FAILS_AT_ONCE, 0, x);
        attn_gradcheck_problem problem = {wavy, &m, x, N, NULL, 0};
        attn_gradcheck_report report = {.checked = 77};
        attn_gradcheck_tensor_report tensor = {.checked = 77};
        test_refused(run_check(&report, &tensor, &problem, NULL), ATTN_ERROR_UNSUPPORTED);
        ck_assert_uint_eq(m.calls, k ? 9 : 1);
        ck_assert(report.checked == 77 && tensor.checked == 77); /* a failed call changes nothing */
    }
}
END_TEST

/* Functions of their own for what one element can show. `shape` picks one, c is a number of it. */
typedef struct simple {
    enum { SQUARE, ABSOLUTE, JUMP, LINEAR, ZERO, EXP, CUBE } shape;
    double c;     /* LINEAR: f = c + x; JUMP: where it jumps */
    double claim; /* added to the right gradient */
} simple;

static attn_status simple_function(void *user, const attn_real *x, double *value,
                                   attn_real *gradient) {
    const simple *s = user;
    double v = (double)x[0], f = 0, g = 0;
    switch (s->shape) {
    case SQUARE:
        f = v * v / 2;
        g = v;
        break;
    case ABSOLUTE:
        f = fabs(v) + v;
        g = (v > 0) - (v < 0) + 1;
        break;
    case JUMP:
        f = (v > s->c) + v;
        g = 1;
        break;
    case LINEAR:
        f = (double)(attn_real)(s->c + v);
        g = 1;
        break;
    case ZERO:
        break;
    case EXP:
        f = g = exp(v);
        break;
    case CUBE:
        f = v * v * v;
        g = 3 * v * v;
        break;
    }
    *value = f;
    if (gradient)
        gradient[0] = (attn_real)(g + s->claim);
    return ATTN_OK;
}

static attn_gradcheck_report check_simple(simple s, double x,
                                          const attn_gradcheck_options *options) {
    attn_real at = (attn_real)x;
    attn_gradcheck_problem problem = {simple_function, &s, &at, 1, NULL, 0};
    attn_gradcheck_report report;
    test_ok(run_check(&report, NULL, &problem, options));
    return report;
}

START_TEST(steps_follow_the_size_of_x) {
    static const double points[] = {0.5, 1, 64, -1000, 3e5};
    for (size_t i = 0; i < 5; i++) {
        attn_gradcheck_report report = check_simple((simple){.shape = SQUARE}, points[i], NULL);
        expect_result(report, ATTN_GRADCHECK_PASSED);
        report = check_simple((simple){.shape = SQUARE, .claim = points[i] / 10}, points[i], NULL);
        expect_result(report, ATTN_GRADCHECK_WRONG);
    }
    attn_gradcheck_report report = check_simple((simple){.shape = SQUARE}, 2e6, NULL);
    expect_result(report, ATTN_GRADCHECK_VACUOUS);
    ck_assert_uint_eq(report.skipped, 1);
}
END_TEST

/* f(x) = x at 64: with 1e-6 of x the change drowns in float, with 1e-9 the step itself vanishes. */
START_TEST(a_step_lost_in_rounding_is_no_wrong_gradient) {
    static const double steps[] = {1e-6, 1e-9};
    for (size_t i = 0; i < 2; i++) {
        attn_gradcheck_options options = {.step = steps[i]};
        attn_gradcheck_report report = check_simple((simple){.shape = LINEAR}, 64, &options);
#ifdef ATTN_DOUBLE
        options.step = i ? 1e-18 : 1e-10;
        report = check_simple((simple){.shape = LINEAR}, 64, &options);
#endif
        expect_result(report, ATTN_GRADCHECK_STEP_TOO_SMALL);
        ck_assert_uint_eq(report.unresolved, i);
    }
    expect_result(check_simple((simple){.shape = LINEAR}, 64, NULL), ATTN_GRADCHECK_PASSED);
    attn_gradcheck_options none = {.step = 1e-200}; /* its square is no number above 0 */
    expect_result(check_simple((simple){.shape = LINEAR}, 64, &none),
                  ATTN_GRADCHECK_STEP_TOO_SMALL);
}
END_TEST

/* A constant so large that the rounding of f would excuse any gradient. */
START_TEST(a_large_constant_excuses_nothing) {
    double constant = sizeof(attn_real) == 8 ? 1e10 : 1e5;
    for (int wrong = 0; wrong < 2; wrong++) {
        simple s = {.shape = LINEAR, .c = constant, .claim = wrong ? 0.01 : 0};
        expect_result(check_simple(s, 1, NULL), ATTN_GRADCHECK_STEP_TOO_SMALL);
    }
}
END_TEST

START_TEST(kinks_and_jumps_are_told_from_faults) {
    attn_gradcheck_report report = check_simple((simple){.shape = ABSOLUTE, .claim = 1}, 0, NULL);
    expect_result(report, ATTN_GRADCHECK_WRONG);
    ck_assert_uint_eq(report.rough, 1);
    ck_assert_ptr_nonnull(strstr(report.reason, "kink"));
    double h = sizeof(attn_real) == 8 ? 1e-3 : 3e-2;
    for (int k = 0; k < 2; k++) {
        report = check_simple((simple){.shape = JUMP, .c = 0.3 + h * (k ? 0.75 : 0.25)}, 0.3, NULL);
        expect_result(report, ATTN_GRADCHECK_WRONG);
        ck_assert_uint_eq(report.rough, 1);
    }
    expect_result(check_simple((simple){.shape = ABSOLUTE}, 0.5, NULL), ATTN_GRADCHECK_PASSED);
    /* Smooth, with nothing but a third derivative at 0: a plain fault. */
    report = check_simple((simple){.shape = CUBE, .claim = 0.5}, 0, NULL);
    expect_result(report, ATTN_GRADCHECK_WRONG);
    ck_assert_uint_eq(report.rough, 0);
}
END_TEST

START_TEST(nothing_shown_is_no_pass) {
    expect_result(check_simple((simple){.shape = ZERO}, 1, NULL), ATTN_GRADCHECK_VACUOUS);
    expect_result(check_simple((simple){.shape = ZERO, .claim = 0.1}, 1, NULL),
                  ATTN_GRADCHECK_WRONG);
    model m;
    attn_real x[N];
    fill(&m, NONE, 0, x);
    attn_gradcheck_tensor none[] = {{"none", 3, 0}};
    attn_gradcheck_problem problem = {wavy, &m, x, N, none, 1};
    attn_gradcheck_report report;
    test_ok(run_check(&report, NULL, &problem, NULL));
    expect_result(report, ATTN_GRADCHECK_VACUOUS);
    ck_assert_uint_eq(report.unlisted, N);
}
END_TEST

/* f depends on x_0 and x_1 alone, with sizes far apart; x_2 has gradient zero. */
static attn_status uneven(void *user, const attn_real *x, double *value, attn_real *gradient) {
    const double *claims = user; /* what is added to each gradient */
    *value = 1e4 * (double)x[0] + 0.5 * (double)x[1];
    if (gradient) {
        gradient[0] = (attn_real)(1e4 + claims[0]);
        gradient[1] = (attn_real)(0.5 + claims[1]);
        gradient[2] = (attn_real)claims[2];
    }
    return ATTN_OK;
}

START_TEST(large_tensors_hide_no_others) {
    attn_gradcheck_tensor three[] = {{"large", 0, 1}, {"small", 1, 1}, {"zero", 2, 1}};
    attn_real x[3] = {0, 0.25f, 0.5f}; /* f is 0.125: no noise to speak of */
    static const double claims[4][3] = {{0}, {500, 0, 0}, {0, 0.05, 0}, {0, 0, 0.05}};
    for (size_t k = 0; k < 4; k++) {
        attn_gradcheck_problem problem = {uneven, (void *)claims[k], x, 3, three, 3};
        attn_gradcheck_tensor_report tensors[3];
        attn_gradcheck_report report;
        test_ok(run_check(&report, tensors, &problem, NULL));
        expect_result(report, k ? ATTN_GRADCHECK_WRONG : ATTN_GRADCHECK_PASSED);
        for (size_t t = 0; t < 3; t++)
            ck_assert_int_eq(tensors[t].result,
                             k == t + 1 ? ATTN_GRADCHECK_WRONG : ATTN_GRADCHECK_PASSED);
    }
}
END_TEST

/* In one tensor, what is small beside the largest gradient is compared with that. */
START_TEST(within_a_tensor_the_largest_sets_the_scale) {
    attn_real x[3] = {0, 0.25f, 0.5f};
    double off = sizeof(attn_real) == 8 ? 7e-8 : 0.05; /* too much of 0.5, little of 1e4 · floor */
    const double claims[3] = {0, off, 0};
    attn_gradcheck_tensor apart[] = {{"large", 0, 1}, {"small", 1, 2}};
    for (size_t tensors = 1; tensors <= 2; tensors++) {
        attn_gradcheck_problem problem = {uneven, (void *)claims, x, 3, NULL, 0};
        if (tensors == 2) {
            problem.tensors = apart;
            problem.num_tensors = 2;
        }
        attn_gradcheck_report report;
        test_ok(run_check(&report, NULL, &problem, NULL));
        expect_result(report, tensors == 1 ? ATTN_GRADCHECK_PASSED : ATTN_GRADCHECK_WRONG);
    }
}
END_TEST

#ifdef ATTN_DOUBLE
START_TEST(richardson_gains_four_digits) {
    attn_gradcheck_report report = check_simple((simple){.shape = EXP}, 0.7, NULL);
    ck_assert_double_lt(report.worst.error, 1e-11);
    report = check_simple((simple){.shape = EXP, .claim = 3e-7}, 0.7, NULL);
    expect_result(report, ATTN_GRADCHECK_WRONG);
}
END_TEST
#endif

START_TEST(a_subset_is_random_and_without_repetition) {
    enum { MANY = 200 };
    /* The claim is off everywhere: what was compared is what is wrong. */
    attn_real x[N];
    model m;
    size_t hits[N] = {0};
    for (uint64_t seed = 0; seed < MANY; seed++) {
        fill(&m, NONE, 0, x);
        attn_gradcheck_options options = {ATTN_GRADCHECK_SUBSET, .samples = 1, .seed = seed};
        attn_gradcheck_problem problem = {wavy, &m, x, N, NULL, 0};
        attn_gradcheck_report report;
        test_ok(run_check(&report, NULL, &problem, &options));
        ck_assert_uint_eq(report.checked, 1);
        hits[report.worst.worst]++;
    }
    for (size_t i = 0; i < N; i++)
        ck_assert_msg(hits[i] > 4 && hits[i] < 40, "element %zu was drawn %zu times of %d", i,
                      hits[i], MANY);
    attn_gradcheck_options all = {ATTN_GRADCHECK_SUBSET, .samples = 1000};
    attn_gradcheck_tensor_report tensors[2];
    attn_gradcheck_report report = check_fault(NONE, 0, tensors, &all);
    ck_assert_uint_eq(report.checked, N);
}
END_TEST

START_TEST(what_cannot_be_run) {
    model m;
    attn_real x[N];
    fill(&m, NONE, 0, x);
    attn_gradcheck_problem good = {wavy, &m, x, N, NULL, 0}, bad;
    attn_gradcheck_report report;
    attn_memory need;
    test_ok(attn_gradcheck_memory(&good, NULL, &need));
    attn_arena arena = test_arena(need.inference), counter;
    test_refused(attn_gradcheck_run(NULL, NULL, &good, NULL, &arena), ATTN_ERROR_ARGUMENT);
    test_refused(attn_gradcheck_run(&report, NULL, NULL, NULL, &arena), ATTN_ERROR_ARGUMENT);
    test_refused(attn_gradcheck_run(&report, NULL, &good, NULL, NULL), ATTN_ERROR_ARGUMENT);
    test_ok(attn_arena_init_measuring(&counter));
    test_refused(attn_gradcheck_run(&report, NULL, &good, NULL, &counter), ATTN_ERROR_ARGUMENT);
    bad = good;
    bad.function = NULL;
    test_refused(attn_gradcheck_run(&report, NULL, &bad, NULL, &arena), ATTN_ERROR_ARGUMENT);
    bad = good;
    bad.x = NULL;
    test_refused(attn_gradcheck_run(&report, NULL, &bad, NULL, &arena), ATTN_ERROR_ARGUMENT);
    bad = good;
    bad.num_tensors = 1;
    test_refused(attn_gradcheck_run(&report, NULL, &bad, NULL, &arena), ATTN_ERROR_ARGUMENT);
    static const attn_gradcheck_tensor lists[][2] = {{{"a", 0, N + 1}, {"b", N, 0}},
                                                     {{"a", 0, 5}, {"b", 4, 2}},
                                                     {{"a", 6, 2}, {"b", 0, 2}},
                                                     {{"a", N + 1, 0}, {"b", N, 0}},
                                                     {{"a", 1, SIZE_MAX}, {"b", 0, 0}}};
    bad.num_tensors = 2;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        bad.tensors = lists[i];
        test_refused(attn_gradcheck_run(&report, NULL, &bad, NULL, &arena), ATTN_ERROR_ARGUMENT);
    }
    static const attn_gradcheck_options options[] = {{.step = -1},
                                                     {.step = 2},
                                                     {.step = NAN},
                                                     {.tolerance = -1},
                                                     {.tolerance = 1},
                                                     {.tolerance = NAN},
                                                     {.value_noise = -1},
                                                     {.value_noise = NAN},
                                                     {.value_noise = INFINITY},
                                                     {.mode = (attn_gradcheck_mode)7}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        test_refused(attn_gradcheck_run(&report, NULL, &good, &options[i], &arena),
                     ATTN_ERROR_ARGUMENT);
    attn_arena small = test_arena(need.inference - 1);
    test_refused(attn_gradcheck_run(&report, NULL, &good, NULL, &small), ATTN_ERROR_MEMORY);
    ck_assert_uint_eq(small.used, 0);
    ck_assert_uint_eq(m.calls, 0);
    test_ok(attn_gradcheck_run(&report, NULL, &good, NULL, &arena));
    bad = (attn_gradcheck_problem){wavy, &m, x, SIZE_MAX / 8, NULL, 0};
    test_refused(attn_gradcheck_memory(&bad, NULL, &need), ATTN_ERROR_OVERFLOW);
    attn_arena_destroy(&small);
    attn_arena_destroy(&arena);
}
END_TEST

/* The function uses the arena of the check, resets it, and leaves things in it. */
static attn_status litters(void *user, const attn_real *x, double *value, attn_real *gradient) {
    attn_arena *arena = user;
    void *scratch;
    attn_arena_reset(arena);
    for (int i = 0; i < 2; i++)
        test_ok(attn_arena_alloc(arena, &scratch, 500, 1));
    memset(scratch, 0xFF, 500);
    *value = (double)x[0];
    if (gradient)
        gradient[0] = 1;
    return ATTN_OK;
}

START_TEST(the_arena_may_be_shared) {
    attn_real x = 1;
    attn_gradcheck_problem problem = {litters, NULL, &x, 1, NULL, 0};
    attn_gradcheck_report report;
    attn_memory need;
    test_ok(attn_gradcheck_memory(&problem, NULL, &need));
    attn_arena counter;
    test_ok(attn_arena_init_measuring(&counter));
    void *ignored;
    for (int i = 0; i < 3; i++)
        test_ok(attn_arena_alloc(&counter, &ignored, 500, 1));
    attn_arena arena = test_arena(need.inference + counter.high_water);
    unsigned char *before;
    test_ok(attn_arena_alloc(&arena, (void **)&before, 500, 1));
    memset(before, 0x5A, 500);
    problem.user = &arena;
    size_t used = arena.used;
    test_ok(attn_gradcheck_run(&report, NULL, &problem, NULL, &arena));
    expect_result(report, ATTN_GRADCHECK_PASSED);
    ck_assert_uint_eq(arena.used, used);
    ck_assert_uint_eq(arena.high_water, arena.capacity);
    for (size_t i = 0; i < 500; i++)
        ck_assert_int_eq(before[i], 0x5A);
    attn_arena_destroy(&arena);
}
END_TEST

START_TEST(x_that_is_not_finite) {
    expect_result(check_simple((simple){.shape = SQUARE}, NAN, NULL), ATTN_GRADCHECK_NOT_FINITE);
    expect_result(check_simple((simple){.shape = SQUARE}, INFINITY, NULL),
                  ATTN_GRADCHECK_NOT_FINITE);
}
END_TEST

START_TEST(a_projection_weighs_every_output_differently) {
    attn_real y[4] = {1, 2, 3, 4}, dy[4];
    double value, alone, other, expected = 0;
    test_ok(attn_gradcheck_project(&value, dy, y, 4, 1));
    test_ok(attn_gradcheck_project(&alone, NULL, y, 4, 1));
    test_ok(attn_gradcheck_project(&other, NULL, y, 4, 2));
    for (size_t i = 0; i < 4; i++) {
        expected += (double)dy[i] * (double)y[i];
        for (size_t j = 0; j < i; j++)
            ck_assert_msg(dy[i] != dy[j], "weights %zu and %zu are equal", i, j);
    }
    ck_assert_double_eq(value, expected);
    ck_assert_double_eq(value, alone);
    ck_assert_double_ne(value, other);
    test_refused(attn_gradcheck_project(NULL, dy, y, 4, 1), ATTN_ERROR_ARGUMENT);
    test_refused(attn_gradcheck_project(&value, dy, NULL, 4, 1), ATTN_ERROR_ARGUMENT);
    test_ok(attn_gradcheck_project(&value, NULL, NULL, 0, 1));
    ck_assert_double_eq(value, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("gradcheck");
    TCase *tests = tcase_create("gradcheck");
    tcase_add_loop_test(tests, a_right_gradient_passes, 0, 3);
    tcase_add_loop_test(tests, each_wrong_element_is_found_and_named, 0, N);
    tcase_add_test(tests, directions_find_wrong_elements_too);
    tcase_add_loop_test(tests, each_fault_has_its_result, 0, (int)(sizeof faults / sizeof *faults));
    tcase_add_test(tests, one_bad_claim_is_pointed_at);
    tcase_add_test(tests, a_failing_function_is_passed_on);
    tcase_add_test(tests, steps_follow_the_size_of_x);
    tcase_add_test(tests, a_step_lost_in_rounding_is_no_wrong_gradient);
    tcase_add_test(tests, a_large_constant_excuses_nothing);
    tcase_add_test(tests, kinks_and_jumps_are_told_from_faults);
    tcase_add_test(tests, nothing_shown_is_no_pass);
    tcase_add_test(tests, large_tensors_hide_no_others);
    tcase_add_test(tests, within_a_tensor_the_largest_sets_the_scale);
#ifdef ATTN_DOUBLE
    tcase_add_test(tests, richardson_gains_four_digits);
#endif
    tcase_add_test(tests, a_subset_is_random_and_without_repetition);
    tcase_add_test(tests, what_cannot_be_run);
    tcase_add_test(tests, the_arena_may_be_shared);
    tcase_add_test(tests, x_that_is_not_finite);
    tcase_add_test(tests, a_projection_weighs_every_output_differently);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
