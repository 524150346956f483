/*
 * plot.h - pictures by gnuplot, with what they were made of beside them.
 *
 *     tool_plot("plots", "loss",
 *               "set xlabel 'step'\n"
 *               "plot 'loss.csv' using 1:2 with lines ls 1 title 'loss'\n");
 *
 * writes plots/loss.gp and runs gnuplot on it, which makes plots/loss.png. The script names its
 * data files (written before, see output.h) relative to the directory, so that `gnuplot loss.gp` in
 * there draws the picture again. All pictures share one style:
 *
 *   - commas separate columns, '#' and the first line's names are not data (set by the preface);
 *   - line styles 1 to 6 are colours that also colour-blind readers tell apart, 2 wide;
 *   - `set palette` runs from white to dark blue, for heat maps;
 *   - 1000 x 620 pixels unless `tool_plot_sized` says otherwise.
 */
#ifndef PLOT_H
#define PLOT_H

#include <stddef.h>

/* TOOL_OK also where gnuplot is missing or fails: one line says so, data and script are kept.
 * TOOL_FAILED where the script cannot be written. */
int tool_plot(const char *dir, const char *name, const char *script);
int tool_plot_sized(const char *dir, const char *name, const char *script, size_t width,
                    size_t height);

/* Seconds that gnuplot may take for a picture. */
extern double tool_plot_patience;

#endif
