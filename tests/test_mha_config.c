/* Configuration, parameter block and its initial values. */
#include "test.h"

START_TEST(good_configurations) {
    const struct {
        attn_mha_config cfg;
        size_t d_head, num_params;
    } table[] = {
        {{.d_model = 64, .num_heads = 4}, 16, 4 * 64 * 64},
        {{.d_model = 64, .num_heads = 4, .bias = true}, 16, 4 * 64 * 64 + 4 * 64},
        {{.d_model = 5, .num_heads = 3, .d_head = 7, .bias = true}, 7, 4 * 5 * 21 + 3 * 21 + 5},
        {{.d_model = 1, .num_heads = 1, .has_scale = true, .scale = -2}, 1, 4},
        {{.d_model = 6, .num_heads = 4, .num_kv_heads = 2, .d_head = 3, .bias = true},
         3,
         2 * 6 * 12 + 2 * 6 * 6 + 12 + 2 * 6 + 6},
        {{.d_model = 6, .num_heads = 6, .num_kv_heads = 1}, 1, 2 * 36 + 2 * 6},
        {{.d_model = 6, .num_heads = 6, .kernel = ATTN_KERNEL_FUSED, .max_threads = 99}, 1, 144},
        {{.d_model = 8, .num_heads = 2, .rope = ATTN_ROPE_HALF, .rope_base = 0.5}, 4, 256},
        {{.d_model = 3, .num_heads = 1, .d_head = 2, .rope = ATTN_ROPE_INTERLEAVED}, 2, 24},
        {{.d_model = 6, .num_heads = 3, .softcap = 20, .alibi = true, .dropout = 0.999}, 2, 144},
        {{.d_model = 6, .num_heads = 3, .sinks = true}, 2, 144 + 3},
        {{.d_model = 6, .num_heads = 3, .alibi = true, .alibi_learned = true}, 2, 144 + 3},
        {{.d_model = 6,
          .num_heads = 3,
          .bias = true,
          .sinks = true,
          .alibi = true,
          .alibi_learned = true},
         2,
         144 + 24 + 3 + 3},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        test_ok(attn_mha_config_check(&table[i].cfg));
        ck_assert_uint_eq(attn_mha_d_head(&table[i].cfg), table[i].d_head);
        ck_assert_uint_eq(attn_mha_num_params(&table[i].cfg), table[i].num_params);
    }
}
END_TEST

