/* Packed sequences through the core, on every path: each as if it were alone, under every mask and
 * term. */
#include "terms.h"
#include "threads.h"

#define TOLERANCE (256 * TEST_EPSILON)

static const attn_kernel paths[] = {ATTN_KERNEL_REFERENCE, ATTN_KERNEL_FUSED};

enum { MOST = 6 };

/* Lengths of the sequences. */
typedef struct lengths {
    size_t batch, q[MOST], k[MOST];
} lengths;

static const lengths batches[] = {
    {1, {5}, {7}},
    {3, {3, 1, 5}, {3, 1, 5}},
    {4, {4, 0, 2, 3}, {5, 3, 0, 1}},
    {3, {130, 7, 65}, {131, 64, 1}},
    {5, {1, 1, 1, 1, 1}, {9, 70, 1, 0, 200}},
    {2, {300, 3}, {300, 280}},
};

enum { BATCHES = sizeof batches / sizeof *batches };

typedef struct packed {
    term_problem terms; /* its tensors have one sample, with all tokens */
    const lengths *of;
    size_t offsets_q[MOST + 1], offsets_k[MOST + 1];
    attn_shape longest; /* B sequences */
    uint8_t *attend;
} packed;

static packed packed_make(const lengths *of, size_t heads, size_t kv_heads, size_t d, layout form,
                          const mask_plan *masks, const term_plan *plan, uint64_t seed) {
    packed p = {.of = of, .longest = {of->batch, heads, 0, 0, d, kv_heads}};
    for (size_t b = 0; b < of->batch; b++) {
        p.offsets_q[b + 1] = p.offsets_q[b] + of->q[b];
        p.offsets_k[b + 1] = p.offsets_k[b] + of->k[b];
        p.longest.len_q = of->q[b] > p.longest.len_q ? of->q[b] : p.longest.len_q;
        p.longest.len_k = of->k[b] > p.longest.len_k ? of->k[b] : p.longest.len_k;
    }
    const attn_shape all = {1, heads, p.offsets_q[of->batch], p.offsets_k[of->batch], d, kv_heads};
    mask_plan positions = *masks;
    term_plan without_bias = *plan;
    positions.padding = false;
    positions.attend_rank = without_bias.bias_rank = 0;
    p.terms = terms_make(all, form, &positions, &without_bias, seed);
    return p;
}

/* Points to the offsets, so p must stay where it is; masks and bias of (B,H,Lq,Lk). */
static void packed_finish(packed *p, const mask_plan *masks, const term_plan *plan, uint64_t seed) {
    attn_sdpa_input *in = &p->terms.base.in;
    in->shape.batch = p->of->batch;
    in->offsets_q = p->offsets_q;
    in->offsets_k = p->offsets_k;
    if (masks->attend_rank) {
        p->attend = problem_attend(masks, &p->longest, &in->mask.attend_strides, seed);
        in->mask.attend = p->attend;
    }
    if (plan->bias_rank) {
        term_problem *t = &p->terms;
        t->bias_count = terms_bias_shape(&in->bias_strides, plan, &p->longest);
        in->bias = t->bias = test_normal(t->bias_count, 1, seed + 9);
        for (size_t n = 3; n < t->bias_count; n += 7)
            t->bias[n] = (attn_real)-INFINITY;
        t->base.grads.bias = t->dbias = test_poison(t->bias_count);
    }
}

static void packed_free(packed *p) {
    free(p->attend);
    terms_free(&p->terms);
}

/* Results of all sequences, as the call gives them: rows contiguous (H,T,d), lse (H,T). */
typedef struct results {
    attn_real *o, *dq, *dk, *dv, *lse;
    double *dbias, dsinks[8], dslopes[8];
} results;

/* Sequence b by loops: as the last of b + 1 samples, the others of which send no gradient, so that
 * whatever depends on the sample's number is its own. */
