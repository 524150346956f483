#include "train/gradcheck_internal.h"

#include "base/fail.h"
#include "base/size.h"

#include <float.h>
#include <math.h>
#include <string.h>

#ifdef ATTN_DOUBLE
#define EPSILON           DBL_EPSILON
#define DEFAULT_STEP      1e-3
#define DEFAULT_TOLERANCE 1e-7
#define FLOOR             1e-4
#else
#define EPSILON           FLT_EPSILON
#define DEFAULT_STEP      3e-2
#define DEFAULT_TOLERANCE 1e-2
#define FLOOR             1e-2
#endif

enum { DEFAULT_SAMPLES = 16 };

const char *attn_gradcheck_result_name(attn_gradcheck_result result) {
    switch (result) {
    case ATTN_GRADCHECK_PASSED:
        return "passed";
    case ATTN_GRADCHECK_VACUOUS:
        return "vacuous";
    case ATTN_GRADCHECK_STEP_TOO_SMALL:
        return "step too small for this precision";
    case ATTN_GRADCHECK_WRONG:
        return "wrong";
    case ATTN_GRADCHECK_NOT_FINITE:
        return "not finite";
    case ATTN_GRADCHECK_NOT_REPEATABLE:
        return "not repeatable";
    }
    return "unknown result";
}

static const char *default_reason(attn_gradcheck_result result) {
    switch (result) {
    case ATTN_GRADCHECK_PASSED:
        return "every gradient compared agrees with its differences";
    case ATTN_GRADCHECK_VACUOUS:
        return "a tensor had no element that could be compared";
    case ATTN_GRADCHECK_STEP_TOO_SMALL:
        return "x + h rounds to x: the step vanishes";
    case ATTN_GRADCHECK_WRONG:
        return "a claimed gradient differs from its differences";
    default:
        return "a claim was never written or is not finite, or a value beside x is not finite";
    }
}

/* The list of tensors, or x as a whole where there is none. */
static attn_gradcheck_tensor tensor_at(const attn_gradcheck_problem *p, size_t t) {
    return p->num_tensors ? p->tensors[t] : (attn_gradcheck_tensor){"x", 0, p->count};
}

static size_t num_tensors(const attn_gradcheck_problem *p) {
    return size_max(p->num_tensors, 1);
}

static attn_status check_problem(const attn_gradcheck_problem *p) {
    if (!p || !p->function)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_gradcheck: %s is NULL",
                          p ? "function" : "problem");
    if ((!p->x && p->count > 0) || (!p->tensors && p->num_tensors > 0))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_gradcheck: %s is NULL",
                          p->x ? "tensors" : "x");
    size_t end = 0;
    for (size_t t = 0; t < p->num_tensors; t++) {
        const attn_gradcheck_tensor *tensor = &p->tensors[t];
        if (tensor->offset < end || tensor->offset > p->count ||
            tensor->count > p->count - tensor->offset)
            return attni_fail(
                ATTN_ERROR_ARGUMENT,
                "attn_gradcheck: tensor '%s', offset %zu, count %zu, overlaps the one "
                "before it or leaves x, which has %zu",
                tensor->name ? tensor->name : "", tensor->offset, tensor->count, p->count);
        end = tensor->offset + tensor->count;
    }
    return ATTN_OK;
}

static attn_status resolve_options(attn_gradcheck_options *resolved,
                                   const attn_gradcheck_options *options) {
    *resolved = options ? *options : (attn_gradcheck_options){0};
    if ((unsigned)resolved->mode > ATTN_GRADCHECK_DIRECTIONS)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_gradcheck: mode %d is unknown",
                          (int)resolved->mode);
    if (!(resolved->step >= 0 && resolved->step <= 1))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_gradcheck: step %g, expected above 0 to 1",
                          resolved->step);
    if (!(resolved->tolerance >= 0 && resolved->tolerance < 1))
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "attn_gradcheck: tolerance %g, expected above 0 and below 1",
                          resolved->tolerance);
    if (!(resolved->value_noise >= 0 && isfinite(resolved->value_noise)))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_gradcheck: value_noise %g is not a size",
                          resolved->value_noise);
    if (resolved->samples == 0)
        resolved->samples = DEFAULT_SAMPLES;
    if (resolved->step == 0)
        resolved->step = DEFAULT_STEP;
    if (resolved->tolerance == 0)
        resolved->tolerance = DEFAULT_TOLERANCE;
    return ATTN_OK;
}

static size_t samples_of(const attn_gradcheck_options *options, size_t count) {
    switch (options->mode) {
    case ATTN_GRADCHECK_SUBSET:
        return size_min(options->samples, count);
    case ATTN_GRADCHECK_DIRECTIONS:
        return count ? options->samples : 0;
    default:
        return count;
    }
}

