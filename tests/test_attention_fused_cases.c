/* The fused path on the cases that trouble users of attention code: masks, poison, corners. The
 * numbers in the names are the rows of the list of such troubles that the project keeps. */
#include "fused_model.h"

#include "kernels/kernels.h"

enum { MOST = 1100 };

/* One head of width 1, scale 1, no scores (q = k = 0, so weights are uniform over what a query may
 * see), values v, dO = 1; checks O and dV. */
static void check_uniform(const char *name, size_t len_q, size_t len_k, attn_mask mask,
                          const double *value, const double *context, const double *dvalue) {
    const attn_shape shape = {1, 1, len_q, len_k, 1};
    attn_real q[MOST] = {0}, k[MOST] = {0}, v[MOST], dout[MOST], want[MOST];
    ck_assert(len_q <= MOST && len_k <= MOST);
    for (size_t j = 0; j < len_k; j++)
        v[j] = (attn_real)value[j];
    for (size_t i = 0; i < len_q; i++)
        dout[i] = 1;
    fused_case c = {shape, mask, 1, q, k, v, dout};
    fused_results r = fused_results_make(&shape);
    fused_run(&r, &c, BHTD, 1);
    for (size_t i = 0; i < len_q && context; i++)
        want[i] = (attn_real)context[i];
    if (context)
        test_close(name, r.context, want, len_q, 0, 4 * TEST_EPSILON);
    for (size_t j = 0; j < len_k && dvalue; j++)
        want[j] = (attn_real)dvalue[j];
    if (dvalue)
        test_close(name, r.dvalue, want, len_k, 0, 16 * TEST_EPSILON);
    fused_results_free(&r);
}

/* 3. Causal and left padding. */
START_TEST(causal_with_left_padding) {
    if (!fused_select(_i))
        return;
    const uint8_t padding[] = {255, 0, 0};
    check_uniform("causal with left padding", 3, 3, (attn_mask){.causal = true, .padding = padding},
                  (double[]){100, 2, 4}, (double[]){0, 2, 3}, (double[]){0, 1.5, .5});
}
END_TEST

/* 4. A wholly masked first key tile. */
START_TEST(window_of_ten_keys) {
    if (!fused_select(_i))
        return;
    enum { T = 640 };
    uint8_t *attend = malloc((size_t)T * T);
    double value[T], context[T], dvalue[T] = {0};
    for (size_t i = 0; i < T; i++) {
        const size_t first = i >= 9 ? i - 9 : 0;
        value[i] = (double)i;
        context[i] = (double)(first + i) / 2;
        for (size_t j = 0; j < T; j++)
            attend[i * T + j] = j + 9 >= i;
        for (size_t j = first; j <= i; j++)
            dvalue[j] += 1 / (double)(i - first + 1);
    }
    ck_assert(fabs(dvalue[0] - 2.928968) < 1e-6 && fabs(dvalue[639] - .1) < 1e-12);
    ck_assert(context[639] == 634.5);
    check_uniform("window by attend", T, T,
                  (attn_mask){.causal = true, .attend = attend, .attend_strides = {0, 0, T, 1}},
                  value, context, dvalue);
    const attn_window window = {.left_on = true, .left = 9};
    check_uniform("window", T, T, (attn_mask){.causal = true, .window = window}, value, context,
                  dvalue);
    free(attend);
}
END_TEST

/* 7. Polarity: the same key blocked by padding and by attend, by any non-zero byte. */
START_TEST(polarity) {
    if (!fused_select(_i))
        return;
    const double value[] = {10, 20}, context[] = {10, 10};
    const uint8_t paddings[][2] = {{0, 1}, {0, 2}, {0, 255}},
                  attends[][2] = {{1, 0}, {2, 0}, {255, 0}};
    for (size_t n = 0; n < 3; n++) {
        check_uniform("padding", 2, 2, (attn_mask){.padding = paddings[n]}, value, context, NULL);
        check_uniform("attend", 2, 2,
                      (attn_mask){.attend = attends[n], .attend_strides = {0, 0, 0, 1}}, value,
                      context, NULL);
    }
}
END_TEST

