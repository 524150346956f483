#include "ops/rope.h"

#include "base/fail.h"
#include "base/size.h"
#include "ops/parallel.h"
#include "ops/strides.h"

#include <math.h>
#include <string.h>

/* A task is a block of tokens, so that a frequency, which costs a power, serves all of them. Pairs
 * are taken some at a time, so that tables fit on the stack whatever d is. */
enum { TOKENS = 32, PAIRS = 64 };

static double base_of(const attn_rope_config *config) {
    return config->base == 0 ? 10000 : config->base;
}

/* base^(-2m/d), the angle of pair m from one position to the next. */
static double frequency(double base, size_t pair, size_t d_head) {
    return pow(base, -2.0 * (double)pair / (double)d_head);
}

attn_status attni_rope_check(const char *function, const attn_rope_config *config, size_t len,
                             size_t d_head) {
    if (config->pairing != ATTN_ROPE_INTERLEAVED && config->pairing != ATTN_ROPE_HALF)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: rope %d is no pairing", function,
                          (int)config->pairing);
    if (!isfinite(config->base) || config->base < 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: rope_base %g is not finite and above 0",
                          function, config->base);
    if (d_head % 2 != 0)
        return attni_fail(ATTN_ERROR_SHAPE, "%s: rope turns pairs, but d_head %zu is odd", function,
                          d_head);
    if (len == 0 || d_head == 0)
        return ATTN_OK;
    if (len - 1 > INT64_MAX || config->position > INT64_MAX - (int64_t)(len - 1))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "%s: rope position %lld of the first of %zu tokens: the last one's wraps",
                          function, (long long)config->position, len);
    /* Frequencies run from 1 to that of the last pair, upwards where the base is below 1. */
    double fastest = fmax(1, frequency(base_of(config), d_head / 2 - 1, d_head));
    double farthest =
        fmax(fabs((double)config->position), fabs((double)(config->position + (int64_t)(len - 1))));
    if (!isfinite(fastest * farthest))
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: rope_base %g: the angles are not finite",
                          function, config->base);
    return ATTN_OK;
}

/* (x, y) -> (x cos - y sin, x sin + y cos) for `count` pairs of a row, from pair `first` on. */
static void turn_interleaved(real *restrict row, size_t first, size_t count,
                             const real *restrict cosine, const real *restrict sine) {
    real *restrict pairs = row + 2 * first;
    for (size_t m = 0; m < count; m++) {
        real x = pairs[2 * m], y = pairs[2 * m + 1];
        pairs[2 * m] = x * cosine[m] - y * sine[m];
        pairs[2 * m + 1] = x * sine[m] + y * cosine[m];
    }
}

static void turn_half(real *row, size_t half, size_t first, size_t count,
                      const real *restrict cosine, const real *restrict sine) {
    real *restrict low = row + first, *restrict high = row + half + first;
    for (size_t m = 0; m < count; m++) {
        real x = low[m], y = high[m];
        low[m] = x * cosine[m] - y * sine[m];
        high[m] = x * sine[m] + y * cosine[m];
    }
}

typedef struct rotation {
    real *y;
    const real *x;
    attn_strides strides;
    attn_rope_config config;
    size_t batch, num_heads, d_head;
    double sign; /* 1 forward, -1 back */
} rotation;

/* Turns `count` pairs of a token in every head of every sample: they share one table. */
static void turn_token(const rotation *r, size_t token, size_t first, size_t count,
                       const real *cosine, const real *sine) {
    size_t half = r->d_head / 2;
    for (size_t b = 0; b < r->batch; b++)
        for (size_t h = 0; h < r->num_heads; h++) {
            size_t at = b * r->strides.batch + h * r->strides.head + token * r->strides.token;
            real *row = r->y + at;
            if (first == 0 && r->y != r->x)
                memcpy(row, r->x + at, r->d_head * sizeof *row);
            if (r->config.pairing == ATTN_ROPE_HALF)
                turn_half(row, half, first, count, cosine, sine);
            else
                turn_interleaved(row, first, count, cosine, sine);
        }
}

/* Every angle comes from its own position, not from the angle before: no error adds up, and a token
 * has the same bits whichever block it is in. */
