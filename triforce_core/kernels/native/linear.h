/* Products with a model's matrices, and what stands between them. Weights lie in panels of 64 outputs, in pairs along the
   inputs: [outputs / 64, inputs / 2, 64, 2]; int8 ones become bfloat16, which holds them exactly, a few at a time. */

#define PANEL 64
#define DEPTH 128 /* pairs of inputs at a time: a panel of them is 32 KiB */
#define SHARED_ROWS 192 /* rows that share one unpacking */

typedef struct {
    const void *weight;
    const float *scale, *bias; /* [outputs]; NULL: none. Scales: of int8 weights */
    int64_t outputs, inputs;
} Linear;

typedef struct {
    const Linear *linear;
    const uint16_t *x; /* [n, inputs] */
    float *y; /* [n, outputs] */
    int64_t n, panels;
    int adds; /* to what y holds */
} Product;

static void unpack(const int8_t *from, long pairs, pair *to) {
    for (long p = 0; p < pairs * PANEL; p += LANES) {
        i16 both = (i16)load_halves((const uint16_t *)(from + 2 * p));
        u16 low = (u16) __builtin_convertvector((both << 24) >> 24, f16);
        u16 high = (u16) __builtin_convertvector((both << 16) >> 24, f16);
        *(u16_loose *)(to + p) = (low >> 16) | high; /* seven bits and a sign: the lower half of a float is zero */
    }
}

static void multiply(void *given, long item, int thread) {
    const Product *call = given;
    const Linear *l = call->linear;
    long panel = item % call->panels, row = item / call->panels * SHARED_ROWS;
    long rows = call->n - row < SHARED_ROWS ? call->n - row : SHARED_ROWS, pairs = l->inputs / 2;
    pair *unpacked = (pair *)room[thread].at;
    float *sums = (float *)(unpacked + DEPTH * PANEL);
    for (long k = 0; k < pairs; k += DEPTH) {
        long deep = pairs - k < DEPTH ? pairs - k : DEPTH;
        const pair *weight = (const pair *)l->weight + (panel * pairs + k) * PANEL;
        if (l->scale) {
            unpack((const int8_t *)l->weight + (panel * pairs + k) * PANEL * 2, deep, unpacked);
            weight = unpacked;
        }
        for (long r = 0; r < rows; r += ROWS) {
            int some = rows - r < ROWS ? (int)(rows - r) : ROWS;
            tile_4(some, deep, (const pair *)(call->x + (row + r) * l->inputs) + k, pairs, weight, PANEL,
                   sums + r * PANEL, PANEL, k > 0);
        }
    }
    long first = panel * PANEL, width = l->outputs - first < PANEL ? l->outputs - first : PANEL;
    for (long r = 0; r < rows; r++) {
        float *y = call->y + (row + r) * l->outputs + first;
        for (long i = 0; i < width; i++) {
            float sum = sums[r * PANEL + i];
            if (l->scale) sum *= l->scale[first + i];
            if (l->bias) sum += l->bias[first + i];
            y[i] = call->adds ? y[i] + sum : sum;
        }
    }
}

/* 0: done; 1: no memory */
static int linear(const Linear *l, const uint16_t *x, float *y, long n, int adds) {
    if (!reserve(DEPTH * PANEL * 4 + SHARED_ROWS * PANEL * 4)) return 1;
    Product call = {l, x, y, n, (l->outputs + PANEL - 1) / PANEL, adds};
    share(call.panels * ((n + SHARED_ROWS - 1) / SHARED_ROWS), multiply, &call);
    return 0;
}
