#include <attn/isa.h>

#include "base/fail.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char *const isa_names[ATTN_ISA_COUNT] = {"baseline", "avx2", "avx512"};

/* The chosen set plus one; 0 = not chosen yet. Two threads that race here choose the same. */
static atomic_int chosen;

const char *attn_isa_name(attn_isa isa) {
    return (unsigned)isa < ATTN_ISA_COUNT ? isa_names[isa] : "unknown";
}

int attn_isa_available(attn_isa isa) {
    switch (isa) {
    case ATTN_ISA_BASELINE:
        return 1;
#if defined(__x86_64__)
    case ATTN_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case ATTN_ISA_AVX512:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
    default:
        return 0;
    }
}

static attn_isa best_available(void) {
    int isa = ATTN_ISA_COUNT - 1;
    while (!attn_isa_available((attn_isa)isa))
        isa--;
    return (attn_isa)isa;
}

attn_status attn_isa_select(const char *name) {
    if (!name)
        name = getenv("ATTN_ISA");
    if (!name || !*name) {
        atomic_store(&chosen, (int)best_available() + 1);
        return ATTN_OK;
    }
    for (int isa = 0; isa < ATTN_ISA_COUNT; isa++) {
        if (strcmp(name, isa_names[isa]) != 0)
            continue;
        if (!attn_isa_available((attn_isa)isa))
            return attni_fail(ATTN_ERROR_UNSUPPORTED, "ATTN_ISA: this machine has no %s", name);
        atomic_store(&chosen, isa + 1);
        return ATTN_OK;
    }
    return attni_fail(ATTN_ERROR_ARGUMENT, "ATTN_ISA: '%s' is none of baseline, avx2, avx512",
                      name);
}

attn_isa attn_isa_current(void) {
    int isa = atomic_load(&chosen);
    if (isa == 0) {
        if (attn_isa_select(NULL) != ATTN_OK)
            atomic_store(&chosen, (int)best_available() + 1);
        isa = atomic_load(&chosen);
    }
    return (attn_isa)(isa - 1);
}

const char *attn_version(void) {
    return ATTN_VERSION;
}

const char *attn_gemm_name(void) {
#ifdef ATTN_WITH_ONEDNN
    return "oneDNN";
#else
    return "built-in";
#endif
}
