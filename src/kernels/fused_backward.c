#include "kernels/bodies.h"
#include "kernels/fused_dropout.h"
#include "kernels/fused_terms.h"
#include "kernels/fused_tile.h"

/* A pass over the keys on behalf of a few query tiles. Everything lies in the caller's scratch. */
typedef struct pass {
    const attni_fused_head *head;
    const attni_fused_grads *grads;
    size_t width; /* padded d */
    size_t group; /* rows that share their limits where a bound crosses the tile */

    /* per query tile */
    real *query_columns, *dcontext_columns; /* scale · Qᵀ and (dO / l)ᵀ, (width, QUERY_TILE) */
    real *query_rows, *dcontext_rows;       /* scale · Q and dO / l, (QUERY_TILE, width) */
    real *dquery;                           /* sum of dS K so far, (QUERY_TILE, width) */
    real *base, *inverse, *delta;           /* per query: m, 1/l, D/l */

    /* per key tile */
    real *key, *value, *dkey, *dvalue;
    attni_rows values;       /* rows of V: packed, or where they lie if that is not worth it */
    real *key_rows;          /* the keys, those with NaN or infinities taken out */
    real *weights, *dscores; /* S then E, dP / l then dS, of one tile */
    real *factors;           /* what the backward of its softcap needs */

    /* rows with NaN or infinities, taken out of query_rows, dcontext_rows and key_rows */
    uint16_t bad_queries[MOST_SUBTILES][QUERY_TILE], bad_dcontexts[MOST_SUBTILES][QUERY_TILE];
    uint16_t bad_keys[KEY_TILE];
    size_t num_bad_queries[MOST_SUBTILES], num_bad_dcontexts[MOST_SUBTILES], num_bad_keys;
} pass;

size_t KERNEL(fused_backward_scratch)(size_t d_head) {
    const size_t width = padded_width(d_head), tiles = subtiles(d_head);
    return tiles * QUERY_TILE * (5 * width + 3) + KEY_TILE * (5 * width + 3 * QUERY_TILE);
}

static void pass_carve(pass *p, real *scratch) {
    const size_t width = p->width, tiles = subtiles(p->head->d_head);
    real **const queries[] = {&p->query_columns, &p->dcontext_columns, &p->query_rows,
                              &p->dcontext_rows, &p->dquery};
    real **const keys[] = {&p->key, &p->value, &p->dkey, &p->dvalue, &p->key_rows};
    for (size_t i = 0; i < 5; i++, scratch += tiles * QUERY_TILE * width)
        *queries[i] = scratch;
    for (size_t i = 0; i < 5; i++, scratch += KEY_TILE * width)
        *keys[i] = scratch;
    p->weights = scratch;
    p->dscores = p->weights + KEY_TILE * QUERY_TILE;
    p->base = p->dscores + KEY_TILE * QUERY_TILE;
    p->inverse = p->base + tiles * QUERY_TILE;
    p->delta = p->inverse + tiles * QUERY_TILE;
    p->factors = p->delta + tiles * QUERY_TILE;
}

/* D / l = rowsum(dO / l ∘ O) of one query tile. The sum runs over d in the order of dPᵀ = V dOᵀ:
 * where a query sees one key only, O is that key's row of V, and dP - D is exactly 0. */
static void pass_delta(const pass *p, real *delta, size_t vectors, const real *dcontext,
                       const real *context) {
    for (size_t v = 0; v < vectors; v++) {
        vreal sum = vzero();
        for (size_t c = 0; c < p->head->d_head; c++) {
            const size_t at = c * QUERY_TILE + v * VLEN;
            sum += vload(context + at) * vload(dcontext + at);
        }
        vstore(delta + v * VLEN, sum);
    }
}

/* m, with 0 for the -inf of a row that sees no key, and 1/l, with 0 for it; with dropout
 * 1/(l·(1-p)). */
static void pass_statistics(const pass *p, size_t n, size_t query, size_t num_queries) {
    const attni_fused_head *head = p->head;
    for (size_t i = 0; i < QUERY_TILE; i++) {
        const size_t at = n * QUERY_TILE + i;
        const real max = i < num_queries ? head->row_max[query + i] : 0;
        const real sum = i < num_queries ? head->row_sum[query + i] : 0;
        p->base[at] = max == -(real)INFINITY ? 0 : max;
        p->inverse[at] = sum == 0 ? 0 : dropout_factor(head) / sum;
    }
}

/* Packs one query tile. dO is divided by l here, once, instead of E by l at every pair: P = E / l
 * enters dV and dS only through products with dO, dP and D. */
