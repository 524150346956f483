/*
 * real.h - the precision of a translation unit.
 *
 * libattn holds every function twice, in float and in double, built from one source. A program is
 * written once against attn_real; compiled as it is it uses float, compiled with -DATTN_DOUBLE it
 * uses double. Under ATTN_DOUBLE the header names64.h renames each precision-bound function
 * attn_x to attn64_x, so that both live in one library and one program (in different source files).
 */
#ifndef ATTN_REAL_H
#define ATTN_REAL_H

#ifdef __FAST_MATH__
#error "attn relies on NaN, infinities and the order of sums: compile without -ffast-math"
#endif

#ifdef ATTN_DOUBLE
#include <attn/names64.h>
typedef double attn_real;
#else
typedef float attn_real;
#endif

#if defined(__GNUC__) || defined(__clang__)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif

#endif
