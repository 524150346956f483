/* Chapter 15: sequences laid end to end. The text is in 15_packed.md. */
#include "core.h"

enum { SEQS = 3, H = 2, DH = 4, TOTAL = 10, LONGEST = 5, MANY = 64 };
enum { N = H * TOTAL * DH, PADDED = SEQS * H * LONGEST * DH };

/* Sequence b is tokens offsets[b] to offsets[b + 1] - 1. */
static const size_t offsets[SEQS + 1] = {0, 3, 8, 10};

static core packed(const attn_real *q, const attn_real *k, const attn_real *v) {
    core c = core_of((attn_shape){SEQS, H, TOTAL, TOTAL, DH}, q, k, v);
    c.in.offsets_q = c.in.offsets_k = offsets;
    c.in.mask.causal = true;
    return c;
}

/* The rows of x (H,TOTAL,d) to where they stand in the padded (SEQS,H,LONGEST,d), or back. */
static void move(attn_real *x, attn_real *padded, bool back) {
    for (size_t b = 0; b < SEQS; b++)
        for (size_t h = 0; h < H; h++) {
            attn_real *here = x + (h * TOTAL + offsets[b]) * DH;
            attn_real *there = padded + (b * H + h) * LONGEST * DH;
            memcpy(back ? here : there, back ? there : here,
                   (offsets[b + 1] - offsets[b]) * DH * sizeof *x);
        }
}

/* x holds q, k, v and dO, packed. */
static void packed_is_padded(attn_real x[4][N]) {
    attn_real y[4][N], z[4][N]; /* o, dq, dk, dv */
    attn_real padded[4][PADDED] = {{0}}, result[4][PADDED];
    uint8_t padding[SEQS * LONGEST];
    const size_t lengths[SEQS] = {3, 5, 2};
    core c = packed(x[0], x[1], x[2]);
    attend_and_back(&c, y[0], x[3], (attn_sdpa_grads){y[1], y[2], y[3]});

    for (size_t n = 0; n < 4; n++)
        move(x[n], padded[n], false); /* dO of the padding is 0: the loss leaves it out */
    must(attn_padding_from_lengths(padding, lengths, SEQS, LONGEST));
    c = core_of((attn_shape){SEQS, H, LONGEST, LONGEST, DH}, padded[0], padded[1], padded[2]);
    c.in.mask = (attn_mask){.causal = true, .padding = padding};
    attend_and_back(&c, result[0], padded[3], (attn_sdpa_grads){result[1], result[2], result[3]});
    for (size_t n = 0; n < 4; n++)
        move(z[n], result[n], true);
    printf("sequences of 3, 5 and 2 tokens, causal\n");
    printf("  packed against padded: o %.0e   dq %.0e   dk %.0e   dv %.0e\n",
           distance(y[0], z[0], N), distance(y[1], z[1], N), distance(y[2], z[2], N),
           distance(y[3], z[3], N));
    claim(distance(&y[0][0], &z[0][0], 4 * N) < 1e-6, "the same context, the same gradients");
}

/* One sequence of 10 in which a mask shows each token its own sequence alone. */
static void a_mask_would_do(attn_real x[4][N]) {
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

static void nothing_crosses(attn_real x[4][N]) {
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
    attn_real x[4][N];
    fill(&x[0][0], 4 * N, 1, 1);
    packed_is_padded(x);
    a_mask_would_do(x);
    nothing_crosses(x);
    what_padding_costs();
    return 0;
}
