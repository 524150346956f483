/*
 * What the scaling means for learning: the copy task with one wide head, trained twice from the
 * same parameters on the same sequences, with and without it.
 *
 * The claim is about queries and keys of unit variance, as a layer gets them from a normalised
 * input. The small initial values of `attn train` give far smaller ones, for which the scores start
 * near zero either way; so embeddings, Wq and Wk are enlarged to unit variance here.
 */
#include "health.h"
#include "output.h"
#include "plot.h"
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 300, WIDTH = 256 };

static void enlarge(attn_real *x, size_t count, double factor) {
    for (size_t i = 0; i < count; i++)
        x[i] = (attn_real)(factor * x[i]);
}

/* Both embeddings together, and each element of q and k, get variance 1. */
static void normalise(train_run *run) {
    const attn_model_config *m = &run->model;
    attn_model_params w = attn_model_params_view(m, run->theta);
    attn_mha_params layer = attn_model_layer_view(m, &w, 0);
    size_t width = m->num_heads * m->d_head, weights = width * m->d_model;
    double deviation = 0.1;                             /* of each embedding's elements */
    double variance = 2 / (double)(width + m->d_model); /* of Wq and Wk: Xavier */
    double factor = sqrt(1 / (variance * (double)m->d_model));
    enlarge(w.token_embedding, m->vocab * m->d_model, sqrt(0.5) / deviation);
    enlarge(w.position_embedding, m->context * m->d_model, sqrt(0.5) / deviation);
    enlarge(layer.wq, weights, factor);
    enlarge(layer.wk, weights, factor);
}

static int learn(health_copy_result *result, train_point *points, bool scaled, uint64_t seed) {
    train_options o = train_defaults(TRAIN_COPY);
    o.heads = 1;
    o.d_head = WIDTH;
    o.steps = STEPS;
    o.lr = 0.1;
    o.seed = seed;
    o.scale = scaled;
    o.quiet = true;
    train_run run;
    train_result final = {0};
    int status = train_start(&run, &o);
    if (status == TOOL_OK) {
        normalise(&run);
        status = train_steps(&run, NULL, NULL);
    }
    if (status == TOOL_OK)
        status = train_evaluate(&run, &final);
    if (status == TOOL_OK)
        memcpy(points, run.train.points, STEPS * sizeof *points);
    train_end(&run);
    result->loss[scaled] = final.loss;
    result->accuracy[scaled] = final.accuracy;
    return status;
}

static int write_csv(const char *dir, train_point points[2][STEPS]) {
    tool_file file;
    if (tool_file_open(&file, dir, "copy.csv") != TOOL_OK)
        return TOOL_FAILED;
    fprintf(file.stream, "step,scaled_loss,scaled_accuracy,unscaled_loss,unscaled_accuracy\n");
    for (size_t i = 0; i < STEPS; i++)
        fprintf(file.stream, "%zu,%.9g,%.9g,%.9g,%.9g\n", i + 1, points[1][i].loss,
                points[1][i].accuracy, points[0][i].loss, points[0][i].accuracy);
    return tool_file_commit(&file);
}

static const char script[] =
    "set title 'Copying 16 symbols with one head of width %d, queries and keys of unit variance'\n"
    "set xlabel 'step'\n"
    "set ylabel 'training loss (nats per symbol)'\n"
    "set logscale y\n"
    "set format y '10^{%%T}'\n"
    "set key center right\n"
    "plot 'copy.csv' using 1:2 with lines ls 1 title 'scores divided by sqrt(%d)', \\\n"
    "     'copy.csv' using 1:4 with lines ls 2 title 'not divided'\n";

int health_copy(health_copy_result *result, const char *dir, uint64_t seed) {
    static train_point points[2][STEPS];
    *result = (health_copy_result){.d_head = WIDTH, .steps = STEPS};
    for (int scaled = 0; scaled < 2; scaled++) {
        int status = learn(result, points[scaled], scaled, seed);
        if (status != TOOL_OK)
            return status;
    }
    if (write_csv(dir, points) != TOOL_OK)
        return TOOL_FAILED;
    char *text = tool_format(script, WIDTH, WIDTH);
    int status = tool_plot(dir, "copy", text);
    free(text);
    return status;
}
