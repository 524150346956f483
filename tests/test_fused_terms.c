/* Softcap, bias and ALiBi on the fused path against the plain model, together with masks and
 * dropout. */
#include "fused_model.h"

#include "kernels/kernels.h"

/* How a bias lies in memory. */
typedef enum bias_kind {
    NO_BIAS,
    FULL,
    PAIRS, /* (Lq,Lk) for all */
    PER_KEY,
    PER_QUERY,
    PER_HEAD,
    ONE,
    TURNED, /* (B,H,Lk,Lq): queries contiguous */
    SPREAD, /* neither */
    KEYS_OF_SAMPLES,
    BIAS_KINDS
} bias_kind;

static const char *const bias_names[] = {"no bias",    "full",      "(Lq,Lk)", "(1,Lk)",
                                         "(Lq,1)",     "(H,1,1)",   "(1,1)",   "(B,H,Lk,Lq)",
                                         "spread out", "(B,1,1,Lk)"};

static attn_broadcast bias_strides(bias_kind kind, const attn_shape *s) {
    const size_t q = s->len_q, k = s->len_k, pairs = q * k;
    switch (kind) {
    case FULL:
        return (attn_broadcast){s->num_heads * pairs, pairs, k, 1};
    case PAIRS:
        return (attn_broadcast){0, 0, k, 1};
    case PER_KEY:
        return (attn_broadcast){0, 0, 0, 1};
    case PER_QUERY:
        return (attn_broadcast){0, 0, 1, 0};
    case PER_HEAD:
        return (attn_broadcast){0, 2, 0, 0};
    case TURNED:
        return (attn_broadcast){s->num_heads * pairs, pairs, 1, q};
    case SPREAD:
        return (attn_broadcast){s->num_heads * 6 * pairs + 1, 6 * pairs, 3 * k, 2};
    case KEYS_OF_SAMPLES:
        return (attn_broadcast){k, 0, 0, 1};
    default:
        return (attn_broadcast){0, 0, 0, 0};
    }
}

/* Adds a random bias; `blocked` of its elements are -inf. */
static attn_real *add_bias(fused_case *c, bias_kind kind, double blocked, uint64_t seed) {
    const attn_shape *s = &c->shape;
    const attn_broadcast strides = bias_strides(kind, s);
    if (kind == NO_BIAS)
        return NULL;
    const size_t size = (s->batch - 1) * strides.batch + (s->num_heads - 1) * strides.head +
                        (s->len_q - 1) * strides.query + (s->len_k - 1) * strides.key + 1;
    attn_real *bias = test_normal(size, 1.5, seed);
    attn_random random = attn_random_seed(seed, 3);
    for (size_t n = 0; n < size; n++)
        if (attn_random_uniform(&random) < blocked)
            bias[n] = -(attn_real)INFINITY;
    c->terms.bias = bias;
    c->terms.bias_strides = strides;
    c->terms.bias_size = size;
    return bias;
}

typedef struct some_terms {
    double softcap, dropout;
    bool alibi;
    bias_kind bias;
    double blocked;
} some_terms;

static const attn_real some_slopes[] = {(attn_real)0.5, (attn_real)0.03, (attn_real)-0.07, 0};

static void check_terms(const some_terms *terms, attn_shape shape, attn_mask mask,
                        fused_layout layout, size_t threads) {
    const uint64_t seed = shape.len_q * 1009 + shape.len_k * 31 + shape.d_head + 7 * terms->bias;
    fused_case c = fused_case_random(shape, mask, seed);
    c.terms = (fused_terms){.softcap = terms->softcap,
                            .slopes = terms->alibi ? some_slopes : NULL,
                            .dropout = terms->dropout,
                            .seed = seed};
    attn_real *bias = add_bias(&c, terms->bias, terms->blocked, seed + 5);
    char name[200];
    snprintf(name, sizeof name, "softcap %g, bias %s, %g of it -inf, %s, dropout %g%s",
             terms->softcap, bias_names[terms->bias], terms->blocked,
             terms->alibi ? "ALiBi" : "no ALiBi", terms->dropout, mask.causal ? ", causal" : "");
    fused_check(name, &c, layout, threads);
    fused_case_free(&c);
    free(bias);
}

