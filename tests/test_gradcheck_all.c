/* `attn gradcheck --all`: every two variants together pass, within three minutes of two processors.
 */
#include "command.h"
#include "test.h"

#include <jansson.h>
#include <sys/resource.h>

START_TEST(every_two_variants_pass) {
    command_run run = ATTN("gradcheck", "--all", "--json");
    struct rusage use; /* and not the clock: other programs may run */
    ck_assert_int_eq(getrusage(RUSAGE_CHILDREN, &use), 0);
    ck_assert_msg(run.status == 0, "%s%s", run.out, run.err);
    ck_assert_uint_eq(command_lines(run.out), 1);
    ck_assert_str_eq(run.err, ""); /* nothing is left out */
    json_t *object = json_loads(run.out, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(object);
    const double worst = json_number_value(json_object_get(object, "worst"));
    ck_assert_msg(worst > 0 && worst <= 1e-7, "worst error %g", worst);
    ck_assert_uint_eq(json_array_size(json_object_get(object, "failed")), 0);
    ck_assert_int_lt(use.ru_utime.tv_sec, 2 * 180);
    json_decref(object);
    command_free(&run);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("gradcheck_all");
    TCase *tests = tcase_create("gradcheck_all");
    tcase_set_timeout(tests, 1700);
    tcase_add_test(tests, every_two_variants_pass);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
