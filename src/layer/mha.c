#include "layer/mha_call.h"

#include "base/dry_run.h"
#include "base/size.h"
#include "layer/projections.h"
#include "ops/linear_products.h"
#include "ops/sdpa_internal.h"

/* Stands for an array while an arena only counts: not NULL, which would mean not wanted, and never
 * followed. */
static const real nowhere;

/* Carves n reals. A measuring arena has no addresses. */
static attn_status carve(attn_arena *arena, real **array, size_t n) {
    void *object;
    ATTNI_TRY(attn_arena_alloc(arena, &object, n, sizeof(real)));
    *array = object ? object : (real *)&nowhere;
    return ATTN_OK;
}

/* Rows of q, of k and v. In self-attention the three lie side by side in the rows of one array;
 * keys that were projected beforehand are the caller's. */
static attn_status carve_projected(const attni_mha *call, attni_projected *p, attn_arena *arena) {
    ATTNI_TRY(carve(arena, &p->q, call->rows_q * call->row_q));
    if (call->given)
        return ATTN_OK;
    if (call->self) {
        p->k = arena->measuring ? p->q : p->q + call->d_inner;
        p->v = arena->measuring ? p->q : p->k + call->d_kv;
        return ATTN_OK;
    }
    ATTNI_TRY(carve(arena, &p->k, call->rows_k * call->d_kv));
    return carve(arena, &p->v, call->rows_k * call->d_kv);
}

/* (B,L,H·d), rows `row` reals apart, read as (B,L,H,d) without moving a number. */
static attn_strides strides_of(size_t len, size_t row, size_t d_head) {
    return (attn_strides){.batch = len * row, .head = d_head, .token = row, .element = 1};
}

/* The core's view of the projected arrays and of the caller's wishes. */
static attn_sdpa_input core_input(const attni_mha *call, const attn_mha_params *w,
                                  const attn_mha_saved *saved) {
    const attn_shape *s = &call->shape;
    const attn_strides strides_k = strides_of(s->len_k, call->row_k, s->d_head);
    return (attn_sdpa_input){.shape = *s,
                             .query = saved->q,
                             .key = saved->k,
                             .value = saved->v,
                             .query_strides = strides_of(s->len_q, call->row_q, s->d_head),
                             .key_strides = strides_k,
                             .value_strides = strides_k,
                             .mask = saved->input.mask,
                             .bias = saved->input.bias,
                             .bias_strides = saved->input.bias_strides,
                             .alibi_slopes = !call->learned_slopes ? NULL
                                             : w                   ? w->alibi_slopes
                                                                   : &nowhere,
                             .sinks = !call->sinks ? NULL
                                      : w          ? w->sinks
                                                   : &nowhere,
                             .dropout_seed = saved->input.dropout_seed,
                             .offsets_q = saved->input.offsets_q,
                             .offsets_k =
                                 call->self ? saved->input.offsets_q : saved->input.offsets_k};
}

/*
 * Forward, with x_k = x_v = x_q in self-attention, where q, k and v lie side by side in each row:
 *
 *     q = x_q Wqᵀ + bq      (B,Lq,D) (D,H·d) -> (B,Lq,H·d)  =  (B,Lq,H,d)
 *     k = x_k Wkᵀ + bk      (B,Lk,D) (D,Hkv·d) -> (B,Lk,Hkv·d)  =  (B,Lk,Hkv,d)
 *     v = x_v Wvᵀ + bv      (B,Lk,D) (D,Hkv·d) -> (B,Lk,Hkv·d)  =  (B,Lk,Hkv,d)
 *     q, k turned by their positions, with rope
 *     O = core(q, k, v)     per head (Lq,d), (Lk,d), (Lk,d)  -> (B,Lq,H,d)  =  (B,Lq,H·d)
 *     y = O Woᵀ + bo        (B,Lq,H·d) (H·d,D) -> (B,Lq,D)
 */
static attn_status forward(const attni_mha *call, const attn_mha_params *w,
                           const attn_mha_input *input, real *y, attn_arena *arena,
                           attn_mha_saved *saved, bool keep) {
    const size_t rows = call->rows_q, d = call->d_inner;
    attni_projected p = {0};
    ATTNI_TRY(carve_projected(call, &p, arena));
    ATTNI_TRY(carve(arena, &saved->context, rows * d));
    saved->input = *input;
    saved->q = p.q;
    saved->k = call->given ? input->projected_key : p.k;
    saved->v = call->given ? input->projected_value : p.v;

    if (!arena->measuring)
        attni_project(call, &p, w, input);

    attn_sdpa_input in = core_input(call, w, saved);
    attn_sdpa_output out = {
        .context = saved->context,
        .context_strides = attn_strides_bthd(in.shape.len_q, in.shape.num_heads, in.shape.d_head),
        .weights = input->weights,
        .lse = input->lse};
    ATTNI_TRY(attn_sdpa_forward(&call->core, &in, &out, arena, keep ? &saved->core : NULL));

    if (!arena->measuring) {
        attni_product output =
            linear_product_y(y, saved->context, w->wo, w->bo, rows, d, call->d_model);
        attni_gemm_parallel(&output, 1, call->core.max_threads);
    }
    return ATTN_OK;
}

