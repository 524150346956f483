#include "ops/fused_job.h"

#include "base/fail.h"
#include "ops/dropout.h"

#ifdef _OPENMP
#include <omp.h>
#endif

enum { CACHE_LINE = 64 }; /* scratch of two threads shares none */

/* Multiply-adds of one product: below the first number a parallel region costs more than it brings;
 * tasks below the second are small, and a thread gets at least so much. */
static const double SERIAL_WORK = 400e3;
static const double SMALL_WORK = 100e3;

/* A probability in (0, 1) leaves at least one word below p·2³², and at most all. */
static attni_fused_dropout dropout_of(const attni_sdpa *call, size_t b, size_t h) {
    if (!(call->dropout > 0))
        return (attni_fused_dropout){0};
    return (attni_fused_dropout){.on = true,
                                 .last = (uint32_t)(dropout_threshold(call->dropout) - 1),
                                 .head = (uint32_t)h,
                                 .sample = (uint32_t)b,
                                 .seed = call->input->dropout_seed,
                                 .factor = (real)(1 / (1 - call->dropout))};
}

attni_fused_head attni_fused_head_of(const attni_fused_job *j, const attni_head *of) {
    const attni_sdpa *call = j->call;
    const attn_sdpa_input *in = call->input;
    const attni_mask *mask = &of->mask;
    const attn_broadcast *attend = &mask->attend_strides;
    const size_t b = of->b, h = of->h;
    return (attni_fused_head){
        .len_q = of->shape.len_q,
        .len_k = of->shape.len_k,
        .d_head = of->shape.d_head,
        .scale = (real)call->scale,
        .query = rows_of(head_query(of, in->query, &in->query_strides)),
        .key = rows_of(head_key(of, in->key, &in->key_strides)),
        .value = rows_of(head_key(of, in->value, &in->value_strides)),
        .padding = mask->padding ? mask->padding + b * mask->padding_stride : NULL,
        .attend = mask->attend ? mask->attend + broadcast_row(attend, b, h, 0) : NULL,
        .attend_query = attend->query,
        .attend_key = attend->key,
        .low = low_bound(mask, &of->shape),
        .high = high_bound(mask, &of->shape),
        .place = mask->offset,
        .softcap = of->terms.softcap,
        .bias = of->terms.bias,
        .bias_query = of->terms.bias_query,
        .bias_key = of->terms.bias_key,
        .slope = of->terms.slope,
        .has_sink = of->sink != NULL,
        .sink = of->sink ? *of->sink : 0,
        .dropout = dropout_of(call, b, h),
        .context = rows_out(head_dquery(of, j->output->context, &j->output->context_strides)),
        .row_max = j->row_max ? j->row_max + of->row : NULL,
        .row_sum = j->row_sum ? j->row_sum + of->row : NULL,
    };
}

static void run_task(const attni_fused_job *j, size_t task, size_t slot) {
    j->task(j, task, j->scratch + slot * j->scratch_size);
}

/* Large tasks go to whoever is free. Small ones are shared out in order, so that the rows of a
 * sample stay with the thread that projected them (ops/gemm.c does likewise): fetching them from
 * another core's cache would take as long as the work. */
void attni_fused_run(const attni_fused_job *j) {
#ifdef _OPENMP
    if (j->slots > 1 && j->small) {
#pragma omp parallel for num_threads((int)j->slots) schedule(static)
        for (size_t task = 0; task < j->tasks; task++)
            run_task(j, task, (size_t)omp_get_thread_num());
        return;
    }
    if (j->slots > 1) {
#pragma omp parallel for num_threads((int)j->slots) schedule(dynamic, 1)
        for (size_t task = 0; task < j->tasks; task++)
            run_task(j, task, (size_t)omp_get_thread_num());
        return;
    }
#endif
    for (size_t task = 0; task < j->tasks; task++)
        run_task(j, task, 0);
}

/* The keys that a query sees at most, by position. */
static size_t keys_seen(const attni_sdpa *call) {
    const int64_t low = low_bound(&call->mask, &call->shape);
    return size_min((size_t)(high_bound(&call->mask, &call->shape) - low) + 1, call->shape.len_k);
}

/* Multiply-adds of one product of the whole call, as a double: it only steers. */
static double work_of(const attni_sdpa *call) {
    const double seen = (double)keys_seen(call) / (double)size_max(call->shape.len_k, 1);
    return (double)call->pairs * seen * (double)call->shape.d_head;
}

attn_status attni_fused_carve(attni_fused_job *j, size_t most, attn_arena *arena) {
    const double work = work_of(j->call);
    const size_t line = CACHE_LINE / sizeof(real);
    const double shares = work / SMALL_WORK;
    j->small = (double)j->tasks > shares;
    j->slots = size_min(most, j->call->threads);
    if (work < SERIAL_WORK || j->slots == 0)
        j->slots = 1;
    else if ((double)j->slots > shares)
        j->slots = (size_t)shares;
    j->scratch_size = size_div_up(j->scratch_size, line) * line;
    size_t total;
    if (!size_mul(&total, j->slots, j->scratch_size))
        return attni_fail(ATTN_ERROR_OVERFLOW, "scratch of %zu threads wraps", j->slots);
    void *scratch;
    ATTNI_TRY(attn_arena_alloc(arena, &scratch, total, sizeof(real)));
    j->scratch = scratch;
    j->slots = size_max(size_min(j->slots, j->tasks), 1);
    return ATTN_OK;
}