/* 9. A mask dimension of size 1. 11. Causal alignment. */
START_TEST(broadcast_and_alignment) {
    if (!fused_select(_i))
        return;
    const uint8_t rows[] = {0, 1};
    const attn_mask causal = {.causal = true};
    const attn_mask top_left = {.causal = true, .causal_align = ATTN_CAUSAL_TOP_LEFT};
    const double value[] = {1, 2, 3, 4, 5};
    check_uniform("(2,1) mask", 2, 3, (attn_mask){.attend = rows, .attend_strides = {0, 0, 1, 0}},
                  value, (double[]){0, 2}, NULL);
    check_uniform("bottom right", 2, 5, causal, value, (double[]){2.5, 3}, NULL);
    check_uniform("top left", 2, 5, top_left, value, (double[]){1, 1.5}, NULL);
    check_uniform("more queries", 5, 2, causal, value, (double[]){0, 0, 0, 1, 1.5}, NULL);
    for (int sign = -1; sign <= 1; sign += 2) { /* offsets at the ends of their type */
        const attn_mask far = {.causal = true,
                               .causal_align = ATTN_CAUSAL_OFFSET,
                               .causal_offset = sign < 0 ? INT64_MIN : INT64_MAX};
        check_uniform("far offset", 2, 3, far, value,
                      sign < 0 ? (double[]){0, 0} : (double[]){2, 2},
                      sign < 0 ? (double[]){0, 0, 0} : NULL);
        attn_mask window = far; /* so far to the left that the keys are in it, or too far */
        window.causal = false;
        window.window = (attn_window){.left_on = sign > 0,
                                      .right_on = sign < 0,
                                      .left = SIZE_MAX / 2,
                                      .right = SIZE_MAX / 2 + 2};
        check_uniform("far window", 2, 3, window, value,
                      sign < 0 ? (double[]){1.5, 2} : (double[]){2, 2.5}, NULL);
        window.window.left -= 9;
        window.window.right -= 9;
        check_uniform("window too far", 2, 3, window, value, (double[]){0, 0}, (double[]){0, 0, 0});
    }
}
END_TEST

/* 20. One key: O = v, dQ = dK = 0 exactly, whatever the numbers. */
START_TEST(one_key_is_exact) {
    if (!fused_select(_i))
        return;
    const size_t widths[] = {1, 7, 64, 257};
    for (size_t n = 0; n < 8; n++) {
        const bool causal = n % 2 == 1; /* row 0 of a causal call sees one key, too */
        const attn_shape shape = {2, 2, 3, causal ? 3 : 1, widths[n / 2]};
        fused_case c = fused_case_random(shape, (attn_mask){.causal = causal}, 9 + n);
        fused_results r = fused_results_make(&shape);
        fused_run(&r, &c, BTHD, 1);
        const size_t d = shape.d_head;
        for (size_t bh = 0; bh < 4; bh++)
            for (size_t i = 0; i < (causal ? 1 : shape.len_q); i++) {
                const size_t q = (bh * shape.len_q + i) * d, k = bh * shape.len_k * d;
                ck_assert_mem_eq(r.context + q, c.value + k, d * sizeof(attn_real));
                for (size_t e = 0; e < d; e++)
                    ck_assert(r.dquery[q + e] == 0);
            }
        for (size_t e = 0; e < size_k(&shape) && !causal; e++)
            ck_assert(r.dkey[e] == 0);
        fused_results_free(&r);
        fused_case_free(&c);
    }
}
END_TEST

/* 20. Long primes. */
START_TEST(long_primes) {
    if (!fused_select(_i))
        return;
    fused_case c = fused_case_random((attn_shape){1, 1, 1009, 503, 5}, (attn_mask){0}, 4);
    fused_check("1009 x 503", &c, BHTD, 2);
    fused_case_free(&c);
    c = fused_case_random((attn_shape){1, 1, 499, 997, 6}, (attn_mask){.causal = true}, 4);
    fused_check("499 x 997", &c, BHTD, 2);
    fused_case_free(&c);
}
END_TEST