START_TEST(bad_configurations) {
    const size_t half = SIZE_MAX / 2 + 1;
    const struct {
        attn_mha_config cfg;
        attn_status status;
        const char *words;
    } table[] = {
        {{.num_heads = 1}, ATTN_ERROR_ARGUMENT, "d_model 0"},
        {{.d_model = 8}, ATTN_ERROR_ARGUMENT, "num_heads 0"},
        {{.d_model = 64, .num_heads = 5},
         ATTN_ERROR_SHAPE,
         "num_heads 5 does not divide d_model 64"},
        {{.d_model = 4, .num_heads = 8}, ATTN_ERROR_SHAPE, "num_heads 8 does not divide d_model 4"},
        {{.d_model = 8, .num_heads = 4, .num_kv_heads = 3}, ATTN_ERROR_SHAPE, "num_kv_heads 3"},
        {{.d_model = 8, .num_heads = 4, .num_kv_heads = 8}, ATTN_ERROR_SHAPE, "num_kv_heads 8"},
        {{.d_model = 8, .num_heads = 2, .has_scale = true, .scale = NAN},
         ATTN_ERROR_ARGUMENT,
         "nan"},
        {{.d_model = 8, .num_heads = 2, .has_scale = true, .scale = INFINITY},
         ATTN_ERROR_ARGUMENT,
         "inf"},
        {{.d_model = 8, .num_heads = 2, .kernel = (attn_kernel)3}, ATTN_ERROR_ARGUMENT, "kernel"},
        {{.d_model = 8, .num_heads = 2, .kernel = (attn_kernel)-1}, ATTN_ERROR_ARGUMENT, "kernel"},
        {{.d_model = 6, .num_heads = 2, .rope = ATTN_ROPE_HALF},
         ATTN_ERROR_SHAPE,
         "d_head 3 is odd"},
        {{.d_model = 8, .num_heads = 2, .d_head = 5, .rope = ATTN_ROPE_INTERLEAVED},
         ATTN_ERROR_SHAPE,
         "d_head 5 is odd"},
        {{.d_model = 8, .num_heads = 2, .rope = (attn_rope)3}, ATTN_ERROR_ARGUMENT, "rope 3"},
        {{.d_model = 8, .num_heads = 2, .rope = (attn_rope)-1}, ATTN_ERROR_ARGUMENT, "rope -1"},
        {{.d_model = 8, .num_heads = 2, .rope = ATTN_ROPE_HALF, .rope_base = -2},
         ATTN_ERROR_ARGUMENT,
         "rope_base -2"},
        {{.d_model = 8, .num_heads = 2, .rope = ATTN_ROPE_HALF, .rope_base = NAN},
         ATTN_ERROR_ARGUMENT,
         "rope_base nan"},
        {{.d_model = 8, .num_heads = 2, .softcap = -1}, ATTN_ERROR_ARGUMENT, "softcap -1"},
        {{.d_model = 8, .num_heads = 2, .softcap = NAN}, ATTN_ERROR_ARGUMENT, "softcap nan"},
        {{.d_model = 8, .num_heads = 2, .softcap = INFINITY}, ATTN_ERROR_ARGUMENT, "softcap inf"},
        {{.d_model = 8, .num_heads = 2, .dropout = 1}, ATTN_ERROR_ARGUMENT, "dropout 1"},
        {{.d_model = 8, .num_heads = 2, .dropout = -0.5}, ATTN_ERROR_ARGUMENT, "dropout -0.5"},
        {{.d_model = 8, .num_heads = 2, .dropout = NAN}, ATTN_ERROR_ARGUMENT, "dropout nan"},
        {{.d_model = 8, .num_heads = 2, .alibi_learned = true}, ATTN_ERROR_ARGUMENT, "alibi"},
        {{.d_model = SIZE_MAX - 8, .num_heads = 1}, ATTN_ERROR_OVERFLOW, "overflows"},
        {{.d_model = half, .num_heads = 2}, ATTN_ERROR_OVERFLOW, "overflows"},
        {{.d_model = 2, .num_heads = 2, .d_head = half}, ATTN_ERROR_OVERFLOW, "overflows"},
        {{.d_model = (size_t)1 << 30, .num_heads = 1}, ATTN_ERROR_OVERFLOW, "overflows"},
    };
    attn_real block[4] = {1, 2, 3, 4};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        test_refused(attn_mha_config_check(&table[i].cfg), table[i].status);
        ck_assert_msg(strstr(attn_error_message(), table[i].words), "'%s' lacks '%s'",
                      attn_error_message(), table[i].words);
        ck_assert_uint_eq(attn_mha_d_head(&table[i].cfg), 0);
        ck_assert_uint_eq(attn_mha_num_params(&table[i].cfg), 0);
        ck_assert_uint_eq(attn_mha_kv_heads(&table[i].cfg), 0);
        attn_mha_params w = attn_mha_params_view(&table[i].cfg, block);
        ck_assert(!w.wq && !w.wk && !w.wv && !w.wo && !w.bq && !w.bk && !w.bv && !w.bo);
        ck_assert(!w.sinks && !w.alibi_slopes);
        test_refused(attn_mha_params_init(&table[i].cfg, block, 1), table[i].status);
        ck_assert(block[0] == 1 && block[3] == 4);
    }
    test_refused(attn_mha_config_check(NULL), ATTN_ERROR_ARGUMENT);
    ck_assert_uint_eq(attn_mha_num_params(NULL), 0);
}
END_TEST

START_TEST(view_covers_the_block) {
    attn_mha_config cfg = {.d_model = 5, .num_heads = 3, .d_head = 2, .bias = true};
    attn_real block[4 * 30 + 18 + 5];
    attn_mha_params w = attn_mha_params_view(&cfg, block);
    ck_assert_ptr_eq(w.wq, block);
    ck_assert_ptr_eq(w.wk, block + 30);
    ck_assert_ptr_eq(w.wv, block + 60);
    ck_assert_ptr_eq(w.wo, block + 90);
    ck_assert_ptr_eq(w.bq, block + 120);
    ck_assert_ptr_eq(w.bk, block + 126);
    ck_assert_ptr_eq(w.bv, block + 132);
    ck_assert_ptr_eq(w.bo, block + 138);
    ck_assert_ptr_eq(w.bo + 5, block + attn_mha_num_params(&cfg));
    cfg.bias = false;
    w = attn_mha_params_view(&cfg, block);
    ck_assert_ptr_eq(w.wo, block + 90);
    ck_assert(!w.bq && !w.bk && !w.bv && !w.bo);
    ck_assert_ptr_null(attn_mha_params_view(&cfg, NULL).wq);
    test_refused(attn_mha_params_init(&cfg, NULL, 1), ATTN_ERROR_ARGUMENT);
}
END_TEST

