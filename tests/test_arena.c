#include "test.h"

#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISONED(address) __asan_address_is_poisoned(address)
#endif

static bool aligned(const void *p) {
    return (uintptr_t)p % 64 == 0;
}

static void *alloc(attn_arena *arena, size_t count, size_t size) {
    void *object;
    test_ok(attn_arena_alloc(arena, &object, count, size));
    return object;
}

/* Bytes that objects of these sizes take, as a measuring arena counts them. */
static size_t measured(const size_t *sizes, size_t n) {
    attn_arena arena;
    test_ok(attn_arena_init_measuring(&arena));
    for (size_t i = 0; i < n; i++)
        ck_assert_ptr_null(alloc(&arena, sizes[i], 1));
    return arena.high_water;
}

START_TEST(measured_bytes_are_exact) {
    static const size_t sizes[] = {1, 64, 0, 65, 1000, 63};
    const size_t n = sizeof sizes / sizeof *sizes, bytes = measured(sizes, n);
    attn_arena arena = test_arena(bytes);
    for (size_t i = 0; i < n; i++)
        memset(alloc(&arena, sizes[i], 1), 0xA5, sizes[i]);
    ck_assert_uint_eq(arena.used, bytes);
    attn_arena_destroy(&arena);
    /* One byte less, and the last object does not fit. */
    arena = test_arena(bytes - 1);
    for (size_t i = 0; i + 1 < n; i++)
        alloc(&arena, sizes[i], 1);
    void *object;
    test_refused(attn_arena_alloc(&arena, &object, sizes[n - 1], 1), ATTN_ERROR_MEMORY);
    attn_arena_destroy(&arena);
}
END_TEST

START_TEST(aligned_after_reset_in_any_order) {
    attn_arena arena = test_arena(1024);
    unsigned char *one = alloc(&arena, 1, 1), *line = alloc(&arena, 64, 1);
    ck_assert(aligned(one) && aligned(line) && line >= one + 1);
    attn_arena_reset(&arena);
    line = alloc(&arena, 64, 1);
    void *object = line;
    test_refused(attn_arena_alloc(&arena, &object, 1025, 1), ATTN_ERROR_MEMORY);
    one = alloc(&arena, 1, 1);
    ck_assert(aligned(one) && aligned(line) && one >= line + 64);
    attn_arena_destroy(&arena);
}
END_TEST

START_TEST(a_full_arena_stays_usable) {
    attn_arena arena = test_arena(measured((size_t[]){100, 50}, 2));
    int *first = alloc(&arena, 25, sizeof *first);
    first[0] = first[24] = 7;
    const attn_arena before = arena;
    void *object = &arena;
    test_refused(attn_arena_alloc(&arena, &object, 1000, 1), ATTN_ERROR_MEMORY);
    ck_assert_ptr_eq(object, &arena);
    ck_assert_mem_eq(&arena, &before, sizeof arena);
    alloc(&arena, 50, 1);
    ck_assert(first[0] == 7 && first[24] == 7);
    attn_arena_destroy(&arena);
}
END_TEST

START_TEST(sizes_that_wrap_are_refused) {
    static const struct {
        size_t count, size;
    } wishes[] = {{SIZE_MAX - 8, 1},
                  {1, SIZE_MAX},
                  {SIZE_MAX / 2 + 1, 2},
                  {(size_t)1 << (sizeof(size_t) * 4), (size_t)1 << (sizeof(size_t) * 4)}};
    attn_arena real = test_arena(256), counting;
    test_ok(attn_arena_init_measuring(&counting));
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        void *object;
        test_refused(attn_arena_alloc(&real, &object, wishes[i].count, wishes[i].size),
                     ATTN_ERROR_OVERFLOW);
        test_refused(attn_arena_alloc(&counting, &object, wishes[i].count, wishes[i].size),
                     ATTN_ERROR_OVERFLOW);
    }
    /* The sum wraps, not the product. */
    void *object;
    alloc(&counting, SIZE_MAX / 2, 1);
    test_refused(attn_arena_alloc(&counting, &object, SIZE_MAX / 2 + 1, 1), ATTN_ERROR_OVERFLOW);
    ck_assert_ptr_nonnull(alloc(&real, 8, 8));
    attn_arena_destroy(&real);

    attn_arena arena;
    test_refused(attn_arena_create(&arena, SIZE_MAX - 8), ATTN_ERROR_OVERFLOW);
    test_refused(attn_arena_create(&arena, SIZE_MAX / 2), ATTN_ERROR_MEMORY);
    test_refused(attn_arena_alloc(&arena, &object, 1, 1), ATTN_ERROR_MEMORY);
    attn_arena_destroy(&arena);
}
END_TEST

