/* The training loop: forward, backward, step; evaluation on sequences never seen. */
#include "train.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Streams of the seed: what is drawn for one purpose does not depend on another. */
enum { STREAM_TRAIN = 1, STREAM_FRESH = 2, STREAM_DROPOUT = 5 };

/* Signals that ask a program to end: from the keyboard, from another program, from a terminal that
 * goes away. */
static const int endings[] = {SIGINT, SIGTERM, SIGHUP};
enum { ENDINGS = sizeof endings / sizeof *endings };

static volatile sig_atomic_t interrupted; /* by this signal */

static void interrupt(int signal) {
    interrupted = signal;
}

/* The first of these signals ends the loop, a second one of a kind the program. */
static void catch_interrupts(bool on, struct sigaction before[ENDINGS]) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupt;
    action.sa_flags = (int)SA_RESETHAND;
    for (int i = 0; i < ENDINGS; i++) {
        if (on)
            sigaction(endings[i], &action, &before[i]);
        if (!on || before[i].sa_handler == SIG_IGN) /* nohup, a background job: stays deaf */
            sigaction(endings[i], &before[i], NULL);
    }
}

static attn_model_config model_of(const train_options *o, const train_task *task) {
    return (attn_model_config){
        .vocab = task->vocab,
        .context = task->len,
        .d_model = o->d_model,
        .num_heads = o->heads,
        .d_head = o->d_head,
        .num_layers = o->layers,
        .bias = true,
        .has_scale = !o->scale,
        .scale = 1,
        .rope = (attn_rope)o->rope,
        .num_kv_heads = o->kv_heads,
        .softcap = o->softcap,
        .alibi = o->alibi || o->alibi_learned,
        .alibi_learned = o->alibi_learned,
        .sinks = o->sinks,
        .dropout = o->dropout,
        .window = {.left_on = o->window > 0, .left = o->window > 0 ? o->window - 1 : 0},
        .kernel = (attn_kernel)o->kernel,
        .max_threads = o->threads};
}

static attn_model_input batch_input(const train_run *run) {
    return (attn_model_input){.batch = run->options.batch,
                              .len = run->task.len,
                              .tokens = run->tokens,
                              .targets = run->targets};
}

/* What the run will ask the system for; more than the machine has is refused beforehand, for where
 * the system promises memory it lacks, the run would be killed in the middle. */
static int check_memory(const train_run *run, size_t arena) {
    double has = tool_memory();
    double wants = (double)arena + 3 * (double)run->num_params * sizeof(attn_real);
    if (wants > has)
        return tool_fail("a batch of %zu with width %zu and %zu layers needs %.3g GB, the machine "
                         "has %.3g GB",
                         run->options.batch, run->options.d_model, run->options.layers, wants / 1e9,
                         has / 1e9);
    return TOOL_OK;
}

/* The library's initial parameters, with embeddings of the deviation asked for. */
static int init(train_run *run) {
    const double of_the_library = 0.1;
    const attn_model_config *m = &run->model;
    if (attn_model_params_init(m, run->theta, run->options.seed) != ATTN_OK)
        return tool_fail("%s", attn_error_message());
    attn_real factor = (attn_real)(run->options.embedding / of_the_library);
    for (size_t i = 0; i < (m->vocab + m->context) * m->d_model; i++)
        run->theta[i] *= factor;
    return TOOL_OK;
}

int train_start(train_run *run, const train_options *options) {
    memset(run, 0, sizeof *run);
    run->options = *options;
    int status = train_task_open(&run->task, options);
    if (status != TOOL_OK)
        return status;
    run->model = model_of(options, &run->task);
    attn_model_input input = batch_input(run);
    attn_memory memory;
    if (attn_model_config_check(&run->model) != ATTN_OK ||
        attn_model_memory(&run->model, &input, &memory) != ATTN_OK)
        return tool_fail("%s", attn_error_message());
    run->num_params = attn_model_num_params(&run->model);
    size_t bytes = memory.training > memory.inference ? memory.training : memory.inference;
    if (check_memory(run, bytes) != TOOL_OK)
        return TOOL_FAILED;
    if (attn_arena_create(&run->arena, bytes) != ATTN_OK)
        return tool_fail("%s", attn_error_message());
    run->theta = tool_alloc(run->num_params, sizeof *run->theta);
    run->dtheta = tool_alloc(run->num_params, sizeof *run->dtheta);
    run->velocity = tool_alloc(run->num_params, sizeof *run->velocity);
    run->tokens = tool_alloc(options->batch * run->task.len, sizeof *run->tokens);
    run->targets = tool_alloc(options->batch * run->task.len, sizeof *run->targets);
    if (options->task == TRAIN_TEXT) {
        run->unigram_loss = train_unigram_loss(&run->task);
        run->bigram_loss = train_bigram_loss(&run->task);
    }
    if (init(run) != TOOL_OK)
        return TOOL_FAILED;
    return options->load ? train_load(run, options->load) : TOOL_OK;
}

