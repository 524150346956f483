/*
 * vexp.h (internal) - exp of a vector, to within 2 ulp wherever the result is a normal number.
 */
#ifndef ATTNI_KERNELS_VEXP_H
#define ATTNI_KERNELS_VEXP_H

#include "kernels/simd.h"

#include <math.h>

/* x = n ln 2 + r with |r| <= ln 2 / 2, and exp(x) = 2^n exp(r).
 *
 * Adding SHIFT = 1.5 * 2^MANTISSA + bias rounds n to an integer and leaves n + bias in the low
 * bits: moved MANTISSA places to the left, they are the bits of 2^n. ln 2 is split in two so that
 * n * LN2_HIGH is exact. The polynomials are minimax for the relative error, with their first two
 * coefficients held at 1: 2.7e-8 for float, 3.7e-18 for double. */
#ifdef ATTN_DOUBLE
#define VEXP_MANTISSA 52
#define VEXP_SHIFT    0x1.80000000003ffp52
#define VEXP_LOG2E    0x1.71547652b82fep0
#define VEXP_LN2_HIGH 0x1.62e42fefa3000p-1
#define VEXP_LN2_LOW  0x1.3de6af278ece6p-42
#define VEXP_SMALLEST -0x1.6232bdd7abcd2p9 /* ln of the smallest normal number */
#define VEXP_LARGEST  0x1.62e42fefa39efp9  /* ln of the largest number */

VINLINE vreal vexp_polynomial(vreal r) {
    vreal p = vsplat(2.5000018376404530119e-8) * r + vsplat(2.7630306344621712242e-7);
    p = p * r + vsplat(2.7557586805904075949e-6);
    p = p * r + vsplat(2.4801492949361810685e-5);
    p = p * r + vsplat(1.9841269505770556436e-4);
    p = p * r + vsplat(1.3888888943760232634e-3);
    p = p * r + vsplat(8.3333333334949794524e-3);
    p = p * r + vsplat(4.1666666666529727203e-2);
    p = p * r + vsplat(1.6666666666666411503e-1);
    p = p * r + vsplat(5.0000000000000106689e-1);
    p = p * r + vsplat(1);
    return p * r + vsplat(1);
}
#else
#define VEXP_MANTISSA 23
#define VEXP_SHIFT    0x1.8000fep23f
#define VEXP_LOG2E    0x1.715476p0f
#define VEXP_LN2_HIGH 0x1.62e4p-1f
#define VEXP_LN2_LOW  0x1.7f7d1cp-20f
#define VEXP_SMALLEST -0x1.5d589ep6f
#define VEXP_LARGEST  0x1.62e42ep6f

VINLINE vreal vexp_polynomial(vreal r) {
    vreal p = vsplat(1.4469063365e-3f) * r + vsplat(8.3624409704e-3f);
    p = p * r + vsplat(4.1658715470e-2f);
    p = p * r + vsplat(1.6666602563e-1f);
    p = p * r + vsplat(5.0000015880e-1f);
    p = p * r + vsplat(1);
    return p * r + vsplat(1);
}
#endif

/* 2^-down exp(x), where down is a whole number that keeps 2^(n - down) a normal number. Results
 * below the smallest normal number are 0. NaN stays NaN. */
VINLINE vreal vexp_scaled(vreal x, vreal down) {
    const vreal shifted = x * vsplat(VEXP_LOG2E) + vsplat(VEXP_SHIFT);
    const vreal n = shifted - vsplat(VEXP_SHIFT);
    const vreal r = (x - n * vsplat(VEXP_LN2_HIGH)) - n * vsplat(VEXP_LN2_LOW);
    const vreal power = (vreal)((vuint)(shifted - down) << VEXP_MANTISSA);
    const vmask underflow = vless(x, vsplat(VEXP_SMALLEST));
    return vselect(underflow, vzero(), vexp_polynomial(r) * power);
}

/* exp(x) for x <= 0, all that a softmax needs. */
VINLINE vreal vexp_nonpositive(vreal x) {
    return vexp_scaled(x, vzero());
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

#endif
