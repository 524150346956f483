/* `attn gradcheck`: the layer passes, and every fault is found, in exactly the gradients it spoils.
 */
#include "command.h"
#include "test.h"

#include <jansson.h>

static json_t *parse(const command_run *run) {
    ck_assert_uint_eq(command_lines(run->out), 1);
    json_error_t error;
    json_t *object = json_loads(run->out, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json_is_object(object), "%s: %s", error.text, run->out);
    ck_assert_uint_eq(json_object_size(object), 4);
    return object;
}

/* The failed gradients, each followed by a blank. */
static void failed_names(char *text, size_t size, const json_t *object) {
    const json_t *failed = json_object_get(object, "failed");
    ck_assert(json_is_array(failed));
    text[0] = '\0';
    for (size_t i = 0; i < json_array_size(failed); i++) {
        strncat(text, json_string_value(json_array_get(failed, i)), size - strlen(text) - 1);
        strncat(text, " ", size - strlen(text) - 1);
    }
}

START_TEST(the_layer_passes) {
    command_run run = ATTN("gradcheck", "--json");
    ck_assert_msg(run.status == 0, "%s%s", run.out, run.err);
    ck_assert_str_eq(run.err, ""); /* nothing is left out */
    json_t *object = parse(&run);
    double worst = json_number_value(json_object_get(object, "worst"));
    ck_assert_msg(worst > 0 && worst <= 1e-7, "worst error %g", worst);
    ck_assert_int_gt(json_integer_value(json_object_get(object, "elements")), 30000);
    ck_assert_int_gt(json_integer_value(json_object_get(object, "configurations")), 500);
    char names[200];
    failed_names(names, sizeof names, object);
    ck_assert_str_eq(names, "");
    json_decref(object);
    command_free(&run);
}
END_TEST

START_TEST(the_table_says_so) {
    command_run run = ATTN("gradcheck");
    ck_assert_msg(run.status == 0, "%s%s", run.out, run.err);
    ck_assert_ptr_nonnull(strstr(run.out, "all together"));
    ck_assert_ptr_nonnull(strstr(run.out, ": passed\n"));
    command_free(&run);
    run = ATTN("gradcheck", "--every", "--kernel=reference");
    ck_assert_int_eq(run.status, 0);
    ck_assert_uint_gt(command_lines(run.out), 100);
    command_free(&run);
}
END_TEST

/* All but those of the output projection, which stand before the weights in a backward. */
#define ALL "dwq dwk dwv dbq dbk dbv dx dbias dsinks dalibi_slopes "

/* Why the sets are what they are: a row of P sums to 1, so whatever keeps the rows of dS at sum
 * zero leaves dbk = 0, which is right; and dbv is the sum of dO over the rows that see a key at
 * all, so it only moves where other rows go masked, or the wrong dO comes in. */
static const struct {
    const char *name, *wrong;
} faults[] = {
    {"scale-dropped", "dwq dwk dbq dx "},
    {"scale-twice", "dwq dwk dbq dx "},
    {"sign-flipped", "dwq dwk dbq dbk dx "},
    {"row-sum-missing", "dwq dwk dbq dbk dx "},
    {"jacobian-diagonal", "dwq dwk dbq dbk dx "},
    {"softmax-detached", "dwq dwk dbq dx "},
    {"dk-times-1.01", "dwk dx "},
    {"dq-dk-swapped", "dwq dwk dbq dbk dx "},
    {"ds-transposed", "dwq dwk dbq dbk dx "},
    {"dv-transposed", "dwv dbv dx "},
    {"last-key-dropped", "dwk dwv dbk dbv dx "},
    {"group-sum-missing", "dwk dwv dbv dx "},
    {"mask-ignored", "dwq dwk dwv dbq dbv dx "},
    {"padding-polarity", "dwq dwk dwv dbq dbv dx "},
    {"causal-off-by-one", "dwq dwk dwv dbq dbv dx "},
    {"mask-heads-swapped", "dwq dwk dwv dbq dx "},
    {"masked-row-uniform", "dwq dwk dwv dbq dbv dx "},
    {"heads-transposed", "dwq dwk dwv dbq dbv dx "},
    {"dq-heads-swapped", "dwq dbq dx "},
    {"wo-skipped", "dwq dwk dwv dbq dbv dx "},
    {"wo-transposed", "dwq dwk dwv dbq dbv dx "},
    {"dwq-wrong-input", "dwq "},
    {"bo-missing", "dbo "},
    {"bo-averaged", "dbo "},
    {"bias-grad-overwritten", "dbq dbv dbo "},
    {"weight-grad-overwritten", "dwq dwk dwv dwo "},
    {"dx-path-lost", "dx "},
    {"dx-overwritten", "dx "},
    /* In the full layer rows of dS do not add up to 0: softcap and rotations see to that. */
    {"window-ignored", ALL},
    {"rope-not-turned-back", "dwq dwk dbq dbk dx "},
    {"softcap-factor-missing", "dwq dwk dbq dbk dx "},
    {"bias-not-reduced", "dbias "},
    {"bias-scaled", "dbias "},
    {"alibi-sign", ALL},
    {"slope-gradient-missing", "dalibi_slopes "},
    {"sink-left-out", ALL},
    {"sink-gradient-sign", "dsinks "},
    {"dropout-pattern-other", ALL},
    {"dropout-unscaled", ALL},
};
enum { NUM_FAULTS = sizeof faults / sizeof *faults };

