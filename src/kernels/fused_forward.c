#include "kernels/bodies.h"
#include "kernels/fused_dropout.h"
#include "kernels/fused_terms.h"
#include "kernels/fused_tile.h"

/* A pass over the keys on behalf of a few query tiles. Everything lies in the caller's scratch. */
typedef struct pass {
    const attni_fused_head *head;
    size_t width;      /* padded d */
    real *query;       /* per query tile: scale · Qᵀ, (width, QUERY_TILE) */
    real *context;     /* per query tile: the running sum Oᵀ, (width, QUERY_TILE) */
    real *max, *sum;   /* per query tile: running m and l */
    real *keep;        /* what a new maximum leaves of the sums so far: exp(old m - new m) */
    real *key, *value; /* packed rows of the key tile */
    attni_rows keys;   /* its rows of K: packed, or where they lie if that is not worth it */
    real *scores;      /* S, then P, of one tile */
    uint16_t bad_values[KEY_TILE];
    size_t num_bad_values;
} pass;

size_t KERNEL(fused_forward_scratch)(size_t d_head) {
    const size_t width = padded_width(d_head), tiles = subtiles(d_head);
    return tiles * QUERY_TILE * (2 * width + 2) + QUERY_TILE + KEY_TILE * (2 * width + QUERY_TILE);
}

size_t KERNEL(fused_queries_per_pass)(size_t d_head) {
    return subtiles(d_head) * QUERY_TILE;
}

static void pass_carve(pass *p, const attni_fused_head *head, real *scratch) {
    const size_t tiles = subtiles(head->d_head);
    p->head = head;
    p->width = padded_width(head->d_head);
    p->query = scratch;
    p->context = p->query + tiles * p->width * QUERY_TILE;
    p->max = p->context + tiles * p->width * QUERY_TILE;
    p->sum = p->max + tiles * QUERY_TILE;
    p->keep = p->sum + tiles * QUERY_TILE;
    p->key = p->keep + QUERY_TILE;
    p->value = p->key + KEY_TILE * p->width;
    p->scores = p->value + KEY_TILE * p->width;
}

/* top = max(top, rows of S) in `vectors` columns. */
VINLINE void max_columns(int vectors, const real *scores, size_t rows, real *max) {
    vreal top[2][BLOCK_VECTORS];
    VEACH (v, vectors)
        top[0][v] = top[1][v] = vload(max + v * VLEN);
    size_t j = 0;
    for (; j + 2 <= rows; j += 2, scores += 2 * QUERY_TILE)
        VEACH (v, vectors) {
            top[0][v] = vmax(vload(scores + v * VLEN), top[0][v]);
            top[1][v] = vmax(vload(scores + QUERY_TILE + v * VLEN), top[1][v]);
        }
    if (j < rows)
        VEACH (v, vectors)
            top[0][v] = vmax(vload(scores + v * VLEN), top[0][v]);
    VEACH (v, vectors)
        vstore(max + v * VLEN, vmax(top[0][v], top[1][v]));
}

/* P = exp(S - base), sum += P in `vectors` columns. */
VINLINE void weigh_columns(int vectors, real *scores, size_t rows, const real *base, real *sum) {
    vreal total[BLOCK_VECTORS], less[BLOCK_VECTORS];
    VEACH (v, vectors) {
        total[v] = vload(sum + v * VLEN);
        less[v] = vload(base + v * VLEN);
    }
    for (size_t j = 0; j < rows; j++, scores += QUERY_TILE) {
        vreal weight[BLOCK_VECTORS];
        VEACH (v, vectors)
            weight[v] = vload(scores + v * VLEN) - less[v];
        vexp_weights(vectors, weight);
        VEACH (v, vectors) {
            total[v] += weight[v];
            vstore(scores + v * VLEN, weight[v]);
        }
    }
    VEACH (v, vectors)
        vstore(sum + v * VLEN, total[v]);
}

static void max_segment(const real *scores, size_t rows, size_t vectors, real *max) {
    for (; vectors >= BLOCK_VECTORS; vectors -= BLOCK_VECTORS) {
        max_columns(BLOCK_VECTORS, scores, rows, max);
        scores += BLOCK_VECTORS * VLEN;
        max += BLOCK_VECTORS * VLEN;
    }
    for (; vectors > 0; vectors--, scores += VLEN, max += VLEN)
        max_columns(1, scores, rows, max);
}

static void weigh_segment(real *scores, size_t rows, size_t vectors, const real *base, real *sum) {
    for (; vectors >= BLOCK_VECTORS; vectors -= BLOCK_VECTORS) {
        weigh_columns(BLOCK_VECTORS, scores, rows, base, sum);
        scores += BLOCK_VECTORS * VLEN;
        base += BLOCK_VECTORS * VLEN;
        sum += BLOCK_VECTORS * VLEN;
    }
    for (; vectors >= 2; vectors -= 2, scores += 2 * VLEN, base += 2 * VLEN, sum += 2 * VLEN)
        weigh_columns(2, scores, rows, base, sum);
    if (vectors > 0)
        weigh_columns(1, scores, rows, base, sum);
}

