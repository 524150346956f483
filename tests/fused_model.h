/*
 * fused_model.h - attention in its plainest form, and calls of the fused path to hold against it.
 *
 * The model loops over pairs in long double; with `narrow` set it rounds every result to attn_real,
 * which is what a textbook in that precision would give. The fused path may err twice as much as
 * that, and 8 epsilon of the largest value more.
 */
#ifndef FUSED_MODEL_H
#define FUSED_MODEL_H

#include "test.h"

#include "ops/sdpa_internal.h"

typedef long double wide;

/* What may be done to scores and weights; zeroed = nothing. */
typedef struct fused_terms {
    double softcap;
    const attn_real *bias;
    attn_broadcast bias_strides;
    size_t bias_size;        /* of the array that the strides lead through */
    const attn_real *slopes; /* (H) */
    double dropout;
    uint64_t seed;
} fused_terms;

/* Tensors of one call, contiguous (B,H,L,d). */
typedef struct fused_case {
    attn_shape shape;
    attn_mask mask;
    double scale;
    attn_real *query, *key, *value, *dcontext;
    fused_terms terms;
} fused_case;

typedef struct fused_results {
    attn_real *context, *lse, *dquery, *dkey, *dvalue;
    attn_real *dbias, *dslopes;     /* as many as there are of the bias, and H; or NULL */
    double dbias_size, dslope_size; /* model: the largest sum of what they cancel from */
    double dscore_size; /* model: largest |p|·(|dp| + |D|)·|scale|·|q or k|, what dq and dk cancel
                           from */
} fused_results;

static inline size_t size_q(const attn_shape *s) {
    return s->batch * s->num_heads * s->len_q * s->d_head;
}

static inline size_t size_k(const attn_shape *s) {
    return s->batch * s->num_heads * s->len_k * s->d_head;
}

static inline fused_case fused_case_random(attn_shape shape, attn_mask mask, uint64_t seed) {
    return (fused_case){.shape = shape,
                        .mask = mask,
                        .scale = 1 / sqrt((double)shape.d_head),
                        .query = test_normal(size_q(&shape), 1.5, seed),
                        .key = test_normal(size_k(&shape), 1.5, seed + 1),
                        .value = test_normal(size_k(&shape), 1, seed + 2),
                        .dcontext = test_normal(size_q(&shape), 1, seed + 3)};
}

static inline void fused_case_free(fused_case *c) {
    free(c->query);
    free(c->key);
    free(c->value);
    free(c->dcontext);
}

static inline fused_results fused_results_make(const attn_shape *s) {
    return (fused_results){.context = test_poison(size_q(s)),
                           .lse = test_poison(s->batch * s->num_heads * s->len_q),
                           .dquery = test_poison(size_q(s)),
                           .dkey = test_poison(size_k(s)),
                           .dvalue = test_poison(size_k(s))};
}

/* Room for the gradients of a case's terms as well. */
static inline fused_results fused_results_of(const fused_case *c) {
    fused_results r = fused_results_make(&c->shape);
    r.dbias = c->terms.bias ? test_poison(c->terms.bias_size) : NULL;
    r.dslopes = c->terms.slopes ? test_poison(c->shape.num_heads) : NULL;
    return r;
}

static inline void fused_results_free(fused_results *r) {
    free(r->context);
    free(r->lse);
    free(r->dquery);
    free(r->dkey);
    free(r->dvalue);
    free(r->dbias);
    free(r->dslopes);
}

static inline wide model_round(wide x, bool narrow) {
    return narrow ? (wide)(attn_real)x : x;
}

static inline wide model_dot(const attn_real *a, const attn_real *b, size_t d, bool narrow) {
    wide sum = 0;
    for (size_t c = 0; c < d; c++)
        sum = model_round(sum + model_round((wide)a[c] * (wide)b[c], narrow), narrow);
    return sum;
}

