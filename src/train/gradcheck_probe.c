#include "train/gradcheck_internal.h"

#include "base/fail.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

/* Calls the function with an arena that begins behind the checker's own scratch, so that even a
 * reset cannot reach that. What the function leaves in it is given back. */
static attn_status call(gradcheck_run *run, double *value, real *gradient) {
    const attn_gradcheck_problem *p = run->problem;
    attn_arena *arena = run->arena, whole = *arena;
    arena->base += whole.used;
    arena->capacity -= whole.used;
    arena->used = arena->high_water = 0;
    attn_status status = p->function(p->user, p->x, value, gradient);
    attn_arena_reset(arena);
    whole.high_water = size_max(whole.high_water, whole.used + arena->high_water);
    *arena = whole;
    return status;
}

attn_status attni_gradcheck_evaluate(gradcheck_run *run, double *value, real *gradient) {
    const attn_gradcheck_problem *p = run->problem;
    *value = NAN;
    for (size_t i = 0; gradient && i < p->count; i++)
        gradient[i] = (real)NAN;
    run->evaluations++;
    ATTNI_TRY(call(run, value, gradient));
    if (p->count > 0 && memcmp(p->x, run->sent, p->count * sizeof *p->x) != 0) {
        run->stopped = ATTN_GRADCHECK_NOT_REPEATABLE;
        run->reason = "the function changed x";
    }
    return ATTN_OK;
}

/* How far element j moves at factor 1, before the direction's random sign. */
static double element_step(const gradcheck_run *run, size_t j, size_t elements) {
    double magnitude = fabs((double)run->saved[j]);
    if (magnitude > GRADCHECK_X_MAX)
        return 0;
    return run->options.step * fmax(1, magnitude) / sqrt((double)elements);
}

static double sign(attn_random *signs) {
    return attn_random_u32(signs) & 1 ? 1 : -1;
}

/* A pair of points on both sides of x as they come out after rounding: x⁺ - x⁻ per element. */
typedef struct pair {
    bool moves;       /* some element is not skipped */
    double length;    /* |x⁺ - x⁻| */
    double wanted;    /* its length without rounding */
    double lopsided;  /* |(x⁺ - x) - (x - x⁻)| */
    double predicted; /* a · (x⁺ - x⁻), the change of f that the claim foretells */
} pair;

static pair measure_pair(const gradcheck_run *run, size_t begin, size_t end, double factor,
                         attn_random signs) {
    pair p = {0};
    for (size_t j = begin; j < end; j++) {
        double x = (double)run->saved[j];
        double t = factor * sign(&signs) * element_step(run, j, end - begin);
        real plus = (real)(x + t), minus = (real)(x - t);
        double taken = (double)plus - (double)minus;
        double uneven = ((double)plus - x) - (x - (double)minus);
        p.moves |= t != 0;
        p.length += taken * taken;
        p.wanted += 4 * t * t;
        p.lopsided += uneven * uneven;
        if (t != 0)
            p.predicted += (double)run->gradient[j] * taken;
    }
    p.length = sqrt(p.length);
    p.wanted = sqrt(p.wanted);
    p.lopsided = sqrt(p.lopsided);
    return p;
}

/* Whether rounding left the pair about where it was meant to be. */
static bool resolved(const pair *p) {
    return p->wanted > 0 && fabs(p->length - p->wanted) <= p->wanted / 16 &&
           p->lopsided <= p->wanted / 16;
}

/* f with x[begin..end) moved to one side. */
static attn_status value_beside(gradcheck_run *run, size_t begin, size_t end, double factor,
                                attn_random signs, double *value) {
    real *x = run->problem->x;
    for (size_t j = begin; j < end; j++) {
        double t = factor * sign(&signs) * element_step(run, j, end - begin);
        x[j] = run->sent[j] = (real)((double)run->saved[j] + t);
    }
    attn_status status = attni_gradcheck_evaluate(run, value, NULL);
    size_t bytes = (end - begin) * sizeof *x;
    memcpy(x + begin, run->saved + begin, bytes);
    memcpy(run->sent + begin, run->saved + begin, bytes);
    return status;
}

/* Values at x + h, x - h, x + h/2, x - h/2. */
static attn_status four_values(gradcheck_run *run, size_t begin, size_t end, attn_random signs,
                               double values[4]) {
    static const double factors[4] = {1, -1, 0.5, -0.5};
    for (int k = 0; k < 4 && run->stopped == ATTN_GRADCHECK_PASSED; k++)
        ATTNI_TRY(value_beside(run, begin, end, factors[k], signs, &values[k]));
    return ATTN_OK;
}

/* A kink or a jump: the second difference of a smooth function falls to a quarter when the step is
 * halved, and its first differences nearly agree. */
static bool is_rough(const gradcheck_run *run, const double f[4], double wide, double narrow,
                     double claimed) {
    double second_wide = f[0] - 2 * run->value + f[1];
    double second_narrow = f[2] - 2 * run->value + f[3];
    bool kink = fabs(second_narrow) > run->options.value_noise &&
                fabs(second_wide) < 3 * fabs(second_narrow);
    bool jump = fabs(wide - narrow) > 0.1 * fmax(fabs(claimed), fmax(fabs(wide), fabs(narrow)));
    return kink || jump;
}

/* With s the step taken, F = f(x⁺) - f(x⁻) and P what the claim predicts for it, the claim is off
 * by
 *
 *     E(s) = (F - P) / s        e = (E(s₂) - r² E(s₁)) / (1 - r²),   r = s₂/s₁, about 1/2
 *
 * (Richardson: the error of E is O(s²), that of e is O(s⁴)). Measured is claimed + e. */
attn_status attni_gradcheck_probe(gradcheck_run *run, size_t begin, size_t end,
                                  gradcheck_outcome *outcome, gradcheck_item *item) {
    for (size_t j = begin; j < end; j++)
        if (!isfinite(run->gradient[j])) {
            *outcome = GRADCHECK_NOT_FINITE;
            return ATTN_OK;
        }
    attn_random signs = run->random;
    for (size_t j = begin; j < end; j++)
        (void)sign(&run->random);
    pair wide = measure_pair(run, begin, end, 1, signs);
    pair narrow = measure_pair(run, begin, end, 0.5, signs);
    *outcome = !wide.moves                              ? GRADCHECK_SKIPPED
               : !resolved(&wide) || !resolved(&narrow) ? GRADCHECK_UNRESOLVED
                                                        : GRADCHECK_MEASURED;
    if (*outcome != GRADCHECK_MEASURED)
        return ATTN_OK;
    double f[4] = {NAN, NAN, NAN, NAN};
    ATTNI_TRY(four_values(run, begin, end, signs, f));
    if (!isfinite(f[0]) || !isfinite(f[1]) || !isfinite(f[2]) || !isfinite(f[3])) {
        *outcome = GRADCHECK_NOT_FINITE;
        return ATTN_OK;
    }
    double change_wide = f[0] - f[1], change_narrow = f[2] - f[3];
    double error_wide = (change_wide - wide.predicted) / wide.length;
    double error_narrow = (change_narrow - narrow.predicted) / narrow.length;
    double r = narrow.length / wide.length;
    item->claimed = narrow.predicted / narrow.length;
    item->measured = item->claimed + (error_narrow - r * r * error_wide) / (1 - r * r);
    item->noise = run->options.value_noise / (wide.length / 2);
    item->rough =
        is_rough(run, f, change_wide / wide.length, change_narrow / narrow.length, item->claimed);
    return ATTN_OK;
}
