/* attn train: a toy Transformer learns a task. */
#include "train.h"

#include "commands.h"
#include "json.h"
#include "output.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the log ---- */

static int log_row(void *context, const train_point *p) {
    tool_file *file = context;
    fprintf(file->stream, "%zu,%.9g,%.9g,%.9g\n", p->step, p->loss, p->accuracy, p->lr);
    return ferror(file->stream) ? tool_fail("%s: cannot be written", file->path) : TOOL_OK;
}

/* The first line goes out at once: a full disk shows before the training, not after it. */
static int log_open(tool_file *file, const char *path) {
    if (tool_file_open(file, NULL, path) != TOOL_OK)
        return TOOL_FAILED;
    fprintf(file->stream, "step,loss,accuracy,lr\n");
    if (fflush(file->stream) == 0)
        return TOOL_OK;
    int status = tool_fail("%s: %s", path, strerror(errno));
    tool_file_discard(file);
    return status;
}

/* ---- the report ---- */

static int report_json(const train_run *run, const train_result *r) {
    const train_options *o = &run->options;
    double tokens = (double)run->train.count * (double)(o->batch * run->task.len);
    tool_json json = tool_json_start(stdout);
    tool_json_open(&json, NULL, '{');
    tool_json_string(&json, "task", train_task_name(o->task));
    tool_json_count(&json, "steps", o->steps);
    tool_json_number(&json, "loss", r->loss);
    tool_json_number(&json, "accuracy", r->accuracy);
    tool_json_count(&json, "fresh_sequences", o->task == TRAIN_TEXT ? 0 : o->fresh);
    tool_json_number(&json, "seconds", run->seconds);
    tool_json_number(&json, "tokens_per_second", run->seconds > 0 ? tokens / run->seconds : 0);
    tool_json_count(&json, "parameters", run->num_params);
    tool_json_count(&json, "seed", o->seed);
    if (o->task == TRAIN_TEXT) {
        tool_json_number(&json, "validation_loss", r->validation_loss);
        tool_json_number(&json, "validation_accuracy", r->validation_accuracy);
        tool_json_number(&json, "unigram_loss", run->unigram_loss);
        tool_json_number(&json, "bigram_loss", run->bigram_loss);
    }
    tool_json_close(&json, '}');
    return tool_json_finish(&json, TOOL_OK);
}

static int report_words(train_run *run, const train_result *r) {
    const train_options *o = &run->options;
    printf("%s: %zu parameters, %zu steps in %.1f s\n", train_task_name(o->task), run->num_params,
           o->steps, run->seconds);
    if (o->task == TRAIN_TEXT) {
        printf(
            "held out, nats per byte: attention %.4f, pairs counted %.4f, bytes counted %.4f\n\n",
            r->validation_loss, run->bigram_loss, run->unigram_loss);
        return train_sample(run, stdout);
    }
    printf("%zu fresh sequences: loss %.6f, accuracy %.2f %%\n", o->fresh, r->loss,
           100 * r->accuracy);
    return TOOL_OK;
}

/* Evaluation and report after a complete run; what a run that stopped has, it has. */
static int conclude(train_run *run, int status) {
    const train_options *o = &run->options;
    train_result result;
    if (status == TOOL_OK)
        status = train_evaluate(run, &result);
    if (o->save && status != TOOL_FAILED && train_save(run, o->save) != TOOL_OK)
        status = TOOL_FAILED;
    if (o->plots && run->train.count > 0 && train_plots(run) != TOOL_OK)
        status = TOOL_FAILED;
    if (status != TOOL_OK)
        return status;
    if (!o->json)
        return report_words(run, &result);
    if (o->task == TRAIN_TEXT && train_sample(run, stderr) != TOOL_OK)
        return TOOL_FAILED;
    return report_json(run, &result);
}

int command_train(int argc, char **argv) {
    train_options o;
    train_run run;
    tool_file log = {0};
    int status;
    if (!train_parse(&o, argc, argv, &status))
        return status;
    status = train_start(&run, &o);
    if (status == TOOL_OK && o.plots)
        status = tool_directory_create(o.plots);
    if (status == TOOL_OK && o.log)
        status = log_open(&log, o.log);
    if (status == TOOL_OK && o.save)
        status = tool_file_probe(o.save);
    if (status == TOOL_OK) {
        status = train_steps(&run, o.log ? log_row : NULL, &log);
        if (o.log && tool_file_commit(&log) != TOOL_OK)
            status = TOOL_FAILED;
        status = conclude(&run, status);
    }
    tool_file_discard(&log);
    train_end(&run);
    return status;
}