static const some_terms single[] = {
    {.softcap = 2},
    {.softcap = 50},
    {.alibi = true},
    {.bias = FULL},
    {.bias = PAIRS},
    {.bias = PER_KEY},
    {.bias = PER_QUERY},
    {.bias = PER_HEAD},
    {.bias = ONE},
    {.bias = TURNED},
    {.bias = SPREAD},
    {.bias = KEYS_OF_SAMPLES},
    {.bias = FULL, .blocked = 0.3},
    {.softcap = 3, .dropout = 0.2, .alibi = true, .bias = FULL, .blocked = 0.1},
};
enum { SINGLE = sizeof single / sizeof *single };

START_TEST(lengths_around_the_tiles) {
    if (!fused_select(_i))
        return;
    const attni_kernels *kernels = attni_kernels_get();
    const size_t q = kernels->fused_query_tile, k = kernels->fused_key_tile;
    const size_t lens_q[] = {1, 9, q - 1, q, 2 * q + 1};
    const size_t lens_k[] = {1, 9, k - 1, k, 2 * k + 1};
    for (size_t n = 0; n < SINGLE; n++)
        for (size_t i = 0; i < 5; i++)
            for (size_t j = 0; j < 5; j++) {
                const attn_shape shape = {1, 1, lens_q[i], lens_k[j], 3};
                check_terms(&single[n], shape, (attn_mask){.causal = (n + i + j) % 2}, BHTD, 1);
            }
}
END_TEST

/* Samples, heads, passes, ranges and threads; windows, bounds and hidden keys. */
START_TEST(longer_calls) {
    if (!fused_select(_i))
        return;
    uint8_t padding[2 * 211];
    for (size_t j = 0; j < sizeof padding; j++)
        padding[j] = j % 5 == 0;
    const attn_mask ahead = {
        .causal = true, .causal_align = ATTN_CAUSAL_OFFSET, .causal_offset = 21};
    const attn_mask window = {
        .padding = padding, .window = {.left_on = true, .right_on = true, .left = 40, .right = 9}};
    for (size_t n = 0; n < SINGLE; n++) {
        check_terms(&single[n], (attn_shape){2, 4, 61, 37, 16}, ahead, BTHD, 2);
        check_terms(&single[n], (attn_shape){2, 2, 150, 211, 5}, window, GAPPED, 2);
        if (n % 3 == 0)
            check_terms(&single[n], (attn_shape){1, 1, 523, 601, 4}, (attn_mask){.causal = true},
                        BTHD, 2);
    }
}
END_TEST

/* Bias that is NaN wherever a mask blocks is used nowhere. */
START_TEST(bias_under_a_mask) {
    if (!fused_select(_i))
        return;
    const attn_shape s = {2, 2, 75, 99, 7};
    uint8_t padding[2 * 99], *attend = malloc(75 * 99);
    for (size_t j = 0; j < sizeof padding; j++)
        padding[j] = j % 7 == 2;
    for (size_t n = 0; n < 75 * 99; n++)
        attend[n] = n % 11 != 4;
    const attn_mask masks[] = {
        {.causal = true},
        {.padding = padding},
        {.attend = attend, .attend_strides = {0, 0, 99, 1}},
        {.window = {.left_on = true, .left = 20}},
        {.causal = true, .padding = padding, .window = {.left_on = true, .left = 50}}};
    for (size_t n = 0; n < sizeof masks / sizeof *masks; n++)
        for (int turned = 0; turned < 2; turned++) {
            fused_case c = fused_case_random(s, masks[n], 50 + n);
            attn_real *bias = add_bias(&c, turned ? TURNED : FULL, 0.1, 51);
            attni_mask mask;
            test_ok(attni_mask_resolve(&mask, &c.mask, &s));
            for (size_t b = 0; b < 2; b++)
                for (size_t h = 0; h < 2; h++)
                    for (size_t i = 0; i < 75; i++)
                        for (size_t j = 0; j < 99; j++)
                            if (!mask_allows(&mask, b, h, i, j, 99))
                                bias[model_bias_place(&c.terms.bias_strides, b, h, i, j)] =
                                    (attn_real)NAN;
            c.terms.softcap = turned ? 5 : 0;
            fused_check("NaN bias under a mask", &c, BHTD, 1);
            fused_case_free(&c);
            free(bias);
        }
    free(attend);
}
END_TEST

