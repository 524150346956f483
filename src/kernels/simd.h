/*
 * simd.h (internal) - the vectors of the instruction set that a file is compiled for.
 *
 * A `vreal` fills the widest register: 64 bytes with AVX-512, 32 with AVX2, 16 elsewhere (SSE2,
 * NEON). Sums, products and fused multiply-adds are written with the ordinary operators:
 *
 *     acc += vbroadcast(&a[i]) * vload(&b[j]);
 *
 * (the kernels are compiled with -ffp-contract=fast, so this is one fma where there is one). What
 * the operators cannot say is below. The few overrides per instruction set are here and nowhere
 * else; every other file of the kernels is the same source on every machine.
 */
#ifndef ATTNI_KERNELS_SIMD_H
#define ATTNI_KERNELS_SIMD_H

#include "base/real.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define VBYTES 64
#elif defined(__AVX2__)
#define VBYTES 32
#else
#define VBYTES 16
#endif

#ifdef ATTN_DOUBLE
#define VLEN (VBYTES / 8)
typedef int64_t ireal;
typedef uint64_t ureal;
#else
#define VLEN (VBYTES / 4)
typedef int32_t ireal;
typedef uint32_t ureal;
#endif

#define VINLINE static inline __attribute__((always_inline))

/* for (int i = 0; i < n; i++), unrolled: n is small and a constant once all is inlined, so that
 * arrays of vectors indexed by i become registers. */
#ifdef __clang__
#define VEACH(i, n) _Pragma("clang loop unroll(full)") for (int i = 0; i < (n); i++)
#else
#define VEACH(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)
#endif

typedef real vreal __attribute__((vector_size(VBYTES)));
typedef ireal vint __attribute__((vector_size(VBYTES)));
typedef ureal vuint __attribute__((vector_size(VBYTES)));
typedef real vreal_unaligned_
    __attribute__((vector_size(VBYTES), aligned(sizeof(real)), may_alias));
typedef uint8_t vbytes_ __attribute__((vector_size(VLEN)));

/* Lists x once per lane. The compilers turn an initialiser of this form, filled from memory, into a
 * broadcasting load; `x * vector` would become a load and a register broadcast, which on AVX-512
 * takes one of the two ports that multiply. */
#if VLEN == 2
#define VSPLAT_(x) \
    { x, x }
#elif VLEN == 4
#define VSPLAT_(x) \
    { x, x, x, x }
#elif VLEN == 8
#define VSPLAT_(x) \
    { x, x, x, x, x, x, x, x }
#else
#define VSPLAT_(x) \
    { x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x }
#endif

VINLINE vreal vload(const real *p) {
    return *(const vreal_unaligned_ *)p;
}
VINLINE void vstore(real *p, vreal v) {
    *(vreal_unaligned_ *)p = v;
}

VINLINE vreal vbroadcast(const real *p) {
    const real x = *p;
    return (vreal)VSPLAT_(x);
}

VINLINE vreal vsplat(real x) {
    return (vreal)VSPLAT_(x);
}
VINLINE vreal vzero(void) {
    return vsplat(0);
}

/* A comparison's result: a mask register with AVX-512, else a vector of all-ones and zero lanes. */
#if VBYTES == 64