/* 21. Only the last of 257 coordinates is not zero. */
START_TEST(last_of_257) {
    if (!fused_select(_i))
        return;
    attn_real q[257] = {0}, k[2 * 257] = {0}, v[2 * 257] = {0}, dout[257] = {0};
    q[256] = (attn_real)17.612095;
    k[2 * 257 - 1] = 1;
    v[257] = 1;
    fused_case c = {{1, 1, 1, 2, 257}, {0}, 1 / sqrt(257), q, k, v, dout};
    fused_results r = fused_results_make(&c.shape);
    fused_run(&r, &c, BHTD, 1);
    ck_assert_msg(fabs((double)r.context[0] - .75) < 1e-6, "%.9g", (double)r.context[0]);
    fused_results_free(&r);
}
END_TEST

/* 22, 24. The same values in every layout have the same bits. */
START_TEST(layouts_agree) {
    if (!fused_select(_i))
        return;
    fused_case c =
        fused_case_random((attn_shape){2, 2, 49, 49, 32}, (attn_mask){.causal = true}, 8);
    fused_results r[3];
    for (int layout = BHTD; layout <= GAPPED; layout++) {
        r[layout] = fused_results_make(&c.shape);
        fused_run(&r[layout], &c, (fused_layout)layout, 1);
        ck_assert_mem_eq(r[0].context, r[layout].context, size_q(&c.shape) * sizeof(attn_real));
        ck_assert_mem_eq(r[0].dquery, r[layout].dquery, size_q(&c.shape) * sizeof(attn_real));
        ck_assert_mem_eq(r[0].dkey, r[layout].dkey, size_k(&c.shape) * sizeof(attn_real));
        ck_assert_mem_eq(r[0].dvalue, r[layout].dvalue, size_k(&c.shape) * sizeof(attn_real));
    }
    for (int layout = BHTD; layout <= GAPPED; layout++)
        fused_results_free(&r[layout]);
    fused_case_free(&c);
}
END_TEST

/* 23. Mask rows padded to 8 bytes, the rest poisoned. */
START_TEST(mask_rows_with_a_gap) {
    if (!fused_select(_i))
        return;
    uint8_t wide_rows[5 * 8], rows[25];
    memset(wide_rows, 0xAA, sizeof wide_rows);
    for (size_t i = 0; i < 25; i++)
        rows[i] = wide_rows[i / 5 * 8 + i % 5] = i * 7 % 3 != 0;
    fused_case c = fused_case_random((attn_shape){1, 1, 5, 5, 4}, (attn_mask){.attend = rows}, 8);
    fused_results r[2];
    for (size_t n = 0; n < 2; n++) {
        c.mask.attend = n ? wide_rows : rows;
        c.mask.attend_strides = (attn_broadcast){0, 0, n ? 8 : 5, 1};
        r[n] = fused_results_make(&c.shape);
        fused_run(&r[n], &c, BHTD, 1);
    }
    ck_assert_mem_eq(r[0].context, r[1].context, 20 * sizeof(attn_real));
    ck_assert_mem_eq(r[0].dkey, r[1].dkey, 20 * sizeof(attn_real));
    fused_results_free(&r[0]);
    fused_results_free(&r[1]);
    fused_case_free(&c);
}
END_TEST

/* 25. Sizes of 0. */
START_TEST(empty) {
    if (!fused_select(_i))
        return;
    const attn_shape shapes[] = {
        {0, 2, 3, 4, 5}, {2, 0, 3, 4, 5}, {2, 2, 0, 4, 5}, {2, 2, 3, 0, 5}};
    for (size_t n = 0; n < 4; n++)
        for (int causal = 0; causal < 2; causal++) {
            fused_case c = fused_case_random(shapes[n], (attn_mask){.causal = causal}, 3);
            fused_results r = fused_results_make(&c.shape);
            fused_run(&r, &c, BTHD, 2);
            for (size_t e = 0; e < size_q(&c.shape); e++)
                ck_assert(r.context[e] == 0 && r.dquery[e] == 0);
            for (size_t e = 0; e < size_k(&c.shape); e++)
                ck_assert(r.dkey[e] == 0 && r.dvalue[e] == 0);
            for (size_t i = 0; i < shapes[n].batch * shapes[n].num_heads * shapes[n].len_q; i++)
                ck_assert(r.lse[i] == -INFINITY);
            fused_results_free(&r);
            fused_case_free(&c);
        }
}
END_TEST

/* Poisoning some rows of q, k, v or dO makes exactly those results NaN that may depend on them, and
 * leaves the bits of all others as they are. */
