/*
 * sgd.h - stochastic gradient descent with momentum, and clipping by the global norm.
 *
 *     double norm;
 *     if (attn_clip_gradient(dtheta, count, 1.0, &norm) != ATTN_OK)
 *         return stop(norm, attn_error_message());           // the run has gone astray
 *     attn_sgd_step(theta, velocity, dtheta, count, &(attn_sgd_config){0.1, 0.9});
 *
 *     velocity = momentum · velocity + gradient
 *     theta    = theta - learning_rate · velocity
 *
 * Polyak, "Some methods of speeding up the convergence of iteration methods" (1964), in the form of
 * Sutskever et al., "On the importance of initialization and momentum in deep learning" (2013),
 * with the learning rate outside the velocity, so that it may change from step to step. Clipping:
 * Pascanu et al., "On the difficulty of training recurrent neural networks" (2013). One flat array
 * holds all parameters, another all gradients: the norm is over everything at once. Thread-safe on
 * different data; sums run in one fixed order.
 */
#ifndef ATTN_SGD_H
#define ATTN_SGD_H

#include <attn/status.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_sgd_config {
    double learning_rate; /* finite, at least 0 */
    double momentum;      /* 0 (none) up to, but not including, 1 */
} attn_sgd_config;

/* One step: theta and velocity (count) are updated, gradient is read. velocity starts as zeros and
 * may be NULL without momentum. ATTN_ERROR_ARGUMENT for settings out of range. */
ATTN_API attn_status attn_sgd_step(attn_real *theta, attn_real *velocity, const attn_real *gradient,
                                   size_t count, const attn_sgd_config *config);

/* Scales the gradient (count) by max_norm / norm where its Euclidean norm is larger; *norm (may be
 * NULL) receives the norm before. max_norm = 0 only measures. The norm of finite numbers is
 * computed without overflow. Where the gradient holds NaN or an infinity, or its norm is beyond the
 * range of double, the answer is ATTN_ERROR_ARGUMENT, *norm is what it is (NaN or infinity) and the
 * gradient stays as it was. */
ATTN_API attn_status attn_clip_gradient(attn_real *gradient, size_t count, double max_norm,
                                        double *norm);

#ifdef __cplusplus
}
#endif

#endif
