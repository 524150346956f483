/*
 * lesson.h - what the chapters' programs share: printing a matrix, and claims that are checked.
 */
#ifndef LESSON_H
#define LESSON_H

#include <attn/attn.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stops the program with the library's own words when a call fails. */
#define must(call)                                                    \
    do {                                                              \
        if ((call) != ATTN_OK) {                                      \
            fprintf(stderr, "%s: %s\n", #call, attn_error_message()); \
            exit(1);                                                  \
        }                                                             \
    } while (0)

/* Prints what the chapter claims and stops the program where the numbers disagree. */
static inline void claim(int holds, const char *text) {
    printf("%s %s\n", holds ? "  yes:" : "  NO: ", text);
    if (!holds)
        exit(1);
}

static inline void show(const char *name, const attn_real *x, size_t rows, size_t cols) {
    for (size_t r = 0; r < rows; r++) {
        printf("  %-8s", r == 0 ? name : "");
        for (size_t c = 0; c < cols; c++)
            printf(" %8.4f", (double)x[r * cols + c]);
        printf("\n");
    }
}

/* Random numbers with the given deviation, the same on every run. */
static inline void fill(attn_real *x, size_t n, double deviation, uint64_t seed) {
    attn_random random = attn_random_seed(seed, 1);
    for (size_t i = 0; i < n; i++)
        x[i] = (attn_real)(deviation * attn_random_normal(&random));
}

static inline double dot(const attn_real *x, const attn_real *y, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

/* Largest |x - y|. */
static inline double distance(const attn_real *x, const attn_real *y, size_t n) {
    double worst = 0;
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)x[i] - (double)y[i]));
    return worst;
}

#endif
