/* What the system does to files while they are read and written: no memory, interruptions, short
 * transfers, errors. The linker sends attn's calls of malloc and its kin, read, write and others
 * through the functions below; jansson's memory comes from them too. */
#include "test_files.h"

#include <attn/safetensors.h>

#include <errno.h>
#include <jansson.h>
#include <stdint.h>

/* How the wrapped functions behave. */
static struct {
    long allocations_left; /* until one fails; negative: none fails */
    bool stay_out;         /* all after that fail too */
    size_t largest;        /* largest request seen */
    long live;             /* blocks not freed */
    bool interrupt;        /* every other transfer is interrupted */
    size_t most;           /* bytes of one transfer; 0 = no limit */
    const char *failing;   /* the call that fails with `error` */
    int error;
    long calls_left; /* of it, before that */
    int turn;
} faults = {.allocations_left = -1};

void *__real_malloc(size_t size);
void *__real_realloc(void *block, size_t size);
void __real_free(void *block);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
char *__real_realpath(const char *path, char *resolved);
ssize_t __real_read(int fd, void *bytes, size_t size);
ssize_t __real_write(int fd, const void *bytes, size_t size);
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);

void *__wrap_malloc(size_t size);
void *__wrap_realloc(void *block, size_t size);
void __wrap_free(void *block);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);
char *__wrap_realpath(const char *path, char *resolved);
ssize_t __wrap_read(int fd, void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);

static bool out_of_memory(size_t size) {
    if (size > faults.largest)
        faults.largest = size;
    if (faults.allocations_left < 0 || faults.allocations_left-- > 0)
        return false;
    faults.allocations_left = faults.stay_out ? 0 : -1;
    errno = ENOMEM;
    return true;
}

static void *counted(void *block) {
    faults.live += block != NULL;
    return block;
}

void *__wrap_malloc(size_t size) {
    return out_of_memory(size) ? NULL : counted(__real_malloc(size));
}

void *__wrap_realloc(void *block, size_t size) {
    if (out_of_memory(size))
        return NULL;
    void *larger = __real_realloc(block, size);
    faults.live += !block && larger;
    return larger;
}

void __wrap_free(void *block) {
    faults.live -= block != NULL;
    __real_free(block);
}

char *__wrap_strdup(const char *text) {
    return out_of_memory(1) ? NULL : counted(__real_strdup(text));
}

char *__wrap_strndup(const char *text, size_t size) {
    return out_of_memory(1) ? NULL : counted(__real_strndup(text, size));
}

char *__wrap_realpath(const char *path, char *resolved) {
    return out_of_memory(1) ? NULL : counted(__real_realpath(path, resolved));
}

static bool fails(const char *call) {
    if (!faults.failing || strcmp(call, faults.failing) != 0 || faults.calls_left-- > 0)
        return false;
    errno = faults.error;
    return true;
}

static bool interrupted(void) {
    errno = EINTR;
    return faults.interrupt && faults.turn++ % 2 == 0;
}

ssize_t __wrap_read(int fd, void *bytes, size_t size) {
    if (interrupted() || fails("read"))
        return -1;
    return __real_read(fd, bytes, faults.most && size > faults.most ? faults.most : size);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t size) {
    if (interrupted() || fails("write"))
        return faults.error == 0 && faults.failing ? 0 : -1;
    return __real_write(fd, bytes, faults.most && size > faults.most ? faults.most : size);
}

int __wrap_fsync(int fd) {
    return interrupted() || fails("fsync") ? -1 : __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to) {
    return fails("rename") ? -1 : __real_rename(from, to);
}

static void no_faults(void) {
    memset(&faults, 0, sizeof faults);
    faults.allocations_left = -1;
}

/* What a call under faults came to. From here on all is well again: Check's own memory may go the
 * same way as attn's. */
typedef struct outcome {
    attn_status status;
    long leaked;
    size_t largest;
    bool allocation_failed, call_failed;
} outcome;

static outcome finish(attn_status status) {
    outcome o = {status, faults.live, faults.largest, faults.allocations_left <= 0,
                 faults.failing && faults.calls_left < 0};
    no_faults();
    return o;
}

static void prepare(void) {
    no_faults();
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
    test_folder_make();
}

