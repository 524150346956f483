/* Chapter 16: decoding with a key-value cache. The text is in 16_kv_cache.md. */
#include "lesson.h"

enum { D = 16, H = 4, T = 9 };
static attn_real x[T * D], whole[T * D];

/* A layer with random parameters and a cache, which has an arena of its own. */
typedef struct decoder {
    attn_mha_config cfg;
    attn_mha_params w;
    attn_kv_cache cache;
    attn_arena cache_arena, arena;
} decoder;

static decoder open_decoder(attn_mha_config cfg, size_t capacity, size_t window) {
    static attn_real theta[4 * D * D];
    const attn_window keys = {.left_on = window > 0, .left = window > 0 ? window - 1 : 0};
    decoder d = {.cfg = cfg};
    size_t bytes;
    fill(theta, 4 * D * D, 0.3, 1);
    d.w = attn_mha_params_view(&d.cfg, theta);
    must(attn_kv_cache_memory(&d.cfg, 1, capacity, &bytes));
    must(attn_arena_create(&d.cache_arena, bytes));
    must(attn_kv_cache_init(&d.cache, &d.cfg, 1, capacity, &keys, &d.cache_arena));
    must(attn_mha_decode_memory(&d.cfg, &d.cache, T, &bytes));
    must(attn_arena_create(&d.arena, bytes));
    return d;
}

static void close_decoder(decoder *d) {
    attn_arena_destroy(&d->arena);
    attn_arena_destroy(&d->cache_arena);
}

/* The tokens from `first` on go in; their rows of y come out. */
static attn_status take(decoder *d, attn_real *y, size_t first, size_t count) {
    const attn_decode_input in = {.len = count, .query = x + first * D};
    return attn_mha_decode(&d->cfg, &d->w, &d->cache, &in, y + first * D, &d->arena);
}

/* All tokens at once, without a cache. */
static void forward(const decoder *d, attn_real *y) {
    const attn_mha_input in = {
        .batch = 1, .len_q = T, .query = x, .mask = {.causal = true, .window = d->cache.window}};
    attn_memory need;
    attn_arena arena;
    must(attn_mha_memory(&d->cfg, &in, &need));
    must(attn_arena_create(&arena, need.inference));
    must(attn_mha_forward(&d->cfg, &d->w, &in, y, &arena, NULL));
    attn_arena_destroy(&arena);
}

static void the_same_rows(attn_mha_config cfg) {
    decoder d = open_decoder(cfg, T, 0);
    attn_real y[T * D];
    forward(&d, whole);
    for (size_t t = 0; t < T; t++)
        must(take(&d, y, t, 1));
    printf("nine tokens, one at a time; the last row of y, decoded and of one forward\n");
    show("decoded", y + (T - 1) * D, 1, 8);
    show("forward", whole + (T - 1) * D, 1, 8);
    claim(distance(y, whole, T * D) < 1e-5, "token by token is the causal forward");
    must(attn_kv_cache_reset(&d.cache));
    must(take(&d, y, 0, 6));
    must(take(&d, y, 6, 3));
    claim(distance(y, whole, T * D) < 1e-5, "and so is a prompt of six with three more");
    close_decoder(&d);
}

static void what_it_saves(void) {
    const double width = 768;
    printf("\nmultiply-adds for one more token, D = 768, 12 heads\n");
    printf("   position      without the cache      with it   ratio\n");
    for (double t = 64; t <= 4096; t *= 8) {
        const double without = 4 * t * width * width + t * (t + 1) * width;
        const double with = 4 * width * width + 2 * t * width;
        printf("   %8.0f %22.0f %12.0f %7.0f\n", t, without, with, without / with);
    }
}

static void heads_that_share(void) {
    size_t bytes[4];
    const size_t kv_heads[4] = {12, 6, 3, 1};
    printf(
        "\nbytes of the cache for 4,096 tokens, 12 query heads of 64\n   heads of keys    bytes\n");
    for (size_t i = 0; i < 4; i++) {
        const attn_mha_config cfg = {.d_model = 768, .num_heads = 12, .num_kv_heads = kv_heads[i]};
        must(attn_kv_cache_memory(&cfg, 1, 4096, &bytes[i]));
        printf("   %13zu %8zu\n", kv_heads[i], bytes[i]);
    }
    claim(4 * bytes[2] < bytes[0] + 2000 && 12 * bytes[3] < bytes[0] + 5000,
          "a quarter with three heads, a twelfth with one, but for the lengths");
}

static void full_and_rolled_back(attn_mha_config cfg) {
    decoder d = open_decoder(cfg, 8, 0);
    attn_real y[T * D];
    printf("\na cache of 8 slots\n");
    must(take(&d, y, 0, 8));
    claim(take(&d, y, 8, 1) == ATTN_ERROR_MEMORY && attn_kv_cache_length(&d.cache, 0) == 8,
          "a ninth token is refused, and nothing changes");
    printf("        \"%s\"\n", attn_error_message());
    must(attn_kv_cache_truncate(&d.cache, 0, 5));
    must(take(&d, y, 5, 2));
    claim(distance(y, whole, 7 * D) < 1e-5,
          "rolled back to 5, it goes on as if it had stopped there");
    close_decoder(&d);
}

static void a_ring(attn_mha_config cfg) {
    decoder d = open_decoder(cfg, 3, 3);
    attn_real y[T * D], want[T * D];
    printf("\na window of 3 keys, a cache of 3 slots\n");
    for (size_t t = 0; t < T; t++)
        must(take(&d, y, t, 1));
    forward(&d, want);
    printf("  token 8 lies in slot %d, token 5 is gone\n", 8 % 3);
    claim(distance(y, want, T * D) < 1e-5 && attn_kv_cache_length(&d.cache, 0) == T,
          "nine tokens went through it");
    close_decoder(&d);
}

int main(void) {
    const attn_mha_config cfg = {.d_model = D, .num_heads = H, .rope = ATTN_ROPE_HALF};
    fill(x, T * D, 1, 2);
    the_same_rows(cfg);
    what_it_saves();
    heads_that_share();
    full_and_rolled_back(cfg);
    a_ring(cfg);
    return 0;
}
