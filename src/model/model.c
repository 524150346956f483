#include <attn/model.h>

#include "base/dry_run.h"
#include "base/real.h"
#include "base/size.h"
#include "ops/cross_entropy.h"
#include "ops/linear_products.h"

#include <attn/embedding.h>

/* One call: valid, with its sizes worked out. */
typedef struct call {
    const attn_model_config *config;
    const attn_model_input *input;
    attn_mha_config layer;
    size_t rows;   /* B·T */
    size_t width;  /* B·T·D, reals of one residual stream */
    size_t logits; /* B·T·V */
} call;

static attn_status resolve(call *c, const attn_model_config *config,
                           const attn_model_input *input) {
    ATTNI_TRY(attn_model_config_check(config));
    if (!input)
        return attni_fail(ATTN_ERROR_ARGUMENT, "input is NULL");
    if (input->len > config->context)
        return attni_fail(ATTN_ERROR_SHAPE, "len %zu is above the context of %zu", input->len,
                          config->context);
    if (input->weights && input->weights_layer >= config->num_layers)
        return attni_fail(ATTN_ERROR_ARGUMENT, "weights_layer %zu: the model has num_layers %zu",
                          input->weights_layer, config->num_layers);
    *c = (call){.config = config, .input = input, .layer = attn_model_layer_config(config)};
    size_t bytes, streams = size_max(config->num_layers + 1, 2);
    if (!size_mul(&c->rows, input->batch, input->len) ||
        !size_mul(&c->width, c->rows, config->d_model) ||
        !size_mul(&c->logits, c->rows, config->vocab) || !size_mul(&bytes, c->width, streams) ||
        !size_mul(&bytes, bytes, sizeof(real)) || !size_mul(&bytes, c->logits, sizeof(real)))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "batch %zu, len %zu, vocab %zu, d_model %zu: the size wraps",
                          input->batch, input->len, config->vocab, config->d_model);
    return ATTN_OK;
}

/* Everything that can be wrong with the arrays, before anything is written. */
static attn_status check_arrays(const call *c, const attn_model_params *params) {
    const attn_model_input *input = c->input;
    if (!params || !params->token_embedding || !params->position_embedding || !params->layers ||
        !params->head_weight)
        return attni_fail(ATTN_ERROR_ARGUMENT, "params is NULL or has no arrays");
    if (c->rows > 0 && !input->tokens)
        return attni_fail(ATTN_ERROR_ARGUMENT, "input.tokens is NULL");
    for (size_t i = 0; i < c->rows; i++)
        if (input->tokens[i] < 0 || (size_t)input->tokens[i] >= c->config->vocab)
            return attni_fail(ATTN_ERROR_ARGUMENT,
                              "input.tokens[%zu] is %ld, outside a vocabulary of %zu", i,
                              (long)input->tokens[i], c->config->vocab);
    if (!input->targets)
        return ATTN_OK;
    return attni_cross_entropy_check("input", input->targets, c->rows, c->config->vocab);
}

static attn_status carve(attn_arena *arena, real **x, size_t n) {
    void *object;
    ATTNI_TRY(attn_arena_alloc(arena, &object, n, sizeof(real)));
    *x = object;
    return ATTN_OK;
}

/* Stands for an array that only its presence matters of, while an arena measures. */
static real anything;

/* Residual stream number `index`; a measuring arena handed out no stream to point into. */
static real *stream(const call *c, real *streams, size_t index) {
    return streams ? streams + index * c->width : &anything;
}

static attn_mha_params layer_params(const call *c, const attn_model_params *params, size_t layer) {
    attn_mha_params w = {.wq = &anything,
                         .wk = &anything,
                         .wv = &anything,
                         .wo = &anything,
                         .sinks = &anything,
                         .alibi_slopes = &anything};
    return params ? attn_model_layer_view(c->config, params, layer) : w;
}

static attn_mha_input layer_input(const call *c, const real *x, size_t layer) {
    const attn_model_input *input = c->input;
    return (attn_mha_input){.batch = input->batch,
                            .len_q = input->len,
                            .query = x,
                            .mask = {.causal = true, .window = c->config->window},
                            .dropout_seed = attn_model_layer_seed(input->dropout_seed, layer),
                            .weights = layer == input->weights_layer ? input->weights : NULL};
}

static void add(real *restrict sum, const real *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++)
        sum[i] += x[i];
}