static inline size_t model_bias_place(const attn_broadcast *s, size_t b, size_t h, size_t i,
                                      size_t j) {
    return b * s->batch + h * s->head + i * s->query + j * s->key;
}

static inline wide model_distance(const attni_mask *mask, size_t i, size_t j) {
    return fabsl((wide)i + (wide)mask->offset - (wide)j);
}

/* Softcap, bias and ALiBi of one score; *factor is the derivative of the softcap. */
static inline wide model_terms(wide *factor, wide s, const fused_case *c, const attni_mask *mask,
                               const size_t at[4], bool narrow) {
    const fused_terms *terms = &c->terms;
    *factor = 1;
    if (terms->softcap > 0) {
        const wide cap = (attn_real)terms->softcap;
        const wide t = model_round(tanhl(model_round(s / cap, narrow)), narrow);
        *factor = model_round(1 - model_round(t * t, narrow), narrow);
        s = model_round(cap * t, narrow);
    }
    if (terms->bias)
        s = model_round(
            s + (wide)
                    terms->bias[model_bias_place(&terms->bias_strides, at[0], at[1], at[2], at[3])],
            narrow);
    if (terms->slopes) {
        const wide distance = model_round(model_distance(mask, at[2], at[3]), narrow);
        s = model_round(s - model_round((wide)terms->slopes[at[1]] * distance, narrow), narrow);
    }
    return s;
}

/* One row of weights and derivatives of the softcap; returns its log-sum-exp. Blocked pairs get 0
 * and are not read. */
static inline wide model_weights(wide *weights, wide *factors, const fused_case *c,
                                 const attni_mask *mask, size_t b, size_t h, size_t i,
                                 bool narrow) {
    const attn_shape *s = &c->shape;
    const size_t bh = b * s->num_heads + h;
    wide top = -INFINITY, sum = 0;
    for (size_t j = 0; j < s->len_k; j++) {
        weights[j] = -INFINITY;
        if (!mask_allows(mask, b, h, i, j, s->len_k))
            continue;
        const wide dot = model_dot(c->query + (bh * s->len_q + i) * s->d_head,
                                   c->key + (bh * s->len_k + j) * s->d_head, s->d_head, narrow);
        weights[j] = model_round((wide)(attn_real)c->scale * dot, narrow);
        weights[j] = model_terms(factors + j, weights[j], c, mask, (size_t[]){b, h, i, j}, narrow);
        top = isnan(weights[j]) || weights[j] > top ? weights[j] : top;
    }
    for (size_t j = 0; j < s->len_k; j++) {
        const bool blocked = weights[j] == -INFINITY;
        weights[j] = blocked ? 0 : model_round(expl(weights[j] - top), narrow);
        sum = model_round(sum + weights[j], narrow);
    }
    for (size_t j = 0; j < s->len_k && sum != 0; j++)
        weights[j] = model_round(weights[j] / sum, narrow);
    return sum == 0 ? -INFINITY : top + logl(sum);
}

/* What dropout makes of weight (b, h, i, j): 0 or 1/(1-p). */
static inline wide model_dropout(const fused_terms *terms, size_t b, size_t h, size_t i, size_t j) {
    if (terms->dropout == 0)
        return 1;
    const uint32_t counter[4] = {(uint32_t)(j / 4), (uint32_t)i, (uint32_t)h, (uint32_t)b};
    uint32_t words[4];
    attn_philox4x32(words, counter, terms->seed);
    return (wide)words[j % 4] >= (wide)terms->dropout * 0x1p32L ? 1 / (1 - (wide)terms->dropout)
                                                                : 0;
}

static inline double model_top(const attn_real *x, size_t d) {
    double top = 0;
    for (size_t e = 0; e < d; e++)
        top = fabs((double)x[e]) > top ? fabs((double)x[e]) : top;
    return top;
}

