#include "kernels/bodies.h"
#include "kernels/row_dots.h"
#include "kernels/vtanh.h"

#include <math.h>

enum {
    KEYS = 1024,           /* of a block at most, and fewer where they are wide: keys and values */
    BLOCK_BYTES = 1 << 18, /* take so many bytes each, and stay in the second cache */
    BATCH = 4,             /* vectors of scores that are taken at a time */
    LINE = 64,
    FETCHED_LINES = 64,  /* of what is read next */
    FETCHED_AHEAD = 4096 /* bytes, where three rows or more leave the time for it */
};

/* A block of keys for some rows (query heads) of one token. */
typedef struct block {
    const attni_decode_head *head;
    size_t first, count;       /* keys */
    const real *key, *value;   /* of the first of them */
    size_t position;           /* of the token */
    const real *query;         /* (rows, d), scaled */
    const real *slopes;        /* of the rows, or NULL */
    real *scores;              /* (rows, KEYS) */
    real *max, *sum, *context; /* of the rows so far */
} block;

size_t KERNEL(decode_scratch)(size_t d_head, size_t rows) {
    return DOT_MOST_X * KEYS + rows * d_head;
}

static size_t block_keys(size_t d_head) {
    return size_max(size_min(BLOCK_BYTES / (d_head * sizeof(real)), KEYS), BATCH * VLEN);
}

/* s = c·tanh(s/c) - slope·(p - j), -inf past the last key. */
static void finish_scores(const block *b, real *scores, size_t row) {
    const real cap = b->head->softcap;
    const size_t padded = size_div_up(b->count, BATCH * VLEN) * BATCH * VLEN;
    if (cap > 0)
        for (size_t j = 0; j < b->count; j += VLEN)
            vstore(scores + j, vsplat(cap) * vtanh(vload(scores + j) / vsplat(cap)));
    if (b->slopes) {
        const vreal slope = vbroadcast(b->slopes + row);
        vreal distance = vsplat((real)(b->position - b->first)) - vlane();
        for (size_t j = 0; j < b->count; j += VLEN, distance -= vsplat(VLEN))
            vstore(scores + j, vload(scores + j) - slope * distance);
    }
    for (size_t j = b->count; j < padded; j++)
        scores[j] = -(real)INFINITY;
}

static real largest(const real *scores, size_t n, real top) {
    real lane[VLEN];
    vreal tops[BATCH];
    VEACH (i, BATCH)
        tops[i] = vsplat(top);
    for (size_t j = 0; j < n; j += BATCH * VLEN)
        VEACH (i, BATCH)
            tops[i] = vmax(vload(scores + j + (size_t)i * VLEN), tops[i]);
    vstore(lane, vmax(vmax(tops[0], tops[1]), vmax(tops[2], tops[3])));
    for (size_t i = 0; i < VLEN; i++)
        top = lane[i] > top ? lane[i] : top;
    return top;
}

/* scores = exp(scores - base); their sum */
static real weigh(real *scores, size_t n, real base) {
    vreal total[BATCH];
    VEACH (i, BATCH)
        total[i] = vzero();
    for (size_t j = 0; j < n; j += BATCH * VLEN) {
        vreal weight[BATCH];
        VEACH (i, BATCH)
            weight[i] = vload(scores + j + (size_t)i * VLEN) - vsplat(base);
        vexp_weights(BATCH, weight);
        VEACH (i, BATCH) {
            total[i] += weight[i];
            vstore(scores + j + (size_t)i * VLEN, weight[i]);
        }
    }
    return vsum((total[0] + total[1]) + (total[2] + total[3]));
}

/* Brings m and l of a row up to date and turns its scores into weights; what is left of the sums so
 * far, exp(old m - m). A row that has seen no key yet has m = -inf, from which 0 is subtracted. */
static real row_softmax(const block *b, size_t row) {
    real *scores = b->scores + row * KEYS;
    const real old = b->max[row], top = largest(scores, b->count, old);
    const real base = top == -(real)INFINITY ? 0 : top;
    const vreal keep = vexp_weight(vsplat(old - base));
    const real kept = keep[0];
    b->sum[row] = b->sum[row] * kept + weigh(scores, b->count, base);
    b->max[row] = top;
    return kept;
}

/* O = O · keep + P V in `vectors` vectors of columns from c on, or in the last part < VLEN columns.
 * `sets` keys at a time have sums of their own, so that no addition waits for the one before. */
VINLINE void values_columns(int rows, int vectors, int sets, const block *b, const real *keep,
                            size_t c, size_t part) {
    const size_t d = b->head->d_head;
    vreal sum[2][DOT_MOST_X][4];
    VEACH (z, sets)
        VEACH (r, rows)
            VEACH (v, vectors)
                sum[z][r][v] = vzero();
    const real *value = b->value + c, *weight = b->scores;
    size_t j = 0;
    for (; j + (size_t)sets <= b->count; j += (size_t)sets)
        VEACH (z, sets) {
            const real *row = value + (j + (size_t)z) * d;
            vreal y[4];
            fetch_ahead(row, vectors, rows >= 3 ? FETCHED_AHEAD : 0);
            VEACH (v, vectors)
                y[v] = part > 0 ? vload_part(row, part) : vload(row + (size_t)v * VLEN);
            VEACH (r, rows) {
                const vreal w = vbroadcast(weight + (size_t)r * KEYS + j + (size_t)z);
                VEACH (v, vectors)
                    sum[z][r][v] += w * y[v];
            }
        }
    for (; j < b->count; j++)
        VEACH (r, rows) {
            const vreal w = vbroadcast(weight + (size_t)r * KEYS + j);
            const real *row = value + j * d;
            VEACH (v, vectors)
                sum[0][r][v] +=
                    w * (part > 0 ? vload_part(row, part) : vload(row + (size_t)v * VLEN));
        }
    VEACH (r, rows)
        VEACH (v, vectors) {
            real *to = b->context + (size_t)r * d + c + (size_t)v * VLEN;
            vreal total = sum[0][r][v];
            if (sets > 1)
                total += sum[sets - 1][r][v];
            if (part > 0)
                vstore_part(to, vload_part(to, part) * vbroadcast(keep + r) + total, part);
            else
                vstore(to, vload(to) * vbroadcast(keep + r) + total);
        }
}