/* Windows that begin anywhere in a tile, at widths of a head that cut tiles differently: a bias has
 * no gradient from keys that no query of a vector may see. */
START_TEST(bias_beside_a_window) {
    if (!fused_select(_i))
        return;
    static const size_t widths[] = {5, 64, 96, 100};
    for (size_t n = 0; n < sizeof widths / sizeof *widths; n++)
        for (size_t left = 0; left < 14; left += n == 0 ? 1 : 3)
            for (int turned = 0; turned < 2; turned++) {
                const attn_shape s = {1, 2, 49, 53, widths[n]};
                const attn_mask mask = {.window = {.left_on = true, .left = left}};
                fused_case c = fused_case_random(s, mask, 60 + left);
                attn_real *bias = add_bias(&c, turned ? TURNED : FULL, 1, 61);
                fused_check("bias beside a window", &c, BHTD, 1);
                fused_case_free(&c);
                free(bias);
            }
}
END_TEST

/* A finite bias blocks nothing, however negative: rows of -1e30 share equally, and elsewhere it
 * leaves no weight but does no harm. */
START_TEST(huge_negative_bias) {
    if (!fused_select(_i))
        return;
    const attn_shape s = {1, 2, 70, 130, 6};
    fused_case c = fused_case_random(s, (attn_mask){.causal = true}, 61);
    attn_real *bias = add_bias(&c, PAIRS, 0, 62);
    for (size_t i = 0; i < 70; i++)
        for (size_t j = 0; j < 130; j++)
            if (i % 3 == 0 || (i + j) % 4 == 0)
                bias[i * 130 + j] = (attn_real)-1e30;
    fused_check("huge negative bias", &c, BHTD, 1);
    fused_results r = fused_results_of(&c);
    fused_run(&r, &c, BHTD, 1);
    for (size_t i = 0; i < 70; i += 3) /* row i sees keys 0 .. i + 60 */
        for (size_t e = 0; e < 6; e++) {
            double mean = 0;
            for (size_t j = 0; j <= i + 60; j++)
                mean += (double)c.value[j * 6 + e] / (double)(i + 61);
            ck_assert(fabs((double)r.context[i * 6 + e] - mean) < 64 * TEST_EPSILON);
        }
    fused_results_free(&r);
    fused_case_free(&c);
    free(bias);
}
END_TEST

/* NaN in rows of k and v that a bias of -inf hides, and in q and dO of rows that see nothing else,
 * stays there. */
START_TEST(nan_behind_a_blocking_bias) {
    if (!fused_select(_i))
        return;
    const attn_shape s = {1, 1, 40, 150, 8};
    fused_case c = fused_case_random(s, (attn_mask){0}, 71);
    attn_real *bias = add_bias(&c, PER_KEY, 0, 72);
    for (size_t j = 0; j < 150; j += 9) {
        bias[j] = -(attn_real)INFINITY;
        c.key[j * 8] = c.value[j * 8 + 3] = (attn_real)NAN;
    }
    fused_check("NaN behind a bias of -inf", &c, BHTD, 1);
    fused_case_free(&c);
    free(bias);
}
END_TEST

/* However far the queries are from the keys, weights and gradients depend on the order of the keys
 * alone. */
START_TEST(alibi_from_afar) {
    if (!fused_select(_i))
        return;
    const attn_shape s = {1, 2, 35, 70, 8};
    const int64_t offsets[] = {70, 1000, INT64_C(1) << 40, INT64_MAX};
    for (int sign = -1; sign <= 1; sign += 2) {
        const attn_mask mask = {.causal_align = ATTN_CAUSAL_OFFSET, .causal_offset = sign * 70};
        fused_case c = fused_case_random(s, mask, 81);
        c.terms.slopes = some_slopes;
        fused_check("ALiBi beside the keys", &c, BHTD, 1);
        fused_results near = fused_results_of(&c), far = fused_results_of(&c);
        fused_run(&near, &c, BHTD, 1);
        for (size_t n = 1; n < 4; n++) {
            c.mask.causal_offset = sign < 0 ? -offsets[n] : offsets[n];
            fused_run(&far, &c, BHTD, 1);
            ck_assert_mem_eq(near.context, far.context, size_q(&s) * sizeof(attn_real));
            ck_assert_mem_eq(near.dquery, far.dquery, size_q(&s) * sizeof(attn_real));
            ck_assert_mem_eq(near.dslopes, far.dslopes, 2 * sizeof(attn_real));
            const double further = (double)offsets[n] - 70;
            for (size_t row = 0; row < 70; row++) {
                const double moved =
                    (double)near.lse[row] - (double)some_slopes[row / 35] * further;
                ck_assert(fabs((double)far.lse[row] - moved) <= 4 * TEST_EPSILON * fabs(moved));
            }
        }
        fused_results_free(&near);
        fused_results_free(&far);
        fused_case_free(&c);
    }
}
END_TEST

