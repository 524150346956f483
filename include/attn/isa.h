/*
 * isa.h - which instruction set the kernels use, and what the library was built with.
 *
 * The best set that the processor and the library share is chosen at the first use. The environment
 * variable ATTN_ISA (baseline, avx2, avx512) lowers the choice.
 */
#ifndef ATTN_ISA_H
#define ATTN_ISA_H

#include <attn/status.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attn_isa {
    ATTN_ISA_BASELINE = 0,
    ATTN_ISA_AVX2,
    ATTN_ISA_AVX512,
    ATTN_ISA_COUNT
} attn_isa;

/* Chooses an instruction set by name for the whole process; NULL reads ATTN_ISA, or picks the best
 * where it is unset or empty. ATTN_ERROR_ARGUMENT for an unknown name, ATTN_ERROR_UNSUPPORTED for
 * one that this machine lacks; the choice stays as it was then. Call it before other threads use
 * the library. Without this call a bad ATTN_ISA makes the first use fall back to the best set. */
ATTN_API attn_status attn_isa_select(const char *name);

/* The set in use, its name, and whether this machine and build can use a given one. */
ATTN_API attn_isa attn_isa_current(void);
ATTN_API const char *attn_isa_name(attn_isa isa);
ATTN_API int attn_isa_available(attn_isa isa);

/* The peak rate of fused multiply-adds that `threads` threads reach here and now, in GFLOP/s (an
 * FMA counts two). Measured for about 0.1 s with the current instruction set. Precision-bound. */
ATTN_API double attn_fma_peak(size_t threads);

/* The rate at which `threads` threads read `bytes` bytes over and over, in GB/s: the median pass of
 * 0.02 s, after the first. What fits a cache is read from there. 0 without a buffer.
 * Precision-bound. */
ATTN_API double attn_read_bandwidth(size_t threads, const void *buffer, size_t bytes);

/* "0.1.0", and what serves float matrix products in this build: "oneDNN" or "built-in". */
ATTN_API const char *attn_version(void);
ATTN_API const char *attn_gemm_name(void);

#ifdef __cplusplus
}
#endif

#endif
