#include "io/safetensors_internal.h"

#ifdef ATTNI_SAFETENSORS

#include "base/fail.h"
#include "base/size.h"
#include "io/shown.h"

#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define METADATA "__metadata__"

/* A legal header nests 3 deep (file, entry, shape). The bound keeps the parser, which recurses, off
 * the end of the stack. */
enum { NESTING_MAX = 16 };

/* One tensor while its place among the others is looked for. */
typedef struct entry {
    const char *name; /* in the JSON tree, as is `shape` */
    json_t *shape;
    attn_dtype dtype;
    size_t begin, end;
} entry;

static attn_status header_fail(const char *path, const char *what) {
    return attni_fail(ATTN_ERROR_FORMAT, "%s: header: %s", attni_shown_path(path).text, what);
}

static attn_status tensor_fail(const char *path, const char *name, const char *what) {
    return attni_fail(ATTN_ERROR_FORMAT, "%s: tensor '%s': %s", attni_shown_path(path).text,
                      attni_shown_text(name).text, what);
}

static attn_status no_memory(const char *path) {
    return attni_fail(ATTN_ERROR_MEMORY, "%s: the system has no memory for the header",
                      attni_shown_path(path).text);
}

static bool nests_too_deep(const char *text, size_t length) {
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"')
            in_string = true;
        else if ((c == '[' || c == '{') && ++depth > NESTING_MAX)
            return true;
        else if ((c == ']' || c == '}') && depth > 0)
            depth--;
    }
    return false;
}

static attn_status parse_json(json_t **root, const char *text, size_t length, const char *path) {
    if (nests_too_deep(text, length))
        return header_fail(path, "nested too deeply");
    json_error_t error;
    errno = 0;
    *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    /* Without memory for a string jansson says that it found none; malloc's errno tells. */
    if (!*root && (json_error_code(&error) == json_error_out_of_memory || errno == ENOMEM))
        return no_memory(path);
    if (!*root)
        return attni_fail(ATTN_ERROR_FORMAT, "%s: header, byte %d: %s", attni_shown_path(path).text,
                          error.position, attni_shown_text(error.text).text);
    if (json_is_object(*root))
        return ATTN_OK;
    json_decref(*root);
    return header_fail(path, "not a JSON object");
}

/* A JSON integer from 0 to SIZE_MAX. */
static bool get_size(size_t *size, const json_t *number) {
    json_int_t value = json_integer_value(number);
    if (!json_is_integer(number) || value < 0 || (uintmax_t)value > SIZE_MAX)
        return false;
    *size = (size_t)value;
    return true;
}

static bool get_dtype(attn_dtype *dtype, const json_t *name) {
    if (!json_is_string(name))
        return false;
    for (int d = 0; d < ATTN_DTYPE_COUNT; d++)
        if (strcmp(json_string_value(name), attn_dtype_name((attn_dtype)d)) == 0) {
            *dtype = (attn_dtype)d;
            return true;
        }
    return false;
}

/* Bytes that shape and dtype ask for; false for a bad shape or a product that wraps. */
static bool shape_bytes(size_t *bytes, const entry *e) {
    size_t product = attn_dtype_size(e->dtype), dim;
    bool wraps = false, empty = false;
    for (size_t i = 0; i < json_array_size(e->shape); i++) {
        if (!get_size(&dim, json_array_get(e->shape, i)))
            return false;
        empty |= dim == 0;
        wraps |= !size_mul(&product, product, dim);
    }
    *bytes = empty ? 0 : product;
    return empty || !wraps;
}