static void solve_alone(results *r, const packed *p, size_t b) {
    const attn_sdpa_input *in = &p->terms.base.in;
    const problem *base = &p->terms.base;
    const size_t heads = in->shape.num_heads, d = in->shape.d_head, len_q = p->of->q[b];
    const size_t len_k = p->of->k[b], kv_heads = oracle_kv_heads(&in->shape);
    const size_t first_q = p->offsets_q[b], first_k = p->offsets_k[b];
    const size_t total_q = in->shape.len_q, total_k = in->shape.len_k;
    attn_sdpa_input alone = *in;
    alone.shape.batch = b + 1;
    alone.shape.len_q = len_q;
    alone.shape.len_k = len_k;
    alone.query_strides.batch = alone.key_strides.batch = alone.value_strides.batch = 0;
    alone.query += first_q * in->query_strides.token;
    alone.key += first_k * in->key_strides.token;
    alone.value += first_k * in->value_strides.token;
    const size_t rows = heads * len_q;
    attn_real *d_o = calloc((b + 1) * rows * d + 1, sizeof *d_o);
    ck_assert_ptr_nonnull(d_o);
    for (size_t n = 0; n < rows; n++)
        memcpy(d_o + (b * rows + n) * d, tensor_row(&base->d_o, n / len_q, first_q + n % len_q),
               d * sizeof *d_o);
    oracle want = oracle_run(&p->terms.config, &alone, d_o, attn_strides_bhtd(len_q, heads, d));
    for (size_t n = 0; n < rows; n++) {
        const size_t to = n / len_q * total_q + first_q + n % len_q;
        memcpy(r->o + to * d, want.o + (b * rows + n) * d, d * sizeof *r->o);
        memcpy(r->dq + to * d, want.dq + (b * rows + n) * d, d * sizeof *r->o);
        r->lse[to] = want.lse[b * rows + n];
        for (size_t j = 0; in->bias && j < len_k; j++)
            r->dbias[terms_bias_at(&p->terms, b, n / len_q, n % len_q, j)] +=
                (double)want.dbias[(b * rows + n) * len_k + j];
    }
    for (size_t n = 0; n < kv_heads * len_k; n++) {
        const size_t to = n / len_k * total_k + first_k + n % len_k, from = b * kv_heads * len_k;
        memcpy(r->dk + to * d, want.dk + (from + n) * d, d * sizeof *r->o);
        memcpy(r->dv + to * d, want.dv + (from + n) * d, d * sizeof *r->o);
    }
    for (size_t h = 0; h < heads; h++) {
        r->dsinks[h] += (double)want.dsinks[h];
        r->dslopes[h] += (double)want.dslopes[h];
    }
    free(d_o);
    oracle_free(&want);
}

