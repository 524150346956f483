/* The ways into the core and back: joined where the arrays lie one behind the other, and the same
 * numbers where they do not. */
#include "mha_fixture.h"

#include "layer/projections.h"

#ifdef ATTN_DOUBLE
static const double tolerance = 1e-14;
#else
static const double tolerance = 4e-6;
#endif

/* Moves the arrays of `w` whose bit is set to places of their own, in the order of wq, wk, wv, bq,
 * bk, bv; `apart` keeps them to be freed. */
static void part(attn_mha_params *w, attn_real *apart[6], unsigned which, const mha_run *run) {
    attn_real **const arrays[6] = {&w->wq, &w->wk, &w->wv, &w->bq, &w->bk, &w->bv};
    for (size_t i = 0; i < 6; i++) {
        const size_t width = i % 3 == 0 ? run->d_inner : run->d_kv;
        const size_t n = i < 3 ? width * run->cfg.d_model : width;
        apart[i] = test_normal(n, 0, 1);
        if (!(which >> i & 1) || !*arrays[i])
            continue;
        memcpy(apart[i], *arrays[i], n * sizeof **arrays[i]);
        *arrays[i] = apart[i];
    }
}

/* Copies what `dw` holds apart back into the gradients' block, where the comparison looks. */
static void reunite(mha_run *run, const attn_mha_params *block) {
    attn_real *const to[6] = {block->wq, block->wk, block->wv, block->bq, block->bk, block->bv};
    const attn_real *const from[6] = {run->dw.wq, run->dw.wk, run->dw.wv,
                                      run->dw.bq, run->dw.bk, run->dw.bv};
    for (size_t i = 0; i < 6; i++) {
        const size_t width = i % 3 == 0 ? run->d_inner : run->d_kv;
        if (to[i] != from[i])
            memcpy(to[i], from[i], (i < 3 ? width * run->cfg.d_model : width) * sizeof *to[i]);
    }
}

static const mha_case cases[] = {
    {"self", SIZES(2, 5, 0, 8, 2, 0)},
    {"self, grouped, wide", SIZES(2, 5, 0, 6, 4, 3), .num_kv_heads = 2, .causal = true},
    {"self, no bk", SIZES(2, 5, 0, 8, 2, 0), .without = NO_BK},
    {"self, no biases", SIZES(2, 5, 0, 8, 2, 0), .without = NO_BQ | NO_BK | NO_BV},
    {"self, rope, threads", SIZES(2, 131, 0, 96, 3, 0), .rope = ATTN_ROPE_HALF, .max_threads = 2},
    {"cross", SIZES(2, 5, 7, 8, 2, 0)},
};
enum { NUM_CASES = sizeof cases / sizeof *cases };

START_TEST(parameters_may_lie_apart) {
    const mha_case *c = &cases[_i];
    mha_run together = mha_setup(c, 70);
    mha_step(&together);
    for (unsigned which = 1; which < 64; which += which < 8 ? 1 : 9) {
        char what[96];
        attn_real *weights[6], *gradients[6];
        mha_run run = mha_setup(c, 70);
        const attn_mha_params block = run.dw;
        part(&run.w, weights, which, &run);
        part(&run.dw, gradients, which, &run);
        mha_step(&run);
        reunite(&run, &block);
        snprintf(what, sizeof what, "%s, apart %u", c->name, which);
        ck_assert_mem_eq(&run.need, &together.need, sizeof run.need);
        test_close(what, run.y, together.y, run.size_q, tolerance, tolerance);
        test_close(what, run.dtheta, together.dtheta, run.num_params, tolerance, tolerance);
        test_close(what, run.dx_q, together.dx_q, run.size_q, tolerance, tolerance);
        for (size_t i = 0; i < 6; i++) {
            free(weights[i]);
            free(gradients[i]);
        }
        mha_free(&run);
    }
    mha_free(&together);
}
END_TEST

/* q, k and v of one x with parameters in one block, and how many products that takes after one
 * thing is changed. */
enum { D = 4, ROWS = 3, Q = 6, KV = 2, ROW = Q + 2 * KV };

static size_t joined(const char *change) {
    static attn_real x[2], y[ROWS * ROW], w[(ROW + 1) * D], b[ROW + 1], dx[2], dw[(ROW + 1) * D];
    attni_way ways[3] = {
        {x, y, ROWS, Q, ROW, 0, w, b, dx, dw, NULL},
        {x, y + Q, ROWS, KV, ROW, Q, w + Q * D, b + Q, dx, dw + Q * D, NULL},
        {x, y + Q + KV, ROWS, KV, ROW, Q + KV, w + (Q + KV) * D, b + Q + KV, dx, dw + (Q + KV) * D,
         NULL},
    };
    attni_way *last = &ways[2];
    if (strcmp(change, "x") == 0)
        last->x++;
    if (strcmp(change, "y") == 0)
        last->y++;
    if (strcmp(change, "rows") == 0)
        last->rows--;
    if (strcmp(change, "stride") == 0)
        last->stride++;
    if (strcmp(change, "w") == 0)
        last->w += D;
    if (strcmp(change, "b") == 0)
        last->b++;
    if (strcmp(change, "no b") == 0)
        last->b = NULL;
    if (strcmp(change, "dx") == 0)
        last->dx++;
    if (strcmp(change, "dw") == 0)
        last->dw += D;
    if (strcmp(change, "no dw") == 0)
        last->dw = NULL;
    if (strcmp(change, "db") == 0)
        last->db = b;
    if (strcmp(change, "all b") == 0)
        ways[1].b = ways[2].b = NULL; /* the first has one */
    if (strcmp(change, "all w") == 0)
        ways[1].w++;
    return attni_ways_join(ways, 3, D);
}

START_TEST(ways_join_where_everything_follows) {
    static const char *const two[] = {"x",  "y",  "rows",  "stride", "w",    "b",
                                      "dx", "dw", "no dw", "db",     "no b", "all b"};
    ck_assert_uint_eq(joined(""), 1);
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        ck_assert_msg(joined(two[i]) == 2, "%s: %zu ways", two[i], joined(two[i]));
    ck_assert_uint_eq(joined("all w"), 3);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("projections");
    TCase *tests = tcase_create("ways");
    tcase_add_loop_test(tests, parameters_may_lie_apart, 0, NUM_CASES);
    tcase_add_test(tests, ways_join_where_everything_follows);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
