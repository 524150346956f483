#include "kernels/bodies.h"
#include "kernels/simd.h"

/* Independent chains of multiply-adds: enough to cover the latency of two units (4 or 5 cycles),
 * and few enough that they and the two factors fit the registers. Without a fused instruction a
 * multiplication and an addition take its place, both into the chain's own register. */
#if VBYTES == 64 || defined(__aarch64__)
enum { GROUP = 12 };
#else
enum { GROUP = 7 };
#endif
enum { GROUPS = 2, STEPS = 8, READS = 8 };

real KERNEL(read_all)(const real *x, size_t n) {
    vreal sum[READS];
    VEACH (i, READS)
        sum[i] = vzero();
    for (; n >= READS * VLEN; n -= READS * VLEN, x += READS * VLEN)
        VEACH (i, READS)
            sum[i] += vload(x + i * VLEN);
    VEACH (i, READS)
        sum[0] += i > 0 ? sum[i] : vzero();
    return vsum(sum[0]);
}

double KERNEL(fma_chains)(real *sum, size_t rounds) {
    /* x -> x·factor + term has the fixed point 1; volatile keeps the compiler from knowing. */
    const volatile real source[2] = {(real)0.5, (real)0.5};
    const vreal factor = vsplat(source[0]), term = vsplat(source[1]);
    vreal chain[GROUPS][GROUP], total = vzero();
    VEACH (g, GROUPS)
        VEACH (i, GROUP)
            chain[g][i] = vsplat(source[0]);
    for (size_t n = 0; n < rounds; n++)
        VEACH (step, STEPS)
            VEACH (g, GROUPS)
                VEACH (i, GROUP)
                    chain[g][i] = chain[g][i] * factor + term;
    VEACH (g, GROUPS)
        VEACH (i, GROUP)
            total += chain[g][i];
    *sum = vsum(total);
    return (double)rounds * STEPS * GROUPS * GROUP * VLEN * 2;
}
