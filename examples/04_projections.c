/* Chapter 4: the four projections. The text is in 04_projections.md. */
#include "lesson.h"

enum { ROWS = 5, IN = 4, OUT = 3 };

/* A loss to differentiate: f = sum(dy * y), whose gradient with respect to y is dy. */
static double loss(const attn_real *x, const attn_real *w, const attn_real *b,
                   const attn_real *dy) {
    attn_real y[ROWS * OUT];
    double f = 0;
    must(attn_linear_forward(y, x, w, b, ROWS, IN, OUT));
    for (size_t i = 0; i < ROWS * OUT; i++)
        f += (double)dy[i] * (double)y[i];
    return f;
}

/* The slope of the loss in one number, by nudging it. A linear map has no curvature, so any step
 * will do; a power of two keeps the arithmetic clean. */
static double slope(attn_real *number, const attn_real *x, const attn_real *w, const attn_real *b,
                    const attn_real *dy) {
    const attn_real h = (attn_real)0.25, was = *number;
    *number = was + h;
    double above = loss(x, w, b, dy);
    *number = was - h;
    double below = loss(x, w, b, dy);
    *number = was;
    return (above - below) / (2 * (double)h);
}

static void forward_and_backward(void) {
    attn_real x[ROWS * IN], w[OUT * IN], b[OUT], dy[ROWS * OUT];
    attn_real dx[ROWS * IN], dw[OUT * IN] = {0}, db[OUT] = {0};
    fill(x, ROWS * IN, 1, 1);
    fill(w, OUT * IN, 1, 2);
    fill(b, OUT, 1, 3);
    fill(dy, ROWS * OUT, 1, 4);
    must(attn_linear_backward(dx, dw, db, dy, x, w, ROWS, IN, OUT));
    printf("gradients of f = sum(dy * y), analytic and by nudging\n");
    double by_nudge[3] = {slope(&x[7], x, w, b, dy), slope(&w[5], x, w, b, dy),
                          slope(&b[1], x, w, b, dy)};
    printf("  dx[1][3]  %9.5f  %9.5f\n", (double)dx[7], by_nudge[0]);
    printf("  dw[1][1]  %9.5f  %9.5f\n", (double)dw[5], by_nudge[1]);
    printf("  db[1]     %9.5f  %9.5f\n", (double)db[1], by_nudge[2]);
    claim(fabs((double)dx[7] - by_nudge[0]) < 1e-4 && fabs((double)dw[5] - by_nudge[1]) < 1e-4 &&
              fabs((double)db[1] - by_nudge[2]) < 1e-4,
          "dx = dy W, dW = dyT x, db = sum of dy over rows");

    attn_real twice[OUT * IN];
    memcpy(twice, dw, sizeof dw);
    must(attn_linear_backward(dx, dw, db, dy, x, w, ROWS, IN, OUT));
    for (size_t i = 0; i < OUT * IN; i++)
        twice[i] *= 2;
    claim(distance(dw, twice, OUT * IN) < 1e-6,
          "parameter gradients are added to, not overwritten");
}

static void parameters_of_a_layer(void) {
    attn_mha_config cfg = {.d_model = 64, .num_heads = 4, .bias = true};
    attn_mha_config one = {.d_model = 64, .num_heads = 1, .bias = true};
    printf("\nparameters of a layer, D = 64, with biases\n");
    printf("  4 heads of 16: %zu    1 head of 64: %zu\n", attn_mha_num_params(&cfg),
           attn_mha_num_params(&one));
    claim(attn_mha_num_params(&cfg) == 4 * 64 * 64 + 4 * 64, "4 D^2 + 4 D");
    claim(attn_mha_num_params(&cfg) == attn_mha_num_params(&one), "the head count costs nothing");

    attn_real *theta = malloc(attn_mha_num_params(&cfg) * sizeof *theta);
    if (!theta)
        exit(1);
    must(attn_mha_params_init(&cfg, theta, 1));
    attn_mha_params view = attn_mha_params_view(&cfg, theta);
    claim(view.wq == theta && view.wk == view.wq + 64 * 64,
          "a view is pointers into one flat block");
    double largest = 0;
    for (size_t i = 0; i < 64 * 64; i++)
        largest = fmax(largest, fabs((double)view.wq[i]));
    printf("  largest |wq| after Xavier-uniform: %.4f, bound sqrt(6/(64+64)) = %.4f\n", largest,
           sqrt(6.0 / 128));
    claim(largest <= sqrt(6.0 / 128) + 1e-6 && largest > 0.2, "uniform within the bound");
    free(theta);
}

int main(void) {
    forward_and_backward();
    parameters_of_a_layer();
    return 0;
}