static void clean_up(void) {
    no_faults();
    test_folder_remove();
}

static const size_t dims[] = {40, 25};
static float numbers[1000];

static attn_status save(float value) {
    for (size_t i = 0; i < 1000; i++)
        numbers[i] = value;
    attn_tensor tensors[] = {{"numbers", ATTN_DTYPE_F32, 2, dims, numbers},
                             {"more \xC3\xA9", ATTN_DTYPE_U8, 0, NULL, "x"}};
    attn_metadata metadata[] = {{"key", "value"}, {"another", "one"}};
    return attn_safetensors_save(test_path("file"), tensors, 2, metadata, 2);
}

static outcome load(float *value) {
    attn_safetensors file;
    outcome o = finish(attn_safetensors_open(&file, test_path("file")));
    if (o.status == ATTN_OK) {
        float copy[1000];
        test_ok(attn_tensor_copy(copy, attn_safetensors_find(&file, "numbers"), "numbers",
                                 ATTN_DTYPE_F32, dims, 2));
        *value = copy[0];
        for (size_t i = 0; i < 1000; i++)
            if (copy[i] != copy[0])
                ck_abort_msg("number %zu is %g", i, (double)copy[i]);
        ck_assert_str_eq(attn_safetensors_metadata(&file, "another"), "one");
        attn_safetensors_close(&file);
    } else
        ck_assert(!file.tensors && !file.owned[0] && !file.owned[1]);
    return o;
}

static size_t open_files(void) {
    DIR *dir = opendir("/proc/self/fd");
    size_t count = 0;
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

/* The file holds `value`, and no temporary is left beside it. */
static void expect_file(float value) {
    no_faults();
    float got = 0;
    test_ok(load(&got).status);
    ck_assert_float_eq(got, value);
    ck_assert_uint_eq(test_count_files(""), 1);
}

START_TEST(no_memory_while_reading) {
    test_ok(save(1));
    size_t files = open_files();
    long n = 0;
    for (outcome o = {.status = ATTN_ERROR_MEMORY}; o.status != ATTN_OK; n++) {
        float value;
        no_faults();
        faults.allocations_left = n;
        faults.stay_out = _i;
        o = load(&value);
        if (o.status == ATTN_OK)
            break;
        ck_assert_msg(o.status == ATTN_ERROR_MEMORY, "allocation %ld: %s", n, attn_error_message());
        ck_assert_msg(o.leaked == 0, "allocation %ld: %ld blocks leaked", n, o.leaked);
        ck_assert_int_lt(n, 1000);
    }
    ck_assert_int_gt(n, 20);
    ck_assert_uint_eq(open_files(), files);
}
END_TEST

START_TEST(no_memory_while_writing) {
    test_ok(save(1));
    size_t files = open_files();
    long n = 0;
    for (outcome o = {.status = ATTN_ERROR_MEMORY}; o.status != ATTN_OK; n++) {
        no_faults();
        faults.allocations_left = n;
        faults.stay_out = _i;
        o = finish(save(2));
        ck_assert_msg(o.leaked == 0, "allocation %ld: %ld blocks leaked", n, o.leaked);
        if (o.status == ATTN_OK)
            break;
        ck_assert_msg(o.status == ATTN_ERROR_MEMORY, "allocation %ld: %s", n, attn_error_message());
        expect_file(1);
        ck_assert_int_lt(n, 1000);
    }
    ck_assert_int_gt(n, 20);
    expect_file(2);
    ck_assert_uint_eq(open_files(), files);
}
END_TEST

START_TEST(interruptions_and_short_transfers_go_unnoticed) {
    static const size_t most[] = {0, 1, 7, 1000};
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        no_faults();
        faults.interrupt = true;
        faults.most = most[i];
        float value = 0;
        attn_status status = save((float)i);
        test_ok(load(&value).status);
        test_ok(status);
        ck_assert_float_eq(value, (float)i);
        expect_file((float)i);
    }
}
END_TEST

