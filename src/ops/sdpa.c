#include <attn/sdpa.h>

#include "base/fail.h"
#include "base/size.h"
#include "ops/band_ops.h"
#include "ops/parallel.h"
#include "ops/sdpa_internal.h"

#include <math.h>

/* The paths by their kernel. */
static const struct path {
    attn_status (*forward)(const attni_sdpa *, const attn_sdpa_output *, attn_arena *,
                           attn_sdpa_saved *);
    attn_status (*backward)(const attni_sdpa *, const attn_sdpa_saved *, const real *,
                            const attn_strides *, const attn_sdpa_grads *, attn_arena *);
} paths[] = {
    [ATTN_KERNEL_REFERENCE] = {attni_reference_forward, attni_reference_backward},
    [ATTN_KERNEL_FUSED] = {attni_fused_forward, attni_fused_backward},
};

attn_strides attn_strides_bthd(size_t len, size_t num_heads, size_t d_head) {
    return (attn_strides){.batch = len * num_heads * d_head,
                          .head = d_head,
                          .token = num_heads * d_head,
                          .element = 1};
}

attn_strides attn_strides_bhtd(size_t len, size_t num_heads, size_t d_head) {
    return (attn_strides){
        .batch = num_heads * len * d_head, .head = len * d_head, .token = d_head, .element = 1};
}

/* A tensor (B,H,T,d) in the caller's memory. `name` begins its messages. */
typedef struct tensor {
    const char *name;
    const real *data;
    attn_strides strides;
    size_t len;
    bool written;
} tensor;

/* Whether two elements of a tensor share a place: not if each axis, from the shortest stride to the
 * longest, steps over all that lies below it. */
static bool overlaps(const tensor *t, const attn_shape *shape) {
    struct axis {
        size_t size, stride;
    } axes[3] = {{t->len, t->strides.token},
                 {shape->num_heads, t->strides.head},
                 {shape->batch, t->strides.batch}};
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t n = 0; n < 2; n++)
            if (axes[n].stride > axes[n + 1].stride) {
                struct axis longer = axes[n];
                axes[n] = axes[n + 1];
                axes[n + 1] = longer;
            }
    size_t extent = shape->d_head;
    for (size_t n = 0; n < 3; n++) {
        if (axes[n].size > 1 && axes[n].stride < extent)
            return true;
        extent += (axes[n].size - 1) * axes[n].stride;
    }
    return false;
}

static attn_status check_tensor(const tensor *t, const attn_shape *shape, bool may_be_null) {
    const attn_strides *s = &t->strides;
    if (shape->batch * shape->num_heads == 0 || t->len == 0)
        return ATTN_OK;
    if (!t->data && !may_be_null)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_sdpa: %s is NULL", t->name);
    if (s->element != 1)
        return attni_fail(ATTN_ERROR_UNSUPPORTED,
                          "attn_sdpa: %s_strides.element is %zu; the numbers of a row must be "
                          "contiguous (1)",
                          t->name, s->element);
    if (t->len > 1 && s->token < shape->d_head)
        return attni_fail(ATTN_ERROR_UNSUPPORTED,
                          "attn_sdpa: %s_strides.token %zu is below d_head %zu: rows overlap",
                          t->name, s->token, shape->d_head);
    size_t batch, head, token, end;
    if (!size_mul(&batch, shape->batch - 1, s->batch) ||
        !size_mul(&head, shape->num_heads - 1, s->head) ||
        !size_mul(&token, t->len - 1, s->token) || !size_add(&end, batch, head) ||
        !size_add(&end, end, token) || !size_add(&end, end, shape->d_head) ||
        !size_mul(&end, end, sizeof(real)))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "attn_sdpa: %s_strides (%zu, %zu, %zu): the last element's place wraps",
                          t->name, s->batch, s->head, s->token);
    if (t->written && overlaps(t, shape))
        return attni_fail(ATTN_ERROR_SHAPE,
                          "attn_sdpa: %s_strides (%zu, %zu, %zu): elements overlap", t->name,
                          s->batch, s->head, s->token);
    return ATTN_OK;
}

/* Checks and defaults of a call. When measuring, arrays need not exist. */
static attn_status resolve(attni_sdpa *call, const attn_sdpa_config *config,
                           const attn_sdpa_input *input, bool measuring) {
    const attn_shape *shape = &input->shape;
    ATTNI_TRY(attni_shape_check("attn_sdpa", shape));
    const tensor inputs[] = {
        {"query", input->query, input->query_strides, shape->len_q, false},
        {"key", input->key, input->key_strides, shape->len_k, false},
        {"value", input->value, input->value_strides, shape->len_k, false},
    };
    for (size_t n = 0; n < 3; n++)
        ATTNI_TRY(check_tensor(&inputs[n], shape, measuring));
    call->input = input;
    call->shape = *shape;
    call->scale = config->has_scale ? config->scale : attn_default_scale(shape->d_head);
    call->threads = threads_resolve(config->max_threads);
    if (!isfinite((real)call->scale))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_sdpa: scale %g is not finite", call->scale);
    return attni_mask_resolve(&call->mask, &input->mask, shape);
}

/* The path taken, *kernel, for the one that is asked for. */
static attn_status choose_kernel(attn_kernel *kernel, attn_kernel wanted,
                                 const attn_sdpa_output *output) {
    *kernel = wanted != ATTN_KERNEL_AUTO ? wanted
              : output->weights          ? ATTN_KERNEL_REFERENCE
                                         : ATTN_KERNEL_FUSED;
    if ((unsigned)wanted > ATTN_KERNEL_FUSED)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_sdpa: kernel %d is no kernel", (int)wanted);
    if (wanted == ATTN_KERNEL_FUSED && output->weights)
        return attni_fail(ATTN_ERROR_UNSUPPORTED,
                          "attn_sdpa: the fused kernel never holds the weights; ask for them with "
                          "kernel auto or reference");
    return ATTN_OK;
}

