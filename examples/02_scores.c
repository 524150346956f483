/* Chapter 2: scores, scaling and masks. The text is in 02_scores.md. */
#include "lesson.h"

enum { KEYS = 64, ROWS = 400 };

/* Deviation of q·k over many random pairs, and the median of the largest weight of a row. */
static void one_width(size_t d, double scale, double *deviation, double *largest) {
    static attn_real q[ROWS * 1024], k[KEYS * 1024], s[ROWS * KEYS], p[ROWS * KEYS];
    double sum = 0, tops[ROWS];
    fill(q, ROWS * d, 1, d);
    fill(k, KEYS * d, 1, d + 1);
    must(attn_scores_forward(s, q, k, NULL, scale, &(attn_shape){1, 1, ROWS, KEYS, d}));
    must(attn_softmax_forward(p, NULL, s, ROWS, KEYS));
    for (size_t i = 0; i < ROWS; i++) {
        double top = 0;
        for (size_t j = 0; j < KEYS; j++) {
            sum += (double)s[i * KEYS + j] * (double)s[i * KEYS + j];
            top = fmax(top, (double)p[i * KEYS + j]);
        }
        size_t at = i; /* insertion sort: the median needs order */
        for (; at > 0 && tops[at - 1] > top; at--)
            tops[at] = tops[at - 1];
        tops[at] = top;
    }
    *deviation = sqrt(sum / (ROWS * KEYS));
    *largest = tops[ROWS / 2];
}

static void why_scale(void) {
    double deviation, largest, deviation_scaled, largest_scaled;
    printf("unit-variance queries and keys, %d keys\n", KEYS);
    printf("           unscaled               scaled by 1/sqrt(d)\n");
    printf("      d    deviation  top weight  deviation  top weight\n");
    for (size_t d = 4; d <= 1024; d *= 4) {
        one_width(d, 1, &deviation, &largest);
        one_width(d, attn_default_scale(d), &deviation_scaled, &largest_scaled);
        printf("  %5zu    %9.2f  %10.3f  %9.2f  %10.3f\n", d, deviation, largest, deviation_scaled,
               largest_scaled);
    }
    claim(fabs(deviation / 32 - 1) < 0.1 && largest > 0.9,
          "unscaled, scores spread like sqrt(d) and one key takes all");
    claim(fabs(deviation_scaled - 1) < 0.1 && largest_scaled < 0.2, "scaled, neither depends on d");
}

static void masks(void) {
    const attn_shape shape = {1, 1, 4, 4, 2};
    const uint8_t padding[4] = {1, 0, 0, 0};
    attn_real q[8], k[8], s[16], p[16];
    fill(q, 8, 1, 3);
    fill(k, 8, 1, 4);
    k[0] = (attn_real)NAN; /* garbage in a padded slot */
    attn_mask mask = {.causal = true, .padding = padding};
    must(attn_scores_forward(s, q, k, &mask, attn_default_scale(2), &shape));
    must(attn_softmax_forward(p, NULL, s, 4, 4));
    printf("\ncausal, and key 0 is padding that holds NaN\n");
    show("S", s, 4, 4);
    show("P", p, 4, 4);
    claim(p[0] == 0 && p[1] == 0 && p[2] == 0 && p[3] == 0, "row 0 may see nothing: all zero");
    claim(p[5] == 1 && fabs((double)(p[13] + p[14] + p[15]) - 1) < 1e-6,
          "the other rows share 1 among what they may see, and no NaN leaks");
}

/* What a "large negative number" does where skipping was meant. */
static void fill_against_skip(void) {
    const attn_real fill_value = (attn_real)-1e9;
    attn_real row[2] = {(attn_real)-3e9, fill_value}, all_filled[2] = {fill_value, fill_value};
    attn_real skipped[2] = {(attn_real)-3e9, (attn_real)-INFINITY};
    attn_real p[2], p_all[2], p_skipped[2];
    must(attn_softmax_forward(p, NULL, row, 1, 2));
    must(attn_softmax_forward(p_all, NULL, all_filled, 1, 2));
    must(attn_softmax_forward(p_skipped, NULL, skipped, 1, 2));
    printf("\nfill with -1e9, or skip? key 0 is allowed with score -3e9, key 1 is blocked\n");
    show("filled", p, 1, 2);
    show("skipped", p_skipped, 1, 2);
    printf("both keys blocked, filled\n");
    show("filled", p_all, 1, 2);
    claim(p[1] == 1, "filled: the blocked key takes the whole weight");
    claim(p_skipped[0] == 1, "skipped: the allowed key does");
    claim(p_all[0] == (attn_real)0.5,
          "a fully blocked row, filled: the mean of what was forbidden");
}

int main(void) {
    why_scale();
    masks();
    fill_against_skip();
    return 0;
}
