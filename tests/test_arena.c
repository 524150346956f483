/* The arena: alignment, overlap, exhaustion, marks, measuring, red zones. */
#include "test.h"

#include "base/red_zone.h"

#include <attn/arena.h>

#include <stdint.h>

typedef struct taken {
    unsigned char *start;
    size_t size;
} taken;

/* Hands out `size` bytes and checks that they are aligned, inside, and apart from all others. */
static taken take(attn_arena *arena, size_t size, const taken *others, size_t count) {
    void *start;
    test_ok(attn_arena_alloc(arena, &start, size, 1));
    taken o = {start, size};
    ck_assert_uint_eq((uintptr_t)start % 64, 0);
    ck_assert(o.start >= arena->base && o.start + size <= arena->base + arena->capacity);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(o.start >= others[i].start + others[i].size ||
                          others[i].start >= o.start + o.size,
                      "object of %zu bytes overlaps number %zu", size, i);
    memset(start, (int)count + 1, size);
    return o;
}

static const size_t sizes[] = {1, 64, 63, 65, 0, 128, 7, 4096};
enum { COUNT = sizeof sizes / sizeof *sizes };

/* One byte, then whole lines, and after a reset the other way round, with a request too large in
 * between. */
START_TEST(objects_are_aligned_and_apart_in_any_order) {
    attn_arena arena = test_arena(16384);
    for (int round = 0; round < 4; round++) {
        taken objects[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            objects[i] = take(&arena, sizes[round % 2 ? COUNT - 1 - i : i], objects, i);
            void *none = &arena;
            size_t used = arena.used;
            test_refused(attn_arena_alloc(&arena, &none, 16385, 1), ATTN_ERROR_MEMORY);
            ck_assert_ptr_eq(none, &arena);
            ck_assert_uint_eq(arena.used, used);
        }
        for (size_t i = 0; i < COUNT; i++)
            for (size_t b = 0; b < objects[i].size; b += 17)
                ck_assert_msg(objects[i].start[b] == i + 1, "byte %zu of object %zu", b, i);
        attn_arena_reset(&arena);
        ck_assert_uint_eq(arena.used, 0);
    }
    attn_arena_destroy(&arena);
}
END_TEST

/* The caller's memory at each misalignment; not a byte outside it is touched. */
START_TEST(memory_of_the_caller_may_start_anywhere) {
    for (size_t shift = 0; shift < 64; shift++) {
        unsigned char block[512 + 64];
        memset(block, 0xA5, sizeof block);
        unsigned char *start = block + shift;
        attn_arena arena;
        test_ok(attn_arena_init(&arena, start, 512));
        ck_assert_uint_ge(arena.capacity, 512 - 63);
        size_t lines = 0;
        void *object;
        while (attn_arena_alloc(&arena, &object, 1, 64) == ATTN_OK) {
            ck_assert_uint_eq((uintptr_t)object % 64, 0);
            memset(object, 0, 64);
            lines++;
        }
        ck_assert_uint_ge(lines, RED_ZONE ? 3 : 7);
        attn_arena_destroy(&arena);
        for (size_t i = 0; i < sizeof block; i++)
            if (i < shift || i >= shift + 512)
                ck_assert_msg(block[i] == 0xA5, "shift %zu: byte %zu was written", shift, i);
    }
}
END_TEST

START_TEST(tiny_memory_holds_nothing_and_does_no_harm) {
    unsigned char block[64];
    for (size_t size = 0; size < 64; size++) {
        attn_arena arena;
        void *object = block;
        test_ok(attn_arena_init(&arena, block + 1, size));
        attn_status status = attn_arena_alloc(&arena, &object, 1, 64);
        test_refused(status, ATTN_ERROR_MEMORY);
        attn_arena_destroy(&arena);
    }
    attn_arena arena;
    void *object;
    test_ok(attn_arena_init(&arena, NULL, 0));
    test_refused(attn_arena_alloc(&arena, &object, 1, 1), ATTN_ERROR_MEMORY);
    test_ok(attn_arena_create(&arena, 0));
    test_refused(attn_arena_alloc(&arena, &object, 1, 1), ATTN_ERROR_MEMORY);
    attn_arena_destroy(&arena);
}
END_TEST

