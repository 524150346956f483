/* Rotary positions in the layer: parts of a sequence agree with the whole, distances are all that
 * counts, and nothing else of the layer changes. Values and gradients: the oracle, the gradients.
 */
#include "mha_fixture.h"

#ifdef ATTN_DOUBLE
static const double tolerance = 1e-13;
#else
static const double tolerance = 4e-6;
#endif

enum { WHOLE = 9, WIDTH = 8, HEADS = 2 };

static const attn_rope pairings[] = {ATTN_ROPE_INTERLEAVED, ATTN_ROPE_HALF};

static mha_case whole_case(int loop) {
    return (mha_case){.name = "whole",
                      SIZES(2, WHOLE, 0, WIDTH, HEADS, 0),
                      .causal = true,
                      .rope = pairings[loop % 2],
                      .kernel = mha_kernels[loop / 2]};
}

/* Rows first .. first + count - 1 of one sample of `run`, attending to all rows up to the last of
 * them, as a step of decoding does. */
static void attend_rows(const mha_run *run, attn_real *y, size_t sample, size_t first, size_t count,
                        const int64_t *position) {
    const attn_real *x = run->x_q + sample * WHOLE * WIDTH;
    attn_mha_input in = {.batch = 1,
                         .len_q = count,
                         .len_k = first + count,
                         .query = x + first * WIDTH,
                         .key = x,
                         .value = x,
                         .mask = {.causal = true}};
    in.has_rope_position = position != NULL;
    in.rope_position = position ? *position : 0;
    attn_memory need;
    test_ok(attn_mha_memory(&run->cfg, &in, &need));
    attn_arena arena = test_arena(need.inference);
    test_ok(attn_mha_forward(&run->cfg, &run->w, &in, y, &arena, NULL));
    attn_arena_destroy(&arena);
}

/* 6 tokens and then 3, and each token alone, are the rows of one pass over 9. */
START_TEST(parts_equal_the_whole) {
    mha_case c = whole_case(_i);
    mha_run run = mha_setup(&c, 41);
    mha_step(&run);
    attn_real y[WHOLE * WIDTH];
    for (size_t sample = 0; sample < 2; sample++) {
        const attn_real *want = run.y + sample * WHOLE * WIDTH;
        attend_rows(&run, y, sample, 0, 6, NULL);
        attend_rows(&run, y + 6 * WIDTH, sample, 6, 3, NULL);
        test_close("6 and 3", y, want, WHOLE * WIDTH, tolerance, tolerance);
        for (size_t t = 0; t < WHOLE; t++)
            attend_rows(&run, y + t * WIDTH, sample, t, 1, NULL);
        test_close("one by one", y, want, WHOLE * WIDTH, tolerance, tolerance);
    }
    mha_free(&run);
}
END_TEST

/* Samples of lengths 5 and 3 go on at positions 5 and 3; at 0, or at each other's, they do not. */
START_TEST(each_sample_goes_on_at_its_own_position) {
    mha_case c = whole_case(_i);
    mha_run run = mha_setup(&c, 42);
    mha_step(&run);
    const size_t lengths[2] = {5, 3};
    for (size_t sample = 0; sample < 2; sample++) {
        const int64_t places[3] = {(int64_t)lengths[sample], 0, (int64_t)lengths[1 - sample]};
        const attn_real *want = run.y + (sample * WHOLE + lengths[sample]) * WIDTH;
        attn_real y[WIDTH];
        attend_rows(&run, y, sample, lengths[sample], 1, &places[0]);
        test_close("own position", y, want, WIDTH, tolerance, tolerance);
        for (size_t n = 1; n < 3; n++) {
            double worst = 0;
            attend_rows(&run, y, sample, lengths[sample], 1, &places[n]);
            for (size_t i = 0; i < WIDTH; i++)
                worst = fmax(worst, fabs((double)y[i] - (double)want[i]));
            ck_assert_msg(worst > 1e-3, "position %lld of sample %zu went unnoticed: %g",
                          (long long)places[n], sample, worst);
        }
    }
    mha_free(&run);
}
END_TEST

/* Moving queries and keys together moves nothing, forward or backward. */
START_TEST(only_distances_count) {
    mha_case c = whole_case(_i), moved = c;
    moved.has_rope_position = true;
    moved.rope_position = moved.rope_key_position = -700;
    mha_run run = mha_setup(&c, 43), other = mha_setup(&moved, 43);
    mha_step(&run);
    mha_step(&other);
    const double allowed = 20 * tolerance; /* cosines at -700 are rounded differently */
    test_close("y", other.y, run.y, run.size_q, allowed, allowed);
    test_close("dx", other.dx_q, run.dx_q, run.size_q, allowed, allowed);
    test_close("dparams", other.dtheta, run.dtheta, run.num_params - 4 * WIDTH, allowed, allowed);
    mha_free(&run);
    mha_free(&other);
}
END_TEST

/* The saved set holds turned queries and keys in the same arrays: the same bytes, and a backward
 * that may run again. */
START_TEST(memory_and_saved_set_stay) {
    mha_case c = whole_case(_i), plain = c;
    plain.rope = ATTN_ROPE_NONE;
    mha_run run = mha_setup(&c, 44), without = mha_setup(&plain, 44);
    mha_step(&run);
    mha_step(&without);
    ck_assert_mem_eq(&run.need, &without.need, sizeof run.need);
    attn_real *y = test_poison(run.size_q), *dx = test_poison(run.size_q);
    attn_mha_input_grads again = {.query = dx};
    test_ok(attn_mha_backward(&run.cfg, &run.w, &run.saved, run.dy, NULL, &again, &run.arena));
    test_same_bits("dx again", dx, run.dx_q, run.size_q);
    attn_arena_reset(&run.arena);
    test_ok(attn_mha_forward(&run.cfg, &run.w, &run.in, y, &run.arena, NULL));
    test_same_bits("inference", y, run.y, run.size_q);
    for (size_t row = 0; row < WHOLE; row++) { /* the first key alone: no score, no rotation */
        double worst = 0;
        for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++)
            worst = fmax(worst, fabs((double)run.y[i] - (double)without.y[i]));
        ck_assert_msg(row == 0 ? worst == 0 : worst > 1e-4, "row %zu: %g", row, worst);
    }
    free(y);
    free(dx);
    mha_free(&run);
    mha_free(&without);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mha_rope");
    TCase *tests = tcase_create("rope");
    const int loops = 2 * mha_num_kernels();
    tcase_add_loop_test(tests, parts_equal_the_whole, 0, loops);
    tcase_add_loop_test(tests, each_sample_goes_on_at_its_own_position, 0, loops);
    tcase_add_loop_test(tests, only_distances_count, 0, loops);
    tcase_add_loop_test(tests, memory_and_saved_set_stay, 0, loops);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
