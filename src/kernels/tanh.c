#include "kernels/bodies.h"
#include "kernels/vtanh.h"

void KERNEL(tanh)(real *y, const real *x, size_t n) {
    size_t i = 0;
    for (; i + VLEN <= n; i += VLEN)
        vstore(y + i, vtanh(vload(x + i)));
    if (i < n)
        vstore_part(y + i, vtanh(vload_part(x + i, n - i)), n - i);
}
