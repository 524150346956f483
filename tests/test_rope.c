/* Rotary positions: values by hand, angles far out, the inverse, layouts, threads, refusals. */
#include "problem.h"
#include "threads.h"

#include "kernels/kernels.h"
#include "ops/rope.h"

static const char *const pairing_names[] = {"none", "interleaved", "half"};
static const attn_rope pairings[] = {ATTN_ROPE_INTERLEAVED, ATTN_ROPE_HALF};

#ifdef ATTN_DOUBLE
static const double tolerance = 1e-14;
#else
static const double tolerance = 4e-7;
#endif

/* Rows of one head, contiguous. */
static attn_status turn(attn_real *y, const attn_real *x, attn_rope_config config, size_t len,
                        size_t d_head) {
    attn_strides strides = attn_strides_bhtd(len, 1, d_head);
    return attn_rope_forward(y, x, &strides, &config, 1, 1, len, d_head);
}

START_TEST(by_hand) {
    const attn_real x[4] = {1, 2, 3, 4};
    const attn_real want[][4] = {
        {(attn_real)-1.142640, (attn_real)1.922076, (attn_real)2.959851, (attn_real)4.029800},
        {(attn_real)-1.984111, (attn_real)1.959901, (attn_real)2.462378, (attn_real)4.019800}};
    attn_real y[4];
    test_ok(turn(y, x, (attn_rope_config){pairings[_i], 1e4, 1}, 1, 4));
    test_close(pairing_names[pairings[_i]], y, want[_i], 4, 1e-6, 0);
    attn_real by_default[4];
    test_ok(turn(by_default, x, (attn_rope_config){pairings[_i], 0, 1}, 1, 4));
    ck_assert_mem_eq(by_default, y, sizeof y);
    test_ok(turn(y, x, (attn_rope_config){pairings[_i], 1e4, 0}, 1, 4));
    ck_assert_mem_eq(y, x, sizeof y);
}
END_TEST

/* Tables that remember no offset would give the same rows twice. */
START_TEST(an_offset_continues_a_longer_run) {
    enum { LONG = 90, FIRST = 7, D = 6 };
    const attn_rope pairing = pairings[_i];
    attn_real *x = test_normal(LONG * D, 1, 3);
    attn_real *whole = test_poison(LONG * D), *part = test_poison(LONG * D);
    attn_real *start = test_poison(LONG * D);
    test_ok(turn(whole, x, (attn_rope_config){.pairing = pairing}, LONG, D));
    test_ok(turn(start, x + FIRST * D, (attn_rope_config){.pairing = pairing}, 5, D));
    test_ok(
        turn(part, x + FIRST * D, (attn_rope_config){.pairing = pairing, .position = FIRST}, 5, D));
    ck_assert_mem_eq(part, whole + FIRST * D, 5 * D * sizeof *part);
    for (size_t n = 0; n < 5 * D; n++)
        ck_assert_msg(fabs((double)start[n] - (double)part[n]) > 1e-6, "element %zu", n);
    /* Each of the later rows alone, as decoding asks for it. */
    for (size_t t = 0; t < LONG; t++) {
        attn_rope_config at = {.pairing = pairing, .position = (int64_t)t};
        test_ok(turn(part, x + t * D, at, 1, D));
        ck_assert_mem_eq(part, whole + t * D, D * sizeof *part);
    }
    free(x);
    free(whole);
    free(part);
    free(start);
}
END_TEST

static const int64_t positions[] = {0, 1, -1, 4097, -100003, 16777217, -16777217, 1073741823};