static const struct {
    size_t count, size;
    attn_status status;
} oversized[] = {
    {SIZE_MAX - 8, 1, ATTN_ERROR_OVERFLOW},
    {SIZE_MAX, 1, ATTN_ERROR_OVERFLOW},
    {SIZE_MAX - 62, 1, ATTN_ERROR_OVERFLOW},
    {SIZE_MAX / 2 + 1, 2, ATTN_ERROR_OVERFLOW},
    {SIZE_MAX, SIZE_MAX, ATTN_ERROR_OVERFLOW},
    {(size_t)1 << 32, (size_t)1 << 32, ATTN_ERROR_OVERFLOW},
    {SIZE_MAX / 2, 1, ATTN_ERROR_MEMORY},
    {1, 1025, ATTN_ERROR_MEMORY},
};

START_TEST(sizes_that_wrap_or_do_not_fit_change_nothing) {
    attn_arena arena = test_arena(1024);
    taken first = take(&arena, 100, NULL, 0);
    size_t used = arena.used, high_water = arena.high_water;
    for (size_t i = 0; i < sizeof oversized / sizeof *oversized; i++) {
        void *none = &arena;
        test_refused(attn_arena_alloc(&arena, &none, oversized[i].count, oversized[i].size),
                     oversized[i].status);
        ck_assert_ptr_eq(none, &arena);
        ck_assert_uint_eq(arena.used, used);
        ck_assert_uint_eq(arena.high_water, high_water);
    }
    (void)take(&arena, 100, &first, 1);
    attn_arena_destroy(&arena);
    test_refused(attn_arena_create(&arena, SIZE_MAX), ATTN_ERROR_OVERFLOW);
    attn_arena_destroy(&arena);
    test_refused(attn_arena_create(&arena, SIZE_MAX / 2), ATTN_ERROR_MEMORY);
    attn_arena_destroy(&arena);
}
END_TEST

START_TEST(a_full_arena_is_filled_to_the_last_byte) {
    attn_arena arena = test_arena(640 + 10 * RED_ZONE);
    void *object;
    for (int i = 0; i < 10; i++)
        test_ok(attn_arena_alloc(&arena, &object, 16, 4));
    ck_assert_uint_eq(arena.used, arena.capacity);
    test_refused(attn_arena_alloc(&arena, &object, 1, 1), ATTN_ERROR_MEMORY);
    ck_assert_ptr_nonnull(strstr(attn_error_message(), "arena full"));
    attn_arena_destroy(&arena);
}
END_TEST

START_TEST(rewinding_gives_back_what_came_after_the_mark) {
    attn_arena arena = test_arena(4096);
    taken objects[2] = {take(&arena, 10, NULL, 0)};
    size_t mark = attn_arena_mark(&arena);
    objects[1] = take(&arena, 200, objects, 1);
    size_t high_water = arena.used;
    test_ok(attn_arena_rewind(&arena, mark));
    void *again;
    test_ok(attn_arena_alloc(&arena, &again, 10, 1));
    ck_assert_ptr_eq(again, objects[1].start);
    ck_assert_int_eq(objects[0].start[9], 1);
    ck_assert_uint_eq(arena.high_water, high_water);
    test_refused(attn_arena_rewind(&arena, arena.used + 1), ATTN_ERROR_ARGUMENT);
    test_refused(attn_arena_rewind(&arena, SIZE_MAX), ATTN_ERROR_ARGUMENT);
    size_t used = arena.used;
    test_ok(attn_arena_rewind(&arena, used));
    ck_assert_uint_eq(arena.used, used);
    attn_arena_reset(&arena);
    ck_assert_uint_eq(attn_arena_mark(&arena), 0);
    ck_assert_uint_eq(arena.high_water, high_water);
    attn_arena_destroy(&arena);
}
END_TEST

/* Measuring counts exactly what a real arena then uses, marks and all. */
static void carve(attn_arena *arena, bool measuring) {
    void *object;
    for (size_t i = 0; i < COUNT; i++) {
        size_t mark = attn_arena_mark(arena);
        test_ok(attn_arena_alloc(arena, &object, sizes[i], 3));
        ck_assert(measuring == (object == NULL));
        if (i % 3 == 1)
            test_ok(attn_arena_rewind(arena, mark));
    }
}

