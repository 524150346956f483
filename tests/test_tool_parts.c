/* The parts that all subcommands share: numbers, options, JSON, files, plots, progress. */
#include "json.h"
#include "options.h"
#include "output.h"
#include "plot.h"
#include "progress.h"

#include "command.h"
#include "test.h"

enum { ROUND, SQUARE };

/* One option of each kind, at its default. */
static struct {
    bool flag, on, given;
    size_t size;
    uint64_t seed;
    int64_t integer;
    double number;
    const char *text;
    int choice;
    const char *arguments[2];
} set;

static int parse(const char *const *words, size_t max_arguments) {
    static const char *const shapes[] = {"round", "square", NULL};
    const tool_option options[] = {
        {.name = "flag", .letter = 'f', .kind = TOOL_FLAG, .value = &set.flag, .given = &set.given},
        {.name = "on", .kind = TOOL_FLAG, .value = &set.on},
        {.name = "size",
         .kind = TOOL_SIZE,
         .value = &set.size,
         .has_min = true,
         .min = 1,
         .has_max = true,
         .max = 1000},
        {.name = "seed", .kind = TOOL_SEED, .value = &set.seed},
        {.name = "integer", .kind = TOOL_INTEGER, .value = &set.integer},
        {.name = "number", .kind = TOOL_NUMBER, .value = &set.number, .has_min = true},
        {.name = "text", .letter = 't', .kind = TOOL_TEXT, .value = &set.text},
        {.name = "shape", .kind = TOOL_CHOICE, .value = &set.choice, .choices = shapes},
        {0}};
    const tool_usage usage = {.about = "A test.",
                              .arguments = "ONE [TWO]",
                              .min_arguments = 0,
                              .max_arguments = max_arguments,
                              .options = options};
    char *argv[16] = {"test"};
    int argc = 1, status = -1;
    for (; words[argc - 1]; argc++)
        argv[argc] = (char *)words[argc - 1];
    memset(&set, 0, sizeof set);
    set.on = true;
    bool go_on = tool_options_parse(&usage, argc, argv, set.arguments, &status);
    ck_assert_int_eq(go_on, status == TOOL_OK);
    return status;
}

#define PARSE(...) parse((const char *const[]){__VA_ARGS__, NULL}, 2)

START_TEST(options_take_their_values) {
    ck_assert_int_eq(PARSE("--size=12", "--seed", "18446744073709551615", "--integer=-7",
                           "--number", "1.5e-3", "-t", "a b", "--shape=square", "-f", "first"),
                     TOOL_OK);
    ck_assert_uint_eq(set.size, 12);
    ck_assert_uint_eq(set.seed, UINT64_MAX);
    ck_assert_int_eq(set.integer, -7);
    ck_assert(set.number == 1.5e-3);
    ck_assert_str_eq(set.text, "a b");
    ck_assert_int_eq(set.choice, SQUARE);
    ck_assert(set.flag && set.on && set.given);
    ck_assert_str_eq(set.arguments[0], "first");
    ck_assert_ptr_null(set.arguments[1]);
}
END_TEST

START_TEST(flags_can_be_switched_off) {
    ck_assert_int_eq(PARSE("--on=false"), TOOL_OK);
    ck_assert(!set.on);
    ck_assert_int_eq(PARSE("--no-on"), TOOL_OK);
    ck_assert(!set.on);
    ck_assert_int_eq(PARSE("--on=false", "--on"), TOOL_OK);
    ck_assert(set.on);
    ck_assert_int_eq(PARSE("--flag=true", "--on=0"), TOOL_OK);
    ck_assert(set.flag && !set.on);
    ck_assert_int_eq(PARSE("--on=maybe"), TOOL_USAGE);
    ck_assert_int_eq(PARSE("--on="), TOOL_USAGE);
}
END_TEST

/* A flag has no value in the next word, and what looks like a flag may be a value. */
START_TEST(words_stay_where_they_belong) {
    ck_assert_int_eq(PARSE("--flag", "false"), TOOL_OK);
    ck_assert(set.flag);
    ck_assert_str_eq(set.arguments[0], "false");
    ck_assert_int_eq(PARSE("--text", "--on=false"), TOOL_OK);
    ck_assert_str_eq(set.text, "--on=false");
    ck_assert(set.on);
    ck_assert_int_eq(PARSE("--", "--on=false"), TOOL_OK);
    ck_assert_str_eq(set.arguments[0], "--on=false");
    ck_assert(set.on);
}
END_TEST

