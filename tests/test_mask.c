/* Masks: broadcasting, causal positions anywhere, bytes that are not 1, and the bands built on
 * them. */
#include "ops/band.h"
#include "oracle.h"

START_TEST(broadcast_strides) {
    const struct {
        size_t dims[4], rank;
        attn_broadcast want;
    } good[] = {
        /* over (B,H,Lq,Lk) = (2,3,4,5) */
        {{4, 5}, 2, {0, 0, 5, 1}},         {{1, 5}, 2, {0, 0, 0, 1}},
        {{4, 1}, 2, {0, 0, 1, 0}},         {{1, 1}, 2, {0, 0, 0, 0}},
        {{2, 4, 5}, 3, {20, 0, 5, 1}},     {{2, 1, 5}, 3, {5, 0, 0, 1}},
        {{1, 4, 5}, 3, {0, 0, 5, 1}},      {{2, 4, 1}, 3, {4, 0, 1, 0}},
        {{2, 3, 4, 5}, 4, {60, 20, 5, 1}}, {{2, 1, 4, 5}, 4, {20, 0, 5, 1}},
        {{1, 3, 4, 5}, 4, {0, 20, 5, 1}},  {{2, 3, 1, 1}, 4, {3, 1, 0, 0}},
    };
    for (size_t n = 0; n < sizeof good / sizeof *good; n++) {
        attn_broadcast got = {9, 9, 9, 9};
        test_ok(attn_broadcast_strides(&got, good[n].dims, good[n].rank, 2, 3, 4, 5));
        ck_assert_mem_eq(&got, &good[n].want, sizeof got);
    }
    const attn_broadcast before = {9, 9, 9, 9};
    attn_broadcast got = before;
    test_refused(attn_broadcast_strides(&got, (size_t[]){4, 6}, 2, 2, 3, 4, 5), ATTN_ERROR_SHAPE);
    ck_assert(strstr(attn_error_message(), "len_k 5") != NULL);
    test_refused(attn_broadcast_strides(&got, (size_t[]){3, 4, 5}, 3, 2, 3, 4, 5),
                 ATTN_ERROR_SHAPE);
    test_refused(attn_broadcast_strides(&got, (size_t[]){5}, 1, 2, 3, 4, 5), ATTN_ERROR_SHAPE);
    test_refused(attn_broadcast_strides(&got, (size_t[]){1, 2, 3, 4, 5}, 5, 2, 3, 4, 5),
                 ATTN_ERROR_SHAPE);
    test_refused(attn_broadcast_strides(&got, NULL, 2, 2, 3, 4, 5), ATTN_ERROR_ARGUMENT);
    test_refused(attn_broadcast_strides(NULL, (size_t[]){4, 5}, 2, 2, 3, 4, 5),
                 ATTN_ERROR_ARGUMENT);
    const size_t huge = (size_t)1 << 40;
    test_refused(attn_broadcast_strides(&got, (size_t[]){2, huge, huge}, 3, 2, 3, huge, huge),
                 ATTN_ERROR_OVERFLOW);
    ck_assert_mem_eq(&got, &before, sizeof got);
}
END_TEST

