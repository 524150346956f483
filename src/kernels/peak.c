#include "kernels/bodies.h"
#include "kernels/simd.h"

/* Independent chains of multiply-adds: enough to cover the latency of two units (4 or 5 cycles) or
 * of four, and few enough that they and the two factors fit the registers. Without a fused
 * instruction a multiplication and an addition take its place and need a register in between. */
#if VBYTES == 64 || defined(__aarch64__)
enum { CHAINS = 24 };
#else
enum { CHAINS = 12 };
#endif
enum { STEPS = 8 };

double KERNEL(fma_chains)(real *sum, size_t rounds) {
    /* x -> x·factor + term has the fixed point 1; volatile keeps the compiler from knowing. */
    const volatile real source[2] = {(real)0.5, (real)0.5};
    const vreal factor = vsplat(source[0]), term = vsplat(source[1]);
    vreal chain[CHAINS];
#pragma GCC unroll 32
    for (int i = 0; i < CHAINS; i++)
        chain[i] = vsplat(source[0]);
    for (size_t n = 0; n < rounds; n++)
#pragma GCC unroll 8
        for (int step = 0; step < STEPS; step++)
#pragma GCC unroll 32
            for (int i = 0; i < CHAINS; i++)
                chain[i] = chain[i] * factor + term;
    vreal total = vzero();
#pragma GCC unroll 32
    for (int i = 0; i < CHAINS; i++)
        total += chain[i];
    *sum = vsum(total);
    return (double)rounds * STEPS * CHAINS * VLEN * 2;
}
