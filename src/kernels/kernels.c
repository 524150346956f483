#include "kernels/kernels.h"

#include "kernels/isa_name.h"

extern const attni_kernels KERNEL_OF(kernels, baseline);
#ifdef ATTNI_KERNELS_X86
extern const attni_kernels KERNEL_OF(kernels, avx2);
extern const attni_kernels KERNEL_OF(kernels, avx512);
#endif

const attni_kernels *attni_kernels_for(attn_isa isa) {
    if (!attn_isa_available(isa))
        return NULL;
    switch (isa) {
    case ATTN_ISA_BASELINE:
        return &KERNEL_OF(kernels, baseline);
#ifdef ATTNI_KERNELS_X86
    case ATTN_ISA_AVX2:
        return &KERNEL_OF(kernels, avx2);
    case ATTN_ISA_AVX512:
        return &KERNEL_OF(kernels, avx512);
#endif
    default:
        return NULL;
    }
}

const attni_kernels *attni_kernels_get(void) {
    return attni_kernels_for(attn_isa_current());
}
