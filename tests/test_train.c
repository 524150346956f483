/* `attn train` from outside: what it refuses, what it writes, and that it learns. */
#include "command.h"
#include "test.h"

#include <dirent.h>
#include <jansson.h>
#include <sys/resource.h>
#include <time.h>

/* A run of a second or less. */
#define TINY                                                                                      \
    "train", "--symbols=4", "--length=3", "--d-model=16", "--heads=2", "--batch=8", "--fresh=20", \
        "--threads=1"

static char *scratch;

static void make_scratch(void) {
    scratch = command_scratch();
}

static void remove_scratch(void) {
    command_remove(scratch);
}

/* SCRATCH/NAME; the last eight of them stay valid. */
static const char *in_scratch(const char *format, const char *name) {
    static char paths[8][300];
    static size_t next;
    char *path = paths[next++ % 8], full[256];
    snprintf(full, sizeof full, "%s/%s", scratch, name);
    snprintf(path, sizeof paths[0], format, full);
    return path;
}

static void write_file(const char *name, const char *text, size_t repeat) {
    FILE *file = fopen(in_scratch("%s", name), "w");
    ck_assert_ptr_nonnull(file);
    while (repeat-- > 0)
        fputs(text, file);
    fclose(file);
}

static char *read_file(const char *name) {
    FILE *file = fopen(in_scratch("%s", name), "r");
    ck_assert_msg(file != NULL, "%s is missing", name);
    char *text = command_slurp(file);
    fclose(file);
    return text;
}

static void expect(const command_run *run, int status, const char *words) {
    ck_assert_msg(run->status == status && strstr(run->err, words),
                  "expected status %d and \"%s\"; status %d, stdout:\n%sstderr:\n%s", status, words,
                  run->status, run->out, run->err);
}

static json_t *parse(const command_run *run) {
    ck_assert_msg(run->status == 0, "status %d: %s", run->status, run->err);
    ck_assert_uint_eq(command_lines(run->out), 1);
    json_error_t error;
    json_t *object = json_loads(run->out, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json_is_object(object), "%s in %s", error.text, run->out);
    return object;
}

static double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "no number %s", key);
    return json_number_value(value);
}

