/*
 * vexp.h (internal) - exp of a vector, to within 2 ulp wherever the result is a normal number.
 */
#ifndef ATTNI_KERNELS_VEXP_H
#define ATTNI_KERNELS_VEXP_H

#include "kernels/simd.h"

#include <math.h>

enum { VEXP_MOST = 8 };

/* x = n ln 2 + r with |r| <= ln 2 / 2, and exp(x) = 2^n exp(r). The quotient is (exp(r) - 1) / r.
 *
 * ln 2 is split in two so that n * LN2_HIGH is exact. The polynomials are minimax for the relative
 * error, with their first two coefficients held at 1: 2.7e-8 for float, 3.7e-18 for double. */
#ifdef ATTN_DOUBLE
#define VEXP_LOG2E    0x1.71547652b82fep0
#define VEXP_LN2      0x1.62e42fefa39efp-1
#define VEXP_LN2_HIGH 0x1.62e42fefa3000p-1
#define VEXP_LN2_LOW  0x1.3de6af278ece6p-42
#define VEXP_SMALLEST -0x1.6232bdd7abcd2p9 /* ln of the smallest normal number */
#define VEXP_LARGEST  0x1.62e42fefa39efp9  /* ln of the largest number */

VINLINE vreal vexp_quotient(vreal r) {
    vreal p = vsplat(2.5000018376404530119e-8) * r + vsplat(2.7630306344621712242e-7);
    p = p * r + vsplat(2.7557586805904075949e-6);
    p = p * r + vsplat(2.4801492949361810685e-5);
    p = p * r + vsplat(1.9841269505770556436e-4);
    p = p * r + vsplat(1.3888888943760232634e-3);
    p = p * r + vsplat(8.3333333334949794524e-3);
    p = p * r + vsplat(4.1666666666529727203e-2);
    p = p * r + vsplat(1.6666666666666411503e-1);
    p = p * r + vsplat(5.0000000000000106689e-1);
    return p * r + vsplat(1);
}
#else
#define VEXP_LOG2E    0x1.715476p0f
#define VEXP_LN2      0x1.62e430p-1f
#define VEXP_LN2_HIGH 0x1.62e4p-1f
#define VEXP_LN2_LOW  0x1.7f7d1cp-20f
#define VEXP_SMALLEST -0x1.5d589ep6f
#define VEXP_LARGEST  0x1.62e42ep6f

VINLINE vreal vexp_quotient(vreal r) {
    vreal p = vsplat(1.4469063365e-3f) * r + vsplat(8.3624409704e-3f);
    p = p * r + vsplat(4.1658715470e-2f);
    p = p * r + vsplat(1.6666602563e-1f);
    p = p * r + vsplat(5.0000015880e-1f);
    return p * r + vsplat(1);
}
#endif

VINLINE vreal vexp_polynomial(vreal r) {
    return vexp_quotient(r) * r + vsplat(1);
}

/* 2^-down exp(x), where down is a whole number that keeps 2^(n - down) a normal number. Results
 * below the smallest normal number are 0. NaN stays NaN. */
VINLINE vreal vexp_scaled(vreal x, vreal down) {
    const vreal n = vround(x * vsplat(VEXP_LOG2E));
    const vreal r = (x - n * vsplat(VEXP_LN2_HIGH)) - n * vsplat(VEXP_LN2_LOW);
    const vmask underflow = vless(x, vsplat(VEXP_SMALLEST));
    return vselect(underflow, vzero(), vscale(vexp_polynomial(r), n - down));
}

/* exp(x) for any x; +inf where it overflows. Near the end 2^n overflows although exp(x) does not,
 * so large results are found 2^64 times smaller first. */
VINLINE vreal vexp(vreal x) {
    const vmask large = vless(vsplat(64), x);
    const vreal down = vselect(large, vsplat(64), vzero());
    const vreal up = vselect(large, vsplat(0x1p64), vsplat(1));
    const vmask overflow = vless(vsplat(VEXP_LARGEST), x);
    return vselect(overflow, vsplat((real)INFINITY), vexp_scaled(x, down) * up);
}

/* x[v] = exp(x[v]) for `count` vectors x <= 0, where 1 is the largest result of a row.
 *
 * With x = (n / VLEN) ln 2 + r, exp(x) = 2^(n / VLEN) exp(r): the lowest bits of n look up a power
 * of the VLEN-th root of 2, the others go into the exponent, and r is so small that a short
 * polynomial does. ln 2 is not split here: the error grows with -x, by at most |x| eps / 6 relative
 * to the result, which falls much faster.
 *
 * The steps of all vectors are interleaved, since one chain of them has more latency than the
 * processor looks ahead. */

#ifdef VLOOKUP

#ifdef ATTN_DOUBLE
#define VEXP_WHOLE 0x1.8p52 /* adding it leaves a whole number in the low bits */
enum { VEXP_LOG2_LANES = 3 };
static const real vexp_roots[VLEN] = {0x1.0000000000000p0, 0x1.172b83c7d517bp0, 0x1.306fe0a31b715p0,
                                      0x1.4bfdad5362a27p0, 0x1.6a09e667f3bcdp0, 0x1.8ace5422aa0dbp0,
                                      0x1.ae89f995ad3adp0, 0x1.d5818dcfba487p0};

