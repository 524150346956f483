/*
 * red_zone.h (internal) - tells AddressSanitizer or Valgrind which bytes of an arena are in use.
 *
 * With a checker a gap of RED_ZONE bytes follows each object, so that a write past its end is
 * reported instead of landing in its neighbour.
 */
#ifndef ATTNI_RED_ZONE_H
#define ATTNI_RED_ZONE_H

#include <stddef.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ATTNI_ASAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ATTNI_ASAN
#endif

#if defined(ATTNI_ASAN)
#include <sanitizer/asan_interface.h>
enum { RED_ZONE = 64 };
#elif defined(ATTNI_VALGRIND)
#include <valgrind/memcheck.h>
enum { RED_ZONE = 64 };
#else
enum { RED_ZONE = 0 };
#endif

/* The bytes become an object's, contents undefined. */
static inline void red_zone_open(void *start, size_t bytes) {
#if defined(ATTNI_ASAN)
    ASAN_UNPOISON_MEMORY_REGION(start, bytes);
#elif defined(ATTNI_VALGRIND)
    (void)VALGRIND_MAKE_MEM_UNDEFINED(start, bytes);
#else
    (void)start;
    (void)bytes;
#endif
}

/* The bytes become nobody's. */
static inline void red_zone_close(void *start, size_t bytes) {
#if defined(ATTNI_ASAN)
    ASAN_POISON_MEMORY_REGION(start, bytes);
#elif defined(ATTNI_VALGRIND)
    (void)VALGRIND_MAKE_MEM_NOACCESS(start, bytes);
#else
    (void)start;
    (void)bytes;
#endif
}

#endif