static attn_status carve_reals(gradcheck_run *run, real **array) {
    void *object;
    ATTNI_TRY(attn_arena_alloc(run->arena, &object, run->problem->count, sizeof(real)));
    *array = object;
    return ATTN_OK;
}

static attn_status carve(gradcheck_run *run) {
    size_t max_items = 0;
    void *items, *reports;
    for (size_t t = 0; t < num_tensors(run->problem); t++)
        max_items =
            size_max(max_items, samples_of(&run->options, tensor_at(run->problem, t).count));
    ATTNI_TRY(carve_reals(run, &run->saved));
    ATTNI_TRY(carve_reals(run, &run->sent));
    ATTNI_TRY(carve_reals(run, &run->gradient));
    ATTNI_TRY(carve_reals(run, &run->again));
    ATTNI_TRY(attn_arena_alloc(run->arena, &items, max_items, sizeof(gradcheck_item)));
    ATTNI_TRY(attn_arena_alloc(run->arena, &reports, num_tensors(run->problem),
                               sizeof(attn_gradcheck_tensor_report)));
    run->items = items;
    run->reports = reports;
    return ATTN_OK;
}

attn_status attn_gradcheck_memory(const attn_gradcheck_problem *problem,
                                  const attn_gradcheck_options *options, attn_memory *need) {
    if (!need)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_gradcheck_memory: need is NULL");
    ATTNI_TRY(check_problem(problem));
    attn_arena counter;
    ATTNI_TRY(attn_arena_init_measuring(&counter));
    gradcheck_run run = {.problem = problem, .arena = &counter};
    ATTNI_TRY(resolve_options(&run.options, options));
    ATTNI_TRY(carve(&run));
    *need = (attn_memory){.training = counter.high_water, .inference = counter.high_water};
    return ATTN_OK;
}

static void stop(gradcheck_run *run, attn_gradcheck_result result, const char *reason) {
    run->stopped = result;
    run->reason = reason;
}

static bool same_bits(const void *a, const void *b, size_t bytes) {
    return bytes == 0 || memcmp(a, b, bytes) == 0;
}

/* The claim, asked for twice, and the value alone: all must agree to the bit. */
static attn_status ask_at_x(gradcheck_run *run) {
    size_t bytes = run->problem->count * sizeof(real);
    for (size_t i = 0; i < run->problem->count; i++)
        if (!isfinite(run->saved[i])) {
            stop(run, ATTN_GRADCHECK_NOT_FINITE, "x holds NaN or an infinity");
            return ATTN_OK;
        }
    double again, alone;
    ATTNI_TRY(attni_gradcheck_evaluate(run, &run->value, run->gradient));
    if (run->stopped)
        return ATTN_OK;
    ATTNI_TRY(attni_gradcheck_evaluate(run, &again, run->again));
    if (run->stopped)
        return ATTN_OK;
    ATTNI_TRY(attni_gradcheck_evaluate(run, &alone, NULL));
    if (run->stopped)
        return ATTN_OK;
    if (!same_bits(&run->value, &again, sizeof again))
        stop(run, ATTN_GRADCHECK_NOT_REPEATABLE, "the function gave two values for one x");
    else if (!same_bits(run->gradient, run->again, bytes))
        stop(run, ATTN_GRADCHECK_NOT_REPEATABLE, "the function gave two gradients for one x");
    else if (!same_bits(&run->value, &alone, sizeof alone))
        stop(run, ATTN_GRADCHECK_NOT_REPEATABLE,
             "the function gives another value when no gradient is asked for");
    else if (!isfinite(run->value))
        stop(run, ATTN_GRADCHECK_NOT_FINITE, "the value at x is not finite");
    return ATTN_OK;
}

/* The same question at the end of the run: state that crept along shows here. */
static attn_status ask_once_more(gradcheck_run *run) {
    double value;
    ATTNI_TRY(attni_gradcheck_evaluate(run, &value, run->again));
    if (!run->stopped &&
        (!same_bits(&value, &run->value, sizeof value) ||
         !same_bits(run->gradient, run->again, run->problem->count * sizeof(real))))
        stop(run, ATTN_GRADCHECK_NOT_REPEATABLE,
             "after the check the function answers otherwise: it keeps state");
    return ATTN_OK;
}

