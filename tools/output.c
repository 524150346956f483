#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *tool_path(const char *dir, const char *name) {
    size_t length = dir ? strlen(dir) : 0;
    if (length == 0)
        return tool_format("%s", name);
    return tool_format("%s%s%s", dir, dir[length - 1] == '/' ? "" : "/", name);
}

/* Files that are neither committed nor discarded: whatever ends the program, no temporary stays. */
static tool_file *unfinished;

static void remove_temporaries(void) {
    for (tool_file *file = unfinished; file; file = file->next)
        unlink(file->temporary);
}

static void watch(tool_file *file) {
    static bool registered;
    if (!registered)
        registered = atexit(remove_temporaries) == 0;
    file->next = unfinished;
    unfinished = file;
}

static void unwatch(const tool_file *file) {
    for (tool_file **link = &unfinished; *link; link = &(*link)->next)
        if (*link == file) {
            *link = file->next;
            return;
        }
}

static int give_up(tool_file *file, const char *path) {
    int error = errno;
    if (file->stream)
        fclose(file->stream);
    file->stream = NULL;
    if (file->temporary)
        unlink(file->temporary);
    int status = tool_fail("cannot write '%s': %s", path, strerror(error ? error : EIO));
    tool_file_discard(file);
    return status;
}

/* A rename would replace a symbolic link instead of the file it leads to. */
static char *follow_links(char *path) {
    struct stat info;
    char *real = NULL;
    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
        real = realpath(path, NULL);
    if (!real)
        return path;
    free(path);
    return real;
}

/* A new file beside the target. Its name is short, so that it fits wherever the target's does, and
 * nobody's: neither a file nor a link that stands there already is followed. */
static int open_temporary(tool_file *file) {
    static unsigned counter;
    const char *slash = strrchr(file->path, '/');
    int folder = slash ? (int)(slash + 1 - file->path) : 0, fd;
    do {
        free(file->temporary);
        file->temporary =
            tool_format("%.*s.attn-%ld-%u.tmp", folder, file->path, (long)getpid(), counter++);
        fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EEXIST);
    if (fd >= 0) {
        watch(file);
        return fd;
    }
    free(file->temporary);
    file->temporary = NULL;
    return fd;
}

int tool_file_open(tool_file *file, const char *dir, const char *name) {
    *file = (tool_file){.path = follow_links(tool_path(dir, name))};
    struct stat info;
    if (!*file->path) {
        errno = ENOENT;
        return give_up(file, file->path);
    }
    bool exists = stat(file->path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode)) {
        errno = EISDIR;
        return give_up(file, file->path);
    }
    int fd;
    if (exists && !S_ISREG(info.st_mode)) {
        fd = open(file->path, O_WRONLY | O_CLOEXEC);
    } else {
        fd = open_temporary(file);
        if (fd >= 0 && exists)
            (void)fchmod(fd, info.st_mode & 0777); /* a file that is private stays so */
    }
    if (fd < 0)
        return give_up(file, file->path);
    file->stream = fdopen(fd, "w");
    if (!file->stream) {
        close(fd);
        return give_up(file, file->path);
    }
    return TOOL_OK;
}

int tool_file_commit(tool_file *file) {
    errno = 0;
    if (fflush(file->stream) != 0 || ferror(file->stream))
        return give_up(file, file->path);
    if (file->temporary && fsync(fileno(file->stream)) != 0)
        return give_up(file, file->path);
    int closed = fclose(file->stream);
    file->stream = NULL;
    if (closed != 0 || (file->temporary && rename(file->temporary, file->path) != 0))
        return give_up(file, file->path);
    unwatch(file);
    free(file->temporary);
    file->temporary = NULL;
    tool_file_discard(file);
    return TOOL_OK;
}

int tool_file_probe(const char *path) {
    tool_file file;
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return access(path, W_OK) == 0 ? TOOL_OK
                                       : tool_fail("cannot write '%s': %s", path, strerror(errno));
    if (tool_file_open(&file, NULL, path) != TOOL_OK)
        return TOOL_FAILED;
    tool_file_discard(&file);
    return TOOL_OK;
}

bool tool_same_file(const char *a, const char *b) {
    struct stat one, other;
    if (!a || !b)
        return false;
    if (stat(a, &one) != 0 || stat(b, &other) != 0)
        return strcmp(a, b) == 0;
    return S_ISREG(one.st_mode) && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

void tool_file_discard(tool_file *file) {
    unwatch(file);
    if (file->stream)
        fclose(file->stream);
    if (file->temporary)
        unlink(file->temporary);
    free(file->temporary);
    free(file->path);
    *file = (tool_file){0};
}

int tool_directory_create(const char *path) {
    if (!*path)
        return tool_fail("cannot make directory '': the name is empty");
    char *copy = tool_format("%s", path);
    for (char *c = copy + 1;; c++) {
        if (*c && *c != '/')
            continue;
        char end = *c;
        *c = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST) {
            int status = tool_fail("cannot make directory '%s': %s", copy, strerror(errno));
            free(copy);
            return status;
        }
        *c = end;
        if (!end)
            break;
    }
    free(copy);
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return tool_fail("cannot use '%s': not a directory", path);
    if (access(path, W_OK | X_OK) != 0)
        return tool_fail("cannot write in directory '%s': %s", path, strerror(errno));
    return TOOL_OK;
}
