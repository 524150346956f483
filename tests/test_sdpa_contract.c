/* What a call to attn_sdpa promises besides its numbers: memory known beforehand, nothing changed
 * by a failure, the same bits again, and refusals in words. */
#include "problem.h"
#include "threads.h"

/* Inference and training give the same bits, fully masked rows included; keys that are padded in
 * every sample leave the output its shape. */
START_TEST(inference_equals_training) {
    const attn_sdpa_config config = {.kernel = (attn_kernel)_i};
    problem p = problem_make((attn_shape){2, 3, 130, 77, 9}, BTHD, &problem_plans[PLANS - 1], 3);
    const size_t bytes = p.o.size * sizeof(attn_real), rows = 2 * 3 * 130;
    for (size_t b = 0; b < 2; b++)
        memset(p.padding + b * 77 + 60, 1, 17);
    problem_run(&config, &p);
    attn_real *trained = test_poison(p.o.size), *trained_lse = test_poison(rows);
    memcpy(trained, p.o.block, bytes);
    memcpy(trained_lse, p.lse, rows * sizeof *trained_lse);
    for (size_t n = 0; n < p.o.size; n++)
        p.o.block[n] = (attn_real)NAN;
    attn_memory need;
    test_ok(attn_sdpa_memory(&config, &p.in, &p.out, &need));
    attn_arena arena = test_arena(need.inference);
    test_ok(attn_sdpa_forward(&config, &p.in, &p.out, &arena, NULL));
    ck_assert_uint_eq(arena.used, 0);
    ck_assert_uint_eq(arena.high_water, need.inference);
    for (size_t head = 0; head < p.o.heads; head++) {
        ck_assert(p.lse[head * 130] == (attn_real)-INFINITY);
        ck_assert(tensor_row(&p.o, head, 0)[0] == 0);
    }
    ck_assert_mem_eq(p.lse, trained_lse, rows * sizeof *trained_lse);
    test_close("o", p.o.block, trained, p.o.size, 0, 0);
    attn_arena_destroy(&arena);
    free(trained);
    free(trained_lse);
    problem_free(&p);
}
END_TEST

/* A problem in which some rows of every operand, others in every head, are NaN if `spoilt`. */
static problem threaded_problem(const attn_shape *shape, bool spoilt) {
    problem p = problem_make(*shape, BTHD, &problem_plans[PLANS - 1], 8);
    tensor *const operands[4] = {&p.q, &p.k, &p.v, &p.d_o};
    for (size_t head = 0; spoilt && head < p.q.heads; head++)
        for (size_t n = 0; n < 4; n++)
            tensor_row(operands[n], head, (7 * head + 40 * n) % operands[n]->len)[1] =
                (attn_real)NAN;
    return p;
}

/* The same bits for any number of threads, in the configuration or OpenMP's own. */
START_TEST(threads_change_no_bit) {
    attn_sdpa_config config = {.kernel = (attn_kernel)_i};
    const attn_shape many = {2, 5, 140, 131, 24}, single = {1, 1, 400, 300, 16};
    for (size_t n = 0; n < 4; n++) {
        const attn_shape *shape = n % 2 ? &single : &many;
        problem first = threaded_problem(shape, n / 2);
        config.max_threads = 1;
        problem_run(&config, &first);
        for (size_t t = 0; t < 8; t++) {
            problem p = threaded_problem(shape, n / 2);
            test_set_threads(test_thread_counts[t % 4]);
            config.max_threads = t < 4 ? 0 : (size_t)test_thread_counts[t % 4];
            problem_run(&config, &p);
            const size_t bytes_q = p.o.size * sizeof(attn_real);
            const size_t bytes_k = p.dk.size * sizeof(attn_real);
            ck_assert_mem_eq(p.o.block, first.o.block, bytes_q);
            ck_assert_mem_eq(p.dq.block, first.dq.block, bytes_q);
            ck_assert_mem_eq(p.dk.block, first.dk.block, bytes_k);
            ck_assert_mem_eq(p.dv.block, first.dv.block, bytes_k);
            problem_free(&p);
        }
        problem_free(&first);
    }
}
END_TEST

