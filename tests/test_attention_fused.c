/* The fused path against the plain model: shapes around the tiles, masks, head widths, layouts. */
#include "fused_model.h"

#include "kernels/kernels.h"

/* Masks to try, all pseudo-random ones of a fixed seed. */
typedef enum mask_kind {
    NO_MASK,
    CAUSAL,
    CAUSAL_TOP_LEFT,
    CAUSAL_AHEAD,
    CAUSAL_BEHIND,
    PADDING,
    ATTEND_LQ_LK,
    ATTEND_LK,
    ATTEND_LQ,
    ATTEND_B_H_LQ_LK,
    WINDOW_BY_ATTEND,
    WINDOW_CAUSAL,
    WINDOW_BOTH,
    WINDOW_LEFT,
    WINDOW_RIGHT,
    WINDOW_OFF_THE_END,
    WINDOW_EVERYTHING,
    EVERYTHING,
    MASK_KINDS
} mask_kind;

static const char *const kind_names[MASK_KINDS] = {
    "no mask",
    "causal",
    "causal top-left",
    "causal ahead",
    "causal behind",
    "padding",
    "attend (Lq,Lk)",
    "attend (1,Lk)",
    "attend (Lq,1)",
    "attend (B,H,Lq,Lk)",
    "window by attend",
    "causal window",
    "window on both sides",
    "window to the left",
    "window to the right",
    "window off the end",
    "window and everything",
    "everything",
};

/* `bytes` has room for B·H·Lq·Lk, `padding` for B·Lk. */
static attn_mask make_mask(mask_kind kind, const attn_shape *s, uint8_t *bytes, uint8_t *padding,
                           uint64_t seed) {
    attn_random random = attn_random_seed(seed, 1);
    const size_t n = s->batch * s->num_heads * s->len_q * s->len_k;
    for (size_t i = 0; i < n; i++)
        bytes[i] = attn_random_uniform(&random) < 0.6 ? (uint8_t)(1 + i % 255) : 0;
    for (size_t i = 0; i < s->batch * s->len_k; i++)
        padding[i] = attn_random_uniform(&random) < 0.3 ? (uint8_t)(1 + i % 255) : 0;
    const attn_broadcast full = {s->num_heads * s->len_q * s->len_k, s->len_q * s->len_k, s->len_k,
                                 1};
    attn_mask mask = {0};
    switch (kind) {
    case CAUSAL:
        mask.causal = true;
        break;
    case CAUSAL_TOP_LEFT:
        mask.causal = true;
        mask.causal_align = ATTN_CAUSAL_TOP_LEFT;
        break;
    case CAUSAL_AHEAD:
    case CAUSAL_BEHIND:
        mask.causal = true;
        mask.causal_align = ATTN_CAUSAL_OFFSET;
        mask.causal_offset = kind == CAUSAL_AHEAD ? 21 : -19;
        break;
    case WINDOW_EVERYTHING:
        mask.window = (attn_window){.left_on = true, .left = 33};
        /* fall through */
    case EVERYTHING:
        mask.causal = true;
        mask.padding = padding;
        mask.attend = bytes;
        mask.attend_strides = full;
        break;
    case PADDING:
        mask.padding = padding;
        break;
    case ATTEND_LQ_LK:
        mask.attend = bytes;
        mask.attend_strides = (attn_broadcast){0, 0, s->len_k, 1};
        break;
    case ATTEND_LK:
        mask.attend = bytes;
        mask.attend_strides = (attn_broadcast){0, 0, 0, 1};
        break;
    case ATTEND_LQ:
        mask.attend = bytes;
        mask.attend_strides = (attn_broadcast){0, 0, 1, 0};
        break;
    case ATTEND_B_H_LQ_LK:
        mask.attend = bytes;
        mask.attend_strides = full;
        break;
    case WINDOW_CAUSAL:
        mask.causal = true;
        mask.window = (attn_window){.left_on = true, .left = 20};
        break;
    case WINDOW_BOTH:
        mask.window = (attn_window){.left_on = true, .right_on = true, .left = 3, .right = 11};
        break;
    case WINDOW_LEFT:
        mask.causal_align = ATTN_CAUSAL_OFFSET;
        mask.causal_offset = -5;
        mask.window = (attn_window){.left_on = true, .left = 17};
        break;
    case WINDOW_RIGHT:
        mask.causal_align = ATTN_CAUSAL_TOP_LEFT;
        mask.window = (attn_window){.right_on = true, .right = 30};
        break;
    case WINDOW_OFF_THE_END: /* the first queries see no key yet, or the last none any more */
        mask.causal_align = ATTN_CAUSAL_OFFSET;
        mask.causal_offset = s->len_q > s->len_k ? -40 : 40;
        mask.window = (attn_window){.left_on = true, .right_on = true};
        break;
    case WINDOW_BY_ATTEND: /* ten keys: the own one and nine to the left */
        mask.causal = true;
        mask.causal_align = ATTN_CAUSAL_TOP_LEFT;
        mask.attend = bytes;
        mask.attend_strides = (attn_broadcast){0, 0, s->len_k, 1};
        for (size_t i = 0; i < s->len_q; i++)
            for (size_t j = 0; j < s->len_k; j++)
                bytes[i * s->len_k + j] = j + 9 >= i;
        break;
    default:
        break;
    }
    return mask;
}

