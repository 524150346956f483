/* The layer against a second, naive implementation of it. */
#include "mha_oracle.h"

#ifdef ATTN_DOUBLE
static const double relative = 1e-12, absolute = 1e-13;
#else
static const double relative = 1e-5, absolute = 2e-6;
#endif

static const mha_case cases[] = {
    {"one token", SIZES(1, 1, 0, 4, 2, 0)},
    {"self", SIZES(2, 5, 0, 8, 2, 0)},
    {"self, causal", SIZES(2, 7, 0, 8, 4, 0), .causal = true},
    {"self, wide heads", SIZES(2, 5, 0, 6, 2, 7), .causal = true},
    {"self, narrow heads", SIZES(3, 4, 0, 10, 3, 2)},
    {"self, one head of width one", SIZES(2, 6, 0, 1, 1, 0)},
    {"self, padded", SIZES(3, 6, 0, 8, 2, 0), .padded = 1},
    {"self, one sample wholly padded", SIZES(3, 6, 0, 8, 2, 0), .padded = 2, .causal = true},
    {"self, attend (Lq,Lk)", SIZES(2, 5, 0, 8, 2, 0), .attend_rank = 2},
    {"self, attend (B,Lq,Lk)", SIZES(2, 5, 0, 8, 2, 0), .attend_rank = 3},
    {"self, attend (B,H,Lq,Lk)", SIZES(2, 5, 0, 12, 3, 0), .attend_rank = 4},
    {"self, all masks", SIZES(3, 9, 0, 8, 2, 0), .causal = true, .padded = 1, .attend_rank = 4},
    {"cross, more keys", SIZES(2, 3, 7, 8, 2, 0)},
    {"cross, fewer keys", SIZES(2, 7, 3, 8, 2, 0)},
    {"cross, causal bottom right", SIZES(2, 3, 7, 8, 2, 0), .causal = true},
    {"cross, causal, rows without a key", SIZES(2, 7, 3, 8, 2, 0), .causal = true},
    {"cross, causal top left", SIZES(2, 5, 8, 8, 2, 0), .causal = true,
     .align = ATTN_CAUSAL_TOP_LEFT},
    {"cross, causal offset", SIZES(2, 5, 8, 8, 2, 0), .causal = true, .align = ATTN_CAUSAL_OFFSET,
     .offset = -2},
    {"cross, all masks, wide heads", SIZES(3, 6, 5, 4, 2, 3), .causal = true, .padded = 2,
     .attend_rank = 4},
    {"no bq", SIZES(2, 5, 0, 8, 2, 0), .without = NO_BQ},
    {"no bk", SIZES(2, 5, 0, 8, 2, 0), .without = NO_BK},
    {"no bv", SIZES(2, 5, 4, 8, 2, 0), .without = NO_BV},
    {"no bo", SIZES(2, 5, 0, 8, 2, 0), .without = NO_BO},
    {"no biases", SIZES(2, 5, 4, 8, 2, 0), .without = NO_BQ | NO_BK | NO_BV | NO_BO},
    {"scale 0", SIZES(2, 5, 0, 8, 2, 0), .has_scale = true},
    {"scale -0.7", SIZES(2, 5, 0, 8, 2, 0), .has_scale = true, .scale = -0.7},
    {"rope, interleaved", SIZES(2, 5, 0, 8, 2, 0), .rope = ATTN_ROPE_INTERLEAVED},
    {"rope, half, causal", SIZES(2, 5, 0, 12, 2, 0), .rope = ATTN_ROPE_HALF, .causal = true},
    {"rope, more keys", SIZES(2, 3, 7, 8, 2, 0), .rope = ATTN_ROPE_HALF, .causal = true},
    {"rope, fewer keys, base 50", SIZES(2, 7, 3, 8, 2, 6), .rope = ATTN_ROPE_INTERLEAVED,
     .rope_base = 50},
    {"rope, positions", SIZES(2, 4, 6, 8, 2, 0), .rope = ATTN_ROPE_HALF, .causal = true,
     .has_rope_position = true, .rope_position = -3, .rope_key_position = 1001},
    {"rope, position 0 of a query", SIZES(2, 4, 6, 8, 2, 0), .rope = ATTN_ROPE_INTERLEAVED,
     .has_rope_position = true},
    {"rope, all masks", SIZES(3, 6, 5, 4, 2, 4), .rope = ATTN_ROPE_HALF, .causal = true,
     .padded = 2, .attend_rank = 4, .without = NO_BQ},
    {"rope, big enough for threads", SIZES(2, 131, 0, 96, 3, 0), .rope = ATTN_ROPE_HALF,
     .causal = true, .max_threads = 2},
    {"4 heads over 2", SIZES(2, 5, 0, 8, 4, 0), .num_kv_heads = 2},
    {"6 heads over 3, wide, no bk", SIZES(2, 5, 7, 4, 6, 3), .num_kv_heads = 3, .without = NO_BK},
    {"3 heads over 1, masks", SIZES(2, 6, 0, 6, 3, 0), .num_kv_heads = 1, .causal = true,
     .padded = 2, .attend_rank = 4},
    {"rope, 4 heads over 2", SIZES(2, 5, 6, 8, 4, 0), .num_kv_heads = 2, .rope = ATTN_ROPE_HALF,
     .causal = true},
    {"window to the left", SIZES(2, 7, 0, 8, 2, 0), .window = {.left_on = true, .left = 2}},
    {"window, causal, padded", SIZES(2, 9, 0, 8, 2, 0), .causal = true, .padded = 1,
     .window = {.left_on = true, .left = 3}},
    {"window to both sides, grouped", SIZES(2, 9, 6, 8, 4, 0), .num_kv_heads = 2,
     .align = ATTN_CAUSAL_OFFSET, .offset = -1,
     .window = {.left_on = true, .right_on = true, .left = 1, .right = 2}},
    {"softcap", SIZES(2, 5, 0, 8, 2, 0), .softcap = 0.7},
    {"softcap, scale, causal", SIZES(2, 5, 7, 8, 2, 0), .softcap = 2, .has_scale = true,
     .scale = -1.5, .causal = true},
    {"bias (Lq,Lk)", SIZES(3, 5, 0, 8, 2, 0), .bias_rank = 2},
    {"bias (B,Lq,Lk), causal", SIZES(2, 5, 7, 8, 2, 0), .bias_rank = 3, .causal = true},
    {"bias (B,H,Lq,Lk), padded", SIZES(2, 5, 7, 12, 3, 0), .bias_rank = 4, .padded = 1},
    {"bias that blocks", SIZES(2, 5, 7, 8, 2, 0), .bias_rank = 2, .bias_blocks = true},
    {"ALiBi", SIZES(2, 7, 0, 8, 4, 0), .alibi = true, .causal = true},
    {"ALiBi, 3 heads, top left", SIZES(2, 4, 6, 6, 3, 0), .alibi = true,
     .align = ATTN_CAUSAL_TOP_LEFT},
    {"learnt slopes", SIZES(2, 7, 4, 8, 2, 0), .alibi = true, .alibi_learned = true},
    {"sinks", SIZES(2, 7, 0, 8, 2, 0), .sinks = true, .causal = true},
    {"sinks, one sample wholly padded", SIZES(3, 6, 0, 8, 2, 0), .sinks = true, .padded = 2},
    {"dropout", SIZES(2, 7, 5, 8, 2, 0), .dropout = 0.4},
    {"dropout, causal, grouped", SIZES(2, 9, 0, 8, 4, 0), .dropout = 0.3, .causal = true,
     .num_kv_heads = 2},
    {"everything", SIZES(2, 9, 11, 8, 4, 0), .causal = true, .padded = 1, .attend_rank = 4,
     .rope = ATTN_ROPE_HALF, .num_kv_heads = 2, .window = {.left_on = true, .left = 6},
     .softcap = 3, .alibi = true, .alibi_learned = true, .sinks = true, .bias_rank = 4,
     .dropout = 0.25, .has_scale = true, .scale = 0.4},
    {"everything, past one tile", SIZES(1, 131, 0, 16, 2, 9), .causal = true, .softcap = 3,
     .alibi = true, .alibi_learned = true, .sinks = true, .bias_rank = 2, .dropout = 0.25,
     .num_kv_heads = 1},
    {"past one tile, grouped, window", SIZES(1, 131, 70, 16, 2, 9), .num_kv_heads = 1,
     .causal = true, .window = {.left_on = true, .left = 20}},
    {"past one tile", SIZES(1, 131, 70, 16, 2, 9), .causal = true, .padded = 1},
    {"big enough for threads", SIZES(2, 65, 0, 96, 3, 0), .causal = true, .max_threads = 2},
};

