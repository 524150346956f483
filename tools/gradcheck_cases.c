/* The configurations: shapes times kinds of masks. */
#include "gradcheck.h"

#include <attn/random.h>

#include <string.h>

const check_shape check_shapes[] = {
    {.name = "self", .batch = 2, .len_q = 5, .d_model = 6, .num_heads = 2},
    {.name = "self, no biases",
     .batch = 2,
     .len_q = 4,
     .d_model = 6,
     .num_heads = 2,
     .no_bias = true},
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
     .no_bias = true},
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
};
const size_t check_num_shapes = sizeof check_shapes / sizeof *check_shapes;

typedef enum padding_kind {
    NO_PADDING,
    RIGHT_PADDING, /* the last key of the last sample */
    LEFT_PADDING,  /* the first key of the last sample */
    WHOLE_SAMPLE   /* every key of the last sample: its rows are fully masked */
} padding_kind;

/* `attend` names the dimensions that are not broadcast; "" = no such mask. */
typedef struct check_mask {
    const char *name;
    padding_kind padding;
    const char *attend;
    bool causal;
    attn_causal_align align;
    int64_t offset;
    attn_window window;
} check_mask;

static const check_mask masks[] = {
    {.name = "none", .attend = ""},
    {.name = "padding", .padding = RIGHT_PADDING, .attend = ""},
    {.name = "padding, a whole sample", .padding = WHOLE_SAMPLE, .attend = ""},
    {.name = "causal, bottom right", .attend = "", .causal = true},
    {.name = "causal, top left", .attend = "", .causal = true, .align = ATTN_CAUSAL_TOP_LEFT},
    {.name = "causal, offset 1",
     .attend = "",
     .causal = true,
     .align = ATTN_CAUSAL_OFFSET,
     .offset = 1},
    {.name = "causal, offset -1",
     .attend = "",
     .causal = true,
     .align = ATTN_CAUSAL_OFFSET,
     .offset = -1},
    {.name = "attend (Lq,Lk)", .attend = "qk"},
    {.name = "attend (1,Lk)", .attend = "k"},
    {.name = "attend (Lq,1), rows masked", .attend = "q"},
    {.name = "attend (B,Lq,Lk)", .attend = "bqk"},
    {.name = "attend (B,1,Lk)", .attend = "bk"},
    {.name = "attend (B,H,Lq,Lk)", .attend = "bhqk"},
    {.name = "attend (1,H,1,Lk)", .attend = "hk"},
    {.name = "attend (B,H,1,1), heads masked", .attend = "bh"},
    {.name = "causal and left padding", .padding = LEFT_PADDING, .attend = "", .causal = true},
    {.name = "window of 2, causal",
     .attend = "",
     .causal = true,
     .window = {.left_on = true, .left = 1}},
    {.name = "window, both sides, offset -1",
     .attend = "",
     .align = ATTN_CAUSAL_OFFSET,
     .offset = -1,
     .window = {.left_on = true, .right_on = true, .left = 1, .right = 1}},
    {.name = "all together",
     .padding = RIGHT_PADDING,
     .attend = "bhqk",
     .causal = true,
     .window = {.left_on = true, .left = 2}},
};
const size_t check_num_masks = sizeof masks / sizeof *masks;

static void set_padding(check_case *c, padding_kind kind, size_t len_k) {
    uint8_t *last = c->padding + (c->shape->batch - 1) * len_k;
    switch (kind) {
    case NO_PADDING:
        return;
    case RIGHT_PADDING:
        last[len_k - 1] = 1;
        break;
    case LEFT_PADDING:
        last[0] = 1;
        break;
    case WHOLE_SAMPLE:
        memset(last, 1, len_k);
        break;
    }
    c->mask.padding = c->padding;
}

/* About two pairs in three are allowed. Shapes without a batch dimension are given by two. */
static attn_status set_attend(check_case *c, const char *kept, size_t len_k, uint64_t seed) {
    if (!*kept)
        return ATTN_OK;
    const check_shape *s = c->shape;
    const size_t full[4] = {s->batch, s->num_heads, s->len_q, len_k};
    size_t dims[4], count = 1;
    for (size_t i = 0; i < 4; i++) {
        dims[i] = strchr(kept, "bhqk"[i]) ? full[i] : 1;
        count *= dims[i];
    }
    attn_random random = attn_random_seed(seed, 0xA77E);
    for (size_t i = 0; i < count; i++)
        c->attend[i] = attn_random_below(&random, 3) > 0;
    c->mask.attend = c->attend;
    bool flat = dims[0] == 1 && dims[1] == 1;
    return attn_broadcast_strides(&c->mask.attend_strides, flat ? dims + 2 : dims, flat ? 2 : 4,
                                  s->batch, s->num_heads, s->len_q, len_k);
}

attn_status check_case_make(check_case *c, size_t shape, size_t mask, attn_kernel kernel) {
    const check_shape *s = &check_shapes[shape];
    const check_mask *m = &masks[mask];
    size_t len_k = s->cross ? s->len_k : s->len_q;
    memset(c, 0, sizeof *c);
    c->shape = s;
    c->mask_name = m->name;
    c->kernel = kernel;
    c->mask.causal = m->causal;
    c->mask.causal_align = m->align;
    c->mask.causal_offset = m->offset;
    c->mask.window = m->window;
    set_padding(c, m->padding, len_k);
    return set_attend(c, m->attend, len_k, 100 * mask + shape);
}