static void pass_open(pass *p, size_t n, size_t query, size_t num_queries) {
    const attni_fused_head *head = p->head;
    const attni_rows *dcontext = &p->grads->dcontext;
    const size_t d = head->d_head, part = n * QUERY_TILE * p->width;
    const attni_rows rows = {head->query.at + query * head->query.stride, head->query.stride};
    const attni_rows drows = {dcontext->at + query * dcontext->stride, dcontext->stride};
    const attni_rows context = {head->context.at + query * head->context.stride,
                                head->context.stride};
    const real *inverse = p->inverse + n * QUERY_TILE;
    pass_statistics(p, n, query, num_queries);
    pack_columns(p->query_columns + part, &rows, num_queries, d, head->scale, NULL);
    pack_columns(p->dcontext_columns + part, &drows, num_queries, d, 1, inverse);
    const bool finite = pack_rows(p->query_rows + part, &rows, num_queries, d, head->scale, NULL);
    const bool dfinite = pack_rows(p->dcontext_rows + part, &drows, num_queries, d, 1, inverse);

    real *context_columns = p->dquery + part; /* free until the first tile */
    pack_columns(context_columns, &context, num_queries, d, 1 / dropout_factor(head), NULL);
    pass_delta(p, p->delta + n * QUERY_TILE, (num_queries + VLEN - 1) / VLEN,
               p->dcontext_columns + part, context_columns);
    memset(p->dquery + part, 0, num_queries * p->width * sizeof(real));

    p->num_bad_queries[n] = p->num_bad_dcontexts[n] = 0;
    if (!finite && head_is_masked(head))
        p->num_bad_queries[n] =
            take_out_nonfinite(p->query_rows + part, num_queries, p->width, p->bad_queries[n]);
    if (!dfinite && head_is_masked(head))
        p->num_bad_dcontexts[n] =
            take_out_nonfinite(p->dcontext_rows + part, num_queries, p->width, p->bad_dcontexts[n]);
}

/* Rows [0, rows) of `vectors` columns: S becomes E = exp(S - m) = l P, dP / l becomes
 * dS = E∘(dP / l - D / l). Where pairs may be blocked, those with the score -inf are set to 0 in
 * both. */
VINLINE void gradient_columns(int vectors, bool masked, real *score, real *dscore, size_t rows,
                              const real *base, const real *delta) {
    vreal less[BLOCK_VECTORS], dless[BLOCK_VECTORS];
    VEACH (v, vectors) {
        less[v] = vload(base + v * VLEN);
        dless[v] = vload(delta + v * VLEN);
    }
    for (size_t j = 0; j < rows; j++, score += QUERY_TILE, dscore += QUERY_TILE) {
        vreal weight[BLOCK_VECTORS];
        VEACH (v, vectors)
            weight[v] = vload(score + v * VLEN) - less[v];
        vexp_weights(vectors, weight);
        VEACH (v, vectors) {
            vreal gradient = weight[v] * (vload(dscore + v * VLEN) - dless[v]);
            if (masked) {
                const vmask blocked = vequal(vload(score + v * VLEN), vsplat(-(real)INFINITY));
                weight[v] = vselect(blocked, vzero(), weight[v]);
                gradient = vselect(blocked, vzero(), gradient);
            }
            vstore(score + v * VLEN, weight[v]);
            vstore(dscore + v * VLEN, gradient);
        }
    }
}

static void tile_gradient(const pass *p, const tile *t, size_t n) {
    for (segment s = {0}; tile_next(t, &s);) {
        const size_t rows = s.end - s.begin;
        const size_t stop = s.vector + s.vectors;
        size_t v = s.vector;
        real *score = p->weights + s.begin * QUERY_TILE;
        real *dscore = p->dscores + s.begin * QUERY_TILE;
        const real *base = p->base + n * QUERY_TILE, *delta = p->delta + n * QUERY_TILE;
        for (; v + BLOCK_VECTORS <= stop; v += BLOCK_VECTORS)
            if (t->masked)
                gradient_columns(BLOCK_VECTORS, true, score + v * VLEN, dscore + v * VLEN, rows,
                                 base + v * VLEN, delta + v * VLEN);
            else
                gradient_columns(BLOCK_VECTORS, false, score + v * VLEN, dscore + v * VLEN, rows,
                                 base + v * VLEN, delta + v * VLEN);
        for (; v + 2 <= stop; v += 2)
            gradient_columns(2, true, score + v * VLEN, dscore + v * VLEN, rows, base + v * VLEN,
                             delta + v * VLEN);
        if (v < stop)
            gradient_columns(1, true, score + v * VLEN, dscore + v * VLEN, rows, base + v * VLEN,
                             delta + v * VLEN);
    }
    for (size_t v = 0; v < t->vectors && t->edge; v++) { /* dQ reads a little beyond the limits */
        const size_t before = t->first[v] < p->group ? 0 : t->first[v] - p->group;
        const size_t beyond =
            t->num_keys - t->limit[v] < p->group ? t->num_keys : t->limit[v] + p->group;
        real *dscore = p->dscores + v * VLEN;
        for (size_t j = before; j < t->first[v]; j++)
            vstore(dscore + j * QUERY_TILE, vzero());
        for (size_t j = t->limit[v]; j < beyond; j++)
            vstore(dscore + j * QUERY_TILE, vzero());
    }
}

