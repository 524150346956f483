/* Matrix products against a plain loop: every instruction set's kernel, and the choice in ops/. */
#include "test.h"

#include "kernels/kernels.h"
#include "ops/gemm.h"

typedef struct shape {
    size_t m, n, k;
} shape;

typedef struct product_case {
    shape shape;
    bool trans_a, trans_b;
    double alpha, beta;
    bool bias;
} product_case;

typedef void gemm_function(const attni_product *product);

/* Rows get PAD unused reals, arrays start one real off the alignment: NaN in A and B, where a read
 * would show, and SENTINEL in C, where a write would. */
enum { PAD = 3 };
static const attn_real SENTINEL = (attn_real)-77;

static attn_real *padded(size_t rows, size_t columns, uint64_t seed) {
    const size_t row = columns + PAD, n = 1 + rows * row;
    attn_real *x = test_poison(n), *values = test_normal(rows * columns, 1, seed);
    for (size_t i = 0; i < rows; i++)
        memcpy(x + 1 + i * row, values + i * columns, columns * sizeof *x);
    free(values);
    return x;
}

static double expected(const attni_product *p, size_t i, size_t j, double c_before,
                       double *magnitude) {
    double sum = 0, size = 0;
    for (size_t l = 0; l < p->k; l++) {
        const double a = (double)(p->trans_a ? p->a[l * p->lda + i] : p->a[i * p->lda + l]);
        const double b = (double)(p->trans_b ? p->b[j * p->ldb + l] : p->b[l * p->ldb + j]);
        sum += a * b;
        size += fabs(a * b);
    }
    const double rest =
        (p->beta != 0 ? (double)p->beta * c_before : 0) + (p->bias ? (double)p->bias[j] : 0);
    *magnitude = fabs((double)p->alpha) * size + fabs(rest);
    return (double)p->alpha * sum + rest;
}

static void check_product(gemm_function *gemm, const char *who, product_case t, uint64_t seed) {
    const size_t m = t.shape.m, n = t.shape.n, k = t.shape.k;
    attn_real *a = t.trans_a ? padded(k, m, seed) : padded(m, k, seed);
    attn_real *b = t.trans_b ? padded(n, k, seed + 1) : padded(k, n, seed + 1);
    attn_real *c = padded(m, n, seed + 2), *bias = test_normal(n, 1, seed + 3);
    const size_t ldc = n + PAD;
    for (size_t i = 0; i < m * ldc + 1; i++)
        if (isnan(c[i]))
            c[i] = SENTINEL;
    if (t.beta == 0)
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++)
                c[1 + i * ldc + j] = (attn_real)NAN;
    attn_real *before = malloc((m * ldc + 1) * sizeof *before);
    ck_assert_ptr_nonnull(before);
    memcpy(before, c, (m * ldc + 1) * sizeof *before);
    const attni_product p = {.m = m,
                             .n = n,
                             .k = k,
                             .trans_a = t.trans_a,
                             .trans_b = t.trans_b,
                             .alpha = (attn_real)t.alpha,
                             .beta = (attn_real)t.beta,
                             .a = a + 1,
                             .lda = (t.trans_a ? m : k) + PAD,
                             .b = b + 1,
                             .ldb = (t.trans_b ? k : n) + PAD,
                             .c = c + 1,
                             .ldc = ldc,
                             .bias = t.bias ? bias : NULL};
    gemm(&p);
    for (size_t i = 0; i < m * ldc + 1; i++) {
        const size_t row = (i - 1) / ldc, column = (i - 1) % ldc;
        if (i == 0 || column >= n) {
            if (c[i] != SENTINEL)
                ck_abort_msg("%s wrote outside C at %zu", who, i);
            continue;
        }
        double magnitude;
        const double want = expected(&p, row, column, (double)before[i], &magnitude);
        const double allowed = (double)(k + 4) * TEST_EPSILON * magnitude;
        if (!(fabs((double)c[i] - want) <= allowed))
            ck_abort_msg("%s (%zu,%zu,%zu) %c%c alpha %g beta %g bias %d seed %llu: C[%zu,%zu] = "
                         "%.17g, expected %.17g, allowed %.3g",
                         who, m, n, k, t.trans_a ? 'T' : 'N', t.trans_b ? 'T' : 'N', t.alpha,
                         t.beta, t.bias, (unsigned long long)seed, row, column, (double)c[i], want,
                         allowed);
    }
    free(a);
    free(b);
    free(c);
    free(bias);
    free(before);
}

