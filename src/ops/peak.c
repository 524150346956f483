#include <attn/isa.h>

#include "base/real.h"
#include "base/size.h"
#include "kernels/kernels.h"

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