/* x = 1, y = 0 shows cosine and sine, to be compared with those of long double. */
START_TEST(angles_hold_far_out) {
    enum { D = 128, T = 3 };
    const int64_t position = positions[_i];
    const double bases[] = {10000, 500000, 0.5};
    for (size_t n = 0; n < 3; n++) {
        attn_real x[T * D] = {0}, y[T * D];
        for (size_t i = 0; i < T * D; i += 2)
            x[i] = 1;
        attn_rope_config config = {ATTN_ROPE_INTERLEAVED, bases[n], position};
        test_ok(turn(y, x, config, T, D));
        for (size_t i = 0; i < T * D; i += 2) {
            long double exponent = -(long double)(i % D) / D;
            long double a = ((long double)position + (long double)(i / D)) *
                            powl((long double)bases[n], exponent);
            double error = fmax(fabs((double)((long double)y[i] - cosl(a))),
                                fabs((double)((long double)y[i + 1] - sinl(a))));
            double allowed = TEST_EPSILON + 2e-15 * (1 + fabs((double)position));
            ck_assert_msg(error <= allowed, "base %g, position %lld, element %zu: error %g > %g",
                          bases[n], (long long)position, i, error, allowed);
        }
    }
}
END_TEST

static const attn_shape shapes[] = {
    {1, 1, 1, 0, 2}, {2, 3, 5, 0, 6}, {3, 2, 33, 0, 128}, {1, 2, 65, 0, 262}, {2, 12, 300, 0, 64}};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

/* One element of the turned tensor, spelled out. */
static double turned(const tensor *x, size_t head, size_t t, size_t c, attn_rope pairing,
                     int64_t position, double sign) {
    const attn_real *row = tensor_row(x, head, t);
    const size_t half = x->width / 2;
    const bool first = pairing == ATTN_ROPE_HALF ? c < half : c % 2 == 0;
    const size_t pair = pairing == ATTN_ROPE_HALF ? c % half : c / 2;
    const size_t other = pairing == ATTN_ROPE_HALF ? (c + half) % x->width : c ^ 1;
    double a = (double)(position + (int64_t)t) * pow(10000, -2.0 * (double)pair / (double)x->width);
    return (double)row[c] * cos(a) + (first ? -1 : 1) * sign * (double)row[other] * sin(a);
}

/* Every layout, shape and number of threads; forward and backward; in place and not. */
START_TEST(every_element_of_every_layout) {
    const attn_shape s = shapes[_i % NUM_SHAPES];
    const layout form = (layout)(_i / NUM_SHAPES);
    const size_t rows = s.batch * s.num_heads * s.len_q, n = rows * s.d_head;
    /* The angle itself, a product with the position, has an error that grows with it. */
    const double allowed = (20 + (double)s.len_q) * TEST_EPSILON;
    attn_real *want = test_poison(n);
    tensor x = tensor_make(form, &s, s.num_heads, s.len_q),
           y = tensor_make(form, &s, s.num_heads, s.len_q);
    for (size_t kind = 0; kind < 4; kind++) {
        const attn_rope_config config = {.pairing = pairings[kind % 2], .position = -4};
        const bool back = kind >= 2;
        char what[100];
        snprintf(what, sizeof what, "%s, shape %zu, layout %d, %s", pairing_names[config.pairing],
                 (size_t)_i % NUM_SHAPES, (int)form, back ? "back" : "forward");
        for (size_t t = 0; t < sizeof test_thread_counts / sizeof *test_thread_counts; t++) {
            test_set_threads(test_thread_counts[t]);
            tensor_fill_normal(&x, 1, 11);
            for (size_t e = 0; e < n && t == 0; e++) {
                size_t row = e / s.d_head;
                want[e] = (attn_real)turned(&x, row / s.len_q, row % s.len_q, e % s.d_head,
                                            config.pairing, config.position, back ? -1 : 1);
            }
            attn_status (*apply)(attn_real *, const attn_real *, const attn_strides *,
                                 const attn_rope_config *, size_t, size_t, size_t, size_t) =
                back ? attn_rope_backward : attn_rope_forward;
            test_ok(apply(y.data, x.data, &x.strides, &config, s.batch, s.num_heads, s.len_q,
                          s.d_head));
            if (t == 0)
                tensor_check(what, &y, want, 0, allowed);
            test_ok(apply(x.data, x.data, &x.strides, &config, s.batch, s.num_heads, s.len_q,
                          s.d_head));
            for (size_t e = 0; e < n; e++) {
                size_t row = e / s.d_head;
                const attn_real *got = tensor_row(&x, row / s.len_q, row % s.len_q) + e % s.d_head;
                const attn_real *same = tensor_row(&y, row / s.len_q, row % s.len_q) + e % s.d_head;
                if (memcmp(got, same, sizeof *got) != 0)
                    ck_abort_msg("%s, %d threads: element %zu is %.17g in place, %.17g not", what,
                                 test_thread_counts[t], e, (double)*got, (double)*same);
                if (t == 0)
                    want[e] = *same; /* the bits that any number of threads must give */
            }
            tensor_check(what, &y, want, 0, t == 0 ? allowed : 0);
        }
    }
    free(want);
    free(x.block);
    free(y.block);
}
END_TEST

