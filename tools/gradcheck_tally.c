#include "gradcheck_tally.h"

#include "json.h"
#include "tool.h"

#include <stdio.h>
#include <string.h>

bool check_failed(const attn_gradcheck_tensor_report *report) {
    return report->result != ATTN_GRADCHECK_PASSED && report->result != ATTN_GRADCHECK_VACUOUS;
}

/* Names are those of the tensors, compared by text. */
static void add_failed(check_tally *t, const char *name) {
    for (size_t i = 0; i < t->num_failed; i++)
        if (strcmp(t->failed[i], name) == 0)
            return;
    if (t->num_failed < sizeof t->failed / sizeof *t->failed)
        t->failed[t->num_failed++] = name;
}

void check_tally_outcome(check_tally *t, const check_outcome *outcome, const char *where) {
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

void check_tally_add(check_tally *total, const check_tally *t) {
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

void check_print_failures(const check_outcome *outcome, const char *where) {
    for (size_t i = 0; i < outcome->num_tensors; i++) {
        const attn_gradcheck_tensor_report *r = &outcome->reports[i];
        if (check_failed(r))
            printf("FAILED %s (%s): %s: element %zu claimed %.10g, measured %.10g, error %.1e; "
                   "%zu of %zu wrong\n",
                   outcome->tensors[i].name, attn_gradcheck_result_name(r->result), where, r->worst,
                   r->claimed, r->measured, r->error, r->wrong, r->checked);
    }
}

int check_tally_json(const check_tally *t) {
    tool_json json = tool_json_start(stdout);
    tool_json_open(&json, NULL, '{');
    tool_json_count(&json, "configurations", t->cases);
    tool_json_count(&json, "elements", t->elements);
    tool_json_number(&json, "worst", t->worst);
    tool_json_open(&json, "failed", '[');
    for (size_t i = 0; i < t->num_failed; i++)
        tool_json_string(&json, NULL, t->failed[i]);
    tool_json_close(&json, ']');
    tool_json_close(&json, '}');
    return tool_json_finish(&json, t->num_failed > 0 ? TOOL_FAILED : TOOL_OK);
}

int check_tally_print(const check_tally *t) {
    printf("%zu configurations, %zu elements, worst error %.1e (allowed 1e-07): %s\n", t->cases,
           t->elements, t->worst, t->num_failed ? "FAILED" : "passed");
    return tool_stdout_finish(t->num_failed ? TOOL_FAILED : TOOL_OK);
}