/*
 * x_0     = E[tokens] + P                      (B,T,D)
 * x_(l+1) = x_l + attention_l(x_l)             (B,T,D)
 * logits  = x_N Whᵀ + bh                       (B,T,V)
 * loss    = cross-entropy(logits, targets)
 *
 * A training call keeps every x_l, for the layers borrow their input; inference needs two of them
 * by turns. With a measuring arena the same lines only count; params is NULL then.
 */
static attn_status forward(const call *c, const attn_model_params *params, attn_loss *loss,
                           attn_arena *arena, attn_model_saved *saved) {
    const attn_model_config *config = c->config;
    const attn_model_input *input = c->input;
    const bool run = params != NULL;
    const size_t num_layers = config->num_layers;
    attn_model_saved s = {.input = *input, .logits = input->logits};
    void *layers = NULL;
    ATTNI_TRY(carve(arena, &s.residual, c->width * (saved ? num_layers + 1 : 2)));
    if (saved)
        ATTNI_TRY(attn_arena_alloc(arena, &layers, num_layers, sizeof *s.layers));
    s.layers = layers;
    if (!s.logits)
        ATTNI_TRY(carve(arena, &s.logits, c->logits));

    if (run)
        ATTNI_TRY(attn_embedding_forward(s.residual, input->tokens, params->token_embedding,
                                         params->position_embedding, input->batch, input->len,
                                         config->vocab, config->d_model));
    const real *x = stream(c, s.residual, 0);
    for (size_t l = 0; l < num_layers; l++) {
        attn_mha_saved counted;
        real *next = stream(c, s.residual, saved ? l + 1 : (l + 1) % 2);
        attn_mha_params w = layer_params(c, params, l);
        attn_mha_input in = layer_input(c, x, l);
        ATTNI_TRY(attn_mha_forward(&c->layer, &w, &in, next, arena,
                                   saved ? (s.layers ? &s.layers[l] : &counted) : NULL));
        if (run)
            add(next, x, c->width);
        x = next;
    }
    if (run) {
        attni_product head = linear_product_y(s.logits, x, params->head_weight, params->head_bias,
                                              c->rows, config->d_model, config->vocab);
        attni_gemm_parallel(&head, 1, config->max_threads);
    }
    if (run && loss && input->targets)
        attni_cross_entropy_forward(loss, s.logits, input->targets, c->rows, config->vocab,
                                    config->max_threads);
    if (saved)
        *saved = s;
    return ATTN_OK;
}

/* What the forward of one layer keeps, as far as sizes go. */
static attn_status count_layer(const call *c, size_t layer, attn_mha_saved *saved) {
    attn_arena aside;
    attn_mha_params w = layer_params(c, NULL, layer);
    attn_mha_input in = layer_input(c, &anything, layer);
    ATTNI_TRY(attn_arena_init_measuring(&aside));
    return attn_mha_forward(&c->layer, &w, &in, &anything, &aside, saved);
}

/*
 * In reverse:
 *
 * dlogits = (softmax(logits) - onehot(targets)) / n            (B,T,V)
 * dx_N    = dlogits Wh,  dWh += dlogitsᵀ x_N,  dbh += 1ᵀ dlogits
 * dx_l    = dx_(l+1) + attention_l's dx                        (B,T,D): the residual splits in two
 * dE, dP += dx_0
 */
static attn_status backward(const call *c, const attn_model_params *params,
                            const attn_model_saved *saved, const attn_model_params *dparams,
                            attn_arena *arena) {
    const attn_model_config *config = c->config;
    const attn_model_input *input = c->input;
    const bool run = params != NULL;
    const size_t num_layers = config->num_layers, d_model = config->d_model;
    real *dlogits, *dx, *dbranch;
    ATTNI_TRY(carve(arena, &dx, c->width));
    ATTNI_TRY(carve(arena, &dbranch, c->width));
    const size_t mark = attn_arena_mark(arena);
    ATTNI_TRY(carve(arena, &dlogits, c->logits));
    if (run) {
        const real *x = stream(c, saved->residual, num_layers);
        attni_cross_entropy_backward(dlogits, 1, saved->logits, input->targets, c->rows,
                                     config->vocab, config->max_threads);
        const attni_product products[2] = {
            linear_product_dx(dx, dlogits, params->head_weight, c->rows, d_model, config->vocab),
            linear_product_dw(dparams->head_weight, dlogits, x, c->rows, d_model, config->vocab)};
        attni_gemm_parallel(products, 2, config->max_threads);
        if (dparams->head_bias)
            attni_column_sums_add(dparams->head_bias, dlogits, c->rows, config->vocab,
                                  config->max_threads);
    }
    ATTNI_TRY(attn_arena_rewind(arena, mark));
    for (size_t l = num_layers; l-- > 0;) {
        attn_mha_saved counted;
        if (!run)
            ATTNI_TRY(count_layer(c, l, &counted));
        attn_mha_params w = layer_params(c, params, l), dw = layer_params(c, dparams, l);
        attn_mha_input_grads dinput = {.query = run ? dbranch : &anything};
        ATTNI_TRY(attn_mha_backward(&c->layer, &w, run ? &saved->layers[l] : &counted,
                                    run ? dx : &anything, &dw, &dinput, arena));
        if (run)
            add(dx, dbranch, c->width);
    }
    if (!run)
        return ATTN_OK;
    return attn_embedding_backward(dparams->token_embedding, dparams->position_embedding, dx,
                                   input->tokens, input->batch, input->len, config->vocab, d_model);
}