/* Runs p and holds all results against the sequences alone. */
static void check(const char *what, packed *p) {
    problem *base = &p->terms.base;
    const attn_sdpa_input *in = &base->in;
    const size_t heads = in->shape.num_heads, d = in->shape.d_head;
    const size_t rows_q = heads * in->shape.len_q;
    const size_t rows_k = oracle_kv_heads(&in->shape) * in->shape.len_k;
    results want = {.o = test_poison(rows_q * d),
                    .dq = test_poison(rows_q * d),
                    .dk = test_poison(rows_k * d),
                    .dv = test_poison(rows_k * d),
                    .lse = test_poison(rows_q),
                    .dbias = calloc(p->terms.bias_count + 1, sizeof *want.dbias)};
    for (size_t b = 0; b < p->of->batch; b++)
        solve_alone(&want, p, b);
    problem_run(&p->terms.config, base);
    char line[256];
    snprintf(line, sizeof line, "%s, kernel %d", what, (int)p->terms.config.kernel);
    tensor_check(line, &base->o, want.o, TOLERANCE, TOLERANCE);
    test_close(line, base->lse, want.lse, rows_q, TOLERANCE, TOLERANCE);
    tensor_check(line, &base->dq, want.dq, TOLERANCE, TOLERANCE);
    tensor_check(line, &base->dk, want.dk, TOLERANCE, TOLERANCE);
    tensor_check(line, &base->dv, want.dv, TOLERANCE, TOLERANCE);
    attn_real *dbias = test_poison(p->terms.bias_count), dsinks[8], dslopes[8];
    for (size_t n = 0; n < p->terms.bias_count; n++)
        dbias[n] = (attn_real)want.dbias[n];
    for (size_t h = 0; h < heads; h++) {
        dsinks[h] = (attn_real)want.dsinks[h];
        dslopes[h] = (attn_real)want.dslopes[h];
    }
    if (p->terms.dbias)
        test_close(line, p->terms.dbias, dbias, p->terms.bias_count, 16 * TOLERANCE, TOLERANCE);
    if (p->terms.dsinks)
        test_close(line, p->terms.dsinks, dsinks, heads, TOLERANCE, TOLERANCE);
    if (p->terms.dslopes)
        test_close(line, p->terms.dslopes, dslopes, heads, TOLERANCE, TOLERANCE);
    attn_real *const all[] = {want.o, want.dq, want.dk, want.dv, want.lse, dbias};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        free(all[n]);
    free(want.dbias);
}

/* Masks and windows over sequences of all lengths, among them 0, and heads that share keys. */
START_TEST(under_masks) {
    static const term_plan none = {0};
    for (size_t n = 0; n < BATCHES; n++)
        for (size_t m = 0; m < PLANS + WINDOWS; m++) {
            const mask_plan *plan = m < PLANS ? &problem_plans[m] : &problem_windows[m - PLANS];
            char what[64];
            snprintf(what, sizeof what, "batch %zu, masks %zu", n, m);
            packed p = packed_make(&batches[n], 4, m % 3 == 0 ? 2 : 4, 3,
                                   (layout)(m % LAYOUT_COUNT), plan, &none, m);
            packed_finish(&p, plan, &none, m);
            p.terms.config.kernel = paths[_i];
            p.terms.config.max_threads = 1 + m % 3;
            check(what, &p);
            packed_free(&p);
        }
}
END_TEST

/* Softcap, bias, ALiBi, sinks and dropout count within each sequence. */
START_TEST(with_terms) {
    for (size_t n = 0; n < BATCHES; n++)
        for (size_t t = 0; t < TERMS; t++) {
            const mask_plan *plan = &problem_plans[(const size_t[]){0, 12, 11, 2}[t % 4]];
            char what[64];
            snprintf(what, sizeof what, "batch %zu, terms %zu", n, t);
            packed p = packed_make(&batches[n], 4, t % 2 ? 4 : 2, 5, (layout)(t % LAYOUT_COUNT),
                                   plan, &problem_terms[t], t);
            packed_finish(&p, plan, &problem_terms[t], t);
            p.terms.config.kernel = paths[_i];
            p.terms.config.max_threads = 2;
            check(what, &p);
            packed_free(&p);
        }
}
END_TEST

/* NaN in one sequence is not seen by another. */
START_TEST(nan_stays_in_its_sequence) {
    static const term_plan none = {0};
    for (size_t m = 0; m < PLANS; m += 3) {
        packed p = packed_make(&batches[3], 4, 4, 3, BTHD, &problem_plans[m], &none, m);
        packed_finish(&p, &problem_plans[m], &none, m);
        p.terms.config.kernel = paths[_i];
        problem *base = &p.terms.base;
        tensor *const operands[4] = {&base->q, &base->k, &base->v, &base->d_o};
        for (size_t n = 0; n < 4; n++)
            tensor_row(operands[n], n, 132 + n % 2)[1] = (attn_real)NAN; /* sequence 1 */
        check("NaN", &p);
        packed_free(&p);
    }
}
END_TEST

