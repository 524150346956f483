/*
 * real.h (internal) - `real`, and the double-precision names of internal functions that cross
 * files.
 */
#ifndef ATTNI_REAL_H
#define ATTNI_REAL_H

#include <attn/real.h>

#ifdef ATTN_DOUBLE
#include "base/names64_internal.h"
#endif

typedef attn_real real;

#endif
