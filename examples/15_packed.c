/* Chapter 15: sequences laid end to end. The text is in 15_packed.md. */
#include "core.h"

enum { SEQS = 3, H = 2, DH = 4, D = 8, TOTAL = 10, LONGEST = 5, MANY = 64 };
enum { N = TOTAL * D, PADDED = SEQS * LONGEST * D, PARAMS = 4 * D * D + 4 * D };

/* Sequence b is tokens offsets[b] to offsets[b + 1] - 1. */
static const size_t offsets[SEQS + 1] = {0, 3, 8, 10};

/* Forward and backward of a layer with rotary positions; dtheta is added to. */
static void run(attn_real *theta, const attn_mha_input *in, attn_real *y, const attn_real *dy,
                attn_real *dtheta, attn_real *dx) {
    const attn_mha_config cfg = {
        .d_model = D, .num_heads = H, .bias = true, .rope = ATTN_ROPE_HALF};
    const attn_mha_params w = attn_mha_params_view(&cfg, theta);
    const attn_mha_params dw = attn_mha_params_view(&cfg, dtheta);
    attn_memory need;
    attn_arena arena;
    attn_mha_saved saved;
    must(attn_mha_memory(&cfg, in, &need));
    must(attn_arena_create(&arena, need.training));
    must(attn_mha_forward(&cfg, &w, in, y, &arena, &saved));
    must(
        attn_mha_backward(&cfg, &w, &saved, dy, &dw, &(attn_mha_input_grads){.query = dx}, &arena));
    attn_arena_destroy(&arena);
}

/* Rows of (TOTAL,D) to where they stand in the padded (SEQS,LONGEST,D), or back. */
static void move(attn_real *x, attn_real *padded, bool back) {
    for (size_t b = 0; b < SEQS; b++) {
        attn_real *here = x + offsets[b] * D, *there = padded + b * LONGEST * D;
        memcpy(back ? here : there, back ? there : here,
               (offsets[b + 1] - offsets[b]) * D * sizeof *x);
    }
}

static void packed_is_padded(void) {
    attn_real theta[PARAMS], dtheta[2][PARAMS] = {{0}}, x[N], dy[N], y[2][N], dx[2][N];
    attn_real px[PADDED] = {0}, pdy[PADDED] = {0}, py[PADDED], pdx[PADDED];
    uint8_t padding[SEQS * LONGEST];
    fill(theta, PARAMS, 0.3, 1);
    fill(x, N, 1, 2);
    fill(dy, N, 1, 3);
    attn_mha_input in = {.batch = SEQS, .len_q = TOTAL, .query = x, .mask = {.causal = true}};
    in.offsets_q = offsets;
    run(theta, &in, y[0], dy, dtheta[0], dx[0]);

    move(x, px, false);
    move(dy, pdy, false); /* 0 where a query is padding: the loss leaves it out */
    must(attn_padding_from_lengths(padding, (const size_t[]){3, 5, 2}, SEQS, LONGEST));
    in = (attn_mha_input){.batch = SEQS, .len_q = LONGEST, .query = px};
    in.mask = (attn_mask){.causal = true, .padding = padding};
    run(theta, &in, py, pdy, dtheta[1], pdx);
    move(y[1], py, true);
    move(dx[1], pdx, true);
    printf("a layer over sequences of 3, 5 and 2 tokens, causal, rotary positions\n");
    printf("  packed against padded: y %.0e   dx %.0e   parameters %.0e\n", distance(y[0], y[1], N),
           distance(dx[0], dx[1], N), distance(dtheta[0], dtheta[1], PARAMS));
    claim(distance(y[0], y[1], N) < 1e-5 && distance(dx[0], dx[1], N) < 1e-5 &&
              distance(dtheta[0], dtheta[1], PARAMS) < 1e-5,
          "the same output, the same gradients");
}