static const struct {
    const char *call;
    int error;
    const char *words;
} failures[] = {
    {"write", ENOSPC, "No space left"}, {"write", EIO, "Input/output"},
    {"write", 0, "Input/output"}, /* nothing written, no error said */
    {"write", EDQUOT, "quota"},         {"fsync", EIO, "Input/output"},
    {"fsync", ENOSPC, "No space left"}, {"rename", EACCES, "Permission"},
};

START_TEST(a_failed_save_keeps_the_old_file) {
    test_ok(save(1));
    size_t files = open_files();
    for (long calls = 0; calls < 3; calls++) {
        no_faults();
        faults.most = 2000; /* so that there is a third write */
        faults.failing = failures[_i].call;
        faults.error = failures[_i].error;
        faults.calls_left = calls;
        outcome o = finish(save(2));
        if (!o.call_failed)
            break;
        /* The second flush is that of the folder, once the new file is in its place. */
        bool in_place = strcmp(failures[_i].call, "fsync") == 0 && calls == 1;
        test_refused(o.status, in_place ? ATTN_OK : ATTN_ERROR_IO);
        if (!in_place)
            ck_assert_msg(strstr(attn_error_message(), failures[_i].words), "%s",
                          attn_error_message());
        expect_file(in_place ? 2 : 1);
    }
    ck_assert_uint_eq(open_files(), files);
}
END_TEST

START_TEST(a_failed_read_is_an_error_of_the_system) {
    test_ok(save(1));
    size_t files = open_files();
    long calls = 0;
    for (outcome o = {.status = ATTN_ERROR_IO}; o.status != ATTN_OK; calls++) {
        no_faults();
        faults.most = 500;
        faults.failing = "read";
        faults.error = EIO;
        faults.calls_left = calls;
        float value;
        o = load(&value);
        ck_assert(o.status == ATTN_OK || (o.status == ATTN_ERROR_IO && o.leaked == 0));
        ck_assert_int_lt(calls, 100);
    }
    ck_assert_int_gt(calls, 10);
    ck_assert_uint_eq(open_files(), files);
}
END_TEST

/* Opens the file, directly or through a pipe. */
static outcome open_claim(bool through_pipe) {
    char command[300], path[64];
    snprintf(command, sizeof command, "cat %s", test_path("file"));
    FILE *cat = popen(command, "r");
    ck_assert_ptr_nonnull(cat);
    snprintf(path, sizeof path, "/dev/fd/%d", fileno(cat));
    attn_safetensors file;
    no_faults();
    outcome o = finish(attn_safetensors_open(&file, through_pipe ? path : test_path("file")));
    pclose(cat);
    return o;
}

/* Memory is asked for by what a file holds, not by what it claims: a terabyte, 300 MB, and a header
 * of 80 MB. */
START_TEST(claims_cost_no_memory) {
    static const char *const claims[] = {
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1099511627776],\"data_offsets\":[0,1099511627776]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[300000000],\"data_offsets\":[0,300000000]}}", "{}"};
    for (size_t i = 0; i < 3; i++)
        for (int pipe = 0; pipe < 2; pipe++) {
            char bytes[200] = {(char)strlen(claims[i]), 0, 0, i == 2 ? 5 : 0};
            memcpy(bytes + 8, claims[i], strlen(claims[i]));
            test_write(test_path("file"), bytes, 8 + strlen(claims[i]) + 5);
            outcome o = open_claim(pipe);
            test_refused(o.status, ATTN_ERROR_FORMAT);
            ck_assert_ptr_nonnull(
                strstr(attn_error_message(), i == 2 ? "past the end" : "cut short"));
            ck_assert_uint_le(o.largest, 1 << 16);
        }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("safetensors_faults");
    TCase *tests = tcase_create("safetensors_faults");
    tcase_add_checked_fixture(tests, prepare, clean_up);
    tcase_add_loop_test(tests, no_memory_while_reading, 0, 2);
    tcase_add_loop_test(tests, no_memory_while_writing, 0, 2);
    tcase_add_test(tests, interruptions_and_short_transfers_go_unnoticed);
    tcase_add_loop_test(tests, a_failed_save_keeps_the_old_file, 0,
                        (int)(sizeof failures / sizeof *failures));
    tcase_add_test(tests, a_failed_read_is_an_error_of_the_system);
    tcase_add_test(tests, claims_cost_no_memory);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
