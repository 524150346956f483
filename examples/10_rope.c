/* Chapter 10: rotary positions. The text is in 10_rope.md. */
#include "lesson.h"

enum { D = 8, T = 9 };

static const attn_rope INTER = ATTN_ROPE_INTERLEAVED, HALF = ATTN_ROPE_HALF;

/* One row of one head at one position. */
static void turn(attn_real *y, const attn_real *x, attn_rope pairing, int64_t position, size_t d) {
    const attn_rope_config rope = {.pairing = pairing, .position = position};
    must(attn_rope_forward(y, x, &(attn_strides){d, d, d, 1}, &rope, 1, 1, 1, d));
}

/* The score of q at position p and k at position s, before the scale. */
static double score(const attn_real *q, const attn_real *k, attn_rope pairing, int64_t p,
                    int64_t s) {
    attn_real turned_q[D], turned_k[D];
    turn(turned_q, q, pairing, p, D);
    turn(turned_k, k, pairing, s, D);
    return dot(turned_q, turned_k, D);
}

static void one_row(void) {
    const attn_real x[4] = {1, 2, 3, 4};
    attn_real interleaved[4], half[4];
    turn(interleaved, x, INTER, 1, 4);
    turn(half, x, HALF, 1, 4);
    printf("x at position 1: pairs (0,1), (2,3) or (0,2), (1,3); angles 1 and 0.01\n");
    show("x", x, 1, 4);
    show("interl.", interleaved, 1, 4);
    show("half", half, 1, 4);
    claim(fabs((double)interleaved[0] - (1 * cos(1) - 2 * sin(1))) < 1e-6 &&
              fabs((double)half[0] - (1 * cos(1) - 3 * sin(1))) < 1e-6,
          "each pair is turned by its own angle");
}

static void only_the_distance(const attn_real *q, const attn_real *k) {
    const int64_t places[][2] = {{3, 0}, {103, 100}, {-47, -50}, {100003, 100000}, {4, 0}, {0, 3}};
    double s[6];
    printf("\nthe score of one q and one k\n   position of q, of k    score\n");
    for (size_t n = 0; n < 6; n++) {
        s[n] = score(q, k, HALF, places[n][0], places[n][1]);
        printf("   %10lld %8lld %8.4f\n", (long long)places[n][0], (long long)places[n][1], s[n]);
    }
    claim(fabs(s[0] - s[3]) < 1e-5, "three positions apart is three positions apart, anywhere");
    claim(fabs(s[0] - s[5]) > 1e-2, "but before is not after");
}

/* Rows of the other pairing: elements 2m and 2m + 1 go to m and m + d/2. */
static void the_silent_mistake(const attn_real *q, const attn_real *k) {
    attn_real moved_q[D], moved_k[D];
    double at[4][3]; /* right, wrong, mended */
    for (size_t c = 0; c < D; c++) {
        moved_q[c / 2 + c % 2 * D / 2] = q[c];
        moved_k[c / 2 + c % 2 * D / 2] = k[c];
    }
    printf("\na model trained with interleaved pairs, run with the halves\n");
    for (int p = 0; p < 4; p++) {
        at[p][0] = score(q, k, INTER, 13 * p, 0);
        at[p][1] = score(q, k, HALF, 13 * p, 0);
        at[p][2] = score(moved_q, moved_k, HALF, 13 * p, 0);
        printf("   distance %2d: %8.4f is right, %8.4f comes out, %8.4f with rows moved\n", 13 * p,
               at[p][0], at[p][1], at[p][2]);
    }
    claim(fabs(at[1][0] - at[1][1]) > 1e-2 && fabs(at[0][0] - at[0][1]) < 1e-5,
          "wrong, yet finite, of the right size, and right at distance 0");
    claim(fabs(at[1][0] - at[1][2]) < 1e-5, "moving rows changes one pairing into the other");
}

static void backward_turns_back(void) {
    const attn_strides strides = attn_strides_bhtd(T, 1, D);
    const attn_rope_config rope = {.pairing = HALF, .position = 20};
    attn_real x[T * D], y[T * D], dy[T * D], dx[T * D], back[T * D];
    fill(x, T * D, 1, 3);
    fill(dy, T * D, 1, 4);
    must(attn_rope_forward(y, x, &strides, &rope, 1, 1, T, D));
    must(attn_rope_backward(dx, dy, &strides, &rope, 1, 1, T, D));
    must(attn_rope_backward(back, y, &strides, &rope, 1, 1, T, D));
    printf("\nbackward\n   y·dy = %.5f, x·dx = %.5f\n", dot(y, dy, T * D), dot(x, dx, T * D));
    claim(fabs(dot(y, dy, T * D) - dot(x, dx, T * D)) < 1e-4, "the backward is the transpose");
    claim(distance(x, back, T * D) < 1e-5, "which for a rotation is the way back");
}

/* What a key bias adds to the scores of four keys, for one query: q·b, or q·(b turned). */
static void the_key_bias_counts(const attn_real *q, const attn_real *b) {
    printf("\na key bias shifts the scores of keys 0 to 3 by\n   plain ");
    for (int j = 0; j < 4; j++)
        printf(" %8.4f", dot(q, b, D));
    printf("\n   turned");
    for (int j = 0; j < 4; j++)
        printf(" %8.4f", score(q, b, HALF, 3, j));
    printf("\n");
    claim(fabs(score(q, b, HALF, 3, 0) - score(q, b, HALF, 3, 1)) > 1e-2,
          "turned, it differs from key to key and no longer cancels");
}

/* The same cosine from an angle in float and in double. */
static void where_float_ends(void) {
    const double step = pow(10000, -2.0 / 64);
    const int64_t positions[] = {100, 1000, 10007, 100003, 1000003, 16777217};
    attn_real x[64] = {[2] = 1}, y[64];
    double in_float = 0, in_attn = 0;
    printf("\ncos(position * base^(-2/64)): error with the angle in float, and of attn\n");
    for (size_t n = 0; n < 6; n++) {
        const double exact = cos((double)positions[n] * step);
        turn(y, x, INTER, positions[n], 64);
        in_float = fabs((double)cosf((float)positions[n] * (float)step) - exact);
        in_attn = fmax(in_attn, fabs((double)y[2] - exact));
        printf("   position %9lld: %.0e  %.0e\n", (long long)positions[n], in_float,
               fabs((double)y[2] - exact));
    }
    claim(in_float > 1e-2 && in_attn < 1e-6, "attn keeps 1e-6 in the float library too");
    claim((float)16777217 == (float)16777216, "in float 16,777,217 is not even a position");
}

int main(void) {
    attn_real q[D], k[D];
    fill(q, D, 1, 1);
    fill(k, D, 1, 2);
    one_row();
    only_the_distance(q, k);
    the_silent_mistake(q, k);
    backward_turns_back();
    the_key_bias_counts(q, k);
    where_float_ends();
    return 0;
}
