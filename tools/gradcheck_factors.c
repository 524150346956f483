#include "gradcheck_factors.h"

#include <stdio.h>
#include <string.h>

/* Each factor is an enumeration, the names of its levels, and what a level does to a case. The
 * first level is the plain one. */
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* In double, 51 lies past a tile of queries and one of keys on every instruction set. */
static const char *const lengths[] = {"self",           "self, 51",       "cross, Lq = Lk",
                                      "cross, Lq < Lk", "cross, Lq > Lk", "cross, 3 < 70",
                                      "cross, 70 > 3"};
enum { ALL_TILES = 1 };

static void set_lengths(check_case *c, size_t level) {
    static const struct {
        size_t len_q, len_k;
    } sizes[] = {{5, 5}, {51, 51}, {4, 4}, {3, 5}, {5, 3}, {3, 70}, {70, 3}};
    c->cross = level > ALL_TILES;
    c->len_q = sizes[level].len_q;
    c->len_k = sizes[level].len_k;
}

/* After the lengths. */
static const char *const sources[] = {"projected here", "projected before"};
enum { PROJECTED_BEFORE = 1 };

static void set_source(check_case *c, size_t level) {
    c->projected = level == PROJECTED_BEFORE;
}

static const char *const packings[] = {"off", "on"};
enum { PACKED = 1 };

static void set_packing(check_case *c, size_t level) {
    c->packed = level == PACKED;
}

static const char *const batches[] = {"2", "1"};
enum { ONE_SAMPLE = 1 };

static void set_batch(check_case *c, size_t level) {
    c->batch = 2 - level;
}

static const char *const heads[] = {"2", "1", "4 over 2", "3 over 1"};

static void set_heads(check_case *c, size_t level) {
    static const size_t all[] = {2, 1, 4, 3}, kv[] = {0, 0, 2, 1};
    c->config.num_heads = all[level];
    c->config.num_kv_heads = kv[level];
}

/* After the heads: d, and D from what H·d is. */
static const char *const widths[] = {"H d = D", "H d > D", "H d < D", "d odd"};
enum { ODD_WIDTH = 3 };

static void set_width(check_case *c, size_t level) {
    static const size_t d[] = {2, 4, 2, 3};
    const size_t width = c->config.num_heads * d[level];
    c->config.d_head = level == 0 ? 0 : d[level];
    c->config.d_model = level == 1 ? 3 : level == 2 ? width + 1 : width;
}

static const char *const biases[] = {"all", "none", "bq and bo"};

static void set_biases(check_case *c, size_t level) {
    c->biases = (check_biases)level;
    c->config.bias = level != NO_BIASES;
}

static const char *const blocks[] = {"one block", "apart"};

static void set_block(check_case *c, size_t level) {
    c->separate = level == 1;
}

static const char *const scales[] = {"default", "0.4", "-1.5"};

static void set_scale(check_case *c, size_t level) {
    static const double values[] = {0, 0.4, -1.5};
    c->config.has_scale = level > 0;
    c->config.scale = values[level];
}

static const char *const ropes[] = {"none", "half", "interleaved", "half, positions",
                                    "interleaved, base"};

static void set_rope(check_case *c, size_t level) {
    c->config.rope = level == 0       ? ATTN_ROPE_NONE
                     : level % 2 == 1 ? ATTN_ROPE_HALF
                                      : ATTN_ROPE_INTERLEAVED;
    if (level >= 3) {
        c->has_rope_position = true;
        c->rope_position = -3;
        c->rope_key_position = 11;
    }
    c->config.rope_base = level == 4 ? 50 : 0;
}

static const char *const softcaps[] = {"off", "1.5"};

static void set_softcap(check_case *c, size_t level) {
    c->config.softcap = level == 0 ? 0 : 1.5;
}

/* Every shape that broadcasts to (B,H,Lq,Lk); a mask and a bias may also lie key by key, so that
 * the queries are side by side, and a bias hold -inf. */