/* The four transposes; alpha, beta and bias go through their cases as the seeds go by. */
static void check_shape(gemm_function *gemm, const char *who, shape s, uint64_t seed) {
    static const double alphas[] = {1, -1.5, 1, 0.25};
    static const double betas[] = {0, 1, 1, -0.5, 0};
    for (unsigned transposes = 0; transposes < 4; transposes++, seed++)
        check_product(gemm, who,
                      (product_case){.shape = s,
                                     .trans_a = transposes & 1,
                                     .trans_b = transposes & 2,
                                     .alpha = alphas[seed % 4],
                                     .beta = betas[seed % 5],
                                     .bias = seed % 3 == 0},
                      seed);
}

/* Edges of every register tile, strip, depth and row block, and the library's thresholds. */
static const shape edges[] = {
    {1, 1, 300},    {1, 64, 64},    {64, 1, 64},    {6, 64, 128},   {7, 65, 129},    {5, 63, 127},
    {12, 16, 256},  {13, 17, 257},  {11, 15, 255},  {48, 128, 64},  {49, 129, 65},   {64, 64, 64},
    {33, 80, 31},   {128, 96, 100}, {97, 101, 103}, {769, 70, 130}, {100, 200, 300}, {31, 257, 513},
    {256, 256, 40}, {40, 40, 1000}, {2, 500, 3},    {500, 2, 3},
};

/* Runs `check` on the kernel of instruction set `isa`, or on attni_gemm for ATTN_ISA_COUNT. */
static bool choose(int isa, gemm_function **gemm, const char **who) {
    if (isa == ATTN_ISA_COUNT) {
        *gemm = attni_gemm;
        *who = "attni_gemm";
        return true;
    }
    const attni_kernels *kernels = attni_kernels_for((attn_isa)isa);
    if (!kernels)
        return false;
    *gemm = kernels->gemm;
    *who = attn_isa_name((attn_isa)isa);
    return true;
}

START_TEST(small_shapes_agree_with_a_loop) {
    gemm_function *gemm;
    const char *who;
    if (!choose(_i, &gemm, &who))
        return;
    uint64_t seed = 100;
    for (size_t m = 1; m <= 9; m++)
        for (size_t n = 1; n <= 9; n++)
            for (size_t k = 1; k <= 9; k++)
                check_shape(gemm, who, (shape){m, n, k}, seed += 4);
}
END_TEST

START_TEST(edges_of_tiles_agree_with_a_loop) {
    gemm_function *gemm;
    const char *who;
    if (!choose(_i, &gemm, &who))
        return;
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        for (uint64_t seed = 0; seed < 60; seed += 20)
            check_shape(gemm, who, edges[i], 1000 * (i + 1) + seed + i);
}
END_TEST

START_TEST(every_number_of_columns_agrees_with_a_loop) {
    gemm_function *gemm;
    const char *who;
    if (!choose(_i, &gemm, &who))
        return;
    for (size_t n = 1; n <= 150; n++)
        check_shape(gemm, who, (shape){1 + n % 14, n, 1 + n % 40}, 5000 + 7 * n);
}
END_TEST

START_TEST(ramp_times_identity_is_exact) {
    gemm_function *gemm;
    const char *who;
    if (!choose(_i, &gemm, &who))
        return;
    attn_real ramp[45 * 33], identity[33 * 33] = {0}, c[45 * 33];
    for (size_t i = 0; i < 45 * 33; i++) {
        ramp[i] = (attn_real)i;
        c[i] = (attn_real)NAN;
    }
    for (size_t i = 0; i < 33; i++)
        identity[i * 33 + i] = 1;
    const attni_product p = {.m = 45,
                             .n = 33,
                             .k = 33,
                             .alpha = 1,
                             .a = ramp,
                             .lda = 33,
                             .b = identity,
                             .ldb = 33,
                             .c = c,
                             .ldc = 33};
    gemm(&p);
    for (size_t i = 0; i < 45 * 33; i++)
        ck_assert_msg(c[i] == ramp[i], "%s: element %zu is %.17g", who, i, (double)c[i]);
}
END_TEST

