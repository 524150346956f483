#define _XOPEN_SOURCE 700 /* realpath */

#include "io/file.h"

#include "base/fail.h"
#include "base/size.h"
#include "io/shown.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Some systems refuse larger single transfers. */
enum { TRANSFER_MAX = 1 << 30, FIRST_BLOCK = 1 << 16 };

static attn_status system_fail(const char *verb, const char *path, int error) {
    char reason[100];
    if (strerror_r(error, reason, sizeof reason) != 0)
        snprintf(reason, sizeof reason, "error %d", error);
    return attni_fail(error == ENOMEM ? ATTN_ERROR_MEMORY : ATTN_ERROR_IO, "cannot %s %s: %s", verb,
                      attni_shown_path(path).text, reason);
}

attn_status attni_reader_open(attni_reader *reader, const char *path) {
    *reader = (attni_reader){.path = path, .fd = -1};
    do
        reader->fd = open(path, O_RDONLY | O_CLOEXEC);
    while (reader->fd < 0 && errno == EINTR);
    struct stat info;
    if (reader->fd < 0 || fstat(reader->fd, &info) != 0) {
        int error = errno;
        attni_reader_close(reader);
        return system_fail("open", path, error);
    }
    /* Regular files of size 0 are streams too where the system makes them up (/proc). */
    reader->sized =
        S_ISREG(info.st_mode) && info.st_size > 0 && (uintmax_t)info.st_size <= SIZE_MAX;
    reader->size = reader->sized ? (size_t)info.st_size : 0;
    return ATTN_OK;
}

attn_status attni_reader_read(attni_reader *reader, void *bytes, size_t size, size_t *got) {
    *got = 0;
    while (*got < size) {
        ssize_t n =
            read(reader->fd, (char *)bytes + *got, size_min(size - *got, (size_t)TRANSFER_MAX));
        if (n == 0)
            break;
        if (n > 0)
            *got += (size_t)n;
        else if (errno != EINTR)
            return system_fail("read", reader->path, errno);
    }
    return ATTN_OK;
}

attn_status attni_reader_block(attni_reader *reader, void **block, size_t size, size_t *got) {
    /* `size` is only a claim. A regular file's own size backs it; memory for anything else is
     * doubled while bytes keep coming. */
    size_t capacity = size_min(size, reader->sized ? reader->size : (size_t)FIRST_BLOCK);
    char *bytes = NULL;
    *block = NULL;
    *got = 0;
    for (;;) {
        char *larger = realloc(bytes, capacity ? capacity : 1);
        if (!larger) {
            free(bytes);
            return attni_fail(ATTN_ERROR_MEMORY, "%s: the system has no memory for %zu bytes",
                              attni_shown_path(reader->path).text, capacity);
        }
        bytes = larger;
        size_t n;
        attn_status status = attni_reader_read(reader, bytes + *got, capacity - *got, &n);
        if (status != ATTN_OK) {
            free(bytes);
            return status;
        }
        *got += n;
        if (*got < capacity || capacity == size) {
            *block = bytes;
            return ATTN_OK;
        }
        capacity += size_min(size_max(capacity, FIRST_BLOCK), size - capacity);
    }
}

void attni_reader_close(attni_reader *reader) {
    if (reader->fd >= 0)
        (void)close(reader->fd);
    reader->fd = -1;
}

/* A new file beside `target`; its name is short, so that it fits wherever the target's does. */
static attn_status open_temporary(attni_writer *writer) {
    static atomic_uint counter;
    const char *slash = strrchr(writer->target, '/');
    int folder = slash ? (int)(slash + 1 - writer->target) : 0;
    size_t size = (size_t)folder + 64;
    writer->temporary = malloc(size);
    if (!writer->temporary)
        return system_fail("write", writer->path, ENOMEM);
    do {
        snprintf(writer->temporary, size, "%.*s.attn-%ld-%u.tmp", folder, writer->target,
                 (long)getpid(), atomic_fetch_add(&counter, 1));
        writer->fd = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (writer->fd < 0 && (errno == EINTR || errno == EEXIST));
    if (writer->fd >= 0)
        return ATTN_OK;
    int error = errno;
    free(writer->temporary);
    writer->temporary = NULL;
    return system_fail("write", writer->path, error);
}

static attn_status open_in_place(attni_writer *writer) {
    do
        writer->fd = open(writer->path, O_WRONLY | O_CLOEXEC);
    while (writer->fd < 0 && errno == EINTR);
    return writer->fd < 0 ? system_fail("write", writer->path, errno) : ATTN_OK;
}

attn_status attni_writer_open(attni_writer *writer, const char *path) {
    *writer = (attni_writer){.path = path, .fd = -1};
    struct stat old;
    bool exists = stat(path, &old) == 0;
    if (exists && !S_ISREG(old.st_mode))
        return open_in_place(writer);
    /* Through a symbolic link it is the file that is replaced, not the link. */
    writer->target = exists ? realpath(path, NULL) : strdup(path);
    if (!writer->target)
        return system_fail("write", path, errno);
    attn_status status = open_temporary(writer);
    if (status == ATTN_OK && exists && fchmod(writer->fd, old.st_mode & 0777) != 0)
        status = system_fail("write", path, errno);
    if (status != ATTN_OK)
        attni_writer_abort(writer);
    return status;
}

attn_status attni_writer_write(attni_writer *writer, const void *bytes, size_t size) {
    const char *at = bytes;
    while (size > 0) {
        ssize_t n = write(writer->fd, at, size_min(size, (size_t)TRANSFER_MAX));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return system_fail("write", writer->path, n < 0 ? errno : EIO);
        at += n;
        size -= (size_t)n;
    }
    return ATTN_OK;
}

static int sync_file(int fd) {
    while (fsync(fd) != 0)
        if (errno != EINTR)
            return errno;
    return 0;
}

/* Makes the rename last. Not every file system can, nor may every user open the folder: the new
 * file is whole either way, so nothing is reported. */
static void sync_folder(const char *target) {
    const char *slash = strrchr(target, '/');
    char *folder = slash ? strndup(target, (size_t)(slash + 1 - target)) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)sync_file(fd);
        (void)close(fd);
    }
    free(folder);
}

attn_status attni_writer_commit(attni_writer *writer) {
    int error = writer->temporary ? sync_file(writer->fd) : 0;
    /* close reports what a network file system could not write; after EINTR the file is closed. */
    if (close(writer->fd) != 0 && error == 0 && errno != EINTR)
        error = errno;
    writer->fd = -1;
    if (error == 0 && writer->temporary && rename(writer->temporary, writer->target) != 0)
        error = errno;
    if (error == 0 && writer->temporary) {
        sync_folder(writer->target);
        free(writer->temporary);
        writer->temporary = NULL;
    }
    attni_writer_abort(writer);
    return error ? system_fail("write", writer->path, error) : ATTN_OK;
}

void attni_writer_abort(attni_writer *writer) {
    if (writer->fd >= 0)
        (void)close(writer->fd);
    if (writer->temporary)
        (void)unlink(writer->temporary);
    free(writer->temporary);
    free(writer->target);
    writer->temporary = writer->target = NULL;
    writer->fd = -1;
}
