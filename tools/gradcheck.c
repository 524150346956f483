#include "gradcheck.h"

#include "commands.h"
#include "gradcheck_break.h"
#include "json.h"
#include "options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char about[] =
    "Checks every element of every gradient of the attention layer, in double, against finite\n"
    "differences: all kinds of masks, self- and cross-attention, odd shapes, rotary positions,\n"
    "each path. With --break one fault goes into a backward of the same layer; the check must\n"
    "then fail, and say where.";

/* What a run adds up. Names are those of the tables, compared by text. */
typedef struct tally {
    size_t cases, elements;
    double worst;
    const char *worst_tensor;
    char worst_case[96];
    size_t skipped; /* cases that the fused kernel refuses */
    const char *failed[2 * MAX_TENSORS];
    size_t num_failed;
} tally;

static void add_failed(tally *t, const char *name) {
    for (size_t i = 0; i < t->num_failed; i++)
        if (strcmp(t->failed[i], name) == 0)
            return;
    if (t->num_failed < sizeof t->failed / sizeof *t->failed)
        t->failed[t->num_failed++] = name;
}

static void add_outcome(tally *t, const check_outcome *outcome, const char *where) {
    t->cases++;
    t->elements += outcome->report.checked;
    for (size_t i = 0; i < outcome->num_tensors; i++) {
        const attn_gradcheck_tensor_report *r = &outcome->reports[i];
        if (check_failed(r))
            add_failed(t, outcome->tensors[i].name);
        if (r->checked > 0 && !(r->error <= t->worst)) {
            t->worst = r->error;
            t->worst_tensor = outcome->tensors[i].name;
            snprintf(t->worst_case, sizeof t->worst_case, "%s", where);
        }
    }
}

static void add_tally(tally *total, const tally *t) {
    total->cases += t->cases;
    total->elements += t->elements;
    total->skipped += t->skipped;
    for (size_t i = 0; i < t->num_failed; i++)
        add_failed(total, t->failed[i]);
    if (!(t->worst <= total->worst)) {
        total->worst = t->worst;
        total->worst_tensor = t->worst_tensor;
        memcpy(total->worst_case, t->worst_case, sizeof t->worst_case);
    }
}

static const char *kernel_name(attn_kernel kernel) {
    return kernel == ATTN_KERNEL_FUSED ? "fused" : "reference";
}

/* The tensors of a case that failed, one line each. */
static void print_failures(const check_outcome *outcome, const check_case *c) {
    for (size_t i = 0; i < outcome->num_tensors; i++) {
        const attn_gradcheck_tensor_report *r = &outcome->reports[i];
        if (check_failed(r))
            printf("FAILED %s (%s): %s, mask %s, %s: element %zu claimed %.10g, measured %.10g, "
                   "error %.1e; %zu of %zu wrong\n",
                   outcome->tensors[i].name, attn_gradcheck_result_name(r->result), c->shape->name,
                   c->mask_name, kernel_name(c->kernel), r->worst, r->claimed, r->measured,
                   r->error, r->wrong, r->checked);
    }
}

static int finish_json(const tally *t) {
    tool_json json = tool_json_start(stdout);
    tool_json_open(&json, NULL, '{');
    tool_json_count(&json, "elements", t->elements);
    tool_json_number(&json, "worst", t->worst);
    tool_json_open(&json, "failed", '[');
    for (size_t i = 0; i < t->num_failed; i++)
        tool_json_string(&json, NULL, t->failed[i]);
    tool_json_close(&json, ']');
    tool_json_close(&json, '}');
    return tool_json_finish(&json, t->num_failed > 0 ? TOOL_FAILED : TOOL_OK);
}

/* What one line of the table, or all of it, is about. */
typedef struct request {
    attn_kernel kernels[2];
    size_t num_kernels;
    uint64_t seed;
    bool json, every;
} request;

static int check_mask_kind(tally *t, const request *r, size_t mask) {
    for (size_t shape = 0; shape < check_num_shapes; shape++)
        for (size_t k = 0; k < r->num_kernels; k++) {
            check_case c;
            check_outcome outcome = {0};
            char where[sizeof t->worst_case];
            attn_status status = check_case_make(&c, shape, mask, r->kernels[k]);
            if (status == ATTN_OK)
                status = check_layer(&outcome, &c, r->seed + shape);
            if (status == ATTN_ERROR_UNSUPPORTED && c.kernel == ATTN_KERNEL_FUSED) {
                t->skipped++;
                continue;
            }
            if (status != ATTN_OK)
                return tool_fail("%s: %s", check_shapes[shape].name, attn_error_message());
            snprintf(where, sizeof where, "%s, %s", c.shape->name, kernel_name(c.kernel));
            size_t failed = t->num_failed;
            add_outcome(t, &outcome, where);
            if (r->json)
                continue;
            if (r->every)
                printf("%-32s %-26s %-9s  %4zu  %.1e  %s\n", c.mask_name, c.shape->name,
                       kernel_name(c.kernel), outcome.report.checked, outcome.report.worst.error,
                       t->num_failed > failed ? "FAILED" : "ok");
            print_failures(&outcome, &c);
        }
    return TOOL_OK;
}