/* k = 0 or alpha = 0: C = beta·C + bias, and A and B may be anything. */
START_TEST(empty_sums_leave_beta_and_bias) {
    gemm_function *gemm;
    const char *who;
    if (!choose(_i, &gemm, &who))
        return;
    const attn_real bias[2] = {10, 20},
                    bad[4] = {(attn_real)NAN, (attn_real)NAN, (attn_real)NAN, (attn_real)NAN};
    attn_real c[4] = {(attn_real)NAN, (attn_real)NAN, (attn_real)NAN, (attn_real)NAN};
    attni_product p = {.m = 2, .n = 2, .k = 0, .alpha = 1, .lda = 2, .ldb = 2, .c = c, .ldc = 2};
    gemm(&p);
    for (size_t i = 0; i < 4; i++)
        ck_assert(c[i] == 0);
    p.bias = bias;
    gemm(&p);
    p.beta = 2;
    gemm(&p);
    p = (attni_product){.m = 2,
                        .n = 2,
                        .k = 2,
                        .alpha = 0,
                        .beta = 1,
                        .a = bad,
                        .lda = 2,
                        .b = bad,
                        .ldb = 2,
                        .c = c,
                        .ldc = 2};
    gemm(&p);
    ck_assert(c[0] == 30 && c[1] == 60 && c[2] == 30 && c[3] == 60);
    p = (attni_product){.m = 0, .n = 2, .k = 2, .alpha = 1, .lda = 2, .ldb = 2, .ldc = 2};
    gemm(&p);
    p = (attni_product){.m = 2, .n = 0, .k = 2, .alpha = 1, .lda = 2, .ldb = 2, .ldc = 2};
    gemm(&p);
}
END_TEST

/* A row of A with NaN spoils that row of C and no other; a row of zeros times Inf is NaN. */
START_TEST(bad_numbers_stay_in_their_row) {
    gemm_function *gemm;
    const char *who;
    if (!choose(_i, &gemm, &who))
        return;
    static const shape shapes[] = {{9, 5, 7}, {70, 66, 130}, {128, 128, 128}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t m = shapes[s].m, n = shapes[s].n, k = shapes[s].k, bad = m / 2;
        attn_real *a = test_normal(m * k, 1, 1), *b = test_normal(k * n, 1, 2);
        attn_real *c = test_poison(m * n);
        a[bad * k + k / 2] = (attn_real)NAN;
        const attni_product p = {.m = m,
                                 .n = n,
                                 .k = k,
                                 .alpha = 1,
                                 .a = a,
                                 .lda = k,
                                 .b = b,
                                 .ldb = n,
                                 .c = c,
                                 .ldc = n};
        gemm(&p);
        for (size_t i = 0; i < m * n; i++)
            if (isnan(c[i]) != (i / n == bad))
                ck_abort_msg("%s: shape %zu, element %zu is %g", who, s, i, (double)c[i]);
        free(a);
        free(b);
        free(c);
    }
}
END_TEST