#ifdef ATTN_DOUBLE
typedef __mmask8 vmask;
VINLINE vmask vless(vreal a, vreal b) {
    return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ);
}
VINLINE vmask vequal(vreal a, vreal b) {
    return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ);
}
VINLINE vreal vselect(vmask m, vreal a, vreal b) {
    return _mm512_mask_blend_pd(m, b, a);
}
VINLINE vreal vmax(vreal a, vreal b) {
    return _mm512_max_pd(a, b);
}
#else
typedef __mmask16 vmask;
VINLINE vmask vless(vreal a, vreal b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
VINLINE vmask vequal(vreal a, vreal b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
VINLINE vreal vselect(vmask m, vreal a, vreal b) {
    return _mm512_mask_blend_ps(m, b, a);
}
VINLINE vreal vmax(vreal a, vreal b) {
    return _mm512_max_ps(a, b);
}
#endif

#else

typedef vint vmask;
VINLINE vmask vless(vreal a, vreal b) {
    return a < b;
}
VINLINE vmask vequal(vreal a, vreal b) {
    return a == b;
}

/* Lanes of a where the mask is set, of b elsewhere. */
VINLINE vreal vselect(vmask m, vreal a, vreal b) {
    return (vreal)((m & (vint)a) | (~m & (vint)b));
}

/* The larger of both; b where either is NaN. */
#if VBYTES == 32 && defined(ATTN_DOUBLE)
VINLINE vreal vmax(vreal a, vreal b) {
    return _mm256_max_pd(a, b);
}
#elif VBYTES == 32
VINLINE vreal vmax(vreal a, vreal b) {
    return _mm256_max_ps(a, b);
}
#elif defined(__SSE2__) && defined(ATTN_DOUBLE)
VINLINE vreal vmax(vreal a, vreal b) {
    return _mm_max_pd(a, b);
}
#elif defined(__SSE2__)
VINLINE vreal vmax(vreal a, vreal b) {
    return _mm_max_ps(a, b);
}
#else
VINLINE vreal vmax(vreal a, vreal b) {
    return vselect(vless(b, a), a, b);
}
#endif

#endif

VINLINE vreal vabs(vreal x) {
    return (vreal)((vuint)x & ~(vuint)vsplat(-(real)0.0));
}

/* The mask of the lanes whose byte is not zero. */
VINLINE vmask vmask_from_bytes(const uint8_t *p) {
#if VBYTES == 64 && defined(ATTN_DOUBLE)
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)p);
    return (vmask)_mm_test_epi8_mask(bytes, bytes);
#elif VBYTES == 64
    const __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    return _mm_test_epi8_mask(bytes, bytes);
#else
    vbytes_ bytes;
    memcpy(&bytes, p, sizeof bytes);
    return vless(vzero(), __builtin_convertvector(bytes, vreal));
#endif
}

/* t to the nearest whole number, and p · 2^n for a whole n that keeps the result a normal number.
 * NaN in p stays NaN whatever its payload, so bits of a NaN in n must not be added to it: the
 * conversion to integers yields bits that vanish in the shift, and where there is none the power is
 * multiplied. */
#ifdef ATTN_DOUBLE
#define VMANTISSA 52
#define VSHIFT    0x1.80000000003ffp52 /* 1.5 · 2^52 + bias: n + this has n + bias in its low bits */
#else
#define VMANTISSA 23
#define VSHIFT    0x1.8000fep23f
#endif