static const char *const shapes[] = {"none",
                                     "(1,1)",
                                     "(1,Lk)",
                                     "(Lq,1)",
                                     "(Lq,Lk)",
                                     "(1,H,1,1)",
                                     "(1,H,1,Lk)",
                                     "(1,H,Lq,1)",
                                     "(1,H,Lq,Lk)",
                                     "(B,1,1,1)",
                                     "(B,1,1,Lk)",
                                     "(B,1,Lq,1)",
                                     "(B,1,Lq,Lk)",
                                     "(B,H,1,1)",
                                     "(B,H,1,Lk)",
                                     "(B,H,Lq,1)",
                                     "(B,H,Lq,Lk)",
                                     "(B,H,Lq,Lk) by columns",
                                     "(Lq,Lk) by columns",
                                     "(Lq,Lk) with -inf",
                                     "(B,H,Lq,Lk) with -inf"};
enum { WHOLE_BY_COLUMNS = 17, MASK_SHAPES, SQUARE_BY_COLUMNS = MASK_SHAPES, FIRST_WITH_BLOCKS };

static const char *kept_dimensions(size_t shape) {
    static const char *const kept[COUNT(shapes)] = {
        NULL, "",    "k",  "q",   "qk",  "h",    "hk",   "hq", "hqk", "b",   "bk",
        "bq", "bqk", "bh", "bhk", "bhq", "bhqk", "bhqk", "qk", "qk",  "bhqk"};
    return kept[shape];
}

static bool lies_by_columns(size_t shape) {
    return shape == WHOLE_BY_COLUMNS || shape == SQUARE_BY_COLUMNS;
}

static void set_bias(check_case *c, size_t level) {
    c->bias = kept_dimensions(level);
    c->bias_by_columns = lies_by_columns(level);
    c->bias_blocks = level >= FIRST_WITH_BLOCKS;
}

static void set_attend(check_case *c, size_t level) {
    c->attend = kept_dimensions(level);
    c->attend_by_columns = lies_by_columns(level);
}

static const char *const alibis[] = {"off", "standard", "learned"};

static void set_alibi(check_case *c, size_t level) {
    c->config.alibi = level > 0;
    c->config.alibi_learned = level == 2;
}

static const char *const switches[] = {"off", "on"};

static void set_sinks(check_case *c, size_t level) {
    c->config.sinks = level == 1;
}

static void set_dropout(check_case *c, size_t level) {
    c->config.dropout = level == 0 ? 0 : 0.3;
}

static const char *const paddings[] = {"none", "right", "left", "a whole sample"};

static void set_padding(check_case *c, size_t level) {
    c->padding = (check_padding)level;
}

/* The offset is that of windows and ALiBi too, so it comes without a causal mask as well. */
static const char *const alignments[] = {"bottom right", "top left", "offset 1", "offset -1"};

static void set_alignment(check_case *c, size_t level) {
    c->mask.causal_align = level < 2 ? (attn_causal_align)level : ATTN_CAUSAL_OFFSET;
    c->mask.causal_offset = level == 2 ? 1 : level == 3 ? -1 : 0;
}

static void set_causal(check_case *c, size_t level) {
    c->mask.causal = level == 1;
}

static const char *const windows[] = {"none", "left", "right", "both sides"};

static void set_window(check_case *c, size_t level) {
    c->mask.window =
        (attn_window){.left_on = level % 2 == 1, .right_on = level >= 2, .left = 2, .right = 1};
}

/* Places in the table below. */
enum { LENGTHS, BATCH, SOURCE, PACKING, WIDTH = 5, ROPE = 9, PADDING = 15 };