/* Books one probe; only what was measured stays among the items. */
static void book(attn_gradcheck_tensor_report *report, gradcheck_outcome outcome, size_t index) {
    switch (outcome) {
    case GRADCHECK_MEASURED:
        report->checked++;
        break;
    case GRADCHECK_SKIPPED:
        report->skipped++;
        break;
    case GRADCHECK_UNRESOLVED:
        report->unresolved++;
        break;
    case GRADCHECK_NOT_FINITE:
        if (report->not_finite++ == 0)
            report->worst = index;
        break;
    }
}

static attn_status probe_elements(gradcheck_run *run, const attn_gradcheck_tensor *tensor,
                                  attn_gradcheck_tensor_report *report) {
    size_t wanted = samples_of(&run->options, tensor->count);
    for (size_t i = 0; i < tensor->count && !run->stopped; i++) {
        /* Each subset of that size is equally likely (Knuth, TAOCP 2, algorithm 3.4.2 S). */
        size_t left = tensor->count - i;
        if (wanted < left && attn_random_uniform(&run->random) * (double)left >= (double)wanted)
            continue;
        wanted--;
        gradcheck_outcome outcome;
        gradcheck_item *item = &run->items[report->checked];
        size_t at = tensor->offset + i;
        ATTNI_TRY(attni_gradcheck_probe(run, at, at + 1, &outcome, item));
        item->index = i;
        book(report, outcome, i);
    }
    return ATTN_OK;
}

static attn_status probe_directions(gradcheck_run *run, const attn_gradcheck_tensor *tensor,
                                    attn_gradcheck_tensor_report *report) {
    for (size_t i = 0; i < tensor->count; i++) {
        report->skipped += fabs((double)run->saved[tensor->offset + i]) > GRADCHECK_X_MAX;
        if (!isfinite(run->gradient[tensor->offset + i]))
            book(report, GRADCHECK_NOT_FINITE, i);
    }
    size_t directions = report->not_finite ? 0 : samples_of(&run->options, tensor->count);
    for (size_t k = 0; k < directions && !run->stopped; k++) {
        gradcheck_outcome outcome;
        gradcheck_item *item = &run->items[report->checked];
        ATTNI_TRY(attni_gradcheck_probe(run, tensor->offset, tensor->offset + tensor->count,
                                        &outcome, item));
        item->index = k;
        if (outcome != GRADCHECK_SKIPPED)
            book(report, outcome, k);
    }
    return ATTN_OK;
}

static void judge(gradcheck_run *run, size_t count, attn_gradcheck_tensor_report *report) {
    double tolerance = run->options.tolerance, value_scale = fmax(1, fabs(run->value));
    for (size_t i = 0; i < report->checked; i++) {
        const gradcheck_item *item = &run->items[i];
        report->largest = fmax(report->largest, fmax(fabs(item->claimed), fabs(item->measured)));
    }
    double worst = -1;
    for (size_t i = 0; i < report->checked; i++) {
        const gradcheck_item *item = &run->items[i];
        double size =
            fmax(fmax(fabs(item->claimed), fabs(item->measured)), run->floor * report->largest);
        double absolute = fmax(item->noise / tolerance, 1e-9 * value_scale);
        double error = fabs(item->claimed - item->measured) / fmax(size, absolute);
        if (isnan(error)) /* sizes beyond the range of double */
            error = INFINITY;
        bool wrong = error > tolerance;
        run->largest_claim = fmax(run->largest_claim, fabs(item->claimed));
        run->seen |= item->noise <= tolerance * fmax(fabs(item->claimed), fabs(item->measured));
        report->coarse += absolute > size;
        report->wrong += wrong;
        report->rough += wrong && item->rough;
        if (error > worst) {
            worst = report->error = error;
            report->claimed = item->claimed;
            report->measured = item->measured;
            if (!report->not_finite)
                report->worst = item->index;
        }
    }
    report->result = report->not_finite                  ? ATTN_GRADCHECK_NOT_FINITE
                     : report->wrong                     ? ATTN_GRADCHECK_WRONG
                     : report->unresolved                ? ATTN_GRADCHECK_STEP_TOO_SMALL
                     : report->checked == 0 && count > 0 ? ATTN_GRADCHECK_VACUOUS
                                                         : ATTN_GRADCHECK_PASSED;
}

static bool is_worse(const attn_gradcheck_tensor_report *a, const attn_gradcheck_tensor_report *b) {
    return a->result != b->result ? a->result > b->result : a->error > b->error;
}

static void add_tensor(attn_gradcheck_report *total, const attn_gradcheck_tensor_report *tensor,
                       size_t t) {
    total->checked += tensor->checked;
    total->wrong += tensor->wrong;
    total->skipped += tensor->skipped;
    total->unresolved += tensor->unresolved;
    total->not_finite += tensor->not_finite;
    total->coarse += tensor->coarse;
    total->rough += tensor->rough;
    if (t == 0 || is_worse(tensor, &total->worst)) {
        total->worst = *tensor;
        total->worst_tensor = t;
    }
}