START_TEST(faults_are_found_where_they_are) {
    command_run run = ATTN("gradcheck", "--break", faults[_i].name, "--json");
    ck_assert_msg(run.status == 1, "%s: status %d, %s%s", faults[_i].name, run.status, run.out,
                  run.err);
    json_t *object = parse(&run);
    char names[200];
    failed_names(names, sizeof names, object);
    ck_assert_msg(strcmp(names, faults[_i].wrong) == 0, "%s: wrong are %s, expected %s",
                  faults[_i].name, names, faults[_i].wrong);
    json_decref(object);
    command_free(&run);
    run = ATTN("gradcheck", "--break", faults[_i].name);
    ck_assert_int_eq(run.status, 1);
    ck_assert_ptr_nonnull(strstr(run.out, "WRONG"));
    command_free(&run);
}
END_TEST

/* What would be left out of account is refused, and --json is one line or nothing. */
START_TEST(options_that_do_not_go_together) {
    command_refused(ATTN("gradcheck", "--break", "list", "--json"), 2, "--json", "--break");
    command_refused(ATTN("gradcheck", "--break=sign-flipped", "--kernel=fused"), 2, "--kernel",
                    "--break");
    command_refused(ATTN("gradcheck", "--break=sign-flipped", "--every"), 2, "--every", "--break");
    command_refused(ATTN("gradcheck", "--break=sign-flipped", "--all"), 2, "--all", "--break");
}
END_TEST

START_TEST(all_faults_are_listed) {
    command_run run = ATTN("gradcheck", "--break", "list");
    ck_assert_int_eq(run.status, 0);
    const char *line = run.out;
    for (size_t i = 0; i < NUM_FAULTS; i++) {
        size_t length = strlen(faults[i].name);
        ck_assert_msg(strncmp(line, faults[i].name, length) == 0 && line[length] == '\n',
                      "expected %s, found %s", faults[i].name, line);
        line += length + 1;
    }
    ck_assert_msg(!*line, "a fault that is not tested: %s", line);
    command_free(&run);
}
END_TEST

START_TEST(bad_options_are_refused) {
    command_refused(ATTN("gradcheck", "--break", "everything"), 2, "everything", "--break");
    command_refused(ATTN("gradcheck", "--break="), 2, "''", "--break");
    command_refused(ATTN("gradcheck", "--break"), 2, "--break", "missing");
    command_refused(ATTN("gradcheck", "--kernel=slow"), 2, "--kernel", "'slow'");
    command_refused(ATTN("gradcheck", "--seed=x"), 2, "--seed", "'x'");
    command_refused(ATTN("gradcheck", "layer"), 2, "layer", "surplus");
    if (access("/dev/full", W_OK) == 0)
        command_refused(ATTN_INTO("/dev/full", "gradcheck", "--json", "--break=dx-path-lost"), 1,
                        "stdout", "cannot write");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("gradcheck_command");
    TCase *tests = tcase_create("gradcheck_command");
    tcase_add_test(tests, the_layer_passes);
    tcase_add_test(tests, the_table_says_so);
    tcase_add_loop_test(tests, faults_are_found_where_they_are, 0, NUM_FAULTS);
    tcase_add_test(tests, options_that_do_not_go_together);
    tcase_add_test(tests, all_faults_are_listed);
    tcase_add_test(tests, bad_options_are_refused);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