/* The backward undoes the forward, and is its transpose: <R x, g> = <x, Rᵀ g>. */
START_TEST(backward_is_the_inverse) {
    enum { T = 9, D = 10, N = T * D };
    const attn_strides strides = attn_strides_bhtd(T, 1, D);
    const attn_rope_config config = {pairings[_i], 100, 12345};
    attn_real *x = test_normal(N, 1, 5), *g = test_normal(N, 1, 6);
    attn_real y[N], back[N], dx[N];
    test_ok(attn_rope_forward(y, x, &strides, &config, 1, 1, T, D));
    test_ok(attn_rope_backward(back, y, &strides, &config, 1, 1, T, D));
    test_close("there and back", back, x, N, tolerance, tolerance);
    test_ok(attn_rope_backward(dx, g, &strides, &config, 1, 1, T, D));
    double left = 0, right = 0;
    for (size_t n = 0; n < N; n++) {
        left += (double)y[n] * (double)g[n];
        right += (double)x[n] * (double)dx[n];
    }
    ck_assert_msg(fabs(left - right) <= N * tolerance, "%.17g, %.17g", left, right);
    free(x);
    free(g);
}
END_TEST

typedef struct checked {
    attn_rope_config config;
    bool wrong_sign;
} checked;

enum { CHECK_T = 3, CHECK_D = 4, CHECK_N = CHECK_T * CHECK_D };

static attn_status projected(void *user, const attn_real *x, double *value, attn_real *gradient) {
    const checked *c = user;
    const attn_strides strides = attn_strides_bhtd(CHECK_T, 1, CHECK_D);
    attn_real y[CHECK_N], dy[CHECK_N];
    test_ok(attn_rope_forward(y, x, &strides, &c->config, 1, 1, CHECK_T, CHECK_D));
    test_ok(attn_gradcheck_project(value, dy, y, CHECK_N, 8));
    if (!gradient)
        return ATTN_OK;
    if (c->wrong_sign)
        return attn_rope_forward(gradient, dy, &strides, &c->config, 1, 1, CHECK_T, CHECK_D);
    return attn_rope_backward(gradient, dy, &strides, &c->config, 1, 1, CHECK_T, CHECK_D);
}

/* Against finite differences, which also see a gradient that is turned the wrong way. */
START_TEST(gradient_and_its_wrong_sign) {
    attn_real *x = test_normal(CHECK_N, 1, 9);
    for (int wrong = 0; wrong < 2; wrong++) {
        checked c = {{pairings[_i], 0, 2}, wrong != 0};
        attn_gradcheck_tensor all = {"x", 0, CHECK_N};
        attn_gradcheck_problem asked = {.function = projected,
                                        .user = &c,
                                        .x = x,
                                        .count = CHECK_N,
                                        .tensors = &all,
                                        .num_tensors = 1};
        attn_memory need;
        attn_gradcheck_report report;
        test_ok(attn_gradcheck_memory(&asked, NULL, &need));
        attn_arena arena = test_arena(need.inference);
        test_ok(attn_gradcheck_run(&report, NULL, &asked, NULL, &arena));
        ck_assert_int_eq(report.result == ATTN_GRADCHECK_PASSED, !wrong);
        attn_arena_destroy(&arena);
    }
    free(x);
}
END_TEST

