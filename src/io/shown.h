/*
 * shown.h (internal) - text from a file or a user, made fit for one line of an error message: cut,
 * and with the bytes that a terminal would obey replaced.
 *
 *     attni_fail(status, "no tensor '%s'", attni_shown_text(name).text)
 */
#ifndef ATTNI_SHOWN_H
#define ATTNI_SHOWN_H

#include <stddef.h>

typedef struct attni_shown {
    char text[84];
} attni_shown;

/* The beginning of a long text. */
attni_shown attni_shown_text(const char *text);
/* The end of a long path: the part that tells files apart. */
attni_shown attni_shown_path(const char *path);
/* "[2, 3]" */
attni_shown attni_shown_shape(const size_t *dims, size_t rank);

#endif
