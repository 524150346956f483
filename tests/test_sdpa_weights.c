/* Weights on request: from either path the ones that the reference path returns. */
#include "test.h"

#include <stdbool.h>

/* One call, contiguous (B,H,L,d). */
typedef struct call {
    attn_sdpa_config config;
    attn_sdpa_input input;
    attn_real *arrays[4]; /* q, k, v, bias */
    uint8_t *padding;
} call;

static call call_make(attn_shape s, attn_mask mask, uint64_t seed) {
    const size_t kv = s.num_kv_heads ? s.num_kv_heads : s.num_heads;
    call c = {.arrays = {test_normal(s.batch * s.num_heads * s.len_q * s.d_head, 1, seed),
                         test_normal(s.batch * kv * s.len_k * s.d_head, 1, seed + 1),
                         test_normal(s.batch * kv * s.len_k * s.d_head, 1, seed + 2),
                         test_normal(s.num_heads * s.len_q * s.len_k, 1, seed + 3)},
              .padding = malloc(s.batch * s.len_k + 1)};
    for (size_t n = 0; n < s.batch * s.len_k; n++)
        c.padding[n] = n % 7 == 3;
    c.input = (attn_sdpa_input){
        .shape = s,
        .query = c.arrays[0],
        .key = c.arrays[1],
        .value = c.arrays[2],
        .query_strides = attn_strides_bhtd(s.len_q, s.num_heads, s.d_head),
        .key_strides = attn_strides_bhtd(s.len_k, kv, s.d_head),
        .value_strides = attn_strides_bhtd(s.len_k, kv, s.d_head),
        .mask = mask,
        .dropout_seed = seed,
    };
    return c;
}

static void call_free(call *c) {
    for (size_t n = 0; n < 4; n++)
        free(c->arrays[n]);
    free(c->padding);
}

static size_t num_pairs(const attn_shape *s) {
    return s->batch * s->num_heads * s->len_q * s->len_k;
}

static attn_sdpa_saved forward(const call *c, attn_kernel kernel, attn_real *weights,
                               attn_real *context, attn_arena *arena) {
    attn_sdpa_config config = c->config;
    attn_sdpa_saved saved;
    config.kernel = kernel;
    const attn_sdpa_output output = {
        .context = context, .context_strides = c->input.query_strides, .weights = weights};
    test_ok(attn_sdpa_forward(&config, &c->input, &output, arena, &saved));
    return saved;
}

/* The weights of `saved`, all at once or head by head, with a word of poison behind them; from an
 * arena as large as was measured. */
static void take_weights(attn_real *to, const call *c, const attn_sdpa_saved *saved, bool all) {
    const attn_shape *s = &c->input.shape;
    const size_t heads = s->batch * s->num_heads, size = num_pairs(s) / heads;
    for (size_t n = 0; n < (all ? 1 : heads); n++) {
        const size_t head = all ? ATTN_ALL_HEADS : n, count = all ? num_pairs(s) : size;
        attn_arena measure, arena;
        test_ok(attn_arena_init_measuring(&measure));
        test_ok(attn_sdpa_weights(&c->config, saved, head, NULL, &measure));
        ck_assert_uint_eq(measure.used, 0);
        unsigned char *block = malloc(measure.high_water + 63);
        memset(block, 0xFF, measure.high_water + 63);
        test_ok(attn_arena_init(&arena, block, measure.high_water + 63));
        attn_real *weights = test_poison(count + 1);
        test_ok(attn_sdpa_weights(&c->config, saved, head, weights, &arena));
        ck_assert(isnan(weights[count]));
        ck_assert_uint_eq(arena.used, 0);
        memcpy(to + n * size, weights, count * sizeof *to);
        attn_arena_destroy(&arena);
        free(block);
        free(weights);
    }
}

/* Both paths, all heads at once and one by one. */
static void check_call(const char *what, const call *c) {
    const attn_shape *s = &c->input.shape;
    attn_real *want = test_poison(num_pairs(s)), *got = test_poison(num_pairs(s));
    attn_real *context = test_poison(s->batch * s->num_heads * s->len_q * s->d_head);
    attn_arena arena = test_arena(16 << 20);
    attn_sdpa_saved saved = forward(c, ATTN_KERNEL_REFERENCE, want, context, &arena);
    for (int all = 0; all < 2; all++) {
        take_weights(got, c, &saved, all);
        ck_assert_mem_eq(got, want, num_pairs(s) * sizeof *got);
    }
    attn_arena_reset(&arena);
    saved = forward(c, ATTN_KERNEL_FUSED, NULL, context, &arena);
    for (int all = 0; all < 2; all++) {
        take_weights(got, c, &saved, all);
        test_close(what, got, want, num_pairs(s), 64 * TEST_EPSILON, 0);
        for (size_t n = 0; n < num_pairs(s); n++)
            if (want[n] == 0 && got[n] != 0)
                ck_abort_msg("%s: element %zu is blocked, its weight %g", what, n, (double)got[n]);
    }
    attn_arena_destroy(&arena);
    free(want);
    free(got);
    free(context);
}

