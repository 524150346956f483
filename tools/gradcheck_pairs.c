#include "gradcheck_pairs.h"

#include "tool.h"

#include <attn/random.h>

#include <stdlib.h>
#include <string.h>

enum { CANDIDATES = 30, OPEN = 255 };

/* Which pairs no row has yet. */
typedef struct cover {
    const pairs_problem *problem;
    attn_random random;
    size_t left;
    bool open[PAIRS_MAX_FACTORS][PAIRS_MAX_LEVELS][PAIRS_MAX_FACTORS][PAIRS_MAX_LEVELS]; /* f < g */
} cover;

static bool is_allowed(const pairs_problem *p, size_t f, size_t a, size_t g, size_t b) {
    return !p->allowed || (f < g ? p->allowed(f, a, g, b) : p->allowed(g, b, f, a));
}

static bool *pair_at(cover *c, size_t f, size_t a, size_t g, size_t b) {
    return f < g ? &c->open[f][a][g][b] : &c->open[g][b][f][a];
}

static void open_all(cover *c) {
    const pairs_problem *p = c->problem;
    for (size_t f = 0; f < p->num_factors; f++)
        for (size_t g = f + 1; g < p->num_factors; g++)
            for (size_t a = 0; a < p->num_levels[f]; a++)
                for (size_t b = 0; b < p->num_levels[g]; b++)
                    if (is_allowed(p, f, a, g, b)) {
                        c->open[f][a][g][b] = true;
                        c->left++;
                    }
}

/* The first open pair, in a row that is otherwise empty. */
static void begin_row(cover *c, pairs_row *row) {
    const pairs_problem *p = c->problem;
    memset(row->level, OPEN, sizeof row->level);
    for (size_t f = 0; f < p->num_factors; f++)
        for (size_t g = f + 1; g < p->num_factors; g++)
            for (size_t a = 0; a < p->num_levels[f]; a++)
                for (size_t b = 0; b < p->num_levels[g]; b++)
                    if (c->open[f][a][g][b]) {
                        row->level[f] = (uint8_t)a;
                        row->level[g] = (uint8_t)b;
                        return;
                    }
}

/* How many open pairs level a of factor f would close in this row; -1 if it goes with some level of
 * the row not at all. */
static int gain(cover *c, const pairs_row *row, size_t f, size_t a) {
    int closed = 0;
    for (size_t g = 0; g < c->problem->num_factors; g++) {
        if (g == f || row->level[g] == OPEN)
            continue;
        if (!is_allowed(c->problem, f, a, g, row->level[g]))
            return -1;
        closed += *pair_at(c, f, a, g, row->level[g]);
    }
    return closed;
}

/* The level of factor f that closes most, looking first at a random one. False if none fits. */
static bool fill_factor(cover *c, pairs_row *row, size_t f) {
    const size_t levels = c->problem->num_levels[f];
    const size_t first = attn_random_below(&c->random, (uint32_t)levels);
    int best = -1;
    uint8_t chosen = OPEN;
    for (size_t i = 0; i < levels; i++) {
        const size_t a = (first + i) % levels;
        const int closed = gain(c, row, f, a);
        if (closed > best) {
            best = closed;
            chosen = (uint8_t)a;
        }
    }
    row->level[f] = chosen;
    return chosen != OPEN;
}

static bool fill_row(cover *c, pairs_row *row) {
    const size_t factors = c->problem->num_factors;
    size_t order[PAIRS_MAX_FACTORS];
    for (size_t f = 0; f < factors; f++) { /* shuffled as it grows (Fisher and Yates) */
        const size_t at = attn_random_below(&c->random, (uint32_t)f + 1);
        order[f] = f;
        order[f] = order[at];
        order[at] = f;
    }
    for (size_t i = 0; i < factors; i++)
        if (row->level[order[i]] == OPEN && !fill_factor(c, row, order[i]))
            return false;
    return true;
}

/* Open pairs that the row has; `close` closes them. */
static size_t count_open(cover *c, const pairs_row *row, bool close) {
    size_t count = 0;
    for (size_t f = 0; f < c->problem->num_factors; f++)
        for (size_t g = f + 1; g < c->problem->num_factors; g++) {
            bool *pair = pair_at(c, f, row->level[f], g, row->level[g]);
            count += *pair;
            *pair = *pair && !close;
        }
    return count;
}

/* The best of some rows that close the first open pair. False if none could be filled up. */
static bool next_row(cover *c, pairs_row *best) {
    size_t most = 0;
    for (size_t i = 0; i < CANDIDATES; i++) {
        pairs_row row;
        begin_row(c, &row);
        if (!fill_row(c, &row))
            continue;
        const size_t closed = count_open(c, &row, false);
        if (closed > most) {
            most = closed;
            *best = row;
        }
    }
    return most > 0;
}

size_t pairs_cover(pairs_row *rows, size_t max_rows, const pairs_problem *problem) {
    cover *c = tool_alloc(1, sizeof *c);
    c->problem = problem;
    c->random = attn_random_seed(1, 0x9A12);
    open_all(c);
    size_t count = 0;
    while (c->left > 0) {
        if (count == max_rows || !next_row(c, &rows[count])) {
            count = 0;
            break;
        }
        c->left -= count_open(c, &rows[count++], true);
    }
    free(c);
    return count;
}