/* C += Wᵀ X: dV from E and dO / l, dK from dS and Q. At an edge each group of keys takes the
 * queries from the first to the last that sees one of them. */
static void tile_into_keys(const pass *p, const tile *t, real *into, const real *weights,
                           const real *rows) {
    const size_t step = t->edge ? p->group : t->num_keys;
    const size_t begin = clamp_to(t->low, t->num_keys) / step * step;
    for (size_t j = begin; j < t->num_keys; j += step) {
        const size_t count = t->num_keys - j < step ? t->num_keys - j : step;
        const size_t first = clamp_to((int64_t)j - t->high, t->num_queries);
        const size_t last = clamp_to((int64_t)(j + count) - t->low, t->num_queries);
        const tile_result to = {.c = into + j * p->width, .c_row = p->width, .into = TILE_ADD};
        const tile_operands from = {.a = weights + j * QUERY_TILE + first,
                                    .a_row = QUERY_TILE,
                                    .a_step = 1,
                                    .b = rows + first * p->width,
                                    .b_step = p->width,
                                    .depth = last - first};
        tile_product(&to, count, p->width / VLEN, &from);
    }
}

/* dQ += dS K. At an edge each group of queries takes the keys from the first to the last that one
 * of them sees. */
static void tile_into_queries(const pass *p, const tile *t, real *into, const real *rows) {
    const size_t step = t->edge ? p->group : t->num_queries;
    for (size_t i = 0; i < t->num_queries; i += step) {
        const size_t count = t->num_queries - i < step ? t->num_queries - i : step;
        const size_t first = clamp_to((int64_t)i + t->low, t->num_keys);
        const size_t last = clamp_to((int64_t)(i + count) + t->high, t->num_keys);
        const tile_result to = {.c = into + i * p->width, .c_row = p->width, .into = TILE_ADD};
        const tile_operands from = {.a = p->dscores + first * QUERY_TILE + i,
                                    .a_row = 1,
                                    .a_step = QUERY_TILE,
                                    .b = rows + first * p->width,
                                    .b_step = p->width,
                                    .depth = last - first};
        tile_product(&to, count, p->width / VLEN, &from);
    }
}

/* The rows that were taken out, where they are allowed: into row `to[x]` goes weight · from[y]. */
static void add_scaled_row(real *to, const real *from, real weight, size_t d) {
    for (size_t c = 0; c < d; c++)
        to[c] += weight * from[c];
}

static void add_bad_rows(const pass *p, const tile *t, size_t n) {
    const attni_fused_head *head = p->head;
    const size_t d = head->d_head;
    for (size_t j = 0; j < t->num_keys; j++)
        for (size_t b = 0; b < p->num_bad_dcontexts[n]; b++) {
            const size_t i = p->bad_dcontexts[n][b];
            if (p->grads->dvalue.at && pair_allowed(head, t->query + i, t->key + j))
                add_scaled_row(p->dvalue + j * p->width,
                               p->grads->dcontext.at + (t->query + i) * p->grads->dcontext.stride,
                               p->weights[j * QUERY_TILE + i] * p->inverse[n * QUERY_TILE + i], d);
        }
    for (size_t j = 0; j < t->num_keys; j++)
        for (size_t b = 0; b < p->num_bad_queries[n]; b++) {
            const size_t i = p->bad_queries[n][b];
            if (p->grads->dkey.at && pair_allowed(head, t->query + i, t->key + j))
                add_scaled_row(p->dkey + j * p->width,
                               head->query.at + (t->query + i) * head->query.stride,
                               p->dscores[j * QUERY_TILE + i] * head->scale, d);
        }
    for (size_t b = 0; b < p->num_bad_keys && p->bad_keys[b] < t->num_keys; b++)
        for (size_t i = 0; i < t->num_queries; i++)
            if (p->grads->dquery.at && pair_allowed(head, t->query + i, t->key + p->bad_keys[b]))
                add_scaled_row(p->dquery + (n * QUERY_TILE + i) * p->width,
                               p->key + p->bad_keys[b] * p->width,
                               p->dscores[p->bad_keys[b] * QUERY_TILE + i], d);
}