/* All results of a case. */
static inline void model_run(fused_results *r, const fused_case *c, bool narrow) {
    const attn_shape *s = &c->shape;
    const size_t d = s->d_head;
    attni_mask mask;
    test_ok(attni_mask_resolve(&mask, &c->mask, s));
    mask.bias = c->terms.bias; /* -inf in it blocks */
    mask.bias_strides = c->terms.bias_strides;
    wide *weights = calloc(s->len_k + 1, sizeof *weights);
    wide *keep = calloc(s->len_k + 1, sizeof *keep), *factors = calloc(s->len_k + 1, sizeof *keep);
    wide *dbias = calloc(c->terms.bias_size + 1, sizeof *dbias);
    wide *dbias_size = calloc(c->terms.bias_size + 1, sizeof *dbias);
    bool *reached = calloc(c->terms.bias_size + 1, sizeof *reached);
    wide *dslopes = calloc(s->num_heads, sizeof *dslopes);
    wide *dslope_sizes = calloc(s->num_heads, sizeof *dslopes);
    wide *row = calloc(d, sizeof *row), *drow = calloc(d, sizeof *drow);
    wide *dkey = calloc(s->len_k * d + 1, sizeof *dkey);
    wide *dvalue = calloc(s->len_k * d + 1, sizeof *dvalue);
    for (size_t bh = 0; bh < s->batch * s->num_heads; bh++) {
        const size_t b = bh / s->num_heads, h = bh % s->num_heads;
        const attn_real *key = c->key + bh * s->len_k * d, *value = c->value + bh * s->len_k * d;
        memset(dkey, 0, s->len_k * d * sizeof *dkey);
        memset(dvalue, 0, s->len_k * d * sizeof *dvalue);
        for (size_t i = 0; i < s->len_q; i++) {
            const size_t at = (bh * s->len_q + i) * d;
            const attn_real *query = c->query + at, *dcontext = c->dcontext + at;
            r->lse[bh * s->len_q + i] =
                (attn_real)model_weights(weights, factors, c, &mask, b, h, i, narrow);
            const double query_top = model_top(query, d);
            for (size_t e = 0; e < d; e++)
                row[e] = drow[e] = 0;
            for (size_t j = 0; j < s->len_k; j++) {
                keep[j] = model_round(model_dropout(&c->terms, b, h, i, j), narrow);
                const wide weight = model_round(weights[j] * keep[j], narrow);
                const bool allowed = mask_allows(&mask, b, h, i, j, s->len_k);
                for (size_t e = 0; e < d && allowed; e++)
                    row[e] = model_round(row[e] + weight * (wide)value[j * d + e], narrow);
            }
            wide delta = 0;
            for (size_t e = 0; e < d; e++) {
                r->context[at + e] = (attn_real)row[e];
                delta = model_round(delta + row[e] * (wide)dcontext[e], narrow);
            }
            for (size_t j = 0; j < s->len_k; j++) {
                const size_t place = model_bias_place(&c->terms.bias_strides, b, h, i, j);
                reached[place] = true;
                if (!mask_allows(&mask, b, h, i, j, s->len_k))
                    continue;
                const wide kept = model_round(weights[j] * keep[j], narrow);
                const wide dweight =
                    model_round(keep[j] * model_dot(dcontext, value + j * d, d, narrow), narrow);
                const wide dterm =
                    model_round(weights[j] * model_round(dweight - delta, narrow), narrow);
                const wide size_of_term = weights[j] * (fabsl(dweight) + fabsl(delta));
                dbias[place] = model_round(dbias[place] + dterm, narrow);
                dbias_size[place] += size_of_term;
                const wide distance = model_distance(&mask, i, j);
                dslopes[h] -= model_round(dterm * distance, narrow);
                dslope_sizes[h] += size_of_term * distance;
                const wide dscore =
                    model_round(dterm * factors[j], narrow) * (wide)(attn_real)c->scale;
                const double size = (double)(size_of_term * fabsl((wide)c->scale));
                const double top = fmax(model_top(key + j * d, d), query_top);
                r->dscore_size = fmax(r->dscore_size, size * top);
                for (size_t e = 0; e < d; e++) {
                    drow[e] = model_round(drow[e] + dscore * (wide)key[j * d + e], narrow);
                    dkey[j * d + e] =
                        model_round(dkey[j * d + e] + dscore * (wide)query[e], narrow);
                    dvalue[j * d + e] =
                        model_round(dvalue[j * d + e] + kept * (wide)dcontext[e], narrow);
                }
            }
            for (size_t e = 0; e < d; e++)
                r->dquery[at + e] = (attn_real)drow[e];
        }
        for (size_t e = 0; e < s->len_k * d; e++) {
            r->dkey[bh * s->len_k * d + e] = (attn_real)dkey[e];
            r->dvalue[bh * s->len_k * d + e] = (attn_real)dvalue[e];
        }
    }
    for (size_t n = 0; n < c->terms.bias_size && r->dbias; n++) {
        if (reached[n]) /* what lies between its elements is not written */
            r->dbias[n] = (attn_real)dbias[n];
        r->dbias_size = fmax(r->dbias_size, (double)dbias_size[n]);
    }
    for (size_t h = 0; h < s->num_heads && r->dslopes; h++) {
        r->dslopes[h] = (attn_real)dslopes[h];
        r->dslope_size = fmax(r->dslope_size, (double)dslope_sizes[h]);
    }
    free(weights);
    free(keep);
    free(factors);
    free(dbias);
    free(dbias_size);
    free(reached);
    free(dslopes);
    free(dslope_sizes);
    free(row);
    free(drow);
    free(dkey);
    free(dvalue);
}