START_TEST(rewind_gives_back_what_came_after) {
    attn_arena arena = test_arena(4096);
    int *kept = alloc(&arena, 1, sizeof *kept);
    *kept = 42;
    size_t mark = attn_arena_mark(&arena);
    void *later = alloc(&arena, 512, 1);
    const size_t high = arena.high_water;
    test_ok(attn_arena_rewind(&arena, mark));
    ck_assert_ptr_eq(alloc(&arena, 16, 1), later);
    ck_assert_int_eq(*kept, 42);
    test_refused(attn_arena_rewind(&arena, arena.used + 1), ATTN_ERROR_ARGUMENT);
    attn_arena_reset(&arena);
    ck_assert_uint_eq(arena.used, 0);
    ck_assert_uint_eq(arena.high_water, high);
    attn_arena_destroy(&arena);
}
END_TEST

START_TEST(the_callers_memory_at_any_address) {
    _Alignas(64) unsigned char block[512];
    for (size_t shift = 0; shift < 64; shift += 21) {
        attn_arena arena;
        test_ok(attn_arena_init(&arena, block + shift, sizeof block - shift));
        ck_assert_uint_eq(arena.capacity, sizeof block - (shift ? 64 : 0));
        ck_assert(aligned(alloc(&arena, 3, 1)));
        attn_arena_destroy(&arena);
    }
    attn_arena arena;
    test_ok(attn_arena_init(&arena, block + 1, 5)); /* not a byte left after aligning */
    void *object;
    test_refused(attn_arena_alloc(&arena, &object, 1, 1), ATTN_ERROR_MEMORY);
    attn_arena_destroy(&arena);
    test_refused(attn_arena_init(&arena, NULL, 1), ATTN_ERROR_ARGUMENT);
}
END_TEST

START_TEST(nothing_is_harmless) {
    attn_arena zeroed = {0};
    attn_arena_destroy(&zeroed);
    attn_arena_destroy(NULL);
    attn_arena_reset(NULL);
    ck_assert_uint_eq(attn_arena_mark(NULL), 0);
    void *object;
    test_refused(attn_arena_alloc(NULL, &object, 1, 1), ATTN_ERROR_ARGUMENT);
    test_refused(attn_arena_create(NULL, 1), ATTN_ERROR_ARGUMENT);
    test_refused(attn_arena_rewind(NULL, 0), ATTN_ERROR_ARGUMENT);
    attn_arena empty = test_arena(0);
    test_refused(attn_arena_alloc(&empty, &object, 1, 1), ATTN_ERROR_MEMORY);
    attn_arena_destroy(&empty);
}
END_TEST

#ifdef POISONED
START_TEST(red_zones_surround_objects) {
    attn_arena arena = test_arena(4096);
    char *object = alloc(&arena, 100, 1);
    ck_assert(!POISONED(object) && !POISONED(object + 99) && POISONED(object + 100));
    char *next = alloc(&arena, 8, 1);
    ck_assert(POISONED(next - 1));
    attn_arena_reset(&arena);
    ck_assert(POISONED(object) && POISONED(next));
    attn_arena_destroy(&arena);
}
END_TEST
#endif

int main(void) {
    Suite *suite = suite_create("arena");
    TCase *tc = tcase_create("arena");
    tcase_add_test(tc, measured_bytes_are_exact);
    tcase_add_test(tc, aligned_after_reset_in_any_order);
    tcase_add_test(tc, a_full_arena_stays_usable);
    tcase_add_test(tc, sizes_that_wrap_are_refused);
    tcase_add_test(tc, rewind_gives_back_what_came_after);
    tcase_add_test(tc, the_callers_memory_at_any_address);
    tcase_add_test(tc, nothing_is_harmless);
#ifdef POISONED
    tcase_add_test(tc, red_zones_surround_objects);
#endif
    suite_add_tcase(suite, tc);
    return test_main(suite);
}
