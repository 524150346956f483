/*
 * fused_tile.h (internal) - what forward and backward of the fused attention share: the tile, its
 * masks, and packing.
 *
 * A tile is KEY_TILE keys by QUERY_TILE queries, stored key by key: queries lie in the lanes, so
 * maximum, exponential and sum over the keys run down the vectors with nothing to add across lanes.
 *
 *     first[v] .. limit[v] = rows of the tile that some query of vector v may see by position
 *
 *          queries  v=0   v=1   v=2   v=3           v=0   v=1   v=2   v=3
 *     key 0         seen  seen  seen  seen          ////
 *         16        \\\\  seen  seen  seen          seen  ////
 *         32              \\\\  seen  seen          seen  seen  ////
 *         48                    \\\\  seen          seen  seen  seen  ////
 *
 *                the upper bound: causality         the lower bound: a window
 *
 *     \\\\ and //// are masked element by element; what is blank is never computed.
 *
 * A blocked pair has the score -inf, and whatever has the score -inf gets the weight 0 by
 * selection, not by arithmetic.
 */
#ifndef ATTNI_KERNELS_FUSED_TILE_H
#define ATTNI_KERNELS_FUSED_TILE_H

#include "kernels/fused.h"
#include "kernels/tile_product.h"
#include "kernels/vexp.h"

#include <math.h>

#ifdef ATTN_DOUBLE
enum { QUERY_VECTORS = VBYTES == 64 ? 4 : 8, KEY_TILE = 48 };
#else
enum { QUERY_VECTORS = VBYTES == 64 ? 4 : 8, KEY_TILE = 64 };
#endif
enum { QUERY_TILE = QUERY_VECTORS * VLEN };
enum { MOST_SUBTILES = 8 }; /* query tiles that share one pass over the keys */

/* d rounded up to whole vectors: the row length of every packed copy. */
static inline size_t padded_width(size_t d) {
    return (d + VLEN - 1) / VLEN * VLEN;
}

/* The tokens from `begin` on, at most `size` and none past `end`. */
static inline attni_range range_from(size_t begin, size_t size, size_t end) {
    const size_t first = begin < end ? begin : end;
    return (attni_range){first, end - first < size ? end : first + size};
}

/* How many query tiles share a pass: as many as keep their packed copies in the second cache. */
static inline size_t subtiles(size_t d) {
    const size_t fit = 512 / padded_width(d);
    return fit < 1 ? 1 : fit > MOST_SUBTILES ? MOST_SUBTILES : fit;
}

/* The pairs of one tile. */
typedef struct tile {
    size_t query, key; /* first of each, in the head */
    size_t num_queries, num_keys;
    size_t vectors;                                    /* that hold queries */
    size_t first[QUERY_VECTORS], limit[QUERY_VECTORS]; /* neither decreases from v to v + 1 */
    int64_t low, high; /* lane i and row j see each other iff i + low <= j <= i + high */
    bool edge;         /* one of these bounds crosses this tile */
    bool masked;       /* some pair within the limits is blocked */
} tile;

static inline size_t clamp_to(int64_t x, size_t most) {
    return x <= 0 ? 0 : (uint64_t)x > most ? most : (size_t)x;
}

/* Cuts the tile at the bounds. The limits are rounded outwards to multiples of `group` rows. False
 * if no pair is left. */
static inline bool tile_cut(tile *t, const attni_fused_head *head, size_t query, size_t num_queries,
                            size_t key, size_t num_keys, size_t group) {
    const int64_t apart = (int64_t)query - (int64_t)key;
    t->query = query;
    t->key = key;
    t->low = head->low + apart;
    t->high = head->high + apart;
    t->num_queries = num_queries;
    t->num_keys = clamp_to((int64_t)num_queries + t->high, num_keys);
    t->vectors = (num_queries + VLEN - 1) / VLEN;
    t->edge = t->high + 1 < (int64_t)t->num_keys || t->low + (int64_t)num_queries > 1;
    t->masked = false;
    for (size_t v = 0; v < t->vectors; v++) {
        t->first[v] = 0;
        t->limit[v] = t->num_keys;
        if (t->edge) {
            const int64_t lane = (int64_t)(v * VLEN);
            const size_t end = clamp_to(lane + VLEN + t->high, t->num_keys);
            t->limit[v] = clamp_to((int64_t)((end + group - 1) / group * group), t->num_keys);
            t->first[v] = clamp_to(lane + t->low, t->limit[v]) / group * group;
        }
    }
    return t->low < (int64_t)t->num_keys && t->num_keys > 0;
}

/* The keys of a range that some of the queries see by position, or the other way round; from a
 * multiple of `step` within the range on. */
