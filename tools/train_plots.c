/* The pictures of a run: its losses, and what the heads of one layer look at. */
#include "train.h"

#include "output.h"
#include "plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HEADS = 16, MOST_TOKENS = 64, MOST_LABELS = 40, STREAM_PLOT = 4 };

/* ---- loss.png ---- */

static int write_curve(const char *dir, const char *name, const train_curve *curve) {
    tool_file file;
    if (tool_file_open(&file, dir, name) != TOOL_OK)
        return TOOL_FAILED;
    fprintf(file.stream, "step,loss,accuracy\n");
    for (size_t i = 0; i < curve->count; i++)
        fprintf(file.stream, "%zu,%.9g,%.9g\n", curve->points[i].step, curve->points[i].loss,
                curve->points[i].accuracy);
    return tool_file_commit(&file);
}

static const char copy_script[] =
    "set title '%s of %zu symbols, length %zu: %zu layer%s, %zu head%s, width %zu'\n"
    "set xlabel 'step'\n"
    "set xrange [0:%zu]\n"
    "set ylabel 'loss (nats per symbol)'\n"
    "set y2label 'accuracy'\n"
    "set border 11\n"
    "set y2tics format '%%.0f %%%%'\n"
    "set yrange [0:*]\n"
    "set y2range [0:103]\n"
    "set key center right\n"
    "plot 'loss.csv' using 1:2 axes x1y1 with lines ls 1 title 'loss', \\\n"
    "     'loss.csv' using 1:($3*100) axes x1y2 with lines ls 2 title 'accuracy'\n";

static const char text_script[] =
    "set title 'next byte of %s: %zu layer%s, %zu head%s, width %zu' noenhanced\n"
    "set xlabel 'step'\n"
    "set xrange [0:%zu]\n"
    "set ylabel 'loss (nats per byte)'\n"
    "set yrange [0:*]\n"
    "unigram = %.6f\n"
    "bigram = %.6f\n"
    "plot 'loss.csv' using 1:2 with lines lc rgb '#a6cde3' lw 1 title 'training', \\\n"
    "     'validation.csv' using 1:2 with linespoints ls 1 ps 0.8 title 'held out', \\\n"
    "     unigram with lines lc rgb '#808080' dt 3 lw 2 title 'counting single bytes', \\\n"
    "     bigram with lines ls 2 dt 2 title 'counting pairs of bytes'\n";

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static int plot_loss(const train_run *run) {
    const train_options *o = &run->options;
    const char *layers = o->layers == 1 ? "" : "s", *heads = o->heads == 1 ? "" : "s";
    bool text = o->task == TRAIN_TEXT;
    if (write_curve(o->plots, "loss.csv", &run->train) != TOOL_OK ||
        (text && write_curve(o->plots, "validation.csv", &run->validation) != TOOL_OK))
        return TOOL_FAILED;
    char *name = tool_format("%s", text ? base_name(o->data) : ""), *script;
    for (char *c = name; *c; c++) /* ends no string of the script */
        if (*c == '\'' || *c == '\\' || (unsigned char)*c < ' ')
            *c = '_';
    if (text)
        script = tool_format(text_script, name, o->layers, layers, o->heads, heads, o->d_model,
                             o->steps, run->unigram_loss, run->bigram_loss);
    else
        script =
            tool_format(copy_script, o->task == TRAIN_REVERSE ? "reversal" : "copy", o->symbols,
                        o->length, o->layers, layers, o->heads, heads, o->d_model, o->steps);
    int status = tool_plot(o->plots, "loss", script);
    free(name);
    free(script);
    return status;
}

/* ---- attention.png ---- */

typedef struct sample {
    size_t len, layer;
    int32_t *tokens;
    attn_real *weights; /* (H, T, T) */
} sample;

/* Tokens for the picture: a fresh sequence, or the beginning of the held-out text. */
static void draw_tokens(const train_run *run, sample *s) {
    const train_task *task = &run->task;
    s->tokens = tool_alloc(task->len, sizeof *s->tokens);
    s->len = task->len < MOST_TOKENS ? task->len : MOST_TOKENS;
    int32_t *targets = tool_alloc(task->len, sizeof *targets);
    attn_random random = attn_random_seed(run->options.seed, STREAM_PLOT);
    train_task_draw(task, &random, 1, s->tokens, targets);
    free(targets);
    size_t held_out = task->num_bytes - task->train_bytes;
    for (size_t t = 0; task->bytes && t < s->len; t++)
        s->tokens[t] = task->bytes[task->train_bytes + t % held_out];
}

static int look(const train_run *run, sample *s) {
    attn_model_params w = attn_model_params_view(&run->model, run->theta);
    s->weights = tool_alloc(run->model.num_heads * s->len * s->len, sizeof *s->weights);
    attn_model_input input = {.batch = 1,
                              .len = s->len,
                              .tokens = s->tokens,
                              .weights = s->weights,
                              .weights_layer = s->layer};
    attn_model_config model = run->model;
    model.kernel = ATTN_KERNEL_AUTO; /* the fused path has no weights to show */
    attn_memory memory;
    attn_arena arena = {0};
    attn_status status = attn_model_memory(&model, &input, &memory);
    if (status == ATTN_OK)
        status = attn_arena_create(&arena, memory.inference);
    if (status == ATTN_OK)
        status = attn_model_forward(&model, &w, &input, NULL, &arena, NULL);
    attn_arena_destroy(&arena);
    return status == ATTN_OK ? TOOL_OK : tool_fail("attention.png: %s", attn_error_message());
}