static void check_threads(shape s, bool trans_a, bool trans_b) {
    static const size_t threads[] = {1, 2, 3, 8};
    attn_real *a = test_normal(s.m * s.k, 1, 11), *b = test_normal(s.k * s.n, 1, 12);
    attn_real *bias = test_normal(s.n, 1, 13), *start = test_normal(s.m * s.n, 1, 14);
    attn_real *first = test_poison(s.m * s.n), *first_sums = test_poison(s.n);
    attn_real *c = test_poison(s.m * s.n), *sums = test_poison(s.n);
    for (size_t t = 0; t < 4; t++) {
        attn_real *out = t == 0 ? first : c, *out_sums = t == 0 ? first_sums : sums;
        memcpy(out, start, s.m * s.n * sizeof *out);
        memcpy(out_sums, bias, s.n * sizeof *out);
        const attni_product p = {.m = s.m,
                                 .n = s.n,
                                 .k = s.k,
                                 .trans_a = trans_a,
                                 .trans_b = trans_b,
                                 .alpha = 1,
                                 .beta = 1,
                                 .a = a,
                                 .lda = trans_a ? s.m : s.k,
                                 .b = b,
                                 .ldb = trans_b ? s.k : s.n,
                                 .c = out,
                                 .ldc = s.n,
                                 .bias = bias};
        attni_gemm_parallel(&p, 1, threads[t]);
        attni_column_sums_add(out_sums, start, s.m, s.n, threads[t]);
        ck_assert_msg(memcmp(out, first, s.m * s.n * sizeof *out) == 0,
                      "(%zu,%zu,%zu): other bits with %zu threads", s.m, s.n, s.k, threads[t]);
        ck_assert_msg(memcmp(out_sums, first_sums, s.n * sizeof *out) == 0,
                      "(%zu,%zu): other column sums with %zu threads", s.m, s.n, threads[t]);
    }
    for (size_t j = 0; j < s.n; j++) {
        double want = (double)bias[j], magnitude = fabs(want);
        for (size_t i = 0; i < s.m; i++) {
            want += (double)start[i * s.n + j];
            magnitude += fabs((double)start[i * s.n + j]);
        }
        if (!(fabs((double)first_sums[j] - want) <= (double)(s.m + 1) * TEST_EPSILON * magnitude))
            ck_abort_msg("(%zu,%zu): column sum %zu is %.17g, expected %.17g", s.m, s.n, j,
                         (double)first_sums[j], want);
    }
    /* Rounding only: the parallel tiles may go to the other of the two products. */
    const attni_product whole = {.m = s.m,
                                 .n = s.n,
                                 .k = s.k,
                                 .trans_a = trans_a,
                                 .trans_b = trans_b,
                                 .alpha = 1,
                                 .beta = 1,
                                 .a = a,
                                 .lda = trans_a ? s.m : s.k,
                                 .b = b,
                                 .ldb = trans_b ? s.k : s.n,
                                 .c = start,
                                 .ldc = s.n,
                                 .bias = bias};
    attni_gemm(&whole);
    test_close("parallel against whole", first, start, s.m * s.n, 0, (double)s.k * TEST_EPSILON);
    free(a);
    free(b);
    free(bias);
    free(start);
    free(first);
    free(first_sums);
    free(c);
    free(sums);
}

START_TEST(any_number_of_threads_gives_the_same_bits) {
    static const shape shapes[] = {{1024, 64, 64}, {64, 64, 1024},  {300, 257, 129},
                                   {1, 700, 700},  {700, 1, 700},   {17, 3000, 33},
                                   {3000, 17, 33}, {257, 130, 513}, {512, 192, 96},
                                   {5, 5, 5},      {0, 5, 5},       {130, 100, 2050}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_threads(shapes[i], false, true);
        check_threads(shapes[i], true, false);
        check_threads(shapes[i], false, false);
    }
}
END_TEST

static void on_threads(const attni_product *product) {
    attni_gemm_parallel(product, 1, 3);
}

/* Few rows go another way, the more so where B lies transposed and nothing is added to. */
START_TEST(few_rows_agree_with_a_loop) {
    for (size_t m = 1; m <= 18; m++)
        for (unsigned kind = 0; kind < 8; kind++) {
            const product_case t = {.shape = {m, 517, 1030},
                                    .trans_b = kind & 1,
                                    .alpha = 1,
                                    .beta = kind & 2 ? 0.5 : 0,
                                    .bias = kind & 4};
            check_product(on_threads, "in parallel", t, m);
        }
}
END_TEST

/* Several products in one call: each gets what it would get alone. */
START_TEST(products_in_one_call_are_independent) {
    enum { COUNT = 4 };
    static const shape shapes[COUNT] = {{200, 64, 64}, {3, 5, 7}, {64, 64, 900}, {0, 4, 4}};
    attni_product products[COUNT];
    attn_real *alone[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        const shape s = shapes[i];
        alone[i] = test_poison(s.m * s.n);
        products[i] = (attni_product){.m = s.m,
                                      .n = s.n,
                                      .k = s.k,
                                      .alpha = 1,
                                      .a = test_normal(s.m * s.k, 1, i),
                                      .lda = s.k,
                                      .b = test_normal(s.k * s.n, 1, i + 50),
                                      .ldb = s.n,
                                      .c = alone[i],
                                      .ldc = s.n};
        attni_gemm_parallel(&products[i], 1, 2);
        products[i].c = test_poison(s.m * s.n);
    }
    attni_gemm_parallel(products, COUNT, 2);
    for (size_t i = 0; i < COUNT; i++) {
        const size_t bytes = shapes[i].m * shapes[i].n * sizeof(attn_real);
        ck_assert_msg(memcmp(products[i].c, alone[i], bytes) == 0, "product %zu differs", i);
        free(alone[i]);
        free(products[i].c);
        free((attn_real *)products[i].a);
        free((attn_real *)products[i].b);
    }
    attni_gemm_parallel(products, 0, 2);
}
END_TEST

