/* What the model writes when it goes on by itself. */
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 32, SAMPLE = 320, STREAM_SAMPLE = 3 };

/* Bytes of the well-formed UTF-8 character at `text`, or 0: the sample may break off anywhere, and
 * an untrained model writes noise. */
static size_t character(const unsigned char *text, size_t left) {
    static const struct form {
        unsigned char first, last, low, high; /* lead bytes, and what the second byte may be */
        size_t bytes;
    } forms[] = {{0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
                 {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3},
                 {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
                 {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const struct form *f = &forms[i];
        if (text[0] < f->first || text[0] > f->last || left < f->bytes)
            continue;
        bool good = text[1] >= f->low && text[1] <= f->high;
        for (size_t j = 2; j < f->bytes; j++)
            good = good && text[j] >= 0x80 && text[j] <= 0xBF;
        /* C2 80 .. C2 9F are control characters. */
        return good && !(text[0] == 0xC2 && text[1] < 0xA0) ? f->bytes : 0;
    }
    return 0;
}

/* Nothing but characters and ends of lines reaches the terminal; '?' stands for the rest. */
static void print_safely(FILE *stream, const unsigned char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        bool plain = (text[i] >= ' ' && text[i] < 127) || text[i] == '\n' || text[i] == '\t';
        size_t bytes = plain ? 1 : character(text + i, n - i);
        if (bytes > 0)
            fwrite(text + i, 1, bytes, stream);
        else
            putc('?', stream);
        i += bytes ? bytes : 1;
    }
}

/* A token drawn from softmax(logits). */
static int32_t draw(const attn_real *logits, size_t vocab, attn_random *random) {
    double top = (double)logits[0], sum = 0;
    for (size_t j = 1; j < vocab; j++)
        top = fmax(top, (double)logits[j]);
    for (size_t j = 0; j < vocab; j++)
        sum += exp((double)logits[j] - top);
    double left = attn_random_uniform(random) * sum;
    for (size_t j = 0; j < vocab; j++) {
        left -= exp((double)logits[j] - top);
        if (left < 0)
            return (int32_t)j;
    }
    return (int32_t)vocab - 1;
}

/* The sequence grows in `tokens`; when it is as long as the context, the oldest half drops out. */
static int grow(train_run *run, int32_t *tokens, unsigned char *text, size_t start, size_t n,
                attn_real *logits) {
    const size_t context = run->task.len;
    attn_model_params w = attn_model_params_view(&run->model, run->theta);
    attn_random random = attn_random_seed(run->options.seed, STREAM_SAMPLE);
    size_t len = start < context ? start : context;
    for (size_t i = 0; i < len; i++)
        tokens[i] = text[start - len + i];
    for (size_t i = start; i < n; i++) {
        attn_model_input input = {.batch = 1, .len = len, .tokens = tokens, .logits = logits};
        attn_arena_reset(&run->arena);
        if (attn_model_forward(&run->model, &w, &input, NULL, &run->arena, NULL) != ATTN_OK)
            return tool_fail("%s", attn_error_message());
        int32_t next = draw(logits + (len - 1) * run->task.vocab, run->task.vocab, &random);
        text[i] = (unsigned char)next;
        if (len == context) {
            size_t half = context / 2;
            memmove(tokens, tokens + context - half, half * sizeof *tokens);
            len = half;
        }
        tokens[len++] = next;
    }
    return TOOL_OK;
}

int train_sample(train_run *run, FILE *stream) {
    const train_task *task = &run->task;
    unsigned char text[PROMPT + SAMPLE];
    size_t held_out = task->num_bytes - task->train_bytes;
    size_t prompt = held_out < PROMPT ? held_out : PROMPT;
    memcpy(text, task->bytes + task->train_bytes, prompt);
    int32_t *tokens = tool_alloc(task->len, sizeof *tokens);
    attn_real *logits = tool_alloc(task->len * task->vocab, sizeof *logits);
    int status = grow(run, tokens, text, prompt, prompt + SAMPLE, logits);
    if (status == TOOL_OK) {
        fprintf(stream, "sample (the first %zu bytes are given):\n", prompt);
        print_safely(stream, text, prompt + SAMPLE);
        putc('\n', stream);
    }
    free(tokens);
    free(logits);
    return status;
}
