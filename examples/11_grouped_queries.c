/* Chapter 11: grouped queries. In double. The text is in 11_grouped_queries.md. */
#include "core.h"

enum { B = 1, H = 4, HKV = 2, LQ = 3, LK = 5, DH = 2 };
enum { NQ = B * H * LQ * DH, NK = B * HKV * LK * DH, GROUP = H / HKV, ONE = LK * DH };

/* One key: its weight is 1 whatever the score, so that only the values' way is left to see. */
static void who_reads_what(void) {
    const attn_real zero[6] = {0}, v[2] = {1, 10}, d_o[6] = {1, 2, 3, 4, 5, 6};
    attn_real o[6], dv[2], dv_one[1];
    core c = core_of((attn_shape){1, 6, 1, 1, 1, 2}, zero, zero, v);
    core one = core_of((attn_shape){1, 6, 1, 1, 1, 1}, zero, zero, v);
    attend_and_back(&c, o, d_o, (attn_sdpa_grads){.value = dv});
    printf("six query heads over two heads of values, one key\n");
    show("v", v, 1, 2);
    show("o", o, 1, 6);
    show("dO", d_o, 1, 6);
    show("dv", dv, 1, 2);
    claim(o[0] == 1 && o[2] == 1 && o[3] == 10 && o[5] == 10, "head h reads head h / 3");
    claim(dv[0] == 1 + 2 + 3 && dv[1] == 4 + 5 + 6, "and dv gathers from the three that read it");
    attend_and_back(&one, o, d_o, (attn_sdpa_grads){.value = dv_one});
    claim(dv_one[0] == 21, "one head for all six (multi-query): dv = 21");
}

/* The same attention with k and v repeated once for each query head, and no sharing left. */
static void repeating_is_the_same(const attn_real *q, const attn_real *k, const attn_real *v) {
    attn_real k_all[H * ONE], v_all[H * ONE], dk_all[H * ONE], dv_all[H * ONE];
    attn_real o[NQ], o_all[NQ], d_o[NQ], dk[NK], dv[NK], dk_sum[NK] = {0}, dv_sum[NK] = {0};
    for (size_t h = 0; h < H; h++) {
        memcpy(k_all + h * ONE, k + h / GROUP * ONE, ONE * sizeof *k);
        memcpy(v_all + h * ONE, v + h / GROUP * ONE, ONE * sizeof *v);
    }
    fill(d_o, NQ, 1, 4);
    core grouped = core_of((attn_shape){B, H, LQ, LK, DH, HKV}, q, k, v);
    core plain = core_of((attn_shape){B, H, LQ, LK, DH, H}, q, k_all, v_all);
    attend_and_back(&grouped, o, d_o, (attn_sdpa_grads){.key = dk, .value = dv});
    attend_and_back(&plain, o_all, d_o, (attn_sdpa_grads){.key = dk_all, .value = dv_all});
    for (size_t h = 0; h < H; h++)
        for (size_t n = 0; n < ONE; n++) {
            dk_sum[h / GROUP * ONE + n] += dk_all[h * ONE + n];
            dv_sum[h / GROUP * ONE + n] += dv_all[h * ONE + n];
        }
    printf("\nfour heads over two, against k and v repeated for each head\n");
    show("dk 0", dk_all, 1, ONE);
    show("dk 1", dk_all + ONE, 1, ONE);
    show("shared", dk, 1, ONE);
    claim(distance(o, o_all, NQ) < 1e-12, "the outputs are the same");
    claim(distance(dk, dk_sum, NK) < 1e-12 && distance(dv, dv_sum, NK) < 1e-12,
          "dk and dv are the sums over the group");
}

/* The plausible mistake: the mean over the group. */
static attn_status mean_of_the_group(void *user, const attn_real *x, double *value, attn_real *dx) {
    const attn_status status = core_loss(user, x, value, dx);
    for (size_t n = NQ; dx && n < NQ + 2 * NK; n++)
        dx[n] /= GROUP;
    return status;
}

static void against_differences(attn_real *x) {
    const attn_gradcheck_tensor parts[] = {{"q", 0, NQ}, {"k", NQ, NK}, {"v", NQ + NK, NK}};
    core c = core_of((attn_shape){B, H, LQ, LK, DH, HKV}, x, x + NQ, x + NQ + NK);
    c.in.mask.causal = true;
    printf("\nevery gradient against differences, causal\n");
    claim(check_gradients(core_loss, &c, x, parts, 3) == ATTN_GRADCHECK_PASSED, "all agree");
    printf("the mean over the group instead of the sum\n");
    claim(check_gradients(mean_of_the_group, &c, x, parts, 3) == ATTN_GRADCHECK_WRONG,
          "dk and dv are wrong, dq is not");
}

/* What a model has to read for each new token: every key and value so far. */
static void what_it_saves(void) {
    printf("\na layer with D = 768, 12 query heads of 64, 4096 tokens in the cache, float\n");
    printf("  key-value heads   parameters   bytes a token   MiB of k and v\n");
    double all = 0, few = 0;
    for (size_t kv_heads = 12; kv_heads > 0; kv_heads = kv_heads == 3 ? 1 : kv_heads / 2) {
        const attn_mha_config cfg = {.d_model = 768, .num_heads = 12, .num_kv_heads = kv_heads};
        const size_t bytes = 2 * kv_heads * 64 * sizeof(float);
        few = 4096.0 * (double)bytes / 1048576;
        all = kv_heads == 12 ? few : all;
        printf("  %15zu   %10zu   %13zu   %14.0f\n", kv_heads, attn_mha_num_params(&cfg), bytes,
               few);
    }
    claim(all / few == 12, "k and v shrink with the number of their heads");
}

int main(void) {
    attn_real x[NQ + 2 * NK];
    fill(x, NQ + 2 * NK, 1, 1);
    who_reads_what();
    repeating_is_the_same(x, x + NQ, x + NQ + NK);
    against_differences(x);
    what_it_saves();
    return 0;
}
