#include "ops/rope.h"

#include "base/fail.h"
#include "base/size.h"
#include "kernels/kernels.h"
#include "ops/parallel.h"
#include "ops/strides.h"

#include <math.h>
#include <string.h>

/* Angles are worked out anew at every multiple of BLOCK and stepped from there: so a token has the
 * same bits whichever call it comes in, and an error adds up over no more than BLOCK - 1 steps. */
enum { BLOCK = 64 };

/* base^(-2m/d), the angle of pair m from one position to the next. */
static double frequency(double base, size_t pair, size_t d_head) {
    return pow(base, -2.0 * (double)pair / (double)d_head);
}

attn_status attni_rope_check(const char *function, const attn_rope_config *config, size_t len,
                             size_t d_head) {
    if (config->pairing != ATTN_ROPE_INTERLEAVED && config->pairing != ATTN_ROPE_HALF)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: rope %d is no pairing", function,
                          (int)config->pairing);
    if (!isfinite(config->base) || config->base < 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: rope_base %g is not finite and above 0",
                          function, config->base);
    if (d_head % 2 != 0)
        return attni_fail(ATTN_ERROR_SHAPE, "%s: rope turns pairs, but d_head %zu is odd", function,
                          d_head);
    if (len == 0 || d_head == 0)
        return ATTN_OK;
    if (len - 1 > INT64_MAX || config->position > INT64_MAX - (int64_t)(len - 1))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "%s: rope position %lld of the first of %zu tokens: the last one's wraps",
                          function, (long long)config->position, len);
    /* Frequencies run from 1 to that of the last pair, upwards where the base is below 1. */
    double fastest = fmax(1, frequency(rope_base(config->base), d_head / 2 - 1, d_head));
    double farthest =
        fmax(fabs((double)config->position), fabs((double)(config->position + (int64_t)(len - 1))));
    if (!isfinite(fastest * farthest))
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: rope_base %g: the angles are not finite",
                          function, config->base);
    return ATTN_OK;
}

/* Frequencies of some pairs, and their angles at one position. */
typedef struct pairs {
    double frequency[ATTNI_ROPE_PAIRS];
    attni_angles angles;
} pairs;

static pairs pairs_of(const attn_rope_config *config, size_t d_head, size_t first) {
    pairs p;
    attni_angles *a = &p.angles;
    a->first = first;
    a->count = size_min(ATTNI_ROPE_PAIRS, d_head / 2 - first);
    for (size_t m = 0; m < a->count; m++) {
        p.frequency[m] = frequency(rope_base(config->base), first + m, d_head);
        a->step_cosine[m] = cos(p.frequency[m]);
        a->step_sine[m] = sin(p.frequency[m]);
    }
    return p;
}

/* Places from the multiple of BLOCK at or below a position. */
static size_t place_in_block(int64_t position) {
    const int64_t place = position % BLOCK;
    return (size_t)(place < 0 ? place + BLOCK : place);
}

static void set_angles(pairs *p, int64_t position, const attni_kernels *kernels) {
    const size_t place = place_in_block(position);
    for (size_t m = 0; m < p->angles.count; m++) {
        const double angle = (double)(position - (int64_t)place) * p->frequency[m];
        p->angles.cosine[m] = cos(angle);
        p->angles.sine[m] = sin(angle);
    }
    kernels->rope(&(attni_turn){.rows = place}, &p->angles);
}

/* All rows of `turn`, the first at `position`, a block of positions at a time. */
static void turn_rows(const attni_turn *turn, const attn_rope_config *config, int64_t position) {
    const attni_kernels *kernels = attni_kernels_get();
    attni_turn block = *turn;
    block.interleaved = config->pairing == ATTN_ROPE_INTERLEAVED;
    for (size_t first = 0; first < turn->d_head / 2; first += ATTNI_ROPE_PAIRS) {
        pairs p = pairs_of(config, turn->d_head, first);
        block.x = turn->x;
        for (size_t t = 0; t < turn->rows; t += block.rows) {
            const int64_t at = position + (int64_t)t;
            block.rows = size_min(turn->rows - t, BLOCK - place_in_block(at));
            set_angles(&p, at, kernels);
            kernels->rope(&block, &p.angles);
            block.x += block.rows * block.row;
        }
    }
}

/* Sequences laid end to end: the one that row `row` is in, as its first row and one past its last.
 */
typedef struct span {
    size_t begin, end;
} span;