START_TEST(every_kind_of_attention) {
    if (!attn_isa_available((attn_isa)_i))
        return;
    test_ok(attn_isa_select(attn_isa_name((attn_isa)_i)));
    const attn_shape shapes[] = {{2, 4, 70, 133, 8, 2}, {1, 2, 129, 65, 5, 0}, {3, 1, 1, 9, 16, 0}};
    const attn_real slopes[] = {(attn_real)0.3, (attn_real)0.1, (attn_real)-0.05, 0};
    for (size_t n = 0; n < 3; n++)
        for (int kind = 0; kind < 64; kind += 1 + 2 * (int)n) {
            const attn_shape *s = &shapes[n];
            call c = call_make(*s, (attn_mask){.causal = kind & 1}, 7 * n + (size_t)kind);
            char what[100];
            snprintf(what, sizeof what, "shape %zu, kind %d, %s", n, kind,
                     attn_isa_name((attn_isa)_i));
            if (kind & 2)
                c.input.mask.padding = c.padding;
            if (kind & 4)
                c.input.mask.window = (attn_window){.left_on = true, .left = 11};
            if (kind & 8)
                c.config.softcap = 2;
            if (kind & 16) {
                c.config.alibi = true;
                c.input.alibi_slopes = kind & 1 ? slopes : NULL;
            }
            if (kind & 32) {
                c.config.dropout = 0.4;
                c.input.bias = c.arrays[3];
                c.input.bias_strides = (attn_broadcast){0, s->len_q * s->len_k, s->len_k, 1};
            }
            check_call(what, &c);
            call_free(&c);
        }
}
END_TEST

/* Rows that see nothing have weights 0; there is nothing to write where a dimension is empty. */
START_TEST(nothing_to_see) {
    call c = call_make((attn_shape){1, 1, 6, 3, 4, 0}, (attn_mask){.causal = true}, 1);
    check_call("fully masked rows", &c);
    call_free(&c);
    const attn_shape empty[] = {{0, 2, 3, 3, 4, 0}, {2, 2, 0, 3, 4, 0}, {2, 2, 3, 0, 4, 0}};
    for (size_t n = 0; n < 3; n++) {
        call none = call_make(empty[n], (attn_mask){0}, 2);
        attn_real context[2 * 2 * 3 * 4];
        attn_arena arena = test_arena(1 << 20);
        for (int kernel = ATTN_KERNEL_REFERENCE; kernel <= ATTN_KERNEL_FUSED; kernel++) {
            attn_sdpa_saved saved = forward(&none, (attn_kernel)kernel, NULL, context, &arena);
            test_ok(attn_sdpa_weights(&none.config, &saved, ATTN_ALL_HEADS, NULL, &arena));
            attn_arena_reset(&arena);
        }
        attn_arena_destroy(&arena);
        call_free(&none);
    }
}
END_TEST

/* Packed sequences, one of them empty: a head at a time, each with its own lengths, the same as of
 * a call with that sequence alone. */
START_TEST(packed_sequences) {
    const size_t offsets_q[] = {0, 5, 5, 78}, offsets_k[] = {0, 9, 16, 120};
    call c = call_make((attn_shape){3, 2, 78, 120, 4, 0}, (attn_mask){.causal = true}, 9);
    c.input.query_strides = attn_strides_bthd(78, 2, 4);
    c.input.key_strides = c.input.value_strides = attn_strides_bthd(120, 2, 4);
    c.input.offsets_q = offsets_q;
    c.input.offsets_k = offsets_k;
    c.config.alibi = true;
    attn_real context[78 * 2 * 4], alone[78 * 2 * 4], got[73 * 104], want[2 * 73 * 104];
    for (int kernel = ATTN_KERNEL_REFERENCE; kernel <= ATTN_KERNEL_FUSED; kernel++)
        for (size_t head = 0; head < 6; head++) {
            const size_t b = head / 2;
            attn_arena arena = test_arena(1 << 20);
            attn_sdpa_saved saved = forward(&c, (attn_kernel)kernel, NULL, context, &arena);
            test_ok(attn_sdpa_weights(&c.config, &saved, head, got, &arena));
            test_refused(attn_sdpa_weights(&c.config, &saved, ATTN_ALL_HEADS, got, &arena),
                         ATTN_ERROR_UNSUPPORTED);
            call one = c;
            one.input.offsets_q = one.input.offsets_k = NULL;
            one.input.shape.batch = 1;
            one.input.shape.len_q = offsets_q[b + 1] - offsets_q[b];
            one.input.shape.len_k = offsets_k[b + 1] - offsets_k[b];
            one.input.query += offsets_q[b] * 8;
            one.input.key += offsets_k[b] * 8;
            one.input.value += offsets_k[b] * 8;
            (void)forward(&one, ATTN_KERNEL_REFERENCE, want, alone, &arena);
            const size_t count = one.input.shape.len_q * one.input.shape.len_k;
            test_close("packed", got, want + head % 2 * count, count, 64 * TEST_EPSILON, 0);
            attn_arena_destroy(&arena);
        }
    call_free(&c);
}
END_TEST

