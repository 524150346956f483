/* Chapter 7: the copy task, and one head against four. The text is in 07_copy_task.md. */
#include "lesson.h"

enum { BATCH = 32, SYMBOLS = 8, MAX_LEN = 16, CLASSES = 64, STEPS = 300 };

/* Fills tokens and targets (BATCH, len); a target of -1 is not counted. */
typedef void (*task)(int32_t *tokens, int32_t *targets, size_t len, attn_random *random);

/* a b c d | a b c d: the second half is to be predicted token by token. */
static void copy(int32_t *tokens, int32_t *targets, size_t len, attn_random *random) {
    const size_t half =
        len / 2; /* len = 2·half: symbols, separator, all but the last symbol again */
    for (size_t b = 0; b < BATCH; b++, tokens += len, targets += len)
        for (size_t t = 0; t < len; t++) {
            tokens[t] = t < half    ? (int32_t)attn_random_below(random, SYMBOLS)
                        : t == half ? SYMBOLS
                                    : tokens[t - half - 1];
            targets[t] = t < half ? -1 : tokens[t - half];
        }
}

/* Several places at once: the answer at t is the last `places` tokens in order, as one class. */
static void last_tokens(int32_t *tokens, int32_t *targets, size_t len, attn_random *random,
                        size_t symbols, size_t places) {
    for (size_t b = 0; b < BATCH; b++, tokens += len, targets += len)
        for (size_t t = 0; t < len; t++) {
            tokens[t] = (int32_t)attn_random_below(random, (uint32_t)symbols);
            targets[t] = t < places ? -1 : 0;
            for (size_t back = 1; t >= places && back <= places; back++)
                targets[t] = targets[t] * (int32_t)symbols + tokens[t - back];
        }
}

static void last_2_of_8(int32_t *tokens, int32_t *targets, size_t len, attn_random *random) {
    last_tokens(tokens, targets, len, random, 8, 2);
}

static void last_6_of_2(int32_t *tokens, int32_t *targets, size_t len, attn_random *random) {
    last_tokens(tokens, targets, len, random, 2, 6);
}

static void *room(size_t n, size_t size) {
    void *p = calloc(n, size);
    if (!p)
        exit(1);
    return p;
}

/* Trains one layer of width 64 and returns the accuracy on fresh sequences. */
static double train(task make, size_t vocab, size_t len, size_t num_heads, size_t steps) {
    attn_model_config cfg = {.vocab = vocab,
                             .context = MAX_LEN,
                             .d_model = 64,
                             .num_heads = num_heads,
                             .num_layers = 1,
                             .bias = true};
    const size_t n = attn_model_num_params(&cfg);
    attn_real *theta = room(n, sizeof *theta), *dtheta = room(n, sizeof *dtheta);
    attn_real *velocity = room(n, sizeof *velocity);
    int32_t tokens[BATCH * MAX_LEN], targets[BATCH * MAX_LEN];
    attn_model_params w = attn_model_params_view(&cfg, theta);
    attn_model_params dw = attn_model_params_view(&cfg, dtheta);
    attn_model_input in = {.batch = BATCH, .len = len, .tokens = tokens, .targets = targets};
    attn_model_saved saved;
    attn_loss loss;
    attn_memory need;
    attn_arena arena;
    attn_random random = attn_random_seed(1, 2);
    must(attn_model_params_init(&cfg, theta, 1));
    must(attn_model_memory(&cfg, &in, &need));
    must(attn_arena_create(&arena, need.training));
    printf("    loss");
    for (size_t step = 0; step <= steps; step++) {
        double norm, rate = 0.5 * (double)(steps - step) / (double)steps;
        make(tokens, targets, len, &random);
        must(attn_model_forward(&cfg, &w, &in, &loss, &arena, &saved));
        if (step % (steps / 6) == 0)
            printf(" %7.4f", loss.mean);
        memset(dtheta, 0, n * sizeof *dtheta);
        must(attn_model_backward(&cfg, &w, &saved, &dw, &arena));
        must(attn_clip_gradient(dtheta, n, 1, &norm));
        must(attn_sgd_step(theta, velocity, dtheta, n, &(attn_sgd_config){rate, 0.9}));
        attn_arena_reset(&arena);
    }
    printf("\n");
    attn_arena_destroy(&arena);
    free(theta);
    free(dtheta);
    free(velocity);
    return (double)loss.correct / (double)loss.counted; /* the last batch was never trained on */
}

static void compare_heads(const char *title, task make, double *one, double *four) {
    printf("\n%s\n  one head of 64\n", title);
    *one = train(make, CLASSES, MAX_LEN, 1, STEPS);
    printf("  four heads of 16\n");
    *four = train(make, CLASSES, MAX_LEN, 4, STEPS);
    printf("    accuracy on a fresh batch: one head %.3f, four heads %.3f\n", *one, *four);
}

int main(void) {
    double one, four;
    printf("copy: 8 symbols, separator, the same 8 again; one layer, width 64, 4 heads\n");
    double copied = train(copy, SYMBOLS + 1, 16, 4, STEPS);
    printf("    accuracy on a fresh batch %.3f (chance %.3f)\n", copied, 1.0 / SYMBOLS);
    claim(copied > 0.99, "attention alone learns to copy");

    compare_heads("two places at once: the last 2 of 8 symbols", last_2_of_8, &one, &four);
    claim(one > 0.99 && four > 0.99, "one head manages, with unequal weights");
    compare_heads("six places at once: the last 6 of 2 symbols", last_6_of_2, &one, &four);
    claim(one < 0.7 && four > 0.95, "one head is lost, four of the same total width are not");
    return 0;
}
