/* The command line of `attn train`. */
#include "train.h"

#include "options.h"
#include "output.h"

#include <float.h>

static const char *const tasks[] = {"copy", "reverse", "text", NULL};
static const char *const ropes[] = {"none", "interleaved", "half", NULL}; /* by attn_rope */
static const char *const kernels[] = {"auto", "reference", "fused", NULL};

const char *train_task_name(int task) {
    return tasks[task];
}

const char *train_rope_name(int rope) {
    return ropes[rope];
}

train_options train_defaults(int task) {
    train_options o = {.task = task,
                       .symbols = 16,
                       .length = 16,
                       .context = 32,
                       .d_model = 64,
                       .heads = 4,
                       .layers = 1,
                       .batch = 64,
                       .steps = 500,
                       .fresh = 1000,
                       .seed = 1,
                       .lr = 0.5,
                       .momentum = 0.9,
                       .clip = 1,
                       .embedding = 0.1,
                       .decay = true,
                       .scale = true};
    if (task == TRAIN_TEXT) { /* a longer run begins to learn the file by heart */
        o.layers = 2;
        o.batch = 32;
        o.steps = 1500;
    }
    return o;
}

/* Rows of the table of options. */
static tool_option size(const char *name, size_t *value, double min, double max, bool *given,
                        const char *help) {
    return (tool_option){.name = name,
                         .kind = TOOL_SIZE,
                         .value = value,
                         .help = help,
                         .has_min = true,
                         .has_max = true,
                         .min = min,
                         .max = max,
                         .given = given};
}

static tool_option shown(tool_option option, const char *words) {
    option.shown = words;
    return option;
}

static tool_option number(const char *name, double *value, double max, const char *help) {
    return (tool_option){.name = name,
                         .kind = TOOL_NUMBER,
                         .value = value,
                         .help = help,
                         .has_min = true,
                         .has_max = true,
                         .max = max};
}

static tool_option flag(const char *name, bool *value, const char *help) {
    return (tool_option){.name = name, .kind = TOOL_FLAG, .value = value, .help = help};
}

static tool_option file(const char *name, const char **value, const char *argument,
                        const char *help) {
    return (tool_option){
        .name = name, .kind = TOOL_TEXT, .value = value, .argument = argument, .help = help};
}

static tool_option choice(const char *name, int *value, const char *const *choices,
                          const char *help) {
    return (tool_option){
        .name = name, .kind = TOOL_CHOICE, .value = value, .choices = choices, .help = help};
}

/* Options that were given: their defaults depend on the task, or they make no sense with it. */
typedef struct given {
    bool symbols, length, fresh, context, layers, batch, steps;
} given;

static bool parse(train_options *o, given *g, int argc, char **argv, int *status) {
    const double many = 1e9;
    const tool_option options[] = {
        choice("task", &o->task, tasks, "what to learn"),
        file("data", &o->data, "FILE", "text: the file whose bytes are learnt"),
        size("symbols", &o->symbols, 1, 1e6, &g->symbols, "copy, reverse: different symbols"),
        size("length", &o->length, 1, 1e6, &g->length, "copy, reverse: symbols of a sequence"),
        size("context", &o->context, 1, 1e6, &g->context,
             "text: bytes that a prediction looks back on"),
        size("d-model", &o->d_model, 1, many, NULL, "width"),
        size("heads", &o->heads, 1, many, NULL, "attention heads of a layer"),
        shown(size("d-head", &o->d_head, 1, many, NULL, "width of a head"), "width / heads"),
        shown(size("kv-heads", &o->kv_heads, 1, many, NULL, "heads of keys and values"), "heads"),
        shown(size("layers", &o->layers, 1, 1000, &g->layers, "attention layers"), "1; text 2"),
        shown(size("batch", &o->batch, 1, many, &g->batch, "sequences of a step"), "64; text 32"),
        shown(size("steps", &o->steps, 1, many, &g->steps, "training steps"), "500; text 1500"),
        size("fresh", &o->fresh, 1, many, &g->fresh,
             "copy, reverse: new sequences of the final evaluation"),
        {.name = "seed",
         .kind = TOOL_SEED,
         .value = &o->seed,
         .help = "the same seed gives the same bits"},
        number("lr", &o->lr, FLT_MAX, "learning rate"),
        number("momentum", &o->momentum, 1, "momentum of the descent"),
        number("clip", &o->clip, 1e300, "longest gradient; 0 = any"),
        number("embedding", &o->embedding, 1e3, "deviation of the initial embeddings"),
        flag("decay", &o->decay, "let the learning rate fall linearly to 0"),
        flag("scale", &o->scale, "scale the scores by 1/sqrt(head width)"),
        choice("rope", &o->rope, ropes, "rotary positions, by their pairs"),
        shown(size("window", &o->window, 1, many, NULL,
                   "tokens that a position sees, its own included"),
              "all before it"),
        flag("alibi", &o->alibi, "distances count: ALiBi with the standard slopes"),
        flag("alibi-learned", &o->alibi_learned, "ALiBi with slopes that are learnt"),
        number("softcap", &o->softcap, 1e6, "scores stay within this; 0 = off"),
        flag("sinks", &o->sinks, "a learnt logit in every row, for no token"),
        number("dropout", &o->dropout, 1, "share of the weights dropped in training"),
        choice("kernel", &o->kernel, kernels, "path of the attention"),
        shown(size("threads", &o->threads, 1, 1024, NULL, "threads"), "as many as pay"),
        file("log", &o->log, "FILE", "loss and accuracy of every step, as CSV"),
        file("plots", &o->plots, "DIR", "loss.png and attention.png, their data and scripts"),
        shown(size("plot-layer", &o->plot_layer, 1, 1000, NULL, "the layer in attention.png"),
              "the last"),
        file("save", &o->save, "FILE", "parameters after the last step, as safetensors"),
        file("load", &o->load, "FILE", "parameters to begin with"),
        flag("json", &o->json, "one line of JSON on stdout"),
        {0}};
    const tool_usage usage = {
        .about = "Trains a toy Transformer, attention layers alone, by gradient descent.\n\n"
                 "  copy     symbols, a separator, the same symbols again\n"
                 "  reverse  symbols, a separator, the symbols backwards\n"
                 "  text     the next byte of a file, of which the last tenth is held out",
        .options = options};
    return tool_options_parse(&usage, argc, argv, NULL, status);
}