static bool has_terms_backward(const pass *p) {
    return p->head->softcap > 0 || p->grads->dbias || p->grads->dslope;
}

static void pass_tile(const pass *p, size_t n, size_t query, size_t num_queries, size_t key,
                      size_t num_keys) {
    tile t;
    if (!tile_cut(&t, p->head, query, num_queries, key, num_keys, p->group))
        return;
    const size_t part = n * QUERY_TILE * p->width, d = p->head->d_head;
    const attni_rows keys = {p->key, p->width};
    tile_scores(p->weights, &t, &keys, p->query_columns + part, d);
    tile_scores(p->dscores, &t, &p->values, p->dcontext_columns + part, d);
    if (head_has_terms(p->head))
        tile_terms(p->weights, p->factors, &t, p->head);
    tile_mask(p->weights, &t, p->head);
    tile_gradient(p, &t, n);
    if (p->head->dropout.on)
        tile_drop_backward(&t, &p->head->dropout, p->weights, p->dscores,
                           p->delta + n * QUERY_TILE);
    if (has_terms_backward(p))
        tile_terms_backward(p->dscores, p->factors, &t, p->head, p->grads);
    if (p->grads->dvalue.at)
        tile_into_keys(p, &t, p->dvalue, p->weights, p->dcontext_rows + part);
    if (p->grads->dkey.at)
        tile_into_keys(p, &t, p->dkey, p->dscores, p->query_rows + part);
    if (p->grads->dquery.at)
        tile_into_queries(p, &t, p->dquery + part, p->num_bad_keys > 0 ? p->key_rows : p->key);
    if (p->num_bad_keys > 0 || p->num_bad_queries[n] > 0 || p->num_bad_dcontexts[n] > 0)
        add_bad_rows(p, &t, n);
}

/* to = factor · from, or to += factor · from; from is packed, NULL for zeros. */
static void write_rows(const attni_rows_out *to, size_t first, const real *from, size_t n, size_t d,
                       real factor, bool add) {
    if (!to->at || (!from && add))
        return;
    const size_t width = padded_width(d);
    for (size_t t = 0; t < n; t++) {
        real *row = to->at + (first + t) * to->stride;
        if (!from) {
            memset(row, 0, d * sizeof *row);
            continue;
        }
        for (size_t c = 0; c < d; c += VLEN) {
            const bool whole = c + VLEN <= d;
            vreal sum = vload(from + t * width + c) * vsplat(factor);
            if (add)
                sum += whole ? vload(row + c) : vload_part(row + c, d - c);
            if (whole)
                vstore(row + c, sum);
            else
                vstore_part(row + c, sum, d - c);
        }
    }
}

/* While a query tile is at work: the next keys, and the rows that are written after this tile. */
static void prefetch_keys(const pass *p, attni_range keys, attni_range next, size_t part,
                          size_t parts) {
    const attni_fused_head *head = p->head;
    const attni_rows dkeys = {p->grads->dkey.at, p->grads->dkey.stride};
    const attni_rows dvalues = {p->grads->dvalue.at, p->grads->dvalue.stride};
    prefetch_rows(&head->key, next, head->d_head, part, parts);
    prefetch_rows(&head->value, next, head->d_head, part, parts);
    prefetch_rows(&dkeys, keys, head->d_head, part, parts);
    prefetch_rows(&dvalues, keys, head->d_head, part, parts);
}

static void prefetch_queries(const pass *p, attni_range next) {
    const attni_rows contexts = {p->head->context.at, p->head->context.stride};
    prefetch_rows(&p->head->query, next, p->head->d_head, 0, 1);
    prefetch_rows(&p->grads->dcontext, next, p->head->d_head, 0, 1);
    prefetch_rows(&contexts, next, p->head->d_head, 0, 1);
}

static void open_keys(pass *p, attni_range range, size_t tiles) {
    const attni_fused_head *head = p->head;
    const size_t n = range.end - range.begin, d = head->d_head;
    const attni_rows keys = {head->key.at + range.begin * head->key.stride, head->key.stride};
    p->values = (attni_rows){head->value.at + range.begin * head->value.stride, head->value.stride};
    const bool finite = pack_rows(p->key, &keys, n, d, 1, NULL);
    if (tiles > 1) {
        pack_rows(p->value, &p->values, n, d, 1, NULL);
        p->values = (attni_rows){p->value, p->width};
    }
    memset(p->dkey, 0, n * p->width * sizeof(real));
    memset(p->dvalue, 0, n * p->width * sizeof(real));
    p->num_bad_keys = 0;
    if (!finite && head_is_masked(head)) {
        memcpy(p->key_rows, p->key, n * p->width * sizeof(real));
        p->num_bad_keys = take_out_nonfinite(p->key_rows, n, p->width, p->bad_keys);
    }
}

