/*
 * gradcheck.h - is a gradient the gradient? Any function of yours against finite differences.
 *
 *     static attn_status loss(void *user, const attn_real *x, double *value, attn_real *gradient)
 *     {
 *         ... compute *value from x; if gradient is not NULL, overwrite it with the claim ...
 *     }
 *
 *     attn_gradcheck_tensor tensors[] = {{"w", 0, 12}, {"b", 12, 3}};
 *     attn_gradcheck_problem problem = {.function = loss, .user = &model, .x = theta, .count = 15,
 *                                       .tensors = tensors, .num_tensors = 2};
 *     attn_gradcheck_tensor_report tensor_reports[2];
 *     attn_gradcheck_report report;
 *     status = attn_gradcheck_run(&report, tensor_reports, &problem, NULL, &arena);
 *     if (status == ATTN_OK && report.result == ATTN_GRADCHECK_PASSED) ...
 *
 * Method. Each element of x is moved to both sides by h and by h/2. Each pair of values gives a
 * central difference, divided by the step actually taken (x + h is rounded), and the two are
 * combined by Richardson's extrapolation, which leaves an error of O(h^4):
 *
 *     D(h) = (f(x+h) - f(x-h)) / 2h        n = (4 D(h/2) - D(h)) / 3
 *
 * The claim a agrees if
 *
 *     |a - n| <= tolerance · max(|a|, |n|, floor · largest gradient of that tensor,
 *                                noise / tolerance, 1e-9 · max(1,|f|))
 *
 * where noise = 16 · epsilon · max(1,|f|) / h is what the rounding of f can do to n: gradients that
 * are zero, or zero to rounding, are compared absolutely. It is never silently large: where it
 * would swallow the largest gradient too, the result is ATTN_GRADCHECK_STEP_TOO_SMALL.
 *
 *                  h                      tolerance   floor
 *     double       1e-3 · max(1,|x|)      1e-7        1e-4
 *     float        3e-2 · max(1,|x|)      1e-2        1e-2
 *
 * How a checker gets fooled, and what is done about it here:
 * - A sum of outputs as the loss has an upstream gradient of ones, which hides whole classes of
 *   faults (a softmax's rows always sum to 1). attn_gradcheck_project gives a random one.
 * - The gradient is poisoned with NaN before each call: an element never written, or added to where
 *   it should have been overwritten, shows.
 * - NaN compares as different, never as equal.
 * - The function is called twice at the start and once more at the end, and must answer with the
 *   same bits: dropout with a fresh seed, or state that creeps, is not a wrong gradient but a
 *   function that cannot be checked. Changing x counts as the same fault.
 * - A function that does not move at all, with a claim of zero, shows nothing and does not pass.
 * - A value computed differently when no gradient is asked for is another function.
 * - At a kink or a jump of f differences mean little: `rough` counts the disagreements there.
 */
#ifndef ATTN_GRADCHECK_H
#define ATTN_GRADCHECK_H

#include <attn/arena.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the value at x, and the claimed gradient (count reals, overwritten) unless `gradient` is
 * NULL. x is the problem's own array, so a model whose parameters are views into it may read them
 * there. Anything but ATTN_OK ends the check and is passed on. */
typedef attn_status attn_gradcheck_function(void *user, const attn_real *x, double *value,
                                            attn_real *gradient);

/* A part of x with a name, for the report. */
typedef struct attn_gradcheck_tensor {
    const char *name;
    size_t offset, count;
} attn_gradcheck_tensor;

typedef struct attn_gradcheck_problem {
    attn_gradcheck_function *function;
    void *user;
    attn_real *x; /* the point; moved during the check, then restored to the bit */
    size_t count;
    const attn_gradcheck_tensor *tensors; /* in ascending order, not overlapping; what they leave */
    size_t num_tensors;                   /* out is not checked. None = all of x as one tensor */
} attn_gradcheck_problem;

typedef enum attn_gradcheck_mode {
    ATTN_GRADCHECK_EVERY = 0, /* every element: 4 evaluations each */
    ATTN_GRADCHECK_SUBSET,    /* `samples` random elements of each tensor, without repetition */
    ATTN_GRADCHECK_DIRECTIONS /* `samples` random directions in each tensor, all its elements moved
                                 together: cheap, but one wrong element among n is diluted by the
                                 square root of n */
} attn_gradcheck_mode;

