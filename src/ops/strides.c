#include "ops/strides.h"

#include "base/fail.h"
#include "base/size.h"

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

/* No two elements share a place if each axis, from the shortest stride to the longest, steps over
 * all that lies below it. */
bool attni_axes_overlap(attni_axis *axes, size_t count, size_t extent) {
    for (size_t n = 0; n < count; n++)
        if (axes[n].size == 0)
            return false;
    for (size_t pass = 1; pass < count; pass++)
        for (size_t n = 0; n + 1 < count; n++)
            if (axes[n].stride > axes[n + 1].stride) {
                attni_axis longer = axes[n];
                axes[n] = axes[n + 1];
                axes[n + 1] = longer;
            }
    for (size_t n = 0; n < count; n++) {
        if (axes[n].size > 1 && axes[n].stride < extent)
            return true;
        extent += (axes[n].size - 1) * axes[n].stride;
    }
    return false;
}

static bool overlaps(const attni_tensor *t, const attn_shape *shape) {
    return attni_axes_overlap((attni_axis[]){{t->len, t->strides.token},
                                             {shape->num_heads, t->strides.head},
                                             {shape->batch, t->strides.batch}},
                              3, shape->d_head);
}

attn_status attni_tensor_check(const char *function, const attni_tensor *t, const attn_shape *shape,
                               bool may_be_null) {
    const attn_strides *s = &t->strides;
    if (shape->batch * shape->num_heads == 0 || t->len == 0)
        return ATTN_OK;
    if (!t->data && !may_be_null)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: %s is NULL", function, t->name);
    if (s->element != 1)
        return attni_fail(ATTN_ERROR_UNSUPPORTED,
                          "%s: %s_strides.element is %zu; the numbers of a row must be "
                          "contiguous (1)",
                          function, t->name, s->element);
    if (t->len > 1 && s->token < shape->d_head)
        return attni_fail(ATTN_ERROR_UNSUPPORTED,
                          "%s: %s_strides.token %zu is below d_head %zu: rows overlap", function,
                          t->name, s->token, shape->d_head);
    size_t batch, head, token, end;
    if (!size_mul(&batch, shape->batch - 1, s->batch) ||
        !size_mul(&head, shape->num_heads - 1, s->head) ||
        !size_mul(&token, t->len - 1, s->token) || !size_add(&end, batch, head) ||
        !size_add(&end, end, token) || !size_add(&end, end, shape->d_head) ||
        !size_mul(&end, end, sizeof(real)))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "%s: %s_strides (%zu, %zu, %zu): the last element's place wraps",
                          function, t->name, s->batch, s->head, s->token);
    if (t->written && overlaps(t, shape))
        return attni_fail(ATTN_ERROR_SHAPE, "%s: %s_strides (%zu, %zu, %zu): elements overlap",
                          function, t->name, s->batch, s->head, s->token);
    return ATTN_OK;
}