/* q at position p, k at position s: the score depends on p - s. */
START_TEST(scores_depend_on_distance) {
    enum { D = 8 };
    attn_real *q = test_normal(D, 1, 1), *k = test_normal(D, 1, 2), a[D], b[D];
    double scores[3];
    const int64_t shifts[3] = {0, -50, 1000};
    for (size_t n = 0; n < 3; n++) {
        test_ok(turn(a, q, (attn_rope_config){pairings[_i], 0, 9 + shifts[n]}, 1, D));
        test_ok(turn(b, k, (attn_rope_config){pairings[_i], 0, 4 + shifts[n]}, 1, D));
        scores[n] = 0;
        for (size_t c = 0; c < D; c++)
            scores[n] += (double)a[c] * (double)b[c];
        ck_assert_double_eq_tol(scores[n], scores[0], 1000 * TEST_EPSILON * D);
    }
    free(q);
    free(k);
}
END_TEST

/* Rows of sequences of one length, and of any lengths laid end to end: from any row to any other
 * they have the bits of a call for each sequence. */
enum { SEQUENCES = 5, PACKED_ROWS = 170, PACKED_HEADS = 2, PACKED_D = 6, PACKED_ROW = 15 };
static const size_t packed_offsets[SEQUENCES + 1] = {0, 3, 3, 120, 121, PACKED_ROWS};
static const size_t packed_keys[SEQUENCES + 1] = {0, 1, 1, 200, 201, 300};

START_TEST(rows_know_their_sequence) {
    attni_rope_rows where = {.config = {.pairing = pairings[_i % 2], .position = -2},
                             .d_head = PACKED_D};
    const bool packed = _i >= 2, with_keys = _i >= 4, back = _i % 2 == 1;
    const size_t n = PACKED_ROWS * PACKED_ROW, equal[] = {0, 34, 68, 102, 136, 170};
    const size_t *offsets = packed ? packed_offsets : equal;
    where.len = packed ? 0 : 34;
    where.offsets = packed ? packed_offsets : NULL;
    where.sequences = packed ? SEQUENCES : 0;
    where.keys = with_keys ? packed_keys : NULL;
    attn_real *x = test_normal(n, 1, 21), *want = test_poison(n), *got = test_poison(n);
    memcpy(want, x, n * sizeof *x);
    for (size_t s = 0; s < SEQUENCES; s++) {
        const attn_strides strides = {0, PACKED_D, PACKED_ROW, 1};
        const size_t len = offsets[s + 1] - offsets[s];
        attn_rope_config config = where.config;
        attn_real *rows = want + offsets[s] * PACKED_ROW;
        if (with_keys)
            config.position += (int64_t)(packed_keys[s + 1] - packed_keys[s]) - (int64_t)len;
        test_ok((back ? attn_rope_backward : attn_rope_forward)(rows, rows, &strides, &config, 1,
                                                                PACKED_HEADS, len, PACKED_D));
    }
    for (size_t cut = 0; cut <= PACKED_ROWS; cut++) {
        memcpy(got, x, n * sizeof *x);
        attni_rope_turn(got, PACKED_ROW, PACKED_HEADS, 0, cut, &where, back);
        attni_rope_turn(got + cut * PACKED_ROW, PACKED_ROW, PACKED_HEADS, cut, PACKED_ROWS, &where,
                        back);
        ck_assert_msg(memcmp(got, want, n * sizeof *got) == 0, "cut at row %zu", cut);
    }
    for (size_t t = 0; t < sizeof test_thread_counts / sizeof *test_thread_counts; t++) {
        memcpy(got, x, n * sizeof *x);
        attni_rope_turn_all(got, PACKED_ROW, PACKED_HEADS, PACKED_ROWS, &where, back,
                            (size_t)test_thread_counts[t]);
        ck_assert_mem_eq(got, want, n * sizeof *got);
    }
    free(x);
    free(want);
    free(got);
}
END_TEST