static void check_case(const mha_case *c, attn_kernel kernel, uint64_t seed) {
    mha_case with = *c;
    char what[160];
    with.kernel = kernel;
    with.want_weights = kernel == ATTN_KERNEL_REFERENCE;
    with.want_lse = true;
    mha_run run = mha_setup(&with, seed);
    mha_step(&run);
    mha_oracle want = mha_oracle_run(&run);
    size_t rows = c->batch * c->num_heads * c->len_q;
    size_t matrix = run.d_inner * c->d_model, kv = run.d_kv * c->d_model;
    const struct {
        const char *name;
        const attn_real *got, *want;
        size_t n;
    } tensors[] = {
        {"y", run.y, want.y, run.size_q},
        {"lse", run.lse, want.lse, rows},
        {"weights", run.weights, want.weights, run.weights ? rows * run.len_k : 0},
        {"dwq", run.dtheta, want.dtheta, matrix},
        {"dwk", run.dtheta + matrix, want.dtheta + matrix, kv},
        {"dwv", run.dtheta + matrix + kv, want.dtheta + matrix + kv, kv},
        {"dwo", run.dtheta + matrix + 2 * kv, want.dtheta + matrix + 2 * kv, matrix},
        {"vectors", run.dtheta + 2 * (matrix + kv), want.dtheta + 2 * (matrix + kv),
         run.num_params - 2 * (matrix + kv)},
        {"dx_q", run.dx_q, want.dx_q, run.size_q},
        {"dx_k", run.dx_k, want.dx_k, run.dx_k ? run.size_k : 0},
        {"dx_v", run.dx_v, want.dx_v, run.dx_v ? run.size_k : 0},
        {"dbias", run.dbias, want.dbias, run.size_bias},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        snprintf(what, sizeof what, "%s, kernel %d, seed %llu: %s", c->name, (int)kernel,
                 (unsigned long long)seed, tensors[i].name);
        test_close(what, tensors[i].got, tensors[i].want, tensors[i].n, absolute, relative);
    }
    mha_oracle_free(&want);
    mha_free(&run);
}

enum { NUM_CASES = sizeof cases / sizeof *cases };

START_TEST(agrees_with_the_oracle) {
    check_case(&cases[_i % NUM_CASES], mha_kernels[_i / NUM_CASES], 100 + (uint64_t)_i);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mha_oracle");
    TCase *tests = tcase_create("oracle");
    tcase_add_loop_test(tests, agrees_with_the_oracle, 0, NUM_CASES * mha_num_kernels());
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