static attn_status refuse_null(const char *function, const char *argument) {
    return attni_fail(ATTN_ERROR_ARGUMENT, "%s: %s is NULL", function, argument);
}

attn_status attn_sdpa_forward(const attn_sdpa_config *config, const attn_sdpa_input *input,
                              const attn_sdpa_output *output, attn_arena *arena,
                              attn_sdpa_saved *saved) {
    if (!config || !input || !output || !arena)
        return refuse_null("attn_sdpa_forward", !config   ? "config"
                                                : !input  ? "input"
                                                : !output ? "output"
                                                          : "arena");
    attni_sdpa call;
    attn_kernel kernel;
    ATTNI_TRY(resolve(&call, config, input, arena->measuring));
    ATTNI_TRY(check_tensor(
        &(tensor){"context", output->context, output->context_strides, input->shape.len_q, true},
        &input->shape, arena->measuring));
    ATTNI_TRY(choose_kernel(&kernel, config->kernel, output));
    attn_sdpa_saved kept = {.input = *input, .output = *output, .kernel = kernel};
    size_t mark = attn_arena_mark(arena);
    attn_status status = paths[kernel].forward(&call, output, arena, saved ? &kept : NULL);
    if (status != ATTN_OK) {
        (void)attn_arena_rewind(arena, mark);
        return status;
    }
    if (saved)
        *saved = kept;
    return ATTN_OK;
}

/* Whether `saved` holds what its path needs. */
static attn_status check_saved(const attn_sdpa_config *config, const attn_sdpa_saved *saved,
                               bool measuring) {
    const attn_shape *s = &saved->input.shape;
    bool has_rows = s->batch > 0 && s->num_heads > 0 && s->len_q > 0;
    bool complete = measuring || !has_rows;
    if (saved->kernel == ATTN_KERNEL_REFERENCE)
        complete = complete || saved->weights || s->len_k == 0;
    else if (saved->kernel == ATTN_KERNEL_FUSED)
        complete = complete || (saved->row_max && saved->row_sum);
    else
        complete = false;
    if (!complete)
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "attn_sdpa_backward: saved was not filled by attn_sdpa_forward");
    if (config->kernel != ATTN_KERNEL_AUTO && config->kernel != saved->kernel)
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "attn_sdpa_backward: saved comes from kernel %d, config asks for %d",
                          (int)saved->kernel, (int)config->kernel);
    return ATTN_OK;
}

attn_status attn_sdpa_backward(const attn_sdpa_config *config, const attn_sdpa_saved *saved,
                               const attn_real *dcontext, const attn_strides *dcontext_strides,
                               const attn_sdpa_grads *grads, attn_arena *arena) {
    if (!config || !saved || !dcontext_strides || !grads || !arena)
        return refuse_null("attn_sdpa_backward", !config             ? "config"
                                                 : !saved            ? "saved"
                                                 : !dcontext_strides ? "dcontext_strides"
                                                 : !grads            ? "grads"
                                                                     : "arena");
    attni_sdpa call;
    const attn_shape *shape = &saved->input.shape;
    ATTNI_TRY(check_saved(config, saved, arena->measuring));
    ATTNI_TRY(resolve(&call, config, &saved->input, arena->measuring));
    ATTNI_TRY(check_tensor(&(tensor){"dcontext", dcontext, *dcontext_strides, shape->len_q, false},
                           shape, arena->measuring));
    const tensor outputs[] = {
        {"dquery", grads->query, grads->query_strides, shape->len_q, true},
        {"dkey", grads->key, grads->key_strides, shape->len_k, true},
        {"dvalue", grads->value, grads->value_strides, shape->len_k, true},
    };
    for (size_t n = 0; n < 3; n++)
        if (outputs[n].data)
            ATTNI_TRY(check_tensor(&outputs[n], shape, false));
    size_t mark = attn_arena_mark(arena);
    attn_status status =
        paths[saved->kernel].backward(&call, saved, dcontext, dcontext_strides, grads, arena);
    if (status != ATTN_OK)
        (void)attn_arena_rewind(arena, mark);
    return status;
}

attn_status attn_sdpa_memory(const attn_sdpa_config *config, const attn_sdpa_input *input,
                             const attn_sdpa_output *output, attn_memory *memory) {
    if (!memory || !input)
        return refuse_null("attn_sdpa_memory", memory ? "input" : "memory");
    const attn_shape *s = &input->shape;
    attn_arena training, inference;
    attn_sdpa_saved saved;
    ATTNI_TRY(attn_arena_init_measuring(&inference));
    ATTNI_TRY(attn_sdpa_forward(config, input, output, &inference, NULL));
    ATTNI_TRY(attn_arena_init_measuring(&training));
    ATTNI_TRY(attn_sdpa_forward(config, input, output, &training, &saved));
    size_t kept = training.used;
    /* The backward of the hungriest caller: it wants every gradient. */
    real any;
    attn_strides strides_q = attn_strides_bhtd(s->len_q, s->num_heads, s->d_head);
    attn_strides strides_k = attn_strides_bhtd(s->len_k, s->num_heads, s->d_head);
    attn_sdpa_grads grads = {&any, &any, &any, strides_q, strides_k, strides_k};
    ATTNI_TRY(attn_sdpa_backward(config, &saved, &any, &strides_q, &grads, &training));
    *memory = (attn_memory){
        .saved = kept, .training = training.high_water, .inference = inference.high_water};
    return ATTN_OK;
}
