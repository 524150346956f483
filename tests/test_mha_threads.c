/* The same bits on any number of threads, run after run, and in a forked child. */
#include "mha_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const mha_case cases[] = {
    {"self, causal", SIZES(2, 257, 0, 96, 3, 0), .causal = true},
    {"cross, padded", SIZES(3, 129, 200, 64, 4, 0), .padded = 1},
    {"one sample, one head", SIZES(1, 300, 0, 64, 1, 0), .causal = true},
    {"toy", SIZES(8, 32, 0, 64, 4, 0), .causal = true},
    {"rope", SIZES(2, 257, 0, 96, 3, 0), .causal = true, .rope = ATTN_ROPE_HALF},
    {"everything", SIZES(2, 150, 200, 64, 4, 0), .causal = true, .padded = 1,
     .rope = ATTN_ROPE_HALF, .num_kv_heads = 2, .window = {.left_on = true, .left = 90},
     .softcap = 3, .alibi = true, .alibi_learned = true, .sinks = true, .bias_rank = 3,
     .dropout = 0.2},
};
enum { NUM_CASES = sizeof cases / sizeof *cases };

static mha_run run_on(const mha_case *c, attn_kernel kernel, size_t threads) {
    mha_case with = *c;
    with.kernel = kernel;
    with.max_threads = threads;
    mha_run run = mha_setup(&with, 50);
    mha_step(&run);
    return run;
}

START_TEST(thread_counts_give_the_same_bits) {
    const size_t counts[] = {2, 3, 8};
    const mha_case *c = &cases[_i % NUM_CASES];
    const attn_kernel kernel = mha_kernels[_i / NUM_CASES];
    mha_run one = run_on(c, kernel, 1);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char what[96];
        snprintf(what, sizeof what, "%s, kernel %d, %zu threads", c->name, (int)kernel, counts[i]);
        mha_run many = run_on(c, kernel, counts[i]);
        mha_same_bits(what, &many, &one);
        mha_free(&many);
    }
    mha_free(&one);
}
END_TEST

/* CASES 36 */
START_TEST(fifty_runs_give_the_same_bits) {
    const mha_case c = {"T = 257", SIZES(1, 257, 0, 32, 2, 0), .causal = true};
    mha_run first = run_on(&c, mha_kernels[_i], 8);
    for (int i = 1; i < 50; i++) {
        mha_run again = run_on(&c, mha_kernels[_i], 8);
        mha_same_bits("a later run", &again, &first);
        mha_free(&again);
    }
    mha_free(&first);
}
END_TEST

/* CASES 37: libgomp's threads do not survive a fork. The two ways out: a new thread in the child,
 * or one thread for the library, which opens no region. */
static void *forward_again(void *argument) {
    mha_run *run = argument;
    attn_arena_reset(&run->arena);
    if (attn_mha_forward(&run->cfg, &run->w, &run->in, run->y, &run->arena, NULL) != ATTN_OK)
        return NULL;
    return argument;
}

START_TEST(forward_in_a_forked_child) {
    mha_run run = run_on(&cases[0], ATTN_KERNEL_AUTO, 4);
    attn_real *want = test_poison(run.size_q);
    memcpy(want, run.y, run.size_q * sizeof *want);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        void *result = NULL;
        pthread_t thread;
        alarm(10); /* a hang ends the child */
        memset(run.y, 0, run.size_q * sizeof *run.y);
        if (_i == 0) {
            if (pthread_create(&thread, NULL, forward_again, &run) == 0)
                pthread_join(thread, &result);
        } else {
            run.cfg.max_threads = 1;
            attn_arena_destroy(&run.arena);
            if (attn_mha_memory(&run.cfg, &run.in, &run.need) == ATTN_OK &&
                attn_arena_create(&run.arena, run.need.inference) == ATTN_OK)
                result = forward_again(&run);
        }
        _exit(result && memcmp(run.y, want, run.size_q * sizeof *want) == 0 ? 0 : 1);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "the child was ended by signal %d", WTERMSIG(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    free(want);
    mha_free(&run);
}
END_TEST

/* Two threads of the program, each with its own data. */
static void *step_alone(void *argument) {
    mha_step(argument);
    return argument;
}

START_TEST(callers_on_several_threads) {
    mha_case c = cases[3];
    c.kernel = ATTN_KERNEL_AUTO;
    mha_run want = mha_setup(&c, 60), got[3];
    pthread_t threads[3];
    mha_step(&want);
    for (size_t i = 0; i < 3; i++)
        got[i] = mha_setup(&c, 60);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, step_alone, &got[i]), 0);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        mha_same_bits("a concurrent caller", &got[i], &want);
        mha_free(&got[i]);
    }
    mha_free(&want);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mha_threads");
    TCase *tests = tcase_create("threads");
    const int num_kernels = mha_num_kernels();
    tcase_add_loop_test(tests, thread_counts_give_the_same_bits, 0, num_kernels * NUM_CASES);
    tcase_add_loop_test(tests, fifty_runs_give_the_same_bits, 0, num_kernels);
    tcase_add_loop_test(tests, forward_in_a_forked_child, 0, 2);
    tcase_add_test(tests, callers_on_several_threads);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
