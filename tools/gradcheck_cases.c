/* The table of configurations: shapes times kinds of masks. */
#include "gradcheck_tally.h"
#include "tool.h"

#include <stdio.h>

typedef struct check_shape {
    const char *name;
    size_t batch, len_q, len_k, d_model, num_heads, d_head;
    size_t num_kv_heads; /* 0 = num_heads */
    bool cross;
    check_biases biases;
    bool has_scale;
    double scale;
    attn_rope rope;
    bool has_rope_position;
    int64_t rope_position, rope_key_position;
    double softcap;
    const char *bias;
    bool alibi, alibi_learned, sinks;
    double dropout;
    bool projected;
} check_shape;

static const check_shape shapes[] = {
    {.name = "self", .batch = 2, .len_q = 5, .d_model = 6, .num_heads = 2},
    {.name = "self, no biases",
     .batch = 2,
     .len_q = 4,
     .d_model = 6,
     .num_heads = 2,
     .biases = NO_BIASES},
    {.name = "self, H*d > D", .batch = 2, .len_q = 4, .d_model = 5, .num_heads = 2, .d_head = 4},
    {.name = "self, H*d < D", .batch = 2, .len_q = 4, .d_model = 7, .num_heads = 3, .d_head = 2},
    {.name = "self, one head", .batch = 2, .len_q = 4, .d_model = 3, .num_heads = 1},
    {.name = "self, one token", .batch = 2, .len_q = 1, .d_model = 4, .num_heads = 2},
    {.name = "self, scale 0.3",
     .batch = 1,
     .len_q = 4,
     .d_model = 4,
     .num_heads = 2,
     .has_scale = true,
     .scale = 0.3},
    {.name = "self, scale -1.5",
     .batch = 1,
     .len_q = 4,
     .d_model = 4,
     .num_heads = 2,
     .has_scale = true,
     .scale = -1.5},
    {.name = "self, scale 0",
     .batch = 1,
     .len_q = 4,
     .d_model = 4,
     .num_heads = 2,
     .has_scale = true},
    {.name = "cross, Lq < Lk",
     .batch = 2,
     .len_q = 3,
     .len_k = 5,
     .d_model = 6,
     .num_heads = 2,
     .cross = true},
    {.name = "cross, Lq > Lk",
     .batch = 2,
     .len_q = 5,
     .len_k = 3,
     .d_model = 4,
     .num_heads = 2,
     .d_head = 3,
     .cross = true},
    {.name = "cross, one query",
     .batch = 2,
     .len_q = 1,
     .len_k = 4,
     .d_model = 4,
     .num_heads = 2,
     .cross = true},
    {.name = "cross, one key, no biases",
     .batch = 2,
     .len_q = 3,
     .len_k = 1,
     .d_model = 4,
     .num_heads = 2,
     .cross = true,
     .biases = NO_BIASES},
    {.name = "self, rope half",
     .batch = 2,
     .len_q = 4,
     .d_model = 4,
     .num_heads = 1,
     .rope = ATTN_ROPE_HALF},
    {.name = "self, rope interleaved",
     .batch = 1,
     .len_q = 4,
     .d_model = 3,
     .num_heads = 2,
     .d_head = 4,
     .rope = ATTN_ROPE_INTERLEAVED},
    {.name = "cross, rope half, Lq < Lk",
     .batch = 2,
     .len_q = 2,
     .len_k = 4,
     .d_model = 4,
     .num_heads = 2,
     .cross = true,
     .rope = ATTN_ROPE_HALF},
    {.name = "cross, rope, positions",
     .batch = 1,
     .len_q = 3,
     .len_k = 2,
     .d_model = 4,
     .num_heads = 2,
     .d_head = 4,
     .cross = true,
     .rope = ATTN_ROPE_INTERLEAVED,
     .has_rope_position = true,
     .rope_position = -3,
     .rope_key_position = 11},
    {.name = "self, 4 heads over 2",
     .batch = 2,
     .len_q = 4,
     .d_model = 5,
     .num_heads = 4,
     .num_kv_heads = 2,
     .d_head = 2},
    {.name = "cross, 3 heads over 1",
     .batch = 2,
     .len_q = 3,
     .len_k = 4,
     .d_model = 6,
     .num_heads = 3,
     .num_kv_heads = 1,
     .cross = true},
    {.name = "self, softcap", .batch = 2, .len_q = 4, .d_model = 4, .num_heads = 2, .softcap = 1.5},
    {.name = "cross, bias (B,H,Lq,Lk)",
     .batch = 2,
     .len_q = 3,
     .len_k = 4,
     .d_model = 4,
     .num_heads = 2,
     .cross = true,
     .bias = "bhqk"},
    {.name = "self, bias (1,H,1,Lk)",
     .batch = 2,
     .len_q = 4,
     .d_model = 4,
     .num_heads = 2,
     .bias = "hk"},
    {.name = "self, alibi", .batch = 2, .len_q = 4, .d_model = 6, .num_heads = 3, .alibi = true},
    {.name = "self, alibi, learned",
     .batch = 2,
     .len_q = 4,
     .d_model = 4,
     .num_heads = 2,
     .alibi = true,
     .alibi_learned = true},
    {.name = "self, sinks", .batch = 2, .len_q = 4, .d_model = 4, .num_heads = 2, .sinks = true},
    {.name = "self, dropout", .batch = 2, .len_q = 4, .d_model = 4, .num_heads = 2, .dropout = 0.3},
    {.name = "self, every feature",
     .batch = 2,
     .len_q = 5,
     .d_model = 5,
     .num_heads = 4,
     .num_kv_heads = 2,
     .d_head = 4,
     .has_scale = true,
     .scale = 0.6,
     .rope = ATTN_ROPE_HALF,
     .softcap = 1.5,
     .bias = "hqk",
     .alibi = true,
     .alibi_learned = true,
     .sinks = true,
     .dropout = 0.2},
    {.name = "cross, every feature",
     .batch = 2,
     .len_q = 4,
     .len_k = 5,
     .d_model = 5,
     .num_heads = 2,
     .num_kv_heads = 1,
     .d_head = 2,
     .cross = true,
     .biases = NO_BIASES,
     .rope = ATTN_ROPE_INTERLEAVED,
     .has_rope_position = true,
     .rope_position = 7,
     .rope_key_position = -2,
     .softcap = 2,
     .bias = "bk",
     .alibi = true,
     .sinks = true,
     .dropout = 0.4},
    {.name = "cross, keys projected before",
     .batch = 2,
     .len_q = 3,
     .len_k = 4,
     .d_model = 4,
     .num_heads = 2,
     .num_kv_heads = 1,
     .cross = true,
     .rope = ATTN_ROPE_HALF,
     .projected = true},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

typedef struct check_mask {
    const char *name;
    check_padding padding;
    const char *attend;
    bool causal;
    attn_causal_align align;
    int64_t offset;
    attn_window window;
} check_mask;

static const check_mask masks[] = {
    {
        .name = "none",
    },
    {
        .name = "padding",
        .padding = RIGHT_PADDING,
    },
    {
        .name = "padding, a whole sample",
        .padding = WHOLE_SAMPLE,
    },
    {.name = "causal, bottom right", .causal = true},
    {.name = "causal, top left", .causal = true, .align = ATTN_CAUSAL_TOP_LEFT},
    {.name = "causal, offset 1", .causal = true, .align = ATTN_CAUSAL_OFFSET, .offset = 1},
    {.name = "causal, offset -1", .causal = true, .align = ATTN_CAUSAL_OFFSET, .offset = -1},
    {.name = "attend (Lq,Lk)", .attend = "qk"},
    {.name = "attend (1,Lk)", .attend = "k"},
    {.name = "attend (Lq,1), rows masked", .attend = "q"},
    {.name = "attend (B,Lq,Lk)", .attend = "bqk"},
    {.name = "attend (B,1,Lk)", .attend = "bk"},
    {.name = "attend (B,H,Lq,Lk)", .attend = "bhqk"},
    {.name = "attend (1,H,1,Lk)", .attend = "hk"},
    {.name = "attend (B,H,1,1), heads masked", .attend = "bh"},
    {.name = "causal and left padding", .padding = LEFT_PADDING, .causal = true},
    {.name = "window of 2, causal", .causal = true, .window = {.left_on = true, .left = 1}},
    {.name = "window, both sides, offset -1",
     .align = ATTN_CAUSAL_OFFSET,
     .offset = -1,
     .window = {.left_on = true, .right_on = true, .left = 1, .right = 1}},
    {.name = "all together",
     .padding = RIGHT_PADDING,
     .attend = "bhqk",
     .causal = true,
     .window = {.left_on = true, .left = 2}},
};
enum { NUM_MASKS = sizeof masks / sizeof *masks };

static check_case case_of(const check_shape *s, const check_mask *m, attn_kernel kernel) {
    check_case c = {.batch = s->batch,
                    .len_q = s->len_q,
                    .len_k = s->cross ? s->len_k : s->len_q,
                    .cross = s->cross,
                    .config = {.d_model = s->d_model,
                               .num_heads = s->num_heads,
                               .d_head = s->d_head,
                               .bias = s->biases != NO_BIASES,
                               .has_scale = s->has_scale,
                               .scale = s->scale,
                               .rope = s->rope,
                               .kernel = kernel,
                               .max_threads = 1,
                               .num_kv_heads = s->num_kv_heads,
                               .softcap = s->softcap,
                               .alibi = s->alibi,
                               .alibi_learned = s->alibi_learned,
                               .sinks = s->sinks,
                               .dropout = s->dropout},
                    .has_rope_position = s->has_rope_position,
                    .rope_position = s->rope_position,
                    .rope_key_position = s->rope_key_position,
                    .mask = {.causal = m->causal,
                             .causal_align = m->align,
                             .causal_offset = m->offset,
                             .window = m->window},
                    .padding = m->padding,
                    .attend = m->attend,
                    .bias = s->bias,
                    .projected = s->projected,
                    .biases = s->biases,
                    .array_seed = 100 * (uint64_t)(m - masks) + (uint64_t)(s - shapes)};
    snprintf(c.name, sizeof c.name, "%s, mask %s, %s", s->name, m->name,
             kernel == ATTN_KERNEL_FUSED ? "fused" : "reference");
    return c;
}

static int check_one(check_tally *t, const check_request *r, const check_case *c, uint64_t seed) {
    check_outcome outcome = {0};
    const attn_status status = check_layer(&outcome, c, seed);
    if (status == ATTN_ERROR_UNSUPPORTED) {
        t->skipped++;
        return TOOL_OK;
    }
    if (status != ATTN_OK)
        return tool_fail("%s: %s", c->name, attn_error_message());
    const size_t failed = t->num_failed;
    check_tally_outcome(t, &outcome, c->name);
    if (r->json)
        return TOOL_OK;
    if (r->every)
        printf("%-72s  %4zu  %.1e  %s\n", c->name, outcome.report.checked,
               outcome.report.worst.error, t->num_failed > failed ? "FAILED" : "ok");
    check_print_failures(&outcome, c->name);
    return TOOL_OK;
}

static int check_mask_kind(check_tally *t, const check_request *r, const check_mask *mask) {
    int status = TOOL_OK;
    for (size_t shape = 0; shape < NUM_SHAPES; shape++)
        for (size_t k = 0; k < r->num_kernels && status == TOOL_OK; k++) {
            const check_case c = case_of(&shapes[shape], mask, r->kernels[k]);
            status = check_one(t, r, &c, r->seed + shape);
        }
    return status;
}

int check_table(const check_request *r) {
    const bool rows = !r->json && !r->every;
    check_tally total = {0};
    if (rows)
        printf("%-32s  cases  elements  worst error  at\n", "mask");
    for (const check_mask *mask = masks; mask < masks + NUM_MASKS; mask++) {
        check_tally t = {0};
        int status = check_mask_kind(&t, r, mask);
        if (status != TOOL_OK)
            return status;
        check_tally_add(&total, &t);
        if (rows)
            printf("%-32s  %5zu  %8zu  %11.1e  %s, %s\n", mask->name, t.cases, t.elements, t.worst,
                   t.worst_tensor ? t.worst_tensor : "-", t.worst_case);
        fflush(stdout);
    }
    if (total.skipped > 0)
        tool_warn("%zu configurations that the library does not do are left out", total.skipped);
    return r->json ? check_tally_json(&total) : check_tally_print(&total);
}