VINLINE void rows_values(int rows, const block *b, const real *keep) {
    const size_t d = b->head->d_head;
    const int vectors = VBYTES == 64 || rows < 3 ? 4 : 2, sets = rows < 3 ? 2 : 1;
    size_t c = 0;
    for (; c + (size_t)(vectors * VLEN) <= d; c += (size_t)(vectors * VLEN))
        values_columns(rows, vectors, sets, b, keep, c, 0);
    for (; c + VLEN <= d; c += VLEN)
        values_columns(rows, 1, sets, b, keep, c, 0);
    if (c < d)
        values_columns(rows, 1, sets, b, keep, c, d - c);
}

VINLINE void rows_block(int rows, const block *b) {
    real keep[DOT_MOST_X];
    const row_dots dots = {.x = b->query,
                           .x_stride = b->head->d_head,
                           .num_x = (size_t)rows,
                           .rows = b->key,
                           .row_stride = b->head->d_head,
                           .d = b->head->d_head,
                           .dots = b->scores,
                           .dots_stride = KEYS};
    dots_of(rows == 3 ? 4 : rows, rows >= 3 ? FETCHED_AHEAD : 0, &dots, b->count);
    VEACH (r, rows) {
        finish_scores(b, b->scores + (size_t)r * KEYS, (size_t)r);
        keep[r] = row_softmax(b, (size_t)r);
    }
    rows_values(rows, b, keep);
}

static void rows_1(const block *b) {
    rows_block(1, b);
}
static void rows_2(const block *b) {
    rows_block(2, b);
}
#if VLEN >= 4
static void rows_3(const block *b) {
    rows_block(3, b);
}
static void rows_4(const block *b) {
    rows_block(4, b);
}
#endif

/* Four rows at most, as many as may be; how many. */
static size_t run_rows(const block *b, size_t rows) {
    switch (size_min(rows, DOT_MOST_X)) {
#if VLEN >= 4
    case 4:
        rows_4(b);
        return 4;
    case 3:
        rows_3(b);
        return 3;
#endif
    case 2:
        rows_2(b);
        return 2;
    default:
        rows_1(b);
        return 1;
    }
}

/* All query heads of a token. */
static void token_block(block b, size_t token, const real *query) {
    const attni_decode_head *head = b.head;
    for (size_t g = 0; g < head->group;) {
        const size_t row = token * head->group + g;
        b.query = query + row * head->d_head;
        b.slopes = head->slopes ? head->slopes + g : NULL;
        b.max = head->max + row;
        b.sum = head->sum + row;
        b.context = head->context + row * head->d_head;
        g += run_rows(&b, head->group - g);
    }
}

/* Asks for the first lines of n rows: what looks ahead in the processor has to be led to them. */
static void fetch(const real *rows, size_t n, size_t d) {
    const size_t lines = size_min(size_div_up(n * d * sizeof *rows, LINE), FETCHED_LINES);
    for (size_t line = 0; line < lines; line++)
        __builtin_prefetch((const char *)rows + line * LINE, 0, 2);
}

static void start(const attni_decode_head *head, real *restrict query) {
    const size_t d = head->d_head, rows = head->tokens * head->group, width = head->group * d;
    const real scale = head->scale;
    for (size_t t = 0; t < head->tokens; t++) {
        const real *restrict from = head->query + t * head->query_token;
        for (size_t i = 0; i < width; i++)
            query[t * width + i] = scale * from[i];
    }
    for (size_t r = 0; r < rows; r++) {
        head->max[r] = -(real)INFINITY;
        head->sum[r] = 0;
    }
    memset(head->context, 0, rows * d * sizeof *head->context);
}

/* A block ends where the ring does. */
void KERNEL(decode)(const attni_decode_head *head, attni_range keys, real *scratch) {
    real *query = scratch + DOT_MOST_X * KEYS;
    const size_t d = head->d_head, most = block_keys(d);
    start(head, query);
    for (size_t first = keys.begin, next; first < keys.end; first = next) {
        const size_t slot = first % head->capacity;
        next = first + size_min(size_min(most, keys.end - first), head->capacity - slot);
        fetch(head->value + slot * d, next - first, d);
        for (size_t t = 0; t < head->tokens; t++) {
            const size_t position = head->position + t;
            const size_t seen = position > head->left ? position - head->left : 0;
            const size_t begin = size_max(first, seen), end = size_min(next, position + 1);
            if (begin >= end)
                continue;
            token_block((block){.head = head,
                                .first = begin,
                                .count = end - begin,
                                .key = head->key + (slot + begin - first) * d,
                                .value = head->value + (slot + begin - first) * d,
                                .position = position,
                                .scores = scratch},
                        t, query);
        }
        if (next < keys.end)
            fetch(head->key + next % head->capacity * d, keys.end - next, d);
    }
}
