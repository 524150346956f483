/* Chapter 13: what may be done to a score. In double. The text is in 13_score_terms.md. */
#include "core.h"

enum { B = 2, H = 2, LQ = 3, LK = 4, DH = 2, ROWS = B * H * LQ, PAIRS = LQ * LK };

static const attn_real zero[ROWS * 8];

/* One query over n keys whose scores are all 0, with v_j = j. */
static core even(size_t n) {
    static const attn_real v[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    return core_of((attn_shape){1, 1, 1, n, 1}, zero, zero, v);
}

static void a_bias(void) {
    const attn_real bias[2] = {0, -log(3)}, none[2] = {-INFINITY, -INFINITY};
    const attn_real half[2] = {-INFINITY, -1e30}, low[2] = {-1e30, -1e30};
    const attn_real *given[4] = {bias, half, low, none};
    attn_real o[4], p[4][2];
    core c = even(2);
    c.in.bias_strides.key = 1;
    printf("two keys with the same score, and a bias of\n");
    for (size_t n = 0; n < 4; n++) {
        c.in.bias = given[n];
        attend(&c, &o[n], p[n]);
        printf("  (%8.4g, %8.4g)   weights %.2f %.2f\n", given[n][0], given[n][1], p[n][0],
               p[n][1]);
    }
    claim(fabs(p[0][0] - 0.75) < 1e-12, "a bias of -ln 3 makes a key count a third");
    claim(p[1][1] == 1 && p[2][0] == 0.5, "-1e30 never blocks, however low it is");
    claim(p[3][0] == 0 && o[3] == 0, "-inf does, and a row of it gives 0");
}

/* The same bias twice: once for each sample and head, and once shared by all. */
static void gradient_of_a_bias(const attn_real *q, const attn_real *k, const attn_real *v) {
    attn_real full[B * H * PAIRS], dfull[B * H * PAIRS], dshared[PAIRS], sum[PAIRS] = {0};
    attn_real o[ROWS * DH], d_o[ROWS * DH], row = 0;
    core c = core_of((attn_shape){B, H, LQ, LK, DH}, q, k, v);
    fill(d_o, ROWS * DH, 1, 4);
    for (size_t n = 0; n < B * H * PAIRS; n++)
        full[n] = (attn_real)(n % PAIRS % 5);
    c.in.bias = full;
    c.in.bias_strides = (attn_broadcast){H * PAIRS, PAIRS, LK, 1};
    attend_and_back(&c, o, d_o, (attn_sdpa_grads){.bias = dfull});
    c.in.bias_strides = (attn_broadcast){0, 0, LK, 1};
    attend_and_back(&c, o, d_o, (attn_sdpa_grads){.bias = dshared});
    for (size_t n = 0; n < B * H * PAIRS; n++)
        sum[n % PAIRS] += dfull[n];
    printf("\ngradient of a bias of shape (Lq,Lk), shared by %d samples and %d heads\n", B, H);
    show("dbias", dshared, LQ, LK);
    claim(distance(dshared, sum, PAIRS) < 1e-12, "du, summed over samples and heads");
    for (size_t j = 0; j < LK; j++)
        row += dshared[j];
    claim(fabs(row) < 1e-12, "a row sums to 0: moved as a whole it moves no weight");
}

static void alibi(void) {
    attn_real slopes[3][8], o[8], p[8];
    const size_t heads[3] = {8, 4, 6};
    printf("\nALiBi: slopes of 8, 4 and 6 heads\n");
    for (size_t n = 0; n < 3; n++) {
        must(attn_alibi_slopes(slopes[n], heads[n]));
        show(n == 0 ? "slopes" : "", slopes[n], 1, heads[n]);
    }
    claim(memcmp(slopes[1], slopes[2], 4 * sizeof **slopes) == 0 && slopes[2][4] == slopes[0][0] &&
              slopes[2][5] == slopes[0][2],
          "6 heads: the slopes of 4, then every other one of 8");
    core c = even(8);
    c.cfg.alibi = true;
    c.in.alibi_slopes = slopes[0];
    attend(&c, o, p);
    printf("eight keys with the same score, slope 1/2; the query stands at the last\n");
    show("p", p, 1, 8);
    claim(fabs(p[6] / p[7] - exp(-0.5)) < 1e-12, "each step back costs a factor of exp(-slope)");
}

static void softcap(void) {
    const attn_real s[6] = {1, 10, 25, 50, 100, 500}, one[6] = {1, 1, 1, 1, 1, 1};
    const attn_score_terms terms = {.softcap = 50};
    const attn_shape shape = {1, 1, 1, 6, 1};
    attn_real t[6], ds[6];
    must(attn_score_terms_forward(t, s, &terms, NULL, &shape));
    must(attn_score_terms_backward(ds, NULL, NULL, one, s, &terms, NULL, &shape));
    printf("\nsoftcap 50: the score, what becomes of it, dt/ds\n");
    show("s", s, 1, 6);
    show("t", t, 1, 6);
    show("dt/ds", ds, 1, 6);
    claim(t[5] <= 50 && t[0] > 0.999, "small scores pass, large ones end at 50");
    claim(fabs(ds[3] - (1 - tanh(1) * tanh(1))) < 1e-12 && ds[5] < 1e-8,
          "dt/ds = 1 - tanh²(s/c), below 1e-8 at s = 500");
}

/* With the values 0 and 1 the context is the weight of the second key. */
static void sinks(void) {
    const attn_real d_o = 3, levels[3] = {0, log(2), 5};
    attn_real o, dsink;
    double worst = 0;
    core c = even(2);
    printf("\ntwo keys with scores 0, v = 0 and 1, dO = 3, and a sink\n");
    for (size_t n = 0; n < 3; n++) {
        c.in.sinks = &levels[n];
        attend_and_back(&c, &o, &d_o, (attn_sdpa_grads){.sinks = &dsink});
        const double p_sink = exp(levels[n]) / (2 + exp(levels[n]));
        printf("  sink %.4f   p_sink %.4f   o = p_1 %.4f   dsink %7.4f\n", levels[n], p_sink, o,
               dsink);
        worst = fmax(worst, fabs(o - (1 - p_sink) / 2) + fabs(dsink + p_sink * d_o * o));
    }
    claim(worst < 1e-12, "the keys share 1 - p_sink, and dsink = -p_sink · D");
}

static void against_differences(void) {
    enum { Q = 0, K = 12, V = 28, BIAS = 44, SLOPES = 56, SINKS = 58, N = 60 };
    const attn_gradcheck_tensor parts[] = {{"q", Q, 12},          {"k", K, 16},
                                           {"v", V, 16},          {"bias", BIAS, 12},
                                           {"slopes", SLOPES, 2}, {"sinks", SINKS, 2}};
    attn_real x[N];
    fill(x, N, 1, 9);
    core c = core_of((attn_shape){1, H, LQ, LK, DH}, x + Q, x + K, x + V);
    c.cfg = (attn_sdpa_config){.softcap = 2, .alibi = true};
    c.in.mask.causal = true;
    c.in.bias = x + BIAS;
    c.in.bias_strides = (attn_broadcast){.query = LK, .key = 1};
    c.in.alibi_slopes = x + SLOPES;
    c.in.sinks = x + SINKS;
    printf("\nall of it at once, causal, against differences\n");
    claim(check_gradients(core_loss, &c, x, parts, 6) == ATTN_GRADCHECK_PASSED, "all agree");
}

int main(void) {
    attn_real x[(ROWS + 2 * B * H * LK) * DH];
    fill(x, (ROWS + 2 * B * H * LK) * DH, 1, 1);
    a_bias();
    gradient_of_a_bias(x, x + ROWS * DH, x + (ROWS + B * H * LK) * DH);
    alibi();
    softcap();
    sinks();
    against_differences();
    return 0;
}