static const struct factor {
    const char *name;
    const char *const *levels;
    size_t num_levels;
    void (*set)(check_case *c, size_t level);
} factors[] = {
    {"lengths", lengths, COUNT(lengths), set_lengths},
    {"samples", batches, COUNT(batches), set_batch},
    {"keys", sources, COUNT(sources), set_source},
    {"packed", packings, COUNT(packings), set_packing},
    {"heads", heads, COUNT(heads), set_heads},
    {"width", widths, COUNT(widths), set_width},
    {"biases", biases, COUNT(biases), set_biases},
    {"parameters", blocks, COUNT(blocks), set_block},
    {"scale", scales, COUNT(scales), set_scale},
    {"rope", ropes, COUNT(ropes), set_rope},
    {"softcap", softcaps, COUNT(softcaps), set_softcap},
    {"bias of scores", shapes, COUNT(shapes), set_bias},
    {"alibi", alibis, COUNT(alibis), set_alibi},
    {"sinks", switches, COUNT(switches), set_sinks},
    {"dropout", switches, COUNT(switches), set_dropout},
    {"padding", paddings, COUNT(paddings), set_padding},
    {"attend", shapes, MASK_SHAPES, set_attend},
    {"causal", switches, COUNT(switches), set_causal},
    {"alignment", alignments, COUNT(alignments), set_alignment},
    {"window", windows, COUNT(windows), set_window},
};
enum { NUM_FACTORS = COUNT(factors) };

/* f < g. What cannot be, or would leave no row with a key. What makes all gradients of the scores
 * zero, as a scale of 0 or a single token, is no level: it would hide what else its row has. */
static bool goes_together(size_t f, size_t a, size_t g, size_t b) {
    if (f == LENGTHS && g == SOURCE)
        return a > ALL_TILES || b != PROJECTED_BEFORE;
    if (f == BATCH && a == ONE_SAMPLE && g == PADDING)
        return b != WHOLE_SAMPLE;
    if (f == PACKING && a == PACKED && g == PADDING)
        return b == NO_PADDING;
    return !(f == WIDTH && a == ODD_WIDTH && g == ROPE && b != 0);
}

const pairs_problem *check_factors(void) {
    static pairs_problem problem;
    problem.num_factors = NUM_FACTORS;
    problem.allowed = goes_together;
    for (size_t f = 0; f < NUM_FACTORS; f++)
        problem.num_levels[f] = factors[f].num_levels;
    return &problem;
}

const char *check_factor_name(size_t factor) {
    return factors[factor].name;
}

const char *check_level_name(size_t factor, size_t level) {
    return factors[factor].levels[level];
}

/* Path and lengths, then what is not plain, each by its factor and level. */
static void name_case(check_case *c, const pairs_row *row) {
    int length = snprintf(c->name, sizeof c->name, "%s, %s (%zu,%zu)",
                          c->config.kernel == ATTN_KERNEL_FUSED ? "fused" : "reference",
                          c->cross ? "cross" : "self", c->len_q, c->len_k);
    for (size_t f = LENGTHS + 1; f < NUM_FACTORS && (size_t)length < sizeof c->name; f++)
        if (row->level[f] > 0)
            length += snprintf(c->name + length, sizeof c->name - (size_t)length, ", %s %s",
                               factors[f].name, factors[f].levels[row->level[f]]);
}

/* A bias for each head or sample has so many elements that the tokens stay within a tile of keys:
 * 35 is past one of queries. */
static void shorten(check_case *c, const pairs_row *row) {
    if (row->level[LENGTHS] == ALL_TILES && c->bias && strlen(c->bias) > 2 && strstr(c->bias, "qk"))
        c->len_q = c->len_k = 35;
}

void check_case_of_row(check_case *c, const pairs_row *row, attn_kernel kernel) {
    *c = (check_case){.config = {.kernel = kernel, .max_threads = 1}};
    for (size_t f = 0; f < NUM_FACTORS; f++) {
        factors[f].set(c, row->level[f]);
        c->array_seed = 31 * c->array_seed + row->level[f];
    }
    shorten(c, row);
    name_case(c, row);
}
