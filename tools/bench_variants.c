/* The variants of attention that `attn bench` can measure: what fits a shape, and how it is called.
 */
#include "bench.h"
#include "options.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool bench_parse_sizes(const char *text, size_t sizes[4]) {
    char copy[128];
    if (strlen(text) >= sizeof copy)
        return false;
    strcpy(copy, text);
    char *part = copy;
    for (size_t i = 0; i < 4; i++) {
        char *comma = strchr(part, ',');
        if ((i < 3) != (comma != NULL))
            return false;
        if (comma)
            *comma = '\0';
        unsigned long long value;
        if (!tool_parse_unsigned(part, &value) || value == 0 || value > 1ULL << 40)
            return false;
        sizes[i] = (size_t)value;
        part = comma ? comma + 1 : part;
    }
    return true;
}

bool bench_has_variants(const bench_variants *v) {
    return v->num_kv_heads > 0 || v->dropout > 0 || v->window > 0 || v->alibi || v->softcap > 0 ||
           v->rope != ATTN_ROPE_NONE || v->has_bias || v->sinks;
}

static int check_bias(const bench_case *c) {
    static const char *const names[] = {"batch", "heads", "queries", "keys"};
    const bench_shape *s = &c->shape;
    const size_t whole[4] = {s->batch, s->num_heads, s->len, s->len};
    for (size_t i = 0; i < 4; i++)
        if (c->variants.bias[i] != 1 && c->variants.bias[i] != whole[i])
            return tool_usage_error("--bias: %zu %s are neither 1 nor the %zu of shape %s",
                                    c->variants.bias[i], names[i], whole[i], s->name);
    return TOOL_OK;
}

int bench_variants_check(const bench_case *c) {
    const bench_variants *v = &c->variants;
    const bench_shape *s = &c->shape;
    if (v->num_kv_heads > 0 && s->num_heads % v->num_kv_heads != 0)
        return tool_usage_error("--kv-heads: %zu do not divide the %zu heads of shape %s",
                                v->num_kv_heads, s->num_heads, s->name);
    if (!(v->dropout < 1))
        return tool_usage_error("--dropout: %g drops everything; below 1 something is left",
                                v->dropout);
    if (v->rope != ATTN_ROPE_NONE && s->d_model / s->num_heads % 2 != 0)
        return tool_usage_error("--rope: a head width of %zu, shape %s, makes no pairs",
                                s->d_model / s->num_heads, s->name);
    return v->has_bias ? check_bias(c) : TOOL_OK;
}

const char *bench_rope_name(attn_rope rope) {
    return rope == ATTN_ROPE_HALF ? "half" : rope == ATTN_ROPE_INTERLEAVED ? "interleaved" : "none";
}

/* Appends words to a list. */
static void add_words(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_words(char *text, size_t size, const char *format, ...) {
    size_t length = strlen(text);
    if (length > 0)
        length += (size_t)snprintf(text + length, size - length, ", ");
    if (length >= size)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + length, size - length, format, arguments);
    va_end(arguments);
}

void bench_variants_words(char *text, size_t size, const bench_variants *v) {
    text[0] = '\0';
    if (v->num_kv_heads > 0)
        add_words(text, size, "kv-heads %zu", v->num_kv_heads);
    if (v->window > 0)
        add_words(text, size, "window %zu", v->window);
    if (v->rope != ATTN_ROPE_NONE)
        add_words(text, size, "rope %s", bench_rope_name(v->rope));
    if (v->softcap > 0)
        add_words(text, size, "softcap %g", v->softcap);
    if (v->has_bias)
        add_words(text, size, "bias (%zu,%zu,%zu,%zu)", v->bias[0], v->bias[1], v->bias[2],
                  v->bias[3]);
    if (v->alibi)
        add_words(text, size, "alibi");
    if (v->sinks)
        add_words(text, size, "sinks");
    if (v->dropout > 0)
        add_words(text, size, "dropout %g", v->dropout);
}