#if VBYTES == 64 && defined(ATTN_DOUBLE)
VINLINE vreal vround(vreal t) {
    return _mm512_roundscale_pd(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VINLINE vuint vpower_bits(vreal n) {
    return (vuint)_mm512_cvtpd_epi64(n) << VMANTISSA;
}
#elif VBYTES == 64
VINLINE vreal vround(vreal t) {
    return _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VINLINE vuint vpower_bits(vreal n) {
    return (vuint)_mm512_cvtps_epi32(n) << VMANTISSA;
}
#elif VBYTES == 32 && !defined(ATTN_DOUBLE)
VINLINE vreal vround(vreal t) {
    return _mm256_round_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VINLINE vuint vpower_bits(vreal n) {
    return (vuint)_mm256_cvtps_epi32(n) << VMANTISSA;
}
#else
#define VPOWER_BY_PRODUCT
VINLINE vreal vround(vreal t) {
    return (t + vsplat(VSHIFT)) - vsplat(VSHIFT);
}
#endif

VINLINE vreal vscale(vreal p, vreal n) {
#ifdef VPOWER_BY_PRODUCT
    return p * (vreal)((vuint)(n + vsplat(VSHIFT)) << VMANTISSA);
#else
    return (vreal)((vuint)p + vpower_bits(n));
#endif
}

/* Lane i becomes table[the lowest log2(VLEN) bits of index[i]]. Not everywhere. */
#if VBYTES == 64 && defined(ATTN_DOUBLE)
#define VLOOKUP
VINLINE vreal vlookup(vreal table, vuint index) {
    return _mm512_permutexvar_pd((__m512i)index, table);
}
#elif VBYTES == 64
#define VLOOKUP
VINLINE vreal vlookup(vreal table, vuint index) {
    return _mm512_permutexvar_ps((__m512i)index, table);
}
#elif VBYTES == 32 && !defined(ATTN_DOUBLE)
#define VLOOKUP
VINLINE vreal vlookup(vreal table, vuint index) {
    return _mm256_permutevar8x32_ps(table, (__m256i)index);
}
#endif

/* Lanes of 64 bits, for whole numbers: half as many as in float. */
typedef uint64_t vwide __attribute__((vector_size(VBYTES)));
enum { VWIDE_LEN = VBYTES / 8 };

VINLINE vwide vwide_splat(uint64_t x) {
    return x - (vwide){0};
}

/* The whole product of the low halves; the high ones may hold anything. */
VINLINE vwide vwide_multiply(vwide a, vwide b) {
#if VBYTES == 64
    return (vwide)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif VBYTES == 32
    return (vwide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (vwide)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    const vwide low = vwide_splat(UINT32_MAX);
    return (a & low) * (b & low);
#endif
}

/* Where a > b, as numbers without sign below 2^32. */
VINLINE vmask vabove(vuint a, vuint b) {
#if VBYTES == 64 && defined(ATTN_DOUBLE)
    return _mm512_cmpgt_epi64_mask((__m512i)a, (__m512i)b);
#elif VBYTES == 64
    return _mm512_cmpgt_epu32_mask((__m512i)a, (__m512i)b);
#elif defined(ATTN_DOUBLE)
    return (vint)a > (vint)b;
#else
    return a > b;
#endif
}

/* Lane numbers 0, 1, 2, ... */
VINLINE vreal vlane(void) {
    vreal v;
    for (int i = 0; i < VLEN; i++)
        v[i] = (real)i;
    return v;
}

/* Sum of the lanes, always in the same order: halves are added until one lane is left. */
VINLINE real vsum(vreal v) {
    real lane[VLEN];
    vstore(lane, v);
    for (int half = VLEN / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

/* The first n <= VLEN reals at p, zeros behind them; writes the first n lanes. Neither reads nor
 * writes anything past them. */
#if VBYTES == 64 && defined(ATTN_DOUBLE)
VINLINE vreal vload_part(const real *p, size_t n) {
    return _mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), p);
}
VINLINE void vstore_part(real *p, vreal v, size_t n) {
    _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), v);
}
#elif VBYTES == 64
VINLINE vreal vload_part(const real *p, size_t n) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
VINLINE void vstore_part(real *p, vreal v, size_t n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}
#else
VINLINE vreal vload_part(const real *p, size_t n) {
    real lane[VLEN] = {0};
    memcpy(lane, p, n * sizeof *p);
    return vload(lane);
}

VINLINE void vstore_part(real *p, vreal v, size_t n) {
    real lane[VLEN];
    vstore(lane, v);
    memcpy(p, lane, n * sizeof *p);
}
#endif

/* a0 b0 a1 b1 ... from the lower halves of a and b, and the same from the upper ones. */
#if VLEN == 2
#define VZIP_LOW_  0, 2
#define VZIP_HIGH_ 1, 3
#elif VLEN == 4
#define VZIP_LOW_  0, 4, 1, 5
#define VZIP_HIGH_ 2, 6, 3, 7
#elif VLEN == 8
#define VZIP_LOW_  0, 8, 1, 9, 2, 10, 3, 11
#define VZIP_HIGH_ 4, 12, 5, 13, 6, 14, 7, 15
#else
#define VZIP_LOW_  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define VZIP_HIGH_ 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#endif

/* One perfect shuffle of the elements of VLEN vectors; log2(VLEN) of them transpose. */
VINLINE void vshuffle_(vreal *v) {
    vreal zipped[VLEN];
    VEACH (i, VLEN / 2) {
        zipped[2 * i] = __builtin_shufflevector(v[i], v[i + VLEN / 2], VZIP_LOW_);
        zipped[2 * i + 1] = __builtin_shufflevector(v[i], v[i + VLEN / 2], VZIP_HIGH_);
    }
    VEACH (i, VLEN)
        v[i] = zipped[i];
}

/* Transposes VLEN vectors in place. */
VINLINE void vtranspose(vreal v[VLEN]) {
    for (int round = 1; round < VLEN; round *= 2)
        vshuffle_(v);
}

#endif
