#include "progress.h"

#include "tool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A bar stands on the terminal's current line. */
static bool bar_shown;

tool_progress tool_progress_start(size_t steps) {
    const char *term = getenv("TERM");
    return (tool_progress){.steps = steps,
                           .start = tool_seconds(),
                           .drawn = -INFINITY,
                           .terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0};
}

void tool_progress_clear(void) {
    if (bar_shown)
        fputs("\r\033[K", stderr);
    bar_shown = false;
}

static void format_rate(char *text, size_t size, double rate) {
    if (rate >= 1e6)
        snprintf(text, size, "%.1fM", rate / 1e6);
    else if (rate >= 1e4)
        snprintf(text, size, "%.0fk", rate / 1e3);
    else
        snprintf(text, size, "%.0f", rate);
}

static void format_time(char *text, size_t size, double seconds) {
    if (seconds >= 3600)
        snprintf(text, size, "%.0fh%02.0fm", floor(seconds / 3600),
                 floor(fmod(seconds, 3600) / 60));
    else if (seconds >= 60)
        snprintf(text, size, "%.0fm%02.0fs", floor(seconds / 60), floor(fmod(seconds, 60)));
    else
        snprintf(text, size, "%.0fs", seconds);
}

/* "loss 0.1234  accuracy 98.7 %  123k tokens/s  12s left" */
static void describe(char *text, size_t size, const tool_progress *progress, size_t step,
                     double loss, double accuracy, double tokens, double now) {
    char part[48], rate[24], left[24];
    double seconds = now - progress->start;
    snprintf(text, size, "loss %.4f", loss);
    if (!isnan(accuracy)) {
        snprintf(part, sizeof part, "  accuracy %5.1f %%", 100 * accuracy);
        strncat(text, part, size - strlen(text) - 1);
    }
    if (tokens > 0 && seconds > 0) {
        format_rate(rate, sizeof rate, tokens / seconds);
        snprintf(part, sizeof part, "  %s tokens/s", rate);
        strncat(text, part, size - strlen(text) - 1);
    }
    if (step > 0 && step < progress->steps) {
        format_time(left, sizeof left, seconds / (double)step * (double)(progress->steps - step));
        snprintf(part, sizeof part, "  %s left", left);
        strncat(text, part, size - strlen(text) - 1);
    }
}

static void draw_bar(const tool_progress *progress, size_t step, const char *text) {
    enum { WIDTH = 20 };
    char bar[WIDTH + 1];
    double share = progress->steps ? (double)step / (double)progress->steps : 1;
    int full = (int)(share * WIDTH);
    for (int i = 0; i < WIDTH; i++)
        bar[i] = i < full ? '#' : '.';
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r[%s] %zu/%zu  %s\033[K", bar, step, progress->steps, text);
    fflush(stderr);
    bar_shown = true;
}

void tool_progress_update(tool_progress *progress, size_t step, double loss, double accuracy,
                          double tokens) {
    char text[160];
    double now = tool_seconds();
    bool last = step >= progress->steps;
    if (progress->terminal) {
        if (!last && now - progress->drawn < 0.1)
            return;
    } else {
        /* Steps, not seconds, decide: two runs print the same lines. */
        size_t tenth = progress->steps / 10 ? progress->steps / 10 : 1;
        if (!last && step < progress->reported + tenth)
            return;
        progress->reported = step - step % tenth;
    }
    progress->drawn = now;
    describe(text, sizeof text, progress, step, loss, accuracy, tokens, now);
    if (progress->terminal)
        draw_bar(progress, step, text);
    else
        fprintf(stderr, "step %zu/%zu  %s\n", step, progress->steps, text);
}

void tool_progress_finish(tool_progress *progress) {
    (void)progress;
    if (bar_shown)
        putc('\n', stderr);
    bar_shown = false;
}