/* Slopes that make distance pay: exp overflows in the lanes of a tile that hold no query, and must
 * not reach the sums over queries. */
START_TEST(steep_negative_slopes) {
    if (!fused_select(_i))
        return;
    const attn_real slopes[] = {-8, -20};
    fused_case c = fused_case_random((attn_shape){1, 2, 9, 130, 5}, (attn_mask){0}, 88);
    attn_real *bias = add_bias(&c, PER_KEY, 0, 89);
    c.terms.slopes = slopes;
    fused_check("steep negative slopes", &c, BHTD, 1);
    fused_case_free(&c);
    free(bias);
}
END_TEST

/* Beside a sink, which stays where it is, distances count in full: both paths agree. */
START_TEST(alibi_beside_a_sink) {
    if (!fused_select(_i))
        return;
    enum { B = 2, H = 2, LQ = 35, LK = 70, D = 8, ROWS = B * H * LQ };
    const int64_t offsets[] = {0, 35, 90, -90, 1000, INT64_C(1) << 40, INT64_MIN, INT64_MAX};
    const attn_real sinks[H] = {(attn_real)0.5, (attn_real)-300};
    const attn_shape s = {B, H, LQ, LK, D};
    const attn_strides rows_q = attn_strides_bhtd(LQ, H, D), rows_k = attn_strides_bhtd(LK, H, D);
    fused_case c = fused_case_random(s, (attn_mask){0}, 85);
    for (size_t n = 0; n < sizeof offsets / sizeof *offsets; n++) {
        attn_real context[2][ROWS * D], lse[2][ROWS], dq[2][ROWS * D], slopes[2][H], dsinks[2][H];
        for (int path = 0; path < 2; path++) {
            const attn_sdpa_config config = {
                .alibi = true, .kernel = path ? ATTN_KERNEL_FUSED : ATTN_KERNEL_REFERENCE};
            const attn_sdpa_input input = {
                .shape = s,
                .query = c.query,
                .key = c.key,
                .value = c.value,
                .query_strides = rows_q,
                .key_strides = rows_k,
                .value_strides = rows_k,
                .mask = {.causal_align = ATTN_CAUSAL_OFFSET, .causal_offset = offsets[n]},
                .alibi_slopes = some_slopes,
                .sinks = sinks};
            const attn_sdpa_output output = {
                .context = context[path], .context_strides = rows_q, .lse = lse[path]};
            const attn_sdpa_grads grads = {.query = dq[path],
                                           .query_strides = rows_q,
                                           .alibi_slopes = slopes[path],
                                           .sinks = dsinks[path]};
            attn_arena arena = test_arena(1 << 21);
            attn_sdpa_saved saved;
            test_ok(attn_sdpa_forward(&config, &input, &output, &arena, &saved));
            test_ok(attn_sdpa_backward(&config, &saved, c.dcontext, &rows_q, &grads, &arena));
            attn_arena_destroy(&arena);
        }
        const double close = 200 * TEST_EPSILON;
        test_close("context", context[1], context[0], ROWS * D, close, close);
        test_close("lse", lse[1], lse[0], ROWS, 0, close);
        test_close("dquery", dq[1], dq[0], ROWS * D, close, close);
        test_close("dslopes", slopes[1], slopes[0], H, close * 1000, close);
        test_close("dsinks", dsinks[1], dsinks[0], H, close, close);
    }
    fused_case_free(&c);
}
END_TEST

