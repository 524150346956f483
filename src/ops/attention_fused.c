/* The fused path: attention of all heads on several threads, tile by tile (kernels/fused.h).
 *
 * The work is cut by the shapes alone, and every sum is taken in an order that no thread can
 * change, so the results have the same bits for any number of threads.
 *
 * Forward: a task is one head and as many queries as share a pass over the keys. Where heads with
 * one query each share their keys, a task is all of them: they fill a tile together.
 *
 * Backward: dQ sums over the keys, dK and dV over the queries. Heads that share what they add to,
 * dK and dV of a group or the gradient of a bias, form a chain: they are done one after the other.
 * Where chains alone are too few, queries and keys of each head are cut into n ranges, and the n x
 * n blocks of pairs are done in n rounds, in each of which every range of queries and every range
 * of keys occurs once:
 *
 *                 keys 0   1   2   3
 *     queries 0        0   1   2   3        the round in which a block is done: (queries + keys)
 *             1        1   2   3   0        modulo n. The causal blocks, on and below the main
 *             2        2   3   0   1        diagonal, are spread evenly over the rounds.
 *             3        3   0   1   2
 *
 *     queries 0        0   3                the same under a window: (queries - keys) modulo n, for
 *             1        1   0   3            what is seen lies along the diagonal, and most of it is
 *             2            1   0   3        done in round 0. Rounds without a pair are left out.
 *             3                1   0
 *
 * A task is a chain and a range of keys. No two threads meet in a row, nothing has to be added up
 * afterwards, and no memory is needed. */
#include "ops/fused_job.h"

#include "base/fail.h"

#include <math.h>

enum {
    WANTED_TASKS = 16, /* cut heads further where there are fewer of them, */
    LEAST_PART = 256,  /* but not into ranges shorter than this */
};

typedef attni_fused_job job;

/* Whether the heads of a group are one head with as many queries: nothing tells them apart. */
static bool heads_fold(const attni_sdpa *call) {
    return call->shape.len_q == 1 && shape_group(&call->shape) > 1 && !call->alibi &&
           !call->input->sinks && !(call->dropout > 0) && !call->input->offsets_q;
}

/* From the first head of a group to that one head. All its queries stand at one place, so their
 * bounds are the ends of the keys. */
static void fold_group(attni_fused_head *head, const attni_sdpa *call,
                       const attn_sdpa_output *output) {
    const size_t begin = head->low > 0 ? (size_t)head->low : 0;
    const size_t end = head->high < 0 ? 0 : size_min((size_t)head->high + 1, head->len_k);
    head->len_q = shape_group(&call->shape);
    head->len_k = end > begin ? end - begin : 0;
    head->low = -(int64_t)head->len_q;
    head->high = (int64_t)head->len_k;
    head->query.stride = call->input->query_strides.head;
    head->context.stride = output->context_strides.head;
    head->attend_query = call->mask.attend_strides.head;
    head->bias_query = call->input->bias_strides.head;
    if (head->len_k == 0)
        return;
    head->key.at += begin * head->key.stride;
    head->value.at += begin * head->value.stride;
    if (head->padding)
        head->padding += begin;
    if (head->attend)
        head->attend += begin * head->attend_key;
    if (head->bias)
        head->bias += begin * head->bias_key;
}

static void folded_task(const attni_fused_job *j, size_t task, real *scratch) {
    const attni_head of = head_at(j->call, task * shape_group(&j->call->shape));
    attni_fused_head head = attni_fused_head_of(j, &of);
    fold_group(&head, j->call, j->output);
    j->kernels->fused_forward(&head, (attni_range){0, head.len_q}, scratch);
}

/* Later queries see more keys under causality: they come first, so that the last tasks are short.
 */
static void forward_task(const job *j, size_t task, real *scratch) {
    const size_t part = j->parts - 1 - task % j->parts;
    const attni_head of = head_at(j->call, task / j->parts);
    const attni_fused_head head = attni_fused_head_of(j, &of);
    j->kernels->fused_forward(&head, part_of(part, j->parts, 0, j->part_q, head.len_q), scratch);
}

