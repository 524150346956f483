#include <attn/sgd.h>

#include "base/fail.h"
#include "base/real.h"

#include <math.h>

attn_status attn_sgd_step(attn_real *theta, attn_real *velocity, const attn_real *gradient,
                          size_t count, const attn_sgd_config *config) {
    if (!config)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_sgd_step: config is NULL");
    real rate = (real)config->learning_rate, momentum = (real)config->momentum;
    if (!(config->learning_rate >= 0 && isfinite(rate)))
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "attn_sgd_step: learning_rate %g, expected a finite number from 0",
                          config->learning_rate);
    if (!(config->momentum >= 0 && momentum < 1))
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "attn_sgd_step: momentum %g, expected from 0 to below 1",
                          config->momentum);
    if (count > 0 && (!theta || !gradient || (!velocity && momentum > 0)))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_sgd_step: %s is NULL",
                          !theta      ? "theta"
                          : !gradient ? "gradient"
                                      : "velocity");
    if (!velocity) {
        for (size_t i = 0; i < count; i++)
            theta[i] -= rate * gradient[i];
        return ATTN_OK;
    }
    for (size_t i = 0; i < count; i++) {
        velocity[i] = momentum * velocity[i] + gradient[i];
        theta[i] -= rate * velocity[i];
    }
    return ATTN_OK;
}

/* sqrt(sum g²). Squares are taken of g·2^-e, e the exponent of the largest, so that neither a huge
 * nor a tiny double leaves the range on the way. Not finite where an element is not, with its index
 * in *culprit. */
static double norm_of(const real *gradient, size_t count, size_t *culprit) {
    double largest = 0, sum = 0;
    *culprit = count;
    for (size_t i = 0; i < count; i++) {
        double magnitude = fabs((double)gradient[i]);
        if (!isfinite(magnitude)) {
            *culprit = i;
            return magnitude;
        }
        largest = magnitude > largest ? magnitude : largest;
    }
    int exponent;
    (void)frexp(largest, &exponent);
    exponent = exponent < -1000 ? -1000 : exponent; /* so that the scale is finite */
    double scale = ldexp(1, -exponent);
    for (size_t i = 0; i < count; i++) {
        double g = (double)gradient[i] * scale;
        sum += g * g;
    }
    return ldexp(sqrt(sum), exponent);
}

attn_status attn_clip_gradient(attn_real *gradient, size_t count, double max_norm, double *norm) {
    if (!gradient && count > 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_clip_gradient: gradient is NULL");
    if (!(max_norm >= 0))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_clip_gradient: max_norm %g, expected from 0",
                          max_norm);
    size_t culprit;
    double total = norm_of(gradient, count, &culprit);
    if (norm)
        *norm = total;
    if (culprit < count)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_clip_gradient: gradient[%zu] is %g", culprit,
                          (double)gradient[culprit]);
    if (!isfinite(total))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_clip_gradient: the norm overflows");
    if (max_norm == 0 || total <= max_norm)
        return ATTN_OK;
    double scale = max_norm / total;
    for (size_t i = 0; i < count; i++)
        gradient[i] = (real)((double)gradient[i] * scale);
    return ATTN_OK;
}
