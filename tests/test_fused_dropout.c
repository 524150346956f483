/* Dropout on the fused path: against the plain model, and the pattern itself. */
#include "fused_model.h"

#include "kernels/kernels.h"

static const double some_rates[] = {0.1, 0.5, 0.9};

static void check_rate(const char *name, double rate, attn_shape shape, attn_mask mask,
                       fused_layout layout, size_t threads) {
    const uint64_t seed = shape.len_q * 1009 + shape.len_k * 31 + shape.d_head;
    fused_case c = fused_case_random(shape, mask, seed);
    c.terms = (fused_terms){.dropout = rate, .seed = seed << 33 ^ 0x9E3779B97F4A7C15};
    fused_check(name, &c, layout, threads);
    fused_case_free(&c);
}

START_TEST(lengths_around_the_tiles) {
    if (!fused_select(_i))
        return;
    const attni_kernels *kernels = attni_kernels_get();
    const size_t q = kernels->fused_query_tile, k = kernels->fused_key_tile;
    const size_t lens_q[] = {1, 9, q - 1, q, q + 1, 2 * q + 1};
    const size_t lens_k[] = {1, 2, 3, 9, k - 1, k, k + 1, 2 * k + 2};
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 8; j++) {
            const double rate = some_rates[(i + j) % 3];
            const attn_shape shape = {1, 1, lens_q[i], lens_k[j], 9};
            check_rate("dropout", rate, shape, (attn_mask){0}, BHTD, 1);
            check_rate("dropout, causal", rate, shape, (attn_mask){.causal = true}, BHTD, 1);
        }
}
END_TEST

/* Several passes, ranges and threads; a causal boundary off the tiles; hidden keys. */
START_TEST(longer_calls) {
    if (!fused_select(_i))
        return;
    uint8_t padding[2 * 211];
    for (size_t j = 0; j < sizeof padding; j++)
        padding[j] = j % 5 == 0;
    const attn_mask ahead = {
        .causal = true, .causal_align = ATTN_CAUSAL_OFFSET, .causal_offset = 21};
    check_rate("dropout", 0.3, (attn_shape){1, 2, 307, 211, 8}, (attn_mask){0}, GAPPED, 3);
    check_rate("dropout, causal ahead", 0.3, (attn_shape){2, 3, 61, 37, 16}, ahead, BTHD, 2);
    check_rate("dropout, causal", 0.3, (attn_shape){1, 1, 523, 601, 20},
               (attn_mask){.causal = true}, BTHD, 2);
    check_rate("dropout, causal, padding", 0.3, (attn_shape){2, 1, 70, 211, 5},
               (attn_mask){.causal = true, .padding = padding}, BTHD, 2);
}
END_TEST

/* Rates near the ends: nothing or everything is dropped. */
START_TEST(extreme_rates) {
    if (!fused_select(_i))
        return;
    const double rates[] = {0x1p-40, 0x1p-32, 1 - 0x1p-40};
    for (size_t n = 0; n < 3; n++)
        check_rate("dropout at the ends", rates[n], (attn_shape){1, 2, 33, 65, 8},
                   (attn_mask){.causal = true}, BTHD, 1);
}
END_TEST

/* keep (B,H,Lq,Lk) as the fused forward has it: the context of q = k = 0 and of unit rows v_j. */
static uint8_t *pattern(const attn_shape *shape, double rate, uint64_t seed) {
    const attn_shape s = {shape->batch, shape->num_heads, shape->len_q, shape->len_k, shape->len_k};
    fused_case c = fused_case_random(s, (attn_mask){0}, 1);
    c.scale = 0;
    c.terms = (fused_terms){.dropout = rate, .seed = seed};
    memset(c.value, 0, size_k(&s) * sizeof *c.value);
    for (size_t row = 0; row < s.batch * s.num_heads * s.len_k; row++)
        c.value[row * s.d_head + row % s.len_k] = 1;
    fused_results r = fused_results_make(&s);
    fused_run_some(&r, &c, BHTD, 1, 0);
    uint8_t *keep = malloc(size_q(&s));
    const double kept = 1 / (1 - rate) / (double)s.len_k;
    for (size_t n = 0; n < size_q(&s); n++) {
        keep[n] = r.context[n] != 0;
        ck_assert(!keep[n] || fabs((double)r.context[n] - kept) < 8 * TEST_EPSILON * kept);
    }
    fused_results_free(&r);
    fused_case_free(&c);
    return keep;
}

enum { BATCH = 2, HEADS = 3, LEN_Q = 67, LEN_K = 203 };

static size_t place(size_t b, size_t h, size_t i, size_t j) {
    return ((b * HEADS + h) * LEN_Q + i) * LEN_K + j;
}

/* A sum of n draws of mean `mean` and variance `variance` may be five deviations off: the seed is
 * fixed, so that it is or it is not. */
static void check_count(const char *what, double count, double n, double mean, double variance) {
    const double deviations = (count - n * mean) / sqrt(n * variance);
    ck_assert_msg(fabs(deviations) < 5, "%s: %g of %g, %.1f deviations from %g", what, count, n,
                  deviations, n * mean);
}