/* A second backward, into gradients full of garbage, gives the same bits; a gradient that is not
 * wanted changes no other. */
/* libgomp ends the process where threads cannot be started: nobody gets as many as asked for. */
START_TEST(threads_have_a_bound) {
    attn_sdpa_input in = {.shape = {1 << 20, 8, 64, 64, 16},
                          .query_strides = attn_strides_bthd(64, 8, 16),
                          .key_strides = attn_strides_bthd(64, 8, 16),
                          .value_strides = attn_strides_bthd(64, 8, 16)};
    attn_sdpa_output out = {.context_strides = in.query_strides};
    attn_sdpa_config config = {.kernel = (attn_kernel)_i, .max_threads = 1};
    attn_memory one, many;
    test_ok(attn_sdpa_memory(&config, &in, &out, &one));
    config.max_threads = SIZE_MAX;
    test_ok(attn_sdpa_memory(&config, &in, &out, &many));
    ck_assert_uint_ge(many.inference, one.inference);
    ck_assert_uint_le(many.inference, 1100 * one.inference);
}
END_TEST

START_TEST(backward_again_and_in_part) {
    const attn_sdpa_config config = {.kernel = (attn_kernel)_i};
    problem p = problem_make((attn_shape){2, 2, 33, 40, 6}, BTHD, &problem_plans[PLANS - 2], 4);
    attn_memory need;
    attn_sdpa_saved saved;
    test_ok(attn_sdpa_memory(&config, &p.in, &p.out, &need));
    attn_arena arena = test_arena(need.training);
    test_ok(attn_sdpa_forward(&config, &p.in, &p.out, &arena, &saved));
    test_ok(attn_sdpa_backward(&config, &saved, p.d_o.data, &p.d_o.strides, &p.grads, &arena));
    tensor *const all[3] = {&p.dq, &p.dk, &p.dv};
    attn_real *first[3];
    for (size_t n = 0; n < 3; n++) {
        first[n] = test_poison(all[n]->size);
        memcpy(first[n], all[n]->block, all[n]->size * sizeof(attn_real));
    }
    for (unsigned wanted = 0; wanted < 8; wanted++) {
        for (size_t n = 0; n < 3; n++)
            for (size_t e = 0; e < all[n]->size; e++)
                all[n]->block[e] = (attn_real)NAN;
        attn_sdpa_grads grads = p.grads;
        grads.query = wanted & 1 ? grads.query : NULL;
        grads.key = wanted & 2 ? grads.key : NULL;
        grads.value = wanted & 4 ? grads.value : NULL;
        test_ok(attn_sdpa_backward(&config, &saved, p.d_o.data, &p.d_o.strides, &grads, &arena));
        ck_assert_uint_eq(arena.used, need.saved);
        for (size_t n = 0; n < 3; n++)
            for (size_t e = 0; e < all[n]->size; e++) {
                const bool same = all[n]->block[e] == first[n][e] ||
                                  (isnan(all[n]->block[e]) && isnan(first[n][e]));
                if (wanted >> n & 1 ? !same : !isnan(all[n]->block[e]))
                    ck_abort_msg("kernel %d, wanted %u: gradient %zu, element %zu", _i, wanted, n,
                                 e);
            }
    }
    for (size_t n = 0; n < 3; n++)
        free(first[n]);
    attn_arena_destroy(&arena);
    problem_free(&p);
}
END_TEST

/* The announced bytes are enough, one byte less is not, and a failure leaves no trace: not in the
 * outputs, not in `saved`, and the arena serves on. */