static attn_status parse_entry(entry *e, const char *name, json_t *value, const char *path) {
    json_t *offsets = json_object_get(value, "data_offsets");
    e->name = name;
    e->shape = json_object_get(value, "shape");
    if (!json_is_object(value))
        return tensor_fail(path, name, "not described by an object");
    if (!get_dtype(&e->dtype, json_object_get(value, "dtype")))
        return tensor_fail(path, name, "dtype missing or unknown");
    if (!json_is_array(e->shape))
        return tensor_fail(path, name, "shape missing or no array");
    if (json_array_size(offsets) != 2 || !get_size(&e->begin, json_array_get(offsets, 0)) ||
        !get_size(&e->end, json_array_get(offsets, 1)) || e->begin > e->end)
        return tensor_fail(path, name, "data_offsets is no pair of increasing offsets");
    size_t bytes;
    if (!shape_bytes(&bytes, e))
        return tensor_fail(path, name, "a dimension is no size, or the sizes multiply too high");
    if (bytes != e->end - e->begin)
        return tensor_fail(path, name, "its byte range disagrees with its shape and dtype");
    return ATTN_OK;
}

/* By place; an empty tensor before the one that begins where it stands. */
static int by_place(const void *left, const void *right) {
    const entry *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

/* All tensors in the order of their data, which they cover without gaps or overlaps. */
static attn_status parse_entries(entry *entries, size_t *data_bytes, json_t *root,
                                 const char *path) {
    size_t count = 0, at = 0;
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value) {
        if (strcmp(name, METADATA) != 0)
            ATTNI_TRY(parse_entry(&entries[count++], name, value, path));
    }
    qsort(entries, count, sizeof *entries, by_place);
    for (size_t i = 0; i < count; i++) {
        if (entries[i].begin != at)
            return tensor_fail(path, entries[i].name,
                               entries[i].begin < at ? "overlaps another tensor"
                                                     : "a gap in the data before it");
        at = entries[i].end;
    }
    *data_bytes = at;
    return ATTN_OK;
}

static attn_status check_metadata(json_t *metadata, const char *path) {
    const char *key;
    json_t *value;
    if (metadata && !json_is_object(metadata))
        return header_fail(path, METADATA " is not an object");
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value))
            return attni_fail(ATTN_ERROR_FORMAT, "%s: metadata '%s' is not a string",
                              attni_shown_path(path).text, attni_shown_text(key).text);
    }
    return ATTN_OK;
}

/* The one block that holds what an open file points to:
 * tensors | metadata | dimensions | text */
typedef struct index_block {
    attn_tensor *tensors;
    attn_metadata *metadata;
    size_t *dims;
    char *text;
} index_block;

static bool index_allocate(index_block *block, const entry *entries, size_t num_tensors,
                           json_t *metadata) {
    size_t num_metadata = json_object_size(metadata), dims = 0, text = 0;
    const char *key;
    json_t *value;
    for (size_t i = 0; i < num_tensors; i++) {
        dims += json_array_size(entries[i].shape);
        text += strlen(entries[i].name) + 1;
    }
    json_object_foreach(metadata, key, value) {
        text += strlen(key) + 1 + json_string_length(value) + 1;
    }
    size_t bytes = num_tensors * sizeof *block->tensors + num_metadata * sizeof *block->metadata +
                   dims * sizeof *block->dims + text;
    block->tensors = malloc(bytes ? bytes : 1);
    if (!block->tensors)
        return false;
    block->metadata = (attn_metadata *)(block->tensors + num_tensors);
    block->dims = (size_t *)(block->metadata + num_metadata);
    block->text = (char *)(block->dims + dims);
    return true;
}

static const char *keep_text(index_block *block, const char *text) {
    char *kept = block->text;
    size_t size = strlen(text) + 1;
    memcpy(kept, text, size);
    block->text += size;
    return kept;
}

static attn_status build_index(attn_safetensors *file, const entry *entries, size_t num_tensors,
                               json_t *metadata, const char *path) {
    index_block block;
    if (!index_allocate(&block, entries, num_tensors, metadata))
        return no_memory(path);
    *file = (attn_safetensors){.tensors = block.tensors,
                               .num_tensors = num_tensors,
                               .metadata = block.metadata,
                               .owned = {block.tensors}};
    for (size_t i = 0; i < num_tensors; i++) {
        size_t rank = json_array_size(entries[i].shape);
        block.tensors[i] = (attn_tensor){.name = keep_text(&block, entries[i].name),
                                         .dtype = entries[i].dtype,
                                         .rank = rank,
                                         .dims = block.dims};
        for (size_t r = 0; r < rank; r++)
            (void)get_size(block.dims++, json_array_get(entries[i].shape, r));
    }
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value) {
        block.metadata[file->num_metadata++] =
            (attn_metadata){keep_text(&block, key), keep_text(&block, json_string_value(value))};
    }
    return ATTN_OK;
}

