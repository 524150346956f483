#include "kernels/bodies.h"
#include "kernels/fused_terms.h"
#include "kernels/fused_tile.h"

/* P = exp(S - m) / l of a few queries, from the m and l that the forward kept: S is computed as the
 * forward did, tile by tile, and turned so that the keys of a query are contiguous. */

size_t KERNEL(fused_weights_scratch)(size_t d_head) {
    return QUERY_TILE * (padded_width(d_head) + KEY_TILE);
}

/* VLEN queries of vector v by VLEN keys from row `row` of the tile on. */
static void write_block(const attni_fused_head *head, const tile *t, size_t v, size_t row,
                        const real *scores, real *weights) {
    const size_t query = t->query + v * VLEN;
    const size_t queries = t->num_queries - v * VLEN < VLEN ? t->num_queries - v * VLEN : VLEN;
    const size_t keys = t->num_keys - row < VLEN ? t->num_keys - row : VLEN;
    const vreal max = vload_part(head->row_max + query, queries);
    const vreal sum = vload_part(head->row_sum + query, queries);
    const vreal blocked = vsplat(-(real)INFINITY);
    vreal block[VLEN];
    for (size_t j = 0; j < VLEN; j++) {
        block[j] = vzero();
        if (row + j < t->first[v] || row + j >= t->limit[v])
            continue;
        const vreal s = vload(scores + (row + j) * QUERY_TILE + v * VLEN);
        block[j] = vselect(vequal(s, blocked), vzero(), vexp_weight(s - max) / sum);
    }
    vtranspose(block);
    for (size_t i = 0; i < queries; i++)
        vstore_part(weights + (query + i) * head->len_k + t->key + row, block[i], keys);
}

static void write_tile(const attni_fused_head *head, size_t query, size_t num_queries, size_t key,
                       size_t num_keys, const real *columns, real *scores, real *weights) {
    const attni_rows keys = {head->key.at + key * head->key.stride, head->key.stride};
    tile t;
    if (!tile_cut(&t, head, query, num_queries, key, num_keys, 1))
        return;
    tile_scores(scores, &t, &keys, columns, head->d_head);
    if (head_has_terms(head))
        tile_terms(scores, NULL, &t, head);
    tile_mask(scores, &t, head);
    for (size_t v = 0; v < t.vectors; v++)
        for (size_t row = t.first[v] / VLEN * VLEN; row < t.limit[v]; row += VLEN)
            write_block(head, &t, v, row, scores, weights);
}

void KERNEL(fused_weights)(const attni_fused_head *head, attni_range queries, real *weights,
                           real *scratch) {
    real *columns = scratch, *scores = columns + QUERY_TILE * padded_width(head->d_head);
    memset(weights + queries.begin * head->len_k, 0,
           (queries.end - queries.begin) * head->len_k * sizeof *weights);
    for (size_t q = queries.begin; q < queries.end; q += QUERY_TILE) {
        const attni_range now = range_from(q, QUERY_TILE, queries.end);
        const size_t n = now.end - now.begin;
        const attni_rows rows = {head->query.at + q * head->query.stride, head->query.stride};
        const attni_range keys =
            range_cut((attni_range){0, head->len_k}, (int64_t)now.begin + head->low,
                      (int64_t)now.end + head->high, KEY_TILE);
        pack_columns(columns, &rows, n, head->d_head, head->scale, NULL);
        for (size_t key = keys.begin; key < keys.end; key += KEY_TILE) {
            const attni_range tile_keys = range_from(key, KEY_TILE, keys.end);
            if (!all_padded(head, key, tile_keys.end - key))
                write_tile(head, q, n, key, tile_keys.end - key, columns, scores, weights);
        }
    }
}
