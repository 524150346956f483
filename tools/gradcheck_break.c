/* `attn gradcheck --break NAME`: the checker against a backward that is wrong on purpose. */
#include "gradcheck_break.h"

#include "gradcheck_composed.h"
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
    TENSOR(wq), TENSOR(wk), TENSOR(wv), TENSOR(wo), TENSOR(bq),
    TENSOR(bk), TENSOR(bv), TENSOR(bo), TENSOR(x),
#undef TENSOR
};

enum {
    NUM_TENSORS = sizeof tensors / sizeof *tensors,
    NUM_OUTPUTS = COMPOSED_BATCH * COMPOSED_LEN * COMPOSED_D_MODEL
};

typedef struct composed {
    composed_fault fault;
    double y[NUM_OUTPUTS], dy[NUM_OUTPUTS];
} composed;

static attn_status run_composed(void *user, const attn_real *x, double *value,
                                attn_real *gradient) {
    composed *c = user;
    composed_values values, gradients;
    memcpy(&values, x, sizeof values);
    attn_status status = composed_forward(c->y, &values);
    *value = 0;
    for (size_t i = 0; i < NUM_OUTPUTS; i++)
        *value += c->dy[i] * c->y[i];
    if (status != ATTN_OK || !gradient)
        return status;
    status = composed_backward(&gradients, &values, c->dy, c->fault);
    memcpy(gradient, &gradients, sizeof gradients);
    return status;
}

static void draw(double *x, size_t count, double deviation, attn_random *random) {
    for (size_t i = 0; i < count; i++)
        x[i] = deviation * attn_random_normal(random);
}

attn_status check_composed(check_outcome *outcome, int fault, uint64_t seed) {
    double x[sizeof(composed_values) / sizeof(double)];
    composed c = {.fault = (composed_fault)fault};
    attn_random random = attn_random_seed(seed, 2);
    draw(x, sizeof x / sizeof *x, 0.7, &random);
    draw(c.dy, sizeof c.dy / sizeof *c.dy, 1, &random);
    memcpy(outcome->tensors, tensors, sizeof tensors);
    outcome->num_tensors = NUM_TENSORS;
    double value;
    attn_status status = run_composed(&c, x, &value, NULL);
    if (status != ATTN_OK)
        return status;
    return check_run(outcome, run_composed, &c, x, sizeof x / sizeof *x,
                     check_magnitude(c.y, c.dy, NUM_OUTPUTS));
}

int break_find(const char *name) {
    for (int fault = 0; fault < FAULT_COUNT; fault++)
        if (strcmp(composed_fault_name((composed_fault)fault), name) == 0)
            return fault;
    return FAULT_NONE;
}

const char *break_words(int fault) {
    return composed_fault_words((composed_fault)fault);
}

int break_list(void) {
    for (int fault = 0; fault < FAULT_COUNT; fault++)
        puts(composed_fault_name((composed_fault)fault));
    return tool_stdout_finish(TOOL_OK);
}