START_TEST(wrong_command_lines) {
    static const char *const wrong[][3] = {
        {"--task=polish", "task", "polish"},
        {"--heads=0", "heads", "0"},
        {"--heads=5", "heads", "5"}, /* of a width of 64 */
        {"--steps=abc", "steps", "abc"},
        {"--steps=-1", "steps", "-1"},
        {"--steps=0", "steps", "0"},
        {"--d-model=0", "d-model", "0"},
        {"--layers=0", "layers", "0"},
        {"--batch=0", "batch", "0"},
        {"--symbols=0", "symbols", "0"},
        {"--length=0", "length", "0"},
        {"--threads=x", "threads", "x"},
        {"--lr=-1", "lr", "-1"},
        {"--lr=nan", "lr", "nan"},
        {"--momentum=1.5", "momentum", "1.5"},
        {"--momentum=1", "momentum", "below 1"},
        {"--momentum=0.99999999999", "momentum", "below 1"}, /* 1 in float */
        {"--lr=1e300", "lr", "above"},                       /* infinite in float */
        {"--seed=-1", "seed", "-1"},
        {"--kernel=magic", "kernel", "magic"},
        {"--rope=full", "rope", "full"},
        {"--kv-heads=3", "kv-heads", "3"}, /* of 4 */
        {"--kv-heads=0", "kv-heads", "0"},
        {"--window=0", "window", "0"},
        {"--softcap=-1", "softcap", "-1"},
        {"--dropout=1", "dropout", "1"},
        {"--dropout=-0.1", "dropout", "-0.1"},
        {"--plot-layer=2", "plot-layer", "2"},
        {"--data=x.txt", "data", "text"},
        {"--context=8", "context", "text"},
        {"--task=text", "text", "--data"},
        {"extra", "extra", "surplus"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        command_refused(ATTN("train", wrong[i][0]), 2, wrong[i][1], wrong[i][2]);
    command_refused(ATTN("train", "--task=text", "--data=x", "--length=3"), 2, "length", "copy");
    command_refused(ATTN("train", "--rope=half", "--d-head=3"), 2, "rope half", "3 is odd");
}
END_TEST

START_TEST(wrong_data) {
    write_file("empty", "", 0);
    write_file("tiny", "abc", 2);
    struct {
        const char *path, *reason;
    } wrong[] = {{in_scratch("%s", "absent"), "No such file"},
                 {scratch, "directory"},
                 {in_scratch("%s", "empty"), "0 bytes"},
                 {in_scratch("%s", "tiny"), "6 bytes"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        command_refused(ATTN("train", "--task=text", "--data", wrong[i].path), 1, wrong[i].path,
                        wrong[i].reason);
    command_refused(ATTN("train", "--task=text", "--data="), 1, "''", "No such file");
}
END_TEST

/* A slip of the hand must not cost the text, the model or the log. */
START_TEST(results_do_not_replace_inputs) {
    write_file("text", "to be or not to be ", 40);
    const char *data = in_scratch("--data=%s", "text"), *log = in_scratch("--log=%s", "./text");
    command_refused(ATTN("train", "--task=text", data, log), 2, "--log", "--data");
    const char *save = in_scratch("--save=%s", "text");
    command_refused(ATTN("train", "--task=text", data, save), 2, "--save", "--data");
    command_refused(ATTN(TINY, in_scratch("--log=%s", "new"), in_scratch("--save=%s", "new")), 2,
                    "--log", "--save");
    command_refused(ATTN(TINY, log, in_scratch("--load=%s", "text")), 2, "--log", "--load");
    char *text = read_file("text");
    ck_assert_uint_eq(strlen(text), 40 * 19);
    free(text);
}
END_TEST

static void expect_in_scratch(size_t files) {
    const char *const arguments[] = {"/bin/ls", "-A", scratch, NULL};
    command_run run = command_start(arguments, NULL, NULL);
    ck_assert_msg(command_lines(run.out) == files, "expected %zu files, there are\n%s", files,
                  run.out);
    command_free(&run);
}

START_TEST(places_that_cannot_be_written) {
    write_file("file", "x", 1);
    const char *log = in_scratch("--log=%s", "absent/log.csv");
    const char *plots = in_scratch("--plots=%s", "file"),
               *save = in_scratch("--save=%s", "no/where");
    command_refused(ATTN(TINY, "--steps=2", log), 1, "absent/log.csv", "No such file");
    command_refused(ATTN(TINY, "--steps=2", plots), 1, "file", "");
    command_run run;
    /* Not after a night of training: one line, before the first step. */
    command_refused(ATTN(TINY, "--steps=2", save), 1, "no/where", "No such file");
    command_refused(ATTN(TINY, "--steps=2", "--save="), 1, "''", "No such file");
    command_refused(ATTN(TINY, "--steps=2", "--log="), 1, "''", "No such file");
    command_refused(ATTN(TINY, "--save", scratch, in_scratch("--log=%s", "log")), 1, scratch,
                    "directory");
    expect_in_scratch(1); /* "file" */
    if (access("/dev/full", W_OK) == 0) {
        command_refused(ATTN(TINY, "--steps=2", "--log=/dev/full"), 1, "/dev/full", "space");
        run = ATTN_INTO("/dev/full", TINY, "--steps=2", "--json");
        expect(&run, 1, "cannot write to stdout");
        command_free(&run);
    }
}
END_TEST

START_TEST(more_memory_than_the_machine_has) {
    command_run run = ATTN("train", "--batch=500000000", "--length=1000");
    expect(&run, 1, "GB");
    ck_assert_uint_eq(command_lines(run.err), 1);
    command_free(&run);
    run = ATTN("train", "--d-model=1000000000", "--d-head=1000000000", "--heads=1000000000");
    ck_assert_int_eq(run.status, 1);
    ck_assert_uint_eq(command_lines(run.err), 1);
    command_free(&run);
}
END_TEST

START_TEST(one_line_of_json) {
    command_run run = ATTN(TINY, "--steps=10", "--seed=7", "--json");
    json_t *o = parse(&run);
    ck_assert_str_eq(json_string_value(json_object_get(o, "task")), "copy");
    ck_assert(number(o, "steps") == 10 && number(o, "seed") == 7);
    ck_assert(number(o, "fresh_sequences") == 20);
    ck_assert(number(o, "loss") > 0 && number(o, "accuracy") >= 0 && number(o, "accuracy") <= 1);
    ck_assert(number(o, "seconds") > 0 && number(o, "tokens_per_second") > 0);
    /* (5 + 6)·16 embeddings, one layer with biases, (16 + 1)·5 in the head */
    ck_assert(number(o, "parameters") == 11 * 16 + 4 * (16 * 16 + 16) + 17 * 5);
    ck_assert_ptr_null(json_object_get(o, "validation_loss"));
    json_decref(o);
    command_free(&run);
}
END_TEST

START_TEST(plain_lines_into_a_pipe) {
    command_run run = ATTN(TINY, "--steps=40");
    expect(&run, 0, "step 4/40");
    ck_assert_ptr_null(strpbrk(run.err, "\r\033"));
    ck_assert_ptr_null(strpbrk(run.out, "\r\033"));
    ck_assert_uint_eq(command_lines(run.err), 10);
    ck_assert_ptr_nonnull(strstr(run.out, "20 fresh sequences"));
    command_free(&run);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_bits) {
    static const char *const names[] = {"one", "two", "again", "other"};
    static const char *const threads[] = {"--threads=1", "--threads=2", "--threads=1",
                                          "--threads=1"};
    char *logs[4], *saved[4];
    for (size_t i = 0; i < 4; i++) {
        command_run run =
            ATTN("train", "--symbols=5", "--length=12", "--steps=12", "--layers=2", threads[i],
                 "--kernel=reference", i == 3 ? "--seed=2" : "--seed=1",
                 in_scratch("--log=%s", names[i]), in_scratch("--save=%s.st", names[i]));
        expect(&run, 0, "");
        command_free(&run);
        char name[16];
        snprintf(name, sizeof name, "%s.st", names[i]);
        logs[i] = read_file(names[i]);
        saved[i] = read_file(name);
        ck_assert_uint_eq(command_lines(logs[i]), 13);
    }
    ck_assert_str_eq(logs[0], logs[1]);
    ck_assert_str_eq(logs[0], logs[2]);
    ck_assert_str_ne(logs[0], logs[3]);
    for (size_t i = 0; i < 4; i++) {
        free(logs[i]);
        free(saved[i]);
    }
    const char *const compare[] = {"/usr/bin/cmp", in_scratch("%s", "one.st"),
                                   in_scratch("%s", "two.st"), NULL};
    command_run run = command_start(compare, NULL, NULL);
    ck_assert_int_eq(run.status, 0);
    command_free(&run);
}
END_TEST

START_TEST(a_loss_that_is_not_finite_stops_the_run) {
    command_run run = ATTN(TINY, "--steps=5", in_scratch("--save=%s", "model"));
    expect(&run, 0, "");
    command_free(&run);
    char *before = read_file("model");
    run = ATTN(TINY, "--steps=50", "--lr=1e30", "--json", in_scratch("--save=%s", "model"),
               in_scratch("--log=%s", "log"), in_scratch("--plots=%s", "plots"));
    expect(&run, 1, "step ");
    expect(&run, 1, "not finite");
    ck_assert_str_eq(run.out, "");
    command_free(&run);
    char *after = read_file("model"), *log = read_file("log");
    ck_assert_str_eq(before, after);
    ck_assert(command_lines(log) < 50);
    free(before);
    free(after);
    free(log);
}
END_TEST

#define VARIANTS                                                                               \
    "--kv-heads=1", "--window=4", "--alibi-learned", "--sinks", "--softcap=20", "--rope=half", \
        "--dropout=0.1"

/* Every kind of attention at once: it learns, the same seed gives the same bits, parameters come
 * back, and a file of another kind is refused. Dropout is of the training alone. */
START_TEST(every_kind_of_attention_trains) {
    double loss[3];
    for (size_t i = 0; i < 2; i++) {
        command_run run = ATTN(TINY, VARIANTS, "--steps=40", "--json",
                               i ? "--threads=1" : "--threads=2", in_scratch("--save=%s", "kinds"));
        json_t *o = parse(&run);
        loss[i] = number(o, "loss");
        json_decref(o);
        command_free(&run);
    }
    ck_assert_double_eq(loss[0], loss[1]);
    command_run run = ATTN(TINY, VARIANTS, "--steps=1", "--lr=0", "--json", "--no-alibi",
                           "--dropout=0.9", in_scratch("--load=%s", "kinds"));
    json_t *o = parse(&run);
    ck_assert_double_eq(number(o, "loss"), loss[0]);
    json_decref(o);
    command_free(&run);
    run = ATTN(TINY, VARIANTS, "--steps=1", "--json");
    o = parse(&run);
    ck_assert_double_lt(loss[0], 0.9 * number(o, "loss"));
    json_decref(o);
    command_free(&run);
    const struct {
        const char *option, *words;
    } other[] = {{"--window=5", "made with --window 4, not 5"},
                 {"--softcap=0", "made with --softcap 20, not 0"},
                 {"--no-alibi-learned", "alibi_slopes"},
                 {"--no-sinks", "sinks"},
                 {"--kv-heads=2", "k.weight"}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        run = ATTN(TINY, VARIANTS, "--steps=1", other[i].option, in_scratch("--load=%s", "kinds"));
        expect(&run, 1, other[i].words);
        command_free(&run);
    }
}
END_TEST

START_TEST(parameters_are_saved_and_loaded) {
    command_run run = ATTN(TINY, "--steps=30", "--json", in_scratch("--save=%s", "model"));
    json_t *o = parse(&run);
    double loss = number(o, "loss");
    json_decref(o);
    command_free(&run);
    run = ATTN(TINY, "--steps=1", "--lr=0", "--json", in_scratch("--load=%s", "model"));
    o = parse(&run);
    ck_assert_double_eq(number(o, "loss"), loss);
    json_decref(o);
    command_free(&run);
    run = ATTN(TINY, "--steps=1", "--d-model=32", in_scratch("--load=%s", "model"));
    expect(&run, 1, "token_embedding");
    command_free(&run);
    run = ATTN(TINY, "--steps=1", "--heads=4", in_scratch("--load=%s", "model"));
    expect(&run, 1, "heads");
    command_free(&run);
    run = ATTN(TINY, "--steps=1", "--rope=half", in_scratch("--load=%s", "model"));
    expect(&run, 1, "made with --rope none, not half");
    command_free(&run);
    run = ATTN(TINY, "--steps=1", "--rope=half", in_scratch("--save=%s", "turned"));
    expect(&run, 0, "");
    command_free(&run);
    run = ATTN(TINY, "--steps=1", "--rope=half", in_scratch("--load=%s", "turned"));
    expect(&run, 0, "");
    command_free(&run);
    run = ATTN(TINY, "--steps=1", "--rope=interleaved", in_scratch("--load=%s", "turned"));
    expect(&run, 1, "made with --rope half, not interleaved");
    command_free(&run);
    run = ATTN(TINY, "--steps=1", "--layers=2", in_scratch("--load=%s", "model"));
    expect(&run, 1, "layers.1.");
    command_free(&run);
    run = ATTN(TINY, "--steps=1", "--layers=2", in_scratch("--save=%s", "two"));
    ck_assert_int_eq(run.status, 0);
    command_free(&run);
    run = ATTN(TINY, "--steps=1", in_scratch("--load=%s", "two"));
    expect(&run, 1, "layers.1.");
    command_free(&run);
    run = ATTN(TINY, "--steps=1", in_scratch("--load=%s", "absent"));
    expect(&run, 1, "absent");
    command_free(&run);
    /* a damaged file is no beginning, and nothing is written over it */
    ck_assert_int_eq(truncate(in_scratch("%s", "model"), 1000), 0);
    run =
        ATTN(TINY, "--steps=1", in_scratch("--load=%s", "model"), in_scratch("--save=%s", "model"));
    expect(&run, 1, "cut short");
    command_free(&run);
    struct stat info;
    ck_assert(stat(in_scratch("%s", "model"), &info) == 0 && info.st_size == 1000);
}
END_TEST

/* A program called gnuplot, first in the PATH. */
static const char *fake_gnuplot(const char *body) {
    static char path[300];
    mkdir(in_scratch("%s", "bin"), 0700);
    FILE *file = fopen(in_scratch("%s", "bin/gnuplot"), "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "#!/bin/sh\n%s\n", body);
    fclose(file);
    ck_assert_int_eq(chmod(in_scratch("%s", "bin/gnuplot"), 0700), 0);
    snprintf(path, sizeof path, "PATH=%s/bin:/usr/bin:/bin", scratch);
    return path;
}

static void expect_data_and_scripts(void) {
    static const char *const names[] = {"loss.csv", "loss.gp", "attention.csv", "attention.gp"};
    for (size_t i = 0; i < 4; i++)
        ck_assert_msg(command_exists(in_scratch("%s", "plots"), names[i]), "%s", names[i]);
}

START_TEST(without_gnuplot_data_and_scripts_are_kept) {
    static const char *const bodies[] = {NULL, "exit 0", "exit 3", "kill -9 $$",
                                         "exec 0<&- 1>&- 2>&-"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        const char *const environment[] = {bodies[i] ? fake_gnuplot(bodies[i]) : "PATH=/nowhere",
                                           NULL};
        command_run run =
            ATTN_WITH(environment, TINY, "--steps=1", in_scratch("--plots=%s", "plots"));
        expect(&run, 0, "gnuplot");
        ck_assert_msg(command_lines(run.err) == 2, "a line of progress and one more: %s", run.err);
        expect_data_and_scripts();
        command_free(&run);
        command_remove(in_scratch("%s", "plots"));
    }
}
END_TEST

START_TEST(pictures_need_no_display) {
    if (access("/usr/bin/gnuplot", X_OK) != 0)
        return;
    const char *const environment[] = {"GNUTERM=qt", "DISPLAY", "WAYLAND_DISPLAY", NULL};
    static const char *const pictures[] = {"loss.png", "attention.png"};
    write_file("it's.txt", "The cat sat on the mat's \"edge\". ", 12);
    for (size_t text = 0; text < 2; text++) {
        const char *data = in_scratch("--data=%s", "it's.txt");
        const char *plots = in_scratch("--plots=%s", "plots");
        command_run run = text ? ATTN_WITH(environment, "train", "--task=text", data,
                                           "--d-model=16", "--steps=3", "--threads=1", plots)
                               : ATTN_WITH(environment, TINY, "--steps=3", plots);
        expect(&run, 0, "");
        ck_assert_msg(!strstr(run.err, "gnuplot"), "%s", run.err);
        command_free(&run);
        expect_data_and_scripts();
        for (size_t i = 0; i < 2; i++)
            ck_assert_msg(command_exists(in_scratch("%s", "plots"), pictures[i]), "%s",
                          pictures[i]);
        command_remove(in_scratch("%s", "plots"));
    }
}
END_TEST

/* Bytes in the largest of the files that are being written: the log grows as the run trains. */
static off_t largest_temporary(void) {
    DIR *dir = opendir(scratch);
    ck_assert_ptr_nonnull(dir);
    off_t largest = 0;
    for (struct dirent *item; (item = readdir(dir));) {
        struct stat info;
        if (strncmp(item->d_name, ".attn-", 6) == 0 &&
            fstatat(dirfd(dir), item->d_name, &info, 0) == 0 && info.st_size > largest)
            largest = info.st_size;
    }
    closedir(dir);
    return largest;
}

START_TEST(an_interrupt_keeps_what_there_is) {
    const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    const int sent = signals[_i];
    const char *log = in_scratch("--log=%s", "log"), *plots = in_scratch("--plots=%s", "plots");
    /* Memory for a thousand million points is not asked for beforehand. */
    const char *const arguments[] = {ATTN_COMMAND, TINY, "--steps=1000000000", "--no-decay", log,
                                     plots,        NULL};
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        signal(sent, SIG_DFL);
        if (!freopen(in_scratch("%s", "err"), "w", stderr))
            _exit(126);
        execv(arguments[0], (char *const *)arguments);
        _exit(127);
    }
    const struct timespec moment = {.tv_nsec = 20000000};
    for (int tries = 0; tries < 1500 && largest_temporary() < 1000; tries++)
        nanosleep(&moment, NULL);
    /* Once only: a second signal ends the command at once. */
    kill(child, sent);
    int result = 0;
    for (int tries = 0; tries < 1500 && waitpid(child, &result, WNOHANG) == 0; tries++)
        nanosleep(&moment, NULL);
    ck_assert_msg(WIFEXITED(result) && WEXITSTATUS(result) == 128 + sent, "result %d", result);
    char *text = read_file("log"), *err = read_file("err");
    ck_assert_uint_gt(command_lines(text), 2);
    ck_assert_ptr_nonnull(strstr(err, "interrupted"));
    expect_data_and_scripts();
    free(text);
    free(err);
}
END_TEST

START_TEST(text_beside_counting) {
    write_file("text", "abababababacabababab", 60);
    const char *data = in_scratch("--data=%s", "text");
    command_run run = ATTN("train", "--task=text", data, "--context=16", "--d-model=16",
                           "--heads=2", "--steps=60", "--threads=1", "--json");
    json_t *o = parse(&run);
    /* Half of the bytes are a, and after a comes mostly b. */
    ck_assert_double_eq_tol(number(o, "unigram_loss"), 0.99, 0.1);
    ck_assert_double_eq_tol(number(o, "bigram_loss"), 0.17, 0.04);
    ck_assert_msg(number(o, "validation_loss") < number(o, "unigram_loss"), "%s", run.out);
    ck_assert(number(o, "fresh_sequences") == 0);
    ck_assert_ptr_nonnull(strstr(run.err, "sample"));
    ck_assert_ptr_null(strpbrk(run.err, "\r\033"));
    json_decref(o);
    command_free(&run);
}
END_TEST

/* 0 .. 255 over and over: an untrained model's sample is noise, which must not reach a terminal. */
START_TEST(a_sample_of_noise_is_harmless) {
    FILE *file = fopen(in_scratch("%s", "noise"), "w");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 2560; i++)
        putc(i * 7 % 256, file);
    fclose(file);
    command_run run = ATTN("train", "--task=text", in_scratch("--data=%s", "noise"), "--d-model=16",
                           "--steps=1", "--threads=1");
    expect(&run, 0, "");
    for (const char *c = run.out; *c; c++)
        ck_assert((unsigned char)*c >= ' ' || *c == '\n' || *c == '\t');
    command_free(&run);
}
END_TEST

START_TEST(reverse_and_copy_are_learnt) {
    command_run run =
        ATTN("train", _i ? "--task=reverse" : "--task=copy", "--symbols=6", "--length=5",
             "--d-model=32", "--steps=400", "--threads=1", "--fresh=200", "--json");
    json_t *o = parse(&run);
    ck_assert_msg(number(o, "accuracy") == 1, "%s", run.out);
    json_decref(o);
    command_free(&run);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("train");
    TCase *tests = tcase_create("train");
    tcase_add_checked_fixture(tests, make_scratch, remove_scratch);
    tcase_add_test(tests, wrong_command_lines);
    tcase_add_test(tests, wrong_data);
    tcase_add_test(tests, results_do_not_replace_inputs);
    tcase_add_test(tests, places_that_cannot_be_written);
    tcase_add_test(tests, more_memory_than_the_machine_has);
    tcase_add_test(tests, one_line_of_json);
    tcase_add_test(tests, plain_lines_into_a_pipe);
    tcase_add_test(tests, the_same_seed_gives_the_same_bits);
    tcase_add_test(tests, a_loss_that_is_not_finite_stops_the_run);
    tcase_add_test(tests, every_kind_of_attention_trains);
    tcase_add_test(tests, parameters_are_saved_and_loaded);
    tcase_add_test(tests, without_gnuplot_data_and_scripts_are_kept);
    tcase_add_test(tests, pictures_need_no_display);
    tcase_add_loop_test(tests, an_interrupt_keeps_what_there_is, 0, 3);
    tcase_add_test(tests, text_beside_counting);
    tcase_add_test(tests, a_sample_of_noise_is_harmless);
    tcase_add_loop_test(tests, reverse_and_copy_are_learnt, 0, 2);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
