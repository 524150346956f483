/*
 * parallel.h (internal) - how many threads a loop over independent tasks may use.
 */
#ifndef ATTNI_PARALLEL_H
#define ATTNI_PARALLEL_H

#include "base/size.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/* A region of threads costs some microseconds: below this many multiply-adds one thread is faster.
 */
#define PARALLEL_MIN_WORK ((size_t)1 << 19)

/* More threads than this, and more than OpenMP would use, are a slip: libgomp ends the process
 * where the system cannot start them. */
#define PARALLEL_MAX_THREADS ((size_t)1024)

/* `max_threads` as a configuration gives it, 0 = as many as OpenMP would use. At least 1. */
static inline size_t threads_resolve(size_t max_threads) {
#ifdef _OPENMP
    size_t available = (size_t)omp_get_max_threads();
    return size_min(max_threads ? max_threads : available,
                    size_max(available, PARALLEL_MAX_THREADS));
#else
    (void)max_threads;
    return 1;
#endif
}

/* Threads for `tasks` tasks of `work_each` multiply-adds: one where a region would not pay. */
static inline int threads_for(size_t max_threads, size_t tasks, size_t work_each) {
    size_t work;
    if (size_mul(&work, tasks, work_each) && work < PARALLEL_MIN_WORK)
        return 1;
    return (int)size_max(1, size_min(tasks, threads_resolve(max_threads)));
}

/* This thread's number within its region. */
static inline size_t thread_slot(void) {
#ifdef _OPENMP
    return (size_t)omp_get_thread_num();
#else
    return 0;
#endif
}

/* Threads of its region. */
static inline size_t thread_count(void) {
#ifdef _OPENMP
    return (size_t)omp_get_num_threads();
#else
    return 1;
#endif
}

#endif
