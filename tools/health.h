/*
 * health.h - the experiment behind 1/sqrt(d_head): what happens to softmax and its gradient as
 * heads grow wider, with and without the scaling. In double.
 */
#ifndef HEALTH_H
#define HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HEALTH_KEYS = 64 }; /* keys of a row, and queries of a batch */

/* One head width, with or without the scaling. A row is a query with its 64 keys. */
typedef struct health_row {
    size_t d_head;
    bool scaled;
    double entropy;    /* of the weights, mean over rows, nats */
    double max_weight; /* largest weight of a row, median over rows */
    /* Frobenius norm of the softmax Jacobian diag(p) - p pᵀ, over rows */
    double jacobian_mean, jacobian_median, jacobian_p10;
    /* Norms of the rows of dQ and dK, for an upstream gradient dP of unit variance */
    double dq_mean, dq_median, dk_mean, dk_median;
    /* The rows that were also differentiated numerically: mean norm either way, and
     * ‖analytic - numeric‖ / ‖analytic‖ over all of them, dQ and dK together */
    double sampled_norm, numeric_norm, fd_relative_error;
} health_row;

/* Measures one width over `rows` rows, rounded up to whole batches of 64. The same seed draws the
 * same queries, keys and upstream gradients with and without the scaling. An exit status. */
int health_measure(health_row *result, size_t d_head, bool scaled, size_t rows, uint64_t seed);

/* DIR/health.csv, health.gp, health.png. An exit status. */
int health_plot(const char *dir, const health_row *rows, size_t count);

/* The copy task with one wide head: final loss and accuracy on fresh sequences, [scaled]. */
typedef struct health_copy_result {
    size_t d_head, steps;
    double loss[2], accuracy[2];
} health_copy_result;

/* Trains twice, and writes DIR/copy.csv, copy.gp, copy.png. An exit status. */
int health_copy(health_copy_result *result, const char *dir, uint64_t seed);

#endif
