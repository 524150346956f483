#include "io/safetensors_internal.h"

#include "base/fail.h"
#include "base/size.h"
#include "io/file.h"
#include "io/shown.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[ATTN_DTYPE_COUNT] = {
    [ATTN_DTYPE_BOOL] = {"BOOL", 1},       [ATTN_DTYPE_U8] = {"U8", 1},
    [ATTN_DTYPE_I8] = {"I8", 1},           [ATTN_DTYPE_F8_E4M3] = {"F8_E4M3", 1},
    [ATTN_DTYPE_F8_E5M2] = {"F8_E5M2", 1}, [ATTN_DTYPE_U16] = {"U16", 2},
    [ATTN_DTYPE_I16] = {"I16", 2},         [ATTN_DTYPE_F16] = {"F16", 2},
    [ATTN_DTYPE_BF16] = {"BF16", 2},       [ATTN_DTYPE_U32] = {"U32", 4},
    [ATTN_DTYPE_I32] = {"I32", 4},         [ATTN_DTYPE_F32] = {"F32", 4},
    [ATTN_DTYPE_U64] = {"U64", 8},         [ATTN_DTYPE_I64] = {"I64", 8},
    [ATTN_DTYPE_F64] = {"F64", 8},
};

const char *attn_dtype_name(attn_dtype dtype) {
    return (unsigned)dtype < ATTN_DTYPE_COUNT ? dtypes[dtype].name : "unknown";
}

size_t attn_dtype_size(attn_dtype dtype) {
    return (unsigned)dtype < ATTN_DTYPE_COUNT ? dtypes[dtype].size : 0;
}

bool attni_tensor_bytes(size_t *bytes, attn_dtype dtype, const size_t *dims, size_t rank) {
    size_t count;
    return size_product(&count, dims, rank) && size_mul(bytes, count, attn_dtype_size(dtype));
}

const attn_tensor *attn_safetensors_find(const attn_safetensors *file, const char *name) {
    for (size_t i = 0; file && name && i < file->num_tensors; i++)
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    return NULL;
}

const char *attn_safetensors_metadata(const attn_safetensors *file, const char *key) {
    for (size_t i = 0; file && key && i < file->num_metadata; i++)
        if (strcmp(file->metadata[i].key, key) == 0)
            return file->metadata[i].value;
    return NULL;
}

attn_status attn_tensor_copy(void *destination, const attn_tensor *tensor, const char *name,
                             attn_dtype dtype, const size_t *dims, size_t rank) {
    if (!name || (!dims && rank > 0))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_tensor_copy: %s is NULL",
                          name ? "dims" : "name");
    attni_shown shown = attni_shown_text(name);
    if (!tensor)
        return attni_fail(ATTN_ERROR_FORMAT, "tensor '%s' is missing", shown.text);
    if (tensor->dtype != dtype)
        return attni_fail(ATTN_ERROR_FORMAT, "tensor '%s' has dtype %s, expected %s", shown.text,
                          attn_dtype_name(tensor->dtype), attn_dtype_name(dtype));
    if (tensor->rank != rank || (rank > 0 && memcmp(tensor->dims, dims, rank * sizeof *dims) != 0))
        return attni_fail(ATTN_ERROR_SHAPE, "tensor '%s' has shape %s, expected %s", shown.text,
                          attni_shown_shape(tensor->dims, tensor->rank).text,
                          attni_shown_shape(dims, rank).text);
    size_t bytes;
    if (!attni_tensor_bytes(&bytes, dtype, dims, rank))
        return attni_fail(ATTN_ERROR_OVERFLOW, "tensor '%s' of shape %s: the size wraps",
                          shown.text, attni_shown_shape(dims, rank).text);
    if (bytes > 0 && (!destination || !tensor->data))
        return attni_fail(ATTN_ERROR_ARGUMENT, "tensor '%s': %s is NULL", shown.text,
                          destination ? "its data" : "destination");
    if (bytes > 0)
        memcpy(destination, tensor->data, bytes);
    return ATTN_OK;
}

void attn_safetensors_close(attn_safetensors *file) {
    if (!file)
        return;
    for (size_t i = 0; i < sizeof file->owned / sizeof *file->owned; i++)
        free(file->owned[i]);
    *file = (attn_safetensors){0};
}

#ifdef ATTNI_SAFETENSORS

static attn_status format_fail(const attni_reader *reader, const char *what) {
    return attni_fail(ATTN_ERROR_FORMAT, "%s: %s", attni_shown_path(reader->path).text, what);
}

/* The header's length stands in the first 8 bytes. */
static attn_status read_header(attni_reader *reader, void **header, size_t *length) {
    unsigned char prefix[HEADER_LENGTH_BYTES];
    size_t got;
    ATTNI_TRY(attni_reader_read(reader, prefix, sizeof prefix, &got));
    if (got < sizeof prefix)
        return format_fail(reader, "not a safetensors file: shorter than 8 bytes");
    uint64_t claimed = 0;
    for (int i = HEADER_LENGTH_BYTES - 1; i >= 0; i--)
        claimed = claimed << 8 | prefix[i];
    if (reader->sized && claimed > reader->size - size_min(reader->size, sizeof prefix))
        return format_fail(reader, "the header length runs past the end of the file");
    if (claimed == 0 || claimed > HEADER_MAX)
        return format_fail(reader,
                           claimed ? "the header is longer than 100 MB" : "the header is empty");
    *length = (size_t)claimed;
    ATTNI_TRY(attni_reader_block(reader, header, *length, &got));
    if (got == *length)
        return ATTN_OK;
    free(*header);
    return format_fail(reader, "the header length runs past the end of the file");
}