/*
 * Backward, the forward's steps undone in reverse order:
 *
 *     dO   = dY Wo          (B,Lq,D) (D,H·d) -> (B,Lq,H·d)
 *     dWo += dYᵀ O          dbo += sum of dY
 *     dq, dk, dv = core's backward of dO, each shaped like q, k, v; so are dbias and, added to
 *                  what is there, dsinks (H) and dslopes (H)
 *     dq, dk turned back by the same angles, with rope
 *     dWq += dqᵀ x_q        dbq += sum of dq        dx_q = dq Wq      (B,Lq,H·d) (H·d,D)
 *     dWk += dkᵀ x_k        dbk += sum of dk        dx_k = dk Wk
 *     dWv += dvᵀ x_v        dbv += sum of dv        dx_v = dv Wv
 *
 * and in self-attention, where one x went three ways, dx = dq Wq + dk Wk + dv Wv.
 */
static void output_backward(const attni_mha *call, const attn_mha_params *w,
                            const attn_mha_saved *saved, const real *dy, const attn_mha_params *dw,
                            real *dcontext) {
    size_t rows = call->rows_q, d_in = call->d_inner, d_out = call->d_model, count = 0;
    attni_product products[3];
    products[count++] = linear_product_dx(dcontext, dy, w->wo, rows, d_in, d_out);
    if (dw && dw->wo)
        products[count++] = linear_product_dw(dw->wo, dy, saved->context, rows, d_in, d_out);
    if (dw && dw->bo)
        products[count++] = linear_product_db(dw->bo, dy, rows, d_out);
    attni_gemm_parallel(products, count, call->core.max_threads);
}

/* The core overwrites the gradients of sinks and slopes, the layer adds: H reals of scratch each.
 */
static attn_status carve_vectors(const attni_mha *call, const attn_mha_params *dw,
                                 attn_sdpa_grads *g, attn_arena *arena) {
    if (call->sinks && dw && dw->sinks)
        ATTNI_TRY(carve(arena, &g->sinks, call->shape.num_heads));
    if (call->learned_slopes && dw && dw->alibi_slopes)
        ATTNI_TRY(carve(arena, &g->alibi_slopes, call->shape.num_heads));
    return ATTN_OK;
}

static void add_vectors(const attni_mha *call, const attn_mha_params *dw,
                        const attn_sdpa_grads *g) {
    for (size_t h = 0; h < call->shape.num_heads; h++) {
        if (g->sinks)
            dw->sinks[h] += g->sinks[h];
        if (g->alibi_slopes)
            dw->alibi_slopes[h] += g->alibi_slopes[h];
    }
}

/* Gradients of q, k and v: those that an input's or a parameter's gradient comes from. */
static attn_status carve_wanted(const attni_mha *call, attni_projected *p,
                                const attn_mha_params *dw, const attn_mha_input_grads *dx,
                                attn_arena *arena) {
    const real *dk = call->given ? dx->projected_key : dx->key;
    const real *dv = call->given ? dx->projected_value : dx->value;
    if ((dw && !call->given) || (call->self && dx->query))
        return carve_projected(call, p, arena);
    if (dw || dx->query)
        ATTNI_TRY(carve(arena, &p->q, call->rows_q * call->d_inner));
    if (dk)
        ATTNI_TRY(carve(arena, &p->k, call->rows_k * call->d_kv));
    if (dv)
        ATTNI_TRY(carve(arena, &p->v, call->rows_k * call->d_kv));
    return ATTN_OK;
}

/* Gradients of keys and values that were projected beforehand end here. */
static void hand_back(const attni_mha *call, attni_projected *p, const attn_mha_input_grads *dx) {
    const size_t n = call->rows_k * call->d_kv;
    for (size_t i = 0; p->k && i < n; i++)
        dx->projected_key[i] += p->k[i];
    for (size_t i = 0; p->v && i < n; i++)
        dx->projected_value[i] += p->v[i];
    p->k = p->v = NULL;
}

