/*
 * One head width of the experiment:
 *
 *     S = scale · Q Kᵀ       Q, K (64, d) standard normal, scale = 1/sqrt(d) or 1
 *     P = softmax(S)
 *     f = sum(dP ∘ P)        dP (64, 64) standard normal: what a loss might ask of the weights
 *
 * repeated for as many batches of 64 rows as wanted. dQ and dK come from the library's backwards
 * and, for a few rows, from central differences of f.
 */
#include "health.h"
#include "tool.h"

#include <attn/random.h>
#include <attn/scores.h>
#include <attn/softmax.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = HEALTH_KEYS, NUMERIC_BATCHES = 2, NUMERIC_ROWS = 4 };

/* One batch: inputs, outputs, gradients. Everything contiguous. */
typedef struct batch {
    size_t d;
    double scale;
    double *q, *k, *dq, *dk; /* (64, d) */
    double *p, *dp, *ds;     /* (64, 64) */
} batch;

/* What is kept of each row. */
typedef struct samples {
    size_t count;
    double *max_weight, *jacobian, *dq, *dk;
    double entropy_sum;
    double analytic, numeric, difference; /* sums of squares over the sampled rows */
    double analytic_norms, numeric_norms; /* sums of their norms */
    size_t sampled;
} samples;

static double norm(const double *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static void draw(double *x, size_t n, attn_random *random) {
    for (size_t i = 0; i < n; i++)
        x[i] = attn_random_normal(random);
}

static double entropy(const double *p) {
    double sum = 0;
    for (size_t j = 0; j < N; j++)
        if (p[j] > 0)
            sum -= p[j] * log(p[j]);
    return sum;
}

static size_t largest(const double *p) {
    size_t top = 0;
    for (size_t j = 1; j < N; j++)
        if (p[j] > p[top])
            top = j;
    return top;
}

/* ‖diag(p) - p pᵀ‖² = sum_i p_i² (1 - p_i)² + sum_{i≠j} p_i² p_j². The largest weight m may be 1 in
 * all but its last digits, so 1 - p_m is the sum of the others, never a difference. */
static double jacobian_norm(const double *p) {
    size_t m = largest(p);
    double rest = 0, squares = 0, fourths = 0, diagonal = 0;
    for (size_t j = 0; j < N; j++) {
        if (j == m)
            continue;
        double p2 = p[j] * p[j];
        rest += p[j];
        squares += p2;
        fourths += p2 * p2;
        diagonal += p2 * (1 - p[j]) * (1 - p[j]);
    }
    double top2 = p[m] * p[m];
    double pairs_among_others = fmax(squares * squares - fourths, 0);
    return sqrt(diagonal + top2 * rest * rest + 2 * top2 * squares + pairs_among_others);
}

static attn_shape shape_of(const batch *b, size_t queries, size_t keys) {
    return (attn_shape){1, 1, queries, keys, b->d};
}

static attn_status differentiate(const batch *b) {
    attn_shape shape = shape_of(b, N, N);
    attn_status status = attn_scores_forward(b->p, b->q, b->k, NULL, b->scale, &shape);
    if (status == ATTN_OK)
        status = attn_softmax_forward(b->p, NULL, b->p, N, N);
    if (status == ATTN_OK)
        status = attn_softmax_backward(b->ds, b->dp, b->p, N, N);
    if (status == ATTN_OK)
        status = attn_scores_backward(b->dq, b->dk, b->ds, b->q, b->k, NULL, b->scale, &shape);
    return status;
}

static void keep(samples *s, const batch *b) {
    for (size_t i = 0; i < N; i++) {
        const double *p = b->p + i * N;
        s->entropy_sum += entropy(p);
        s->max_weight[s->count] = p[largest(p)];
        s->jacobian[s->count] = jacobian_norm(p);
        s->dq[s->count] = norm(b->dq + i * b->d, b->d);
        s->dk[s->count] = norm(b->dk + i * b->d, b->d);
        s->count++;
    }
}

/* Four copies of a row for each of its d elements: moved by +h, -h, +h/2, -h/2. */
static double *moved_rows(const double *row, size_t d, double h) {
    static const double steps[4] = {1, -1, 0.5, -0.5};
    double *moved = tool_alloc(4 * d * d, sizeof *moved);
    for (size_t c = 0; c < d; c++)
        for (size_t s = 0; s < 4; s++) {
            double *copy = moved + (4 * c + s) * d;
            memcpy(copy, row, d * sizeof *copy);
            copy[c] += steps[s] * h;
        }
    return moved;
}

/* Central differences with steps h and h/2, combined so that the error of order h² cancels
 * (Richardson). f holds the four values of each element. */
static void richardson(double *gradient, const double *f, const double *row, size_t d, double h) {
    for (size_t c = 0; c < d; c++, f += 4) {
        double wide = (f[0] - f[1]) / ((row[c] + h) - (row[c] - h));
        double narrow = (f[2] - f[3]) / ((row[c] + 0.5 * h) - (row[c] - 0.5 * h));
        gradient[c] = (4 * narrow - wide) / 3;
    }
}

/* f of row i alone, for each moved copy of q_i: the other rows do not depend on it. */
static attn_status numeric_dq(double *gradient, const batch *b, size_t i, double h) {
    size_t count = 4 * b->d;
    const double *row = b->q + i * b->d, *dp = b->dp + i * N;
    double *moved = moved_rows(row, b->d, h);
    double *p = tool_alloc(count * N, sizeof *p), *f = tool_alloc(count, sizeof *f);
    attn_shape shape = shape_of(b, count, N);
    attn_status status = attn_scores_forward(p, moved, b->k, NULL, b->scale, &shape);
    if (status == ATTN_OK)
        status = attn_softmax_forward(p, NULL, p, count, N);
    for (size_t r = 0; r < count; r++)
        for (size_t j = 0; j < N; j++)
            f[r] += dp[j] * p[r * N + j];
    richardson(gradient, f, row, b->d, h);
    free(moved);
    free(p);
    free(f);
    return status;
}

/* f of the whole batch, for each moved copy of k_j: column j of the scores changes. */
static attn_status numeric_dk(double *gradient, const batch *b, size_t j, double h) {
    size_t count = 4 * b->d;
    const double *row = b->k + j * b->d;
    double *moved = moved_rows(row, b->d, h);
    double *columns = tool_alloc(count * N, sizeof *columns), *f = tool_alloc(count, sizeof *f);
    double s[N * N], p[N * N];
    attn_shape square = shape_of(b, N, N), wide = shape_of(b, N, count);
    attn_status status = attn_scores_forward(s, b->q, b->k, NULL, b->scale, &square);
    if (status == ATTN_OK)
        status = attn_scores_forward(columns, b->q, moved, NULL, b->scale, &wide);
    for (size_t r = 0; r < count && status == ATTN_OK; r++) {
        for (size_t i = 0; i < N; i++)
            s[i * N + j] = columns[i * count + r];
        status = attn_softmax_forward(p, NULL, s, N, N);
        for (size_t e = 0; e < (size_t)N * N; e++)
            f[r] += b->dp[e] * p[e];
    }
    richardson(gradient, f, row, b->d, h);
    free(moved);
    free(columns);
    free(f);
    return status;
}

static void compare(samples *s, const double *analytic, const double *numeric, size_t d) {
    for (size_t c = 0; c < d; c++)
        s->difference += (analytic[c] - numeric[c]) * (analytic[c] - numeric[c]);
    double a = norm(analytic, d), n = norm(numeric, d);
    s->analytic += a * a;
    s->numeric += n * n;
    s->analytic_norms += a;
    s->numeric_norms += n;
    s->sampled++;
}

/* A few rows of dQ and dK, spread over the batch. */
static attn_status check_numerically(samples *s, const batch *b) {
    const double h = 1e-3;
    double *gradient = tool_alloc(b->d, sizeof *gradient);
    attn_status status = ATTN_OK;
    for (size_t r = 0; r < NUMERIC_ROWS && status == ATTN_OK; r++) {
        size_t row = r * (N / NUMERIC_ROWS);
        status = numeric_dq(gradient, b, row, h);
        compare(s, b->dq + row * b->d, gradient, b->d);
        if (status == ATTN_OK)
            status = numeric_dk(gradient, b, row, h);
        compare(s, b->dk + row * b->d, gradient, b->d);
    }
    free(gradient);
    return status;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double mean(const double *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

/* The quantile of sorted values, between neighbours where it falls between them. */
static double quantile(const double *sorted, size_t n, double share) {
    double at = share * (double)(n - 1);
    size_t below = (size_t)at, above = below + 1 < n ? below + 1 : below;
    return sorted[below] + (at - (double)below) * (sorted[above] - sorted[below]);
}

static void summarise(health_row *result, samples *s) {
    size_t n = s->count;
    result->entropy = s->entropy_sum / (double)n;
    result->jacobian_mean = mean(s->jacobian, n);
    result->dq_mean = mean(s->dq, n);
    result->dk_mean = mean(s->dk, n);
    qsort(s->max_weight, n, sizeof(double), ascending);
    qsort(s->jacobian, n, sizeof(double), ascending);
    qsort(s->dq, n, sizeof(double), ascending);
    qsort(s->dk, n, sizeof(double), ascending);
    result->max_weight = quantile(s->max_weight, n, 0.5);
    result->jacobian_median = quantile(s->jacobian, n, 0.5);
    result->jacobian_p10 = quantile(s->jacobian, n, 0.1);
    result->dq_median = quantile(s->dq, n, 0.5);
    result->dk_median = quantile(s->dk, n, 0.5);
    result->sampled_norm = s->analytic_norms / (double)s->sampled;
    result->numeric_norm = s->numeric_norms / (double)s->sampled;
    result->fd_relative_error = sqrt(s->difference / s->analytic);
}

static attn_status measure(samples *s, batch *b, size_t batches, uint64_t seed) {
    attn_random random = attn_random_seed(seed, b->d);
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < batches && status == ATTN_OK; i++) {
        draw(b->q, N * b->d, &random);
        draw(b->k, N * b->d, &random);
        draw(b->dp, (size_t)N * N, &random);
        status = differentiate(b);
        keep(s, b);
        if (i < NUMERIC_BATCHES && status == ATTN_OK)
            status = check_numerically(s, b);
    }
    return status;
}

int health_measure(health_row *result, size_t d_head, bool scaled, size_t rows, uint64_t seed) {
    size_t batches = (rows + N - 1) / N, wide = N * d_head, square = (size_t)N * N;
    double *block = tool_alloc(4 * wide + 3 * square, sizeof *block);
    batch b = {.d = d_head,
               .scale = scaled ? attn_default_scale(d_head) : 1,
               .q = block,
               .k = block + wide,
               .dq = block + 2 * wide,
               .dk = block + 3 * wide,
               .p = block + 4 * wide,
               .dp = block + 4 * wide + square,
               .ds = block + 4 * wide + 2 * square};
    double *kept = tool_alloc(4 * batches * N, sizeof *kept);
    samples s = {.max_weight = kept,
                 .jacobian = kept + batches * N,
                 .dq = kept + 2 * batches * N,
                 .dk = kept + 3 * batches * N};
    *result = (health_row){.d_head = d_head, .scaled = scaled};
    attn_status status = measure(&s, &b, batches, seed);
    if (status == ATTN_OK)
        summarise(result, &s);
    free(kept);
    free(block);
    return status == ATTN_OK ? TOOL_OK : tool_fail("%s", attn_error_message());
}
