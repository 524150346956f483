/*
 * vtanh.h (internal) - tanh of a vector, to within 4 ulp.
 *
 *     tanh |x| = -e / (2 + e),    e = exp(-2|x|) - 1 = 2^n·(exp(r) - 1) + (2^n - 1)
 *
 * with -2|x| = n ln 2 + r as in vexp.h. 2^n - 1 is exact where it matters, and near 0, where n = 0,
 * e is as good as exp(r) - 1: the error is relative everywhere. ln 2 need not be split: n times its
 * error is multiplied by 2^n, n <= 0.
 */
#ifndef ATTNI_KERNELS_VTANH_H
#define ATTNI_KERNELS_VTANH_H

#include "kernels/vexp.h"

#ifdef ATTN_DOUBLE
#define VTANH_END -44.0 /* tanh is 1 before -2|x| gets there */
#else
#define VTANH_END -20.0f
#endif

VINLINE vreal vtanh(vreal x) {
    const vuint sign = (vuint)vsplat(-(real)0.0);
    const vreal down = (vreal)((vuint)x | sign);
    const vreal z = vmax(vsplat(VTANH_END), down + down); /* NaN stays NaN */
    const vreal n = vround(z * vsplat(VEXP_LOG2E));
    const vreal r = z - n * vsplat(VEXP_LN2);
    const vreal power = vscale(vsplat(1), n);
    const vreal e = vexp_quotient(r) * r * power + (power - vsplat(1));
    const vreal t = e / (vsplat(-2) - e);
    return (vreal)(((vuint)t & ~sign) | ((vuint)x & sign));
}

#endif