static span sequence_of(const attni_rope_rows *where, size_t row, size_t *sequence) {
    if (!where->offsets) {
        *sequence = row / where->len;
        return (span){*sequence * where->len, (*sequence + 1) * where->len};
    }
    size_t low = 0, high = where->sequences; /* offsets[low] <= row < offsets[high] */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (where->offsets[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    *sequence = low;
    return (span){where->offsets[low], where->offsets[low + 1]};
}

void attni_rope_turn(real *x, size_t row, size_t heads, size_t first, size_t end,
                     const attni_rope_rows *where, bool back) {
    const size_t d_head = where->d_head;
    while (first < end) {
        size_t sequence;
        const span in = sequence_of(where, first, &sequence);
        const size_t count = size_min(end, in.end) - first;
        int64_t position = where->config.position + (int64_t)(first - in.begin);
        if (where->keys)
            position += (int64_t)(where->keys[sequence + 1] - where->keys[sequence]) -
                        (int64_t)(in.end - in.begin);
        const attni_turn turn = {.x = x,
                                 .row = row,
                                 .head = d_head,
                                 .rows = count,
                                 .heads = heads,
                                 .d_head = d_head,
                                 .back = back};
        turn_rows(&turn, &where->config, position);
        x += count * row;
        first += count;
    }
}

/* A pair costs some 4 multiply-adds in each head, and its angle as much as 8 heads. */
static size_t work_of(size_t rows_in_task, size_t heads, size_t d_head) {
    return rows_in_task * (d_head / 2) * (4 * heads + 32);
}

void attni_rope_turn_all(real *x, size_t row, size_t heads, size_t count,
                         const attni_rope_rows *where, bool back, size_t max_threads) {
    enum { ROWS = 128 };
    const size_t tasks = size_div_up(count, ROWS);
    const int threads = threads_for(max_threads, tasks, work_of(ROWS, heads, where->d_head));
    (void)threads; /* without OpenMP */
#pragma omp parallel for schedule(static) num_threads(threads)
    for (size_t task = 0; task < tasks; task++)
        attni_rope_turn(x + task * ROWS * row, row, heads, task * ROWS,
                        size_min(count, (task + 1) * ROWS), where, back);
}

/* Tokens begin .. end - 1 of one sample. */
static void turn_tokens(real *y, const real *x, const attn_strides *s, const attn_shape *shape,
                        const attn_rope_config *config, size_t begin, size_t end, bool back) {
    const size_t at = begin * s->token;
    if (y != x)
        for (size_t h = 0; h < shape->num_heads; h++)
            for (size_t t = begin; t < end; t++)
                memcpy(y + h * s->head + t * s->token, x + h * s->head + t * s->token,
                       shape->d_head * sizeof *y);
    const attni_turn turn = {.x = y + at,
                             .row = s->token,
                             .head = s->head,
                             .rows = end - begin,
                             .heads = shape->num_heads,
                             .d_head = shape->d_head,
                             .back = back};
    turn_rows(&turn, config, config->position + (int64_t)begin);
}

void attni_rope_rotate(real *y, const real *x, const attn_strides *strides,
                       const attn_rope_config *config, const attn_shape *shape, size_t len,
                       bool back, size_t max_threads) {
    if (shape->batch * shape->num_heads == 0 || len == 0)
        return;
    const size_t blocks = size_div_up(len, BLOCK), tasks = shape->batch * blocks;
    const int threads =
        threads_for(max_threads, tasks, work_of(BLOCK, shape->num_heads, shape->d_head));
    (void)threads; /* without OpenMP */
#pragma omp parallel for schedule(static) num_threads(threads)
    for (size_t task = 0; task < tasks; task++) {
        const size_t at = task / blocks * strides->batch, begin = task % blocks * BLOCK;
        turn_tokens(y + at, x + at, strides, shape, config, begin, size_min(len, begin + BLOCK),
                    back);
    }
}

static attn_status check_call(const char *function, const attni_tensor *out, const attni_tensor *in,
                              const attn_rope_config *config, const attn_shape *shape) {
    size_t bytes;
    if (!config)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: config is NULL", function);
    ATTNI_TRY(attni_rope_check(function, config, out->len, shape->d_head));
    if (!size_product(
            &bytes,
            (size_t[]){shape->batch, shape->num_heads, out->len, shape->d_head, sizeof(real)}, 5))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "%s: batch %zu, num_heads %zu, len %zu, d_head %zu: the size wraps",
                          function, shape->batch, shape->num_heads, out->len, shape->d_head);
    if (bytes == 0)
        return ATTN_OK;
    ATTNI_TRY(attni_tensor_check(function, out, shape, false));
    return attni_tensor_check(function, in, shape, false);
}

/*
 * The pairs (x, y) of each row (d), by the angle a = (position + t)·base^(-2m/d), m = 0 .. d/2 - 1:
 *
 *     x' = x cos a - y sin a           dx = dx' cos a + dy' sin a
 *     y' = x sin a + y cos a           dy = dy' cos a - dx' sin a
 */
attn_status attn_rope_forward(attn_real *y, const attn_real *x, const attn_strides *strides,
                              const attn_rope_config *config, size_t batch, size_t num_heads,
                              size_t len, size_t d_head) {
    static const char function[] = "attn_rope_forward";
    const attn_shape shape = {.batch = batch, .num_heads = num_heads, .d_head = d_head};
    if (!strides)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: strides is NULL", function);
    ATTNI_TRY(check_call(function, &(attni_tensor){"y", y, *strides, len, true},
                         &(attni_tensor){"x", x, *strides, len, false}, config, &shape));
    if (d_head > 0)
        attni_rope_rotate(y, x, strides, config, &shape, len, false, 0);
    return ATTN_OK;
}

attn_status attn_rope_backward(attn_real *dx, const attn_real *dy, const attn_strides *strides,
                               const attn_rope_config *config, size_t batch, size_t num_heads,
                               size_t len, size_t d_head) {
    static const char function[] = "attn_rope_backward";
    const attn_shape shape = {.batch = batch, .num_heads = num_heads, .d_head = d_head};
    if (!strides)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: strides is NULL", function);
    ATTNI_TRY(check_call(function, &(attni_tensor){"dx", dx, *strides, len, true},
                         &(attni_tensor){"dy", dy, *strides, len, false}, config, &shape));
    if (d_head > 0)
        attni_rope_rotate(dx, dy, strides, config, &shape, len, true, 0);
    return ATTN_OK;
}
