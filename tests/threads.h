/*
 * threads.h - sets the threads that OpenMP would use, for operations that take no number.
 */
#ifndef THREADS_H
#define THREADS_H

#ifdef _OPENMP
#include <omp.h>
#endif

static inline void test_set_threads(int threads) {
#ifdef _OPENMP
    omp_set_num_threads(threads);
#else
    (void)threads;
#endif
}

/* Numbers of threads whose results must be the same bits. */
static const int test_thread_counts[] = {1, 2, 3, 8};

#endif
