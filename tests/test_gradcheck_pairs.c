/* Rows of choices: every pair that is allowed occurs, none that is not, and the rows are few. */
#include "gradcheck_factors.h"
#include "gradcheck_pairs.h"
#include "test.h"

#include <string.h>

enum { MAX_ROWS = 1000 };

static bool may(const pairs_problem *p, size_t f, size_t a, size_t g, size_t b) {
    return !p->allowed || p->allowed(f, a, g, b);
}

static size_t rows_with(const pairs_row *rows, size_t count, size_t f, size_t a, size_t g,
                        size_t b) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += rows[i].level[f] == a && rows[i].level[g] == b;
    return found;
}

/* Returns the number of pairs. */
static size_t check_rows(const pairs_row *rows, size_t count, const pairs_problem *p) {
    size_t pairs = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t f = 0; f < p->num_factors; f++)
            ck_assert_uint_lt(rows[i].level[f], p->num_levels[f]);
    for (size_t f = 0; f < p->num_factors; f++)
        for (size_t g = f + 1; g < p->num_factors; g++)
            for (size_t a = 0; a < p->num_levels[f]; a++)
                for (size_t b = 0; b < p->num_levels[g]; b++) {
                    const size_t found = rows_with(rows, count, f, a, g, b);
                    ck_assert_msg((found > 0) == may(p, f, a, g, b),
                                  "factor %zu level %zu with factor %zu level %zu: %zu rows", f, a,
                                  g, b, found);
                    pairs += found > 0;
                }
    return pairs;
}

/* Level 1 of factor 0 goes with no level of factor 3 but the last; 2 of 1 with 0 of 2 not. */
static bool some(size_t f, size_t a, size_t g, size_t b) {
    return !(f == 0 && a == 1 && g == 3 && b < 3) && !(f == 1 && a == 2 && g == 2 && b == 0);
}

/* Nothing goes with level 0 of factor 2. */
static bool never(size_t f, size_t a, size_t g, size_t b) {
    return !(g == 2 && b == 0) && !(f == 2 && a == 0);
}

/* Levels of factors 0 and 1 all go together, but none of factor 2 goes with both of them. */
static bool apart(size_t f, size_t a, size_t g, size_t b) {
    (void)a;
    return g != 2 || (f == 0 ? b == 0 : b == 1);
}

static const struct {
    pairs_problem problem;
    size_t most; /* rows */
} problems[] = {
    {{.num_factors = 2, .num_levels = {3, 4}}, 12},
    {{.num_factors = 3, .num_levels = {2, 2, 2}}, 6},
    {{.num_factors = 10, .num_levels = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2}}, 10},
    {{.num_factors = 4, .num_levels = {3, 3, 3, 3}}, 12},
    {{.num_factors = 5, .num_levels = {5, 3, 2, 4, 1}, .allowed = some}, 26},
    {{.num_factors = 24,
      .num_levels = {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
     44},
    {{.num_factors = 4, .num_levels = {4, 3, 2, 3}, .allowed = never}, 14},
};
enum { NUM_PROBLEMS = sizeof problems / sizeof *problems };

START_TEST(every_pair_occurs) {
    static pairs_row rows[MAX_ROWS];
    const pairs_problem *p = &problems[_i].problem;
    const size_t count = pairs_cover(rows, MAX_ROWS, p);
    ck_assert_uint_gt(count, 0);
    ck_assert_msg(count <= problems[_i].most, "%zu rows", count);
    check_rows(rows, count, p);
}
END_TEST

START_TEST(the_same_rows_every_time) {
    static pairs_row rows[MAX_ROWS], again[MAX_ROWS];
    const pairs_problem *p = &problems[4].problem;
    const size_t count = pairs_cover(rows, MAX_ROWS, p);
    ck_assert_uint_eq(pairs_cover(again, MAX_ROWS, p), count);
    for (size_t i = 0; i < count; i++)
        ck_assert_mem_eq(rows[i].level, again[i].level, p->num_factors);
}
END_TEST

/* Too little room, and a pair that no row can hold, are said and not passed over. */
START_TEST(what_cannot_be_covered) {
    pairs_row rows[11];
    ck_assert_uint_eq(pairs_cover(rows, 11, &problems[0].problem), 0);
    const pairs_problem p = {.num_factors = 3, .num_levels = {2, 2, 2}, .allowed = apart};
    ck_assert_uint_eq(pairs_cover(rows, 11, &p), 0);
}
END_TEST

/* The variants of attention themselves. */
START_TEST(every_two_variants_meet) {
    static pairs_row rows[MAX_ROWS];
    const pairs_problem *p = check_factors();
    const size_t count = pairs_cover(rows, MAX_ROWS, p);
    ck_assert_uint_gt(count, 0);
    ck_assert_msg(count <= 450, "%zu rows", count);
    ck_assert_uint_gt(check_rows(rows, count, p), 2000);
    for (size_t f = 0; f < p->num_factors; f++)
        for (size_t a = 0; a < p->num_levels[f]; a++)
            ck_assert(strlen(check_factor_name(f)) > 0 && strlen(check_level_name(f, a)) > 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("gradcheck_pairs");
    TCase *tests = tcase_create("gradcheck_pairs");
    tcase_add_loop_test(tests, every_pair_occurs, 0, NUM_PROBLEMS);
    tcase_add_test(tests, the_same_rows_every_time);
    tcase_add_test(tests, what_cannot_be_covered);
    tcase_add_test(tests, every_two_variants_meet);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
