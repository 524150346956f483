/* Chapter 9: the backward that recomputes P. The text is in 09_recomputing_backward.md. */
#include "lesson.h"

enum { T = 70, DH = 8, N = T * DH };

static attn_real q[N], k[N], v[N], o[N], d_o[N];
static attn_sdpa_input in;
static attn_sdpa_saved saved;

/* The five products, one pair at a time, from q, k, v, o and two numbers per row: no P is stored.
 */
static void backward_by_pairs(attn_real *dq, attn_real *dk, attn_real *dv) {
    const double scale = attn_default_scale(DH);
    for (size_t i = 0; i < T; i++) {
        double m = (double)saved.row_max[i], l = (double)saved.row_sum[i];
        double delta = dot(d_o + i * DH, o + i * DH, DH); /* = rowsum(dP ∘ P) */
        for (size_t j = 0; j <= i; j++) {                 /* causal: later keys are skipped */
            double s = scale * dot(q + i * DH, k + j * DH, DH);
            double p = exp(s - m) / l;
            double dp = dot(d_o + i * DH, v + j * DH, DH);
            double ds = scale * p * (dp - delta);
            for (size_t c = 0; c < DH; c++) {
                dv[j * DH + c] += (attn_real)(p * (double)d_o[i * DH + c]);
                dk[j * DH + c] += (attn_real)(ds * (double)q[i * DH + c]);
                dq[i * DH + c] += (attn_real)(ds * (double)k[j * DH + c]);
            }
        }
    }
}

static void recompute(void) {
    attn_strides strides = attn_strides_bhtd(T, 1, DH);
    attn_sdpa_config cfg = {.kernel = ATTN_KERNEL_FUSED};
    attn_sdpa_output out = {.context = o, .context_strides = strides};
    static attn_real dq[N], dk[N], dv[N], dq_pairs[N], dk_pairs[N], dv_pairs[N];
    attn_sdpa_grads grads = {dq, dk, dv, strides, strides, strides};
    attn_memory need;
    attn_arena arena;
    in = (attn_sdpa_input){.shape = {1, 1, T, T, DH},
                           .query = q,
                           .key = k,
                           .value = v,
                           .query_strides = strides,
                           .key_strides = strides,
                           .value_strides = strides,
                           .mask = {.causal = true}};
    fill(q, N, 1, 1);
    fill(k, N, 1, 2);
    fill(v, N, 1, 3);
    fill(d_o, N, 1, 4);
    must(attn_sdpa_memory(&cfg, &in, &out, &need));
    must(attn_arena_create(&arena, need.training));
    must(attn_sdpa_forward(&cfg, &in, &out, &arena, &saved));
    must(attn_sdpa_backward(&cfg, &saved, d_o, &strides, &grads, &arena));
    backward_by_pairs(dq_pairs, dk_pairs, dv_pairs);
    printf("one causal head, T = %d, from q, k, v, o and (m, l) of each row\n", T);
    printf("  largest difference to attn_sdpa_backward: dq %.0e dk %.0e dv %.0e\n",
           distance(dq, dq_pairs, N), distance(dk, dk_pairs, N), distance(dv, dv_pairs, N));
    claim(distance(dq, dq_pairs, N) < 1e-4 && distance(dk, dk_pairs, N) < 1e-4 &&
              distance(dv, dv_pairs, N) < 1e-4,
          "P need not be stored");
    attn_arena_destroy(&arena);
}

/* m and l, not log-sum-exp alone: a finite bias may be so large that log l is lost beside it. */
static void why_two_numbers(void) {
    const float m = -1e30f, l = 4, lse = m + logf(l);
    printf("\nfour keys with the same score of -1e30, in float\n");
    printf("  from lse:      each weight exp(s - lse)   = %g\n", (double)expf(m - lse));
    printf("  from m and l:  each weight exp(s - m) / l = %g\n", (double)(expf(m - m) / l));
    claim(expf(m - lse) == 1 && expf(m - m) / l == 0.25f,
          "lse alone forgets how many keys there were");
}

static void memory_at_32k(void) {
    static attn_real any;
    printf("\none training step of a layer, (1, T, 512, 8) causal, bytes of arena in MiB\n");
    printf("        T   8·T·D·4      fused    reference\n");
    double fused = 0, floor_mib = 0;
    for (size_t len = 1024; len <= 32768; len *= 2) {
        attn_mha_config cfg = {.d_model = 512, .num_heads = 8, .max_threads = 2};
        attn_mha_input call = {.batch = 1, .len_q = len, .query = &any, .mask = {.causal = true}};
        attn_memory lean, whole;
        must(attn_mha_memory(&cfg, &call, &lean));
        cfg.kernel = ATTN_KERNEL_REFERENCE;
        must(attn_mha_memory(&cfg, &call, &whole));
        floor_mib = 8.0 * (double)len * 512 * sizeof(attn_real) / 1048576;
        fused = (double)lean.training / 1048576;
        printf("  %7zu  %8.0f  %9.1f  %11.1f\n", len, floor_mib, fused,
               (double)whole.training / 1048576);
    }
    claim(fused < 1.3 * floor_mib, "q, k, v, context and their gradients are nearly all of it");
}

int main(void) {
    recompute();
    why_two_numbers();
    memory_at_32k();
    return 0;
}
