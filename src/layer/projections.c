#include "layer/projections.h"

#include "base/size.h"
#include "ops/linear_products.h"

enum { MOST_WAYS = 3 };

/* Whether `next` begins where the `size` reals of `array` end; two absent arrays do. */
static bool follows(const real *next, const real *array, size_t size) {
    return array ? next == array + size : !next;
}

static bool are_one(const attni_way *a, const attni_way *b, size_t d_model) {
    const size_t matrix = a->width * d_model;
    return a->x == b->x && a->rows == b->rows && a->stride == b->stride && a->dx == b->dx &&
           follows(b->y, a->y, a->width) && follows(b->w, a->w, matrix) &&
           follows(b->b, a->b, a->width) && follows(b->dw, a->dw, matrix) &&
           follows(b->db, a->db, a->width);
}

size_t attni_ways_join(attni_way *ways, size_t count, size_t d_model) {
    size_t last = 0;
    for (size_t i = 1; i < count; i++)
        if (are_one(&ways[last], &ways[i], d_model))
            ways[last].width += ways[i].width;
        else
            ways[++last] = ways[i];
    return last + 1;
}

typedef struct turning {
    const attni_mha *call;
    const attni_way *way;
} turning;

/* Turns what a block has of the columns begin .. end - 1; `column` is that of the block's first. */
static void turn_columns(real *block, size_t ldc, size_t row, size_t rows, size_t column,
                         size_t columns, size_t begin, size_t end, const attni_rope_rows *where) {
    const size_t from = size_max(column, begin), to = size_min(column + columns, end);
    if (from < to)
        attni_rope_turn(block + (from - column), ldc, (to - from) / where->d_head, row, row + rows,
                        where, false);
}

static void turn_block(const void *data, real *block, size_t ldc, size_t row, size_t rows,
                       size_t column, size_t columns) {
    const turning *t = data;
    const size_t d = t->call->d_inner, d_kv = t->call->d_kv;
    const size_t end_q = t->call->turn_as_one ? d + d_kv : d;
    column += t->way->column;
    turn_columns(block, ldc, row, rows, column, columns, 0, end_q, &t->call->rope_q);
    turn_columns(block, ldc, row, rows, column, columns, end_q, d + d_kv, &t->call->rope_k);
}

/* The ways in or back whose array is there, joined where they can be. */
static size_t ways_of(const attni_mha *call, attni_way ways[MOST_WAYS], const attni_projected *p,
                      const attn_mha_params *w, const attn_mha_input *in, const attn_mha_params *dw,
                      const attn_mha_input_grads *dx) {
    const attn_mha_params no_dw = {0};
    const attn_mha_input_grads no_dx = {0};
    const bool self = call->self;
    size_t count = 0;
    dw = dw ? dw : &no_dw;
    dx = dx ? dx : &no_dx;
    if (p->q)
        ways[count++] = (attni_way){.x = in->query,
                                    .y = p->q,
                                    .rows = call->rows_q,
                                    .width = call->d_inner,
                                    .stride = call->row_q,
                                    .w = w->wq,
                                    .b = w->bq,
                                    .dx = dx->query,
                                    .dw = dw->wq,
                                    .db = dw->bq};
    if (p->k)
        ways[count++] = (attni_way){.x = self ? in->query : in->key,
                                    .y = p->k,
                                    .rows = call->rows_k,
                                    .width = call->d_kv,
                                    .stride = call->row_k,
                                    .column = call->d_inner,
                                    .w = w->wk,
                                    .b = w->bk,
                                    .dx = self ? dx->query : dx->key,
                                    .dw = dw->wk,
                                    .db = dw->bk};
    if (p->v)
        ways[count++] = (attni_way){.x = self ? in->query : in->value,
                                    .y = p->v,
                                    .rows = call->rows_k,
                                    .width = call->d_kv,
                                    .stride = call->row_k,
                                    .column = call->d_inner + call->d_kv,
                                    .w = w->wv,
                                    .b = w->bv,
                                    .dx = self ? dx->query : dx->value,
                                    .dw = dw->wv,
                                    .db = dw->bv};
    return count > 0 ? attni_ways_join(ways, count, call->d_model) : 0;
}

/* Turns the gradients of q and k back, in place; either may be NULL. */
static void turn_back(const attni_mha *call, const attni_projected *p) {
    const attn_shape *s = &call->shape;
    const size_t threads = call->core.max_threads;
    const bool as_one = call->turn_as_one && p->q;
    if (call->rope_q.config.pairing == ATTN_ROPE_NONE)
        return;
    if (p->q)
        attni_rope_turn_all(p->q, call->row_q, s->num_heads + (as_one ? s->num_kv_heads : 0),
                            call->rows_q, &call->rope_q, true, threads);
    if (p->k && !as_one)
        attni_rope_turn_all(p->k, call->row_k, s->num_kv_heads, call->rows_k, &call->rope_k, true,
                            threads);
}

void attni_project(const attni_mha *call, const attni_projected *p, const attn_mha_params *w,
                   const attn_mha_input *input) {
    attni_way ways[MOST_WAYS];
    const size_t count = ways_of(call, ways, p, w, input, NULL, NULL);
    attni_product products[MOST_WAYS];
    attni_after after[MOST_WAYS];
    turning turned[MOST_WAYS];
    for (size_t i = 0; i < count; i++) {
        const attni_way *way = &ways[i];
        products[i] =
            linear_product_y(way->y, way->x, way->w, way->b, way->rows, call->d_model, way->width);
        products[i].ldc = way->stride;
        turned[i] = (turning){call, way};
        after[i] = (attni_after){turn_block, &turned[i], call->shape.d_head};
    }
    attni_gemm_parallel_after(products, call->rope_q.config.pairing ? after : NULL, count,
                              call->core.max_threads);
}

/* Products to one dx stand side by side, so that they take one pass over it. */
void attni_project_back(const attni_mha *call, const attni_projected *p, const attn_mha_params *w,
                        const attn_mha_input *input, const attn_mha_params *dw,
                        const attn_mha_input_grads *dx) {
    attni_way ways[MOST_WAYS];
    attni_product products[3 * MOST_WAYS];
    const size_t d_model = call->d_model, count = ways_of(call, ways, p, w, input, dw, dx);
    const attni_way *end = ways + count;
    size_t n = 0;
    turn_back(call, p);
    for (const attni_way *way = ways; way < end; way++)
        if (way->dx) {
            products[n] =
                linear_product_dx(way->dx, way->y, way->w, way->rows, d_model, way->width);
            products[n].lda = way->stride;
            products[n++].beta = way > ways && way[-1].dx == way->dx ? 1 : 0;
        }
    for (const attni_way *way = ways; way < end; way++)
        if (way->dw) {
            products[n] =
                linear_product_dw(way->dw, way->y, way->x, way->rows, d_model, way->width);
            products[n++].lda = way->stride;
        }
    for (const attni_way *way = ways; way < end; way++)
        if (way->db) {
            products[n] = linear_product_db(way->db, way->y, way->rows, way->width);
            products[n++].ldb = way->stride;
        }
    attni_gemm_parallel(products, n, call->core.max_threads);
}