/* Brings m and l of a query tile up to date with a key tile, whose S becomes P:
 *
 *     P = exp(S - m),      l = l · keep + sum of P,      keep = exp(old m - m)
 *
 * A row that has seen no key yet has m = -inf; subtracting 0 instead gives it exp(-inf) = 0. */
static void tile_softmax(const pass *p, const tile *t, real *max, real *sum) {
    real top[QUERY_TILE], base[QUERY_TILE];
    for (size_t i = 0; i < t->vectors * VLEN; i += VLEN)
        vstore(top + i, vload(max + i));
    for (segment s = {0}; tile_next(t, &s);)
        max_segment(p->scores + s.begin * QUERY_TILE + s.vector * VLEN, s.end - s.begin, s.vectors,
                    top + s.vector * VLEN);
    for (size_t i = 0; i < t->vectors * VLEN; i += VLEN) {
        const vreal m = vload(top + i);
        const vreal less = vselect(vequal(m, vsplat(-(real)INFINITY)), vzero(), m);
        const vreal keep = vexp_weight(vload(max + i) - less);
        vstore(base + i, less);
        vstore(max + i, m);
        vstore(p->keep + i, keep);
        vstore(sum + i, vload(sum + i) * keep);
    }
    for (segment s = {0}; tile_next(t, &s);)
        weigh_segment(p->scores + s.begin * QUERY_TILE + s.vector * VLEN, s.end - s.begin,
                      s.vectors, base + s.vector * VLEN, sum + s.vector * VLEN);
}

static void segment_context(const pass *p, const segment *s, size_t vectors, tile_into into,
                            real *context) {
    const tile_result to = {.c = context + s->vector * VLEN,
                            .c_row = QUERY_TILE,
                            .into = into,
                            .keep = p->keep + s->vector * VLEN};
    const tile_operands from = {.a = p->value + s->begin * p->width,
                                .a_row = 1,
                                .a_step = p->width,
                                .b = p->scores + s->begin * QUERY_TILE + s->vector * VLEN,
                                .b_step = QUERY_TILE,
                                .depth = s->end - s->begin};
    tile_product(&to, p->head->d_head, vectors, &from);
}

/* Oᵀ = Oᵀ · keep + Vᵀ Pᵀ within the limits. A column that no key of this tile reaches is left as it
 * is; its maximum has not changed. */
static void tile_context(const pass *p, const tile *t, real *context) {
    size_t rescaled = 0; /* vectors before this one have met their first key of the tile */
    for (segment s = {0}; tile_next(t, &s);) {
        segment fresh = s;
        if (rescaled > s.vector) {
            segment_context(p, &s, rescaled - s.vector, TILE_ADD, context);
            fresh.vector = rescaled;
        }
        rescaled = s.vector + s.vectors;
        segment_context(p, &fresh, rescaled - fresh.vector, TILE_RESCALE, context);
    }
}

/* Adds p_ij v_j for the rows v_j that were taken out, where they are allowed. */
static void add_bad_values(const pass *p, const tile *t, real *context) {
    for (size_t n = 0; n < p->num_bad_values; n++) {
        const size_t j = p->bad_values[n];
        const real *value = p->head->value.at + (t->key + j) * p->head->value.stride;
        for (size_t i = 0; i < t->num_queries && j < t->num_keys; i++)
            if (pair_allowed(p->head, t->query + i, t->key + j))
                for (size_t c = 0; c < p->head->d_head; c++)
                    context[c * QUERY_TILE + i] += p->scores[j * QUERY_TILE + i] * value[c];
    }
}

static void pass_tile(const pass *p, size_t n, size_t query, size_t num_queries, size_t key,
                      size_t num_keys) {
    tile t;
    if (!tile_cut(&t, p->head, query, num_queries, key, num_keys, 1))
        return;
    const size_t part = n * p->width * QUERY_TILE;
    tile_scores(p->scores, &t, &p->keys, p->query + part, p->head->d_head);
    if (head_has_terms(p->head))
        tile_terms(p->scores, NULL, &t, p->head);
    tile_mask(p->scores, &t, p->head);
    tile_softmax(p, &t, p->max + n * QUERY_TILE, p->sum + n * QUERY_TILE);
    if (p->head->dropout.on)
        tile_drop(&t, &p->head->dropout, p->scores);
    tile_context(p, &t, p->context + part);
    if (p->num_bad_values > 0)
        add_bad_values(p, &t, p->context + part);
}

static void pass_open(const pass *p, size_t n, size_t query, size_t num_queries) {
    const attni_fused_head *head = p->head;
    const attni_rows rows = {head->query.at + query * head->query.stride, head->query.stride};
    const size_t part = n * p->width * QUERY_TILE;
    pack_columns(p->query + part, &rows, num_queries, head->d_head, head->scale, NULL);
    memset(p->context + part, 0, p->width * QUERY_TILE * sizeof(real));
    for (size_t i = 0; i < QUERY_TILE; i++) { /* a sink is the first logit that a row meets */
        p->max[n * QUERY_TILE + i] = head->has_sink ? head->sink : -(real)INFINITY;
        p->sum[n * QUERY_TILE + i] = head->has_sink ? 1 : 0;
    }
}

