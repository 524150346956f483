/*
 * dropout.h (internal) - which weights are kept.
 */
#ifndef ATTNI_DROPOUT_H
#define ATTNI_DROPOUT_H

#include <math.h>
#include <stdint.h>

/* A word is kept iff it is at least p·2³²: for whole words, at least this. Above 2³² - 1 none is.
 */
static inline uint64_t dropout_threshold(double p) {
    return (uint64_t)ceil(p * 0x1p32);
}

#endif