attn_status attn_model_memory(const attn_model_config *config, const attn_model_input *input,
                              attn_memory *memory) {
    call c;
    attn_model_saved saved;
    attn_arena training, inference;
    ATTNI_TRY(resolve(&c, config, input));
    if (!memory)
        return attni_fail(ATTN_ERROR_ARGUMENT, "memory is NULL");
    ATTNI_TRY(attn_arena_init_measuring(&training));
    ATTNI_TRY(attn_arena_init_measuring(&inference));
    ATTNI_TRY(forward(&c, NULL, NULL, &training, &saved));
    size_t kept = training.used;
    ATTNI_TRY(backward(&c, NULL, &saved, NULL, &training));
    ATTNI_TRY(forward(&c, NULL, NULL, &inference, NULL));
    *memory = (attn_memory){
        .saved = kept, .training = training.high_water, .inference = inference.high_water};
    return ATTN_OK;
}

static attn_status refuse_measuring(const attn_arena *arena) {
    if (arena->measuring)
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "arena only measures: attn_model_memory tells the bytes");
    return ATTN_OK;
}

attn_status attn_model_forward(const attn_model_config *config, const attn_model_params *params,
                               const attn_model_input *input, attn_loss *loss, attn_arena *arena,
                               attn_model_saved *saved) {
    call c;
    attn_arena counted;
    attn_model_saved kept;
    ATTNI_TRY(resolve(&c, config, input));
    ATTNI_TRY(check_arrays(&c, params));
    if (!arena)
        return attni_fail(ATTN_ERROR_ARGUMENT, "arena is NULL");
    ATTNI_TRY(refuse_measuring(arena));
    ATTNI_TRY(attn_arena_init_measuring(&counted));
    ATTNI_TRY(forward(&c, NULL, NULL, &counted, saved ? &kept : NULL));
    ATTNI_TRY(dry_run_fits(&counted, arena));

    size_t mark = attn_arena_mark(arena);
    attn_loss result = {0};
    attn_status status = forward(&c, params, &result, arena, saved ? &kept : NULL);
    if (status != ATTN_OK || !saved)
        (void)attn_arena_rewind(arena, mark);
    if (status != ATTN_OK)
        return status;
    if (saved)
        *saved = kept;
    if (loss)
        *loss = result;
    return ATTN_OK;
}

attn_status attn_model_backward(const attn_model_config *config, const attn_model_params *params,
                                const attn_model_saved *saved, const attn_model_params *dparams,
                                attn_arena *arena) {
    call c;
    attn_arena counted;
    if (!saved || !arena)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s is NULL", saved ? "arena" : "saved");
    ATTNI_TRY(resolve(&c, config, &saved->input));
    ATTNI_TRY(check_arrays(&c, params));
    if (!saved->residual || !saved->logits || !saved->input.targets)
        return attni_fail(ATTN_ERROR_ARGUMENT, "saved is of no forward with targets");
    if (!dparams || !dparams->token_embedding || !dparams->layers || !dparams->head_weight)
        return attni_fail(ATTN_ERROR_ARGUMENT, "dparams is NULL or has no arrays");
    ATTNI_TRY(refuse_measuring(arena));
    ATTNI_TRY(attn_arena_init_measuring(&counted));
    ATTNI_TRY(backward(&c, NULL, saved, NULL, &counted));
    ATTNI_TRY(dry_run_fits(&counted, arena));

    size_t mark = attn_arena_mark(arena);
    attn_status status = backward(&c, params, saved, dparams, arena);
    (void)attn_arena_rewind(arena, mark);
    return status;
}
