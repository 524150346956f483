/*
 * names64_tools.h - as attn/names64.h, for the command's own precision-bound functions that cross
 * files. Included by each file of `tool_sources_both` (meson.build) before its own declarations.
 */
#ifndef NAMES64_TOOLS_H
#define NAMES64_TOOLS_H

#ifdef ATTN_DOUBLE
#define bench_arena_bytes     bench64_arena_bytes
#define bench_call_both       bench64_call_both
#define bench_call_close      bench64_call_close
#define bench_call_data_bytes bench64_call_data_bytes
#define bench_call_forward    bench64_call_forward
#define bench_call_open       bench64_call_open
#define bench_decode_forward  bench64_decode_forward
#define bench_decode_run      bench64_decode_run
#define bench_decode_step     bench64_decode_step
#define bench_run             bench64_run
#define eval_run              eval64_run
#endif

#endif