START_TEST(memory_is_exact) {
    const attn_sdpa_config config = {.kernel = (attn_kernel)_i, .max_threads = 3};
    const attn_shape s = {2, 3, 67, 35, 10};
    problem p = problem_make(s, BTHD, &problem_plans[1], 2);
    attn_memory need;
    test_ok(attn_sdpa_memory(&config, &p.in, &p.out, &need));
    attn_arena small = test_arena(need.inference - 1);
    test_refused(attn_sdpa_forward(&config, &p.in, &p.out, &small, NULL), ATTN_ERROR_MEMORY);
    ck_assert_uint_eq(small.used + small.high_water, 0);
    attn_arena_destroy(&small);

    attn_sdpa_saved saved, before;
    memset(&saved, 0x5A, sizeof saved);
    before = saved;
    small = test_arena(need.saved - 1);
    test_refused(attn_sdpa_forward(&config, &p.in, &p.out, &small, &saved), ATTN_ERROR_MEMORY);
    ck_assert_mem_eq(&saved, &before, sizeof saved);
    ck_assert_uint_eq(small.used + small.high_water, 0);
    attn_arena_destroy(&small);

    attn_arena arena = test_arena(need.training - 1);
    for (size_t n = 0; n < p.o.size; n++)
        ck_assert(isnan(p.o.block[n]));
    test_ok(attn_sdpa_forward(&config, &p.in, &p.out, &arena, &saved));
    test_refused(attn_sdpa_backward(&config, &saved, p.d_o.data, &p.d_o.strides, &p.grads, &arena),
                 ATTN_ERROR_MEMORY);
    ck_assert_uint_eq(arena.used, need.saved);
    for (size_t n = 0; n < p.dk.size; n++)
        ck_assert(isnan(p.dk.block[n]) && isnan(p.dv.block[n]));
    attn_arena_destroy(&arena);
    problem_run(&config, &p);
    problem_free(&p);
}
END_TEST

/* Memory for sizes that could exist nowhere is counted or refused, without arithmetic that wraps.
 * Arrays need not exist while counting. */
START_TEST(memory_of_anything) {
    const attn_sdpa_config config = {.kernel = (attn_kernel)_i};
    const size_t big = (size_t)1 << 32;
    static const uint8_t byte = 1;
    attn_sdpa_output out = {.context_strides = {.element = 1}};
    attn_memory need, before = {1, 2, 3};
    const struct {
        attn_shape shape;
        bool wraps_everywhere;
    } cases[] = {
        {{big, 1, big, 1, 1}, true},        {{1, 1, big, big, 1}, false},
        {{1, SIZE_MAX - 8, 1, 1, 1}, true}, {{SIZE_MAX / 2 + 1, 2, 1, 1, 1}, true},
        {{1, 1, SIZE_MAX / 8, 1, 8}, true}, {{1, 1, 1, SIZE_MAX / 8 + 1, 64}, true},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const attn_shape *s = &cases[n].shape;
        attn_sdpa_input in = {.shape = *s,
                              .query_strides = attn_strides_bthd(s->len_q, s->num_heads, s->d_head),
                              .key_strides = attn_strides_bthd(s->len_k, s->num_heads, s->d_head)};
        in.value_strides = in.key_strides;
        out.context_strides = in.query_strides;
        need = before;
        attn_status status = attn_sdpa_memory(&config, &in, &out, &need);
        if (cases[n].wraps_everywhere || _i == ATTN_KERNEL_REFERENCE) {
            ck_assert_msg(status == ATTN_ERROR_OVERFLOW, "case %zu: %s", n,
                          attn_status_name(status));
            ck_assert_mem_eq(&need, &before, sizeof need);
        } else {
            ck_assert_msg(status == ATTN_OK, "case %zu: %s", n, attn_error_message());
        }
    }
    attn_sdpa_input in = {.shape = {2, 2, 9, 8, 4},
                          .query_strides = attn_strides_bthd(9, 2, 4),
                          .key_strides = attn_strides_bthd(8, 2, 4),
                          .value_strides = attn_strides_bthd(8, 2, 4),
                          .mask = {.padding = &byte, .attend = &byte}};
    out = (attn_sdpa_output){.context_strides = in.query_strides};
    test_ok(attn_sdpa_memory(&config, &in, &out, &need));
    ck_assert_uint_ge(need.training, need.saved);
    ck_assert_uint_ge(need.saved, 1);
}
END_TEST