typedef enum poisoned { Q, K, V, DO } poisoned;

static bool all_finite(const attn_real *x, size_t d) {
    for (size_t e = 0; e < d; e++)
        if (!isfinite(x[e]))
            return false;
    return true;
}

static void check_row(const char *what, size_t row, const attn_real *clean, const attn_real *dirty,
                      size_t d, bool reached) {
    if (reached)
        ck_assert_msg(!all_finite(dirty, d), "%s %zu: the poison is lost", what, row);
    else
        for (size_t e = 0; e < d; e++)
            ck_assert_msg(clean[e] == dirty[e], "%s %zu: the poison leaks: %g instead of %g", what,
                          row, (double)dirty[e], (double)clean[e]);
}

static void check_poison(poisoned which, attn_real poison, attn_mask mask, size_t len_q,
                         size_t len_k, size_t d) {
    const attn_shape shape = {1, 1, len_q, len_k, d};
    fused_case c = fused_case_random(shape, mask, 21);
    attni_mask resolved;
    test_ok(attni_mask_resolve(&resolved, &mask, &shape));
    fused_results clean = fused_results_make(&shape), dirty = fused_results_make(&shape);
    fused_run(&clean, &c, BHTD, 1);
    const size_t bad = which == Q || which == DO ? len_q / 3 : len_k / 3;
    attn_real *tensors[] = {c.query, c.key, c.value, c.dcontext};
    tensors[which][bad * d + d / 2] = poison;
    fused_run(&dirty, &c, BHTD, 1);
    bool *seen = calloc(len_q + len_k, sizeof *seen); /* queries that see a bad key, and back */
    for (size_t i = 0; i < len_q; i++)
        for (size_t j = 0; j < len_k; j++)
            if (mask_allows(&resolved, 0, 0, i, j, len_k)) {
                if ((which == K || which == V) && j == bad)
                    seen[i] = true;
                if ((which == Q || which == DO) && i == bad)
                    seen[i] = seen[len_q + j] = true;
            }
    for (size_t i = 0; i < len_q && (which == K || which == V); i++)
        for (size_t j = 0; j < len_k && seen[i]; j++) /* what its queries see is reached next */
            if (mask_allows(&resolved, 0, 0, i, j, len_k))
                seen[len_q + j] = true;
    for (size_t i = 0; i < len_q; i++) {
        check_row("context", i, clean.context + i * d, dirty.context + i * d, d,
                  seen[i] && which != DO);
        check_row("dquery", i, clean.dquery + i * d, dirty.dquery + i * d, d, seen[i]);
    }
    for (size_t j = 0; j < len_k; j++) {
        check_row("dkey", j, clean.dkey + j * d, dirty.dkey + j * d, d, seen[len_q + j]);
        /* dV = Pᵀ dO does not depend on V. */
        check_row("dvalue", j, clean.dvalue + j * d, dirty.dvalue + j * d, d,
                  which != V && seen[len_q + j]);
    }
    free(seen);
    fused_results_free(&clean);
    fused_results_free(&dirty);
    fused_case_free(&c);
}

/* 10. NaN and infinities reach what may see them, and nothing else. */
START_TEST(poison_stays_behind_masks) {
    if (!fused_select(_i))
        return;
    enum { LQ = 150, LK = 170 };
    uint8_t attend[LQ * LK], padding[LK];
    for (size_t i = 0; i < LQ * LK; i++)
        attend[i] = i * 7919 % 13 < 6;
    for (size_t j = 0; j < LK; j++)
        padding[j] = j % 5 == 1; /* the poisoned key, LK / 3 = 56, too */
    const attn_mask masks[] = {
        {.causal = true},
        {.padding = padding},
        {.attend = attend, .attend_strides = {0, 0, LK, 1}},
        {.causal = true, .padding = padding, .attend = attend, .attend_strides = {0, 0, LK, 1}},
        {.causal = true, .causal_align = ATTN_CAUSAL_OFFSET, .causal_offset = -60},
        {.causal = true, .window = {.left_on = true, .left = 9}},
        {.window = {.left_on = true, .right_on = true, .left = 70, .right = 2}},
        {.padding = padding, .window = {.right_on = true, .right = 50}},
    };
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        for (int which = Q; which <= DO; which++) {
            check_poison((poisoned)which, (attn_real)NAN, masks[m], LQ, LK, 20);
            if (which == DO || which == V) /* an infinite score is another matter */
                check_poison((poisoned)which, INFINITY, masks[m], LQ, LK, 20);
        }
}
END_TEST

