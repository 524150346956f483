/* The kernels of decoding on every instruction set of this machine, against plain loops in double.
 */
#include "test.h"

#include "kernels/kernels.h"

#include <stdint.h>

typedef struct decode_case {
    const char *name;
    size_t d_head, group, tokens, capacity, position;
    size_t left; /* SIZE_MAX = all keys */
    attni_range keys;
    double softcap, slope;
} decode_case;

#define ALL SIZE_MAX
static const decode_case decode_cases[] = {
    {"one key", 64, 1, 1, 1, 0, ALL, {0, 1}, 0, 0},
    {"one width", 1, 1, 1, 7, 6, ALL, {0, 7}, 0, 0},
    {"odd width", 5, 2, 1, 40, 30, ALL, {0, 31}, 0, 0},
    {"a block and one", 64, 1, 1, 1100, 1024, ALL, {0, 1025}, 0, 0},
    {"three blocks", 32, 4, 1, 2200, 2110, ALL, {0, 2111}, 0, 0},
    {"blocks of wide rows", 257, 2, 2, 600, 520, ALL, {0, 522}, 0, 0},
    {"seven heads", 80, 7, 1, 300, 290, ALL, {0, 291}, 0, 0},
    {"three heads, odd width", 67, 3, 1, 130, 100, ALL, {0, 101}, 0, 0},
    {"wide", 257, 2, 1, 70, 60, ALL, {0, 61}, 0, 0},
    {"five tokens", 32, 2, 5, 600, 515, ALL, {0, 520}, 0, 0},
    {"a part", 64, 1, 3, 600, 515, ALL, {100, 517}, 0, 0},
    {"a part that the first tokens do not see", 16, 1, 4, 600, 10, ALL, {12, 14}, 0, 0},
    {"window", 64, 2, 4, 600, 515, 100, {415, 519}, 0, 0},
    {"ring", 32, 3, 4, 50, 1013, 40, {973, 1017}, 0, 0},
    {"long ring", 16, 1, 2, 700, 7000, 650, {6350, 7002}, 0, 0},
    {"softcap", 64, 2, 2, 300, 290, ALL, {0, 292}, 2.5, 0},
    {"alibi", 64, 2, 2, 300, 290, ALL, {0, 292}, 0, 0.25},
    {"all of it", 24, 5, 3, 64, 300, 50, {250, 303}, 1.5, 0.0625},
};
enum { NUM_DECODE_CASES = sizeof decode_cases / sizeof *decode_cases };

typedef struct row {
    double max, sum, *context;
} row;

/* Row (t, g) in double, from the equations. */
static row plain_row(const attni_decode_head *h, attni_range keys, size_t t, size_t g) {
    const size_t position = h->position + t, d = h->d_head;
    const attn_real *q = h->query + t * h->query_token + g * d;
    row r = {.max = -INFINITY, .context = calloc(d, sizeof(double))};
    double *scores = calloc(keys.end - keys.begin, sizeof *scores);
    for (size_t j = keys.begin; j < keys.end; j++) {
        double *s = &scores[j - keys.begin];
        if (j > position || (h->left != ALL && position - j > h->left)) {
            *s = -INFINITY;
            continue;
        }
        for (size_t c = 0; c < d; c++)
            *s += (double)h->scale * (double)q[c] * (double)h->key[j % h->capacity * d + c];
        if (h->softcap > 0)
            *s = (double)h->softcap * tanh(*s / (double)h->softcap);
        if (h->slopes)
            *s -= (double)h->slopes[g] * (double)(position - j);
        r.max = fmax(r.max, *s);
    }
    for (size_t j = keys.begin; j < keys.end; j++) {
        const double weight =
            scores[j - keys.begin] > -INFINITY ? exp(scores[j - keys.begin] - r.max) : 0;
        r.sum += weight;
        for (size_t c = 0; weight > 0 && c < d; c++)
            r.context[c] += weight * (double)h->value[j % h->capacity * d + c];
    }
    free(scores);
    return r;
}

/* A score has an error of some epsilon times its size (below 8 here), which a weight has relative
 * to itself; sums of n weights below 1 and values of about 1 have some more of the square root of
 * n. */
static void compare_row(const decode_case *c, attn_isa isa, const attni_decode_head *h,
                        const row *want, size_t t, size_t g) {
    const size_t at = t * h->group + g, d = h->d_head;
    const double allowed = 60 * TEST_EPSILON;
    char what[128];
    attn_real *context = malloc(d * sizeof *context), *got = malloc(d * sizeof *got);
    snprintf(what, sizeof what, "%s, %s, token %zu, head %zu", c->name, attn_isa_name(isa), t, g);
    if (want->sum == 0) {
        ck_assert_msg(h->max[at] == -(attn_real)INFINITY && h->sum[at] == 0, "%s: m %g, l %g", what,
                      (double)h->max[at], (double)h->sum[at]);
    } else {
        ck_assert_msg(fabs((double)h->max[at] - want->max) <= allowed, "%s: m %.9g, not %.9g", what,
                      (double)h->max[at], want->max);
        ck_assert_msg(fabs((double)h->sum[at] / want->sum - 1) <= allowed, "%s: l %.9g, not %.9g",
                      what, (double)h->sum[at], want->sum);
    }
    for (size_t i = 0; i < d; i++) {
        context[i] = (attn_real)(want->sum > 0 ? want->context[i] / want->sum : 0);
        got[i] = want->sum > 0 ? h->context[at * d + i] / h->sum[at] : h->context[at * d + i];
    }
    test_close(what, got, context, d, allowed, 0);
    free(context);
    free(got);
}

