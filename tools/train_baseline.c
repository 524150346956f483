/*
 * What counting alone achieves on a text, to be beaten by attention.
 *
 *     unigram   p(b)     = (c(b) + 1) / (n + 256)                          Laplace
 *     bigram    p(b | a) = (c(a,b) + d(a)·p(b)) / (c(a) + d(a))            Witten and Bell (1991)
 *
 * c counts in the training bytes, d(a) is the number of different bytes seen after a: where much of
 * what follows a is new, the single bytes weigh more. Nothing is tuned.
 */
#include "train.h"

#include <math.h>
#include <stdlib.h>

typedef struct counts {
    double single[256], pair[256][256];
    double after[256], kinds[256]; /* bytes seen after a, and how many different ones */
    double total;
} counts;

static counts *count(const train_task *task) {
    counts *c = tool_alloc(1, sizeof *c);
    for (size_t i = 0; i < task->train_bytes; i++)
        c->single[task->bytes[i]]++;
    c->total = (double)task->train_bytes;
    for (size_t i = 1; i < task->train_bytes; i++) {
        unsigned char a = task->bytes[i - 1], b = task->bytes[i];
        c->after[a]++;
        c->kinds[a] += c->pair[a][b] == 0;
        c->pair[a][b]++;
    }
    return c;
}

static double unigram(const counts *c, unsigned char b) {
    return (c->single[b] + 1) / (c->total + 256);
}

static double bigram(const counts *c, unsigned char a, unsigned char b) {
    if (c->after[a] == 0)
        return unigram(c, b);
    return (c->pair[a][b] + c->kinds[a] * unigram(c, b)) / (c->after[a] + c->kinds[a]);
}

static double mean_loss(const train_task *task, bool pairs) {
    counts *c = count(task);
    double sum = 0;
    for (size_t i = task->train_bytes; i < task->num_bytes; i++)
        sum -=
            log(pairs ? bigram(c, task->bytes[i - 1], task->bytes[i]) : unigram(c, task->bytes[i]));
    free(c);
    return sum / (double)(task->num_bytes - task->train_bytes);
}

double train_unigram_loss(const train_task *task) {
    return mean_loss(task, false);
}

double train_bigram_loss(const train_task *task) {
    return mean_loss(task, true);
}