/* Equal to the padded run, up to the order of a row's sum. */
START_TEST(equals_padded) {
    static const lengths of = {4, {33, 1, 70, 12}, {33, 1, 70, 12}};
    static const term_plan plan = {.alibi = true, .softcap = 3, .dropout = 0.2};
    static const mask_plan masks = {.causal = true};
    enum { B = 4, H = 2, T = 70, D = 4, ALL = 116 };
    packed p = packed_make(&of, H, H, D, BTHD, &masks, &plan, 8);
    packed_finish(&p, &masks, &plan, 8);
    p.terms.config.kernel = paths[_i];
    const attn_shape shape = {B, H, T, T, D};
    term_problem padded = terms_make(shape, BTHD, &masks, &plan, 8);
    uint8_t padding[B * T];
    test_ok(attn_padding_from_lengths(padding, of.q, B, T));
    padded.base.in.mask.padding = padding;
    padded.config.kernel = paths[_i];
    tensor *const from[4] = {&p.terms.base.q, &p.terms.base.k, &p.terms.base.v, &p.terms.base.d_o};
    tensor *const to[4] = {&padded.base.q, &padded.base.k, &padded.base.v, &padded.base.d_o};
    for (size_t n = 0; n < 4; n++)
        for (size_t head = 0; head < B * H; head++)
            for (size_t t = 0; t < T; t++)
                if (t < of.q[head / H])
                    memcpy(tensor_row(to[n], head, t),
                           tensor_row(from[n], head % H, p.offsets_q[head / H] + t),
                           D * sizeof(attn_real));
                else
                    memset(tensor_row(to[n], head, t), 0, D * sizeof(attn_real));
    problem_run(&p.terms.config, &p.terms.base);
    problem_run(&padded.config, &padded.base);
    const tensor *const got[4] = {&p.terms.base.o, &p.terms.base.dq, &p.terms.base.dk,
                                  &p.terms.base.dv};
    const tensor *const want[4] = {&padded.base.o, &padded.base.dq, &padded.base.dk,
                                   &padded.base.dv};
    for (size_t n = 0; n < 4; n++)
        for (size_t head = 0; head < B * H; head++)
            for (size_t t = 0; t < of.q[head / H]; t++)
                test_close("packed against padded",
                           tensor_row(got[n], head % H, p.offsets_q[head / H] + t),
                           tensor_row(want[n], head, t), D, TOLERANCE, TOLERANCE);
    test_close("dslopes", p.terms.dslopes, padded.dslopes, H, TOLERANCE, TOLERANCE);
    packed_free(&p);
    terms_free(&padded);
}
END_TEST

/* The same bits for any number of threads. */
START_TEST(threads_change_no_bit) {
    static const lengths of = {5, {200, 3, 0, 140, 65}, {210, 3, 9, 300, 1}};
    const term_plan *plan = &problem_terms[TERMS - 1];
    attn_real *first[4] = {0};
    for (size_t threads = 1; threads < 9; threads += threads) {
        packed p = packed_make(&of, 4, 2, 16, BTHD, &problem_plans[12], plan, 2);
        packed_finish(&p, &problem_plans[12], plan, 2);
        p.terms.config.kernel = paths[_i];
        p.terms.config.max_threads = threads;
        problem *base = &p.terms.base;
        problem_run(&p.terms.config, base);
        const tensor *const all[4] = {&base->o, &base->dq, &base->dk, &base->dv};
        for (size_t n = 0; n < 4; n++) {
            const size_t bytes = all[n]->size * sizeof(attn_real);
            if (threads == 1) {
                first[n] = test_poison(all[n]->size);
                memcpy(first[n], all[n]->block, bytes);
            }
            ck_assert_mem_eq(all[n]->block, first[n], bytes);
        }
        packed_free(&p);
    }
    for (size_t n = 0; n < 4; n++)
        free(first[n]);
}
END_TEST

