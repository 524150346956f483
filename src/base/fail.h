/*
 * fail.h (internal) - how a public function refuses: a status for the program, words for people.
 */
#ifndef ATTNI_FAIL_H
#define ATTNI_FAIL_H

#include <attn/status.h>

/* Stores the message for attn_error_message() and returns `status`, for `return attni_fail(...)`.
 * The message names the argument and the values that clash. */
attn_status attni_fail(attn_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns from the calling function when a call fails. */
#define ATTNI_TRY(call)                     \
    do {                                    \
        attn_status attni_status_ = (call); \
        if (attni_status_ != ATTN_OK)       \
            return attni_status_;           \
    } while (0)

#endif