/* O = Oᵀ / l, turned back into rows; 0 where no key was visible. */
static void pass_close(const pass *p, size_t n, size_t query, size_t num_queries) {
    const attni_fused_head *head = p->head;
    const size_t d = head->d_head;
    const real *context = p->context + n * p->width * QUERY_TILE;
    const real *max = p->max + n * QUERY_TILE, *sum = p->sum + n * QUERY_TILE;
    for (size_t i = 0; i < num_queries; i += VLEN) {
        const vreal l = vload(sum + i);
        const vreal inverse =
            vselect(vequal(l, vzero()), vzero(), vsplat(dropout_factor(head)) / l);
        for (size_t c = 0; c < d; c += VLEN) {
            vreal block[VLEN];
            for (size_t k = 0; k < VLEN; k++)
                block[k] = vload(context + (c + k) * QUERY_TILE + i) * inverse;
            vtranspose(block);
            for (size_t k = 0; k < VLEN && i + k < num_queries; k++) {
                real *row = head->context.at + (query + i + k) * head->context.stride + c;
                if (c + VLEN <= d)
                    vstore(row, block[k]);
                else
                    vstore_part(row, block[k], d - c);
            }
        }
    }
    if (head->row_max) {
        memcpy(head->row_max + query, max, num_queries * sizeof *max);
        memcpy(head->row_sum + query, sum, num_queries * sizeof *sum);
    }
}

/* One pass over the keys for at most `subtiles` query tiles. */
static void pass_run(pass *p, attni_range queries) {
    const attni_fused_head *head = p->head;
    const size_t d = head->d_head;
    const attni_range keys =
        range_cut((attni_range){0, head->len_k}, (int64_t)queries.begin + head->low,
                  (int64_t)queries.end + head->high, KEY_TILE);
    const size_t end = keys.end;
    const size_t tiles = (queries.end - queries.begin + QUERY_TILE - 1) / QUERY_TILE;
    const attni_rows contexts = {head->context.at, head->context.stride};
    prefetch_rows(&head->key, range_from(keys.begin, KEY_TILE, end), d, 0, 1);
    prefetch_rows(&head->value, range_from(keys.begin, KEY_TILE, end), d, 0, 1);
    for (size_t q = queries.begin, n = 0; q < queries.end; q += QUERY_TILE, n++) {
        prefetch_rows(&head->query, range_from(q + QUERY_TILE, QUERY_TILE, queries.end), d, 0, 1);
        pass_open(p, n, q, queries.end - q < QUERY_TILE ? queries.end - q : QUERY_TILE);
    }
    for (size_t key = keys.begin; key < end; key += KEY_TILE) {
        const size_t num_keys = end - key < KEY_TILE ? end - key : KEY_TILE;
        if (all_padded(head, key, num_keys))
            continue;
        p->keys = (attni_rows){head->key.at + key * head->key.stride, head->key.stride};
        const attni_rows values = {head->value.at + key * head->value.stride, head->value.stride};
        if (tiles > 1) {
            pack_rows(p->key, &p->keys, num_keys, d, 1, NULL);
            p->keys = (attni_rows){p->key, p->width};
        }
        const bool finite = pack_rows(p->value, &values, num_keys, d, 1, NULL);
        p->num_bad_values = 0;
        if (!finite && head_is_masked(head))
            p->num_bad_values = take_out_nonfinite(p->value, num_keys, p->width, p->bad_values);
        const attni_range next = range_from(key + KEY_TILE, KEY_TILE, end);
        for (size_t q = queries.begin, n = 0; q < queries.end; q += QUERY_TILE, n++) {
            prefetch_rows(&head->key, next, d, n, tiles);
            prefetch_rows(&head->value, next, d, n, tiles);
            if (next.begin == end)
                prefetch_rows(&contexts, queries, d, n, tiles);
            pass_tile(p, n, q, queries.end - q < QUERY_TILE ? queries.end - q : QUERY_TILE, key,
                      num_keys);
        }
    }
    for (size_t q = queries.begin, n = 0; q < queries.end; q += QUERY_TILE, n++)
        pass_close(p, n, q, queries.end - q < QUERY_TILE ? queries.end - q : QUERY_TILE);
}

void KERNEL(fused_forward)(const attni_fused_head *head, attni_range queries, real *scratch) {
    pass p;
    pass_carve(&p, head, scratch);
    const size_t most = KERNEL(fused_queries_per_pass)(head->d_head);
    for (size_t q = queries.begin; q < queries.end; q += most)
        pass_run(&p, (attni_range){q, queries.end - q < most ? queries.end : q + most});
}
