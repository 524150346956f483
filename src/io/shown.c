#include "io/shown.h"

#include <stdio.h>
#include <string.h>

/* Bytes outside printable ASCII become '?': the rest of Latin-1 holds terminal controls too. */
static void make_printable(char *text) {
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

attni_shown attni_shown_text(const char *text) {
    attni_shown shown;
    size_t length = strlen(text);
    snprintf(shown.text, sizeof shown.text, length < 80 ? "%s" : "%.77s...", text);
    make_printable(shown.text);
    return shown;
}

attni_shown attni_shown_path(const char *path) {
    attni_shown shown;
    size_t length = strlen(path);
    snprintf(shown.text, sizeof shown.text, length < 80 ? "%s" : "...%s",
             length < 80 ? path : path + length - 77);
    make_printable(shown.text);
    return shown;
}

attni_shown attni_shown_shape(const size_t *dims, size_t rank) {
    attni_shown shown = {"["};
    size_t at = 1;
    size_t i = 0;
    for (; i < rank && at < 54; i++)
        at +=
            (size_t)snprintf(shown.text + at, sizeof shown.text - at, i ? ", %zu" : "%zu", dims[i]);
    snprintf(shown.text + at, sizeof shown.text - at, "%s", i < rank ? ", ...]" : "]");
    return shown;
}