static int check_everything(const request *r) {
    tally total = {0};
    if (!r->json && !r->every)
        printf("%-32s  cases  elements  worst error  at\n", "mask");
    for (size_t mask = 0; mask < check_num_masks; mask++) {
        tally t = {0};
        int status = check_mask_kind(&t, r, mask);
        if (status != TOOL_OK)
            return status;
        add_tally(&total, &t);
        check_case c;
        if (!r->json && !r->every && check_case_make(&c, 0, mask, r->kernels[0]) == ATTN_OK)
            printf("%-32s  %5zu  %8zu  %11.1e  %s, %s\n", c.mask_name, t.cases, t.elements, t.worst,
                   t.worst_tensor ? t.worst_tensor : "-", t.worst_case);
        fflush(stdout);
    }
    if (total.skipped > 0)
        tool_warn("%zu configurations that the fused kernel does not do are left out",
                  total.skipped);
    if (r->json)
        return finish_json(&total);
    printf("%zu configurations, %zu elements, worst error %.1e (allowed 1e-07): %s\n", total.cases,
           total.elements, total.worst, total.num_failed ? "FAILED" : "passed");
    return total.num_failed ? TOOL_FAILED : TOOL_OK;
}

static void print_broken(const check_outcome *outcome, const char *name, int fault,
                         const tally *t) {
    printf("fault: %s (%s)\n\n"
           "gradient  elements  wrong  worst error   claimed       measured\n",
           name, break_words(fault));
    for (size_t i = 0; i < outcome->num_tensors; i++) {
        const attn_gradcheck_tensor_report *r = &outcome->reports[i];
        printf("%-8s  %8zu  %5zu  %11.1e   %-12.5g  %-12.5g  %s\n", outcome->tensors[i].name,
               r->checked, r->wrong, r->error, r->claimed, r->measured,
               check_failed(r) ? "WRONG" : "ok");
    }
    printf("\nwrong:");
    for (size_t i = 0; i < t->num_failed; i++)
        printf(" %s", t->failed[i]);
    printf(t->num_failed ? "\n" : " nothing; the fault went unnoticed\n");
}

static int check_broken(const char *name, uint64_t seed, bool json) {
    if (strcmp(name, "list") == 0)
        return json ? tool_usage_error("--json does not go with --break list") : break_list();
    int fault = break_find(name);
    if (fault == BREAK_NOTHING)
        return tool_usage_error("--break: there is no fault '%s' (see --break list)", name);
    check_outcome whole = {0}, broken = {0};
    tally sound = {0}, t = {0};
    if (check_composed(&whole, BREAK_NOTHING, seed) != ATTN_OK ||
        check_composed(&broken, fault, seed) != ATTN_OK)
        return tool_fail("%s", attn_error_message());
    add_outcome(&sound, &whole, "");
    if (sound.num_failed > 0)
        return tool_fail("the backward is wrong before any fault goes in: %s", sound.failed[0]);
    add_outcome(&t, &broken, "");
    if (json)
        return finish_json(&t);
    print_broken(&broken, name, fault, &t);
    return t.num_failed > 0 ? TOOL_FAILED : TOOL_OK;
}

/* The fused path is checked where it is there. */
static bool is_supported(attn_kernel kernel) {
    check_case c;
    check_outcome outcome = {0};
    return check_case_make(&c, 0, 0, kernel) == ATTN_OK &&
           check_layer(&outcome, &c, 1) != ATTN_ERROR_UNSUPPORTED;
}

int command_gradcheck(int argc, char **argv) {
    static const char *const kernels[] = {"all", "reference", "fused", NULL};
    enum { ALL, REFERENCE, FUSED };
    int kernel = ALL;
    const char *fault = NULL;
    bool kernel_given = false;
    request r = {.seed = 1};
    const tool_option options[] = {
        {.name = "break",
         .kind = TOOL_TEXT,
         .value = &fault,
         .argument = "NAME",
         .help = "put this fault into the backward; list: print the names"},
        {.name = "kernel",
         .kind = TOOL_CHOICE,
         .value = &kernel,
         .argument = "PATH",
         .choices = kernels,
         .given = &kernel_given,
         .help = "paths to check"},
        {.name = "every",
         .kind = TOOL_FLAG,
         .value = &r.every,
         .help = "a line for every configuration, not for every mask"},
        {.name = "seed", .kind = TOOL_SEED, .value = &r.seed, .help = "of all random numbers"},
        {.name = "json", .kind = TOOL_FLAG, .value = &r.json, .help = "one line of JSON, no table"},
        {0}};
    const tool_usage usage = {.about = about, .options = options};
    int status;
    if (!tool_options_parse(&usage, argc, argv, NULL, &status))
        return status;
    if (fault && (kernel_given || r.every))
        return tool_usage_error("--%s does not go with --break, which has a backward of its own",
                                kernel_given ? "kernel" : "every");
    if (fault)
        return check_broken(fault, r.seed, r.json);
    if (kernel != FUSED)
        r.kernels[r.num_kernels++] = ATTN_KERNEL_REFERENCE;
    if (kernel == FUSED || (kernel == ALL && is_supported(ATTN_KERNEL_FUSED)))
        r.kernels[r.num_kernels++] = ATTN_KERNEL_FUSED;
    return check_everything(&r);
}
