/* What `attn bench` says about a measurement, as a row of a table or as JSON. */
#include "bench.h"

#include <attn/isa.h>

#include <stdio.h>

static const char *case_kind(const bench_case *c) {
    return c->layer ? "layer" : "core";
}

static const char *case_kernel(const bench_result *r) {
    return r->kernel == ATTN_KERNEL_FUSED ? "fused" : "reference";
}

static double gflops(double flops, double seconds) {
    return flops / seconds * 1e-9;
}

void bench_print_heading(const bench_case *c) {
    printf("%s, %s, %zu thread%s, matrix products: %s\n\n", c->in_double ? "double" : "float",
           attn_isa_name(attn_isa_current()), c->threads, c->threads == 1 ? "" : "s",
           attn_gemm_name());
    if (bench_has_variants(&c->variants)) {
        char words[256];
        bench_variants_words(words, sizeof words, &c->variants);
        printf("%s\n\n", words);
    }
    printf("                             kernel      forward               forward+backward      "
           "      peak          arena\n"
           "what   shape         causal                  ms GFLOP/s    %%         ms GFLOP/s    %% "
           "  GFLOP/s          bytes\n");
}

void bench_print_row(const bench_case *c, const bench_result *r) {
    const double forward = gflops(r->forward_flops, r->forward);
    const double both = gflops(r->forward_backward_flops, r->forward_backward);
    printf("%-6s %-13s %-6s %-10s %9.3f %7.1f %4.0f  %9.3f %7.1f %4.0f %9.1f %14zu\n", case_kind(c),
           c->shape.name, c->causal ? "yes" : "no", case_kernel(r), r->forward * 1e3, forward,
           100 * forward / r->fma_peak, r->forward_backward * 1e3, both, 100 * both / r->fma_peak,
           r->fma_peak, r->arena_bytes);
    if (r->has_plain)
        printf("plain, in turns with it:                %9.3f %12.2fx  %9.3f %12.2fx\n",
               r->plain_forward * 1e3, r->plain_forward_ratio, r->plain_forward_backward * 1e3,
               r->plain_ratio);
    fflush(stdout);
}

static void json_variants(tool_json *json, const bench_case *c) {
    const bench_variants *v = &c->variants;
    tool_json_count(json, "kv_heads", bench_kv_heads(c));
    tool_json_count(json, "window", v->window);
    tool_json_string(json, "rope", bench_rope_name(v->rope));
    tool_json_number(json, "softcap", v->softcap);
    tool_json_bool(json, "alibi", v->alibi);
    tool_json_bool(json, "sinks", v->sinks);
    tool_json_number(json, "dropout", v->dropout);
    if (!v->has_bias) {
        tool_json_string(json, "bias", NULL);
        return;
    }
    tool_json_open(json, "bias", '[');
    for (size_t i = 0; i < 4; i++)
        tool_json_count(json, NULL, v->bias[i]);
    tool_json_close(json, ']');
}

static void json_plain(tool_json *json, const bench_result *r) {
    if (!r->has_plain)
        return;
    tool_json_number(json, "plain_forward_ms", r->plain_forward * 1e3);
    tool_json_number(json, "plain_forward_backward_ms", r->plain_forward_backward * 1e3);
    tool_json_number(json, "plain_forward_ratio", r->plain_forward_ratio);
    tool_json_number(json, "plain_ratio", r->plain_ratio);
}

void bench_json_case(tool_json *json, const bench_case *c, const bench_result *r) {
    const double forward = gflops(r->forward_flops, r->forward);
    const double both = gflops(r->forward_backward_flops, r->forward_backward);
    tool_json_open(json, NULL, '{');
    tool_json_string(json, "what", case_kind(c));
    tool_json_string(json, "shape", c->shape.name);
    tool_json_string(json, "kernel", case_kernel(r));
    tool_json_bool(json, "causal", c->causal);
    json_variants(json, c);
    tool_json_count(json, "threads", c->threads);
    tool_json_string(json, "precision", c->in_double ? "double" : "float");
    tool_json_string(json, "isa", attn_isa_name(attn_isa_current()));
    tool_json_number(json, "forward_ms", r->forward * 1e3);
    tool_json_number(json, "forward_backward_ms", r->forward_backward * 1e3);
    tool_json_number(json, "forward_gflops", forward);
    tool_json_number(json, "forward_backward_gflops", both);
    tool_json_number(json, "fma_peak_gflops", r->fma_peak);
    tool_json_number(json, "forward_fraction", forward / r->fma_peak);
    tool_json_number(json, "forward_backward_fraction", both / r->fma_peak);
    tool_json_count(json, "arena_bytes", r->arena_bytes);
    json_plain(json, r);
    tool_json_close(json, '}');
}