static attn_status backward(const attni_mha *call, const attn_mha_params *w,
                            const attn_mha_saved *saved, const real *dy, const attn_mha_params *dw,
                            const attn_mha_input_grads *dx, attn_arena *arena) {
    const attn_sdpa_input *in = &saved->core.input;
    attn_sdpa_grads grads = {.query_strides = in->query_strides,
                             .key_strides = in->key_strides,
                             .value_strides = in->value_strides,
                             .bias = dx->bias};
    attni_projected p = {0};
    real *dcontext;
    ATTNI_TRY(carve_vectors(call, dw, &grads, arena));
    ATTNI_TRY(carve(arena, &dcontext, call->rows_q * call->d_inner));
    ATTNI_TRY(carve_wanted(call, &p, dw, dx, arena));
    grads.query = p.q;
    grads.key = p.k;
    grads.value = p.v;

    if (!arena->measuring)
        output_backward(call, w, saved, dy, dw, dcontext);
    ATTNI_TRY(attn_sdpa_backward(&call->core, &saved->core, dcontext,
                                 &saved->core.output.context_strides, &grads, arena));
    if (!arena->measuring) {
        if (call->given)
            hand_back(call, &p, dx);
        attni_project_back(call, &p, w, &saved->input, dw, dx);
        add_vectors(call, dw, &grads);
    }
    return ATTN_OK;
}

attn_status attn_mha_forward(const attn_mha_config *config, const attn_mha_params *params,
                             const attn_mha_input *input, attn_real *y, attn_arena *arena,
                             attn_mha_saved *saved) {
    attni_mha call;
    attn_mha_saved kept = {0};
    bool keep = saved != NULL;
    if (!arena)
        return attni_fail(ATTN_ERROR_ARGUMENT, "arena is NULL");
    ATTNI_TRY(attni_mha_resolve(&call, config, input));
    if (!arena->measuring) {
        attn_arena dry;
        ATTNI_TRY(attni_mha_check_forward(&call, params, input, y));
        ATTNI_TRY(attn_arena_init_measuring(&dry));
        ATTNI_TRY(forward(&call, params, input, y, &dry, &kept, keep));
        ATTNI_TRY(dry_run_fits(&dry, arena));
    }
    size_t mark = attn_arena_mark(arena);
    attn_status status = forward(&call, params, input, y, arena, &kept, keep);
    kept.config = *config;
    if (status == ATTN_OK && keep)
        *saved = kept;
    else
        (void)attn_arena_rewind(arena, mark);
    return status;
}

attn_status attn_mha_backward(const attn_mha_config *config, const attn_mha_params *params,
                              const attn_mha_saved *saved, const attn_real *dy,
                              const attn_mha_params *dparams, const attn_mha_input_grads *dinput,
                              attn_arena *arena) {
    attni_mha call;
    const attn_mha_input_grads none = {0}, *dx = dinput ? dinput : &none;
    if (!arena || !saved)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s is NULL", arena ? "saved" : "arena");
    ATTNI_TRY(attni_mha_resolve(&call, config, &saved->input));
    ATTNI_TRY(attni_mha_check_saved(&call, saved));
    if (!arena->measuring) {
        attn_arena dry;
        ATTNI_TRY(attni_mha_check_backward(&call, params, &saved->input, dy, dparams, dinput));
        ATTNI_TRY(attn_arena_init_measuring(&dry));
        ATTNI_TRY(backward(&call, params, saved, dy, dparams, dx, &dry));
        ATTNI_TRY(dry_run_fits(&dry, arena));
    }
    size_t mark = attn_arena_mark(arena);
    attn_status status = backward(&call, params, saved, dy, dparams, dx, arena);
    (void)attn_arena_rewind(arena, mark);
    return status;
}

/* A training step on an arena that only counts: the same carving, no numbers. */
attn_status attn_mha_memory(const attn_mha_config *config, const attn_mha_input *input,
                            attn_memory *memory) {
    attn_arena inference, training;
    attn_mha_saved saved;
    if (!memory)
        return attni_fail(ATTN_ERROR_ARGUMENT, "memory is NULL");
    ATTNI_TRY(attn_arena_init_measuring(&inference));
    ATTNI_TRY(attn_arena_init_measuring(&training));
    ATTNI_TRY(attn_mha_forward(config, NULL, input, NULL, &inference, NULL));
    ATTNI_TRY(attn_mha_forward(config, NULL, input, NULL, &training, &saved));
    size_t kept = attn_arena_mark(&training);
    real array;
    attn_mha_params dparams = {.wq = &array, .sinks = &array, .alibi_slopes = &array};
    attn_mha_input_grads dinput = {.query = &array,
                                   .bias = attni_sdpa_has_dbias(&saved.core.input) ? &array : NULL,
                                   .projected_key = input->projected_key ? &array : NULL,
                                   .projected_value = input->projected_key ? &array : NULL};
    ATTNI_TRY(attn_mha_backward(config, NULL, &saved, NULL, &dparams, &dinput, &training));
    *memory = (attn_memory){
        .saved = kept, .training = training.high_water, .inference = inference.high_water};
    return ATTN_OK;
}