/* How the tensors lie in memory. */
typedef enum fused_layout { BHTD, BTHD, GAPPED } fused_layout;

static inline attn_strides layout_strides(fused_layout layout, size_t len, size_t heads, size_t d) {
    if (layout == BHTD)
        return (attn_strides){heads * len * d, len * d, d, 1};
    if (layout == BTHD)
        return (attn_strides){len * heads * d, d, heads * d, 1};
    return (attn_strides){len * heads * (d + 3) + 5, d + 3, heads * (d + 3), 1};
}

enum { GUARD = 37 }; /* reals of NaN before and behind, an odd number: nothing is aligned */

typedef struct guarded {
    attn_real *block, *at;
    size_t size, len, heads, d, batch;
    attn_strides strides;
} guarded;

/* A tensor of NaN in a layout, with guards; filled from a contiguous (B,H,L,d) if given. */
static inline guarded guarded_make(const attn_real *from, fused_layout layout, size_t batch,
                                   size_t heads, size_t len, size_t d) {
    guarded g = {.strides = layout_strides(layout, len, heads, d),
                 .len = len,
                 .heads = heads,
                 .d = d,
                 .batch = batch};
    g.size = 2 * GUARD + batch * g.strides.batch + heads * g.strides.head + len * g.strides.token;
    g.block = malloc(g.size * sizeof *g.block);
    memset(g.block, 0xFF, g.size * sizeof *g.block);
    g.at = g.block + GUARD;
    for (size_t b = 0; b < batch && from; b++)
        for (size_t h = 0; h < heads; h++)
            for (size_t t = 0; t < len; t++, from += d)
                memcpy(g.at + b * g.strides.batch + h * g.strides.head + t * g.strides.token, from,
                       d * sizeof *from);
    return g;
}

/* Moves the tensor out into a contiguous array, then asserts that nothing else was written. */
static inline void guarded_take(guarded *g, attn_real *to, const char *what) {
    for (size_t b = 0; b < g->batch; b++)
        for (size_t h = 0; h < g->heads; h++)
            for (size_t t = 0; t < g->len; t++, to += g->d) {
                attn_real *row =
                    g->at + b * g->strides.batch + h * g->strides.head + t * g->strides.token;
                memcpy(to, row, g->d * sizeof *row);
                memset(row, 0xFF, g->d * sizeof *row);
            }
    const unsigned char *bytes = (const unsigned char *)g->block;
    for (size_t i = 0; i < g->size * sizeof *g->block; i++)
        if (bytes[i] != 0xFF)
            ck_abort_msg("%s: written outside, %zu bytes from the start", what, i);
    free(g->block);
}