/* NaNs of every payload are NaN still after the exponential. */
START_TEST(nan_of_any_payload_shows) {
    if (!fused_select(_i))
        return;
    for (unsigned low = 0; low < 256; low += 15) {
        attn_real poison;
        memset(&poison, 0xFF, sizeof poison);
        memset(&poison, (int)low, 1);
        check_poison(Q, poison, (attn_mask){.causal = true}, 40, 40, 8);
        check_poison(K, poison, (attn_mask){.causal = true}, 40, 40, 8);
    }
}
END_TEST

/* Scores that overflow to -inf at allowed pairs, alone and beside finite ones; scores near the
 * largest number; a row of which nothing is left. */
START_TEST(extreme_scores) {
    if (!fused_select(_i))
        return;
#ifdef ATTN_DOUBLE
    const double huge = 1e300, edge = 1.7e308;
#else
    const double huge = 1e30, edge = 3.4e38;
#endif
    attn_real v[] = {3, 5}, dout[] = {1};
    const struct {
        double q, k0, k1, context;
    } cases[] = {
        {-huge, huge, 1, 5},    /* -inf beside a finite score: weights 0 and 1 */
        {-huge, huge, huge, 0}, /* nothing but -inf: like a masked row */
        {1, -edge, -edge, 4},   /* equal, near the most negative number */
        {1, -edge, edge, 5},    /* the difference overflows */
        {1, -edge, 0, 5},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        for (int causal = 0; causal < 2; causal++) {
            attn_real q[] = {(attn_real)cases[n].q};
            attn_real k[] = {(attn_real)cases[n].k0, (attn_real)cases[n].k1};
            fused_case c = {{1, 1, 1, 2, 1}, {.causal = causal}, 1, q, k, v, dout};
            fused_results r = fused_results_make(&c.shape);
            fused_run(&r, &c, BHTD, 1);
            ck_assert_msg(fabs((double)r.context[0] - cases[n].context) < 1e-6, "case %zu: %g", n,
                          (double)r.context[0]);
            ck_assert(!isnan(r.dquery[0]) && !isnan(r.dkey[0]) && !isnan(r.dkey[1]));
            ck_assert(!isnan(r.dvalue[0]) && !isnan(r.dvalue[1]));
            fused_results_free(&r);
        }
}
END_TEST

/* Gradients that are not wanted are not written, and the others do not change. */
START_TEST(unwanted_gradients) {
    if (!fused_select(_i))
        return;
    fused_case c =
        fused_case_random((attn_shape){1, 2, 70, 90, 12}, (attn_mask){.causal = true}, 6);
    fused_results all = fused_results_make(&c.shape);
    fused_run(&all, &c, BHTD, 1);
    for (int wanted = 0; wanted < 8; wanted++) {
        fused_results some = fused_results_make(&c.shape);
        fused_run_some(&some, &c, BHTD, 1, wanted);
        if (wanted & 1)
            ck_assert_mem_eq(all.dquery, some.dquery, size_q(&c.shape) * sizeof(attn_real));
        if (wanted & 2)
            ck_assert_mem_eq(all.dkey, some.dkey, size_k(&c.shape) * sizeof(attn_real));
        if (wanted & 4)
            ck_assert_mem_eq(all.dvalue, some.dvalue, size_k(&c.shape) * sizeof(attn_real));
        fused_results_free(&some);
    }
    fused_results_free(&all);
    fused_case_free(&c);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("attention_fused_cases");
    TCase *tcase = tcase_create("cases");
    tcase_add_loop_test(tcase, causal_with_left_padding, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, window_of_ten_keys, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, polarity, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, broadcast_and_alignment, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, one_key_is_exact, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, long_primes, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, last_of_257, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, layouts_agree, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, mask_rows_with_a_gap, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, empty, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, poison_stays_behind_masks, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, nan_of_any_payload_shows, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, extreme_scores, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, unwanted_gradients, 0, ATTN_ISA_COUNT);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