START_TEST(decode_agrees_with_plain_loops) {
    const attni_kernels *kernels = attni_kernels_for((attn_isa)(_i / NUM_DECODE_CASES));
    const decode_case *c = &decode_cases[_i % NUM_DECODE_CASES];
    if (!kernels)
        return;
    const size_t rows = c->group * c->tokens, d = c->d_head, token = c->group * d + 3;
    attn_real *query = test_normal(c->tokens * token, 1, 1);
    attn_real *key = test_poison(c->capacity * d), *value = test_poison(c->capacity * d);
    attn_real *all_keys = test_normal(c->capacity * d, 1, 2);
    attn_real *all_values = test_normal(c->capacity * d, 1, 3);
    attn_real *slopes = test_normal(c->group, 0, 4);
    for (size_t g = 0; g < c->group; g++)
        slopes[g] = (attn_real)(c->slope / (double)(g + 1));
    /* What no token sees is NaN. */
    for (size_t j = c->keys.begin; j < c->keys.end; j++) {
        const size_t at = j % c->capacity * d;
        memcpy(key + at, all_keys + at, d * sizeof *key);
        memcpy(value + at, all_values + at, d * sizeof *value);
    }
    attni_decode_head head = {.d_head = d,
                              .group = c->group,
                              .tokens = c->tokens,
                              .query = query,
                              .query_token = token,
                              .key = key,
                              .value = value,
                              .capacity = c->capacity,
                              .position = c->position,
                              .left = c->left,
                              .scale = (attn_real)(1 / sqrt((double)d)),
                              .softcap = (attn_real)c->softcap,
                              .slopes = c->slope > 0 ? slopes : NULL,
                              .max = test_poison(rows),
                              .sum = test_poison(rows),
                              .context = test_poison(rows * d)};
    attn_arena arena = test_arena(kernels->decode_scratch(d, rows) * sizeof(attn_real) + 192);
    void *scratch;
    test_ok(
        attn_arena_alloc(&arena, &scratch, kernels->decode_scratch(d, rows), sizeof(attn_real)));
    kernels->decode(&head, c->keys, scratch);
    for (size_t t = 0; t < c->tokens; t++)
        for (size_t g = 0; g < c->group; g++) {
            row want = plain_row(&head, c->keys, t, g);
            compare_row(c, kernels->isa, &head, &want, t, g);
            free(want.context);
        }
    attn_arena_destroy(&arena);
    attn_real *arrays[] = {query,  key,      value,    all_keys,    all_values,
                           slopes, head.max, head.sum, head.context};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
}
END_TEST

/* NaN in a key or value that a token may not see stays there; where it may, it shows. Keys of
 * infinite length give NaN or nothing, as arithmetic has it. */
START_TEST(what_is_hidden_is_not_read_as_a_number) {
    enum { D = 20, KEYS = 40, TOKENS = 3 };
    const attni_kernels *kernels = attni_kernels_for((attn_isa)_i);
    if (!kernels)
        return;
    attn_real *query = test_normal(TOKENS * D, 1, 1), *scratch;
    attn_real *key = test_normal(KEYS * D, 1, 2), *value = test_normal(KEYS * D, 1, 3);
    attn_real max[TOKENS], sum[TOKENS], context[TOKENS * D];
    void *memory;
    attn_arena arena = test_arena(1 << 18);
    test_ok(attn_arena_alloc(&arena, &memory, kernels->decode_scratch(D, TOKENS), sizeof *scratch));
    scratch = memory;
    attni_decode_head head = {.d_head = D,
                              .group = 1,
                              .tokens = TOKENS,
                              .query = query,
                              .query_token = D,
                              .key = key,
                              .value = value,
                              .capacity = KEYS,
                              .position = KEYS - TOKENS,
                              .left = 20,
                              .scale = 1,
                              .max = max,
                              .sum = sum,
                              .context = context};
    key[(KEYS - 1) * D + 3] = value[(KEYS - 1) * D] = (attn_real)NAN; /* the last token's own */
    value[(KEYS - TOKENS - 20) * D + 5] = (attn_real)NAN; /* seen by the first token alone */
    kernels->decode(&head, (attni_range){KEYS - TOKENS - 20, KEYS}, scratch);
    for (size_t c = 0; c < D; c++) {
        ck_assert_msg(isnan(context[c]) == (c == 5), "token 0, column %zu: %g", c,
                      (double)context[c]);
        ck_assert_msg(isfinite(context[D + c]), "token 1, column %zu: %g", c,
                      (double)context[D + c]);
        ck_assert_msg(isnan(context[2 * D + c]), "token 2, column %zu: %g", c,
                      (double)context[2 * D + c]);
    }
    ck_assert(isfinite(sum[0]) && isfinite(sum[1]) && isnan(sum[2]));
    attn_arena_destroy(&arena);
    free(query);
    free(key);
    free(value);
}
END_TEST