/* Doubles a block of product `data`, which must be whole units of 5 columns. */
enum { UNIT = 5 };

static void double_block(const void *data, attn_real *c, size_t ldc, size_t row, size_t rows,
                         size_t column, size_t columns) {
    const attni_product *p = data;
    if (c != p->c + row * ldc + column || ldc != p->ldc || column % UNIT || columns % UNIT)
        ck_abort_msg("rows %zu + %zu, columns %zu + %zu", row, rows, column, columns);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            c[i * ldc + j] *= 2;
}

/* Every element is doubled once, after its sum is complete, where something follows the product. */
START_TEST(what_follows_a_product_sees_each_block_once) {
    enum { COUNT = 4 };
    static const shape shapes[COUNT] = {{700, 305, 70}, {700, 305, 70}, {3, 5, 7}, {1024, 640, 33}};
    static const size_t counts[] = {1, 2, 3};
    for (size_t t = 0; t < sizeof counts / sizeof *counts; t++) {
        attni_product products[COUNT];
        attni_after after[COUNT] = {{.run = NULL}};
        attn_real *alone[COUNT], *shared = test_normal(700 * 70, 1, 3);
        for (size_t i = 0; i < COUNT; i++) {
            const shape s = shapes[i];
            alone[i] = test_poison(s.m * s.n);
            products[i] = (attni_product){.m = s.m,
                                          .n = s.n,
                                          .k = s.k,
                                          .trans_b = true,
                                          .alpha = 1,
                                          .a = i < 2 ? shared : test_normal(s.m * s.k, 1, i),
                                          .lda = s.k,
                                          .b = test_normal(s.k * s.n, 1, i + 50),
                                          .ldb = s.k,
                                          .c = alone[i],
                                          .ldc = s.n};
            attni_gemm_parallel(&products[i], 1, 2);
            products[i].c = test_poison(s.m * s.n);
            if (i != 2)
                after[i] = (attni_after){double_block, &products[i], UNIT};
        }
        attni_gemm_parallel_after(products, after, COUNT, counts[t]);
        for (size_t i = 0; i < COUNT; i++) {
            for (size_t n = 0; n < shapes[i].m * shapes[i].n; n++)
                if (products[i].c[n] != alone[i][n] * (i == 2 ? 1 : 2))
                    ck_abort_msg("%zu threads, product %zu, element %zu: %g of %g", counts[t], i, n,
                                 (double)products[i].c[n], (double)alone[i][n]);
            free(alone[i]);
            free(products[i].c);
            free((attn_real *)products[i].b);
            if (i >= 2)
                free((attn_real *)products[i].a);
        }
        free(shared);
    }
}
END_TEST

START_TEST(peak_is_a_rate) {
    const double one = attn_fma_peak(1), two = attn_fma_peak(2);
    ck_assert_msg(one > 0 && one < 1e5 && two > 0 && two < 1e5, "peaks %g and %g", one, two);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("gemm");
    TCase *kernels = tcase_create("kernels");
    const int all = ATTN_ISA_COUNT + 1;
    tcase_add_loop_test(kernels, ramp_times_identity_is_exact, 0, all);
    tcase_add_loop_test(kernels, small_shapes_agree_with_a_loop, 0, all);
    tcase_add_loop_test(kernels, edges_of_tiles_agree_with_a_loop, 0, all);
    tcase_add_loop_test(kernels, every_number_of_columns_agrees_with_a_loop, 0, all);
    tcase_add_loop_test(kernels, empty_sums_leave_beta_and_bias, 0, all);
    tcase_add_loop_test(kernels, bad_numbers_stay_in_their_row, 0, all);
    suite_add_tcase(suite, kernels);
    TCase *threads = tcase_create("threads");
    tcase_add_test(threads, any_number_of_threads_gives_the_same_bits);
    tcase_add_test(threads, few_rows_agree_with_a_loop);
    tcase_add_test(threads, products_in_one_call_are_independent);
    tcase_add_test(threads, what_follows_a_product_sees_each_block_once);
    tcase_add_test(threads, peak_is_a_rate);
    suite_add_tcase(suite, threads);
    return test_main(suite);
}