/* The kernel of every instruction set, for heads of any width, against the rotation spelled out. */
START_TEST(every_instruction_set_turns) {
    enum { ROWS = 3, HEADS = 2, WIDEST = 2 * ATTNI_ROPE_PAIRS, ROW = HEADS * WIDEST + 1 };
    const attni_kernels *kernels = attni_kernels_for((attn_isa)_i);
    for (size_t d = 2; kernels && d <= WIDEST; d += 2) {
        for (int kind = 0; kind < 4; kind++) {
            attn_real *x = test_normal(ROWS * ROW, 1, d), *y = test_normal(ROWS * ROW, 1, d);
            attni_angles a = {.count = d / 2};
            for (size_t m = 0; m < d / 2; m++) {
                a.cosine[m] = cos((double)m);
                a.sine[m] = sin((double)m);
                a.step_cosine[m] = cos(0.1 * (double)m);
                a.step_sine[m] = sin(0.1 * (double)m);
            }
            kernels->rope(&(attni_turn){.x = y,
                                        .row = ROW,
                                        .head = d,
                                        .rows = ROWS,
                                        .heads = HEADS,
                                        .d_head = d,
                                        .interleaved = kind % 2 == 0,
                                        .back = kind >= 2},
                          &a);
            for (size_t t = 0; t < ROWS; t++)
                for (size_t h = 0; h < HEADS; h++)
                    for (size_t m = 0; m < d / 2; m++) {
                        attn_real *row = &x[t * ROW + h * d];
                        attn_real *px = kind % 2 == 0 ? &row[2 * m] : &row[m];
                        attn_real *py = kind % 2 == 0 ? &row[2 * m + 1] : &row[m + d / 2];
                        const double angle = (double)m * (1 + 0.1 * (double)t);
                        const double c = cos(angle), s = (kind >= 2 ? -1 : 1) * sin(angle);
                        const double was_x = (double)*px, was_y = (double)*py;
                        *px = (attn_real)(was_x * c - was_y * s);
                        *py = (attn_real)(was_x * s + was_y * c);
                    }
            char what[80];
            snprintf(what, sizeof what, "%s, d %zu, kind %d", attn_isa_name((attn_isa)_i), d, kind);
            test_close(what, y, x, ROWS * ROW, 0, 100 * TEST_EPSILON);
            free(x);
            free(y);
        }
    }
}
END_TEST

