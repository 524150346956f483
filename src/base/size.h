/*
 * size.h (internal) - sizes that cannot wrap.
 */
#ifndef ATTNI_SIZE_H
#define ATTNI_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *product = a·b; false if it wraps, and *product is then unchanged. */
static inline bool size_mul(size_t *product, size_t a, size_t b) {
    if (a != 0 && b > SIZE_MAX / a)
        return false;
    *product = a * b;
    return true;
}

/* *sum = a + b; false if it wraps, and *sum is then unchanged. */
static inline bool size_add(size_t *sum, size_t a, size_t b) {
    if (b > SIZE_MAX - a)
        return false;
    *sum = a + b;
    return true;
}

/* The product of `count` factors; false if it wraps (a zero factor anywhere makes it 0). */
static inline bool size_product(size_t *product, const size_t *factors, size_t count) {
    size_t p = 1;
    for (size_t i = 0; i < count; i++)
        if (factors[i] == 0) {
            *product = 0;
            return true;
        }
    for (size_t i = 0; i < count; i++)
        if (!size_mul(&p, p, factors[i]))
            return false;
    *product = p;
    return true;
}

/* a + b, or SIZE_MAX where that is less. */
static inline size_t size_add_capped(size_t a, size_t b) {
    return b > SIZE_MAX - a ? SIZE_MAX : a + b;
}

/* a·b, or SIZE_MAX where that is less. */
static inline size_t size_mul_capped(size_t a, size_t b) {
    size_t product = SIZE_MAX;
    (void)size_mul(&product, a, b);
    return product;
}

static inline size_t size_min(size_t a, size_t b) {
    return a < b ? a : b;
}

static inline size_t size_max(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Ceiling of a / b, b > 0. */
static inline size_t size_div_up(size_t a, size_t b) {
    return a / b + (a % b != 0);
}

#endif
