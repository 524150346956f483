#include <attn/status.h>

#include "base/fail.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[320];

const char *attn_status_name(attn_status status) {
    switch (status) {
    case ATTN_OK:
        return "ATTN_OK";
    case ATTN_ERROR_ARGUMENT:
        return "ATTN_ERROR_ARGUMENT";
    case ATTN_ERROR_SHAPE:
        return "ATTN_ERROR_SHAPE";
    case ATTN_ERROR_OVERFLOW:
        return "ATTN_ERROR_OVERFLOW";
    case ATTN_ERROR_MEMORY:
        return "ATTN_ERROR_MEMORY";
    case ATTN_ERROR_UNSUPPORTED:
        return "ATTN_ERROR_UNSUPPORTED";
    case ATTN_ERROR_FORMAT:
        return "ATTN_ERROR_FORMAT";
    case ATTN_ERROR_IO:
        return "ATTN_ERROR_IO";
    }
    return "unknown status";
}

const char *attn_error_message(void) {
    return message;
}

attn_status attni_fail(attn_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return status;
}
