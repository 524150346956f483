/* Decoding on several threads. A task is one key-value head of one sample, up to BLOCK_TOKENS of
 * its new tokens, and one of a few parts of the keys that they see; what the parts give is added up
 * in their order. Everything is cut by shape and lengths alone, so the bits do not depend on
 * threads:
 *
 *     m = max of m_i (and the sink),  l = sum of l_i exp(m_i - m) (+ exp(sink - m)),
 *     O = (sum of O_i exp(m_i - m)) / l
 */
#include "ops/decode.h"

#include "base/fail.h"
#include "base/size.h"
#include "kernels/kernels.h"
#include "ops/parallel.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK_TOKENS = 16,
    PART_KEYS = 1024,  /* a block of the kernel; shorter ones, */
    LEAST_KEYS = 256,  /* but not shorter than this, */
    LEAST_TASKS = 12,  /* only where there are fewer tasks, and longer ones */
    MOST_TASKS = 48,   /* where there are more */
    ALIGNED_KEYS = 64, /* whole vectors of scores, and then some */
    EXP_WORK = 64,     /* an exponential takes as long as so many multiply-adds */
    CACHE_LINE = 64    /* scratch of two threads shares none */
};

typedef struct job {
    const attni_decode *call;
    const attni_kernels *kernels;
    size_t group, width;         /* query heads of a task; reals of a row of `projected` */
    size_t blocks, block_rows;   /* of a sample's new tokens; rows (tokens and heads) of one */
    size_t places, parts, tasks; /* parts of each place at most */
    real *max, *sum, *context;   /* (tasks, block_rows), context also times d */
    real *scratch;
    size_t scratch_size, slots;
} job;

/* The place of a task: key-value head, block of tokens; the parts of one place follow each other.
 */
typedef struct place {
    size_t b, kv, first, tokens; /* tokens of the sample, from its new token `first` on */
    attni_range keys;            /* positions that some of them see */
} place;

static place place_of(const job *j, size_t number) {
    const attni_decode *call = j->call;
    place p = {.kv = number / j->blocks % call->num_kv_heads,
               .b = number / j->blocks / call->num_kv_heads,
               .first = number % j->blocks * BLOCK_TOKENS};
    const size_t count = call->counts[p.b], position = call->lengths[p.b] + p.first;
    if (p.first < count)
        p.tokens = size_min(count - p.first, BLOCK_TOKENS);
    p.keys.begin = position > call->left ? position - call->left : 0;
    p.keys.end = position + p.tokens;
    return p;
}

/* How many parts so many keys are cut into, where there are so many places. */
static size_t parts_for(size_t keys, size_t places) {
    const size_t large = size_min(size_div_up(keys, PART_KEYS), size_div_up(MOST_TASKS, places));
    const size_t small = size_min(size_div_up(keys, LEAST_KEYS), size_div_up(LEAST_TASKS, places));
    return size_max(size_max(large, small), 1);
}

static size_t parts_of(const job *j, const place *p) {
    return parts_for(p->keys.end - p->keys.begin, j->places);
}

/* Part `part` of `parts`; later ones may be empty. */
static attni_range part_of(const place *p, size_t part, size_t parts) {
    size_t size = size_div_up(p->keys.end - p->keys.begin, parts);
    size = size_div_up(size, ALIGNED_KEYS) * ALIGNED_KEYS;
    const size_t begin = size_min(p->keys.begin + part * size, p->keys.end);
    return (attni_range){begin, size_min(begin + size, p->keys.end)};
}

/* One part of a place. */
static void run_task(const job *j, const place *p, size_t number, size_t part, size_t parts,
                     real *scratch) {
    const attni_decode *call = j->call;
    const size_t d = call->d_head, task = number * j->parts + part;
    const attni_range keys = part_of(p, part, parts);
    const size_t cached = (p->b * call->num_kv_heads + p->kv) * call->capacity * d;
    const attni_decode_head head = {.d_head = d,
                                    .group = j->group,
                                    .tokens = p->tokens,
                                    .query = call->projected +
                                             (call->starts[p->b] + p->first) * j->width +
                                             p->kv * j->group * d,
                                    .query_token = j->width,
                                    .key = call->key + cached,
                                    .value = call->value + cached,
                                    .capacity = call->capacity,
                                    .position = call->lengths[p->b] + p->first,
                                    .left = call->left,
                                    .scale = (real)call->scale,
                                    .softcap = (real)call->softcap,
                                    .slopes = call->slopes ? call->slopes + p->kv * j->group : NULL,
                                    .max = j->max + task * j->block_rows,
                                    .sum = j->sum + task * j->block_rows,
                                    .context = j->context + task * j->block_rows * d};
    j->kernels->decode(&head, keys, scratch);
}