void train_end(train_run *run) {
    train_task_close(&run->task);
    attn_arena_destroy(&run->arena);
    free(run->theta);
    free(run->dtheta);
    free(run->velocity);
    free(run->tokens);
    free(run->targets);
    free(run->train.points);
    free(run->validation.points);
}

/* Of one step, so that a step's dropout depends on the seed and its number alone. */
static uint64_t dropout_seed(const train_run *run, size_t step_number) {
    attn_random random = attn_random_seed(run->options.seed, STREAM_DROPOUT);
    return ((uint64_t)attn_random_u32(&random) << 32) + step_number;
}

static attn_status step(train_run *run, size_t step_number, double lr, attn_loss *loss) {
    attn_model_params w = attn_model_params_view(&run->model, run->theta);
    attn_model_params dw = attn_model_params_view(&run->model, run->dtheta);
    attn_model_input input = batch_input(run);
    attn_model_saved saved;
    input.dropout_seed = dropout_seed(run, step_number);
    memset(run->dtheta, 0, run->num_params * sizeof *run->dtheta);
    attn_status status = attn_model_forward(&run->model, &w, &input, loss, &run->arena, &saved);
    if (status == ATTN_OK && isfinite(loss->mean))
        status = attn_model_backward(&run->model, &w, &saved, &dw, &run->arena);
    attn_arena_reset(&run->arena);
    if (status != ATTN_OK || !isfinite(loss->mean))
        return status;
    status = attn_clip_gradient(run->dtheta, run->num_params, run->options.clip, NULL);
    if (status != ATTN_OK)
        return status;
    const attn_sgd_config sgd = {lr, run->options.momentum};
    return attn_sgd_step(run->theta, run->velocity, run->dtheta, run->num_params, &sgd);
}

static double share(size_t part, size_t all) {
    return all ? (double)part / (double)all : 0;
}

/* Loss of the tokens in place, nothing learnt. */
static int infer(train_run *run, attn_loss *loss) {
    attn_model_params w = attn_model_params_view(&run->model, run->theta);
    attn_model_input input = batch_input(run);
    attn_arena_reset(&run->arena);
    if (attn_model_forward(&run->model, &w, &input, loss, &run->arena, NULL) != ATTN_OK)
        return tool_fail("%s", attn_error_message());
    return TOOL_OK;
}

typedef struct tally {
    double loss;
    size_t counted, correct;
} tally;

static void count_in(tally *sum, const attn_loss *loss) {
    sum->loss += loss->mean * (double)loss->counted;
    sum->counted += loss->counted;
    sum->correct += loss->correct;
}

static int evaluate_held_out(train_run *run, tally *sum) {
    size_t batch = run->options.batch, used = batch;
    *sum = (tally){0};
    for (size_t first = 0; used == batch; first += batch) {
        attn_loss loss;
        used = train_task_held_out(&run->task, first, batch, run->tokens, run->targets);
        if (infer(run, &loss) != TOOL_OK)
            return TOOL_FAILED;
        count_in(sum, &loss);
    }
    return TOOL_OK;
}

static int evaluate_fresh(train_run *run, tally *sum) {
    size_t batch = run->options.batch, len = run->task.len;
    attn_random random = attn_random_seed(run->options.seed, STREAM_FRESH);
    *sum = (tally){0};
    for (size_t done = 0; done < run->options.fresh; done += batch) {
        attn_loss loss;
        train_task_draw(&run->task, &random, batch, run->tokens, run->targets);
        for (size_t i = run->options.fresh - done; i < batch; i++) /* beyond the last one */
            for (size_t t = 0; t < len; t++)
                run->targets[i * len + t] = -1;
        if (infer(run, &loss) != TOOL_OK)
            return TOOL_FAILED;
        count_in(sum, &loss);
    }
    return TOOL_OK;
}

/* Mean over the last tenth of the steps. */
static void recent(const train_curve *curve, train_result *result) {
    size_t from = curve->count - (curve->count + 9) / 10;
    for (size_t i = from; i < curve->count; i++) {
        result->loss += curve->points[i].loss / (double)(curve->count - from);
        result->accuracy += curve->points[i].accuracy / (double)(curve->count - from);
    }
}