static void turn_tokens(const rotation *r, size_t begin, size_t end) {
    double frequencies[PAIRS];
    real cosine[PAIRS], sine[PAIRS];
    for (size_t first = 0; first < r->d_head / 2; first += PAIRS) {
        size_t count = size_min(PAIRS, r->d_head / 2 - first);
        for (size_t m = 0; m < count; m++)
            frequencies[m] = frequency(base_of(&r->config), first + m, r->d_head);
        for (size_t t = begin; t < end; t++) {
            double position = (double)(r->config.position + (int64_t)t);
            for (size_t m = 0; m < count; m++) {
                double angle = position * frequencies[m];
                cosine[m] = (real)cos(angle);
                sine[m] = (real)(r->sign * sin(angle));
            }
            turn_token(r, t, first, count, cosine, sine);
        }
    }
}

/* A pair costs some 4 multiply-adds in each head, a sine and a cosine about 40. */
void attni_rope_rotate(real *y, const real *x, const attn_strides *strides,
                       const attn_rope_config *config, const attn_shape *shape, size_t len,
                       bool back, size_t max_threads) {
    if (shape->batch * shape->num_heads == 0 || len == 0)
        return;
    rotation r = {
        y, x, *strides, *config, shape->batch, shape->num_heads, shape->d_head, back ? -1 : 1};
    size_t tasks = size_div_up(len, TOKENS);
    size_t work = TOKENS * (r.d_head / 2) * (4 * r.batch * r.num_heads + 40);
    int threads = threads_for(max_threads, tasks, work);
    (void)threads; /* without OpenMP */
#pragma omp parallel for schedule(static) num_threads(threads)
    for (size_t task = 0; task < tasks; task++)
        turn_tokens(&r, task * TOKENS, size_min(len, (task + 1) * TOKENS));
}

static attn_status check_call(const char *function, const attni_tensor *out, const attni_tensor *in,
                              const attn_rope_config *config, const attn_shape *shape) {
    size_t bytes;
    if (!config)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: config is NULL", function);
    ATTNI_TRY(attni_rope_check(function, config, out->len, shape->d_head));
    if (!size_product(
            &bytes,
            (size_t[]){shape->batch, shape->num_heads, out->len, shape->d_head, sizeof(real)}, 5))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "%s: batch %zu, num_heads %zu, len %zu, d_head %zu: the size wraps",
                          function, shape->batch, shape->num_heads, out->len, shape->d_head);
    if (bytes == 0)
        return ATTN_OK;
    ATTNI_TRY(attni_tensor_check(function, out, shape, false));
    return attni_tensor_check(function, in, shape, false);
}

/*
 * The pairs (x, y) of each row (d), by the angle a = (position + t)·base^(-2m/d), m = 0 .. d/2 - 1:
 *
 *     x' = x cos a - y sin a           dx = dx' cos a + dy' sin a
 *     y' = x sin a + y cos a           dy = dy' cos a - dx' sin a
 */
attn_status attn_rope_forward(attn_real *y, const attn_real *x, const attn_strides *strides,
                              const attn_rope_config *config, size_t batch, size_t num_heads,
                              size_t len, size_t d_head) {
    static const char function[] = "attn_rope_forward";
    const attn_shape shape = {.batch = batch, .num_heads = num_heads, .d_head = d_head};
    if (!strides)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: strides is NULL", function);
    ATTNI_TRY(check_call(function, &(attni_tensor){"y", y, *strides, len, true},
                         &(attni_tensor){"x", x, *strides, len, false}, config, &shape));
    if (d_head > 0)
        attni_rope_rotate(y, x, strides, config, &shape, len, false, 0);
    return ATTN_OK;
}

attn_status attn_rope_backward(attn_real *dx, const attn_real *dy, const attn_strides *strides,
                               const attn_rope_config *config, size_t batch, size_t num_heads,
                               size_t len, size_t d_head) {
    static const char function[] = "attn_rope_backward";
    const attn_shape shape = {.batch = batch, .num_heads = num_heads, .d_head = d_head};
    if (!strides)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: strides is NULL", function);
    ATTNI_TRY(check_call(function, &(attni_tensor){"dx", dx, *strides, len, true},
                         &(attni_tensor){"dy", dy, *strides, len, false}, config, &shape));
    if (d_head > 0)
        attni_rope_rotate(dx, dy, strides, config, &shape, len, true, 0);
    return ATTN_OK;
}
