/*
 * test_files.h - a folder of its own for each test of files, and raw bytes in and out of it.
 */
#ifndef TEST_FILES_H
#define TEST_FILES_H

#include "test.h"

#include <dirent.h>
#include <unistd.h>

static char test_folder[64];

/* "FOLDER/name", valid until the fourth call after this one. */
static inline const char *test_path(const char *name) {
    static char paths[4][160];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", test_folder, name);
    return path;
}

/* Checked fixtures. In memory where there is such a place: saving flushes to the disk each time. */
static inline void test_folder_make(void) {
    bool memory = access("/dev/shm", W_OK | X_OK) == 0;
    snprintf(test_folder, sizeof test_folder, "%s/attn-test-XXXXXX", memory ? "/dev/shm" : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(test_folder));
}

/* How many files whose name begins with `prefix` the folder holds. */
static inline size_t test_count_files(const char *prefix) {
    DIR *dir = opendir(test_folder);
    ck_assert_ptr_nonnull(dir);
    size_t count = 0;
    for (struct dirent *item; (item = readdir(dir));)
        count += strncmp(item->d_name, prefix, strlen(prefix)) == 0 &&
                 strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0;
    closedir(dir);
    return count;
}

static inline void test_folder_remove(void) {
    DIR *dir = opendir(test_folder);
    for (struct dirent *item; dir && (item = readdir(dir));)
        (void)unlinkat(dirfd(dir), item->d_name, 0);
    closedir(dir);
    (void)rmdir(test_folder);
}

static inline void test_write(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
}

/* The whole file, freed by the caller. */
static inline unsigned char *test_read(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*size + 1);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_uint_eq(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

#endif
