#include "ops/band.h"

void attni_band_fill_blocked(const attni_band *band, real *x, size_t stride, real value) {
    const attni_mask *mask = band->mask;
    const uint8_t *padding = mask->padding ? mask->padding + band->b * mask->padding_stride : NULL;
    const attn_broadcast *s = &mask->attend_strides, *t = &mask->bias_strides;
    for (size_t i = 0; i < band->rows; i++) {
        real *row = x + i * stride;
        size_t query = band->begin + i, end = mask_key_end(mask, query, band->keys);
        size_t begin = size_min(mask_key_begin(mask, query, band->keys), end);
        for (size_t j = 0; j < begin; j++)
            row[j] = value;
        for (size_t j = begin; padding && j < end; j++)
            row[j] = padding[j] ? value : row[j];
        if (mask->attend) {
            const uint8_t *attend = mask->attend + broadcast_row(s, band->b, band->h, query);
            for (size_t j = begin; j < end; j++)
                row[j] = attend[j * s->key] ? row[j] : value;
        }
        if (mask->bias) {
            const real *bias = mask->bias + broadcast_row(t, band->b, band->h, query);
            for (size_t j = begin; j < end; j++)
                row[j] = bias[j * t->key] == (real)-INFINITY ? value : row[j];
        }
        for (size_t j = end; j < band->keys; j++)
            row[j] = value;
    }
}

void attni_band_fill_beyond(const attni_band *band, real *x, size_t stride, real value) {
    for (size_t i = 0; i < band->rows; i++)
        for (size_t j = band->keys; j < band->len_k; j++)
            x[i * stride + j] = value;
}

bool attni_band_blocked_is_zero(const attni_band *band, const real *x, size_t stride) {
    if (mask_is_empty(band->mask))
        return true;
    for (size_t i = 0; i < band->rows; i++)
        for (size_t j = 0; j < band->keys; j++)
            if (x[i * stride + j] != 0 && !band_allows(band, i, j))
                return false;
    return true;
}
