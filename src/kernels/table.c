#include "kernels/bodies.h"
#include "kernels/fused_tile.h"

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
    .tanh = KERNEL(tanh),
    .gemm = KERNEL(gemm),
    .few_rows = KERNEL(few_rows),
    .rope = KERNEL(rope),
    .decode = KERNEL(decode),
    .decode_scratch = KERNEL(decode_scratch),
    .read_all = KERNEL(read_all),
    .fma_chains = KERNEL(fma_chains),
    .philox = KERNEL(philox),
    .fused_forward = KERNEL(fused_forward),
    .fused_forward_scratch = KERNEL(fused_forward_scratch),
    .fused_backward = KERNEL(fused_backward),
    .fused_backward_scratch = KERNEL(fused_backward_scratch),
    .fused_weights = KERNEL(fused_weights),
    .fused_weights_scratch = KERNEL(fused_weights_scratch),
    .fused_queries_per_pass = KERNEL(fused_queries_per_pass),
    .fused_query_tile = QUERY_TILE,
    .fused_key_tile = KEY_TILE,
};