attn_status attni_safetensors_parse(attn_safetensors *file, size_t *data_bytes, const char *header,
                                    size_t length, const char *path) {
    json_t *root;
    ATTNI_TRY(parse_json(&root, header, length, path));
    json_t *metadata = json_object_get(root, METADATA);
    size_t num_tensors = json_object_size(root) - (metadata ? 1 : 0);
    entry *entries = malloc((num_tensors + 1) * sizeof *entries);
    attn_status status = entries ? check_metadata(metadata, path) : no_memory(path);
    if (status == ATTN_OK)
        status = parse_entries(entries, data_bytes, root, path);
    if (status == ATTN_OK)
        status = build_index(file, entries, num_tensors, metadata, path);
    free(entries);
    json_decref(root);
    return status;
}

/* Unicode 15, table 3-7: no overlong forms, no surrogates, nothing past U+10FFFF. */
static bool is_utf8(const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        int more = *s < 0x80 ? 0 : *s >= 0xC2 && *s < 0xE0 ? 1 : *s >= 0xE0 && *s < 0xF0 ? 2 : 3;
        unsigned low = *s == 0xE0 ? 0xA0 : *s == 0xF0 ? 0x90 : 0x80;
        unsigned high = *s == 0xED ? 0x9F : *s == 0xF4 ? 0x8F : 0xBF;
        if (more == 3 && (*s < 0xF0 || *s > 0xF4))
            return false;
        for (s++; more > 0; more--, s++, low = 0x80, high = 0xBF)
            if (*s < low || *s > high)
                return false;
    }
    return true;
}

static attn_status check_text(const char *what, const char *text) {
    if (!text)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_safetensors_save: %s is NULL", what);
    if (!is_utf8(text))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_safetensors_save: %s '%s' is not UTF-8", what,
                          attni_shown_text(text).text);
    return ATTN_OK;
}

/* Refuses what cannot be written; *end moves past the tensor's data. */
static attn_status check_tensor(const attn_tensor *tensor, size_t *end) {
    ATTNI_TRY(check_text("a tensor's name", tensor->name));
    attni_shown name = attni_shown_text(tensor->name);
    if (strcmp(tensor->name, METADATA) == 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "a tensor cannot be named " METADATA);
    if (attn_dtype_size(tensor->dtype) == 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "tensor '%s': dtype %d is unknown", name.text,
                          (int)tensor->dtype);
    if (!tensor->dims && tensor->rank > 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "tensor '%s': dims is NULL", name.text);
    size_t bytes;
    bool countable = attni_tensor_bytes(&bytes, tensor->dtype, tensor->dims, tensor->rank) &&
                     size_add(end, *end, bytes) && (uintmax_t)*end <= INT64_MAX;
    for (size_t i = 0; i < tensor->rank; i++)
        countable &= (uintmax_t)tensor->dims[i] <= INT64_MAX;
    if (!countable)
        return attni_fail(ATTN_ERROR_OVERFLOW, "tensor '%s' of shape %s: the size wraps", name.text,
                          attni_shown_shape(tensor->dims, tensor->rank).text);
    if (!tensor->data && bytes > 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "tensor '%s': data is NULL", name.text);
    return ATTN_OK;
}