static attni_range keys_of_part(const job *j, size_t part, const attn_shape *shape) {
    return part_of(part, j->parts, j->first_k, j->part_k, shape->len_k);
}

/* The queries that meet a part of the keys in this round. */
static attni_range queries_of_part(const job *j, size_t part_k, const attn_shape *shape) {
    const size_t part = (j->round + (j->banded ? part_k : j->parts - part_k)) % j->parts;
    return part_of(part, j->parts, j->first_q, j->part_q, shape->len_q);
}

/* Where strides are 0 there is one element for all. */
static void zero_dbias(const job *j, size_t b, size_t h, attni_range queries, attni_range keys) {
    const attn_broadcast *s = &j->call->input->bias_strides;
    const size_t end_q = s->query ? queries.end : 1, end_k = s->key ? keys.end : 1;
    for (size_t i = s->query ? queries.begin : 0; i < end_q; i++) {
        real *row = j->grads->bias + b * s->batch + h * s->head + i * s->query;
        for (size_t k = s->key ? keys.begin : 0; k < end_k; k++)
            row[k * s->key] = 0;
    }
}

/* Of a call without a head, whose bias may have some yet. */
static void zero_all_dbias(const job *j) {
    const attn_broadcast *s = &j->call->input->bias_strides;
    const attn_shape *shape = &j->call->shape;
    for (size_t b = 0; b < (s->batch ? shape->batch : 1); b++)
        for (size_t h = 0; h < (s->head ? shape->num_heads : 1); h++)
            zero_dbias(j, b, h, (attni_range){0, shape->len_q}, (attni_range){0, shape->len_k});
}

/* Before the first block of a chain: what only this task adds to, in this round and the later ones.
 */
static void open_dbias(const job *j, size_t b, size_t h, size_t part_k) {
    const attn_broadcast *s = &j->call->input->bias_strides;
    const attn_shape *shape = &j->call->shape;
    const bool first = (s->batch || b == 0) && (s->head || h == 0);
    if (!j->grads->bias || j->round > 0 || !first)
        return;
    if (s->key)
        zero_dbias(j, b, h, (attni_range){0, shape->len_q}, keys_of_part(j, part_k, shape));
    else
        zero_dbias(j, b, h, queries_of_part(j, part_k, shape), (attni_range){0, 1});
}

/* What one head contributes to the gradients in this round. */
static void backward_block(const job *j, size_t b, size_t h, size_t part_k, real *scratch) {
    const size_t index = b * j->call->shape.num_heads + h;
    const attni_head of = head_at(j->call, index);
    const attni_fused_head head = attni_fused_head_of(j, &of);
    const attn_broadcast *bias = &j->call->input->bias_strides;
    const attni_fused_grads grads = {
        .dcontext = rows_of(head_query(&of, j->dcontext, &j->dcontext_strides)),
        .dquery = rows_out(head_dquery(&of, j->grads->query, &j->grads->query_strides)),
        .dkey = rows_out(head_dkey(&of, j->grads->key, &j->grads->key_strides)),
        .dvalue = rows_out(head_dkey(&of, j->grads->value, &j->grads->value_strides)),
        .add_queries = j->round > 0,
        .add_keys = j->round > 0 || h % shape_group(&of.shape) > 0,
        .dbias = j->grads->bias ? j->grads->bias + broadcast_row(bias, b, h, 0) : NULL,
        .dslope = j->dslopes ? j->dslopes + index * j->parts + part_k : NULL,
    };
    open_dbias(j, b, h, part_k);
    j->kernels->fused_backward(&head, &grads, queries_of_part(j, part_k, &of.shape),
                               keys_of_part(j, part_k, &of.shape), scratch);
}

