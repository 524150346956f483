#include "kernels/bodies.h"
#include "kernels/simd.h"

#define ISA_OF_baseline ATTN_ISA_BASELINE
#define ISA_OF_avx2     ATTN_ISA_AVX2
#define ISA_OF_avx512   ATTN_ISA_AVX512
#define ISA_OF_(isa)    ISA_OF_##isa
#define ISA_OF(isa)     ISA_OF_(isa)

extern const attni_kernels KERNEL(kernels);

const attni_kernels KERNEL(kernels) = {
    .isa = ISA_OF(ATTNI_ISA),
    .lanes = VLEN,
    .exp = KERNEL(exp),
    .gemm = KERNEL(gemm),
    .fma_chains = KERNEL(fma_chains),
};
