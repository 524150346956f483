/* The tasks of `attn train`: copying, reversing, and the bytes of a file. */
#include "train.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- copy and reverse: s1 .. sL | s1 .. sL, targets counted from the separator on ---- */

static void draw_sequence(const train_task *task, attn_random *random, int32_t *tokens,
                          int32_t *targets) {
    const size_t length = task->length;
    for (size_t i = 0; i < length; i++) {
        tokens[i] = (int32_t)attn_random_below(random, (uint32_t)task->symbols);
        targets[i] = -1;
    }
    tokens[length] = (int32_t)task->symbols; /* the separator */
    for (size_t i = 0; i < length; i++) {
        int32_t answer = tokens[task->kind == TRAIN_REVERSE ? length - 1 - i : i];
        targets[length + i] = answer;
        if (i + 1 < length) /* the last answer is asked for, never shown */
            tokens[length + i + 1] = answer;
    }
}

/* ---- text ---- */

/* A text is held in memory. What is longer, or never ends (a device), is no text. */
enum { TEXT_MAX = 1 << 30 };

static int read_all(const char *path, unsigned char **bytes, size_t *count) {
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return tool_fail("cannot read '%s': %s", path, strerror(errno));
    size_t room = 1 << 16;
    *bytes = tool_alloc(room, 1);
    *count = 0;
    for (size_t got; (got = fread(*bytes + *count, 1, room - *count, stream)) > 0;) {
        *count += got;
        if (*count > TEXT_MAX) {
            fclose(stream);
            return tool_fail("%s: longer than the %d MB that a text may have", path,
                             TEXT_MAX >> 20);
        }
        if (*count < room)
            continue;
        room = room < TEXT_MAX ? 2 * room : TEXT_MAX + 1; /* one more: to see that it goes on */
        unsigned char *larger = realloc(*bytes, room);
        if (!larger) {
            fclose(stream);
            return tool_fail("%s: too large for the memory", path);
        }
        *bytes = larger;
    }
    int error = ferror(stream) ? errno : 0;
    fclose(stream);
    return error ? tool_fail("%s: %s", path, strerror(error)) : TOOL_OK;
}

static int open_text(train_task *task, const train_options *options) {
    task->vocab = 256;
    task->len = options->context;
    int status = read_all(options->data, &task->bytes, &task->num_bytes);
    if (status != TOOL_OK)
        return status;
    size_t held_out = task->num_bytes / 10;
    task->train_bytes = task->num_bytes - held_out;
    if (held_out == 0 || task->train_bytes <= task->len + 1)
        return tool_fail("%s: %zu bytes are too few for a context of %zu (a tenth is held out)",
                         options->data, task->num_bytes, task->len);
    return TOOL_OK;
}

static void draw_window(const train_task *task, attn_random *random, int32_t *tokens,
                        int32_t *targets) {
    size_t places = task->train_bytes - task->len;
    uint32_t range = places < UINT32_MAX ? (uint32_t)places : UINT32_MAX;
    const unsigned char *window = task->bytes + attn_random_below(random, range);
    for (size_t i = 0; i < task->len; i++) {
        tokens[i] = window[i];
        targets[i] = window[i + 1];
    }
}

size_t train_task_held_out(const train_task *task, size_t first, size_t batch, int32_t *tokens,
                           int32_t *targets) {
    /* Half a window apart, so that each byte is predicted from at least half a context. */
    const size_t len = task->len, stride = len > 1 ? len / 2 : 1;
    size_t used = 0;
    for (size_t i = 0; i < batch; i++) {
        int32_t *token = tokens + i * len, *target = targets + i * len;
        size_t begin = task->train_bytes + (first + i) * stride, end = begin + stride;
        bool any = begin < task->num_bytes;
        if (end > task->num_bytes)
            end = task->num_bytes;
        for (size_t t = 0; t < len; t++) {
            size_t at = any ? end - len + t : t + 1; /* the byte to predict */
            token[t] = task->bytes[at - 1];
            target[t] = any && at >= begin ? task->bytes[at] : -1;
        }
        used += any;
    }
    return used;
}

/* ---- all ---- */

int train_task_open(train_task *task, const train_options *options) {
    *task =
        (train_task){.kind = options->task, .symbols = options->symbols, .length = options->length};
    if (options->task == TRAIN_TEXT)
        return open_text(task, options);
    task->vocab = options->symbols + 1;
    task->len = 2 * options->length;
    return TOOL_OK;
}

void train_task_close(train_task *task) {
    free(task->bytes);
    task->bytes = NULL;
}

void train_task_draw(const train_task *task, attn_random *random, size_t batch, int32_t *tokens,
                     int32_t *targets) {
    for (size_t i = 0; i < batch; i++) {
        if (task->kind == TRAIN_TEXT)
            draw_window(task, random, tokens + i * task->len, targets + i * task->len);
        else
            draw_sequence(task, random, tokens + i * task->len, targets + i * task->len);
    }
}

void train_task_label(const train_task *task, int32_t token, char *text, size_t size) {
    const char *letters = "abcdefghijklmnopqrstuvwxyz";
    if (task->kind != TRAIN_TEXT && (size_t)token == task->symbols)
        snprintf(text, size, "|");
    else if (task->kind != TRAIN_TEXT && task->symbols <= 26)
        snprintf(text, size, "%c", letters[token]);
    else if (task->kind != TRAIN_TEXT)
        snprintf(text, size, "%ld", (long)token);
    else if (token > ' ' && token < 127)
        snprintf(text, size, "%c", (int)token);
    else
        snprintf(text, size, "%s", token == ' ' ? "␣" : token == '\n' ? "↵" : "·");
}
