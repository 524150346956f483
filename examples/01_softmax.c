/* Chapter 1: softmax and its Jacobian. The text is in 01_softmax.md. */
#include "lesson.h"

enum { N = 3 };

/* J dp, with the Jacobian J = diag(p) - p pᵀ written out. */
static void jacobian_times(attn_real *ds, const attn_real *p, const attn_real *dp) {
    for (size_t i = 0; i < N; i++) {
        ds[i] = 0;
        for (size_t j = 0; j < N; j++)
            ds[i] += (p[i] * (i == j) - p[i] * p[j]) * dp[j];
    }
}

static void scores_become_weights(void) {
    const attn_real s[N] = {1, 2, 3}, shifted[N] = {1001, 1002, 1003};
    attn_real p[N], p_shifted[N], lse;
    must(attn_softmax_forward(p, &lse, s, 1, N));
    must(attn_softmax_forward(p_shifted, NULL, shifted, 1, N));
    printf("scores become weights\n");
    show("s", s, 1, N);
    show("p", p, 1, N);
    printf("  lse      %8.4f\n", (double)lse);
    claim(fabs((double)(p[0] + p[1] + p[2]) - 1) < 1e-6, "a row of weights sums to 1");
    claim(distance(p, p_shifted, N) == 0, "adding 1000 to every score changes nothing");
    claim(fabs(exp((double)(s[0] - lse)) - (double)p[0]) < 1e-6, "p = exp(s - lse)");
}

static void the_jacobian(void) {
    const attn_real s[N] = {1, 2, 3}, dp[N] = {(attn_real)0.3, -1, 2};
    attn_real p[N], ds[N], by_hand[N];
    must(attn_softmax_forward(p, NULL, s, 1, N));
    printf("\nthe Jacobian, dp_i/ds_j = p_i (i == j) - p_i p_j\n");
    for (size_t i = 0; i < N; i++) {
        double row = 0;
        printf("          ");
        for (size_t j = 0; j < N; j++) {
            double element = (double)(p[i] * (i == j) - p[i] * p[j]);
            row += element;
            printf(" %8.4f", element);
        }
        printf("    sum %.0e\n", fabs(row) < 1e-7 ? 0 : row);
    }
    must(attn_softmax_backward(ds, dp, p, 1, N));
    jacobian_times(by_hand, p, dp);
    show("dp", dp, 1, N);
    show("J dp", by_hand, 1, N);
    show("ds", ds, 1, N);
    claim(distance(ds, by_hand, N) < 1e-6, "p * (dp - sum(dp * p)) is J dp, without J");
    claim(fabs((double)(ds[0] + ds[1] + ds[2])) < 1e-6,
          "ds sums to 0: scores move only against each other");
}

/* One large score: the weights are nearly one-hot and the gradient has nowhere to go. */
static void a_saturated_row(void) {
    const attn_real s[N] = {0, 0, 20}, dp[N] = {1, -1, 1};
    attn_real p[N], ds[N], calm[N] = {0, 0, 1}, p_calm[N], ds_calm[N];
    must(attn_softmax_forward(p, NULL, s, 1, N));
    must(attn_softmax_backward(ds, dp, p, 1, N));
    must(attn_softmax_forward(p_calm, NULL, calm, 1, N));
    must(attn_softmax_backward(ds_calm, dp, p_calm, 1, N));
    printf("\na saturated row against a calm one\n");
    printf("  s = (0, 0, 20)  largest |ds| %.1e\n", fabs((double)ds[1]));
    printf("  s = (0, 0, 1)   largest |ds| %.1e\n", fabs((double)ds_calm[1]));
    claim(fabs((double)ds[1]) < 1e-8 && fabs((double)ds_calm[1]) > 0.1,
          "large scores kill the gradient: the reason for 1/sqrt(d)");
}

static void a_blocked_row(void) {
    const attn_real s[N] = {-INFINITY, -INFINITY, -INFINITY}, dp[N] = {1, 2, 3};
    attn_real p[N], ds[N], lse;
    must(attn_softmax_forward(p, &lse, s, 1, N));
    must(attn_softmax_backward(ds, dp, p, 1, N));
    printf("\na row with every key blocked\n");
    show("p", p, 1, N);
    show("ds", ds, 1, N);
    claim(p[0] == 0 && ds[0] == 0 && isinf(lse) && lse < 0,
          "no NaN: weights 0, lse -inf, no gradient");
}

int main(void) {
    scores_become_weights();
    the_jacobian();
    a_saturated_row();
    a_blocked_row();
    return 0;
}
