/* The affine map and its backward against plain loops. */
#include "test.h"

typedef struct shape {
    size_t rows, d_in, d_out;
} shape;

static const shape shapes[] = {{1, 1, 1},    {3, 5, 2},     {7, 1, 9},     {1, 33, 17},
                               {64, 64, 64}, {130, 48, 70}, {257, 96, 31}, {40, 260, 300}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Everything that one map reads and writes. */
typedef struct problem {
    shape s;
    attn_real *x, *w, *b, *dy;            /* random */
    attn_real *y, *dx;                    /* overwritten: start as NaN */
    attn_real *dw, *db, *dw_old, *db_old; /* added to: start random */
} problem;

static attn_real *copy(const attn_real *x, size_t n) {
    attn_real *y = test_poison(n);
    memcpy(y, x, n * sizeof *y);
    return y;
}

static problem make(shape s, uint64_t seed) {
    problem p = {.s = s};
    p.x = test_normal(s.rows * s.d_in, 1, seed);
    p.w = test_normal(s.d_out * s.d_in, 1, seed + 1);
    p.b = test_normal(s.d_out, 1, seed + 2);
    p.dy = test_normal(s.rows * s.d_out, 1, seed + 3);
    p.dw_old = test_normal(s.d_out * s.d_in, 1, seed + 4);
    p.db_old = test_normal(s.d_out, 1, seed + 5);
    p.y = test_poison(s.rows * s.d_out);
    p.dx = test_poison(s.rows * s.d_in);
    p.dw = copy(p.dw_old, s.d_out * s.d_in);
    p.db = copy(p.db_old, s.d_out);
    return p;
}

static void release(problem *p) {
    attn_real *const arrays[] = {p->x,  p->w,  p->b,  p->dy,     p->y,
                                 p->dx, p->dw, p->db, p->dw_old, p->db_old};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
}

/* A row of some matrix product: sum over l of a[l·a_step] b[l·b_step], plus c. */
static double dot(const attn_real *a, size_t a_step, const attn_real *b, size_t b_step, size_t n,
                  double c) {
    for (size_t l = 0; l < n; l++)
        c += (double)a[l * a_step] * (double)b[l * b_step];
    return c;
}

static void check(const char *name, shape s, const attn_real *got, const double *want, size_t n,
                  size_t terms) {
    char what[100];
    snprintf(what, sizeof what, "%s, rows %zu, in %zu, out %zu", name, s.rows, s.d_in, s.d_out);
    attn_real *rounded = test_poison(n);
    for (size_t i = 0; i < n; i++)
        rounded[i] = (attn_real)want[i];
    test_close(what, got, rounded, n, 0, (double)(terms + 4) * TEST_EPSILON);
    free(rounded);
}

static void check_forward(const problem *p, const attn_real *b) {
    const shape s = p->s;
    double *want = malloc(s.rows * s.d_out * sizeof *want);
    ck_assert_ptr_nonnull(want);
    for (size_t r = 0; r < s.rows; r++)
        for (size_t o = 0; o < s.d_out; o++)
            want[r * s.d_out + o] =
                dot(p->x + r * s.d_in, 1, p->w + o * s.d_in, 1, s.d_in, b ? (double)b[o] : 0);
    test_ok(attn_linear_forward(p->y, p->x, p->w, b, s.rows, s.d_in, s.d_out));
    check("y", s, p->y, want, s.rows * s.d_out, s.d_in);
    free(want);
}

static void check_backward(const problem *p) {
    const shape s = p->s;
    const size_t most = (s.rows + s.d_out) * s.d_in + s.d_out;
    double *want = malloc(most * sizeof *want);
    ck_assert_ptr_nonnull(want);
    for (size_t r = 0; r < s.rows; r++)
        for (size_t i = 0; i < s.d_in; i++)
            want[r * s.d_in + i] = dot(p->dy + r * s.d_out, 1, p->w + i, s.d_in, s.d_out, 0);
    check("dx", s, p->dx, want, s.rows * s.d_in, s.d_out);
    for (size_t o = 0; o < s.d_out; o++)
        for (size_t i = 0; i < s.d_in; i++)
            want[o * s.d_in + i] = dot(p->dy + o, s.d_out, p->x + i, s.d_in, s.rows,
                                       (double)p->dw_old[o * s.d_in + i]);
    check("dW", s, p->dw, want, s.d_out * s.d_in, s.rows);
    const attn_real one = 1;
    for (size_t o = 0; o < s.d_out; o++)
        want[o] = dot(p->dy + o, s.d_out, &one, 0, s.rows, (double)p->db_old[o]);
    check("db", s, p->db, want, s.d_out, s.rows);
    free(want);
}

START_TEST(forward_agrees_with_a_loop) {
    problem p = make(shapes[_i], 10 + (uint64_t)_i);
    check_forward(&p, p.b);
    check_forward(&p, NULL);
    release(&p);
}
END_TEST

START_TEST(backward_agrees_with_a_loop) {
    problem p = make(shapes[_i], 20 + (uint64_t)_i);
    const shape s = p.s;
    test_ok(attn_linear_backward(p.dx, p.dw, p.db, p.dy, p.x, p.w, s.rows, s.d_in, s.d_out));
    check_backward(&p);
    release(&p);
}
END_TEST

/* Each gradient alone is what it is together with the others. */
START_TEST(gradients_may_be_left_out) {
    problem p = make(shapes[_i], 30 + (uint64_t)_i);
    const shape s = p.s;
    test_ok(attn_linear_backward(p.dx, NULL, NULL, p.dy, NULL, p.w, s.rows, s.d_in, s.d_out));
    test_ok(attn_linear_backward(NULL, p.dw, NULL, p.dy, p.x, NULL, s.rows, s.d_in, s.d_out));
    test_ok(attn_linear_backward(NULL, NULL, p.db, p.dy, NULL, NULL, s.rows, s.d_in, s.d_out));
    test_ok(attn_linear_backward(NULL, NULL, NULL, p.dy, NULL, NULL, s.rows, s.d_in, s.d_out));
    check_backward(&p);
    release(&p);
}
END_TEST

START_TEST(no_rows_change_nothing) {
    problem p = make((shape){2, 3, 4}, 40);
    test_ok(attn_linear_forward(NULL, NULL, p.w, p.b, 0, 3, 4));
    test_ok(attn_linear_backward(NULL, p.dw, p.db, NULL, NULL, p.w, 0, 3, 4));
    ck_assert(memcmp(p.dw, p.dw_old, 12 * sizeof *p.dw) == 0);
    ck_assert(memcmp(p.db, p.db_old, 4 * sizeof *p.db) == 0);
    release(&p);
}
END_TEST

START_TEST(wrong_calls_are_refused_and_change_nothing) {
    problem p = make((shape){2, 3, 4}, 50);
    const size_t huge = SIZE_MAX / 4;
    test_refused(attn_linear_forward(p.y, p.x, p.w, p.b, 2, 0, 4), ATTN_ERROR_ARGUMENT);
    test_refused(attn_linear_forward(p.y, p.x, p.w, p.b, 2, 3, 0), ATTN_ERROR_ARGUMENT);
    test_refused(attn_linear_forward(p.y, p.x, p.w, p.b, huge, 3, 4), ATTN_ERROR_OVERFLOW);
    test_refused(attn_linear_forward(NULL, p.x, p.w, p.b, 2, 3, 4), ATTN_ERROR_ARGUMENT);
    test_refused(attn_linear_forward(p.y, NULL, p.w, p.b, 2, 3, 4), ATTN_ERROR_ARGUMENT);
    test_refused(attn_linear_forward(p.y, p.x, NULL, p.b, 2, 3, 4), ATTN_ERROR_ARGUMENT);
    test_refused(attn_linear_backward(p.dx, p.dw, p.db, NULL, p.x, p.w, 2, 3, 4),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_linear_backward(p.dx, p.dw, p.db, p.dy, NULL, p.w, 2, 3, 4),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_linear_backward(p.dx, p.dw, p.db, p.dy, p.x, NULL, 2, 3, 4),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_linear_backward(p.dx, p.dw, p.db, p.dy, p.x, p.w, huge, 3, 4),
                 ATTN_ERROR_OVERFLOW);
    for (size_t i = 0; i < 8; i++)
        ck_assert(isnan(p.y[i]));
    for (size_t i = 0; i < 6; i++)
        ck_assert(isnan(p.dx[i]));
    ck_assert(memcmp(p.dw, p.dw_old, 12 * sizeof *p.dw) == 0);
    ck_assert(memcmp(p.db, p.db_old, 4 * sizeof *p.db) == 0);
    release(&p);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("linear");
    TCase *values = tcase_create("values");
    tcase_add_loop_test(values, forward_agrees_with_a_loop, 0, SHAPES);
    tcase_add_loop_test(values, backward_agrees_with_a_loop, 0, SHAPES);
    tcase_add_loop_test(values, gradients_may_be_left_out, 0, SHAPES);
    suite_add_tcase(suite, values);
    TCase *edges = tcase_create("edges");
    tcase_add_test(edges, no_rows_change_nothing);
    tcase_add_test(edges, wrong_calls_are_refused_and_change_nothing);
    suite_add_tcase(suite, edges);
    return test_main(suite);
}