static void backward_task(const job *j, size_t task, real *scratch) {
    const size_t chain = task / j->parts, part_k = task % j->parts;
    const size_t chains = j->call->shape.num_heads / j->chain_heads; /* of the same samples */
    const size_t first_b = chain / chains * j->chain_samples;
    const size_t first_h = chain % chains * j->chain_heads;
    for (size_t b = first_b; b < first_b + j->chain_samples; b++)
        for (size_t h = first_h; h < first_h + j->chain_heads; h++)
            backward_block(j, b, h, part_k, scratch);
}

static void weights_task(const job *j, size_t task, real *scratch) {
    const attn_shape *shape = &j->call->shape;
    const attni_head of = head_at(j->call, j->first_head + task / j->parts);
    const attni_fused_head head = attni_fused_head_of(j, &of);
    j->kernels->fused_weights(&head, part_of(task % j->parts, j->parts, 0, j->part_q, head.len_q),
                              j->weights + task / j->parts * shape->len_q * shape->len_k, scratch);
}

/* lse = m + log l, with m brought back to where the scores of a row outside of the keys are. */
static void write_lse(const job *j, real *lse) {
    const attn_shape *shape = &j->call->shape;
    for (size_t index = 0; index < shape->batch * shape->num_heads; index++) {
        const attni_head of = head_at(j->call, index);
        const attni_fused_head head = attni_fused_head_of(j, &of);
        for (size_t i = 0; i < head.len_q; i++)
            lse[of.row + i] = (real)((double)head.row_max[i] + log((double)head.row_sum[i]) -
                                     (double)head.slope * attni_fused_outside(&head, i));
    }
}

/* Over samples and parts, always in the same order. */
static void sum_dslopes(const job *j) {
    const attn_shape *shape = &j->call->shape;
    for (size_t h = 0; h < shape->num_heads; h++) {
        double sum = 0;
        for (size_t b = 0; b < shape->batch; b++)
            for (size_t part = 0; part < j->parts; part++)
                sum += j->dslopes[(b * shape->num_heads + h) * j->parts + part];
        j->grads->alibi_slopes[h] = (real)sum;
    }
}

/* D = dO · O of one row; 0 where O is: dO of a row that sees no key is not read. */
static double row_delta(const real *context, const real *dcontext, size_t d) {
    double sum = 0;
    for (size_t c = 0; c < d; c++)
        if (context[c] != 0)
            sum += (double)context[c] * (double)dcontext[c];
    return sum;
}

/* dsink_h = -sum over b, i of p D, where p = exp(sink - m) / l is the sink's weight. */
static real sink_gradient(const job *j, size_t h) {
    const attn_shape *shape = &j->call->shape;
    double sum = 0;
    for (size_t b = 0; b < shape->batch; b++) {
        const attni_head of = head_at(j->call, b * shape->num_heads + h);
        const attni_fused_head head = attni_fused_head_of(j, &of);
        const attni_rows dcontext = rows_of(head_query(&of, j->dcontext, &j->dcontext_strides));
        for (size_t i = 0; i < head.len_q && head.sink != -(real)INFINITY; i++) {
            const double above = (double)head.sink - (double)head.row_max[i];
            sum -= exp(above) / (double)head.row_sum[i] *
                   row_delta(head.context.at + i * head.context.stride,
                             dcontext.at + i * dcontext.stride, shape->d_head);
        }
    }
    return (real)sum;
}

static void sink_gradients(const job *j) {
#pragma omp parallel for num_threads((int)j->slots) schedule(static)
    for (size_t h = 0; h < j->call->shape.num_heads; h++)
        j->grads->sinks[h] = sink_gradient(j, h);
}

static attn_status carve_statistics(job *j, attn_arena *arena, size_t rows) {
    void *row_max, *row_sum;
    ATTNI_TRY(attn_arena_alloc(arena, &row_max, rows, sizeof(real)));
    ATTNI_TRY(attn_arena_alloc(arena, &row_sum, rows, sizeof(real)));
    j->row_max = row_max;
    j->row_sum = row_sum;
    return ATTN_OK;
}