/* How often a pair and the one (b, h, i, j) further are both kept. */
static void check_shift(const uint8_t *keep, double rate, size_t db, size_t dh, size_t di,
                        size_t dj) {
    double n = 0, both = 0;
    for (size_t b = 0; b + db < BATCH; b++)
        for (size_t h = 0; h + dh < HEADS; h++)
            for (size_t i = 0; i + di < LEN_Q; i++)
                for (size_t j = 0; j + dj < LEN_K; j++) {
                    n++;
                    both += keep[place(b, h, i, j)] & keep[place(b + db, h + dh, i + di, j + dj)];
                }
    const double mean = (1 - rate) * (1 - rate);
    /* pairs overlap in chains: each has two neighbours that it shares a draw with */
    const double variance = mean * (1 - mean) + 2 * mean * (1 - rate - mean);
    char what[80];
    snprintf(what, sizeof what, "rate %g, shift (%zu,%zu,%zu,%zu)", rate, db, dh, di, dj);
    check_count(what, both, n, mean, variance);
}

START_TEST(rate_and_independence) {
    if (!fused_select(_i))
        return;
    const attn_shape shape = {BATCH, HEADS, LEN_Q, LEN_K, 1};
    for (size_t n = 0; n < 3; n++) {
        const double rate = some_rates[n], all = (double)place(BATCH, 0, 0, 0);
        uint8_t *keep = pattern(&shape, rate, 4711 + n);
        double kept = 0, rows[LEN_Q] = {0}, columns[LEN_K] = {0};
        for (size_t at = 0; at < place(BATCH, 0, 0, 0); at++) {
            kept += keep[at];
            rows[at / LEN_K % LEN_Q] += keep[at];
            columns[at % LEN_K] += keep[at];
        }
        const double mean = 1 - rate, variance = rate * (1 - rate);
        check_count("kept", kept, all, mean, variance);
        for (size_t i = 0; i < LEN_Q; i++)
            check_count("kept in a row", rows[i], all / LEN_Q, mean, variance);
        for (size_t j = 0; j < LEN_K; j++)
            check_count("kept in a column", columns[j], all / LEN_K, mean, variance);
        for (size_t step = 1; step <= 8; step++) {
            check_shift(keep, rate, 0, 0, 0, step);
            check_shift(keep, rate, 0, 0, step, 0);
        }
        check_shift(keep, rate, 1, 0, 0, 0);
        check_shift(keep, rate, 0, 1, 0, 0);
        check_shift(keep, rate, 0, 0, 1, 1);
        check_shift(keep, rate, 1, 1, 1, 1);
        free(keep);
    }
}
END_TEST

/* Each word is the one that the convention says. */
START_TEST(pattern_is_the_convention) {
    if (!fused_select(_i))
        return;
    const attn_shape shape = {BATCH, HEADS, LEN_Q, LEN_K, 1};
    const fused_terms terms = {.dropout = 0.37, .seed = 0xFEDCBA9876543210};
    uint8_t *keep = pattern(&shape, terms.dropout, terms.seed);
    for (size_t at = 0; at < place(BATCH, 0, 0, 0); at++) {
        const size_t bh = at / LEN_K / LEN_Q;
        const wide want =
            model_dropout(&terms, bh / HEADS, bh % HEADS, at / LEN_K % LEN_Q, at % LEN_K);
        ck_assert_msg(keep[at] == (want != 0), "%s: element %zu", attn_isa_name(attn_isa_current()),
                      at);
    }
    free(keep);
}
END_TEST

START_TEST(same_bits_for_any_number_of_threads) {
    if (!fused_select(_i))
        return;
    const attn_shape s = {1, 1, 1100, 1030, 16};
    fused_case c = fused_case_random(s, (attn_mask){.causal = true}, 78);
    c.terms = (fused_terms){.dropout = 0.1, .seed = 12};
    fused_results first = fused_results_make(&s), again = fused_results_make(&s);
    fused_run(&first, &c, BTHD, 1);
    for (size_t threads = 2; threads < 5; threads++) {
        fused_run(&again, &c, BTHD, threads);
        ck_assert_mem_eq(first.context, again.context, size_q(&s) * sizeof(attn_real));
        ck_assert_mem_eq(first.dquery, again.dquery, size_q(&s) * sizeof(attn_real));
        ck_assert_mem_eq(first.dkey, again.dkey, size_k(&s) * sizeof(attn_real));
        ck_assert_mem_eq(first.dvalue, again.dvalue, size_k(&s) * sizeof(attn_real));
    }
    fused_results_free(&first);
    fused_results_free(&again);
    fused_case_free(&c);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fused_dropout");
    TCase *tcase = tcase_create("dropout");
    tcase_add_loop_test(tcase, lengths_around_the_tiles, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, longer_calls, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, extreme_rates, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, rate_and_independence, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, pattern_is_the_convention, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, same_bits_for_any_number_of_threads, 0, ATTN_ISA_COUNT);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
