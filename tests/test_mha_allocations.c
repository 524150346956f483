/* attn allocates nothing in a training step. The linker sends this program's own calls of malloc
 * and its kin, the static library's included, through the counters below; the buffers that oneDNN
 * and OpenMP keep for themselves are not counted. */
#include "mha_fixture.h"

#include <stdatomic.h>

static atomic_size_t allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **block, size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **block, size_t alignment, size_t size);

void *__wrap_malloc(size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __real_malloc(size);
}
void *__wrap_calloc(size_t count, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __real_calloc(count, size);
}
void *__wrap_realloc(void *block, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __real_realloc(block, size);
}
void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __real_aligned_alloc(alignment, size);
}
int __wrap_posix_memalign(void **block, size_t alignment, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __real_posix_memalign(block, alignment, size);
}

static const mha_case cases[] = {
    {"small", SIZES(2, 5, 0, 8, 2, 0)},
    {"threads", SIZES(2, 257, 0, 96, 3, 0), .causal = true, .padded = 1},
    {"cross", SIZES(2, 33, 70, 48, 3, 0), .attend_rank = 4},
    {"weights", SIZES(2, 33, 0, 48, 3, 0), .want_weights = true, .want_lse = true},
};
enum { NUM_CASES = sizeof cases / sizeof *cases };

START_TEST(a_training_step_allocates_nothing) {
    mha_case c = cases[_i % NUM_CASES];
    c.kernel = mha_kernels[_i / NUM_CASES];
    if (c.kernel == ATTN_KERNEL_FUSED)
        c.want_weights = false;
    mha_run run = mha_setup(&c, 70);
    test_ok(attn_mha_memory(&run.cfg, &run.in, &run.need));
    run.arena = test_arena(run.need.training);
    size_t before = atomic_load(&allocations);
    ck_assert_uint_gt(before, 0); /* the counters work */
    /* Check allocates in its assertions: none until the steps are done. */
    before = atomic_load(&allocations);
    bool ok = true;
    for (int step = 0; step < 3; step++) {
        ok =
            ok &&
            attn_mha_forward(&run.cfg, &run.w, &run.in, run.y, &run.arena, &run.saved) == ATTN_OK &&
            attn_mha_backward(&run.cfg, &run.w, &run.saved, run.dy, &run.dw, &run.dx, &run.arena) ==
                ATTN_OK;
        attn_arena_reset(&run.arena);
    }
    size_t after = atomic_load(&allocations);
    ck_assert_msg(ok, "%s", attn_error_message());
    ck_assert_uint_eq(after, before);
    mha_free(&run);
}
END_TEST

/* The same of a whole model and its optimiser. */
START_TEST(a_step_of_the_model_allocates_nothing) {
    const attn_model_config cfg = {
        .vocab = 17, .context = 33, .d_model = 48, .num_heads = 3, .num_layers = 2, .bias = true};
    enum { BATCH = 3, LEN = 33 };
    static int32_t tokens[BATCH * LEN];
    const attn_model_input in = {.batch = BATCH, .len = LEN, .tokens = tokens, .targets = tokens};
    size_t n = attn_model_num_params(&cfg);
    attn_real *theta = test_normal(n, .1, 3), *dtheta = test_normal(n, 1, 4);
    attn_real *velocity = test_normal(n, 0, 5);
    attn_model_params w = attn_model_params_view(&cfg, theta);
    attn_model_params dw = attn_model_params_view(&cfg, dtheta);
    const attn_sgd_config sgd = {0.1, 0.9};
    attn_memory need;
    test_ok(attn_model_memory(&cfg, &in, &need));
    attn_arena arena = test_arena(need.training);
    attn_model_saved saved;
    attn_loss loss;
    size_t before = atomic_load(&allocations);
    bool ok = true;
    for (int step = 0; step < 3; step++) {
        ok = ok && attn_model_forward(&cfg, &w, &in, &loss, &arena, &saved) == ATTN_OK &&
             attn_model_backward(&cfg, &w, &saved, &dw, &arena) == ATTN_OK &&
             attn_clip_gradient(dtheta, n, 1, NULL) == ATTN_OK &&
             attn_sgd_step(theta, velocity, dtheta, n, &sgd) == ATTN_OK;
        attn_arena_reset(&arena);
    }
    size_t after = atomic_load(&allocations);
    ck_assert_msg(ok, "%s", attn_error_message());
    ck_assert_uint_eq(after, before);
    attn_arena_destroy(&arena);
    free(theta);
    free(dtheta);
    free(velocity);
}
END_TEST

/* And of decoding: a prompt, then tokens. */
START_TEST(decoding_allocates_nothing) {
    const attn_mha_config cfg = {.d_model = 96,
                                 .num_heads = 6,
                                 .num_kv_heads = 2,
                                 .bias = true,
                                 .rope = ATTN_ROPE_HALF,
                                 .alibi = true};
    enum { BATCH = 2, PROMPT = 400, CAPACITY = 500 };
    attn_real *theta = test_normal(attn_mha_num_params(&cfg), .1, 3);
    attn_real *x = test_normal(BATCH * PROMPT * 96, 1, 4), *y = test_poison(BATCH * PROMPT * 96);
    const attn_mha_params w = attn_mha_params_view(&cfg, theta);
    const size_t counts[BATCH] = {1, 0};
    size_t bytes;
    test_ok(attn_kv_cache_memory(&cfg, BATCH, CAPACITY, &bytes));
    attn_arena cache_arena = test_arena(bytes);
    attn_kv_cache cache;
    test_ok(attn_kv_cache_init(&cache, &cfg, BATCH, CAPACITY, NULL, &cache_arena));
    test_ok(attn_mha_decode_memory(&cfg, &cache, PROMPT, &bytes));
    attn_arena arena = test_arena(bytes);
    attn_decode_input input = {.len = PROMPT, .query = x};
    size_t before = atomic_load(&allocations);
    bool ok = attn_mha_decode(&cfg, &w, &cache, &input, y, &arena) == ATTN_OK;
    input.len = 1;
    for (int step = 0; step < 9; step++) {
        input.counts = step % 2 ? counts : NULL;
        ok = ok && attn_mha_decode(&cfg, &w, &cache, &input, y, &arena) == ATTN_OK;
    }
    ok = ok && attn_kv_cache_truncate(&cache, 1, 7) == ATTN_OK &&
         attn_kv_cache_reset(&cache) == ATTN_OK;
    size_t after = atomic_load(&allocations);
    ck_assert_msg(ok, "%s", attn_error_message());
    ck_assert_uint_eq(after, before);
    attn_arena_destroy(&arena);
    attn_arena_destroy(&cache_arena);
    free(theta);
    free(x);
    free(y);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mha_allocations");
    TCase *tests = tcase_create("allocations");
    tcase_add_loop_test(tests, a_training_step_allocates_nothing, 0, NUM_CASES * mha_num_kernels());
    tcase_add_test(tests, a_step_of_the_model_allocates_nothing);
    tcase_add_test(tests, decoding_allocates_nothing);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