/* A call as it should be, for the next tests to spoil. */
typedef struct call {
    attn_sdpa_config config;
    attn_real q[8], k[12], v[12], o[8], d_o[8], dq[8], dk[12], dv[12], weights[12], lse[4];
    attn_sdpa_input in;
    attn_sdpa_output out;
    attn_sdpa_grads grads;
    attn_strides d_o_strides;
    attn_sdpa_saved saved;
    attn_arena arena;
} call;

/* (B,H,Lq,Lk,d) = (1,2,2,3,2) */
static void call_make(call *c, attn_kernel kernel) {
    memset(c, 0, sizeof *c);
    const attn_strides rows_q = attn_strides_bthd(2, 2, 2), rows_k = attn_strides_bthd(3, 2, 2);
    c->config.kernel = kernel;
    c->in = (attn_sdpa_input){.shape = {1, 2, 2, 3, 2},
                              .query = c->q,
                              .key = c->k,
                              .value = c->v,
                              .query_strides = rows_q,
                              .key_strides = rows_k,
                              .value_strides = rows_k};
    c->out = (attn_sdpa_output){.context = c->o, .context_strides = rows_q, .lse = c->lse};
    c->grads = (attn_sdpa_grads){c->dq, c->dk, c->dv, rows_q, rows_k, rows_k};
    c->d_o_strides = rows_q;
    for (size_t n = 0; n < 8; n++)
        c->o[n] = c->dq[n] = 7;
    c->arena = test_arena((size_t)1 << 20);
}

static void check_untouched(const call *c) {
    for (size_t n = 0; n < 8; n++)
        ck_assert(c->o[n] == 7 && c->dq[n] == 7);
    ck_assert_uint_eq(c->arena.used, 0);
}

/* Each refusal of a forward: its status, a word of its message, and nothing touched. */
#define REFUSE(spoil, status, word)                                                            \
    do {                                                                                       \
        call c;                                                                                \
        call_make(&c, (attn_kernel)_i);                                                        \
        spoil;                                                                                 \
        test_refused(attn_sdpa_forward(&c.config, &c.in, &c.out, &c.arena, &c.saved), status); \
        ck_assert_msg(strstr(attn_error_message(), word) != NULL, "%s", attn_error_message()); \
        check_untouched(&c);                                                                   \
        attn_arena_destroy(&c.arena);                                                          \
    } while (0)