static const char *const wrong[][2] = {
    {"--size=abc", NULL},
    {"--size=", NULL},
    {"--size=0", NULL},
    {"--size=-1", NULL},
    {"--size=+1", NULL},
    {"--size= 1", NULL},
    {"--size=1 ", NULL},
    {"--size=12x", NULL},
    {"--size=1.5", NULL},
    {"--size=1001", NULL},
    {"--size=99999999999999999999999", NULL},
    {"--seed=18446744073709551616", NULL},
    {"--seed=-1", NULL},
    {"--integer=9223372036854775808", NULL},
    {"--integer=--1", NULL},
    {"--number=1,5", NULL},
    {"--number=nan", NULL},
    {"--number=inf", NULL},
    {"--number=1e999", NULL},
    {"--number=0x10", NULL},
    {"--number=-0.1", NULL},
    {"--number=1e", NULL},
    {"--shape=oval", NULL},
    {"--size", NULL},
    {"--unknown", NULL},
    {"--siz=5", NULL},
    {"-x", NULL},
    {"--help=yes", NULL},
};

START_TEST(wrong_options_are_refused) {
    size_t size = set.size;
    ck_assert_int_eq(PARSE(wrong[_i][0]), TOOL_USAGE);
    ck_assert_uint_eq(set.size, size);
}
END_TEST

START_TEST(surplus_and_missing_arguments_are_refused) {
    ck_assert_int_eq(PARSE("one", "two", "three"), TOOL_USAGE);
    ck_assert_int_eq(parse((const char *const[]){"one", NULL}, 0), TOOL_USAGE);
}
END_TEST

START_TEST(json_is_escaped_and_finite) {
    FILE *file = tmpfile();
    tool_json json = tool_json_start(file);
    tool_json_open(&json, NULL, '{');
    tool_json_number(&json, "x", 0.1);
    tool_json_number(&json, "nan", (double)NAN);
    tool_json_number(&json, "inf", -(double)INFINITY);
    tool_json_string(&json, "a\"b", "line\n\\ \x01 \xc3\xa9");
    tool_json_open(&json, "list", '[');
    tool_json_count(&json, NULL, 1);
    tool_json_bool(&json, NULL, false);
    tool_json_string(&json, NULL, NULL);
    tool_json_close(&json, ']');
    tool_json_open(&json, "empty", '[');
    tool_json_close(&json, ']');
    tool_json_number(&json, "third", 1.0 / 3);
    tool_json_close(&json, '}');
    ck_assert_int_eq(tool_json_finish(&json, TOOL_OK), TOOL_OK);
    char *text = command_slurp(file);
    ck_assert_str_eq(text, "{\"x\":0.1,\"nan\":null,\"inf\":null,"
                           "\"a\\\"b\":\"line\\u000a\\\\ \\u0001 \xc3\xa9\","
                           "\"list\":[1,false,null],\"empty\":[],"
                           "\"third\":0.33333333333333331}\n");
    free(text);
    fclose(file);
}
END_TEST

static char *contents(const char *directory, const char *name) {
    char *path = tool_path(directory, name);
    FILE *file = fopen(path, "r");
    free(path);
    ck_assert_ptr_nonnull(file);
    char *text = command_slurp(file);
    fclose(file);
    return text;
}

static void expect_contents(const char *directory, const char *name, const char *want) {
    char *text = contents(directory, name);
    ck_assert_str_eq(text, want);
    free(text);
}

START_TEST(files_appear_whole_or_not_at_all) {
    char *dir = command_scratch();
    tool_file file;
    ck_assert_int_eq(tool_file_open(&file, dir, "a.csv"), TOOL_OK);
    fputs("old\n", file.stream);
    ck_assert(!command_exists(dir, "a.csv"));
    ck_assert_int_eq(tool_file_commit(&file), TOOL_OK);
    expect_contents(dir, "a.csv", "old\n");

    ck_assert_int_eq(tool_file_open(&file, dir, "a.csv"), TOOL_OK);
    fputs("new, unfinished", file.stream);
    tool_file_discard(&file);
    expect_contents(dir, "a.csv", "old\n");
    ck_assert_int_eq(rmdir(dir), -1);
    char *path = tool_path(dir, "a.csv");
    ck_assert_int_eq(unlink(path), 0);
    free(path);
    ck_assert_int_eq(rmdir(dir), 0); /* no temporary file is left */
}
END_TEST