/* One key tile and its share of the gradients, for every query tile of the pass. */
static void pass_keys(pass *p, attni_range queries, attni_range keys, attni_range next, bool add) {
    const size_t n = keys.end - keys.begin, d = p->head->d_head;
    const size_t tiles = (queries.end - queries.begin + QUERY_TILE - 1) / QUERY_TILE;
    const bool visible = !all_padded(p->head, keys.begin, n);
    if (visible)
        open_keys(p, keys, tiles);
    for (size_t i = 0; i < tiles && visible; i++) {
        const attni_range tile_queries =
            range_from(queries.begin + i * QUERY_TILE, QUERY_TILE, queries.end);
        prefetch_keys(p, keys, next, i, tiles);
        pass_tile(p, i, tile_queries.begin, tile_queries.end - tile_queries.begin, keys.begin, n);
    }
    write_rows(&p->grads->dkey, keys.begin, visible ? p->dkey : NULL, n, d, 1, add);
    write_rows(&p->grads->dvalue, keys.begin, visible ? p->dvalue : NULL, n, d, 1, add);
}

/* The rows of keys that no query of a pass sees, unless they are added to. */
static void pass_zeros(const pass *p, size_t begin, size_t end, bool add) {
    const size_t n = begin < end ? end - begin : 0;
    write_rows(&p->grads->dkey, begin, NULL, n, p->head->d_head, 1, add);
    write_rows(&p->grads->dvalue, begin, NULL, n, p->head->d_head, 1, add);
}

static void pass_run(pass *p, attni_range queries, attni_range keys, bool add_keys) {
    const attni_fused_head *head = p->head;
    const attni_range seen = range_cut(keys, (int64_t)queries.begin + head->low,
                                       (int64_t)queries.end + head->high, KEY_TILE);
    pass_zeros(p, keys.begin, seen.begin, add_keys);
    pass_zeros(p, seen.end, keys.end, add_keys);
    attni_range now = range_from(seen.begin, KEY_TILE, seen.end);
    prefetch_keys(p, (attni_range){0, 0}, now, 0, 1);
    for (size_t q = queries.begin, n = 0; q < queries.end; q += QUERY_TILE, n++) {
        prefetch_queries(p, range_from(q + QUERY_TILE, QUERY_TILE, head->len_q));
        pass_open(p, n, q, queries.end - q < QUERY_TILE ? queries.end - q : QUERY_TILE);
    }
    while (now.begin < now.end) {
        const attni_range next = range_from(now.end, KEY_TILE, seen.end);
        pass_keys(p, queries, now, next, add_keys);
        now = next;
    }
    write_rows(&p->grads->dquery, queries.begin, p->dquery, queries.end - queries.begin,
               head->d_head, head->scale, p->grads->add_queries);
}

void KERNEL(fused_backward)(const attni_fused_head *head, const attni_fused_grads *grads,
                            attni_range queries, attni_range keys, real *scratch) {
    pass p;
    p.head = head;
    p.grads = grads;
    p.width = padded_width(head->d_head);
    p.group = p.width / VLEN <= BLOCK_VECTORS / 2 ? TALL_ROWS : BLOCK_ROWS;
    pass_carve(&p, scratch);
    const size_t most = KERNEL(fused_queries_per_pass)(head->d_head);
    attni_range seeing = {queries.begin, queries.begin}; /* those that see some of the keys */
    if (keys.begin < keys.end)
        seeing = range_cut(queries, (int64_t)keys.begin - head->high, (int64_t)keys.end - head->low,
                           QUERY_TILE);
    write_rows(&grads->dquery, queries.begin, NULL, seeing.begin - queries.begin, head->d_head, 1,
               grads->add_queries);
    write_rows(&grads->dquery, seeing.end, NULL, queries.end - seeing.end, head->d_head, 1,
               grads->add_queries);
    if (seeing.begin >= seeing.end)
        pass_zeros(&p, keys.begin, keys.end, grads->add_keys);
    bool add_keys = grads->add_keys;
    for (size_t q = seeing.begin; q < seeing.end; q += most, add_keys = true)
        pass_run(&p, range_from(q, most, seeing.end), keys, add_keys);
}