/* Pairs of tokens and keys. */
static double work_of(const place *p) {
    return (double)p->tokens * (double)(p->keys.end - p->keys.begin);
}

static double whole_work(const job *j) {
    double work = 0;
    for (size_t number = 0; number < j->places; number++) {
        const place p = place_of(j, number);
        work += work_of(&p);
    }
    return work;
}

/* The tasks whose middle lies in the share-th of `shares` equal parts of the work, in order: so
 * each thread reads the same keys as in the last call. Handed to whoever is free, they would wander
 * from one core's cache to another's, and decoding took half as long again. */
static void run_share(const job *j, double work, size_t share, size_t shares) {
    double before = 0;
    for (size_t number = 0; number < j->places; number++) {
        const place p = place_of(j, number);
        const size_t parts = parts_of(j, &p);
        const double each = work_of(&p) / (double)parts;
        for (size_t part = 0; part < parts && p.tokens > 0; part++) {
            const double middle = before + ((double)part + 0.5) * each;
            const size_t owner = (size_t)(middle / work * (double)shares);
            if (owner > share)
                return;
            if (owner == share)
                run_task(j, &p, number, part, parts, j->scratch + share * j->scratch_size);
        }
        before += work_of(&p);
    }
}

/* One row: query head `row` mod group of a token. */
static void merge_row(const job *j, const place *p, size_t number, size_t parts, size_t row) {
    const attni_decode *call = j->call;
    const size_t d = call->d_head, h = p->kv * j->group + row % j->group;
    const size_t token = call->starts[p->b] + p->first + row / j->group;
    const size_t first = number * j->parts * j->block_rows + row;
    real *context = call->context + (token * call->num_heads + h) * d;
    double factors[MOST_TASKS], top = call->sinks ? (double)call->sinks[h] : -INFINITY, sum;
    for (size_t part = 0; part < parts; part++)
        top = fmax(top, (double)j->max[first + part * j->block_rows]);
    if (top == -INFINITY)
        top = 0;
    sum = call->sinks ? exp((double)call->sinks[h] - top) : 0;
    for (size_t part = 0; part < parts; part++) {
        const size_t at = first + part * j->block_rows;
        factors[part] = exp((double)j->max[at] - top);
        sum += (double)j->sum[at] * factors[part];
    }
    memset(context, 0, d * sizeof *context);
    for (size_t part = 0; part < parts && sum != 0; part++) {
        const real *from = j->context + (first + part * j->block_rows) * d;
        const real factor = (real)(factors[part] / sum);
        for (size_t c = 0; c < d; c++)
            context[c] += factor * from[c];
    }
}

static void merge(const job *j, size_t number) {
    const place p = place_of(j, number);
    const size_t parts = parts_of(j, &p);
    for (size_t row = 0; row < p.tokens * j->group; row++)
        merge_row(j, &p, number, parts, row);
}

static void attend(const job *j) {
    const double work = whole_work(j);
#ifdef _OPENMP
    const double steps = work * (double)j->group * (double)j->call->d_head; /* multiply-adds */
    if (steps >= (double)PARALLEL_MIN_WORK && j->slots > 1) {
#pragma omp parallel num_threads((int)j->slots)
        run_share(j, work, thread_slot(), thread_count());
        return;
    }
#endif
    run_share(j, work, 0, 1);
}

/* Not in the same region: its barrier would cost more than most merging does. */
static void merge_all(const job *j) {
    const int threads = threads_for(j->call->max_threads, j->places,
                                    j->parts * j->block_rows * (j->call->d_head + EXP_WORK));
    if (threads > 1) {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (size_t number = 0; number < j->places; number++)
            merge(j, number);
    } else {
        for (size_t number = 0; number < j->places; number++)
            merge(j, number);
    }
}

