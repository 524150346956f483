/*
 * gradcheck_tally.h - what the checks of many configurations add up to.
 */
#ifndef GRADCHECK_TALLY_H
#define GRADCHECK_TALLY_H

#include "gradcheck.h"

typedef struct check_tally {
    size_t cases, elements;
    double worst;
    const char *worst_tensor;
    char worst_case[320];
    size_t skipped; /* cases that the library does not do */
    const char *failed[2 * MAX_TENSORS];
    size_t num_failed;
} check_tally;

/* A tensor of which something disagrees. One that is zero, and claimed to be, does not fail. */
bool check_failed(const attn_gradcheck_tensor_report *report);

void check_tally_outcome(check_tally *t, const check_outcome *outcome, const char *where);
void check_tally_add(check_tally *total, const check_tally *t);

/* The tensors of a case that failed, one line each. */
void check_print_failures(const check_outcome *outcome, const char *where);

/* One line of JSON, or the last line of a table; and the exit status. */
int check_tally_json(const check_tally *t);
int check_tally_print(const check_tally *t);

#endif
