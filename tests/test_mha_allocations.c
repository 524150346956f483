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

int main(void) {
    Suite *suite = suite_create("mha_allocations");
    TCase *tests = tcase_create("allocations");
    tcase_add_loop_test(tests, a_training_step_allocates_nothing, 0, NUM_CASES * mha_num_kernels());
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
