/*
 * gradcheck_break.h - the negative control: faults put into a backward, which the checker must
 * find.
 */
#ifndef GRADCHECK_BREAK_H
#define GRADCHECK_BREAK_H

#include "gradcheck.h"

enum { BREAK_NOTHING = -1 };

/* A fault by its name; BREAK_NOTHING if there is none of that name. */
int break_find(const char *name);
/* What it does, in a few words. */
const char *break_words(int fault);
/* Prints all names, one a line. An exit status. */
int break_list(void);

/* Checks the composed backward with one fault, or BREAK_NOTHING. */
attn_status check_composed(check_outcome *outcome, int fault, uint64_t seed);

#endif
