/*
 * command_json.h - what a run of the command with --json says.
 */
#ifndef COMMAND_JSON_H
#define COMMAND_JSON_H

#include "command.h"

#include <jansson.h>

/* The one object on the one line of stdout. */
static inline json_t *object_of(const command_run *run) {
    ck_assert_msg(run->status == 0, "status %d: %s", run->status, run->err);
    ck_assert_uint_eq(command_lines(run->out), 1);
    json_error_t error;
    json_t *object = json_loads(run->out, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(object != NULL, "%s in %s", error.text, run->out);
    return object;
}

static inline double number(json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "no number '%s'", key);
    return json_number_value(value);
}

#endif
