/* Chapter 3: heads are a reshape and a transpose. The text is in 03_heads.md. */
#include "lesson.h"

enum { B = 2, T = 3, H = 2, D_HEAD = 2, D = H * D_HEAD, N = B * T * D };

/* Numbers each element 100·b + 10·t + column, so that it can be recognised anywhere. */
static void label(attn_real *x) {
    for (size_t b = 0; b < B; b++)
        for (size_t t = 0; t < T; t++)
            for (size_t c = 0; c < D; c++)
                x[(b * T + t) * D + c] = (attn_real)(100 * b + 10 * t + c);
}

static void show_plain(const char *name, const attn_real *x, size_t rows, size_t cols) {
    for (size_t r = 0; r < rows; r++) {
        printf("  %-14s", r == 0 ? name : "");
        for (size_t c = 0; c < cols; c++)
            printf(" %4.0f", (double)x[r * cols + c]);
        printf("\n");
    }
}

static void split_and_merge(void) {
    attn_real x[N], heads[N], back[N];
    label(x);
    must(attn_split_heads_forward(heads, x, B, T, H, D_HEAD));
    must(attn_merge_heads_forward(back, heads, B, T, H, D_HEAD));
    printf("sample 1 of x (B,T,H*d): digits are b, t, column\n");
    show_plain("x[1]", x + T * D, T, D);
    printf("the same sample as heads (B,H,T,d)\n");
    show_plain("heads[1][0]", heads + T * D, T, D_HEAD);
    show_plain("heads[1][1]", heads + T * D + T * D_HEAD, T, D_HEAD);
    claim(heads[((1 * H + 1) * T + 2) * D_HEAD + 0] == 122,
          "heads[b][h][t][c] is x[b][t][h*d + c]");
    claim(memcmp(x, back, sizeof x) == 0, "merging undoes splitting, to the bit");
}

/* A wrong reshape mixes tokens: (B,T,H*d) read as (B,H,T,d) without the transpose. */
static void the_classic_mistake(void) {
    attn_real x[N], heads[N];
    label(x);
    must(attn_split_heads_forward(heads, x, B, T, H, D_HEAD));
    printf("\nreshaped without the transpose, \"head 0\" of sample 0 would be\n");
    show_plain("x as (B,H,T,d)", x, T, D_HEAD);
    claim(memcmp(x, heads, sizeof x) != 0 && x[2] == 2 && heads[2] == 10,
          "its second token is the other half of token 0");
}

static void backward_is_the_other_one(void) {
    attn_real dheads[N], dx[N], merged[N];
    fill(dheads, N, 1, 7);
    must(attn_split_heads_backward(dx, dheads, B, T, H, D_HEAD));
    must(attn_merge_heads_forward(merged, dheads, B, T, H, D_HEAD));
    printf("\nthe backward of a permutation\n");
    claim(memcmp(dx, merged, sizeof dx) == 0, "split backward is merge forward");
}

/* Multiply-adds and memory of the two halves of a layer, batch 1, forward. */
static void what_it_costs(void) {
    const double width = 512, heads = 8;
    printf("\ncost of one forward, D = 512, 8 heads (1 FMA = 2 FLOP)\n");
    printf("        T   projections 8TD^2   attention 4T^2D   scores H*T*T floats\n");
    for (double len = 256; len <= 32768; len *= 2)
        printf("  %7.0f   %10.2f GFLOP   %9.2f GFLOP   %12.1f MiB\n", len,
               8 * len * width * width * 1e-9, 4 * len * len * width * 1e-9,
               heads * len * len * 4 / 1048576);
    claim(8 * 1024 * width * width == 4 * 1024.0 * 1024.0 * width,
          "they cross at T = 2D: attention dominates longer sequences");
}

int main(void) {
    split_and_merge();
    the_classic_mistake();
    backward_is_the_other_one();
    what_it_costs();
    return 0;
}