/* Zero (or a NULL pointer to options) is the default everywhere. */
typedef struct attn_gradcheck_options {
    attn_gradcheck_mode mode;
    size_t samples;     /* 0 = 16 */
    uint64_t seed;      /* of the random choice */
    double step;        /* h at |x| <= 1 */
    double tolerance;   /* largest relative error */
    double value_noise; /* rounding error of f; 0 = 16 · epsilon · max(1,|f|) */
} attn_gradcheck_options;

/* From good to bad; a report has the worst that occurred. */
typedef enum attn_gradcheck_result {
    ATTN_GRADCHECK_PASSED = 0,
    ATTN_GRADCHECK_VACUOUS,        /* nothing was checked, or all is zero: nothing was shown */
    ATTN_GRADCHECK_STEP_TOO_SMALL, /* the step, or the change it causes, is lost in rounding */
    ATTN_GRADCHECK_WRONG,          /* a claimed gradient differs from the measured one */
    ATTN_GRADCHECK_NOT_FINITE,     /* NaN or infinity in x, a value, or a claimed gradient */
    ATTN_GRADCHECK_NOT_REPEATABLE  /* the function gave two answers to one question, or changed x */
} attn_gradcheck_result;

typedef struct attn_gradcheck_tensor_report {
    attn_gradcheck_result result;
    size_t checked;    /* elements or directions compared */
    size_t wrong;      /* of these, how many disagree */
    size_t skipped;    /* |x| > 1e6 */
    size_t unresolved; /* the step vanishes in the rounding of x */
    size_t not_finite; /* claims never written or not finite, values not finite beside x */
    size_t coarse;     /* compared absolutely: rounding of f is larger than tolerance · gradient */
    size_t rough;      /* of the wrong ones, how many stand at a kink or a jump of f */
    size_t worst;      /* element with the largest error (in the tensor, from 0), or direction; the
                          first that is not finite, if there is one */
    double claimed, measured; /* a and n there */
    double error;             /* relative error there, as compared with the tolerance */
    double largest;           /* largest |a| or |n| of the tensor */
} attn_gradcheck_tensor_report;

typedef struct attn_gradcheck_report {
    attn_gradcheck_result result;
    double value;                               /* f(x) */
    double tolerance;                           /* as used */
    size_t checked, wrong, skipped, unresolved; /* sums over all tensors */
    size_t not_finite, coarse, rough;
    size_t unlisted;     /* elements of x in no tensor */
    size_t evaluations;  /* calls of the function */
    size_t worst_tensor; /* index; its report has the details */
    attn_gradcheck_tensor_report worst;
    const char *reason; /* one line of static text that explains the result */
} attn_gradcheck_report;

/* "passed", "wrong", "not repeatable", ... */
ATTN_API const char *attn_gradcheck_result_name(attn_gradcheck_result result);

/* Arena bytes of a run, in need->inference. */
ATTN_API attn_status attn_gradcheck_memory(const attn_gradcheck_problem *problem,
                                           const attn_gradcheck_options *options,
                                           attn_memory *need);

/* The check. ATTN_OK says that it was made, report->result how it ended. `tensors` (num_tensors,
 * or 1 without a list) may be NULL. Where the function fails, its status is the answer, and reports
 * are as they were. Scratch is given back to the arena. The function may use the same arena: for
 * each call it begins, empty, behind that scratch. */
ATTN_API attn_status attn_gradcheck_run(attn_gradcheck_report *report,
                                        attn_gradcheck_tensor_report *tensors,
                                        const attn_gradcheck_problem *problem,
                                        const attn_gradcheck_options *options, attn_arena *arena);

/* A loss with a random upstream gradient: r_i standard normal from the seed, *value = sum of r_i
 * y_i and dy_i = r_i. dy may be NULL. */
ATTN_API attn_status attn_gradcheck_project(double *value, attn_real *dy, const attn_real *y,
                                            size_t count, uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