static int write_weights(const char *dir, const sample *s, size_t heads) {
    tool_file file;
    if (tool_file_open(&file, dir, "attention.csv") != TOOL_OK)
        return TOOL_FAILED;
    fprintf(file.stream, "head,query,key,weight\n");
    const attn_real *weight = s->weights;
    for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < s->len; i++)
            for (size_t j = 0; j < s->len; j++)
                fprintf(file.stream, "%zu,%zu,%zu,%.6g\n", h + 1, i, j, (double)*weight++);
    return tool_file_commit(&file);
}

static void label_axis(FILE *script, const train_task *task, const sample *s, char axis) {
    if (s->len > MOST_LABELS) {
        fprintf(script, "set %ctics auto scale 0\n", axis);
        return;
    }
    fprintf(script, "set %ctics scale 0 font ',8' offset 0,0 noenhanced norotate (", axis);
    for (size_t t = 0; t < s->len; t++) {
        char label[16];
        train_task_label(task, s->tokens[t], label, sizeof label);
        const char *quote = label[0] == '\'' ? "''''" : NULL;
        fprintf(script, quote ? "%s%s %zu" : "%s'%s' %zu", t ? ", " : "", quote ? quote : label, t);
    }
    fprintf(script, ")\n");
}

/* Panels in a grid, one colour bar at the right. */
static void write_panels(FILE *script, const train_run *run, const sample *s, size_t heads,
                         size_t columns) {
    const size_t rows = (heads + columns - 1) / columns, cells = s->len * s->len;
    const double left = 0.02, right = 0.92, top = 0.955, bottom = 0.01;
    const double width = (right - left) / (double)columns, height = (top - bottom) / (double)rows;
    label_axis(script, &run->task, s, 'x');
    label_axis(script, &run->task, s, 'y');
    fprintf(script,
            "set multiplot\n"
            "set label 1 'layer %zu: what each position (row) looks at (column)' "
            "at screen 0.47,0.975 center font ',13'\n"
            "unset key\nunset grid\nunset colorbox\nset border 15\n"
            "set xrange [-0.5:%zu.5]\nset yrange [%zu.5:-0.5]\nset cbrange [0:1]\n",
            s->layer + 1, s->len - 1, s->len - 1);
    if (run->task.kind != TRAIN_TEXT) {
        double line = (double)run->task.length - 0.5;
        fprintf(script,
                "set arrow 1 from %g,graph 0 to %g,graph 1 nohead front lc rgb '#b0b0b0' dt 2\n"
                "set arrow 2 from graph 0,first %g to graph 1,first %g nohead front "
                "lc rgb '#b0b0b0' dt 2\n",
                line, line, line, line);
    }
    for (size_t h = 0; h < heads; h++) {
        double x = left + width * (double)(h % columns), y = top - height * (double)(h / columns);
        fprintf(script,
                "set lmargin at screen %.4f\nset rmargin at screen %.4f\n"
                "set tmargin at screen %.4f\nset bmargin at screen %.4f\n"
                "set title 'head %zu' offset 0,-0.7\n%s",
                x + 0.14 * width, x + 0.98 * width, y - 0.10 * height, y - 0.93 * height, h + 1,
                h + 1 == heads ? "set colorbox user origin 0.935,0.12 size 0.018,0.66\n"
                                 "set label 2 'weight' at screen 0.944,0.805 center\n"
                               : "");
        fprintf(script,
                "plot 'attention.csv' every ::%zu::%zu using 3:2:4 with image\nunset label\n",
                h * cells, (h + 1) * cells - 1);
    }
    fprintf(script, "unset multiplot\n");
}

static int plot_attention(const train_run *run) {
    sample s = {.layer = run->options.plot_layer - 1};
    size_t heads = run->model.num_heads < MOST_HEADS ? run->model.num_heads : MOST_HEADS;
    size_t columns = heads <= 2 ? heads : heads <= 4 ? 2 : heads <= 9 ? 3 : 4;
    size_t rows = (heads + columns - 1) / columns;
    draw_tokens(run, &s);
    int status = look(run, &s);
    if (status == TOOL_OK)
        status = write_weights(run->options.plots, &s, heads);
    char *script = NULL;
    size_t size;
    FILE *stream = status == TOOL_OK ? open_memstream(&script, &size) : NULL;
    if (stream) {
        write_panels(stream, run, &s, heads, columns);
        fclose(stream);
        size_t panel = columns == 1 ? 640 : columns == 2 ? 480 : 380;
        status = tool_plot_sized(run->options.plots, "attention", script, panel * columns + 100,
                                 panel * rows + 60);
    }
    free(script);
    free(s.tokens);
    free(s.weights);
    return status;
}

static bool finite_parameters(const train_run *run) {
    for (size_t i = 0; i < run->num_params; i++)
        if (!isfinite(run->theta[i]))
            return false;
    return true;
}

int train_plots(train_run *run) {
    int status = plot_loss(run);
    if (status == TOOL_OK && finite_parameters(run))
        status = plot_attention(run);
    return status;
}