START_TEST(a_link_leads_to_the_file_that_changes) {
    char *dir = command_scratch(), *link = tool_path(dir, "link"), *path = tool_path(dir, "file");
    fclose(fopen(path, "w"));
    ck_assert_int_eq(symlink("file", link), 0);
    tool_file file;
    ck_assert_int_eq(tool_file_open(&file, NULL, link), TOOL_OK);
    fputs("text", file.stream);
    ck_assert_int_eq(tool_file_commit(&file), TOOL_OK);
    expect_contents(dir, "file", "text");
    struct stat info;
    ck_assert(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
    free(link);
    free(path);
    command_remove(dir);
}
END_TEST

START_TEST(a_private_file_stays_private) {
    char *dir = command_scratch(), *path = tool_path(dir, "file");
    fclose(fopen(path, "w"));
    ck_assert_int_eq(chmod(path, 0600), 0);
    tool_file file;
    ck_assert_int_eq(tool_file_open(&file, NULL, path), TOOL_OK);
    ck_assert_int_eq(tool_file_commit(&file), TOOL_OK);
    struct stat info;
    ck_assert(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
    free(path);
    command_remove(dir);
}
END_TEST

START_TEST(names_may_be_as_long_as_the_system_allows) {
    char *dir = command_scratch(), name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    tool_file file;
    ck_assert_int_eq(tool_file_open(&file, dir, name), TOOL_OK);
    fputs("text", file.stream);
    ck_assert_int_eq(tool_file_commit(&file), TOOL_OK);
    expect_contents(dir, name, "text");
    command_remove(dir);
}
END_TEST

START_TEST(an_exit_in_the_middle_leaves_no_temporary) {
    char *dir = command_scratch();
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        tool_file files[3];
        for (int i = 0; i < 3; i++)
            if (tool_file_open(&files[i], dir, i ? "b" : "a") != TOOL_OK)
                _exit(3);
        tool_file_discard(&files[1]);
        exit(7);
    }
    int result;
    ck_assert_int_eq(waitpid(child, &result, 0), child);
    ck_assert(WIFEXITED(result) && WEXITSTATUS(result) == 7);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(probes_leave_no_trace) {
    char *dir = command_scratch(), *path = tool_path(dir, "file");
    ck_assert_int_eq(tool_file_probe(path), TOOL_OK);
    ck_assert(!command_exists(dir, "file"));
    ck_assert_int_eq(tool_file_probe("/dev/null"), TOOL_OK);
    ck_assert_int_eq(tool_file_probe(dir), TOOL_FAILED);
    ck_assert_int_eq(tool_file_probe(""), TOOL_FAILED);
    ck_assert(tool_same_file(path, path)); /* it is not there: the same name */
    ck_assert_int_eq(rmdir(dir), 0);
    ck_assert(!tool_same_file("/dev/null", "/dev/null") && !tool_same_file(NULL, NULL));
    free(path);
}
END_TEST

START_TEST(files_that_cannot_be_written_are_named) {
    char *dir = command_scratch();
    tool_file file;
    ck_assert_int_eq(tool_file_open(&file, dir, "missing/a.csv"), TOOL_FAILED);
    ck_assert_int_eq(tool_file_open(&file, NULL, dir), TOOL_FAILED);
    if (access("/dev/full", W_OK) == 0) {
        ck_assert_int_eq(tool_file_open(&file, NULL, "/dev/full"), TOOL_OK);
        fputs("text", file.stream);
        ck_assert_int_eq(tool_file_commit(&file), TOOL_FAILED);
        struct stat info;
        ck_assert(stat("/dev/full", &info) == 0 && S_ISCHR(info.st_mode));
    }
    command_remove(dir);
}
END_TEST

START_TEST(directories_are_made_with_those_above) {
    char *dir = command_scratch(), *deep = tool_path(dir, "a/b//c/"), *file = tool_path(dir, "f");
    ck_assert_int_eq(tool_directory_create(deep), TOOL_OK);
    ck_assert_int_eq(tool_directory_create(deep), TOOL_OK);
    fclose(fopen(file, "w"));
    ck_assert_int_eq(tool_directory_create(file), TOOL_FAILED);
    ck_assert_int_eq(tool_directory_create(""), TOOL_FAILED);
    free(file);
    file = tool_path(dir, "f/below");
    ck_assert_int_eq(tool_directory_create(file), TOOL_FAILED);
    free(file);
    free(deep);
    command_remove(dir);
}
END_TEST

static const char picture[] = "plot 'data.csv' using 1:2 with lines ls 1 title 'a'\n";

static char *plot_scratch(void) {
    char *dir = command_scratch();
    tool_file file;
    ck_assert_int_eq(tool_file_open(&file, dir, "data.csv"), TOOL_OK);
    fputs("x,y\n0,0\n1,2\n2,1\n", file.stream);
    ck_assert_int_eq(tool_file_commit(&file), TOOL_OK);
    return dir;
}

static bool have_gnuplot(void) {
    return system("command -v gnuplot >/dev/null 2>&1") == 0;
}

START_TEST(plots_need_no_display) {
    if (!have_gnuplot())
        return;
    char *dir = plot_scratch();
    setenv("GNUTERM", "qt", 1);
    unsetenv("DISPLAY");
    ck_assert_int_eq(tool_plot(dir, "picture", picture), TOOL_OK);
    ck_assert(command_exists(dir, "picture.png"));
    ck_assert(command_exists(dir, "picture.gp"));
    command_remove(dir);
}
END_TEST

/* A gnuplot of our own making in front of the real one. */
static void fake_gnuplot(const char *dir, const char *body) {
    tool_file file;
    ck_assert_int_eq(tool_file_open(&file, dir, "gnuplot"), TOOL_OK);
    fprintf(file.stream, "#!/bin/sh\n%s\n", body);
    ck_assert_int_eq(tool_file_commit(&file), TOOL_OK);
    char *path = tool_path(dir, "gnuplot");
    ck_assert_int_eq(chmod(path, 0755), 0);
    free(path);
    setenv("PATH", dir, 1);
}

static const char *const bad_gnuplots[] = {
    NULL,                                  /* none at all */
    "exit 1",                              /* fails without a word */
    "echo; echo 'no such terminal'; exit", /* says so and pretends success */
    "kill -9 $$",
};

START_TEST(a_gnuplot_that_hangs_does_not_hang_the_run) {
    char *dir = plot_scratch();
    fake_gnuplot(dir, "exec /bin/sleep 100");
    tool_plot_patience = 0.3;
    double start = tool_seconds();
    ck_assert_int_eq(tool_plot(dir, "picture", picture), TOOL_OK);
    ck_assert(tool_seconds() - start < 60);
    ck_assert(command_exists(dir, "picture.gp") && !command_exists(dir, "picture.png"));
    command_remove(dir);
}
END_TEST

START_TEST(without_gnuplot_data_and_script_stay) {
    char *dir = plot_scratch(), *old = tool_path(dir, "picture.png");
    FILE *stale = fopen(old, "w");
    fputs("stale", stale);
    fclose(stale);
    if (bad_gnuplots[_i])
        fake_gnuplot(dir, bad_gnuplots[_i]);
    else
        setenv("PATH", "/nonexistent", 1);
    ck_assert_int_eq(tool_plot(dir, "picture", picture), TOOL_OK);
    ck_assert(!command_exists(dir, "picture.png"));
    ck_assert(command_exists(dir, "picture.gp"));
    ck_assert(command_exists(dir, "data.csv"));
    free(old);
    command_remove(dir);
}
END_TEST

START_TEST(progress_in_a_pipe_is_plain_lines) {
    FILE *file = tmpfile();
    ck_assert_int_ge(dup2(fileno(file), 2), 0);
    tool_progress progress = tool_progress_start(100);
    for (size_t step = 1; step <= 100; step++)
        tool_progress_update(&progress, step, 2.5, 0.5, 1e4 * (double)step);
    tool_progress_finish(&progress);
    char *text = command_slurp(file);
    ck_assert_uint_eq(command_lines(text), 10);
    ck_assert_ptr_null(strpbrk(text, "\r\033"));
    ck_assert_ptr_nonnull(strstr(text, "step 10/100  loss 2.5000  accuracy  50.0 %"));
    ck_assert_ptr_nonnull(strstr(text, "step 100/100  "));
    free(text);
    fclose(file);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool_parts");
    TCase *tests = tcase_create("tool_parts");
    tcase_add_test(tests, options_take_their_values);
    tcase_add_test(tests, flags_can_be_switched_off);
    tcase_add_test(tests, words_stay_where_they_belong);
    tcase_add_loop_test(tests, wrong_options_are_refused, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(tests, surplus_and_missing_arguments_are_refused);
    tcase_add_test(tests, json_is_escaped_and_finite);
    tcase_add_test(tests, files_appear_whole_or_not_at_all);
    tcase_add_test(tests, a_link_leads_to_the_file_that_changes);
    tcase_add_test(tests, a_private_file_stays_private);
    tcase_add_test(tests, names_may_be_as_long_as_the_system_allows);
    tcase_add_test(tests, an_exit_in_the_middle_leaves_no_temporary);
    tcase_add_test(tests, probes_leave_no_trace);
    tcase_add_test(tests, files_that_cannot_be_written_are_named);
    tcase_add_test(tests, directories_are_made_with_those_above);
    tcase_add_test(tests, plots_need_no_display);
    tcase_add_loop_test(tests, without_gnuplot_data_and_script_stay, 0, 4);
    tcase_add_test(tests, a_gnuplot_that_hangs_does_not_hang_the_run);
    tcase_add_test(tests, progress_in_a_pipe_is_plain_lines);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