START_TEST(forward_refuses) {
    REFUSE(c.in.query = NULL, ATTN_ERROR_ARGUMENT, "query is NULL");
    REFUSE(c.in.key = NULL, ATTN_ERROR_ARGUMENT, "key is NULL");
    REFUSE(c.in.value = NULL, ATTN_ERROR_ARGUMENT, "value is NULL");
    REFUSE(c.out.context = NULL, ATTN_ERROR_ARGUMENT, "context is NULL");
    REFUSE(c.in.shape.d_head = 0, ATTN_ERROR_ARGUMENT, "d_head is 0");
    REFUSE(c.in.query_strides.element = 2, ATTN_ERROR_UNSUPPORTED, "query_strides.element is 2");
    REFUSE(c.in.key_strides.element = 0, ATTN_ERROR_UNSUPPORTED, "key_strides.element is 0");
    REFUSE(c.in.value_strides.element = 2, ATTN_ERROR_UNSUPPORTED, "value_strides.element");
    REFUSE(c.out.context_strides.element = 2, ATTN_ERROR_UNSUPPORTED, "context_strides.element");
    REFUSE(c.in.key_strides.token = 1, ATTN_ERROR_UNSUPPORTED, "key_strides.token 1");
    REFUSE(c.out.context_strides.head = 1, ATTN_ERROR_SHAPE, "context_strides");
    REFUSE(c.out.context_strides.head = 4, ATTN_ERROR_SHAPE, "overlap");
    REFUSE(c.out.context_strides.head = 0, ATTN_ERROR_SHAPE, "overlap");
    REFUSE((c.in.shape.batch = 2, c.out.context_strides.batch = 2), ATTN_ERROR_SHAPE, "overlap");
    REFUSE(c.in.value_strides.token = SIZE_MAX / 2, ATTN_ERROR_OVERFLOW, "value_strides");
    REFUSE(c.in.shape.batch = SIZE_MAX / 2, ATTN_ERROR_OVERFLOW, "wraps");
    REFUSE((c.config.has_scale = true, c.config.scale = (double)NAN), ATTN_ERROR_ARGUMENT, "scale");
    REFUSE((c.config.has_scale = true, c.config.scale = -(double)INFINITY), ATTN_ERROR_ARGUMENT,
           "scale");
    if (sizeof(attn_real) == sizeof(float))
        REFUSE((c.config.has_scale = true, c.config.scale = 1e300), ATTN_ERROR_ARGUMENT, "1e+300");
    REFUSE(c.config.kernel = (attn_kernel)3, ATTN_ERROR_ARGUMENT, "kernel 3");
    REFUSE((c.in.mask.causal = true, c.in.mask.causal_align = (attn_causal_align)5),
           ATTN_ERROR_ARGUMENT, "causal_align");
    static const uint8_t byte = 1;
    REFUSE((c.in.shape.batch = 2, c.in.mask.padding = &byte, c.in.mask.padding_stride = SIZE_MAX),
           ATTN_ERROR_OVERFLOW, "padding_stride");
    REFUSE((c.in.mask.attend = &byte, c.in.mask.attend_strides.key = SIZE_MAX), ATTN_ERROR_OVERFLOW,
           "attend_strides");
    REFUSE((c.config.kernel = ATTN_KERNEL_FUSED, c.out.weights = c.weights), ATTN_ERROR_UNSUPPORTED,
           "weights");
    REFUSE(c.in.shape.num_kv_heads = 3, ATTN_ERROR_SHAPE, "not a multiple of num_kv_heads 3");
    REFUSE(c.in.shape.num_kv_heads = 4, ATTN_ERROR_SHAPE, "num_heads 2");
    REFUSE((c.in.shape.num_heads = 0, c.in.shape.num_kv_heads = 1), ATTN_ERROR_SHAPE,
           "num_heads 0");
    REFUSE((c.in.mask.window.left_on = true, c.in.mask.causal_align = (attn_causal_align)5),
           ATTN_ERROR_ARGUMENT, "causal_align");
}
END_TEST

