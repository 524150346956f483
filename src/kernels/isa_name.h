/*
 * isa_name.h (internal) - names for what is compiled once per instruction set.
 *
 * meson.build defines ATTNI_ISA as baseline, avx2 or avx512. KERNEL(exp) is then attni_exp_avx2 in
 * float and attni64_exp_avx2 in double.
 */
#ifndef ATTNI_KERNELS_ISA_NAME_H
#define ATTNI_KERNELS_ISA_NAME_H

#define ATTNI_JOIN_(prefix, name, isa) prefix##_##name##_##isa
#define ATTNI_JOIN(prefix, name, isa)  ATTNI_JOIN_(prefix, name, isa)

#ifdef ATTN_DOUBLE
#define KERNEL_OF(name, isa) ATTNI_JOIN(attni64, name, isa)
#else
#define KERNEL_OF(name, isa) ATTNI_JOIN(attni, name, isa)
#endif

#define KERNEL(name) KERNEL_OF(name, ATTNI_ISA)

#endif