/* The data must be exactly what the header describes. */
static attn_status read_data(attni_reader *reader, size_t header_length, size_t data_bytes,
                             void **data) {
    size_t expected, got;
    if (!size_add(&expected, data_bytes, header_length + HEADER_LENGTH_BYTES) ||
        (reader->sized && reader->size < expected))
        return format_fail(reader, "cut short: less data than the header describes");
    if (reader->sized && reader->size > expected)
        return format_fail(reader, "stray bytes after the last tensor");
    ATTNI_TRY(attni_reader_block(reader, data, data_bytes, &got));
    char more;
    size_t stray = 0;
    attn_status status = ATTN_OK;
    if (got < data_bytes)
        status = format_fail(reader, "cut short: less data than the header describes");
    else
        status = attni_reader_read(reader, &more, 1, &stray);
    if (status == ATTN_OK && stray > 0)
        status = format_fail(reader, "stray bytes after the last tensor");
    if (status != ATTN_OK) {
        free(*data);
        *data = NULL;
    }
    return status;
}

/* The tensors lie one after the other, in the order of the index. */
static void point_into_data(attn_safetensors *file, const char *data) {
    attn_tensor *tensors = file->owned[0];
    for (size_t i = 0; i < file->num_tensors; i++) {
        size_t bytes = 0;
        tensors[i].data = data;
        (void)attni_tensor_bytes(&bytes, tensors[i].dtype, tensors[i].dims, tensors[i].rank);
        data += bytes;
    }
}

static attn_status read_file(attn_safetensors *file, attni_reader *reader) {
    void *header, *data;
    size_t length = 0, data_bytes = 0;
    ATTNI_TRY(read_header(reader, &header, &length));
    attn_status status = attni_safetensors_parse(file, &data_bytes, header, length, reader->path);
    free(header);
    if (status != ATTN_OK)
        return status;
    ATTNI_TRY(read_data(reader, length, data_bytes, &data));
    file->owned[1] = data;
    point_into_data(file, data);
    return ATTN_OK;
}

attn_status attn_safetensors_open(attn_safetensors *file, const char *path) {
    if (!file || !path)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_safetensors_open: %s is NULL",
                          file ? "path" : "file");
    *file = (attn_safetensors){0};
    attni_reader reader;
    ATTNI_TRY(attni_reader_open(&reader, path));
    attn_status status = read_file(file, &reader);
    attni_reader_close(&reader);
    if (status != ATTN_OK)
        attn_safetensors_close(file);
    return status;
}

static attn_status write_file(attni_writer *writer, const unsigned char *header, size_t length,
                              const attn_tensor *tensors, size_t num_tensors) {
    ATTNI_TRY(attni_writer_write(writer, header, length));
    for (size_t i = 0; i < num_tensors; i++) {
        size_t bytes = 0;
        (void)attni_tensor_bytes(&bytes, tensors[i].dtype, tensors[i].dims, tensors[i].rank);
        ATTNI_TRY(attni_writer_write(writer, tensors[i].data, bytes));
    }
    return ATTN_OK;
}

attn_status attn_safetensors_save(const char *path, const attn_tensor *tensors, size_t num_tensors,
                                  const attn_metadata *metadata, size_t num_metadata) {
    if (!path || (!tensors && num_tensors > 0) || (!metadata && num_metadata > 0))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_safetensors_save: %s is NULL",
                          !path                         ? "path"
                          : !tensors && num_tensors > 0 ? "tensors"
                                                        : "metadata");
    unsigned char *header;
    size_t length;
    ATTNI_TRY(
        attni_safetensors_header(&header, &length, tensors, num_tensors, metadata, num_metadata));
    attni_writer writer;
    attn_status status = attni_writer_open(&writer, path);
    if (status == ATTN_OK) {
        status = write_file(&writer, header, length, tensors, num_tensors);
        if (status == ATTN_OK)
            status = attni_writer_commit(&writer);
        else
            attni_writer_abort(&writer);
    }
    free(header);
    return status;
}

#else

static attn_status unsupported(void) {
    return attni_fail(ATTN_ERROR_UNSUPPORTED,
                      "safetensors files need a build with jansson on a little-endian machine");
}

attn_status attn_safetensors_open(attn_safetensors *file, const char *path) {
    (void)path;
    if (file)
        *file = (attn_safetensors){0};
    return unsupported();
}

attn_status attn_safetensors_save(const char *path, const attn_tensor *tensors, size_t num_tensors,
                                  const attn_metadata *metadata, size_t num_metadata) {
    (void)path;
    (void)tensors;
    (void)num_tensors;
    (void)metadata;
    (void)num_metadata;
    return unsupported();
}

#endif
