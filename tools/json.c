#include "json.h"

#include "tool.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

tool_json tool_json_start(FILE *stream) {
    return (tool_json){.stream = stream};
}

static void write_string(FILE *stream, const char *text) {
    putc('"', stream);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(stream, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fprintf(stream, "\\u%04x", c);
        else
            putc(c, stream);
    }
    putc('"', stream);
}

static void before(tool_json *json, const char *key) {
    if (json->comma)
        putc(',', json->stream);
    json->comma = true;
    if (key) {
        write_string(json->stream, key);
        putc(':', json->stream);
    }
}

void tool_json_open(tool_json *json, const char *key, char bracket) {
    before(json, key);
    putc(bracket, json->stream);
    json->comma = false;
}

void tool_json_close(tool_json *json, char bracket) {
    putc(bracket, json->stream);
    json->comma = true;
}

void tool_json_number(tool_json *json, const char *key, double value) {
    before(json, key);
    if (!isfinite(value)) {
        fputs("null", json->stream);
        return;
    }
    char text[40];
    snprintf(text, sizeof text, "%.15g", value);
    if (strtod(text, NULL) != value)
        snprintf(text, sizeof text, "%.17g", value);
    fputs(text, json->stream);
}

void tool_json_count(tool_json *json, const char *key, uint64_t value) {
    before(json, key);
    fprintf(json->stream, "%" PRIu64, value);
}

void tool_json_bool(tool_json *json, const char *key, bool value) {
    before(json, key);
    fputs(value ? "true" : "false", json->stream);
}

void tool_json_string(tool_json *json, const char *key, const char *value) {
    before(json, key);
    if (value)
        write_string(json->stream, value);
    else
        fputs("null", json->stream);
}

int tool_json_finish(tool_json *json, int status) {
    putc('\n', json->stream);
    if (json->stream == stdout)
        return tool_stdout_finish(status);
    errno = 0;
    if (fflush(json->stream) != 0 || ferror(json->stream))
        return tool_fail("cannot write JSON: %s", errno ? strerror(errno) : "write error");
    return status;
}