START_TEST(refusals) {
    call c = call_make((attn_shape){2, 3, 5, 6, 4, 0}, (attn_mask){.causal = true}, 3);
    attn_real context[2 * 3 * 5 * 4], weights[2 * 3 * 5 * 6];
    attn_arena arena = test_arena(1 << 20), full = test_arena(64);
    const attn_sdpa_saved saved = forward(&c, ATTN_KERNEL_FUSED, NULL, context, &arena);
    attn_sdpa_saved empty = saved;
    attn_sdpa_config other = c.config;
    empty.row_max = NULL;
    other.softcap = 1;
    for (size_t n = 0; n < 2 * 3 * 5 * 6; n++)
        weights[n] = 7;
    const attn_status bad = ATTN_ERROR_ARGUMENT;
    test_refused(attn_sdpa_weights(NULL, &saved, 0, weights, &arena), bad);
    test_refused(attn_sdpa_weights(&c.config, NULL, 0, weights, &arena), bad);
    test_refused(attn_sdpa_weights(&c.config, &saved, 0, NULL, &arena), bad);
    test_refused(attn_sdpa_weights(&c.config, &saved, 0, weights, NULL), bad);
    test_refused(attn_sdpa_weights(&c.config, &saved, 6, weights, &arena), bad);
    test_refused(attn_sdpa_weights(&c.config, &empty, 0, weights, &arena), bad);
    test_refused(attn_sdpa_weights(&other, &saved, 0, weights, &arena), bad);
    ck_assert_ptr_nonnull(strstr(attn_error_message(), "attn_sdpa_weights: softcap"));
    test_refused(attn_sdpa_weights(&c.config, &saved, 0, weights, &full), ATTN_ERROR_MEMORY);
    for (size_t n = 0; n < 2 * 3 * 5 * 6; n++)
        ck_assert(weights[n] == 7);
    test_ok(attn_sdpa_weights(&c.config, &saved, 5, weights, &arena));
    attn_arena_destroy(&arena);
    attn_arena_destroy(&full);
    call_free(&c);
}
END_TEST

/* The layer shows the same weights on both paths. */
START_TEST(of_the_layer) {
    const attn_mha_config plain = {
        .d_model = 12, .num_heads = 3, .rope = ATTN_ROPE_HALF, .softcap = 4, .dropout = 0.2};
    enum { B = 2, T = 19, PAIRS = B * 3 * T * T };
    attn_real *theta = test_poison(attn_mha_num_params(&plain)), *x = test_normal(B * T * 12, 1, 5);
    attn_real *y = test_poison(B * T * 12);
    attn_real want[PAIRS], got[PAIRS];
    test_ok(attn_mha_params_init(&plain, theta, 4));
    const attn_mha_params w = attn_mha_params_view(&plain, theta);
    attn_mha_input input = {.batch = B, .len_q = T, .query = x, .mask = {.causal = true}};
    attn_arena arena = test_arena(4 << 20);
    attn_mha_saved saved;
    for (int kernel = ATTN_KERNEL_REFERENCE; kernel <= ATTN_KERNEL_FUSED; kernel++) {
        attn_mha_config config = plain;
        config.kernel = (attn_kernel)kernel;
        input.weights = kernel == ATTN_KERNEL_REFERENCE ? want : NULL;
        test_ok(attn_mha_forward(&config, &w, &input, y, &arena, &saved));
        test_ok(attn_mha_weights(&config, &saved, ATTN_ALL_HEADS, got, &arena));
        test_close("all", got, want, PAIRS, 64 * TEST_EPSILON, 0);
        test_ok(attn_mha_weights(&config, &saved, 4, got, &arena));
        test_close("one", got, want + 4 * T * T, T * T, 64 * TEST_EPSILON, 0);
        attn_arena_reset(&arena);
    }
    test_refused(attn_mha_weights(&plain, NULL, 0, got, &arena), ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_weights(NULL, &saved, 0, got, &arena), ATTN_ERROR_ARGUMENT);
    test_refused(attn_mha_weights(&plain, &saved, 0, got, NULL), ATTN_ERROR_ARGUMENT);
    attn_arena_destroy(&arena);
    free(theta);
    free(x);
    free(y);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("sdpa_weights");
    TCase *tcase = tcase_create("weights");
    tcase_add_loop_test(tcase, every_kind_of_attention, 0, ATTN_ISA_COUNT);
    tcase_add_test(tcase, nothing_to_see);
    tcase_add_test(tcase, packed_sequences);
    tcase_add_test(tcase, refusals);
    tcase_add_test(tcase, of_the_layer);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