/* (exp(r) - 1) / r, to 2.9e-18 of exp(r) for |r| <= ln 2 / 16. */
VINLINE void vexp_quotients(int count, vreal *q, const vreal *r) {
    VEACH (v, count)
        q[v] = vsplat(1.9840564392672997095e-4) * r[v] + vsplat(1.3889782276062985923e-3);
    VEACH (v, count)
        q[v] = q[v] * r[v] + vsplat(8.3333333712664996489e-3);
    VEACH (v, count)
        q[v] = q[v] * r[v] + vsplat(4.1666666569726145944e-2);
    VEACH (v, count)
        q[v] = q[v] * r[v] + vsplat(1.6666666666663708150e-1);
    VEACH (v, count)
        q[v] = q[v] * r[v] + vsplat(5.0000000000002977814e-1);
    VEACH (v, count)
        q[v] = q[v] * r[v] + vsplat(1);
}
#else
#define VEXP_WHOLE 0x1.8p23f
#if VLEN == 16
enum { VEXP_LOG2_LANES = 4 };
static const real vexp_roots[VLEN] = {0x1.000000p0f, 0x1.0b5586p0f, 0x1.172b84p0f, 0x1.2387a6p0f,
                                      0x1.306fe0p0f, 0x1.3dea64p0f, 0x1.4bfdaep0f, 0x1.5ab07ep0f,
                                      0x1.6a09e6p0f, 0x1.7a1148p0f, 0x1.8ace54p0f, 0x1.9c4918p0f,
                                      0x1.ae89fap0f, 0x1.c199bep0f, 0x1.d5818ep0f, 0x1.ea4afap0f};
#define VEXP_Q3 0.16666718560f
#define VEXP_Q2 0.50001618971f
#else
enum { VEXP_LOG2_LANES = 3 };
static const real vexp_roots[VLEN] = {0x1.000000p0f, 0x1.172b84p0f, 0x1.306fe0p0f, 0x1.4bfdaep0f,
                                      0x1.6a09e6p0f, 0x1.8ace54p0f, 0x1.ae89fap0f, 0x1.d5818ep0f};
#define VEXP_Q3 0.16666858758f
#define VEXP_Q2 0.50006460067f
#endif

/* (exp(r) - 1) / r, to 1.6e-9 of exp(r) for |r| <= ln 2 / 32, 2.6e-8 for |r| <= ln 2 / 16. */
VINLINE void vexp_quotients(int count, vreal *q, const vreal *r) {
    VEACH (v, count)
        q[v] = vsplat(VEXP_Q3) * r[v] + vsplat(VEXP_Q2);
    VEACH (v, count)
        q[v] = q[v] * r[v] + vsplat(1);
}
#endif

VINLINE void vexp_weights(int count, vreal *x) {
    vreal n[VEXP_MOST], r[VEXP_MOST], q[VEXP_MOST];
    const vreal roots = vload(vexp_roots);
    const vuint exponent = (vuint)vsplat(-(real)INFINITY); /* the bits of sign and exponent */
    VEACH (v, count)
        n[v] = x[v] * vsplat(VLEN * VEXP_LOG2E) + vsplat(VEXP_WHOLE);
    VEACH (v, count)
        r[v] = x[v] - (n[v] - vsplat(VEXP_WHOLE)) * vsplat(VEXP_LN2 / VLEN);
    vexp_quotients(count, q, r);
    VEACH (v, count) {
        const vuint bits = (vuint)n[v];
        const vuint power = (bits << (VMANTISSA - VEXP_LOG2_LANES)) & exponent;
        n[v] = (vreal)((vuint)vlookup(roots, bits) + power);
    }
    VEACH (v, count)
        r[v] *= n[v];
    VEACH (v, count)
        q[v] = q[v] * r[v] + n[v];
    VEACH (v, count)
        x[v] = vselect(vless(x[v], vsplat(VEXP_SMALLEST)), vzero(), q[v]);
}

#else

VINLINE void vexp_weights(int count, vreal *x) {
    vreal n[VEXP_MOST], r[VEXP_MOST];
    VEACH (v, count)
        n[v] = vround(x[v] * vsplat(VEXP_LOG2E));
    VEACH (v, count)
        r[v] = (x[v] - n[v] * vsplat(VEXP_LN2_HIGH)) - n[v] * vsplat(VEXP_LN2_LOW);
    VEACH (v, count)
        r[v] = vscale(vexp_polynomial(r[v]), n[v]);
    VEACH (v, count)
        x[v] = vselect(vless(x[v], vsplat(VEXP_SMALLEST)), vzero(), r[v]);
}

#endif

VINLINE vreal vexp_weight(vreal x) {
    vexp_weights(1, &x);
    return x;
}

#endif