/* Forward and backward of the fused path, inputs and outputs in the given layout. `wanted`: bit 0
 * dquery, bit 1 dkey, bit 2 dvalue, bit 3 dbias, bit 4 dslopes. */
static inline void fused_run_some(fused_results *r, const fused_case *c, fused_layout layout,
                                  size_t threads, int wanted) {
    const attn_shape *s = &c->shape;
    const size_t B = s->batch, H = s->num_heads, d = s->d_head;
    guarded q = guarded_make(c->query, layout, B, H, s->len_q, d);
    guarded k = guarded_make(c->key, layout, B, H, s->len_k, d);
    guarded v = guarded_make(c->value, layout, B, H, s->len_k, d);
    guarded dout = guarded_make(c->dcontext, layout, B, H, s->len_q, d);
    guarded out = guarded_make(NULL, layout, B, H, s->len_q, d);
    guarded dq = guarded_make(NULL, layout, B, H, s->len_q, d);
    guarded dk = guarded_make(NULL, layout, B, H, s->len_k, d);
    guarded dv = guarded_make(NULL, layout, B, H, s->len_k, d);
    guarded dbias = guarded_make(NULL, BHTD, 1, 1, 1, c->terms.bias_size);
    const attn_sdpa_input input = {.shape = *s,
                                   .query = q.at,
                                   .key = k.at,
                                   .value = v.at,
                                   .query_strides = q.strides,
                                   .key_strides = k.strides,
                                   .value_strides = v.strides,
                                   .mask = c->mask,
                                   .bias = c->terms.bias,
                                   .bias_strides = c->terms.bias_strides,
                                   .alibi_slopes = c->terms.slopes,
                                   .dropout_seed = c->terms.seed};
    const attn_sdpa_output output = {
        .context = out.at, .context_strides = out.strides, .lse = r->lse};
    attni_sdpa call = {.input = &input,
                       .shape = *s,
                       .tokens = *s,
                       .rows = s->batch * s->num_heads * s->len_q,
                       .pairs = s->batch * s->num_heads * s->len_q * s->len_k,
                       .scale = c->scale,
                       .threads = threads,
                       .softcap = c->terms.softcap,
                       .alibi = c->terms.slopes != NULL,
                       .dropout = c->terms.dropout};
    test_ok(attni_mask_resolve(&call.mask, &c->mask, s));

    attn_sdpa_saved saved = {.input = input, .output = output};
    const attn_sdpa_grads grads = {wanted & 1 ? dq.at : NULL,
                                   wanted & 2 ? dk.at : NULL,
                                   wanted & 4 ? dv.at : NULL,
                                   dq.strides,
                                   dk.strides,
                                   dv.strides,
                                   wanted & 8 ? dbias.at : NULL,
                                   wanted & 16 ? r->dslopes : NULL};
    attn_arena measure;
    test_ok(attn_arena_init_measuring(&measure));
    test_ok(attni_fused_forward(&call, &output, &measure, &saved));
    test_ok(attni_fused_backward(&call, &saved, dout.at, &dout.strides, &grads, &measure));
    /* Scratch that nobody wrote is NaN. */
    unsigned char *scratch = malloc(measure.high_water + 63);
    ck_assert_ptr_nonnull(scratch);
    memset(scratch, 0xFF, measure.high_water + 63);
    attn_arena arena;
    test_ok(attn_arena_init(&arena, scratch, measure.high_water + 63));
    test_ok(attni_fused_forward(&call, &output, &arena, &saved));
    test_ok(attni_fused_backward(&call, &saved, dout.at, &dout.strides, &grads, &arena));
    ck_assert_uint_eq(arena.high_water, measure.high_water);
    attn_arena_destroy(&arena);
    free(scratch);

    guarded_take(&out, r->context, "context");
    guarded_take(&dq, r->dquery, "dquery");
    guarded_take(&dk, r->dkey, "dkey");
    guarded_take(&dv, r->dvalue, "dvalue");
    if (wanted & 8)
        guarded_take(&dbias, r->dbias, "dbias");
    else
        free(dbias.block);
    free(q.block);
    free(k.block);
    free(v.block);
    free(dout.block);
}

