/*
 * real.h (internal) - `real`, and the double-precision names of internal functions that cross
 * files.
 */
#ifndef ATTNI_REAL_H
#define ATTNI_REAL_H

#include <attn/real.h>

#include <float.h>

#ifdef ATTN_DOUBLE
#include "base/names64_internal.h"
#endif

typedef attn_real real;

/* The smallest normal number. */
#ifdef ATTN_DOUBLE
#define REAL_MIN DBL_MIN
#else
#define REAL_MIN FLT_MIN
#endif

#endif