static inline attni_range range_cut(attni_range range, int64_t begin, int64_t end, size_t step) {
    const size_t first = clamp_to(begin - (int64_t)range.begin, range.end - range.begin);
    const size_t last = clamp_to(end - (int64_t)range.begin, range.end - range.begin);
    return (attni_range){range.begin + first / step * step, range.begin + last};
}

/* Whether query i may see key j. */
static inline bool pair_allowed(const attni_fused_head *head, size_t i, size_t j) {
    const int64_t apart = (int64_t)j - (int64_t)i;
    if (apart < head->low || apart > head->high)
        return false;
    if (head->padding && head->padding[j])
        return false;
    if (head->attend && !head->attend[i * head->attend_query + j * head->attend_key])
        return false;
    return !head->bias || head->bias[i * head->bias_query + j * head->bias_key] != -(real)INFINITY;
}

static inline bool head_is_masked(const attni_fused_head *head) {
    return head->high < (int64_t)head->len_k || head->low > -(int64_t)head->len_q ||
           head->padding || head->attend || head->bias;
}

/* Whether padding hides all keys of a tile. */
static inline bool all_padded(const attni_fused_head *head, size_t key, size_t num_keys) {
    if (!head->padding)
        return false;
    for (size_t j = 0; j < num_keys; j++)
        if (!head->padding[key + j])
            return false;
    return true;
}

/* A rectangle of a tile: rows [begin, end) of `vectors` vectors from `vector` on. */
typedef struct segment {
    size_t begin, end, vector, vectors;
} segment;

/* Steps through the rectangles that make up what lies within the limits, from the top:
 *
 *     for (segment s = {0}; tile_next(t, &s);)
 */
static inline bool tile_next(const tile *t, segment *s) {
    size_t stop = s->vector + s->vectors;
    while (s->vector < t->vectors && t->limit[s->vector] <= s->end)
        s->vector++;
    if (s->vector == t->vectors)
        return false;
    s->begin = s->end > t->first[s->vector] ? s->end : t->first[s->vector];
    s->end = t->limit[s->vector];
    for (stop = stop > s->vector ? stop : s->vector; stop < t->vectors; stop++)
        if (t->first[stop] > s->begin) {
            s->end = t->first[stop] < s->end ? t->first[stop] : s->end;
            break;
        }
    s->vectors = stop - s->vector;
    return true;
}

/* S = K Qᵀ within the limits, or dP = V dOᵀ: `rows` are the keys' rows, `columns` is d x queries.
 */
static inline void tile_scores(real *scores, const tile *t, const attni_rows *rows,
                               const real *columns, size_t d) {
    for (segment s = {0}; tile_next(t, &s);) {
        const tile_result to = {.c = scores + s.begin * QUERY_TILE + s.vector * VLEN,
                                .c_row = QUERY_TILE};
        const tile_operands from = {.a = rows->at + s.begin * rows->stride,
                                    .a_row = rows->stride,
                                    .a_step = 1,
                                    .b = columns + s.vector * VLEN,
                                    .b_step = QUERY_TILE,
                                    .depth = d};
        tile_product(&to, s.end - s.begin, s.vectors, &from);
    }
}

/* The bounds: lane i of vector v is blocked in row j where j < i + low or j > i + high. */
static inline void mask_edges(real *scores, const tile *t) {
    const vreal blocked = vsplat(-(real)INFINITY);
    for (size_t v = 0; v < t->vectors; v++) {
        const int64_t low = (int64_t)(v * VLEN) + t->low, high = (int64_t)(v * VLEN) + t->high;
        const size_t all_from = clamp_to(low + VLEN - 1, t->limit[v]); /* seen by all lanes */
        for (size_t j = t->first[v]; j < all_from; j++) {
            const real lane = (real)((int64_t)j - low); /* the last that sees row j */
            real *s = scores + j * QUERY_TILE + v * VLEN;
            vstore(s, vselect(vless(vsplat(lane), vlane()), blocked, vload(s)));
        }
        size_t j = clamp_to(high + 1, t->limit[v]);
        for (j = j < t->first[v] ? t->first[v] : j; j < t->limit[v]; j++) {
            const real lane = (real)((int64_t)j - high); /* the first that sees row j */
            real *s = scores + j * QUERY_TILE + v * VLEN;
            vstore(s, vselect(vless(vlane(), vsplat(lane)), blocked, vload(s)));
        }
    }
}

static inline bool mask_padding(real *scores, const tile *t, const uint8_t *padding) {
    bool blocked = false;
    for (size_t j = 0; j < t->num_keys; j++) {
        if (!padding[t->key + j])
            continue;
        blocked = true;
        for (size_t v = 0; v < t->vectors; v++)
            vstore(scores + j * QUERY_TILE + v * VLEN, vsplat(-(real)INFINITY));
    }
    return blocked;
}

