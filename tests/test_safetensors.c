/* Reading hostile files, writing whole ones. Failures of the system: test_safetensors_faults.c. */
#define _XOPEN_SOURCE 700

#include "test_files.h"

#include <attn/safetensors.h>

#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A file with this header, announced with this length, and `data_size` bytes of data. */
static void write_raw(const char *path, uint64_t announced, const char *header, size_t length,
                      size_t data_size) {
    unsigned char *bytes = calloc(8 + length + data_size, 1);
    ck_assert_ptr_nonnull(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(announced >> (8 * i));
    memcpy(bytes + 8, header, length);
    test_write(path, bytes, 8 + length + data_size);
    free(bytes);
}

static void write_text(const char *path, const char *header, size_t data_size) {
    write_raw(path, strlen(header), header, strlen(header), data_size);
}

static attn_status open_and_close(const char *path) {
    attn_safetensors file;
    attn_status status = attn_safetensors_open(&file, path);
    if (status != ATTN_OK)
        ck_assert_msg(!file.tensors && !file.metadata && !file.num_tensors, "not zeroed");
    attn_safetensors_close(&file);
    attn_safetensors_close(&file); /* harmless */
    return status;
}

static const size_t dims_2_3[] = {2, 3}, dims_0_5[] = {0, 5}, dims_3[] = {3}, dims_7[] = {7};
static const float floats[6] = {1, -2, 3.5f, 1e-30f, -0.0f, 65504};
static const double doubles[3] = {1, -1e300, 0.1};
static const uint8_t bytes7[7] = {0, 1, 2, 255, 4, 5, 6};

static const attn_tensor sample[] = {
    {"weights", ATTN_DTYPE_F32, 2, dims_2_3, floats},
    {"mask \"quoted\" \n \xC3\xA9", ATTN_DTYPE_U8, 1, dims_7, bytes7},
    {"empty", ATTN_DTYPE_F64, 2, dims_0_5, NULL},
    {"unaligned", ATTN_DTYPE_F64, 1, dims_3, doubles},
    {"scalar", ATTN_DTYPE_F32, 0, NULL, floats},
};
static const attn_metadata sample_metadata[] = {{"format", "test"}, {"empty", ""}, {"n", "3"}};

static void save_sample(const char *path) {
    test_ok(attn_safetensors_save(path, sample, COUNT(sample), sample_metadata,
                                  COUNT(sample_metadata)));
}

START_TEST(what_is_written_is_read) {
    save_sample(test_path("a"));
    attn_safetensors file;
    test_ok(attn_safetensors_open(&file, test_path("a")));
    ck_assert_uint_eq(file.num_tensors, COUNT(sample));
    for (size_t i = 0; i < COUNT(sample); i++) {
        const attn_tensor *t = &file.tensors[i];
        ck_assert_str_eq(t->name, sample[i].name);
        ck_assert_int_eq(t->dtype, sample[i].dtype);
        ck_assert_uint_eq(t->rank, sample[i].rank);
        ck_assert_ptr_eq(attn_safetensors_find(&file, sample[i].name), t);
        size_t bytes = attn_dtype_size(t->dtype);
        for (size_t r = 0; r < t->rank; r++) {
            ck_assert_uint_eq(t->dims[r], sample[i].dims[r]);
            bytes *= t->dims[r];
        }
        if (bytes > 0)
            ck_assert_mem_eq(t->data, sample[i].data, bytes);
    }
    ck_assert_uint_eq(file.num_metadata, COUNT(sample_metadata));
    for (size_t i = 0; i < COUNT(sample_metadata); i++)
        ck_assert_str_eq(attn_safetensors_metadata(&file, sample_metadata[i].key),
                         sample_metadata[i].value);
    ck_assert_ptr_null(attn_safetensors_find(&file, "weight"));
    ck_assert_ptr_null(attn_safetensors_metadata(&file, "N"));
    double copy[3];
    test_ok(attn_tensor_copy(copy, attn_safetensors_find(&file, "unaligned"), "unaligned",
                             ATTN_DTYPE_F64, dims_3, 1));
    ck_assert_mem_eq(copy, doubles, sizeof doubles);
    attn_safetensors_close(&file);
}
END_TEST

START_TEST(a_file_of_nothing) {
    test_ok(attn_safetensors_save(test_path("a"), NULL, 0, NULL, 0));
    attn_safetensors file;
    test_ok(attn_safetensors_open(&file, test_path("a")));
    ck_assert_uint_eq(file.num_tensors, 0);
    ck_assert_uint_eq(file.num_metadata, 0);
    attn_safetensors_close(&file);
}
END_TEST

START_TEST(data_starts_at_a_multiple_of_8) {
    save_sample(test_path("a"));
    size_t size;
    unsigned char *bytes = test_read(test_path("a"), &size);
    ck_assert_uint_eq(bytes[0] % 8, 0);
    ck_assert_int_eq(bytes[8], '{');
    free(bytes);
}
END_TEST

START_TEST(a_copy_wants_exactly_that_tensor) {
    save_sample(test_path("a"));
    attn_safetensors file;
    test_ok(attn_safetensors_open(&file, test_path("a")));
    const attn_tensor *t = attn_safetensors_find(&file, "weights");
    float got[6] = {42};
    test_refused(attn_tensor_copy(got, NULL, "wk", ATTN_DTYPE_F32, dims_2_3, 2), ATTN_ERROR_FORMAT);
    ck_assert_str_eq(attn_error_message(), "tensor 'wk' is missing");
    test_refused(attn_tensor_copy(got, t, "weights", ATTN_DTYPE_F64, dims_2_3, 2),
                 ATTN_ERROR_FORMAT);
    ck_assert_str_eq(attn_error_message(), "tensor 'weights' has dtype F32, expected F64");
    test_refused(attn_tensor_copy(got, t, "weights", ATTN_DTYPE_F32, (size_t[]){3, 2}, 2),
                 ATTN_ERROR_SHAPE);
    ck_assert_str_eq(attn_error_message(), "tensor 'weights' has shape [2, 3], expected [3, 2]");
    test_refused(attn_tensor_copy(got, t, "weights", ATTN_DTYPE_F32, (size_t[]){6}, 1),
                 ATTN_ERROR_SHAPE);
    test_refused(attn_tensor_copy(NULL, t, "weights", ATTN_DTYPE_F32, dims_2_3, 2),
                 ATTN_ERROR_ARGUMENT);
    ck_assert_float_eq(got[0], 42);
    test_ok(attn_tensor_copy(got, t, "weights", ATTN_DTYPE_F32, dims_2_3, 2));
    ck_assert_mem_eq(got, floats, sizeof got);
    attn_safetensors_close(&file);
}
END_TEST

/* Row by row: a header, bytes of data behind it, and a word of the refusal. */
static const struct {
    const char *header;
    size_t data;
    const char *word;
} hostile[] = {
    {"", 0, "empty"},
    {" ", 0, "header"},
    {"{", 0, "header"},
    {"[]", 0, "not a JSON object"},
    {"null", 0, "header"},
    {"{}x", 0, "header"},
    {"{} {}", 0, "header"},
    {"{}", 1, "stray"},
    {"{\"a\":1}", 0, "object"},
    {"{\"a\":{}}", 0, "dtype"},
    {"{'a':{}}", 0, "header"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype"},
    {"{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype"},
    {"{\"a\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "dimension"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "dimension"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]}}", 4, "dimension"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[true],\"data_offsets\":[0,4]}}", 4, "dimension"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{}}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,5]}}", 5, "disagrees"},
    {"{\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "disagrees"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3, "cut short"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5, "stray"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "gap"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[5,9]}}",
     9, "gap"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
     6, "overlaps"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
     4, "overlaps"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[3,3]}}", 0, "gap"},
    /* the same name twice, once in disguise */
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     2, "uplicate"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     2, "uplicate"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "uplicate"},
    {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"1\"}}", 0, "uplicate"},
    {"{\"__metadata__\":[]}", 0, "__metadata__"},
    {"{\"__metadata__\":\"x\"}", 0, "__metadata__"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "metadata 'k'"},
    {"{\"__metadata__\":{\"k\":{}}}", 0, "metadata 'k'"},
    {"{\"__metadata__\":{\"k\":null}}", 0, "metadata 'k'"},
    /* products that wrap: to 1, and to 4 times 2^62 */
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4194305,4194305,211106198978564],"
     "\"data_offsets\":[0,1]}}",
     1, "multiply"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4194305,4194305,211106198978564],"
     "\"data_offsets\":[0,4]}}",
     4, "multiply"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0,
     "multiply"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,0]}}", 0,
     "header"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807],"
     "\"data_offsets\":[0,9223372036854775807]}}",
     0, "cut short"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807],"
     "\"data_offsets\":[0,9223372036854775807]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9223372036854775807,0]}}",
     0, "data_offsets"},
    {"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "header"},
    {"{\"\xFF\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "header"},
    {"{\"\xED\xA0\x80\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "header"},
};

START_TEST(hostile_headers_are_refused) {
    write_text(test_path("a"), hostile[_i].header, hostile[_i].data);
    test_refused(open_and_close(test_path("a")), ATTN_ERROR_FORMAT);
    ck_assert_msg(strstr(attn_error_message(), hostile[_i].word), "%s: '%s' does not say '%s'",
                  hostile[_i].header, attn_error_message(), hostile[_i].word);
}
END_TEST

static const struct {
    const char *header;
    size_t data, num_tensors;
} valid[] = {
    {"{}", 0, 0},
    {"{}      ", 0, 0},
    {" \n{ }\t", 0, 0},
    {"{\"__metadata__\":{}}", 0, 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 1},
    {"{\"a\":{\"data_offsets\" : [ 0 , 4 ],\"shape\":[1,1,1,1,1,1],\"dtype\":\"F32\"}}", 4, 1},
    {"{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]},"
     "\"a\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     5, 2},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, 1},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,9223372036854775807,0],"
     "\"data_offsets\":[0,0]}}",
     0, 1},
    /* empty tensors stand anywhere, even where another begins */
    {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
     "\"c\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]}}",
     2, 3},
    /* keys that a later version may add */
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":[{}]}}", 1, 1},
    {"{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, 1},
    /* brackets in a name nest nothing */
    {"{\"\\\"[[[[[[[[[[[[[[[[[[[[[[[[[\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     1, 1},
};

START_TEST(unusual_but_valid_headers_are_read) {
    write_text(test_path("a"), valid[_i].header, valid[_i].data);
    attn_safetensors file;
    ck_assert_msg(attn_safetensors_open(&file, test_path("a")) == ATTN_OK, "%s: %s",
                  valid[_i].header, attn_error_message());
    ck_assert_uint_eq(file.num_tensors, valid[_i].num_tensors);
    attn_safetensors_close(&file);
}
END_TEST

START_TEST(tensors_come_in_the_order_of_their_data) {
    write_text(test_path("a"), valid[6].header, valid[6].data);
    attn_safetensors file;
    test_ok(attn_safetensors_open(&file, test_path("a")));
    ck_assert_str_eq(file.tensors[0].name, "a");
    ck_assert_str_eq(file.tensors[1].name, "b");
    ck_assert_ptr_eq(file.tensors[1].data, (const char *)file.tensors[0].data + 1);
    attn_safetensors_close(&file);
}
END_TEST

START_TEST(header_lengths_that_lie) {
    const char *header = "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    size_t length = strlen(header), size = 8 + length + 2;
    const uint64_t announced[] = {
        0,        1,          length - 1,     length + 1,     length + 2,        size - 7,
        size,     UINT64_MAX, UINT64_MAX - 3, UINT64_MAX - 8, UINT64_C(1) << 63, UINT64_C(1) << 32,
        100000001};
    for (size_t i = 0; i < COUNT(announced); i++) {
        write_raw(test_path("a"), announced[i], header, length, 2);
        ck_assert_msg(open_and_close(test_path("a")) == ATTN_ERROR_FORMAT, "length %ju",
                      (uintmax_t)announced[i]);
    }
    write_raw(test_path("a"), length, header, length, 2);
    test_ok(open_and_close(test_path("a")));
}
END_TEST

START_TEST(cut_anywhere_is_an_error) {
    save_sample(test_path("a"));
    size_t size;
    unsigned char *bytes = test_read(test_path("a"), &size);
    for (size_t cut = 0; cut < size; cut++) {
        test_write(test_path("b"), bytes, cut);
        ck_assert_msg(open_and_close(test_path("b")) == ATTN_ERROR_FORMAT, "cut at %zu of %zu", cut,
                      size);
    }
    bytes[size] = 0;
    test_write(test_path("b"), bytes, size + 1);
    test_refused(open_and_close(test_path("b")), ATTN_ERROR_FORMAT);
    free(bytes);
}
END_TEST

/* Whatever a few changed bytes make of a file, it is read or refused in good order; the sanitizers
 * watch. */
START_TEST(changed_bytes_do_no_harm) {
    save_sample(test_path("a"));
    size_t size;
    unsigned char *bytes = test_read(test_path("a"), &size), *changed = malloc(size);
    ck_assert_ptr_nonnull(changed);
    attn_random random = attn_random_seed(5, 0);
    static const char alphabet[] = "{}[]\",:0123456789-eE.\\u \xFF";
    for (int round = 0; round < 4000; round++) {
        memcpy(changed, bytes, size);
        uint32_t changes = 1 + attn_random_below(&random, 3);
        for (uint32_t c = 0; c < changes; c++)
            changed[attn_random_below(&random, (uint32_t)size)] =
                (unsigned char)alphabet[attn_random_below(&random, sizeof alphabet)];
        test_write(test_path("b"), changed, size);
        attn_status status = open_and_close(test_path("b"));
        ck_assert_msg(status == ATTN_OK || status == ATTN_ERROR_FORMAT, "round %d: %s", round,
                      attn_error_message());
    }
    free(changed);
    free(bytes);
}
END_TEST

START_TEST(deep_nesting_is_refused) {
    enum { DEPTH = 3000000 };
    char *header = malloc(DEPTH);
    ck_assert_ptr_nonnull(header);
    static const char *const opening[] = {"[", "{\"a\":"};
    for (size_t k = 0; k < COUNT(opening); k++) {
        size_t step = strlen(opening[k]);
        for (size_t i = 0; i + step <= DEPTH; i += step)
            memcpy(header + i, opening[k], step);
        write_raw(test_path("a"), DEPTH / step * step, header, DEPTH / step * step, 0);
        test_refused(open_and_close(test_path("a")), ATTN_ERROR_FORMAT);
        ck_assert_ptr_nonnull(strstr(attn_error_message(), "nested too deeply"));
    }
    free(header);
}
END_TEST

START_TEST(messages_are_one_printable_line) {
    write_text(test_path("a"), "{\"evil\\n\\u001b[31m\\u0085\":{}}", 0);
    test_refused(open_and_close(test_path("a")), ATTN_ERROR_FORMAT);
    for (const char *c = attn_error_message(); *c; c++)
        ck_assert_msg(*c >= ' ' && *c <= '~', "byte %d in the message", *c);
    char *header = malloc(100000);
    ck_assert_ptr_nonnull(header);
    memset(header, 'x', 99990);
    memcpy(header, "{\"", 2);
    memcpy(header + 99990, "\":{}}", 6);
    write_text(test_path("a"), header, 0);
    test_refused(open_and_close(test_path("a")), ATTN_ERROR_FORMAT);
    ck_assert_ptr_nonnull(strstr(attn_error_message(), "...': dtype"));
    free(header);
}
END_TEST

START_TEST(what_is_no_file) {
    test_refused(open_and_close(test_path("absent")), ATTN_ERROR_IO);
    ck_assert_ptr_nonnull(strstr(attn_error_message(), "absent"));
    test_refused(open_and_close(test_folder), ATTN_ERROR_IO);
    test_refused(open_and_close("/dev/null"), ATTN_ERROR_FORMAT);
    test_refused(open_and_close("/dev/zero"), ATTN_ERROR_FORMAT);
    test_refused(attn_safetensors_open(NULL, "x"), ATTN_ERROR_ARGUMENT);
    attn_safetensors file;
    test_refused(attn_safetensors_open(&file, NULL), ATTN_ERROR_ARGUMENT);
    attn_safetensors_close(NULL);
}
END_TEST

START_TEST(a_pipe_is_read_too) {
    save_sample(test_path("a"));
    ck_assert_int_eq(mkfifo(test_path("pipe"), 0600), 0);
    size_t size;
    unsigned char *bytes = test_read(test_path("a"), &size);
    pid_t child = fork();
    if (child == 0) {
        FILE *pipe = fopen(test_path("pipe"), "wb");
        for (size_t i = 0; pipe && i < size; i++) {
            fputc(bytes[i], pipe);
            if (i % 100 == 0)
                fflush(pipe);
        }
        _exit(!pipe || fclose(pipe));
    }
    attn_safetensors file;
    test_ok(attn_safetensors_open(&file, test_path("pipe")));
    ck_assert_uint_eq(file.num_tensors, COUNT(sample));
    attn_safetensors_close(&file);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    free(bytes);
}
END_TEST

START_TEST(what_cannot_be_written) {
    save_sample(test_path("a"));
    size_t size, after;
    unsigned char *before = test_read(test_path("a"), &size);
    attn_tensor t = {"t", ATTN_DTYPE_F32, 1, dims_3, floats}, pair[2] = {t, t};
    const char *path = test_path("a");
    test_refused(attn_safetensors_save(path, pair, 2, NULL, 0), ATTN_ERROR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(attn_error_message(), "'t' occurs twice"));
    t.name = "__metadata__";
    test_refused(attn_safetensors_save(path, &t, 1, NULL, 0), ATTN_ERROR_ARGUMENT);
    static const char *const not_utf8[] = {"\xFF",         "\xC0\x80",     "\xED\xA0\x80",
                                           "\xE0\x80\x80", "\xF4\x90\x80", "a\xC3"};
    for (size_t i = 0; i < COUNT(not_utf8); i++) {
        t.name = not_utf8[i];
        test_refused(attn_safetensors_save(path, &t, 1, NULL, 0), ATTN_ERROR_ARGUMENT);
        attn_metadata m = {"k", not_utf8[i]};
        test_refused(attn_safetensors_save(path, NULL, 0, &m, 1), ATTN_ERROR_ARGUMENT);
    }
    t.name = NULL;
    test_refused(attn_safetensors_save(path, &t, 1, NULL, 0), ATTN_ERROR_ARGUMENT);
    t = (attn_tensor){"t", ATTN_DTYPE_COUNT, 1, dims_3, floats};
    test_refused(attn_safetensors_save(path, &t, 1, NULL, 0), ATTN_ERROR_ARGUMENT);
    t = (attn_tensor){"t", ATTN_DTYPE_F32, 1, dims_3, NULL};
    test_refused(attn_safetensors_save(path, &t, 1, NULL, 0), ATTN_ERROR_ARGUMENT);
    t = (attn_tensor){"t", ATTN_DTYPE_F32, 1, NULL, floats};
    test_refused(attn_safetensors_save(path, &t, 1, NULL, 0), ATTN_ERROR_ARGUMENT);
    t = (attn_tensor){"t", ATTN_DTYPE_F32, 2, (size_t[]){SIZE_MAX / 2, 3}, floats};
    test_refused(attn_safetensors_save(path, &t, 1, NULL, 0), ATTN_ERROR_OVERFLOW);
    attn_metadata twice[2] = {{"k", "1"}, {"k", "2"}};
    test_refused(attn_safetensors_save(path, NULL, 0, twice, 2), ATTN_ERROR_ARGUMENT);
    test_refused(attn_safetensors_save(path, NULL, 1, NULL, 0), ATTN_ERROR_ARGUMENT);
    test_refused(attn_safetensors_save(NULL, NULL, 0, NULL, 0), ATTN_ERROR_ARGUMENT);
    unsigned char *unchanged = test_read(test_path("a"), &after);
    ck_assert_uint_eq(size, after);
    ck_assert_mem_eq(before, unchanged, size);
    ck_assert_uint_eq(test_count_files(""), 1);
    free(before);
    free(unchanged);
}
END_TEST

START_TEST(all_valid_utf8_is_written) {
    static const char *const texts[] = {"",
                                        "\x7F",
                                        "\xC2\x80",
                                        "\xE0\xA0\x80",
                                        "\xED\x9F\xBF",
                                        "\xEF\xBF\xBF",
                                        "\xF0\x90\x80\x80",
                                        "\xF4\x8F\xBF\xBF",
                                        "\x01\"\\"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        attn_metadata m = {texts[i], texts[i]};
        test_ok(attn_safetensors_save(test_path("a"), NULL, 0, &m, 1));
        attn_safetensors file;
        test_ok(attn_safetensors_open(&file, test_path("a")));
        ck_assert_str_eq(attn_safetensors_metadata(&file, texts[i]), texts[i]);
        attn_safetensors_close(&file);
    }
}
END_TEST

static mode_t mode_of(const char *path) {
    struct stat info;
    ck_assert_int_eq(lstat(path, &info), 0);
    return info.st_mode;
}

START_TEST(a_new_file_takes_the_place_of_the_old) {
    umask(022);
    save_sample(test_path("a"));
    ck_assert_uint_eq(mode_of(test_path("a")) & 0777, 0644);
    ck_assert_int_eq(chmod(test_path("a"), 0600), 0);
    ck_assert_int_eq(symlink("a", test_path("link")), 0);
    test_ok(attn_safetensors_save(test_path("link"), NULL, 0, NULL, 0));
    ck_assert(S_ISLNK(mode_of(test_path("link"))));
    ck_assert_uint_eq(mode_of(test_path("a")) & 0777, 0600);
    attn_safetensors file;
    test_ok(attn_safetensors_open(&file, test_path("a")));
    ck_assert_uint_eq(file.num_tensors, 0);
    attn_safetensors_close(&file);
    ck_assert_int_eq(chdir(test_folder), 0);
    save_sample("a"); /* a path without a folder */
    test_ok(open_and_close("a"));
    ck_assert_uint_eq(test_count_files(""), 2);
    char longest[256];
    memset(longest, 'x', 255);
    longest[255] = 0;
    save_sample(longest);
    test_ok(open_and_close(longest));
}
END_TEST

/* A reader of the pipe, which takes at most `most` bytes into a file. */
static pid_t start_reader(const char *pipe, const char *copy, int most) {
    pid_t child = fork();
    if (child == 0) {
        FILE *in = fopen(pipe, "rb"), *out = fopen(copy, "wb");
        for (int c; in && out && most-- > 0 && (c = fgetc(in)) != EOF;)
            fputc(c, out);
        _exit(!in || !out || fclose(out) != 0);
    }
    return child;
}

START_TEST(what_is_no_regular_file_is_not_replaced) {
    const char *pipe = test_path("pipe"), *copy = test_path("copy");
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    pid_t child = start_reader(pipe, copy, INT_MAX);
    save_sample(pipe);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert(S_ISFIFO(mode_of(pipe)));
    test_ok(open_and_close(copy));
    /* A reader that leaves: more than the pipe holds cannot be written. */
    signal(SIGPIPE, SIG_IGN);
    size_t dims[] = {1 << 20};
    char *zeros = calloc(dims[0], 1);
    ck_assert_ptr_nonnull(zeros);
    attn_tensor big = {"big", ATTN_DTYPE_U8, 1, dims, zeros};
    child = start_reader(pipe, copy, 10);
    test_refused(attn_safetensors_save(pipe, &big, 1, NULL, 0), ATTN_ERROR_IO);
    ck_assert_ptr_nonnull(strstr(attn_error_message(), "Broken pipe"));
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert(S_ISFIFO(mode_of(pipe)));
    free(zeros);
    test_refused(attn_safetensors_save(test_folder, sample, COUNT(sample), NULL, 0), ATTN_ERROR_IO);
    test_refused(attn_safetensors_save(test_path("no/such"), sample, COUNT(sample), NULL, 0),
                 ATTN_ERROR_IO);
    ck_assert_uint_eq(test_count_files(""), 2);
}
END_TEST

/* A limit on the size of files stands for a full disk. */
START_TEST(a_full_disk_keeps_the_old_file) {
    save_sample(test_path("a"));
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit, small = {100000, 100000};
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small.rlim_max = limit.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    size_t dims[] = {200000};
    char *zeros = calloc(dims[0], 1);
    ck_assert_ptr_nonnull(zeros);
    attn_tensor big = {"big", ATTN_DTYPE_U8, 1, dims, zeros};
    attn_status status = attn_safetensors_save(test_path("a"), &big, 1, NULL, 0);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    test_refused(status, ATTN_ERROR_IO);
    ck_assert_uint_eq(test_count_files(""), 1);
    attn_safetensors file;
    test_ok(attn_safetensors_open(&file, test_path("a")));
    ck_assert_uint_eq(file.num_tensors, COUNT(sample));
    attn_safetensors_close(&file);
    free(zeros);
}
END_TEST

/* Two versions of a large file, saved in turn until the process is killed: one of them is there,
 * whole, each time. */
static void save_for_ever(const char *path) {
    size_t dims[] = {1 << 20};
    char *data = malloc(dims[0]);
    attn_tensor big = {"big", ATTN_DTYPE_U8, 1, dims, data};
    if (!data)
        _exit(EXIT_FAILURE);
    for (char version = 0;; version = !version) {
        memset(data, version, dims[0]);
        (void)attn_safetensors_save(path, &big, 1, NULL, 0);
    }
}

START_TEST(killed_while_saving) {
    size_t dims[] = {1 << 20};
    char *data = malloc(dims[0]);
    ck_assert_ptr_nonnull(data);
    memset(data, 0, dims[0]);
    attn_tensor big = {"big", ATTN_DTYPE_U8, 1, dims, data};
    test_ok(attn_safetensors_save(test_path("a"), &big, 1, NULL, 0));
    attn_random random = attn_random_seed(9, 0);
    for (int round = 0; round < 25; round++) {
        pid_t child = fork();
        if (child == 0)
            save_for_ever(test_path("a"));
        struct timespec wait = {0, 1000000 + (long)attn_random_below(&random, 20000000)};
        nanosleep(&wait, NULL);
        kill(child, SIGKILL);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        attn_safetensors file;
        test_ok(attn_safetensors_open(&file, test_path("a")));
        test_ok(attn_tensor_copy(data, attn_safetensors_find(&file, "big"), "big", ATTN_DTYPE_U8,
                                 dims, 1));
        attn_safetensors_close(&file);
        size_t same = 1;
        while (same < dims[0] && data[same] == data[0])
            same++;
        ck_assert_msg(same == dims[0], "round %d: byte %zu is of another version", round, same);
    }
    free(data);
}
END_TEST

START_TEST(names_of_types) {
    ck_assert_str_eq(attn_dtype_name(ATTN_DTYPE_BF16), "BF16");
    ck_assert_str_eq(attn_dtype_name(ATTN_DTYPE_COUNT), "unknown");
    ck_assert_uint_eq(attn_dtype_size(ATTN_DTYPE_I64), 8);
    ck_assert_uint_eq(attn_dtype_size(ATTN_DTYPE_COUNT), 0);
    for (int d = 0; d < ATTN_DTYPE_COUNT; d++)
        ck_assert_uint_gt(attn_dtype_size((attn_dtype)d), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("safetensors");
    TCase *tests = tcase_create("safetensors");
    tcase_add_checked_fixture(tests, test_folder_make, test_folder_remove);
    tcase_add_test(tests, what_is_written_is_read);
    tcase_add_test(tests, a_file_of_nothing);
    tcase_add_test(tests, data_starts_at_a_multiple_of_8);
    tcase_add_test(tests, a_copy_wants_exactly_that_tensor);
    tcase_add_loop_test(tests, hostile_headers_are_refused, 0, (int)COUNT(hostile));
    tcase_add_loop_test(tests, unusual_but_valid_headers_are_read, 0, (int)COUNT(valid));
    tcase_add_test(tests, tensors_come_in_the_order_of_their_data);
    tcase_add_test(tests, header_lengths_that_lie);
    tcase_add_test(tests, cut_anywhere_is_an_error);
    tcase_add_test(tests, changed_bytes_do_no_harm);
    tcase_add_test(tests, deep_nesting_is_refused);
    tcase_add_test(tests, messages_are_one_printable_line);
    tcase_add_test(tests, what_is_no_file);
    tcase_add_test(tests, a_pipe_is_read_too);
    tcase_add_test(tests, what_cannot_be_written);
    tcase_add_test(tests, all_valid_utf8_is_written);
    tcase_add_test(tests, a_new_file_takes_the_place_of_the_old);
    tcase_add_test(tests, what_is_no_regular_file_is_not_replaced);
    tcase_add_test(tests, a_full_disk_keeps_the_old_file);
    tcase_add_test(tests, killed_while_saving);
    tcase_add_test(tests, names_of_types);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