/* Memory is that of the sequences, not of as many as the longest. */
START_TEST(no_padding_is_held) {
    enum { B = 65, LONG = 512 };
    size_t offsets[B + 1] = {0};
    for (size_t b = 0; b < B; b++)
        offsets[b + 1] = offsets[b] + (b == 0 ? LONG : 1);
    const attn_strides rows = attn_strides_bthd(offsets[B], 1, 8);
    const attn_sdpa_config config = {.kernel = paths[_i], .max_threads = 1};
    attn_sdpa_input in = {.shape = {B, 1, offsets[B], offsets[B], 8},
                          .query_strides = rows,
                          .key_strides = rows,
                          .value_strides = rows,
                          .offsets_q = offsets,
                          .offsets_k = offsets};
    const attn_sdpa_output out = {.context_strides = rows};
    attn_memory packed_need, alone;
    test_ok(attn_sdpa_memory(&config, &in, &out, &packed_need));
    in.offsets_q = in.offsets_k = NULL;
    in.shape = (attn_shape){1, 1, LONG, LONG, 8};
    test_ok(attn_sdpa_memory(&config, &in, &out, &alone));
    ck_assert_uint_ge(packed_need.training, alone.training);
    ck_assert_uint_le(packed_need.training, alone.training + 64 * 16 * sizeof(attn_real));
}
END_TEST

/* The memory of a call is enough whichever gradients are wanted. */
START_TEST(memory_of_any_gradients) {
    static const size_t offsets_q[] = {0, 2, 2, 47}, offsets_k[] = {0, 31, 35, 35};
    const attn_strides rows = attn_strides_bthd(47, 4, 5);
    attn_sdpa_input in = {.shape = {3, 4, 47, 35, 5, 2},
                          .query_strides = rows,
                          .key_strides = rows,
                          .value_strides = rows,
                          .offsets_q = offsets_q,
                          .offsets_k = offsets_k};
    const attn_sdpa_output out = {.context_strides = rows};
    attn_real any;
    in.bias = in.sinks = &any;
    in.bias_strides = (attn_broadcast){.query = 35, .key = 1};
    attn_sdpa_config config = {.kernel = paths[_i], .max_threads = 8, .alibi = true};
    for (unsigned n = 0; n < 512; n++) {
        config.softcap = n & 64 ? 1 : 0;
        config.dropout = n & 128 ? 0.5 : 0;
        in.offsets_q = n & 256 ? NULL : offsets_q;
        in.offsets_k = n & 256 ? NULL : offsets_k;
        const attn_sdpa_grads grads = {.query = n & 1 ? &any : NULL,
                                       .key = n & 2 ? &any : NULL,
                                       .value = n & 4 ? &any : NULL,
                                       .query_strides = rows,
                                       .key_strides = rows,
                                       .value_strides = rows,
                                       .bias = n & 8 ? &any : NULL,
                                       .alibi_slopes = n & 16 ? &any : NULL,
                                       .sinks = n & 32 ? &any : NULL};
        attn_memory need;
        attn_arena arena;
        attn_sdpa_saved saved;
        const attn_status status = attn_sdpa_memory(&config, &in, &out, &need);
        if (status == ATTN_ERROR_UNSUPPORTED)
            continue;
        test_ok(status);
        test_ok(attn_arena_init_measuring(&arena));
        test_ok(attn_sdpa_forward(&config, &in, &out, &arena, &saved));
        test_ok(attn_sdpa_backward(&config, &saved, &any, &rows, &grads, &arena));
        ck_assert_msg(arena.high_water <= need.training, "gradients %u: %zu of %zu bytes", n,
                      arena.high_water, need.training);
    }
}
END_TEST