START_TEST(same_bits_for_any_number_of_threads) {
    if (!fused_select(_i))
        return;
    const bias_kind kinds[] = {FULL, PAIRS, PER_QUERY, PER_KEY, ONE};
    for (size_t n = 0; n < 5; n++) {
        const attn_shape s = {2, 2, 520, 530, 8};
        fused_case c = fused_case_random(s, (attn_mask){.causal = true}, 91);
        attn_real *bias = add_bias(&c, kinds[n], 0.05, 92);
        c.terms.slopes = some_slopes;
        c.terms.softcap = 5;
        fused_results first = fused_results_of(&c), again = fused_results_of(&c);
        fused_run(&first, &c, BTHD, 1);
        for (size_t threads = 2; threads < 5; threads++) {
            fused_run(&again, &c, BTHD, threads);
            ck_assert_mem_eq(first.context, again.context, size_q(&s) * sizeof(attn_real));
            ck_assert_mem_eq(first.dquery, again.dquery, size_q(&s) * sizeof(attn_real));
            ck_assert_mem_eq(first.dkey, again.dkey, size_k(&s) * sizeof(attn_real));
            ck_assert_mem_eq(first.dbias, again.dbias, c.terms.bias_size * sizeof(attn_real));
            ck_assert_mem_eq(first.dslopes, again.dslopes, 2 * sizeof(attn_real));
        }
        fused_results_free(&first);
        fused_results_free(&again);
        fused_case_free(&c);
        free(bias);
    }
}
END_TEST

/* The gradient of a bias is 0 where one of the other dimensions is empty. */
START_TEST(empty_calls) {
    if (!fused_select(_i))
        return;
    enum { N = 3 };
    const attn_shape shapes[] = {
        {0, N, N, N, 2}, {N, 0, N, N, 2}, {N, N, 0, N, 2}, {N, N, N, 0, 2}};
    for (size_t n = 0; n < 4; n++)
        for (int set = 0; set < 16; set++) { /* the dimensions that the bias has */
            const attn_shape *s = &shapes[n];
            const attn_broadcast strides = {set & 8 ? N * N * N : 0, set & 4 ? N * N : 0,
                                            set & 2 ? N : 0, set & 1 ? 1 : 0};
            const bool none = set & (8 >> n);
            attn_real tensor[N * N * N * 2] = {0}, bias[N * N * N * N] = {0}, dbias[N * N * N * N];
            const attn_strides rows = attn_strides_bhtd(N, N, 2);
            const attn_sdpa_config config = {.kernel = ATTN_KERNEL_FUSED};
            const attn_sdpa_input input = {.shape = *s,
                                           .query = tensor,
                                           .key = tensor,
                                           .value = tensor,
                                           .query_strides = rows,
                                           .key_strides = rows,
                                           .value_strides = rows,
                                           .bias = bias,
                                           .bias_strides = strides};
            const attn_sdpa_output output = {.context = tensor, .context_strides = rows};
            attn_arena arena = test_arena(1 << 20);
            attn_sdpa_saved saved;
            for (size_t at = 0; at < N * N * N * N; at++)
                dbias[at] = 7;
            test_ok(attn_sdpa_forward(&config, &input, &output, &arena, &saved));
            test_ok(attn_sdpa_backward(&config, &saved, tensor, &rows,
                                       &(attn_sdpa_grads){.bias = dbias}, &arena));
            const size_t sizes[] = {set & 8 ? s->batch : 1, set & 4 ? s->num_heads : 1,
                                    set & 2 ? s->len_q : 1, set & 1 ? s->len_k : 1};
            size_t zeros = 0;
            for (size_t at = 0; at < N * N * N * N; at++)
                zeros += dbias[at] == 0;
            ck_assert_msg(zeros == sizes[0] * sizes[1] * sizes[2] * sizes[3] &&
                              !none == (zeros > 0),
                          "shape %zu, dimensions %d: %zu zeros", n, set, zeros);
            attn_arena_destroy(&arena);
        }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fused_terms");
    TCase *tcase = tcase_create("terms");
    tcase_add_loop_test(tcase, lengths_around_the_tiles, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, longer_calls, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, bias_under_a_mask, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, bias_beside_a_window, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, huge_negative_bias, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, nan_behind_a_blocking_bias, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, alibi_from_afar, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, steep_negative_slopes, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, alibi_beside_a_sink, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, same_bits_for_any_number_of_threads, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, empty_calls, 0, ATTN_ISA_COUNT);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
