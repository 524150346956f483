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

int tool_file_open(tool_file *file, const char *dir, const char *name) {
    *file = (tool_file){.path = follow_links(tool_path(dir, name))};
    struct stat info;
    bool exists = stat(file->path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode)) {
        errno = EISDIR;
        return give_up(file, file->path);
    }
    int fd;
    if (exists && !S_ISREG(info.st_mode)) {
        fd = open(file->path, O_WRONLY | O_CLOEXEC);
    } else {
        file->temporary = tool_format("%s.%ld.tmp", file->path, (long)getpid());
        fd = open(file->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
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
    free(file->temporary);
    file->temporary = NULL;
    tool_file_discard(file);
    return TOOL_OK;
}

void tool_file_discard(tool_file *file) {
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