START_TEST(measuring_is_exact) {
    attn_arena counter, arena;
    test_ok(attn_arena_init_measuring(&counter));
    carve(&counter, true);
    ck_assert_ptr_null(counter.base);
    arena = test_arena(counter.high_water);
    carve(&arena, false);
    ck_assert_uint_eq(arena.used, counter.used);
    ck_assert_uint_eq(arena.high_water, counter.high_water);
    attn_arena_destroy(&arena);
    void *object;
    test_ok(attn_arena_alloc(&counter, &object, SIZE_MAX / 4, 3));
    test_refused(attn_arena_alloc(&counter, &object, SIZE_MAX / 4, 3), ATTN_ERROR_OVERFLOW);
    attn_arena_reset(&counter);
    ck_assert_uint_eq(counter.used, 0);
    attn_arena_destroy(&counter);
}
END_TEST

START_TEST(null_arguments_are_refused) {
    attn_arena arena = test_arena(64);
    void *object;
    test_refused(attn_arena_create(NULL, 1), ATTN_ERROR_ARGUMENT);
    test_refused(attn_arena_init(NULL, &object, 1), ATTN_ERROR_ARGUMENT);
    test_refused(attn_arena_init(&(attn_arena){0}, NULL, 1), ATTN_ERROR_ARGUMENT);
    test_refused(attn_arena_init_measuring(NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_arena_alloc(NULL, &object, 1, 1), ATTN_ERROR_ARGUMENT);
    test_refused(attn_arena_alloc(&arena, NULL, 1, 1), ATTN_ERROR_ARGUMENT);
    test_refused(attn_arena_rewind(NULL, 0), ATTN_ERROR_ARGUMENT);
    ck_assert_uint_eq(attn_arena_mark(NULL), 0);
    attn_arena_reset(NULL);
    attn_arena_destroy(NULL);
    attn_arena_destroy(&(attn_arena){0});
    attn_arena_destroy(&arena);
    attn_arena_destroy(&arena); /* zeroed by the first */
}
END_TEST

#ifdef ATTNI_ASAN
START_TEST(red_zones_guard_objects_and_what_was_given_back) {
    attn_arena arena = test_arena(4096);
    void *a, *b;
    ck_assert(__asan_address_is_poisoned(arena.base));
    test_ok(attn_arena_alloc(&arena, &a, 100, 1));
    size_t mark = attn_arena_mark(&arena);
    test_ok(attn_arena_alloc(&arena, &b, 100, 1));
    ck_assert_ptr_null(__asan_region_is_poisoned(a, 100));
    ck_assert_ptr_null(__asan_region_is_poisoned(b, 100));
    ck_assert(__asan_address_is_poisoned((char *)a + 100));
    ck_assert(__asan_address_is_poisoned((char *)b - 1));
    ck_assert(__asan_address_is_poisoned((char *)b + 100));
    test_ok(attn_arena_rewind(&arena, mark));
    ck_assert(__asan_address_is_poisoned(b));
    ck_assert_ptr_null(__asan_region_is_poisoned(a, 100));
    attn_arena_reset(&arena);
    ck_assert(__asan_address_is_poisoned(a));
    attn_arena_destroy(&arena);
    /* Memory of the caller is handed back without poison. */
    _Alignas(64) char block[256];
    test_ok(attn_arena_init(&arena, block, sizeof block));
    ck_assert(__asan_address_is_poisoned(block));
    attn_arena_destroy(&arena);
    ck_assert_ptr_null(__asan_region_is_poisoned(block, sizeof block));
}
END_TEST
#endif

int main(void) {
    Suite *suite = suite_create("arena");
    TCase *tests = tcase_create("arena");
    tcase_add_test(tests, objects_are_aligned_and_apart_in_any_order);
    tcase_add_test(tests, memory_of_the_caller_may_start_anywhere);
    tcase_add_test(tests, tiny_memory_holds_nothing_and_does_no_harm);
    tcase_add_test(tests, sizes_that_wrap_or_do_not_fit_change_nothing);
    tcase_add_test(tests, a_full_arena_is_filled_to_the_last_byte);
    tcase_add_test(tests, rewinding_gives_back_what_came_after_the_mark);
    tcase_add_test(tests, measuring_is_exact);
    tcase_add_test(tests, null_arguments_are_refused);
#ifdef ATTNI_ASAN
    tcase_add_test(tests, red_zones_guard_objects_and_what_was_given_back);
#endif
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
