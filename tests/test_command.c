/* What `attn` does before it knows the subcommand, and what holds for every subcommand. */
#include "command.h"
#include "test.h"

START_TEST(help_goes_to_stdout) {
    static const char *const words[] = {"--help", "-h", "help"};
    command_run run = ATTN(words[_i]);
    ck_assert_int_eq(run.status, 0);
    ck_assert_ptr_nonnull(strstr(run.out, "Usage: attn COMMAND"));
    ck_assert_str_eq(run.err, "");
    command_free(&run);
}
END_TEST

START_TEST(version_names_what_was_built) {
    command_run run = ATTN("--version");
    ck_assert_int_eq(run.status, 0);
    ck_assert_uint_eq(command_lines(run.out), 3);
    ck_assert_ptr_nonnull(strstr(run.out, attn_version()));
    ck_assert_ptr_nonnull(strstr(run.out, attn_gemm_name()));
    ck_assert_ptr_nonnull(strstr(run.out, attn_isa_name(attn_isa_current())));
    command_free(&run);
}
END_TEST

START_TEST(unknown_commands_are_refused) {
    command_refused(ATTN("polish"), 2, "polish", "unknown command");
    command_refused(ATTN("help", "polish"), 2, "polish", "unknown command");
    command_refused(ATTN("--polish"), 2, "--polish", "unknown command");
    command_refused(ATTN(""), 2, "''", "unknown command");
    command_refused(ATTN("new\nline\033[0m"), 2, "new?line?[0m", "unknown command");
    command_refused(ATTN("--version", "now"), 2, "now", "surplus");
    command_refused(command_start((const char *const[]){ATTN_COMMAND, NULL}, NULL, NULL), 2,
                    "command", "missing");
}
END_TEST

START_TEST(a_bad_instruction_set_is_refused) {
    const char *const isa[] = {"ATTN_ISA=sse9", NULL};
    command_refused(ATTN_WITH(isa, "--version"), 2, "ATTN_ISA", "sse9");
    command_run run = ATTN_WITH(isa, "--help");
    ck_assert_int_eq(run.status, 0);
    command_free(&run);
    const char *const baseline[] = {"ATTN_ISA=baseline", NULL};
    run = ATTN_WITH(baseline, "--version");
    ck_assert_int_eq(run.status, 0);
    ck_assert_ptr_nonnull(strstr(run.out, "baseline"));
    command_free(&run);
}
END_TEST

START_TEST(a_full_disk_on_stdout_is_an_error) {
    if (access("/dev/full", W_OK) != 0)
        return;
    command_refused(ATTN_INTO("/dev/full", "--version"), 1, "stdout", "cannot write");
    command_refused(ATTN_INTO("/dev/full", "--help"), 1, "stdout", "cannot write");
    command_refused(ATTN_INTO("", "--help"), 1, "stdout", "cannot write");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("command");
    TCase *tests = tcase_create("command");
    tcase_add_loop_test(tests, help_goes_to_stdout, 0, 3);
    tcase_add_test(tests, version_names_what_was_built);
    tcase_add_test(tests, unknown_commands_are_refused);
    tcase_add_test(tests, a_bad_instruction_set_is_refused);
    tcase_add_test(tests, a_full_disk_on_stdout_is_an_error);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