static inline bool mask_attend(real *scores, const tile *t, const attni_fused_head *head) {
    const uint8_t *attend =
        head->attend + t->query * head->attend_query + t->key * head->attend_key;
    bool blocked = false;
    for (size_t j = 0; j < t->num_keys; j++) {
        uint8_t blocks[QUERY_TILE] = {0};
        bool any = false;
        for (size_t i = 0; i < t->num_queries; i++) {
            blocks[i] = !attend[i * head->attend_query + j * head->attend_key];
            any |= blocks[i];
        }
        blocked |= any;
        for (size_t v = 0; any && v < t->vectors; v++) {
            real *s = scores + j * QUERY_TILE + v * VLEN;
            vstore(s,
                   vselect(vmask_from_bytes(blocks + v * VLEN), vsplat(-(real)INFINITY), vload(s)));
        }
    }
    return blocked;
}

/* The masks of a tile. What lies beyond the limits may be written, and is not read. */
static inline void tile_mask(real *scores, tile *t, const attni_fused_head *head) {
    t->masked = t->edge || head->bias;
    if (t->edge)
        mask_edges(scores, t);
    if (head->padding && mask_padding(scores, t, head->padding))
        t->masked = true;
    if (head->attend && mask_attend(scores, t, head))
        t->masked = true;
}

/* to (n, padded d) = scale · from (n, d), with zeros in the padding; row t times factors[t] as
 * well, unless that is NULL. Returns whether all of it is finite. */
static inline bool pack_rows(real *to, const attni_rows *from, size_t n, size_t d, real scale,
                             const real *factors) {
    const size_t width = padded_width(d), whole = d - d % VLEN;
    vreal zeros = vzero(); /* stays so unless there are NaN or infinities */
    for (size_t t = 0; t < n; t++, to += width) {
        const real *row = from->at + t * from->stride;
        const vreal factor = factors ? vsplat(scale) * vbroadcast(factors + t) : vsplat(scale);
        vreal zero = vzero();
        for (size_t c = 0; c < whole; c += VLEN) {
            const vreal x = vload(row + c) * factor;
            zero += x * vzero();
            vstore(to + c, x);
        }
        if (whole < d) {
            const vreal x = vload_part(row + whole, d - whole) * factor;
            zero += x * vzero();
            vstore(to + whole, x);
        }
        zeros += zero;
    }
    return vsum(zeros) == 0;
}

/* Rows of a tensor lie far apart, often each on a page of its own, where no hardware looks ahead:
 * part `part` of `parts` of `range` is asked for while there is other work to do. */
static inline void prefetch_rows(const attni_rows *rows, attni_range range, size_t d, size_t part,
                                 size_t parts) {
    const size_t n = range.begin < range.end && rows->at ? range.end - range.begin : 0;
    for (size_t t = n * part / parts; t < n * (part + 1) / parts; t++) {
        const char *row = (const char *)(rows->at + (range.begin + t) * rows->stride);
        for (size_t byte = 0; byte < d * sizeof(real); byte += 64)
            __builtin_prefetch(row + byte, 0, 2);
    }
}

/* to (padded d, QUERY_TILE) = scale · fromᵀ, from (n, d) with n <= QUERY_TILE; zeros behind. Column
 * t times factors[t] as well, unless that is NULL. */
static inline void pack_columns(real *to, const attni_rows *from, size_t n, size_t d, real scale,
                                const real *factors) {
    for (size_t t = 0; t < n; t += VLEN) {
        const vreal factor = factors ? vsplat(scale) * vload(factors + t) : vsplat(scale);
        for (size_t c = 0; c < d; c += VLEN) {
            vreal block[VLEN];
            for (size_t i = 0; i < VLEN; i++) {
                const real *row = from->at + (t + i) * from->stride + c;
                block[i] = t + i >= n      ? vzero()
                           : c + VLEN <= d ? vload(row)
                                           : vload_part(row, d - c);
            }
            vtranspose(block);
            for (size_t i = 0; i < VLEN; i++)
                vstore(to + (c + i) * QUERY_TILE + t, block[i] * factor);
        }
    }
}

/* A row that holds NaN or infinities must not be multiplied by the weight 0 of a blocked pair. Such
 * rows are replaced by zeros in the packed copy, and listed; what they contribute to the pairs that
 * are allowed is added on its own, slowly. Returns how many there are. */
static inline size_t take_out_nonfinite(real *rows, size_t n, size_t width, uint16_t *list) {
    size_t count = 0;
    for (size_t t = 0; t < n; t++) {
        vreal zero = vzero();
        for (size_t c = 0; c < width; c += VLEN)
            zero += vload(rows + t * width + c) * vzero();
        if (vsum(zero) == 0)
            continue;
        memset(rows + t * width, 0, width * sizeof *rows);
        list[count++] = (uint16_t)t;
    }
    return count;
}

#endif