/* Weights of -inf alone: a whole block whose scores are -inf comes before one with numbers. */
START_TEST(a_first_block_of_minus_infinities) {
    enum { KEYS = 1200 };
    const attni_kernels *kernels = attni_kernels_for((attn_isa)_i);
    if (!kernels)
        return;
    attn_real query = 1, key[KEYS], value[KEYS], max, sum, context;
    _Alignas(64) static attn_real scratch[8192]; /* the first block has 1024 keys */
    ck_assert_uint_le(kernels->decode_scratch(1, 1), 8192);
    for (size_t j = 0; j < KEYS; j++) {
        key[j] = j < 1190 ? -(attn_real)INFINITY : 0;
        value[j] = (attn_real)j;
    }
    const attni_decode_head head = {.d_head = 1,
                                    .group = 1,
                                    .tokens = 1,
                                    .query = &query,
                                    .query_token = 1,
                                    .key = key,
                                    .value = value,
                                    .capacity = KEYS,
                                    .position = KEYS - 1,
                                    .left = SIZE_MAX,
                                    .scale = 1,
                                    .max = &max,
                                    .sum = &sum,
                                    .context = &context};
    kernels->decode(&head, (attni_range){0, KEYS}, scratch);
    ck_assert_double_eq((double)max, 0);
    ck_assert_double_eq((double)sum, 10);
    ck_assert_double_eq((double)context, 11945);
    kernels->decode(&head, (attni_range){0, 1100}, scratch);
    ck_assert(max == -(attn_real)INFINITY && sum == 0 && context == 0);
}
END_TEST

static const struct product_case {
    size_t m, n, k;
    bool bias;
} product_cases[] = {{1, 1, 1, true},    {1, 768, 768, true}, {2, 33, 17, false},
                     {3, 65, 100, true}, {4, 16, 64, false},  {5, 15, 31, true},
                     {7, 130, 66, true}, {16, 48, 33, true},  {0, 8, 8, true},
                     {9, 1, 257, false}};
enum { NUM_PRODUCT_CASES = sizeof product_cases / sizeof *product_cases };

START_TEST(few_rows_agree_with_plain_loops) {
    const attni_kernels *kernels = attni_kernels_for((attn_isa)(_i / NUM_PRODUCT_CASES));
    const struct product_case *c = &product_cases[_i % NUM_PRODUCT_CASES];
    if (!kernels)
        return;
    const size_t lda = c->k + 1, ldb = c->k + 2, ldc = c->n + 3;
    attn_real *a = test_normal(c->m * lda, 1, 1), *b = test_normal(c->n * ldb, 1, 2);
    attn_real *bias = test_normal(c->n, 1, 3), *got = test_poison(c->m * ldc);
    attn_real *want = test_poison(c->m * ldc);
    const attni_product p = {.m = c->m,
                             .n = c->n,
                             .k = c->k,
                             .trans_b = true,
                             .alpha = 1,
                             .a = a,
                             .lda = lda,
                             .b = b,
                             .ldb = ldb,
                             .c = got,
                             .ldc = ldc,
                             .bias = c->bias ? bias : NULL};
    kernels->few_rows(&p);
    for (size_t i = 0; i < c->m; i++)
        for (size_t j = 0; j < c->n; j++) {
            double sum = c->bias ? (double)bias[j] : 0;
            for (size_t l = 0; l < c->k; l++)
                sum += (double)a[i * lda + l] * (double)b[j * ldb + l];
            want[i * ldc + j] = (attn_real)sum;
        }
    char what[96];
    snprintf(what, sizeof what, "(%zu,%zu,%zu), %s", c->m, c->n, c->k, attn_isa_name(kernels->isa));
    test_close(what, got, want, c->m * ldc, (double)c->k * TEST_EPSILON, 8 * TEST_EPSILON);
    free(a);
    free(b);
    free(bias);
    free(got);
    free(want);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_decode");
    TCase *tests = tcase_create("decode");
    tcase_add_loop_test(tests, decode_agrees_with_plain_loops, 0,
                        ATTN_ISA_COUNT * NUM_DECODE_CASES);
    tcase_add_loop_test(tests, what_is_hidden_is_not_read_as_a_number, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tests, a_first_block_of_minus_infinities, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tests, few_rows_agree_with_plain_loops, 0,
                        ATTN_ISA_COUNT * NUM_PRODUCT_CASES);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