/* The same for every length that the cache can have, so that the memory of a call is, too. False
 * where a size wraps. */
static bool cut(job *j) {
    const attni_decode *call = j->call;
    const size_t most_keys = size_min(call->capacity, size_add_capped(call->left, BLOCK_TOKENS));
    j->group = call->num_heads / call->num_kv_heads;
    j->width = (call->num_heads + 2 * call->num_kv_heads) * call->d_head;
    j->blocks = size_div_up(call->most, BLOCK_TOKENS);
    j->block_rows = size_min(call->most, BLOCK_TOKENS) * j->group;
    if (!size_product(&j->places, (size_t[]){call->batch, call->num_kv_heads, j->blocks}, 3))
        return false;
    j->parts = j->places > 0 ? parts_for(most_keys, j->places) : 1;
    return size_mul(&j->tasks, j->places, j->parts);
}

static attn_status carve(job *j, attn_arena *arena) {
    const size_t line = CACHE_LINE / sizeof(real);
    void *max, *sum, *context, *scratch;
    size_t statistics, contexts, total;
    j->slots = size_max(size_min(j->tasks, threads_resolve(j->call->max_threads)), 1);
    j->scratch_size = j->kernels->decode_scratch(j->call->d_head, j->block_rows);
    j->scratch_size = size_div_up(j->scratch_size, line) * line;
    if (!size_mul(&statistics, j->tasks, j->block_rows) ||
        !size_mul(&contexts, statistics, j->call->d_head) ||
        !size_mul(&total, j->slots, j->scratch_size))
        return attni_fail(ATTN_ERROR_OVERFLOW, "the partial sums of %zu tasks wrap", j->tasks);
    ATTNI_TRY(attn_arena_alloc(arena, &max, statistics, sizeof(real)));
    ATTNI_TRY(attn_arena_alloc(arena, &sum, statistics, sizeof(real)));
    ATTNI_TRY(attn_arena_alloc(arena, &context, contexts, sizeof(real)));
    ATTNI_TRY(attn_arena_alloc(arena, &scratch, total, sizeof(real)));
    j->max = max;
    j->sum = sum;
    j->context = context;
    j->scratch = scratch;
    return ATTN_OK;
}

attn_status attni_decode_attend(const attni_decode *call, attn_arena *arena) {
    job j = {.call = call, .kernels = attni_kernels_get()};
    const size_t mark = attn_arena_mark(arena);
    if (!cut(&j))
        return attni_fail(ATTN_ERROR_OVERFLOW, "batch %zu, %zu new tokens: the work wraps",
                          call->batch, call->most);
    attn_status status = carve(&j, arena);
    if (status == ATTN_OK && !arena->measuring) {
        attend(&j);
        merge_all(&j);
    }
    (void)attn_arena_rewind(arena, mark);
    return status;
}

static void write_head(const attni_decode *call, size_t b, size_t kv) {
    const size_t d = call->d_head, width = (call->num_heads + 2 * call->num_kv_heads) * d;
    const size_t cached = (b * call->num_kv_heads + kv) * call->capacity * d;
    for (size_t t = 0; t < call->counts[b]; t++) {
        const real *row = call->projected + (call->starts[b] + t) * width;
        const real *key = row + (call->num_heads + kv) * d, *value = key + call->num_kv_heads * d;
        const size_t at = cached + (call->lengths[b] + t) % call->capacity * d;
        memcpy(call->key + at, key, d * sizeof *key);
        memcpy(call->value + at, value, d * sizeof *value);
    }
}

/* A region of one thread is not free, and a token is written in no time. */
void attni_decode_write(const attni_decode *call) {
    const size_t heads = call->batch * call->num_kv_heads;
    const int threads = threads_for(call->max_threads, heads, 2 * call->most * call->d_head);
    if (threads > 1) {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (size_t head = 0; head < heads; head++)
            write_head(call, head / call->num_kv_heads, head % call->num_kv_heads);
    } else {
        for (size_t head = 0; head < heads; head++)
            write_head(call, head / call->num_kv_heads, head % call->num_kv_heads);
    }
}
