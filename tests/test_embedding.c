#include "test.h"

enum { BATCH = 3, LEN = 5, VOCAB = 7, D_MODEL = 6 };

static const int32_t tokens[BATCH * LEN] = {0, 6, 2, 2, 1, 5, 0, 0, 6, 3, 4, 4, 4, 4, 4};

START_TEST(forward_adds_the_row_of_the_token_and_the_row_of_the_position) {
    attn_real *table = test_normal(VOCAB * D_MODEL, 1, 1);
    attn_real *positions = test_normal(LEN * D_MODEL, 1, 2);
    for (int with_positions = 0; with_positions < 2; with_positions++) {
        attn_real *x = test_poison(BATCH * LEN * D_MODEL);
        test_ok(attn_embedding_forward(x, tokens, table, with_positions ? positions : NULL, BATCH,
                                       LEN, VOCAB, D_MODEL));
        for (size_t b = 0; b < BATCH; b++)
            for (size_t t = 0; t < LEN; t++)
                for (size_t i = 0; i < D_MODEL; i++) {
                    attn_real want = table[(size_t)tokens[b * LEN + t] * D_MODEL + i];
                    if (with_positions)
                        want += positions[t * D_MODEL + i];
                    ck_assert_msg(x[(b * LEN + t) * D_MODEL + i] == want, "b %zu t %zu i %zu", b, t,
                                  i);
                }
        free(x);
    }
    free(table);
    free(positions);
}
END_TEST

/* The map is linear, so its backward is the transpose: <dx, f(dE, dP)> = <f'(dx), (dE, dP)>. */
START_TEST(backward_is_the_transpose_and_adds) {
    attn_real *dx = test_normal(BATCH * LEN * D_MODEL, 1, 3);
    attn_real *dtable = calloc(VOCAB * D_MODEL, sizeof *dtable);
    attn_real *dpositions = calloc(LEN * D_MODEL, sizeof *dpositions);
    attn_real *want_table = calloc(VOCAB * D_MODEL, sizeof *want_table);
    attn_real *want_positions = calloc(LEN * D_MODEL, sizeof *want_positions);
    for (size_t row = 0; row < BATCH * LEN; row++)
        for (size_t i = 0; i < D_MODEL; i++) {
            want_table[(size_t)tokens[row] * D_MODEL + i] += dx[row * D_MODEL + i];
            want_positions[row % LEN * D_MODEL + i] += dx[row * D_MODEL + i];
        }
    test_ok(attn_embedding_backward(dtable, dpositions, dx, tokens, BATCH, LEN, VOCAB, D_MODEL));
    test_close("dE", dtable, want_table, VOCAB * D_MODEL, 0, 8 * TEST_EPSILON);
    test_close("dP", dpositions, want_positions, LEN * D_MODEL, 0, 8 * TEST_EPSILON);

    for (size_t i = 0; i < VOCAB * D_MODEL; i++)
        want_table[i] *= 2;
    test_ok(attn_embedding_backward(dtable, NULL, dx, tokens, BATCH, LEN, VOCAB, D_MODEL));
    test_close("dE, second time", dtable, want_table, VOCAB * D_MODEL, 0, 8 * TEST_EPSILON);
    test_close("dP, not wanted", dpositions, want_positions, LEN * D_MODEL, 0, 8 * TEST_EPSILON);
    free(dx);
    free(dtable);
    free(dpositions);
    free(want_table);
    free(want_positions);
}
END_TEST

START_TEST(bad_calls_are_refused_and_change_nothing) {
    attn_real table[4] = {1, 2, 3, 4}, x[4] = {9, 9, 9, 9};
    const int32_t negative[2] = {0, -1}, beyond[2] = {1, 2}, good[2] = {0, 1};
    test_refused(attn_embedding_forward(x, negative, table, NULL, 1, 2, 2, 2), ATTN_ERROR_ARGUMENT);
    ck_assert_str_eq(attn_error_message(),
                     "attn_embedding_forward: tokens[1] is -1, outside a vocabulary of 2");
    test_refused(attn_embedding_forward(x, beyond, table, NULL, 1, 2, 2, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_embedding_backward(table, NULL, x, beyond, 1, 2, 2, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_embedding_forward(x, good, table, NULL, 1, 2, 2, 0), ATTN_ERROR_ARGUMENT);
    test_refused(attn_embedding_forward(x, good, table, NULL, 1, 2, 0, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_embedding_forward(NULL, good, table, NULL, 1, 2, 2, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_embedding_forward(x, NULL, table, NULL, 1, 2, 2, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_embedding_forward(x, good, table, NULL, SIZE_MAX / 2, 4, 2, 2),
                 ATTN_ERROR_OVERFLOW);
    for (int i = 0; i < 4; i++)
        ck_assert(x[i] == 9 && table[i] == (attn_real)(i + 1));
    test_ok(attn_embedding_forward(NULL, NULL, table, NULL, 0, 2, 2, 2));
    test_ok(attn_embedding_backward(table, NULL, NULL, NULL, 3, 0, 2, 2));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("embedding (" TEST_PRECISION ")");
    TCase *tcase = tcase_create("embedding");
    tcase_add_test(tcase, forward_adds_the_row_of_the_token_and_the_row_of_the_position);
    tcase_add_test(tcase, backward_is_the_transpose_and_adds);
    tcase_add_test(tcase, bad_calls_are_refused_and_change_nothing);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