int train_evaluate(train_run *run, train_result *result) {
    tally sum;
    *result = (train_result){0};
    bool text = run->options.task == TRAIN_TEXT;
    int status = text ? evaluate_held_out(run, &sum) : evaluate_fresh(run, &sum);
    if (status != TOOL_OK)
        return status;
    double loss = sum.counted ? sum.loss / (double)sum.counted : 0;
    double accuracy = share(sum.correct, sum.counted);
    if (text) {
        recent(&run->train, result);
        result->validation_loss = loss;
        result->validation_accuracy = accuracy;
    } else {
        result->loss = loss;
        result->accuracy = accuracy;
    }
    if (!isfinite(loss))
        return tool_fail("the loss after the last step is not finite (%g)", loss);
    return TOOL_OK;
}

/* A run may be stopped long before its last step: memory grows with the steps done. */
static void append(train_curve *curve, train_point point) {
    if (curve->count == curve->room) {
        curve->room = curve->room ? 2 * curve->room : 1024;
        train_point *points = tool_alloc(curve->room, sizeof *points);
        if (curve->count > 0)
            memcpy(points, curve->points, curve->count * sizeof *points);
        free(curve->points);
        curve->points = points;
    }
    curve->points[curve->count++] = point;
}

static int validate(train_run *run, size_t step_number) {
    tally sum;
    if (evaluate_held_out(run, &sum) != TOOL_OK)
        return TOOL_FAILED;
    append(&run->validation, (train_point){.step = step_number,
                                           .loss = sum.loss / (double)sum.counted,
                                           .accuracy = share(sum.correct, sum.counted)});
    return TOOL_OK;
}

enum { VALIDATIONS = 20 }; /* over the run */

/*
 * Where no number of threads is asked for: a small step is done sooner by one thread than by many
 * that wait for each other, the more so on a busy machine. The bits are the same either way, so
 * both are timed: by turns at first, then at steps 16, 32, 64, ... in case things have changed.
 */
static void choose_threads(train_run *run, size_t step_number, double seconds) {
    if (run->options.threads != 0)
        return;
    bool one = run->model.max_threads == 1;
    double *mean = &run->step_seconds[one];
    *mean = step_number <= 4 ? seconds : 0.7 * *mean + 0.3 * seconds;
    if (step_number < 8)
        one = !one;
    else {
        one = run->step_seconds[true] < run->step_seconds[false];
        if (((step_number + 1) & step_number) == 0)
            one = !one;
    }
    run->model.max_threads = one ? 1 : 0;
}

static int loop(train_run *run, tool_progress *progress,
                int (*row)(void *context, const train_point *point), void *context) {
    const train_options *o = &run->options;
    attn_random random = attn_random_seed(o->seed, STREAM_TRAIN);
    size_t batch_tokens = o->batch * run->task.len;
    for (size_t n = 1; n <= o->steps; n++) {
        attn_loss loss;
        double lr = o->decay ? o->lr * (double)(o->steps - n + 1) / (double)o->steps : o->lr;
        double before = tool_seconds();
        train_task_draw(&run->task, &random, o->batch, run->tokens, run->targets);
        if (step(run, n, lr, &loss) != ATTN_OK)
            return tool_fail("step %zu: %s", n, attn_error_message());
        double seconds = tool_seconds() - before;
        run->seconds += seconds;
        choose_threads(run, n, seconds);
        train_point point = {n, loss.mean, share(loss.correct, loss.counted), lr};
        append(&run->train, point);
        if (row && row(context, &point) != TOOL_OK)
            return TOOL_FAILED;
        if (!isfinite(loss.mean))
            return tool_fail("step %zu: the loss is not finite (%g); a smaller --lr may help", n,
                             loss.mean);
        if (!o->quiet)
            tool_progress_update(progress, n, point.loss, point.accuracy,
                                 (double)n * (double)batch_tokens);
        bool due = n * VALIDATIONS / o->steps > (n - 1) * VALIDATIONS / o->steps;
        if (o->task == TRAIN_TEXT && due && validate(run, n) != TOOL_OK)
            return TOOL_FAILED;
        if (interrupted) {
            tool_warn("interrupted after step %zu of %zu", n, o->steps);
            return TOOL_SIGNALLED + interrupted;
        }
    }
    return TOOL_OK;
}

int train_steps(train_run *run, int (*row)(void *context, const train_point *point),
                void *context) {
    struct sigaction before[ENDINGS];
    tool_progress progress = tool_progress_start(run->options.steps);
    catch_interrupts(true, before);
    int status = loop(run, &progress, row, context);
    catch_interrupts(false, before);
    if (!run->options.quiet)
        tool_progress_finish(&progress);
    return status;
}