static void refused(packed *p, attn_status want, const char *word) {
    attn_sdpa_saved saved;
    attn_memory need;
    attn_arena arena = test_arena((size_t)1 << 20);
    problem *base = &p->terms.base;
    test_refused(attn_sdpa_forward(&p->terms.config, &base->in, &base->out, &arena, &saved), want);
    ck_assert_msg(strstr(attn_error_message(), word), "no '%s' in: %s", word, attn_error_message());
    test_refused(attn_sdpa_memory(&p->terms.config, &base->in, &base->out, &need), want);
    ck_assert_uint_eq(arena.used, 0);
    for (size_t n = 0; n < base->o.size; n++)
        ck_assert(isnan(base->o.block[n]));
    attn_arena_destroy(&arena);
}

START_TEST(refusals) {
    static const term_plan none = {0};
    packed p = packed_make(&batches[1], 2, 2, 3, BTHD, &problem_plans[0], &none, 1);
    packed_finish(&p, &problem_plans[0], &none, 1);
    p.terms.config.kernel = paths[_i];
    attn_sdpa_input *in = &p.terms.base.in, good = *in;
    static const struct {
        size_t offsets[4];
        const char *word;
    } wrong[] = {{{1, 3, 4, 9}, "[0] is 1"},
                 {{0, 4, 3, 9}, "[2] is 3, below 4"},
                 {{0, 3, 4, 8}, "end at 8, but there are 9"},
                 {{0, 3, 4, 10}, "end at 10, but there are 9"},
                 {{0, SIZE_MAX, 4, 9}, "[2] is 4, below"}};
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        in->offsets_q = wrong[n].offsets;
        refused(&p, ATTN_ERROR_ARGUMENT, wrong[n].word);
        in->offsets_q = good.offsets_q;
        in->offsets_k = wrong[n].offsets;
        refused(&p, ATTN_ERROR_ARGUMENT, wrong[n].word);
        *in = good;
    }
    in->offsets_q = NULL;
    refused(&p, ATTN_ERROR_ARGUMENT, "offsets_q is NULL");
    *in = good;
    in->offsets_k = NULL;
    refused(&p, ATTN_ERROR_ARGUMENT, "offsets_k is NULL");
    *in = good;
    const uint8_t padding[9] = {0};
    in->mask.padding = padding;
    refused(&p, ATTN_ERROR_ARGUMENT, "padding");
    *in = good;
    attn_real weights[100];
    p.terms.base.out.weights = weights;
    refused(&p, ATTN_ERROR_UNSUPPORTED, "weights");
    packed_free(&p);
}
END_TEST

/* No sequences, and sequences without tokens. */
START_TEST(empties) {
    static const lengths empty[] = {{0, {0}, {0}}, {2, {0, 0}, {0, 0}}, {2, {2, 0}, {0, 3}}};
    for (size_t n = 0; n < 3; n++) {
        const term_plan *plan = &problem_terms[13]; /* sinks */
        packed p = packed_make(&empty[n], 2, 1, 3, BTHD, &problem_plans[0], plan, n);
        packed_finish(&p, &problem_plans[0], plan, n);
        p.terms.config.kernel = paths[_i];
        char what[32];
        snprintf(what, sizeof what, "empty %zu", n);
        check(what, &p);
        packed_free(&p);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("sdpa_packed");
    TCase *all = tcase_create("packed");
    tcase_add_loop_test(all, under_masks, 0, 2);
    tcase_add_loop_test(all, with_terms, 0, 2);
    tcase_add_loop_test(all, nan_stays_in_its_sequence, 0, 2);
    tcase_add_loop_test(all, equals_padded, 0, 2);
    tcase_add_loop_test(all, threads_change_no_bit, 0, 2);
    tcase_add_loop_test(all, no_padding_is_held, 0, 2);
    tcase_add_loop_test(all, memory_of_any_gradients, 0, 2);
    tcase_add_loop_test(all, refusals, 0, 2);
    tcase_add_loop_test(all, empties, 0, 2);
    suite_add_tcase(s, all);
    return test_main(s);
}
