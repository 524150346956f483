/*
 * output.h - files that appear whole or not at all.
 *
 *     tool_file file;
 *     if (tool_file_open(&file, dir, "loss.csv") != TOOL_OK)
 *         return TOOL_FAILED;
 *     fprintf(file.stream, "step,loss\n");
 *     return tool_file_commit(&file);
 *
 * The text goes to a temporary name beside the target, is synced and renamed at the end, so that a
 * full disk or a kill leaves an earlier file as it was. Every failure costs one line on stderr.
 */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "tool.h"

#include <stdbool.h>
#include <stdio.h>

/* Stays where it is from open to commit or discard. */
typedef struct tool_file {
    FILE *stream;
    char *path;             /* the target */
    char *temporary;        /* what is written until the commit; NULL = the target (a device) */
    struct tool_file *next; /* of those whose temporaries exit removes */
} tool_file;

/* Starts DIR/NAME; dir NULL = name is the path. TOOL_OK, or TOOL_FAILED and file->stream == NULL.
 */
int tool_file_open(tool_file *file, const char *dir, const char *name);
/* Puts the file in place. Closes it in any case. */
int tool_file_commit(tool_file *file);
/* Drops what was written; harmless after open failed, commit or discard. */
void tool_file_discard(tool_file *file);

/* Whether PATH could be written, for results that come only after long work. Leaves no trace. */
int tool_file_probe(const char *path);
/* Whether two paths lead to one regular file, or would; NULL is no file. */
bool tool_same_file(const char *a, const char *b);

/* Makes a directory and those above it, and checks that files can be made in it. */
int tool_directory_create(const char *path);

/* DIR/NAME, to be freed. */
char *tool_path(const char *dir, const char *name);

#endif