START_TEST(missing_structs) {
    call c;
    attn_memory need;
    call_make(&c, ATTN_KERNEL_AUTO);
    test_refused(attn_sdpa_forward(NULL, &c.in, &c.out, &c.arena, NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_sdpa_forward(&c.config, NULL, &c.out, &c.arena, NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_sdpa_forward(&c.config, &c.in, NULL, &c.arena, NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_sdpa_forward(&c.config, &c.in, &c.out, NULL, NULL), ATTN_ERROR_ARGUMENT);
    test_refused(attn_sdpa_memory(NULL, &c.in, &c.out, &need), ATTN_ERROR_ARGUMENT);
    test_refused(attn_sdpa_memory(&c.config, NULL, &c.out, &need), ATTN_ERROR_ARGUMENT);
    test_refused(attn_sdpa_memory(&c.config, &c.in, NULL, &need), ATTN_ERROR_ARGUMENT);
    test_refused(attn_sdpa_memory(&c.config, &c.in, &c.out, NULL), ATTN_ERROR_ARGUMENT);
    check_untouched(&c);
    test_ok(attn_sdpa_forward(&c.config, &c.in, &c.out, &c.arena, &c.saved));
    const attn_strides *rows = &c.d_o_strides;
    const attn_sdpa_config *config = &c.config;
    test_refused(attn_sdpa_backward(NULL, &c.saved, c.d_o, rows, &c.grads, &c.arena),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_sdpa_backward(config, NULL, c.d_o, rows, &c.grads, &c.arena),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_sdpa_backward(config, &c.saved, NULL, rows, &c.grads, &c.arena),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_sdpa_backward(config, &c.saved, c.d_o, NULL, &c.grads, &c.arena),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_sdpa_backward(config, &c.saved, c.d_o, rows, NULL, &c.arena),
                 ATTN_ERROR_ARGUMENT);
    test_refused(attn_sdpa_backward(config, &c.saved, c.d_o, rows, &c.grads, NULL),
                 ATTN_ERROR_ARGUMENT);
    attn_arena_destroy(&c.arena);
}
END_TEST

/* A `saved` that no forward filled, or another kernel's, or gradients that cannot be. */
#define REFUSE_BACKWARD(spoil, status, word)                                                    \
    do {                                                                                        \
        call c;                                                                                 \
        call_make(&c, (attn_kernel)_i);                                                         \
        test_ok(attn_sdpa_forward(&c.config, &c.in, &c.out, &c.arena, &c.saved));               \
        size_t used = c.arena.used;                                                             \
        spoil;                                                                                  \
        test_refused(                                                                           \
            attn_sdpa_backward(&c.config, &c.saved, c.d_o, &c.d_o_strides, &c.grads, &c.arena), \
            status);                                                                            \
        ck_assert_msg(strstr(attn_error_message(), word) != NULL, "%s", attn_error_message());  \
        ck_assert_uint_eq(c.arena.used, used);                                                  \
        ck_assert(c.dq[0] == 7 && c.dk[0] == 0);                                                \
        attn_arena_destroy(&c.arena);                                                           \
    } while (0)

START_TEST(backward_refuses) {
    REFUSE_BACKWARD(memset(&c.saved, 0, sizeof c.saved), ATTN_ERROR_ARGUMENT, "saved");
    REFUSE_BACKWARD(c.saved.weights = c.saved.row_max = NULL, ATTN_ERROR_ARGUMENT, "saved");
    REFUSE_BACKWARD(c.saved.kernel = (attn_kernel)9, ATTN_ERROR_ARGUMENT, "saved");
    REFUSE_BACKWARD(c.config.kernel = (attn_kernel)(ATTN_KERNEL_REFERENCE + ATTN_KERNEL_FUSED - _i),
                    ATTN_ERROR_ARGUMENT, "kernel");
    REFUSE_BACKWARD((c.config.has_scale = true, c.config.scale = 17), ATTN_ERROR_ARGUMENT,
                    "scale is 17");
    REFUSE_BACKWARD(c.grads.value = c.grads.query, ATTN_ERROR_ARGUMENT, "different arrays");
    if (_i == ATTN_KERNEL_FUSED)
        REFUSE_BACKWARD(c.saved.output.context = NULL, ATTN_ERROR_ARGUMENT, "saved");
    REFUSE_BACKWARD(c.saved.input.shape.d_head = 0, ATTN_ERROR_ARGUMENT, "d_head");
    REFUSE_BACKWARD(c.saved.input.query = NULL, ATTN_ERROR_ARGUMENT, "query");
    REFUSE_BACKWARD(c.d_o_strides.element = 2, ATTN_ERROR_UNSUPPORTED, "dcontext_strides");
    REFUSE_BACKWARD(c.grads.query_strides.element = 2, ATTN_ERROR_UNSUPPORTED, "dquery_strides");
    REFUSE_BACKWARD(c.grads.key_strides.head = 0, ATTN_ERROR_SHAPE, "dkey_strides");
    REFUSE_BACKWARD(c.grads.value_strides.token = 2, ATTN_ERROR_SHAPE, "dvalue_strides");
}
END_TEST

/* No samples or queries: success, and no output to write; no keys: every row is fully masked. The
 * gradients of what exists are 0. */
START_TEST(empty_inputs) {
    call c;
    for (int empty = 0; empty < 4; empty++) {
        call_make(&c, (attn_kernel)_i);
        size_t *const sizes[4] = {&c.in.shape.batch, &c.in.shape.num_heads, &c.in.shape.len_q,
                                  &c.in.shape.len_k};
        *sizes[empty] = 0;
        c.in.mask.causal = true;
        if (empty < 3)
            c.in.query = c.out.context = NULL;
        if (empty != 2)
            c.in.key = c.in.value = NULL;
        for (size_t n = 0; n < 12; n++)
            c.dk[n] = c.dv[n] = 7;
        for (size_t n = 0; n < 4; n++)
            c.lse[n] = 7;
        attn_memory need;
        test_ok(attn_sdpa_memory(&c.config, &c.in, &c.out, &need));
        test_ok(attn_sdpa_forward(&c.config, &c.in, &c.out, &c.arena, NULL));
        test_ok(attn_sdpa_forward(&c.config, &c.in, &c.out, &c.arena, &c.saved));
        test_ok(attn_sdpa_backward(&c.config, &c.saved, empty == 3 ? c.d_o : NULL, &c.d_o_strides,
                                   &c.grads, &c.arena));
        ck_assert_uint_le(c.arena.high_water, need.training);
        for (size_t n = 0; n < 8; n++) {
            ck_assert(c.o[n] == (empty == 3 ? 0 : 7));
            ck_assert(c.dq[n] == (empty == 3 ? 0 : 7));
        }
        for (size_t n = 0; n < 12; n++)
            ck_assert(c.dk[n] == (empty == 2 ? 0 : 7) && c.dv[n] == (empty == 2 ? 0 : 7));
        for (size_t n = 0; n < 4; n++)
            ck_assert(c.lse[n] == (empty == 3 ? (attn_real)-INFINITY : 7));
        attn_arena_destroy(&c.arena);
    }
}
END_TEST

/* The same arena again after a masked run: as a fresh one. */
START_TEST(arena_is_not_remembered) {
    const attn_sdpa_config config = {.kernel = (attn_kernel)_i};
    const attn_shape s = {1, 2, 66, 70, 8};
    problem masked = problem_make(s, BTHD, &problem_plans[PLANS - 1], 1);
    problem p = problem_make(s, BTHD, &problem_plans[0], 2),
            again = problem_make(s, BTHD, &problem_plans[0], 2);
    problem_run(&config, &p);
    attn_memory need;
    attn_sdpa_saved saved;
    test_ok(attn_sdpa_memory(&config, &p.in, &p.out, &need));
    attn_arena arena = test_arena(need.training);
    problem *const turns[2] = {&masked, &again};
    for (size_t n = 0; n < 2; n++) {
        problem *now = turns[n];
        attn_arena_reset(&arena);
        test_ok(attn_sdpa_forward(&config, &now->in, &now->out, &arena, &saved));
        test_ok(attn_sdpa_backward(&config, &saved, now->d_o.data, &now->d_o.strides, &now->grads,
                                   &arena));
    }
    ck_assert_mem_eq(again.o.block, p.o.block, p.o.size * sizeof(attn_real));
    ck_assert_mem_eq(again.dq.block, p.dq.block, p.dq.size * sizeof(attn_real));
    ck_assert_mem_eq(again.dk.block, p.dk.block, p.dk.size * sizeof(attn_real));
    ck_assert_mem_eq(again.dv.block, p.dv.block, p.dv.size * sizeof(attn_real));
    attn_arena_destroy(&arena);
    problem_free(&masked);
    problem_free(&p);
    problem_free(&again);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("sdpa_contract");
    TCase *tests = tcase_create("sdpa_contract");
    const TTest *const of_both_paths[] = {
        inference_equals_training,
        threads_change_no_bit,
        threads_have_a_bound,
        backward_again_and_in_part,
        memory_is_exact,
        memory_of_anything,
        forward_refuses,
        backward_refuses,
        empty_inputs,
        arena_is_not_remembered,
    };
    for (size_t n = 0; n < sizeof of_both_paths / sizeof *of_both_paths; n++)
        tcase_add_loop_test(tests, of_both_paths[n], ATTN_KERNEL_REFERENCE, ATTN_KERNEL_FUSED + 1);
    tcase_add_test(tests, missing_structs);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