static json_t *describe(const attn_tensor *tensor, size_t begin, size_t end) {
    json_t *shape = json_array();
    for (size_t i = 0; shape && i < tensor->rank; i++)
        if (json_array_append_new(shape, json_integer((json_int_t)tensor->dims[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    if (!shape)
        return NULL;
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", attn_dtype_name(tensor->dtype), "shape",
                     shape, "data_offsets", (json_int_t)begin, (json_int_t)end);
}

static attn_status save_no_memory(void) {
    return attni_fail(ATTN_ERROR_MEMORY, "attn_safetensors_save: no memory for the header");
}

/* object[key] = value, which is taken over; refuses a key that is there already. */
static attn_status put(json_t *object, const char *what, const char *key, json_t *value) {
    if (json_object_get(object, key)) {
        json_decref(value);
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_safetensors_save: %s '%s' occurs twice", what,
                          attni_shown_text(key).text);
    }
    return json_object_set_new(object, key, value) == 0 ? ATTN_OK : save_no_memory();
}

static attn_status put_metadata(json_t *root, const attn_metadata *metadata, size_t num_metadata) {
    if (num_metadata == 0)
        return ATTN_OK;
    json_t *object = json_object();
    if (!object || json_object_set_new(root, METADATA, object) != 0)
        return save_no_memory();
    for (size_t i = 0; i < num_metadata; i++) {
        ATTNI_TRY(check_text("a metadata key", metadata[i].key));
        ATTNI_TRY(check_text("a metadata value", metadata[i].value));
        ATTNI_TRY(put(object, "metadata key", metadata[i].key, json_string(metadata[i].value)));
    }
    return ATTN_OK;
}

static attn_status put_tensors(json_t *root, const attn_tensor *tensors, size_t num_tensors) {
    size_t begin = 0, end = 0;
    for (size_t i = 0; i < num_tensors; i++, begin = end) {
        ATTNI_TRY(check_tensor(&tensors[i], &end));
        ATTNI_TRY(put(root, "tensor", tensors[i].name, describe(&tensors[i], begin, end)));
    }
    return ATTN_OK;
}

/* Text that grows. Failures stick: jansson does not look at every answer of its callback. */
typedef struct growing {
    unsigned char *bytes;
    size_t length, capacity;
    bool failed;
} growing;

static int grow(const char *text, size_t length, void *into) {
    growing *g = into;
    size_t needed;
    if (g->failed || !size_add(&needed, g->length, length))
        return -1;
    if (needed > g->capacity) {
        size_t capacity = size_max(needed, size_max(256, 2 * g->capacity));
        unsigned char *larger = realloc(g->bytes, capacity);
        g->failed = !larger;
        if (g->failed)
            return -1;
        g->bytes = larger;
        g->capacity = capacity;
    }
    memcpy(g->bytes + g->length, text, length);
    g->length = needed;
    return 0;
}

/* The length in front, spaces behind: the data starts at a multiple of 8. */
static attn_status write_header(growing *header, const json_t *root) {
    static const char length_to_be[HEADER_LENGTH_BYTES];
    (void)grow(length_to_be, HEADER_LENGTH_BYTES, header);
    int status = json_dump_callback(root, grow, header, JSON_COMPACT);
    while (!header->failed && header->length % 8 != 0)
        (void)grow(" ", 1, header);
    if (status != 0 || header->failed)
        return save_no_memory();
    size_t length = header->length - HEADER_LENGTH_BYTES;
    if (length > HEADER_MAX)
        return attni_fail(ATTN_ERROR_UNSUPPORTED,
                          "attn_safetensors_save: a header of %zu bytes, more than 100 MB", length);
    for (int i = 0; i < HEADER_LENGTH_BYTES; i++)
        header->bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
    return ATTN_OK;
}

attn_status attni_safetensors_header(unsigned char **header, size_t *length,
                                     const attn_tensor *tensors, size_t num_tensors,
                                     const attn_metadata *metadata, size_t num_metadata) {
    growing text = {0};
    json_t *root = json_object();
    attn_status status = root ? put_metadata(root, metadata, num_metadata) : save_no_memory();
    if (status == ATTN_OK)
        status = put_tensors(root, tensors, num_tensors);
    if (status == ATTN_OK)
        status = write_header(&text, root);
    json_decref(root);
    if (status != ATTN_OK) {
        free(text.bytes);
        return status;
    }
    *header = text.bytes;
    *length = text.length;
    return ATTN_OK;
}

#else

/* Nothing to compile without jansson; C asks for at least one declaration. */
typedef int attni_no_safetensors;

#endif
