/* Chapter 8: from softmax to online softmax to tiles. The text is in 08_online_softmax.md. */
#include "lesson.h"

enum { LEN = 300, D_HEAD = 16, TILE = 64 };

/* What is known of a row after some of its keys: O is kept unnormalised. */
typedef struct row_state {
    double m, l, o[D_HEAD];
} row_state;

/* Takes one more tile of keys into account. Nothing else of the earlier tiles is needed. */
static void absorb(row_state *row, const attn_real *q, const attn_real *k, const attn_real *v,
                   size_t keys) {
    double s[TILE], m = row->m;
    for (size_t j = 0; j < keys; j++) {
        s[j] = 0;
        for (size_t c = 0; c < D_HEAD; c++)
            s[j] += (double)q[c] * (double)k[j * D_HEAD + c];
        s[j] *= attn_default_scale(D_HEAD);
        m = fmax(m, s[j]);
    }
    double shrink = exp(row->m - m); /* what was summed against the old maximum */
    row->l *= shrink;
    for (size_t c = 0; c < D_HEAD; c++)
        row->o[c] *= shrink;
    for (size_t j = 0; j < keys; j++) {
        double p = exp(s[j] - m);
        row->l += p;
        for (size_t c = 0; c < D_HEAD; c++)
            row->o[c] += p * (double)v[j * D_HEAD + c];
    }
    row->m = m;
}

static attn_sdpa_input input(const attn_real *q, const attn_real *k, const attn_real *v,
                             size_t len) {
    attn_strides strides = attn_strides_bhtd(len, 1, D_HEAD);
    return (attn_sdpa_input){.shape = {1, 1, len, len, D_HEAD},
                             .query = q,
                             .key = k,
                             .value = v,
                             .query_strides = strides,
                             .key_strides = strides,
                             .value_strides = strides};
}

static void one_row_tile_by_tile(void) {
    static attn_real q[LEN * D_HEAD], k[LEN * D_HEAD], v[LEN * D_HEAD], o[LEN * D_HEAD], lse[LEN];
    fill(q, LEN * D_HEAD, 2, 27); /* a row whose maximum rises twice */
    fill(k, LEN * D_HEAD, 2, 28);
    fill(v, LEN * D_HEAD, 1, 3);
    row_state row = {.m = -INFINITY};
    printf("query 0, %d keys in tiles of %d\n   keys seen        m          l     lse\n", LEN,
           TILE);
    for (size_t j = 0; j < LEN; j += TILE) {
        size_t keys = LEN - j < TILE ? LEN - j : TILE;
        absorb(&row, q, k + j * D_HEAD, v + j * D_HEAD, keys);
        printf("  %10zu %8.4f %10.4f %7.4f\n", j + keys, row.m, row.l, row.m + log(row.l));
    }
    attn_sdpa_config cfg = {.kernel = ATTN_KERNEL_REFERENCE};
    attn_sdpa_input in = input(q, k, v, LEN);
    attn_sdpa_output out = {.context = o, .context_strides = in.query_strides, .lse = lse};
    attn_memory need;
    attn_arena arena;
    must(attn_sdpa_memory(&cfg, &in, &out, &need));
    must(attn_arena_create(&arena, need.inference));
    must(attn_sdpa_forward(&cfg, &in, &out, &arena, NULL));
    double worst = 0;
    for (size_t c = 0; c < D_HEAD; c++)
        worst = fmax(worst, fabs(row.o[c] / row.l - (double)o[c]));
    claim(worst < 1e-5 && fabs(row.m + log(row.l) - (double)lse[0]) < 1e-5,
          "after the last tile O/l and lse are those of the whole row");
    attn_arena_destroy(&arena);

    attn_real o_fused[LEN * D_HEAD];
    out.context = o_fused;
    cfg.kernel = ATTN_KERNEL_FUSED;
    must(attn_sdpa_memory(&cfg, &in, &out, &need));
    must(attn_arena_create(&arena, need.inference));
    must(attn_sdpa_forward(&cfg, &in, &out, &arena, NULL));
    claim(distance(o, o_fused, LEN * D_HEAD) < 1e-5, "and the fused path agrees on every row");
    attn_arena_destroy(&arena);
}

/* Arena bytes of one training step of the core; no array is touched to learn them. */
static size_t training_bytes(attn_kernel kernel, size_t len) {
    static attn_real any;
    attn_sdpa_config cfg = {.kernel = kernel, .max_threads = 1};
    attn_sdpa_input in = input(&any, &any, &any, len);
    attn_sdpa_output out = {.context = &any, .context_strides = in.query_strides};
    attn_memory need;
    must(attn_sdpa_memory(&cfg, &in, &out, &need));
    return need.training;
}

int main(void) {
    one_row_tile_by_tile();
    printf("\nbytes of arena for one training step of one head, d = %d\n", D_HEAD);
    printf("        T       reference        fused\n");
    for (size_t len = 1024; len <= 32768; len *= 2)
        printf("  %7zu  %14zu  %11zu\n", len, training_bytes(ATTN_KERNEL_REFERENCE, len),
               training_bytes(ATTN_KERNEL_FUSED, len));
    claim(training_bytes(ATTN_KERNEL_REFERENCE, 32768) >
              3 * training_bytes(ATTN_KERNEL_REFERENCE, 16384),
          "the reference grows with T^2");
    claim(training_bytes(ATTN_KERNEL_FUSED, 32768) < 3 * training_bytes(ATTN_KERNEL_FUSED, 16384),
          "the fused path grows with T");
    return 0;
}
