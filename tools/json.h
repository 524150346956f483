/*
 * json.h - one line of JSON on a stream, written as it comes.
 *
 *     tool_json json = tool_json_start(stdout);
 *     tool_json_open(&json, NULL, '{');
 *     tool_json_number(&json, "loss", loss);
 *     tool_json_close(&json, '}');
 *     return tool_json_finish(&json, TOOL_OK);
 *
 * `key` is NULL for the elements of an array and the outermost value. JSON has no NaN and no
 * infinity: they become null. Numbers carry 17 significant digits where they need them.
 */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct tool_json {
    FILE *stream;
    bool comma; /* the next value follows another */
} tool_json;

tool_json tool_json_start(FILE *stream);
void tool_json_open(tool_json *json, const char *key, char bracket);
void tool_json_close(tool_json *json, char bracket);
void tool_json_number(tool_json *json, const char *key, double value);
void tool_json_count(tool_json *json, const char *key, uint64_t value);
void tool_json_bool(tool_json *json, const char *key, bool value);
/* NULL is written as null. */
void tool_json_string(tool_json *json, const char *key, const char *value);
/* Ends the line, flushes and passes `status` on; a write error costs one line and gives 1. */
int tool_json_finish(tool_json *json, int status);

#endif
