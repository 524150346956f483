/*
 * train.h - what the files of `attn train` share.
 *
 *     train_options o = train_defaults(TRAIN_COPY);
 *     train_run run;
 *     if (train_start(&run, &o) == TOOL_OK && train_steps(&run) == TOOL_OK)
 *         train_evaluate(&run, &result);
 *     train_end(&run);
 */
#ifndef TRAIN_H
#define TRAIN_H

#include "progress.h"
#include "tool.h"

#include <attn/attn.h>
#include <stdbool.h>
#include <stdio.h>

/* ---- options ---- */

enum { TRAIN_COPY, TRAIN_REVERSE, TRAIN_TEXT };

typedef struct train_options {
    int task;
    const char *data;       /* the file of TRAIN_TEXT */
    size_t symbols, length; /* of copy and reverse */
    size_t context;         /* of text: bytes that a prediction may look back on */
    size_t d_model, heads, d_head, layers, batch, steps, fresh;
    uint64_t seed;
    double lr, momentum, clip; /* clip 0 = none */
    double embedding;          /* deviation of the initial embeddings */
    bool decay, scale;         /* learning rate falls linearly to 0; scores times 1/sqrt(d_head) */
    size_t threads;
    size_t kv_heads; /* 0 = heads */
    size_t window;   /* tokens a position sees, its own included; 0 = all before it */
    bool alibi, alibi_learned, sinks;
    double softcap; /* 0 = off */
    double dropout;
    int rope;   /* attn_rope */
    int kernel; /* attn_kernel */
    const char *log, *plots, *save, *load;
    size_t plot_layer; /* from 1; 0 = the last */
    bool json;
    bool quiet; /* no progress */
} train_options;

train_options train_defaults(int task);
/* False: return *status. */
bool train_parse(train_options *options, int argc, char **argv, int *status);
const char *train_task_name(int task);
const char *train_rope_name(int rope);

/* ---- tasks ---- */

typedef struct train_task {
    int kind;
    size_t vocab, len; /* V and T of the model */
    size_t symbols, length;
    unsigned char *bytes; /* text: train_bytes to learn from, then the held-out tenth */
    size_t num_bytes, train_bytes;
} train_task;

/* TOOL_FAILED after one line if the data cannot be had. */
int train_task_open(train_task *task, const train_options *options);
void train_task_close(train_task *task);
/* `batch` random sequences: tokens and targets (batch, len). */
void train_task_draw(const train_task *task, attn_random *random, size_t batch, int32_t *tokens,
                     int32_t *targets);
/* Windows first .. first + batch - 1 over the held-out bytes, each of which is the counted target
 * of exactly one window; returns how many of them there are, the rest being not counted. */
size_t train_task_held_out(const train_task *task, size_t first, size_t batch, int32_t *tokens,
                           int32_t *targets);
/* What a token looks like, "a", for pictures. `size` at least 8. */
void train_task_label(const train_task *task, int32_t token, char *text, size_t size);

/* Mean loss of counting models of the training bytes on the held-out ones, nats per byte. */
double train_unigram_loss(const train_task *task);
double train_bigram_loss(const train_task *task);

/* ---- the run ---- */

typedef struct train_point {
    size_t step; /* from 1 */
    double loss, accuracy, lr;
} train_point;

typedef struct train_curve {
    train_point *points;
    size_t count, room;
} train_curve;

typedef struct train_run {
    train_options options;
    train_task task;
    attn_model_config model;
    size_t num_params;
    attn_real *theta, *dtheta, *velocity;
    attn_arena arena;
    int32_t *tokens, *targets; /* (batch, len) */
    train_curve train;         /* every step */
    train_curve validation;    /* text: now and then, on the held-out bytes */
    double unigram_loss, bigram_loss;
    double seconds;
    double step_seconds[2]; /* lately, with all threads and with one */
} train_run;

typedef struct train_result {
    double loss, accuracy; /* copy, reverse: on fresh sequences; text: of the last steps */
    double validation_loss, validation_accuracy; /* text */
} train_result;

/* Checks everything, opens the data, draws or loads the parameters. In any case train_end. */
int train_start(train_run *run, const train_options *options);
/* TOOL_OK, TOOL_FAILED (one line is said) or TOOL_SIGNALLED plus the signal that stopped the run;
 * `row` sees each point, and a result other than TOOL_OK stops the run. row may be NULL. */
int train_steps(train_run *run, int (*row)(void *context, const train_point *point), void *context);
int train_evaluate(train_run *run, train_result *result);
void train_end(train_run *run);

/* ---- what comes of it ---- */

/* loss.png and attention.png with data and scripts, as far as the run got. */
int train_plots(train_run *run);
/* Text that the model goes on with, on `stream`. */
int train_sample(train_run *run, FILE *stream);
int train_save(const train_run *run, const char *path);
int train_load(train_run *run, const char *path);

#endif
