/*
 * file.h (internal) - files read and replaced as a whole, whatever the system does in between:
 * interrupted calls, short reads and writes, full disks.
 */
#ifndef ATTNI_FILE_H
#define ATTNI_FILE_H

#include <attn/status.h>
#include <stdbool.h>
#include <stddef.h>

/* A file being read. `size` is a hint: what a regular file holds now; it may change any time. */
typedef struct attni_reader {
    const char *path; /* borrowed, for messages */
    int fd;
    bool sized;
    size_t size;
} attni_reader;

attn_status attni_reader_open(attni_reader *reader, const char *path);
/* Reads up to `size` bytes; less only at the end of the file. */
attn_status attni_reader_read(attni_reader *reader, void *bytes, size_t size, size_t *got);
/* Reads up to `size` bytes into memory of its own, which grows with what the file really holds.
 * *block is never NULL on success; freed by the caller. */
attn_status attni_reader_block(attni_reader *reader, void **block, size_t size, size_t *got);
void attni_reader_close(attni_reader *reader);

/* A file being replaced. */
typedef struct attni_writer {
    const char *path;
    char *target;    /* path with symbolic links resolved; NULL = written in place */
    char *temporary; /* beside the target; NULL = written in place */
    int fd;
} attni_writer;

attn_status attni_writer_open(attni_writer *writer, const char *path);
attn_status attni_writer_write(attni_writer *writer, const void *bytes, size_t size);
/* Puts the file in its place. Whether it fails or not, the writer is closed. */
attn_status attni_writer_commit(attni_writer *writer);
/* Gives up: the temporary is removed. Harmless after a commit. */
void attni_writer_abort(attni_writer *writer);

#endif
