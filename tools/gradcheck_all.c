/* `attn gradcheck --all`: rows in which any two variants that go together occur together, each row
 * on both paths. */
#include "gradcheck_factors.h"
#include "gradcheck_tally.h"
#include "tool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_ROWS = 1000, MAX_THREADS = 64 };

/* One row and what came of it. */
typedef struct row_result {
    pairs_row row;
    check_case c;
    attn_status status;
    char message[256];
    check_outcome outcome;
} row_result;

/* The rows that threads take one after the other. */
typedef struct work {
    const check_request *request;
    row_result *rows;
    size_t num_rows, next;
    pthread_mutex_t lock;
} work;

static size_t take_row(work *w) {
    pthread_mutex_lock(&w->lock);
    const size_t taken = w->next++;
    pthread_mutex_unlock(&w->lock);
    return taken;
}

static void *check_rows(void *argument) {
    work *w = argument;
    for (size_t i = take_row(w); i < w->num_rows; i = take_row(w)) {
        row_result *r = &w->rows[i];
        r->status = check_layer(&r->outcome, &r->c, w->request->seed + i);
        if (r->status != ATTN_OK) /* the message is the thread's own */
            snprintf(r->message, sizeof r->message, "%s", attn_error_message());
    }
    return NULL;
}

/* Every processor takes rows; this thread does so too. */
static void check_all_rows(work *w) {
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t ids[MAX_THREADS];
    size_t started = 0;
    pthread_mutex_init(&w->lock, NULL);
    while (started < MAX_THREADS && (long)started + 1 < online)
        if (pthread_create(&ids[started], NULL, check_rows, w) == 0)
            started++;
        else
            break;
    check_rows(w);
    for (size_t i = 0; i < started; i++)
        pthread_join(ids[i], NULL);
    pthread_mutex_destroy(&w->lock);
}

static void print_every(const check_request *r, const row_result *row) {
    if (r->json || row->status != ATTN_OK)
        return;
    if (r->every)
        printf("%6zu  %.1e  %s\n", row->outcome.report.checked, row->outcome.report.worst.error,
               row->c.name);
    check_print_failures(&row->outcome, row->c.name);
}

/* One line for each level of a factor: what the rows that have it came to. */
static void print_level(const work *w, const char *factor, const char *level,
                        bool (*has)(const row_result *r, size_t f, size_t a), size_t f, size_t a) {
    check_tally t = {0};
    for (size_t i = 0; i < w->num_rows; i++)
        if (has(&w->rows[i], f, a) && w->rows[i].status == ATTN_OK)
            check_tally_outcome(&t, &w->rows[i].outcome, "");
    printf("%-14s  %-22s  %14zu  %8zu  %11.1e  %s%s\n", factor, level, t.cases, t.elements, t.worst,
           t.worst_tensor ? t.worst_tensor : "-", t.num_failed ? "  FAILED" : "");
}

static bool has_level(const row_result *r, size_t f, size_t a) {
    return r->row.level[f] == a;
}

static bool has_kernel(const row_result *r, size_t f, size_t a) {
    (void)f;
    return r->c.config.kernel == (attn_kernel)a;
}

static void print_levels(const work *w) {
    const pairs_problem *factors = check_factors();
    printf("%-14s  %-22s  configurations  elements  worst error  in\n", "variant", "");
    print_level(w, "path", "reference", has_kernel, 0, ATTN_KERNEL_REFERENCE);
    print_level(w, "", "fused", has_kernel, 0, ATTN_KERNEL_FUSED);
    for (size_t f = 0; f < factors->num_factors; f++)
        for (size_t a = 0; a < factors->num_levels[f]; a++)
            print_level(w, a == 0 ? check_factor_name(f) : "", check_level_name(f, a), has_level, f,
                        a);
}

static int report(const work *w) {
    const check_request *r = w->request;
    check_tally total = {0};
    for (size_t i = 0; i < w->num_rows; i++) {
        const row_result *row = &w->rows[i];
        if (row->status == ATTN_ERROR_UNSUPPORTED)
            total.skipped++;
        else if (row->status != ATTN_OK)
            return tool_fail("%s: %s", row->c.name, row->message);
        else
            check_tally_outcome(&total, &row->outcome, row->c.name);
        print_every(r, row);
    }
    if (total.skipped > 0)
        tool_warn("%zu configurations that the library does not do are left out", total.skipped);
    if (r->json)
        return check_tally_json(&total);
    if (!r->every)
        print_levels(w);
    if (total.worst_tensor)
        printf("worst: %s in %s\n", total.worst_tensor, total.worst_case);
    return check_tally_print(&total);
}

int check_all(const check_request *r) {
    pairs_row *rows = tool_alloc(MAX_ROWS, sizeof *rows);
    const size_t num_rows = pairs_cover(rows, MAX_ROWS, check_factors());
    work w = {.request = r, .rows = tool_alloc(r->num_kernels * num_rows + 1, sizeof *w.rows)};
    for (size_t i = 0; i < num_rows; i++)
        for (size_t k = 0; k < r->num_kernels; k++) {
            row_result *row = &w.rows[w.num_rows++];
            row->row = rows[i];
            check_case_of_row(&row->c, &rows[i], r->kernels[k]);
        }
    free(rows);
    check_all_rows(&w);
    const int status = num_rows > 0 ? report(&w) : tool_fail("the pairs fit into no table");
    free(w.rows);
    return status;
}