START_TEST(padding_from_lengths) {
    const uint8_t want[8] = {0, 0, 0, 0, 0, 1, 1, 1};
    uint8_t padding[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    test_refused(attn_padding_from_lengths(padding, (size_t[]){4, 5}, 2, 4), ATTN_ERROR_ARGUMENT);
    ck_assert(strstr(attn_error_message(), "lengths[1] is 5") != NULL);
    for (size_t n = 0; n < 8; n++)
        ck_assert_uint_eq(padding[n], 9);
    test_ok(attn_padding_from_lengths(padding, (size_t[]){4, 1}, 2, 4));
    ck_assert_mem_eq(padding, want, 8);
    test_refused(attn_padding_from_lengths(NULL, (size_t[]){4, 1}, 2, 4), ATTN_ERROR_ARGUMENT);
    test_refused(attn_padding_from_lengths(padding, NULL, 2, 4), ATTN_ERROR_ARGUMENT);
    test_refused(attn_padding_from_lengths(padding, (size_t[]){1, 1}, 2, SIZE_MAX),
                 ATTN_ERROR_OVERFLOW);
    test_ok(attn_padding_from_lengths(NULL, NULL, 0, 4));
}
END_TEST

/* The end of the visible keys against the definition, j <= i + offset, for offsets anywhere. */
START_TEST(causal_positions) {
    static const int64_t offsets[] = {0,
                                      1,
                                      -1,
                                      3,
                                      -3,
                                      7,
                                      -7,
                                      INT32_MAX,
                                      INT32_MIN,
                                      INT64_MAX,
                                      INT64_MIN,
                                      INT64_MIN + 1,
                                      INT64_MAX - 1};
    for (size_t n = 0; n < sizeof offsets / sizeof *offsets; n++)
        for (size_t len_k = 0; len_k < 6; len_k++)
            for (size_t i = 0; i < 9; i++) {
                attni_mask mask = {.causal = true, .offset = offsets[n]};
                size_t want = 0;
                while (want < len_k && (double)want <= (double)i + (double)offsets[n])
                    want++;
                ck_assert_msg(mask_key_end(&mask, i, len_k) == want,
                              "query %zu of %zu keys, offset %lld: %zu instead of %zu", i, len_k,
                              (long long)offsets[n], mask_key_end(&mask, i, len_k), want);
            }
}
END_TEST

/* Both ends of windows of every size about positions anywhere, against the definition. */
START_TEST(window_positions) {
    static const int64_t offsets[] = {0,         1,         -1,           4, -5, INT32_MAX,
                                      INT64_MAX, INT64_MIN, INT64_MIN + 1};
    static const size_t widths[] = {0, 1, 3, 8, INT32_MAX, SIZE_MAX - 1, SIZE_MAX};
    for (size_t n = 0; n < 9 * 7 * 7 * 2; n++)
        for (size_t i = 0; i < 9; i++) {
            const size_t len_k = 6;
            attni_mask mask = {.causal = n % 2,
                               .offset = offsets[n / 2 % 9],
                               .window = {true, true, widths[n / 18 % 7], widths[n / 126]}};
            double place = (double)i + (double)mask.offset;
            for (size_t j = 0; j < len_k; j++) {
                bool want = (double)j >= place - (double)mask.window.left &&
                            (double)j <= place + (double)mask.window.right &&
                            (!mask.causal || (double)j <= place);
                ck_assert_msg(mask_allows(&mask, 0, 0, i, j, len_k) == want,
                              "query %zu, key %zu, offset %lld, left %zu, right %zu, causal %d", i,
                              j, (long long)mask.offset, mask.window.left, mask.window.right,
                              (int)mask.causal);
            }
        }
}
END_TEST

START_TEST(resolving) {
    const attn_shape shape = {2, 3, 4, 9, 1};
    attni_mask m;
    test_ok(attni_mask_resolve(&m, NULL, &shape));
    ck_assert(mask_is_empty(&m));
    test_ok(attni_mask_resolve(&m, &(attn_mask){.causal = true}, &shape));
    ck_assert_int_eq(m.offset, 5);
    test_ok(attni_mask_resolve(&m, &(attn_mask){.causal = true}, &(attn_shape){1, 1, 9, 4, 1}));
    ck_assert_int_eq(m.offset, -5);
    test_ok(attni_mask_resolve(
        &m, &(attn_mask){.causal = true, .causal_align = ATTN_CAUSAL_TOP_LEFT}, &shape));
    ck_assert_int_eq(m.offset, 0);
    /* causal_offset counts with its own alignment only, and no alignment without causal */
    test_ok(attni_mask_resolve(
        &m, &(attn_mask){.causal_offset = -4, .causal_align = ATTN_CAUSAL_OFFSET}, &shape));
    ck_assert(mask_is_empty(&m));
    test_refused(
        attni_mask_resolve(&m, &(attn_mask){.causal = true, .causal_align = (attn_causal_align)3},
                           &shape),
        ATTN_ERROR_ARGUMENT);
    /* a window makes the alignment count */
    test_ok(attni_mask_resolve(&m,
                               &(attn_mask){.causal_offset = -4,
                                            .causal_align = ATTN_CAUSAL_OFFSET,
                                            .window = {.left_on = true, .left = 2}},
                               &shape));
    ck_assert(!mask_is_empty(&m) && m.offset == -4 && m.window.left == 2);
    const uint8_t byte = 1;
    test_refused(
        attni_mask_resolve(&m, &(attn_mask){.padding = &byte, .padding_stride = SIZE_MAX}, &shape),
        ATTN_ERROR_OVERFLOW);
    test_refused(
        attni_mask_resolve(
            &m, &(attn_mask){.attend = &byte, .attend_strides = {.query = SIZE_MAX / 2}}, &shape),
        ATTN_ERROR_OVERFLOW);
}
END_TEST

/* Masks of every kind at once: the question by pair, the filling of a band and its test for zeros
 * all agree with the definition. Bytes 2 and 255 count as 1; the columns from `keys` on are hidden
 * from the whole band and left alone. */
START_TEST(bands) {
    enum { LEN_Q = BAND_ROWS + 5, LEN_K = 40, STRIDE = LEN_K + 3 };
    const attn_shape shape = {2, 2, LEN_Q, LEN_K, 1};
    static uint8_t padding[2 * LEN_K], attend[2 * 2 * LEN_Q * LEN_K];
    attn_random random = attn_random_seed(5, 5);
    static const uint8_t bytes[6] = {0, 0, 0, 1, 2, 255};
    for (size_t n = 0; n < sizeof padding; n++)
        padding[n] = bytes[attn_random_below(&random, 6)];
    for (size_t n = 0; n < sizeof attend; n++)
        attend[n] = bytes[attn_random_below(&random, 6)];
    const attn_mask mask = {.padding = _i & 1 ? padding : NULL,
                            .attend = _i & 2 ? attend : NULL,
                            .attend_strides = {2 * LEN_Q * LEN_K, LEN_Q * LEN_K, LEN_K, 1},
                            .causal = _i & 4,
                            .causal_align = ATTN_CAUSAL_OFFSET,
                            .causal_offset = -BAND_ROWS + 7};
    attni_mask resolved;
    test_ok(attni_mask_resolve(&resolved, &mask, &shape));
    for (size_t head = 0; head < 4; head++)
        for (size_t begin = 0; begin < LEN_Q; begin += BAND_ROWS) {
            attni_band band = band_at(&resolved, &shape, head, begin);
            ck_assert_uint_eq(band.b * 2 + band.h, head);
            attn_real *x = test_normal(BAND_ROWS * STRIDE, 1, 3),
                      *before = test_normal(BAND_ROWS * STRIDE, 1, 3);
            attni_band_fill_blocked(&band, x, STRIDE, 0);
            ck_assert(attni_band_blocked_is_zero(&band, x, STRIDE));
            for (size_t i = 0; i < BAND_ROWS; i++)
                for (size_t j = 0; j < STRIDE; j++) {
                    bool inside = i < band.rows && j < LEN_K;
                    bool allowed =
                        !inside || oracle_allows(&mask, &shape, band.b, band.h, begin + i, j);
                    bool untouched = allowed || j >= band.keys;
                    if (x[i * STRIDE + j] != (untouched ? before[i * STRIDE + j] : 0) ||
                        (inside && band_allows(&band, i, j) != allowed) ||
                        (inside && allowed && j >= band.keys))
                        ck_abort_msg("masks %d, head %zu, query %zu, key %zu", _i, head, begin + i,
                                     j);
                    if (untouched)
                        continue;
                    x[i * STRIDE + j] = (attn_real)NAN;
                    if (attni_band_blocked_is_zero(&band, x, STRIDE))
                        ck_abort_msg("masks %d: a NaN at query %zu, key %zu is taken for zero", _i,
                                     begin + i, j);
                    x[i * STRIDE + j] = 0;
                }
            attni_band_fill_beyond(&band, x, STRIDE, 5);
            for (size_t i = 0; i < band.rows; i++)
                for (size_t j = band.keys; j < STRIDE; j++)
                    if (x[i * STRIDE + j] != (j < LEN_K ? 5 : before[i * STRIDE + j]))
                        ck_abort_msg("masks %d: query %zu, column %zu", _i, begin + i, j);
            free(x);
            free(before);
        }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mask");
    TCase *tests = tcase_create("mask");
    tcase_add_test(tests, broadcast_strides);
    tcase_add_test(tests, padding_from_lengths);
    tcase_add_test(tests, causal_positions);
    tcase_add_test(tests, window_positions);
    tcase_add_test(tests, resolving);
    tcase_add_loop_test(tests, bands, 0, 8);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
