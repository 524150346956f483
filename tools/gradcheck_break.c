/* `attn gradcheck --break NAME`: the checker against a backward that is wrong on purpose. */
#include "gradcheck_composed.h"
#include "gradcheck_tally.h"
#include "tool.h"

#include <attn/random.h>

#include <stdio.h>
#include <string.h>

static const attn_gradcheck_tensor tensors[] = {
#define TENSOR(member)                                                   \
    {                                                                    \
        "d" #member, offsetof(composed_values, member) / sizeof(double), \
            sizeof(((composed_values *)0)->member) / sizeof(double)      \
    }
    TENSOR(wq), TENSOR(wk), TENSOR(wv), TENSOR(wo),   TENSOR(bq),    TENSOR(bk),
    TENSOR(bv), TENSOR(bo), TENSOR(x),  TENSOR(bias), TENSOR(sinks), TENSOR(alibi_slopes),
#undef TENSOR
};

enum {
    NUM_TENSORS = sizeof tensors / sizeof *tensors,
    NUM_FULL_ALONE = 3, /* the last of them */
    NUM_OUTPUTS = COMPOSED_BATCH * COMPOSED_LEN * COMPOSED_D_MODEL
};

typedef struct composed {
    bool full;
    composed_fault fault;
    double y[NUM_OUTPUTS], dy[NUM_OUTPUTS];
} composed;

static attn_status run_composed(void *user, const attn_real *x, double *value,
                                attn_real *gradient) {
    composed *c = user;
    composed_values values, gradients;
    memcpy(&values, x, sizeof values);
    attn_status status = composed_forward(c->y, &values, c->full);
    *value = 0;
    for (size_t i = 0; i < NUM_OUTPUTS; i++)
        *value += c->dy[i] * c->y[i];
    if (status != ATTN_OK || !gradient)
        return status;
    status = composed_backward(&gradients, &values, c->dy, c->full, c->fault);
    memcpy(gradient, &gradients, sizeof gradients);
    return status;
}

static void draw(double *x, size_t count, double deviation, attn_random *random) {
    for (size_t i = 0; i < count; i++)
        x[i] = deviation * attn_random_normal(random);
}

/* Checks the layer that `fault` is about, with it or with no fault. */
static attn_status check_composed(check_outcome *outcome, int fault, bool with_it, uint64_t seed) {
    double x[sizeof(composed_values) / sizeof(double)];
    composed c = {.full = fault >= FAULT_FIRST_FULL,
                  .fault = with_it ? (composed_fault)fault : FAULT_NONE};
    attn_random random = attn_random_seed(seed, 2);
    draw(x, sizeof x / sizeof *x, 0.7, &random);
    draw(c.dy, sizeof c.dy / sizeof *c.dy, 1, &random);
    memcpy(outcome->tensors, tensors, sizeof tensors);
    outcome->num_tensors = NUM_TENSORS - (c.full ? 0 : NUM_FULL_ALONE);
    double value;
    attn_status status = run_composed(&c, x, &value, NULL);
    if (status != ATTN_OK)
        return status;
    return check_run(outcome, run_composed, &c, x, sizeof x / sizeof *x,
                     check_magnitude(c.y, c.dy, NUM_OUTPUTS));
}

static int find_fault(const char *name) {
    for (int fault = 0; fault < FAULT_COUNT; fault++)
        if (strcmp(composed_fault_name((composed_fault)fault), name) == 0)
            return fault;
    return FAULT_NONE;
}

static int list_faults(void) {
    for (int fault = 0; fault < FAULT_COUNT; fault++)
        puts(composed_fault_name((composed_fault)fault));
    return tool_stdout_finish(TOOL_OK);
}

static void print_broken(const check_outcome *outcome, const char *name, int fault,
                         const check_tally *t) {
    printf("fault: %s (%s)\n\n"
           "gradient       elements  wrong  worst error   claimed       measured\n",
           name, composed_fault_words((composed_fault)fault));
    for (size_t i = 0; i < outcome->num_tensors; i++) {
        const attn_gradcheck_tensor_report *r = &outcome->reports[i];
        printf("%-13s  %8zu  %5zu  %11.1e   %-12.5g  %-12.5g  %s\n", outcome->tensors[i].name,
               r->checked, r->wrong, r->error, r->claimed, r->measured,
               check_failed(r) ? "WRONG" : "ok");
    }
    printf("\nwrong:");
    for (size_t i = 0; i < t->num_failed; i++)
        printf(" %s", t->failed[i]);
    printf(t->num_failed ? "\n" : " nothing; the fault went unnoticed\n");
}

int check_broken(const char *name, uint64_t seed, bool json) {
    if (strcmp(name, "list") == 0)
        return json ? tool_usage_error("--json does not go with --break list") : list_faults();
    int fault = find_fault(name);
    if (fault == FAULT_NONE)
        return tool_usage_error("--break: there is no fault '%s' (see --break list)", name);
    check_outcome whole = {0}, broken = {0};
    check_tally sound = {0}, t = {0};
    if (check_composed(&whole, fault, false, seed) != ATTN_OK ||
        check_composed(&broken, fault, true, seed) != ATTN_OK)
        return tool_fail("%s", attn_error_message());
    check_tally_outcome(&sound, &whole, "");
    if (sound.num_failed > 0)
        return tool_fail("the backward is wrong before any fault goes in: %s", sound.failed[0]);
    check_tally_outcome(&t, &broken, "");
    if (json)
        return check_tally_json(&t);
    print_broken(&broken, name, fault, &t);
    return t.num_failed > 0 ? TOOL_FAILED : TOOL_OK;
}
