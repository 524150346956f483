#include "kernels/bodies.h"

/* The compiler makes vectors of these loops; what is left over where half a head is no whole number
 * of vectors goes in narrower ones. */
static void turn_interleaved(real *restrict pairs, size_t count, const real *restrict cosine,
                             const real *restrict sine) {
    for (size_t m = 0; m < count; m++) {
        const real x = pairs[2 * m], y = pairs[2 * m + 1];
        pairs[2 * m] = x * cosine[m] - y * sine[m];
        pairs[2 * m + 1] = x * sine[m] + y * cosine[m];
    }
}

static void turn_halves(real *restrict low, real *restrict high, size_t count,
                        const real *restrict cosine, const real *restrict sine) {
    for (size_t m = 0; m < count; m++) {
        const real x = low[m], y = high[m];
        low[m] = x * cosine[m] - y * sine[m];
        high[m] = x * sine[m] + y * cosine[m];
    }
}

static void step(attni_angles *a) {
    double *restrict cosine = a->cosine, *restrict sine = a->sine;
    const double *restrict step_cosine = a->step_cosine, *restrict step_sine = a->step_sine;
    for (size_t m = 0; m < a->count; m++) {
        const double c = cosine[m], s = sine[m];
        cosine[m] = c * step_cosine[m] - s * step_sine[m];
        sine[m] = s * step_cosine[m] + c * step_sine[m];
    }
}

static void turn_row(const attni_turn *t, real *x, const attni_angles *a) {
    real cosine[ATTNI_ROPE_PAIRS], sine[ATTNI_ROPE_PAIRS];
    for (size_t m = 0; m < a->count; m++) {
        cosine[m] = (real)a->cosine[m];
        sine[m] = (real)(t->back ? -a->sine[m] : a->sine[m]);
    }
    for (size_t h = 0; h < t->heads; h++, x += t->head)
        if (t->interleaved)
            turn_interleaved(x + 2 * a->first, a->count, cosine, sine);
        else
            turn_halves(x + a->first, x + t->d_head / 2 + a->first, a->count, cosine, sine);
}

void KERNEL(rope)(const attni_turn *turn, attni_angles *angles) {
    real *x = turn->x;
    for (size_t t = 0; t < turn->rows; t++, x += turn->row) {
        if (turn->heads > 0)
            turn_row(turn, x, angles);
        step(angles);
    }
}