/* Results go neither where an input comes from nor on top of each other. To go on with a model in
 * the file that it was loaded from is a different matter. */
static int check_files(const train_options *o) {
    const struct {
        const char *result, *result_path, *other, *other_path;
    } pairs[] = {{"log", o->log, "data", o->data},
                 {"log", o->log, "load", o->load},
                 {"log", o->log, "save", o->save},
                 {"save", o->save, "data", o->data}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (tool_same_file(pairs[i].result_path, pairs[i].other_path))
            return tool_usage_error("--%s: '%s' is the file of --%s", pairs[i].result,
                                    pairs[i].result_path, pairs[i].other);
    return TOOL_OK;
}

/* What no option can tell alone. */
static int check(const train_options *o, const given *g) {
    bool text = o->task == TRAIN_TEXT;
    if (text && !o->data)
        return tool_usage_error("--task text needs --data FILE");
    if (!text && (o->data || g->context))
        return tool_usage_error("--%s goes with --task text", o->data ? "data" : "context");
    if (text && (g->symbols || g->length || g->fresh))
        return tool_usage_error("--%s goes with --task copy and reverse", g->symbols  ? "symbols"
                                                                          : g->length ? "length"
                                                                                      : "fresh");
    if (o->d_head == 0 && o->d_model % o->heads != 0)
        return tool_usage_error("--heads %zu does not divide --d-model %zu (see --d-head)",
                                o->heads, o->d_model);
    size_t d_head = o->d_head ? o->d_head : o->d_model / o->heads;
    if (o->rope != ATTN_ROPE_NONE && d_head % 2 != 0)
        return tool_usage_error("--rope %s turns pairs, but a head of width %zu is odd",
                                ropes[o->rope], d_head);
    if (o->kv_heads != 0 && o->heads % o->kv_heads != 0)
        return tool_usage_error("--kv-heads %zu does not divide --heads %zu", o->kv_heads,
                                o->heads);
    if (o->dropout >= 1)
        return tool_usage_error("--dropout: %.15g must be below 1", o->dropout);
    if ((attn_real)o->momentum >= 1)
        return tool_usage_error("--momentum: %.15g must be below 1, in float too", o->momentum);
    if (o->plot_layer > o->layers)
        return tool_usage_error("--plot-layer %zu: there are %zu layers", o->plot_layer, o->layers);
    return check_files(o);
}

bool train_parse(train_options *o, int argc, char **argv, int *status) {
    given g = {0};
    *o = train_defaults(TRAIN_COPY);
    if (!parse(o, &g, argc, argv, status))
        return false;
    train_options d = train_defaults(o->task);
    o->layers = g.layers ? o->layers : d.layers;
    o->batch = g.batch ? o->batch : d.batch;
    o->steps = g.steps ? o->steps : d.steps;
    *status = check(o, &g);
    if (o->plot_layer == 0)
        o->plot_layer = o->layers;
    return *status == TOOL_OK;
}