static core packed(const attn_real *q, const attn_real *k, const attn_real *v) {
    core c = core_of((attn_shape){SEQS, H, TOTAL, TOTAL, DH}, q, k, v);
    c.in.offsets_q = c.in.offsets_k = offsets;
    c.in.mask.causal = true;
    return c;
}

/* One sequence of 10 in which a mask shows each token its own sequence alone. */
static void a_mask_would_do(attn_real x[3][N]) {
    attn_real o[N], o_masked[N];
    uint8_t own[TOTAL * TOTAL] = {0};
    for (size_t b = 0; b < SEQS; b++)
        for (size_t i = offsets[b]; i < offsets[b + 1]; i++)
            memset(own + i * TOTAL + offsets[b], 1, offsets[b + 1] - offsets[b]);
    core c = packed(x[0], x[1], x[2]);
    attend(&c, o, NULL);
    c = core_of((attn_shape){1, H, TOTAL, TOTAL, DH}, x[0], x[1], x[2]);
    c.in.mask = (attn_mask){.causal = true, .attend = own, .attend_strides = {0, 0, TOTAL, 1}};
    attend(&c, o_masked, NULL);
    claim(distance(o, o_masked, N) < 1e-6, "a mask of blocks gives the same, and asks all pairs");
}

static void nothing_crosses(attn_real x[3][N]) {
    attn_real o[N], o_spoilt[N], k[N];
    core c = packed(x[0], x[1], x[2]);
    attend(&c, o, NULL);
    memcpy(k, x[1], sizeof k);
    for (size_t h = 0; h < H; h++)
        k[(h * TOTAL + 3) * DH] = (attn_real)NAN; /* the first key of sequence 1 */
    c.in.key = k;
    attend(&c, o_spoilt, NULL);
    bool spoilt = true, others = true;
    for (size_t n = 0; n < N; n++) {
        const size_t token = n / DH % TOTAL;
        if (token >= 3 && token < 8)
            spoilt = spoilt && isnan(o_spoilt[n]);
        else
            others = others && o_spoilt[n] == o[n];
    }
    printf("\nNaN in the first key of sequence 1\n");
    claim(spoilt, "spoils all of sequence 1");
    claim(others, "and not one bit of its neighbours");

    const size_t falling[SEQS + 1] = {0, 8, 3, 10};
    attn_memory need;
    const attn_sdpa_output out = {.context = o, .context_strides = c.in.query_strides};
    c.in.offsets_q = falling;
    claim(attn_sdpa_memory(&c.cfg, &c.in, &out, &need) == ATTN_ERROR_ARGUMENT,
          "offsets that fall are refused");
    printf("        %s\n", attn_error_message());
}

/* Lengths from 16 to 1024, each doubling as likely as the next. */
static void what_padding_costs(void) {
    attn_random random = attn_random_seed(1, 1);
    double longest = 0, tokens = 0, pairs = 0;
    for (size_t b = 0; b < MANY; b++) {
        const double len = floor(16 * pow(2, 6 * attn_random_uniform(&random)));
        longest = fmax(longest, len);
        tokens += len;
        pairs += len * len;
    }
    printf("\n%d sequences of %.0f tokens on average, the longest has %.0f\n", MANY, tokens / MANY,
           longest);
    printf("                       tokens   pairs, million\n");
    printf("  padded              %7.0f   %14.1f\n", MANY * longest,
           MANY * longest * longest / 1e6);
    printf("  end to end, masked  %7.0f   %14.1f\n", tokens, tokens * tokens / 1e6);
    printf("  packed              %7.0f   %14.1f\n", tokens, pairs / 1e6);
    claim(MANY * longest > 3 * tokens && MANY * longest * longest > 6 * pairs,
          "most of the padded batch is padding");
}

int main(void) {
    attn_real x[3][N];
    fill(&x[0][0], 3 * N, 1, 1);
    packed_is_padded();
    a_mask_would_do(x);
    nothing_crosses(x);
    what_padding_costs();
    return 0;
}