/* What the whole shows once no tensor is wrong: is any gradient large enough to be seen at all? */
static void judge_whole(const gradcheck_run *run, attn_gradcheck_report *report) {
    report->result = report->worst.result;
    report->reason = report->rough && report->result == ATTN_GRADCHECK_WRONG
                         ? "a claimed gradient differs from its differences, at a kink or a jump"
                         : default_reason(report->result);
    if (report->result >= ATTN_GRADCHECK_STEP_TOO_SMALL)
        return;
    if (report->checked == 0 || run->largest_claim <= 16 * EPSILON) {
        report->result = ATTN_GRADCHECK_VACUOUS;
        report->reason = report->checked ? "every gradient is zero: nothing was shown"
                                         : "nothing could be compared";
    } else if (!run->seen) {
        report->result = ATTN_GRADCHECK_STEP_TOO_SMALL;
        report->reason = "the rounding of the value hides gradients of this size";
    }
}

static attn_status check_tensors(gradcheck_run *run, attn_gradcheck_report *report) {
    for (size_t t = 0; t < num_tensors(run->problem); t++) {
        attn_gradcheck_tensor tensor = tensor_at(run->problem, t);
        attn_gradcheck_tensor_report one = {0};
        ATTNI_TRY(run->options.mode == ATTN_GRADCHECK_DIRECTIONS
                      ? probe_directions(run, &tensor, &one)
                      : probe_elements(run, &tensor, &one));
        if (run->stopped)
            return ATTN_OK;
        judge(run, tensor.count, &one);
        report->unlisted -= tensor.count;
        add_tensor(report, &one, t);
        run->reports[t] = one;
    }
    judge_whole(run, report);
    return ATTN_OK;
}

static attn_status check_all(gradcheck_run *run, attn_gradcheck_report *report) {
    ATTNI_TRY(ask_at_x(run));
    if (run->options.value_noise == 0)
        run->options.value_noise = 16 * EPSILON * fmax(1, fabs(run->value));
    if (!run->stopped)
        ATTNI_TRY(check_tensors(run, report));
    if (!run->stopped)
        ATTNI_TRY(ask_once_more(run));
    report->value = run->value;
    report->evaluations = run->evaluations;
    if (run->stopped) {
        report->result = run->stopped;
        report->reason = run->reason;
    }
    return ATTN_OK;
}

attn_status attn_gradcheck_run(attn_gradcheck_report *report, attn_gradcheck_tensor_report *tensors,
                               const attn_gradcheck_problem *problem,
                               const attn_gradcheck_options *options, attn_arena *arena) {
    if (!report || !arena || arena->measuring)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_gradcheck_run: %s",
                          !report  ? "report is NULL"
                          : !arena ? "arena is NULL"
                                   : "the arena is measuring");
    ATTNI_TRY(check_problem(problem));
    gradcheck_run run = {.problem = problem, .floor = FLOOR, .arena = arena};
    ATTNI_TRY(resolve_options(&run.options, options));
    size_t mark = attn_arena_mark(arena), bytes = problem->count * sizeof(real);
    attn_status status = carve(&run);
    if (status == ATTN_OK) {
        attn_gradcheck_report result = {.tolerance = run.options.tolerance,
                                        .unlisted = problem->count};
        for (size_t t = 0; t < num_tensors(problem); t++)
            run.reports[t] = (attn_gradcheck_tensor_report){0};
        run.random = attn_random_seed(run.options.seed, 0x6772);
        if (bytes > 0) {
            memcpy(run.saved, problem->x, bytes);
            memcpy(run.sent, problem->x, bytes);
        }
        status = check_all(&run, &result);
        if (bytes > 0)
            memcpy(problem->x, run.saved, bytes);
        if (status == ATTN_OK) {
            *report = result;
            if (tensors)
                memcpy(tensors, run.reports, num_tensors(problem) * sizeof *tensors);
        }
    }
    (void)attn_arena_rewind(arena, mark);
    return status;
}

attn_status attn_gradcheck_project(double *value, attn_real *dy, const attn_real *y, size_t count,
                                   uint64_t seed) {
    if (!value || (!y && count > 0))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_gradcheck_project: %s is NULL",
                          value ? "y" : "value");
    attn_random random = attn_random_seed(seed, 0x7072);
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        real r = (real)attn_random_normal(&random);
        sum += (double)r * (double)y[i];
        if (dy)
            dy[i] = r;
    }
    *value = sum;
    return ATTN_OK;
}
