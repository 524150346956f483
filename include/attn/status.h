/*
 * status.h - what a call answers, and the words that go with a failure.
 *
 *     if (attn_mha_forward(&cfg, &w, &in, y, arena, &saved) != ATTN_OK)
 *         fprintf(stderr, "%s\n", attn_error_message());
 *
 * Every public function that can fail returns an attn_status. A failed call changes nothing that
 * the caller can see. The library never prints, aborts or exits.
 */
#ifndef ATTN_STATUS_H
#define ATTN_STATUS_H

#include <attn/real.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attn_status {
    ATTN_OK = 0,
    ATTN_ERROR_ARGUMENT,    /* a missing pointer or a value outside its range */
    ATTN_ERROR_SHAPE,       /* sizes that do not fit together */
    ATTN_ERROR_OVERFLOW,    /* a size whose bytes cannot be counted in size_t */
    ATTN_ERROR_MEMORY,      /* an arena or a cache is full, or the system has no memory */
    ATTN_ERROR_UNSUPPORTED, /* a legal wish that this build or path cannot serve */
    ATTN_ERROR_FORMAT,      /* a file whose contents are not what they claim to be */
    ATTN_ERROR_IO           /* the system refused to read or write */
} attn_status;

/* The name of a status, such as "ATTN_ERROR_SHAPE"; "unknown status" for any other value. */
ATTN_API const char *attn_status_name(attn_status status);

/* The calling thread's last failure in words: the argument and the values that clash. Valid until
 * the thread's next failure; "" if there was none. A call that succeeds leaves it alone. */
ATTN_API const char *attn_error_message(void);

#ifdef __cplusplus
}
#endif

#endif
