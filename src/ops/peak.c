#include <attn/isa.h>

#include "base/real.h"
#include "base/size.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static double seconds_of(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Operations per second of `threads` threads that each run `rounds` rounds. */
static double measure(size_t threads, size_t rounds) {
    const attni_kernels *kernels = attni_kernels_get();
    double operations = 0;
    const double start = seconds_of(CLOCK_MONOTONIC);
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads((int)threads) reduction(+ : operations)
#endif
    for (size_t i = 0; i < threads; i++) {
        real sum;
        operations += kernels->fma_chains(&sum, rounds);
    }
    return operations / (seconds_of(CLOCK_MONOTONIC) - start);
}

/* The best of several short runs: whatever else the machine does can only slow one down. */
double attn_fma_peak(size_t threads) {
    const double slice = 0.01;
    const size_t runs = 10, first_rounds = 1000;
#ifdef _OPENMP
    /* More threads than processors take longer, and reach no more. */
    threads = size_max(size_min(threads, (size_t)omp_get_num_procs()), 1);
#else
    threads = 1;
#endif
    measure(threads, first_rounds); /* wakes the threads */
    /* How many rounds fill a slice is asked of the processor's clock, not the wall's: on a busy
     * machine one thread may have waited most of the time. */
    const double start = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    measure(1, first_rounds);
    const double took = seconds_of(CLOCK_THREAD_CPUTIME_ID) - start;
    const size_t rounds = (size_t)((double)first_rounds * (slice / (took + 1e-9))) + 1;
    double best = 0;
    for (size_t i = 0; i < runs; i++) {
        const double rate = measure(threads, rounds);
        best = rate > best ? rate : best;
    }
    return best * 1e-9;
}

/* Seconds of one pass over x, each thread a part of its own. */
static double read_once(size_t threads, const real *x, size_t n) {
    const attni_kernels *kernels = attni_kernels_get();
    real sum = 0;
    const double start = seconds_of(CLOCK_MONOTONIC);
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads((int)threads) reduction(+ : sum)
#endif
    for (size_t i = 0; i < threads; i++)
        sum += kernels->read_all(x + n / threads * i, n / threads);
    const double seconds = seconds_of(CLOCK_MONOTONIC) - start;
    const volatile real needed = sum;
    (void)needed;
    return seconds;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double attn_read_bandwidth(size_t threads, const void *buffer, size_t bytes) {
    enum { LEAST = 3, MOST = 400 };
    const double enough = 0.02;
    const size_t n = bytes / sizeof(real);
    double seconds[MOST];
    size_t passes = 0;
#ifdef _OPENMP
    threads = size_max(size_min(threads, (size_t)omp_get_num_procs()), 1);
#else
    threads = 1;
#endif
    if (!buffer || n < threads)
        return 0;
    const double start = seconds_of(CLOCK_MONOTONIC);
    read_once(threads, buffer, n);
    for (; passes < LEAST || (passes < MOST && seconds_of(CLOCK_MONOTONIC) - start < enough);
         passes++)
        seconds[passes] = read_once(threads, buffer, n);
    qsort(seconds, passes, sizeof *seconds, compare);
    return (double)(n / threads * threads * sizeof(real)) / seconds[passes / 2] * 1e-9;
}
