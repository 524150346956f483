/*
 * progress.h - how far a run is, on stderr: a bar on a terminal, plain lines anywhere else.
 *
 *     tool_progress progress = tool_progress_start(steps);
 *     for (size_t step = 1; step <= steps; step++) {
 *         ...
 *         tool_progress_update(&progress, step, loss, accuracy, tokens);
 *     }
 *     tool_progress_finish(&progress);
 *
 * Call update at every step: the terminal is redrawn ten times a second at most, a pipe gets a line
 * at each tenth of the run, free of carriage returns and escapes.
 */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tool_progress {
    size_t steps, reported;
    double start, drawn;
    bool terminal;
} tool_progress;

tool_progress tool_progress_start(size_t steps);
/* `tokens` counts all tokens since the start. NaN in accuracy leaves it out; 0 tokens too. */
void tool_progress_update(tool_progress *progress, size_t step, double loss, double accuracy,
                          double tokens);
/* Ends the bar's line. */
void tool_progress_finish(tool_progress *progress);

/* Wipes a bar that stands on the current line; tool_warn does so before it speaks. */
void tool_progress_clear(void);

#endif
