/* Chapter 14: dropout. In double. The text is in 14_dropout.md. */
#include "core.h"

enum { B = 2, H = 2, LQ = 3, LK = 6, DH = 2, LONG = 1024 };
enum { NQ = B * H * LQ * DH, NK = B * H * LK * DH, PAIRS = B * H * LQ * LK };

static const double P = 0.25;

/* Word j mod 4 of the block whose counter is (j / 4, i, h, b): the place alone decides. */
static bool kept(uint64_t seed, size_t b, size_t h, size_t i, size_t j) {
    const uint32_t counter[4] = {(uint32_t)(j / 4), (uint32_t)i, (uint32_t)h, (uint32_t)b};
    uint32_t words[4];
    attn_philox4x32(words, counter, seed);
    return words[j % 4] >= P * 4294967296.0;
}

static void the_pattern(void) {
    const attn_shape shape = {B, H, LQ, LK, DH};
    attn_real one[PAIRS], y[PAIRS], by_hand[PAIRS];
    for (size_t n = 0; n < PAIRS; n++) {
        const size_t i = n / LK, h = i / LQ;
        one[n] = 1;
        by_hand[n] = kept(7, h / H, h % H, i % LQ, n % LK) ? 1 / (1 - P) : 0;
    }
    must(attn_dropout_forward(y, one, P, 7, &shape));
    printf("ones after dropout with p = 1/4 and seed 7, sample 0, head 0\n");
    show("y", y, LQ, LK);
    claim(distance(y, by_hand, PAIRS) == 0, "each number can be drawn by itself, in any order");
    must(attn_dropout_backward(y, one, P, 7, &shape));
    claim(distance(y, by_hand, PAIRS) == 0, "and again in the backward: nothing was stored");
}

/* Equal scores and v = 1: a row of weights sums to 1, after dropout to 1 on average. */
static void a_row_on_average(void) {
    static attn_real zero[LONG], one[LONG], o[LONG];
    double mean = 0, square = 0;
    for (size_t j = 0; j < LONG; j++)
        one[j] = 1;
    core c = core_of((attn_shape){1, 1, LONG, LONG, 1}, zero, zero, one);
    c.cfg.dropout = P;
    attend_and_back(&c, o, one, (attn_sdpa_grads){0});
    for (size_t i = 0; i < LONG; i++) {
        mean += o[i] / LONG;
        square += o[i] * o[i] / LONG;
    }
    printf("\n%d rows of %d equal weights, v = 1\n", LONG, LONG);
    printf("  mean of o %.4f, deviation %.4f, sqrt(p/(1-p)/T) = %.4f\n", mean,
           sqrt(square - mean * mean), sqrt(P / (1 - P) / LONG));
    claim(fabs(mean - 1) < 0.003 && fabs(sqrt(square - mean * mean) - 0.018) < 0.002,
          "inverted dropout keeps the mean, and shakes it");
    attend(&c, o, NULL);
    claim(distance(o, one, LONG) < 1e-12, "an inference knows nothing of it");
}

/* A fault to be found: the backward draws from another seed than the forward. */
static attn_status two_seeds(void *user, const attn_real *x, double *value, attn_real *dx) {
    core other = *(core *)user;
    other.in.dropout_seed++;
    if (dx)
        must(core_loss(&other, x, value, dx));
    return core_loss(user, x, value, NULL);
}

/* Another one: a new pattern at every call. */
static attn_status fresh_seeds(void *user, const attn_real *x, double *value, attn_real *dx) {
    ((core *)user)->in.dropout_seed++;
    return core_loss(user, x, value, dx);
}

static void against_differences(attn_real *x) {
    const attn_gradcheck_tensor parts[] = {{"q", 0, NQ}, {"k", NQ, NK}, {"v", NQ + NK, NK}};
    core c = core_of((attn_shape){B, H, LQ, LK, DH}, x, x + NQ, x + NQ + NK);
    c.cfg.dropout = P;
    c.in.dropout_seed = 7;
    printf("\nagainst differences, one seed throughout\n");
    claim(check_gradients(core_loss, &c, x, parts, 3) == ATTN_GRADCHECK_PASSED, "all agree");
    printf("the backward with another seed\n");
    claim(check_gradients(two_seeds, &c, x, parts, 3) == ATTN_GRADCHECK_WRONG, "is wrong");
    printf("a fresh seed at every call\n");
    claim(check_gradients(fresh_seeds, &c, x, parts, 3) == ATTN_GRADCHECK_NOT_REPEATABLE,
          "is not wrong, it cannot be checked");
}

/* For a given dO, o and every gradient are linear in the pattern, so their means are those without
 * dropout. */
static void over_many_seeds(const attn_real *x) {
    attn_real o[NQ], d_o[NQ], dk[NK], o_mean[NQ] = {0}, dk_mean[NK] = {0};
    attn_real o_plain[NQ], dk_plain[NK];
    core c = core_of((attn_shape){B, H, LQ, LK, DH}, x, x + NQ, x + NQ + NK);
    fill(d_o, NQ, 1, 3);
    attend_and_back(&c, o_plain, d_o, (attn_sdpa_grads){.key = dk_plain});
    c.cfg.dropout = P;
    printf("\nmean over seeds, largest distance to no dropout\n   seeds         o        dk\n");
    double far = 0;
    for (size_t n = 1; n <= 16384; n++) {
        c.in.dropout_seed = n;
        attend_and_back(&c, o, d_o, (attn_sdpa_grads){.key = dk});
        for (size_t e = 0; e < NQ; e++)
            o_mean[e] += (o[e] - o_mean[e]) / (double)n;
        for (size_t e = 0; e < NK; e++)
            dk_mean[e] += (dk[e] - dk_mean[e]) / (double)n;
        if ((n & (n - 1)) == 0 && (n & 0x5555)) {
            far = fmax(distance(o_mean, o_plain, NQ), distance(dk_mean, dk_plain, NK));
            printf("  %6zu  %8.4f  %8.4f\n", n, distance(o_mean, o_plain, NQ),
                   distance(dk_mean, dk_plain, NK));
        }
    }
    claim(far < 0.02, "the mean is that of no dropout");
}

int main(void) {
    attn_real x[NQ + 2 * NK];
    fill(x, NQ + 2 * NK, 1, 1);
    the_pattern();
    a_row_on_average();
    against_differences(x);
    over_many_seeds(x);
    return 0;
}
