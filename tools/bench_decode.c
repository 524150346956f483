/* attn bench decode - a token at a time behind a cache, against the machine's own reading speed. */
#include "bench_decode.h"

#include "output.h"
#include "plot.h"
#include "tool.h"

#include <attn/isa.h>

#include <stdio.h>

int bench64_decode_run(const bench_case *c, bench_decoding *result);
double bench64_decode_step(const bench_case *c);
double bench64_decode_forward(const bench_case *c);

static double fraction(double bytes, double seconds, double bandwidth) {
    return bytes / seconds * 1e-9 / bandwidth;
}

static void print_part(const char *name, double seconds, double bytes, double bandwidth) {
    printf("%-12s %9.4f %14.0f %9.1f", name, seconds * 1e3, bytes, bytes / seconds * 1e-9);
    if (bandwidth > 0)
        printf(" %9.1f %5.0f", bandwidth, 100 * fraction(bytes, seconds, bandwidth));
    printf("\n");
}

static void print_result(const bench_case *c, const bench_decoding *r) {
    char words[256];
    bench_variants_words(words, sizeof words, &c->variants);
    printf("decode %s, %s, %s, %zu thread%s%s%s\n\n", c->shape.name,
           c->in_double ? "double" : "float", attn_isa_name(attn_isa_current()), c->threads,
           c->threads == 1 ? "" : "s", words[0] ? ", " : "", words);
    printf("                    ms     bytes read      GB/s  a buffer    %%\n");
    print_part("attention", r->attention, r->cached_bytes, r->bandwidth);
    print_part("projections", r->projections, r->weight_bytes, 0);
    print_part("whole token", r->step, r->cached_bytes + r->weight_bytes, r->step_bandwidth);
    printf("\n%.1f tokens/s, a cache of %zu bytes\n", (double)c->shape.batch / r->step,
           r->cache_bytes);
}

static void json_result(tool_json *json, const bench_case *c, const bench_decoding *r) {
    const bench_variants *v = &c->variants;
    const double step_bytes = r->cached_bytes + r->weight_bytes, batch = (double)c->shape.batch;
    tool_json_open(json, NULL, '{');
    tool_json_string(json, "what", "decode");
    tool_json_string(json, "shape", c->shape.name);
    tool_json_count(json, "batch", c->shape.batch);
    tool_json_count(json, "cache", c->shape.len);
    tool_json_count(json, "d_model", c->shape.d_model);
    tool_json_count(json, "heads", c->shape.num_heads);
    tool_json_count(json, "kv_heads", bench_kv_heads(c));
    tool_json_count(json, "window", v->window);
    tool_json_string(json, "rope", bench_rope_name(v->rope));
    tool_json_number(json, "softcap", v->softcap);
    tool_json_bool(json, "alibi", v->alibi);
    tool_json_bool(json, "sinks", v->sinks);
    tool_json_count(json, "threads", c->threads);
    tool_json_string(json, "precision", c->in_double ? "double" : "float");
    tool_json_string(json, "isa", attn_isa_name(attn_isa_current()));
    tool_json_number(json, "tokens_per_second", batch / r->step);
    tool_json_number(json, "bytes_per_token", r->cached_bytes / batch);
    tool_json_number(json, "read_bandwidth_gbs", r->bandwidth);
    tool_json_number(json, "bandwidth_fraction",
                     fraction(r->cached_bytes, r->attention, r->bandwidth));
    tool_json_number(json, "attention_ms", r->attention * 1e3);
    tool_json_number(json, "projections_ms", r->projections * 1e3);
    tool_json_number(json, "step_ms", r->step * 1e3);
    tool_json_number(json, "weight_bytes", r->weight_bytes);
    tool_json_number(json, "step_read_bandwidth_gbs", r->step_bandwidth);
    tool_json_number(json, "step_bandwidth_fraction",
                     fraction(step_bytes, r->step, r->step_bandwidth));
    tool_json_count(json, "cache_bytes", r->cache_bytes);
    tool_json_close(json, '}');
}

static const char script[] =
    "set xlabel 'position of the token'\nset ylabel 'ms per token'\n"
    "set logscale xy\nset key left top\n"
    "plot 'decode.csv' using 1:2 with linespoints ls 2 title 'a forward over all tokens so far', "
    "\\\n     'decode.csv' using 1:3 with linespoints ls 1 title 'with a key-value cache'\n";

/* Time per token at positions 16, 32, ... and the last one. */
static int draw(const bench_case *c, const char *dir) {
    enum { FIRST = 16 };
    const double patience = 4; /* seconds: doubling the tokens costs up to four times as much */
    double without = 0;
    tool_file file;
    if (tool_file_open(&file, dir, "decode.csv") != TOOL_OK)
        return TOOL_FAILED;
    fprintf(file.stream, "position,without_cache_ms,with_cache_ms\n");
    for (size_t at = FIRST < c->shape.len ? FIRST : c->shape.len;;
         at = 2 * at < c->shape.len ? 2 * at : c->shape.len) {
        bench_case here = *c;
        here.shape.len = at;
        here.budget = c->budget / 10;
        fprintf(stderr, "attn bench: a token at position %zu\n", at);
        const double with = c->in_double ? bench64_decode_step(&here) : bench_decode_step(&here);
        if (without >= 0 && 4 * without < patience)
            without = c->in_double ? bench64_decode_forward(&here) : bench_decode_forward(&here);
        else
            without = -1;
        fprintf(file.stream, "%zu,", at);
        if (without >= 0)
            fprintf(file.stream, "%.6g", without * 1e3);
        fprintf(file.stream, ",");
        if (with >= 0)
            fprintf(file.stream, "%.6g", with * 1e3);
        fprintf(file.stream, "\n");
        if (at == c->shape.len)
            break;
    }
    if (tool_file_commit(&file) != TOOL_OK)
        return TOOL_FAILED;
    return tool_plot(dir, "decode", script);
}

int bench_decode(const bench_case *c, bool in_json, const char *plot_dir) {
    bench_decoding result;
    int status = c->in_double ? bench64_decode_run(c, &result) : bench_decode_run(c, &result);
    if (status != TOOL_OK)
        return status;
    if (in_json) {
        tool_json json = tool_json_start(stdout);
        json_result(&json, c, &result);
        status = tool_json_finish(&json, TOOL_OK);
    } else {
        print_result(c, &result);
    }
    return plot_dir && status == TOOL_OK ? draw(c, plot_dir) : status;
}
