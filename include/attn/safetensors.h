/*
 * safetensors.h - named tensors in a file: reading with suspicion, writing all or nothing.
 *
 *     attn_safetensors file;
 *     if (attn_safetensors_open(&file, "model.safetensors") != ATTN_OK)
 *         return complain(attn_error_message());
 *     const attn_tensor *wq = attn_safetensors_find(&file, "wq");
 *     size_t dims[] = {64, 64};
 *     status = attn_tensor_copy(weights, wq, "wq", ATTN_DTYPE_F32, dims, 2);
 *     attn_safetensors_close(&file);
 *
 * The format (https://github.com/huggingface/safetensors): 8 bytes of header length, little-endian;
 * a JSON object that maps each name to its dtype, shape and byte range, and "__metadata__" to
 * strings; then the data, row by row, little-endian, without gaps or overlaps.
 *
 * A file is read into memory: nothing changes under the reader's feet when somebody rewrites it.
 * Everything it claims is checked before memory of the claimed size is asked for. Without jansson
 * in the build, and on big-endian machines, open and save answer ATTN_ERROR_UNSUPPORTED.
 *
 * Thread-safe on different files; an open file may be read from several threads.
 */
#ifndef ATTN_SAFETENSORS_H
#define ATTN_SAFETENSORS_H

#include <attn/status.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attn_dtype {
    ATTN_DTYPE_BOOL = 0, /* one byte, 0 or 1 */
    ATTN_DTYPE_U8,
    ATTN_DTYPE_I8,
    ATTN_DTYPE_F8_E4M3,
    ATTN_DTYPE_F8_E5M2,
    ATTN_DTYPE_U16,
    ATTN_DTYPE_I16,
    ATTN_DTYPE_F16,
    ATTN_DTYPE_BF16,
    ATTN_DTYPE_U32,
    ATTN_DTYPE_I32,
    ATTN_DTYPE_F32,
    ATTN_DTYPE_U64,
    ATTN_DTYPE_I64,
    ATTN_DTYPE_F64,
    ATTN_DTYPE_COUNT
} attn_dtype;

/* "F32" and the like, "unknown" outside the enumeration. */
ATTN_API const char *attn_dtype_name(attn_dtype dtype);
/* Bytes of one element, 0 outside the enumeration. */
ATTN_API size_t attn_dtype_size(attn_dtype dtype);

/* One tensor of a file, read or to be written. No dimension at all (rank 0) is a single number; a
 * dimension of 0 makes it empty. */
typedef struct attn_tensor {
    const char *name;
    attn_dtype dtype;
    size_t rank;
    const size_t *dims;
    const void *data; /* row-major; in an open file not necessarily aligned to its elements */
} attn_tensor;

typedef struct attn_metadata {
    const char *key, *value;
} attn_metadata;

/* An open file, for reading; the arrays are its own until close. */
typedef struct attn_safetensors {
    const attn_tensor *tensors; /* in the order of their data */
    size_t num_tensors;
    const attn_metadata *metadata; /* in the order of the file */
    size_t num_metadata;
    void *owned[2]; /* the two arrays with all they point to, and the data */
} attn_safetensors;

/* Reads and checks the whole file. ATTN_ERROR_IO where the system refuses, ATTN_ERROR_FORMAT where
 * the contents are not what they claim to be, ATTN_ERROR_MEMORY; *file is zeroed then. */
ATTN_API attn_status attn_safetensors_open(attn_safetensors *file, const char *path);

/* Frees everything. Harmless on a zeroed structure. */
ATTN_API void attn_safetensors_close(attn_safetensors *file);

/* The tensor of that name, or NULL. */
ATTN_API const attn_tensor *attn_safetensors_find(const attn_safetensors *file, const char *name);

/* The metadata value of that key, or NULL. */
ATTN_API const char *attn_safetensors_metadata(const attn_safetensors *file, const char *key);

/* Copies the elements to `destination`, which holds the product of `dims` elements of `dtype`, if
 * the tensor is there and is exactly that: ATTN_ERROR_FORMAT where it is NULL (missing) or has
 * another dtype, ATTN_ERROR_SHAPE where it has another shape. The message calls it `name`. */
ATTN_API attn_status attn_tensor_copy(void *destination, const attn_tensor *tensor,
                                      const char *name, attn_dtype dtype, const size_t *dims,
                                      size_t rank);

/* Writes a file with these tensors in this order. It is complete or not there at all: written under
 * a temporary name in the same directory, flushed to the disk and renamed, so that after a failure
 * (ATTN_ERROR_IO: a full disk, say), a crash or a kill the previous file is untouched. A process
 * that is killed can leave its temporary (.attn-*.tmp) behind. Where `path` is no regular file (a
 * pipe, /dev/stdout) there is nothing to replace and it is written directly. ATTN_ERROR_ARGUMENT
 * for names that occur twice, are not UTF-8 or are "__metadata__". */
ATTN_API attn_status attn_safetensors_save(const char *path, const attn_tensor *tensors,
                                           size_t num_tensors, const attn_metadata *metadata,
                                           size_t num_metadata);

#ifdef __cplusplus
}
#endif

#endif