static void check_kind(mask_kind kind, attn_shape shape, fused_layout layout, size_t threads) {
    const size_t pairs = shape.batch * shape.num_heads * shape.len_q * shape.len_k;
    uint8_t *bytes = malloc(pairs + 1), *padding = malloc(shape.batch * shape.len_k + 1);
    const uint64_t seed = 1000 * (uint64_t)kind + shape.len_q * 31 + shape.len_k * 7 + shape.d_head;
    fused_case c = fused_case_random(shape, make_mask(kind, &shape, bytes, padding, seed), seed);
    fused_check(kind_names[kind], &c, layout, threads);
    fused_case_free(&c);
    free(bytes);
    free(padding);
}

/* Every mask kind at lengths around the tiles. */
START_TEST(lengths_around_the_tiles) {
    if (!fused_select(_i / MASK_KINDS))
        return;
    const mask_kind kind = (mask_kind)(_i % MASK_KINDS);
    const attni_kernels *kernels = attni_kernels_get();
    const size_t q = kernels->fused_query_tile, k = kernels->fused_key_tile;
    const size_t lens_q[] = {1, 9, q - 1, q, q + 1, 2 * q + 1};
    const size_t lens_k[] = {1, 9, k - 1, k, k + 1, 2 * k + 1};
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 6; j++)
            check_kind(kind, (attn_shape){1, 1, lens_q[i], lens_k[j], 5}, BHTD, 1);
}
END_TEST

/* Several passes over the keys, several tiles, primes, samples and heads, threads. */
START_TEST(longer_calls) {
    if (!fused_select(_i / MASK_KINDS))
        return;
    const mask_kind kind = (mask_kind)(_i % MASK_KINDS);
    check_kind(kind, (attn_shape){2, 3, 61, 37, 16}, BTHD, 2);
    check_kind(kind, (attn_shape){1, 1, 307, 211, 8}, GAPPED, 3);
    check_kind(kind, (attn_shape){1, 1, 101, 503, 20}, BTHD, 2);
}
END_TEST

