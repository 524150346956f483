/* Chapter 12: causal alignment and sliding windows. The text is in 12_windows.md. */
#include "core.h"

enum { SMALL = 8, LONG = 640, COUNTED = 1024, TILE = 64, WINDOW = 256 };

/* Causal, and no further back than so many keys, the own one included. */
static attn_mask last_keys(size_t keys) {
    return (attn_mask){.causal = true, .window = {.left_on = true, .left = keys - 1}};
}

/* With queries and keys of 0 every score is 0: a query shares its weight equally among the keys it
 * may see. d = 1, v_j = first + j. */
static core uniform(size_t len_q, size_t len_k, attn_mask mask, attn_real first) {
    static const attn_real zero[COUNTED];
    static attn_real v[COUNTED];
    for (size_t j = 0; j < len_k; j++)
        v[j] = first + (attn_real)j;
    core c = core_of((attn_shape){1, 1, len_q, len_k, 1}, zero, zero, v);
    c.in.mask = mask;
    return c;
}

/* One line for each query, one sign for each key: # may be seen. Then what the query gets. */
static void picture(const char *title, const core *c, attn_real *o) {
    const size_t len_k = c->in.shape.len_k;
    attn_real p[SMALL * SMALL];
    attend(c, o, p);
    printf("  %s\n", title);
    for (size_t i = 0; i < c->in.shape.len_q; i++) {
        printf("      ");
        for (size_t j = 0; j < len_k; j++)
            printf("%c ", p[i * len_k + j] > 0 ? '#' : '.');
        printf("  %.2f\n", (double)o[i]);
    }
}

static void where_a_query_stands(void) {
    const attn_mask mask = {.causal = true, .causal_offset = 2};
    attn_real o[3][SMALL];
    core c = uniform(2, 5, mask, 1);
    printf("causal, 2 queries and 5 keys, v = 1 2 3 4 5; on the right what each query gets\n");
    picture("bottom right, offset Lk - Lq = 3", &c, o[0]);
    c.in.mask.causal_align = ATTN_CAUSAL_TOP_LEFT;
    picture("top left, offset 0", &c, o[1]);
    c.in.mask.causal_align = ATTN_CAUSAL_OFFSET;
    picture("offset 2: the fifth slot is not written yet", &c, o[2]);
    claim(o[0][0] == 2.5 && o[0][1] == 3, "bottom right: the last query sees every key");
    claim(o[1][0] == 1 && o[1][1] == 1.5, "top left: the first query sees key 0 alone");
    c = uniform(5, 2, mask, 1);
    printf("causal, 5 queries and 2 keys, v = 1 2\n");
    picture("bottom right, offset -3", &c, o[0]);
    claim(o[0][0] == 0 && o[0][2] == 0 && o[0][3] == 1 && o[0][4] == 1.5,
          "queries before the first key see nothing and get 0");
}

static void windows(void) {
    attn_real o[SMALL], chunk[SMALL];
    core c = uniform(8, 8, last_keys(3), 1);
    printf("\nwindows, v = 1 to 8\n");
    picture("causal, left 2: three keys, the own one included", &c, o);
    c = uniform(8, 8, (attn_mask){.window = {true, true, 2, 1}}, 1);
    picture("left 2, right 1, not causal", &c, chunk);
    c = uniform(2, 8, last_keys(3), 1);
    picture("causal, left 2, the last 2 queries of the 8", &c, chunk);
    claim(distance(chunk, o + 6, 2) == 0, "a chunk of queries gets what it gets in the whole");
}

/* Key 0 is seen by queries 0 to 9, which have 1, 2, ..., 10 keys to share their weight among. */
static void the_backward(void) {
    static attn_real o[LONG], d_o[LONG], dv[LONG];
    const core c = uniform(LONG, LONG, last_keys(10), 0);
    for (size_t i = 0; i < LONG; i++)
        d_o[i] = 1;
    attend_and_back(&c, o, d_o, (attn_sdpa_grads){.value = dv});
    printf("\n%d tokens, 10 keys each, v_j = j, dO = 1\n", LONG);
    printf("  o_639 = %.4f   dv_0 = %.6f   dv_639 = %.4f\n", (double)o[639], (double)dv[0],
           (double)dv[639]);
    claim(fabs((double)o[639] - 634.5) < 1e-3, "the last query gets the mean of 630 to 639");
    claim(fabs((double)dv[0] - 2.928968) < 1e-5 && fabs((double)dv[639] - 0.1) < 1e-6,
          "dv_0 = 1 + 1/2 + ... + 1/10, dv_639 = 1/10");
}

static size_t pairs(size_t len, size_t keys) {
    return keys < len ? len * keys - keys * (keys - 1) / 2 : len * (len + 1) / 2;
}

/* Tiles that hold at least one allowed pair: their nearest query and key are no further apart. */
static size_t tiles(size_t len, size_t keys) {
    size_t visited = 0;
    for (size_t i = 0; i < len; i += TILE)
        for (size_t j = 0; j <= i; j += TILE)
            visited += (j < i ? i - (j + TILE - 1) : 0) < keys;
    return visited;
}

static void what_it_costs(void) {
    static attn_real o[COUNTED], p[COUNTED * COUNTED];
    const core c = uniform(COUNTED, COUNTED, last_keys(WINDOW), 0);
    size_t seen = 0;
    attend(&c, o, p);
    for (size_t n = 0; n < COUNTED * COUNTED; n++)
        seen += p[n] > 0;
    printf("\na causal head, all keys or a window of %d, in pairs and in tiles of %d x %d\n",
           WINDOW, TILE, TILE);
    printf("      T   pairs, all   pairs, window   tiles, all   tiles, window\n");
    for (size_t len = COUNTED; len <= 32768; len *= 2)
        printf("  %5zu   %10zu   %13zu   %10zu   %13zu\n", len, pairs(len, len), pairs(len, WINDOW),
               tiles(len, len), tiles(len, WINDOW));
    claim(seen == pairs(COUNTED, WINDOW), "the formula counts what the library allows");
    claim(tiles(32768, 32768) > 50 * tiles(32768, WINDOW), "O(T * window) against O(T^2)");
}

/* A stack of layers: how far the value of token 0 has come after each. */
static void how_far_news_travels(void) {
    attn_real v[2][SMALL] = {{1}, {0}};
    printf("\nonly token 0 has a value, left 2, one layer after the other\n");
    core c = uniform(SMALL, SMALL, last_keys(3), 0);
    for (size_t l = 0; l < 3; l++) {
        c.in.value = v[l % 2];
        attend(&c, v[(l + 1) % 2], NULL);
        show(l == 0 ? "layer 1" : l == 1 ? "layer 2" : "layer 3", v[(l + 1) % 2], 1, SMALL);
    }
    claim(v[1][6] > 0 && v[1][7] == 0, "2 tokens a layer: after three layers 6, no further");
}

int main(void) {
    where_a_query_stands();
    windows();
    the_backward();
    what_it_costs();
    how_far_news_travels();
    return 0;
}
