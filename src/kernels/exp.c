#include "kernels/bodies.h"
#include "kernels/vexp.h"

void KERNEL(exp)(real *y, const real *x, size_t n) {
    size_t i = 0;
    for (; i + VLEN <= n; i += VLEN)
        vstore(y + i, vexp(vload(x + i)));
    if (i == n)
        return;
    real tail[VLEN] = {0};
    memcpy(tail, x + i, (n - i) * sizeof *x);
    vstore(tail, vexp(vload(tail)));
    memcpy(y + i, tail, (n - i) * sizeof *y);
}