static inline void fused_run(fused_results *r, const fused_case *c, fused_layout layout,
                             size_t threads) {
    fused_run_some(r, c, layout, threads, 7 | (r->dbias ? 8 : 0) | (r->dslopes ? 16 : 0));
}

/* The bound of one tensor: got against the exact one, by the measure of the narrow model. */
static inline void fused_close(const char *what, const attn_real *got, const attn_real *exact,
                               const attn_real *narrow, size_t n, double least_top) {
    double top = least_top, textbook = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(exact[i]) || !isfinite(narrow[i]))
            continue;
        top = fmax(top, fabs((double)exact[i]));
        textbook = fmax(textbook, fabs((double)narrow[i] - (double)exact[i]));
    }
    test_close(what, got, exact, n, 2 * textbook + 8 * TEST_EPSILON * top, 0);
}

static inline void fused_compare(const char *name, const fused_case *c, const fused_results *got) {
    const attn_shape *s = &c->shape;
    fused_results exact = fused_results_of(c), narrow = fused_results_of(c);
    model_run(&exact, c, false);
    model_run(&narrow, c, true);
    const struct {
        const char *what;
        const attn_real *got, *exact, *narrow;
        size_t n;
        double least_top;
    } tensors[] = {
        {"context", got->context, exact.context, narrow.context, size_q(s), 0},
        {"lse", got->lse, exact.lse, narrow.lse, s->batch * s->num_heads * s->len_q, 0},
        {"dquery", got->dquery, exact.dquery, narrow.dquery, size_q(s), exact.dscore_size},
        {"dkey", got->dkey, exact.dkey, narrow.dkey, size_k(s), exact.dscore_size},
        {"dvalue", got->dvalue, exact.dvalue, narrow.dvalue, size_k(s), 0},
        {"dbias", got->dbias, exact.dbias, narrow.dbias, got->dbias ? c->terms.bias_size : 0,
         exact.dbias_size},
        {"dslopes", got->dslopes, exact.dslopes, narrow.dslopes, got->dslopes ? s->num_heads : 0,
         exact.dslope_size},
    };
    for (size_t t = 0; t < sizeof tensors / sizeof *tensors; t++) {
        char what[300];
        snprintf(what, sizeof what, "%s, %s, %s, (B,H,Lq,Lk,d) = (%zu,%zu,%zu,%zu,%zu)",
                 tensors[t].what, name, attn_isa_name(attn_isa_current()), s->batch, s->num_heads,
                 s->len_q, s->len_k, s->d_head);
        fused_close(what, tensors[t].got, tensors[t].exact, tensors[t].narrow, tensors[t].n,
                    tensors[t].least_top);
    }
    fused_results_free(&exact);
    fused_results_free(&narrow);
}

/* Runs a case and holds it against the model. */
static inline void fused_check(const char *name, const fused_case *c, fused_layout layout,
                               size_t threads) {
    fused_results got = fused_results_of(c);
    fused_run(&got, c, layout, threads);
    fused_compare(name, c, &got);
    fused_results_free(&got);
}

/* Selects instruction set `isa`; false where this machine has none. */
static inline bool fused_select(int isa) {
    return attn_isa_available((attn_isa)isa) &&
           attn_isa_select(attn_isa_name((attn_isa)isa)) == ATTN_OK;
}

#endif
