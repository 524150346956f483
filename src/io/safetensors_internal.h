/*
 * safetensors_internal.h - what safetensors.c asks of the JSON header, in both directions.
 */
#ifndef ATTNI_SAFETENSORS_INTERNAL_H
#define ATTNI_SAFETENSORS_INTERNAL_H

#include <attn/safetensors.h>
#include <stdbool.h>

#if defined(ATTN_WITH_JANSSON) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ATTNI_SAFETENSORS
#endif

/* Other implementations refuse longer headers too. */
enum { HEADER_LENGTH_BYTES = 8, HEADER_MAX = 100000000 };

/* Bytes of a tensor's data; false if they cannot be counted. */
bool attni_tensor_bytes(size_t *bytes, attn_dtype dtype, const size_t *dims, size_t rank);

/* Checks the JSON header of the file at `path` and fills all of *file but the tensors' data;
 * *data_bytes is what they cover, without gaps, in order. After a failure *file is to be closed. */
attn_status attni_safetensors_parse(attn_safetensors *file, size_t *data_bytes, const char *header,
                                    size_t length, const char *path);

/* The header of a file with these tensors: 8 bytes of length, JSON, spaces up to a multiple of 8.
 * Freed by the caller. */
attn_status attni_safetensors_header(unsigned char **header, size_t *length,
                                     const attn_tensor *tensors, size_t num_tensors,
                                     const attn_metadata *metadata, size_t num_metadata);

#endif
