#include "ops/cross_entropy.h"

#include "base/fail.h"
#include "kernels/kernels.h"
#include "ops/parallel.h"

#include <math.h>

enum {
    CHUNKS = 64,         /* parts of the sum over rows; a constant, so that its order is too */
    BLOCK = 256,         /* logits exponentiated at a time */
    EXPONENTIAL_WORK = 8 /* multiply-adds that an exponential is worth */
};

static int num_threads(size_t rows, size_t vocab, size_t max_threads) {
    const size_t tasks = size_max(1, size_min(rows, CHUNKS));
    return threads_for(max_threads, tasks, rows / tasks * vocab * EXPONENTIAL_WORK);
}

attn_status attni_cross_entropy_check(const char *function, const int32_t *targets, size_t rows,
                                      size_t vocab) {
    size_t bytes;
    if (vocab == 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: vocab 0 must be at least 1", function);
    if (!size_product(&bytes, (size_t[]){rows, vocab, sizeof(real)}, 3))
        return attni_fail(ATTN_ERROR_OVERFLOW, "%s: rows %zu, vocab %zu: the size wraps", function,
                          rows, vocab);
    if (rows > 0 && !targets)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: targets is NULL", function);
    for (size_t i = 0; i < rows; i++)
        if (targets[i] < -1 || (targets[i] >= 0 && (size_t)targets[i] >= vocab))
            return attni_fail(ATTN_ERROR_ARGUMENT,
                              "%s: targets[%zu] is %ld, neither -1 nor in a vocabulary of %zu",
                              function, i, (long)targets[i], vocab);
    return ATTN_OK;
}

/* Index of the first of the largest logits; 0 in a row of NaN. */
static size_t largest(const real *logits, size_t vocab) {
    size_t at = 0;
    for (size_t j = 1; j < vocab; j++)
        if (logits[j] > logits[at])
            at = j;
    return at;
}

/* e[j] = exp(s_j - m) for n logits; their sum. e may be s. */
static double exponentials(real *e, const real *logits, real top, size_t n) {
    for (size_t j = 0; j < n; j++)
        e[j] = logits[j] - top;
    attni_kernels_get()->exp(e, e, n);
    double sum = 0;
    for (size_t j = 0; j < n; j++)
        sum += (double)e[j];
    return sum;
}

/* Loss of one row: log l + (m - s_target), m = max s, l = sum exp(s_j - m). */
static double row_loss(const real *logits, size_t target, size_t top, size_t vocab) {
    real block[BLOCK];
    double sum = 0;
    for (size_t j = 0; j < vocab; j += BLOCK)
        sum += exponentials(block, logits + j, logits[top], size_min(BLOCK, vocab - j));
    return log(sum) + ((double)logits[top] - (double)logits[target]);
}

/* Sums over rows begin .. end - 1; `mean` is still a sum here. */
static attn_loss loss_of_rows(const real *logits, const int32_t *targets, size_t begin, size_t end,
                              size_t vocab) {
    attn_loss part = {0};
    for (size_t i = begin; i < end; i++) {
        if (targets[i] < 0)
            continue;
        const real *row = logits + i * vocab;
        size_t target = (size_t)targets[i], top = largest(row, vocab);
        part.mean += row_loss(row, target, top, vocab);
        part.counted++;
        part.correct += top == target && row[top] == row[top];
    }
    return part;
}

static size_t chunk_start(size_t chunk, size_t rows) {
    return rows / CHUNKS * chunk + size_min(chunk, rows % CHUNKS);
}

/* loss = 1/n · sum_i (lse_i - s_i,target)        () from (N,V) */
void attni_cross_entropy_forward(attn_loss *loss, const real *logits, const int32_t *targets,
                                 size_t rows, size_t vocab, size_t max_threads) {
    attn_loss parts[CHUNKS];
    int threads = num_threads(rows, vocab, max_threads);
    (void)threads;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (size_t chunk = 0; chunk < CHUNKS; chunk++)
        parts[chunk] = loss_of_rows(logits, targets, chunk_start(chunk, rows),
                                    chunk_start(chunk + 1, rows), vocab);
    attn_loss total = {0};
    for (size_t chunk = 0; chunk < CHUNKS; chunk++) {
        total.mean += parts[chunk].mean;
        total.counted += parts[chunk].counted;
        total.correct += parts[chunk].correct;
    }
    if (total.counted > 0)
        total.mean /= (double)total.counted;
    *loss = total;
}

/* ds_j = factor·(exp(s_j - m)/l - [j = target]), element by element so that ds may be s. */
static void row_backward(real *dlogits, double factor, const real *logits, size_t target,
                         size_t vocab) {
    double sum = exponentials(dlogits, logits, logits[largest(logits, vocab)], vocab);
    real weight = (real)(factor / sum);
    for (size_t j = 0; j < vocab; j++)
        dlogits[j] *= weight;
    dlogits[target] -= (real)factor;
}

/* ds_ij = dloss/n · (p_ij - [j = target_i])      (N,V) from () */
void attni_cross_entropy_backward(real *dlogits, double dloss, const real *logits,
                                  const int32_t *targets, size_t rows, size_t vocab,
                                  size_t max_threads) {
    size_t counted = 0;
    for (size_t i = 0; i < rows; i++)
        counted += targets[i] >= 0;
    double factor = counted > 0 ? dloss / (double)counted : 0;
    int threads = num_threads(rows, vocab, max_threads);
    (void)threads;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (size_t i = 0; i < rows; i++) {
        real *row = dlogits + i * vocab;
        if (targets[i] >= 0)
            row_backward(row, factor, logits + i * vocab, (size_t)targets[i], vocab);
        else
            for (size_t j = 0; j < vocab; j++)
                row[j] = 0;
    }
}

attn_status attn_cross_entropy_forward(attn_loss *loss, const attn_real *logits,
                                       const int32_t *targets, size_t rows, size_t vocab) {
    ATTNI_TRY(attni_cross_entropy_check("attn_cross_entropy_forward", targets, rows, vocab));
    if (!loss || (!logits && rows > 0))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_cross_entropy_forward: %s is NULL",
                          loss ? "logits" : "loss");
    attni_cross_entropy_forward(loss, logits, targets, rows, vocab, 0);
    return ATTN_OK;
}

attn_status attn_cross_entropy_backward(attn_real *dlogits, double dloss, const attn_real *logits,
                                        const int32_t *targets, size_t rows, size_t vocab) {
    ATTNI_TRY(attni_cross_entropy_check("attn_cross_entropy_backward", targets, rows, vocab));
    if ((!dlogits || !logits) && rows > 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_cross_entropy_backward: %s is NULL",
                          dlogits ? "logits" : "dlogits");
    attni_cross_entropy_backward(dlogits, dloss, logits, targets, rows, vocab, 0);
    return ATTN_OK;
}
