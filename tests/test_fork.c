/*
 * A child forked after its parent ran a parallel region. libgomp's threads are gone there, and its
 * next region in the forking thread waits for them for ever. The documents name two ways out, and
 * both are tried here: a new thread in the child, and OMP_NUM_THREADS=1, which opens no region
 * (this program is run a second time with it).
 */
#include "test.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH = 2, LEN = 192, D_MODEL = 128, REALS = BATCH * LEN * D_MODEL };

typedef struct job {
    const attn_mha_config *config;
    const attn_mha_params *params;
    const attn_mha_input *input;
    attn_arena *arena;
    attn_real *y;
    attn_status status;
} job;

static void *run(void *argument) {
    job *j = argument;
    attn_arena_reset(j->arena);
    j->status = attn_mha_forward(j->config, j->params, j->input, j->y, j->arena, NULL);
    return NULL;
}

static bool one_thread(void) {
    const char *threads = getenv("OMP_NUM_THREADS");
    return threads && strcmp(threads, "1") == 0;
}

/* In the child: 0 = the same output as the parent's. */
static int child(job *j, const attn_real *want) {
    alarm(10); /* a hang ends with a signal */
    if (one_thread()) {
        run(j);
    } else {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, j) != 0 || pthread_join(thread, NULL) != 0)
            return 2;
    }
    return j->status != ATTN_OK || memcmp(j->y, want, REALS * sizeof *want) != 0;
}

START_TEST(forward_after_fork) {
    const attn_mha_config config = {.d_model = D_MODEL, .num_heads = 4, .bias = true};
    attn_real *theta = test_poison(attn_mha_num_params(&config));
    test_ok(attn_mha_params_init(&config, theta, 1));
    const attn_mha_params params = attn_mha_params_view(&config, theta);
    attn_real *x = test_normal(REALS, 1, 2), *want = test_poison(REALS), *y = test_poison(REALS);
    const attn_mha_input input = {
        .batch = BATCH, .len_q = LEN, .query = x, .mask = {.causal = true}};
    attn_memory need;
    test_ok(attn_mha_memory(&config, &input, &need));
    attn_arena arena = test_arena(need.inference);
    job j = {&config, &params, &input, &arena, want, ATTN_OK};
    run(&j);
    test_ok(j.status);

    j.y = y;
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        _exit(child(&j, want));
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status), "the child was ended by signal %d", WTERMSIG(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    attn_arena_destroy(&arena);
    free(theta);
    free(x);
    free(want);
    free(y);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fork");
    TCase *tc = tcase_create("fork");
    tcase_add_test(tc, forward_after_fork);
    suite_add_tcase(suite, tc);
    return test_main(suite);
}