attn_status attni_fused_forward(const attni_sdpa *call, const attn_sdpa_output *output,
                                attn_arena *arena, attn_sdpa_saved *saved) {
    const attn_shape *shape = &call->shape;
    job j = {.call = call, .kernels = attni_kernels_get(), .task = forward_task, .output = output};
    j.part_q = j.kernels->fused_queries_per_pass(shape->d_head);
    j.parts = size_div_up(shape->len_q, j.part_q);
    j.tasks = shape->batch * shape->num_heads * j.parts;
    if (heads_fold(call)) {
        j.task = folded_task;
        j.tasks = shape->batch * shape_kv_heads(shape);
    }
    j.scratch_size = j.kernels->fused_forward_scratch(shape->d_head);

    const size_t start = attn_arena_mark(arena);
    attn_status status = ATTN_OK;
    if (saved || output->lse)
        status = carve_statistics(&j, arena, call->rows);
    const size_t kept = saved ? attn_arena_mark(arena) : start;
    if (status == ATTN_OK)
        status = attni_fused_carve(&j, j.tasks, arena);
    if (status != ATTN_OK) {
        attn_arena_rewind(arena, start);
        return status;
    }
    if (!arena->measuring) {
        attni_fused_run(&j);
        if (output->lse)
            write_lse(&j, output->lse);
        if (saved) {
            saved->row_max = j.row_max;
            saved->row_sum = j.row_sum;
        }
    }
    return attn_arena_rewind(arena, kept);
}

attn_status attni_fused_weights(const attni_sdpa *call, const attn_sdpa_saved *saved, size_t head,
                                real *weights, attn_arena *arena) {
    const attn_shape *shape = &call->shape;
    const bool all = head == ATTN_ALL_HEADS;
    job j = {.call = call,
             .kernels = attni_kernels_get(),
             .task = weights_task,
             .output = &saved->output,
             .row_max = saved->row_max,
             .row_sum = saved->row_sum,
             .weights = weights,
             .first_head = all ? 0 : head};
    j.part_q = j.kernels->fused_queries_per_pass(shape->d_head);
    j.parts = size_div_up(shape->len_q, j.part_q);
    j.tasks = (all ? shape->batch * shape->num_heads : 1) * j.parts;
    j.scratch_size = j.kernels->fused_weights_scratch(shape->d_head);
    const size_t mark = attn_arena_mark(arena);
    ATTNI_TRY(attni_fused_carve(&j, j.tasks, arena));
    if (!arena->measuring)
        attni_fused_run(&j);
    return attn_arena_rewind(arena, mark);
}

/* The tokens of `len` that can see one of `others` tokens, which stand from i + low to i + high. */
static attni_range tokens_seen(size_t len, size_t others, int64_t low, int64_t high) {
    const int64_t begin = -high, end = (int64_t)others - low;
    const size_t last = end < 0 ? 0 : size_min((size_t)end, len);
    return (attni_range){begin < 0 ? 0 : size_min((size_t)begin, last), last};
}

/* Chains, and how their heads are cut, if the gradient of the bias is wanted or not. */
static void cut_backward(job *j, bool dbias) {
    const attn_shape *shape = &j->call->shape;
    const attn_broadcast *bias = &j->call->input->bias_strides;
    j->chain_samples = dbias && bias->batch == 0 ? shape->batch : 1;
    j->chain_heads = dbias && bias->head == 0 ? shape->num_heads : shape_group(shape);
    const bool any = shape->batch > 0 && shape->num_heads > 0;
    const size_t chains =
        any ? shape->batch / j->chain_samples * (shape->num_heads / j->chain_heads) : 0;

    const size_t tile_q = j->kernels->fused_query_tile, tile_k = j->kernels->fused_key_tile;
    const int64_t low = low_bound(&j->call->mask, shape), high = high_bound(&j->call->mask, shape);
    attni_range queries = tokens_seen(shape->len_q, shape->len_k, low, high);
    attni_range keys = tokens_seen(shape->len_k, shape->len_q, -high, -low);
    if (j->call->input->offsets_q) { /* each sequence has bounds of its own */
        queries = (attni_range){0, shape->len_q};
        keys = (attni_range){0, shape->len_k};
    }
    const size_t len = size_min(queries.end - queries.begin, keys.end - keys.begin);
    j->banded =
        j->call->mask.window.left_on && (j->call->mask.causal || j->call->mask.window.right_on);
    j->parts = chains > 0 ? size_min(size_div_up(WANTED_TASKS, chains), len / LEAST_PART) : 1;
    if (j->parts == 0 || (dbias && bias->query == 0 && bias->key == 0))
        j->parts = 1; /* blocks would share one element of the bias */
    j->first_q = queries.begin;
    j->first_k = keys.begin / tile_k * tile_k;
    j->part_q = size_div_up(size_div_up(queries.end - j->first_q, j->parts), tile_q) * tile_q;
    j->part_k = size_div_up(size_div_up(keys.end - j->first_k, j->parts), tile_k) * tile_k;
    j->tasks = chains * j->parts;
}