START_TEST(view_of_shared_heads) {
    attn_mha_config cfg = {
        .d_model = 5, .num_heads = 4, .num_kv_heads = 2, .d_head = 3, .bias = true};
    attn_real block[2 * 60 + 2 * 30 + 12 + 2 * 6 + 5];
    attn_mha_params w = attn_mha_params_view(&cfg, block);
    ck_assert_ptr_eq(w.wk, block + 60);
    ck_assert_ptr_eq(w.wv, block + 90);
    ck_assert_ptr_eq(w.wo, block + 120);
    ck_assert_ptr_eq(w.bq, block + 180);
    ck_assert_ptr_eq(w.bk, block + 192);
    ck_assert_ptr_eq(w.bv, block + 198);
    ck_assert_ptr_eq(w.bo, block + 204);
    ck_assert_uint_eq(attn_mha_num_params(&cfg), 209);
    ck_assert_uint_eq(attn_mha_kv_heads(&cfg), 2);
    for (size_t n = 0; n < 209; n++)
        block[n] = 7;
    test_ok(attn_mha_params_init(&cfg, block, 1));
    for (size_t n = 0; n < 209; n++)
        ck_assert(n < 180 ? block[n] != 7 : block[n] == 0);
}
END_TEST

/* After the biases, or after the matrices. */
START_TEST(view_of_sinks_and_slopes) {
    attn_real block[4 * 36 + 24 + 3 + 3], slopes[3];
    test_ok(attn_alibi_slopes(slopes, 3));
    for (unsigned has = 0; has < 8; has++) {
        const bool bias = has & 1, sinks = has & 2, learned = has & 4;
        attn_mha_config cfg = {.d_model = 6,
                               .num_heads = 3,
                               .bias = bias,
                               .sinks = sinks,
                               .alibi = true,
                               .alibi_learned = learned};
        attn_real *end = block + 144 + (bias ? 24 : 0);
        attn_mha_params w = attn_mha_params_view(&cfg, block);
        ck_assert_ptr_eq(w.sinks, sinks ? end : NULL);
        ck_assert_ptr_eq(w.alibi_slopes, learned ? end + (sinks ? 3 : 0) : NULL);
        end += (sinks ? 3 : 0) + (learned ? 3 : 0);
        ck_assert_ptr_eq(block + attn_mha_num_params(&cfg), end);
        for (attn_real *x = block; x < end; x++)
            *x = 7;
        test_ok(attn_mha_params_init(&cfg, block, 1));
        for (size_t h = 0; h < 3; h++) {
            ck_assert(!sinks || w.sinks[h] == 0);
            ck_assert(!learned || w.alibi_slopes[h] == slopes[h]);
        }
    }
}
END_TEST

START_TEST(init_is_xavier_uniform) {
    attn_mha_config cfg = {.d_model = 96, .num_heads = 4, .d_head = 8, .bias = true};
    size_t n = attn_mha_num_params(&cfg), matrix = 96 * 32;
    attn_real *a = test_poison(n), *b = test_poison(n);
    test_ok(attn_mha_params_init(&cfg, a, 7));
    test_ok(attn_mha_params_init(&cfg, b, 7));
    ck_assert(memcmp(a, b, n * sizeof *a) == 0);
    double limit = sqrt(6.0 / (96 + 32));
    for (size_t m = 0; m < 4; m++) {
        double sum = 0, squares = 0, top = 0;
        for (size_t i = 0; i < matrix; i++) {
            double x = (double)a[m * matrix + i];
            sum += x;
            squares += x * x;
            top = fmax(top, fabs(x));
        }
        /* mean 0, variance limit²/3; five standard errors */
        double count = (double)matrix, deviation = limit / sqrt(3);
        ck_assert_double_le(fabs(sum / count), 5 * deviation / sqrt(count));
        ck_assert_double_le(fabs(squares / count / (limit * limit / 3) - 1), 5 / sqrt(count));
        ck_assert(top <= limit && top > 0.99 * limit);
        for (size_t l = 0; l < m; l++)
            ck_assert(memcmp(a + m * matrix, a + l * matrix, matrix * sizeof *a) != 0);
    }
    for (size_t i = 4 * matrix; i < n; i++)
        ck_assert(a[i] == 0);
    test_ok(attn_mha_params_init(&cfg, b, 8));
    ck_assert(memcmp(a, b, matrix * sizeof *a) != 0);
    free(a);
    free(b);
}
END_TEST

START_TEST(init_agrees_between_precisions) {
    /* The values for seed 42 as both precisions must hold them, up to rounding. */
    attn_mha_config cfg = {.d_model = 4, .num_heads = 2};
    attn_real block[64];
    test_ok(attn_mha_params_init(&cfg, block, 42));
    for (size_t m = 0; m < 4; m++) {
        attn_random random = attn_random_seed(42, m);
        for (size_t i = 0; i < 16; i++)
            ck_assert(block[m * 16 + i] ==
                      (attn_real)(sqrt(6.0 / 8) * (2 * attn_random_uniform(&random) - 1)));
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mha_config");
    TCase *tests = tcase_create("config");
    tcase_add_test(tests, good_configurations);
    tcase_add_test(tests, bad_configurations);
    tcase_add_test(tests, view_covers_the_block);
    tcase_add_test(tests, view_of_shared_heads);
    tcase_add_test(tests, view_of_sinks_and_slopes);
    tcase_add_test(tests, init_is_xavier_uniform);
    tcase_add_test(tests, init_agrees_between_precisions);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