/* Windows over several passes and several ranges of the backward, which few of the blocks meet. */
START_TEST(long_windows) {
    if (!fused_select(_i))
        return;
    static const struct {
        attn_shape shape;
        bool causal;
        int64_t offset;
        attn_window window;
    } cases[] = {
        {{1, 1, 800, 800, 4}, true, 0, {true, false, 255, 0}},
        {{1, 1, 600, 600, 4}, false, 7, {true, true, 100, 60}},
        {{1, 1, 600, 1300, 4}, true, 700, {true, false, 64, 0}},
        {{1, 1, 1300, 600, 4}, false, -700, {true, true, 64, 64}},
        {{1, 1, 1000, 600, 4}, false, -100, {false, true, 0, 5}},
        {{1, 1, 900, 700, 4}, false, -300, {true, false, 500, 0}},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const attn_mask mask = {.causal = cases[n].causal,
                                .causal_align = ATTN_CAUSAL_OFFSET,
                                .causal_offset = cases[n].offset,
                                .window = cases[n].window};
        fused_case c = fused_case_random(cases[n].shape, mask, 11 + n);
        fused_check("long window", &c, BTHD, 2);
        fused_case_free(&c);
    }
}
END_TEST

/* Head widths: below, at and above whole vectors and blocks of them. */
START_TEST(head_widths) {
    if (!fused_select(_i))
        return;
    const size_t widths[] = {1,  2,  3,  4,  5,  8,  13,  16,  31,  33,
                             48, 63, 64, 65, 80, 96, 112, 128, 160, 257};
    static const mask_kind kinds[] = {CAUSAL, WINDOW_BOTH, EVERYTHING, NO_MASK};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (size_t k = 0; k < (widths[w] > 64 ? 3 : 4); k++)
            check_kind(kinds[k], (attn_shape){1, 1, 75, 70, widths[w]}, (fused_layout)(w % 3), 1);
}
END_TEST

/* Zero, negative and large scales. */
START_TEST(scales) {
    if (!fused_select(_i))
        return;
    const double values[] = {0, -0.5, 3, 1e-20};
    for (size_t n = 0; n < 4; n++) {
        fused_case c =
            fused_case_random((attn_shape){1, 2, 70, 110, 24}, (attn_mask){.causal = true}, 5);
        c.scale = values[n];
        fused_check("scale", &c, BTHD, 1);
        fused_case_free(&c);
    }
}
END_TEST

/* The same bits for any number of threads, and in every repetition. */
START_TEST(same_bits_for_any_number_of_threads) {
    if (!fused_select(_i))
        return;
    const attn_shape shapes[] = {
        {2, 3, 257, 257, 32}, {1, 1, 1500, 1400, 16}, {1, 9, 300, 700, 8}, {1, 1, 1400, 1500, 16}};
    const size_t threads[] = {1, 2, 3, 8};
    for (size_t n = 0; n < 4; n++) {
        const attn_shape *s = &shapes[n];
        attn_mask mask = {.causal = n != 2};
        mask.window = (attn_window){.left_on = n == 3, .left = 200};
        fused_case c = fused_case_random(*s, mask, 77 + n);
        fused_results first = fused_results_make(s), again = fused_results_make(s);
        fused_run(&first, &c, BTHD, 1);
        for (size_t run = 0; run < (n == 0 ? 50 : 8); run++) {
            fused_run(&again, &c, BTHD, threads[run % 4]);
            ck_assert_mem_eq(first.context, again.context, size_q(s) * sizeof(attn_real));
            ck_assert_mem_eq(first.dquery, again.dquery, size_q(s) * sizeof(attn_real));
            ck_assert_mem_eq(first.dkey, again.dkey, size_k(s) * sizeof(attn_real));
            ck_assert_mem_eq(first.dvalue, again.dvalue, size_k(s) * sizeof(attn_real));
        }
        fused_results_free(&first);
        fused_results_free(&again);
        fused_case_free(&c);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("attention_fused");
    TCase *tcase = tcase_create("model");
    tcase_add_loop_test(tcase, lengths_around_the_tiles, 0, ATTN_ISA_COUNT * MASK_KINDS);
    tcase_add_loop_test(tcase, longer_calls, 0, ATTN_ISA_COUNT * MASK_KINDS);
    tcase_add_loop_test(tcase, long_windows, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, head_widths, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, scales, 0, ATTN_ISA_COUNT);
    tcase_add_loop_test(tcase, same_bits_for_any_number_of_threads, 0, ATTN_ISA_COUNT);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