/* Whether some block of a round holds a pair. All of the first is done: it writes the zeros. */
static bool round_is_needed(const job *j) {
    const attni_mask *mask = &j->call->mask;
    const attn_shape *shape = &j->call->shape;
    const int64_t low = low_bound(mask, shape), high = high_bound(mask, shape);
    if (j->call->input->offsets_q)
        return true;
    for (size_t part = 0; part < j->parts; part++) {
        const attni_range queries = queries_of_part(j, part, shape);
        const attni_range keys = keys_of_part(j, part, shape);
        if ((int64_t)keys.begin < (int64_t)queries.end + high &&
            (int64_t)keys.end > (int64_t)queries.begin + low)
            return true;
    }
    return j->round == 0;
}

/* A cell for each head and part, all 0. */
static attn_status carve_dslopes(job *j, size_t most_parts, attn_arena *arena) {
    const size_t cells = j->call->shape.batch * j->call->shape.num_heads * most_parts;
    void *dslopes;
    ATTNI_TRY(attn_arena_alloc(arena, &dslopes, cells, sizeof(double)));
    j->dslopes = dslopes;
    for (size_t n = 0; n < cells && !arena->measuring; n++)
        j->dslopes[n] = 0;
    return ATTN_OK;
}

attn_status attni_fused_backward(const attni_sdpa *call, const attn_sdpa_saved *saved,
                                 const real *dcontext, const attn_strides *dcontext_strides,
                                 const attn_sdpa_grads *grads, attn_arena *arena) {
    job j = {.call = call,
             .kernels = attni_kernels_get(),
             .task = backward_task,
             .output = &saved->output,
             .grads = grads,
             .dcontext = dcontext,
             .dcontext_strides = *dcontext_strides,
             .row_max = saved->row_max,
             .row_sum = saved->row_sum};
    j.scratch_size = j.kernels->fused_backward_scratch(call->shape.d_head);
    /* The memory of a call is enough for any gradients. */
    cut_backward(&j, call->input->bias != NULL);
    size_t most_tasks = j.tasks, most_parts = j.parts;
    cut_backward(&j, false);
    most_tasks = size_max(most_tasks, j.tasks);
    most_parts = size_max(most_parts, j.parts);
    cut_backward(&j, grads->bias != NULL);

    const size_t mark = attn_arena_mark(arena);
    if (grads->alibi_slopes)
        ATTNI_TRY(carve_dslopes(&j, most_parts, arena));
    ATTNI_TRY(attni_fused_carve(&j, most_tasks, arena));
    if (!arena->measuring) {
        if (grads->bias && j.tasks == 0)
            zero_all_dbias(&j);
        for (j.round = 0; j.round < j.parts; j.round++)
            if (round_is_needed(&j))
                attni_fused_run(&j);
        if (j.dslopes)
            sum_dslopes(&j);
        if (grads->sinks)
            sink_gradients(&j);
    }
    return attn_arena_rewind(arena, mark);
}