START_TEST(refuses_what_cannot_be) {
    attn_real x[4] = {1, 2, 3, 4}, y[4] = {7, 7, 7, 7};
    const attn_strides s = attn_strides_bhtd(2, 1, 2);
    const attn_rope_config good = {.pairing = ATTN_ROPE_HALF};
    const struct {
        attn_rope_config config;
        size_t d_head;
        attn_status status;
    } configs[] = {
        {{.pairing = ATTN_ROPE_NONE}, 2, ATTN_ERROR_ARGUMENT},
        {{.pairing = (attn_rope)3}, 2, ATTN_ERROR_ARGUMENT},
        {{.pairing = (attn_rope)-1}, 2, ATTN_ERROR_ARGUMENT},
        {{.pairing = ATTN_ROPE_HALF, .base = -1}, 2, ATTN_ERROR_ARGUMENT},
        {{.pairing = ATTN_ROPE_HALF, .base = NAN}, 2, ATTN_ERROR_ARGUMENT},
        {{.pairing = ATTN_ROPE_HALF, .base = INFINITY}, 2, ATTN_ERROR_ARGUMENT},
        {{.pairing = ATTN_ROPE_HALF}, 1, ATTN_ERROR_SHAPE},
        {{.pairing = ATTN_ROPE_INTERLEAVED}, 3, ATTN_ERROR_SHAPE},
        {{.pairing = ATTN_ROPE_HALF, .position = INT64_MAX}, 2, ATTN_ERROR_OVERFLOW},
    };
    for (size_t n = 0; n < sizeof configs / sizeof *configs; n++) {
        test_refused(attn_rope_forward(y, x, &s, &configs[n].config, 1, 1, 2, configs[n].d_head),
                     configs[n].status);
        ck_assert_ptr_nonnull(strstr(attn_error_message(), "attn_rope_forward"));
        test_refused(attn_rope_backward(y, x, &s, &configs[n].config, 1, 1, 2, configs[n].d_head),
                     configs[n].status);
    }
    const attn_rope_config tiny = {
        .pairing = ATTN_ROPE_HALF, .base = 1e-300, .position = INT64_MIN};
    const attn_strides wide = attn_strides_bhtd(1, 1, 1000);
    test_refused(attn_rope_forward(y, x, &wide, &tiny, 1, 1, 1, 1000), ATTN_ERROR_ARGUMENT);
    test_refused(attn_rope_forward(NULL, x, &s, &good, 1, 1, 2, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_rope_forward(y, NULL, &s, &good, 1, 1, 2, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_rope_forward(y, x, NULL, &good, 1, 1, 2, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_rope_forward(y, x, &s, NULL, 1, 1, 2, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_rope_backward(NULL, x, &s, &good, 1, 1, 2, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_rope_backward(y, x, NULL, &good, 1, 1, 2, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_rope_forward(y, x, &(attn_strides){4, 4, 2, 2}, &good, 1, 1, 2, 2),
                 ATTN_ERROR_UNSUPPORTED);
    test_refused(attn_rope_forward(y, x, &(attn_strides){0, 4, 2, 1}, &good, 2, 1, 2, 2),
                 ATTN_ERROR_SHAPE);
    test_refused(attn_rope_forward(y, x, &s, &good, SIZE_MAX / 2, 3, 2, 2), ATTN_ERROR_OVERFLOW);
    for (size_t n = 0; n < 4; n++)
        ck_assert(y[n] == 7);
    /* The last position that there is. */
    attn_rope_config last = {.pairing = ATTN_ROPE_HALF, .position = INT64_MAX - 1};
    test_ok(attn_rope_forward(y, x, &s, &last, 1, 1, 2, 2));
    last.position = INT64_MIN;
    test_ok(attn_rope_forward(y, x, &s, &last, 1, 1, 2, 2));
}
END_TEST

START_TEST(empty_succeeds) {
    const attn_rope_config config = {.pairing = ATTN_ROPE_HALF};
    const attn_strides s = attn_strides_bhtd(2, 1, 2);
    test_ok(attn_rope_forward(NULL, NULL, &s, &config, 0, 1, 2, 2));
    test_ok(attn_rope_forward(NULL, NULL, &s, &config, 1, 0, 2, 2));
    test_ok(attn_rope_backward(NULL, NULL, &s, &config, 1, 1, 0, 2));
    test_ok(attn_rope_backward(NULL, NULL, &s, &config, 1, 1, 2, 0));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("rope");
    TCase *tests = tcase_create("rope");
    tcase_add_loop_test(tests, by_hand, 0, 2);
    tcase_add_loop_test(tests, an_offset_continues_a_longer_run, 0, 2);
    tcase_add_loop_test(tests, angles_hold_far_out, 0, sizeof positions / sizeof *positions);
    tcase_add_loop_test(tests, every_element_of_every_layout, 0, NUM_SHAPES * LAYOUT_COUNT);
    tcase_add_loop_test(tests, backward_is_the_inverse, 0, 2);
    tcase_add_loop_test(tests, gradient_and_its_wrong_sign, 0, 2);
    tcase_add_loop_test(tests, scores_depend_on_distance, 0, 2);
    tcase_add_loop_test(tests, rows_know_their_sequence, 0, 6);
    tcase_add_loop_test(tests, every_instruction_set_turns, 0, ATTN_ISA_COUNT);
    tcase_add_test(tests, refuses_what_cannot_be);
    tcase_add_test(tests, empty_succeeds);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
