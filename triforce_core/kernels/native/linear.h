/* Products with a model's matrices, and what stands between them. Weights lie in panels of 64 outputs, in pairs along the
   inputs: [outputs / 64, inputs / 2, 64, 2]; int8 ones become bfloat16, which holds them exactly, a few at a time. Those
   of four bits lie by eight inputs, [outputs / 64, inputs / 8, 64, 2] of uint16: each holds four numbers, the first in its
   lowest bits, of inputs two apart. Of five or six bits the lowest four lie so, and behind each eight inputs what is
   above them, n = 1 or 2 bits of a number: [16 n, 2] of uint16, each the bits of four numbers as before for output j,
   then for output j + 16 n, and so on.

   In groups along the inputs a weight is step * scale + offset. For few rows the steps are multiplied and each group's
   sum is scaled; for many, where that would cost more, the weights are made of them, rounded to bfloat16. Scales and
   offsets may be in few bits themselves, as GGUF's K-quants have them: a subscale times the scale of a super-block. */

#define PANEL 64
#define DEPTH 128 /* pairs of inputs at a time: a panel of them is 32 KiB */
/* DIRECT_ROWS: up to here unpacking anew for each tile of rows takes less than keeping what was unpacked. */
#if defined(__AVX512F__)
#define DIRECT_ROWS 32
#else
#define DIRECT_ROWS ROWS
#endif
#define SHARED_ROWS (tiles_allowed ? 512 : 192) /* rows that share one unpacking; by tiles it takes longest */

typedef struct {
    const void *weight;
    const float *scale, *bias; /* [outputs]; NULL: none. Scales: of int8 weights */
    const float *offset;
    const int8_t *subscale, *suboffset; /* as scale and offset, for each group; NULL: these have one for each group */
    int64_t outputs, inputs;
    int64_t group, bits; /* group: pairs of inputs that share scale and offset, [outputs / 64, inputs / 2 / group, 64];
                            0: all. bits: 4, 5, 6 (less what ``table_of`` says) or 8; 0: bfloat16 */
    int64_t bounded; /* no step of 8 bits is -128 */
    int64_t shift; /* a super-block has 2^shift groups; without subscales: 0 */
    int64_t uneven; /* four bits are the number of one of ``levels`` */
} Linear;

static const int8_t levels[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}; /* IQ4 */

/* Of one panel's groups, from the first one that is multiplied on. */
typedef struct {
    const float *scale, *offset;
    const int8_t *subscale, *suboffset;
    i64 shift;
} Scales;

static Scales scales_from(const Linear *l, i64 panel, i64 group) {
    i64 groups = l->inputs / 2 / l->group, at = (panel * groups + group) * PANEL;
    i64 above = (panel * (groups >> l->shift) + (group >> l->shift)) * PANEL;
    return (Scales){l->scale + above, l->offset ? l->offset + above : NULL, l->subscale ? l->subscale + at : NULL,
                    l->suboffset ? l->suboffset + at : NULL, l->shift};
}

INLINE floats floats_of_8(const int8_t *from) {
#if defined(__AVX512F__)
    return (floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i) * (const octets_loose *)from));
#else
    return __builtin_convertvector(*(const octets_loose *)from, floats);
#endif
}

/* Of group g's outputs from ``at`` on. */
INLINE floats group_scale(const Scales *s, i64 g, i64 at) {
    if (!s->subscale) return load(s->scale + g * PANEL + at);
    return load(s->scale + (g >> s->shift) * PANEL + at) * floats_of_8(s->subscale + g * PANEL + at);
}

INLINE floats group_offset(const Scales *s, i64 g, i64 at) {
    if (!s->suboffset) return load(s->offset + g * PANEL + at);
    return load(s->offset + (g >> s->shift) * PANEL + at) * floats_of_8(s->suboffset + g * PANEL + at);
}

typedef struct {
    const Linear *linear;
    const uint16_t *x; /* [n, inputs] */
    float *y; /* [n, outputs] */
    int64_t n, panels;
    int adds; /* to what y holds */
    const float *totals; /* of x in each group: [n, inputs / 2 / group]; where there are offsets */
} Product;

/* 2 * LANES numbers that bfloat16 holds exactly. Where products would take pairs apart, they are not put together. */
#if PAIRS || defined(__AVX512BW__)
typedef words Steps;

INLINE words pairs_of(Steps steps) { return steps; }

INLINE floats step_products(floats sums, Steps steps, words left) { return products(sums, steps, left); }
#else
typedef struct {
    floats first, second;
} Steps;

INLINE words pairs_of(Steps steps) { return ((words)steps.first >> 16) | (words)steps.second; }

/* The same bits as ``products``. */
INLINE floats step_products(floats sums, Steps steps, words left) {
    sums = multiply_add(steps.first, (floats)(left << 16), sums);
    return multiply_add(steps.second, (floats)(left & 0xffff0000u), sums);
}
#endif

INLINE Steps steps_of(floats first, floats second) {
#if PAIRS || defined(__AVX512BW__)
    return ((words)first >> 16) | (words)second; /* the lower half of such a float is zero */
#else
    return (Steps){first, second};
#endif
}

INLINE Steps steps_of_8(const int8_t *from) {
#if defined(__AVX512BF16__)
    floats low = (floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i) * (const octets_loose *)from));
    floats high = (floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i) * (const octets_loose *)(from + LANES)));
    return (Steps)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
#else
    ints both = (ints)load_halves((const uint16_t *)from);
    return steps_of(__builtin_convertvector((both << 24) >> 24, floats),
                    __builtin_convertvector((both << 16) >> 24, floats));
#endif
}

/* The numbers of four, five or six bits as bfloat16, in one order again and again: more bits are not looked at then. */
typedef struct {
    all_halves first, second;
    uint8_t lower[16], upper[16]; /* bytes of uneven ones */
    int uneven;
} Table;

static Table table_of(const Linear *l) {
    i64 zero = l->bits == 6 ? 32 : l->offset ? 0 : 1 << l->bits >> 1;
    Table table = {.uneven = l->uneven != 0};
    for (int i = 0; i < 4 * LANES; i++) {
        float number = l->uneven ? levels[i & 15] : (float)((i & ((1 << l->bits) - 1)) - zero);
        uint32_t bits;
        memcpy(&bits, &number, 4);
        table.lower[i & 15] = (uint8_t)(bits >> 16), table.upper[i & 15] = (uint8_t)(bits >> 24);
        if (i < 2 * LANES) table.first[i] = (uint16_t)(bits >> 16);
        else table.second[i - 2 * LANES] = (uint16_t)(bits >> 16);
    }
    return table;
}

/* Outputs from ``at`` on of eight inputs, which begin at b: their lowest four bits, and those above, from bit 4 on. */
INLINE words lowest_of(const char *b, i64 at) { return *(const words_loose *)(b + 4 * at); }

INLINE words highest_of(const char *b, const int bits, i64 at) {
    const int above = bits - 4, width = 16 * above;
    if (!above) return (words){0};
    words all = *(const words_loose *)(b + 4 * PANEL + at % width * 4);
    i64 first = at / width * 4 * above;
    return first ? all >> (first - 4) : all << 4; /* what else comes to these places is not looked at */
}

#if !defined(__AVX512BW__)
/* Of each lane's two numbers the levels: two bfloat16. */
INLINE words uneven_at(words at, const Table *table) {
#if defined(__AVX2__) && LANES == 8
    __m256i lower = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table->lower));
    __m256i upper = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table->upper));
    words low = (words)_mm256_shuffle_epi8(lower, (__m256i)at), high = (words)_mm256_shuffle_epi8(upper, (__m256i)at);
#elif defined(__aarch64__)
    words low = (words)vqtbl1q_u8(vld1q_u8(table->lower), (uint8x16_t)at);
    words high = (words)vqtbl1q_u8(vld1q_u8(table->upper), (uint8x16_t)at);
#else
    words low, high;
    for (int i = 0; i < LANES; i++) {
        uint32_t first = at[i] & 15, second = at[i] >> 16;
        low[i] = table->lower[first] | (uint32_t)table->lower[second] << 16;
        high[i] = table->upper[first] | (uint32_t)table->upper[second] << 16;
    }
#endif
    return (low & 0x00ff00ffu) | (high & 0x00ff00ffu) << 8;
}
#endif

/* Inputs 2 s and 2 s + 1 of the eight */
INLINE Steps steps_at(words low, words high, const int s, const int bits, const Table *table) {
    low >>= 4 * s;
    high >>= (bits - 4) * s;
#if defined(__AVX512BW__)
    const __m512i lowest = _mm512_set1_epi32(0x000f000f), first = (__m512i)table->first;
    if (bits == 4) return (Steps)_mm512_permutexvar_epi16((__m512i)low, first);
    __m512i at = _mm512_ternarylogic_epi32(lowest, (__m512i)low, (__m512i)high, 0xCA); /* low where lowest, else high */
    if (bits == 5) return (Steps)_mm512_permutexvar_epi16(at, first);
    return (Steps)_mm512_permutex2var_epi16(first, at, (__m512i)table->second);
#else
    words at = low & 0x000f000fu;
    if (bits > 4) at |= high & (bits == 5 ? 0x00100010u : 0x00300030u);
    if (bits == 4 && table->uneven) {
        words both = uneven_at(at, table);
        return steps_of((floats)(both << 16), (floats)(both & 0xffff0000u));
    }
    uint32_t first = (uint32_t)table->first[0] << 16;
    float zero; /* less than nothing by what is subtracted */
    memcpy(&zero, &first, 4);
    zero -= 128; /* behind whose bits they are put */
    return steps_of((floats)((at << 16) | 0x43000000u) + zero, (floats)((at & 0xffff0000u) | 0x43000000u) + zero);
#endif
}

static void unpack_8(const int8_t *from, i64 pairs, pair *to) {
    for (i64 p = 0; p < pairs * PANEL; p += 2 * LANES) {
        fetch_far(from + 2 * p);
        *(words_loose *)(to + p) = pairs_of(steps_of_8(from + 2 * p));
        *(words_loose *)(to + p + LANES) = pairs_of(steps_of_8(from + 2 * p + 2 * LANES));
    }
}

/* Four pairs of inputs at a time */
INLINE void unpack_few(const char *from, i64 pairs, const int bits, const Table *table, pair *to) {
    for (i64 p = 0; p < pairs; p += 4, from += bits * PANEL) {
        for (int line = 0; line < bits; line++) fetch_far(from + 64 * line);
        for (i64 i = 0; i < PANEL; i += LANES) {
            words low = lowest_of(from, i), high = highest_of(from, bits, i);
            for (int s = 0; s < 4; s++)
                *(words_loose *)(to + (p + s) * PANEL + i) = pairs_of(steps_at(low, high, s, bits, table));
        }
    }
}

static void unpack(const Linear *l, const char *from, i64 pairs, const Table *table, pair *to) {
    switch (l->bits) {
    case 4: unpack_few(from, pairs, 4, table, to); break;
    case 5: unpack_few(from, pairs, 5, table, to); break;
    case 6: unpack_few(from, pairs, 6, table, to); break;
    default: unpack_8((const int8_t *)from, pairs, to); break;
    }
}

/* Steps, as they were unpacked, times their scales. */
static void scale_steps(const Scales *by, i64 group, i64 pairs, pair *all) {
    for (i64 g = 0; g < pairs / group; g++)
        for (i64 i = 0; i < PANEL; i += LANES) {
            floats scale = group_scale(by, g, i), offset = by->offset ? group_offset(by, g, i) : splat(0);
            for (i64 p = g * group; p < (g + 1) * group; p++) {
                words both = *(const words_loose *)(all + p * PANEL + i);
                floats low = (floats)(both << 16) * scale, high = (floats)(both & 0xffff0000u) * scale;
                if (by->offset) low += offset, high += offset;
                *(words_loose *)(all + p * PANEL + i) = rounded(low) | (rounded(high) << 16);
            }
        }
}

/* to [R, PANEL], one vector of it, += a group's sums, scaled. totals: of each row's x in the group; where there are
   offsets. at: where their scales are. */
INLINE void add_scaled(const int R, const floats *sums, const Scales *by, i64 g, i64 at, const float *totals, i64 ldt,
                       float *to) {
    floats scale = group_scale(by, g, at), offset = by->offset ? group_offset(by, g, at) : splat(0);
    for (int r = 0; r < R; r++) {
        floats sum = multiply_add(sums[r], scale, load(to + r * PANEL));
        store(to + r * PANEL, by->offset ? multiply_add(offset, splat(totals[r * ldt]), sum) : sum);
    }
}

/* c [R, PANEL] += the groups' sums, scaled. totals: of each row's x. */
INLINE void grouped(const int R, i64 groups, i64 group, const pair *a, i64 lda, const pair *b, const Scales *by,
                    const float *totals, i64 ldt, float *c) {
    for (i64 g = 0; g < groups; g++) {
        float sums[ROWS * PANEL];
        tile(R, PANEL, group, a + g * group, lda, b + g * group * PANEL, PANEL, sums, PANEL, 0, NULL, 0);
        for (int at = 0; at < PANEL; at += LANES) {
            floats own[ROWS];
            for (int r = 0; r < R; r++) own[r] = load(sums + r * PANEL + at);
            add_scaled(R, own, by, g, at, totals ? totals + g : NULL, ldt, c + at);
        }
    }
}

/* One vector of a group's sums to c: scaled, or as they are. */
INLINE void hand_over(const int R, const floats *sums, const Scales *by, i64 g, i64 at, const float *totals, i64 ldt,
                      float *c) {
    if (by) add_scaled(R, sums, by, g, at, totals ? totals + g : NULL, ldt, c + at);
    else
        for (int r = 0; r < R; r++) store(c + r * PANEL + at, sums[r]);
}

/* The same, the same bits, of steps as they are stored: for so few rows that unpacked ones would only be waited for.
   by NULL: their sums as they are. */
INLINE void direct(const int R, const int bits, i64 groups, i64 group, const pair *a, i64 lda, const char *b,
                   const Table *table, const Scales *by, const float *totals, i64 ldt, float *c) {
    const int deep = bits == 8 ? 1 : 4; /* pairs that are stored together */
    for (i64 g = 0; g < groups; g++)
        for (int at = 0; at < PANEL; at += STEP(R) * LANES) {
            floats sums[MOST][ROWS];
            for (int r = 0; r < R; r++)
                for (int v = 0; v < STEP(R); v++) sums[v][r] = splat(0);
            for (i64 p = g * group; p < (g + 1) * group; p += deep) {
                const char *from = b + p * PANEL * bits / 4;
                for (int line = 0; line < deep * bits / 4 && !at; line++) fetch(from + FAR + 64 * line);
                words low[MOST], high[MOST];
                if (bits != 8)
                    for (int v = 0; v < STEP(R); v++) {
                        low[v] = lowest_of(from, at + v * LANES);
                        high[v] = highest_of(from, bits, at + v * LANES);
                    }
                for (int s = 0; s < deep; s++)
                    for (int v = 0; v < STEP(R); v++) {
                        Steps right = bits == 8 ? steps_of_8((const int8_t *)from + (at + v * LANES) * 2)
                                                : steps_at(low[v], high[v], s, bits, table);
                        for (int r = 0; r < R; r++)
                            sums[v][r] = step_products(sums[v][r], right, a[r * lda + p + s] - (words){0});
                    }
            }
            for (int v = 0; v < STEP(R); v++)
                hand_over(R, sums[v], by, g, at + v * LANES, totals, ldt, c);
        }
}

#if defined(__AVX512VBMI__) && LANES == 16
#define TABLED(R) ((R) < ROWS) /* with more rows the tables find no registers */
static uint8_t of_8[2][128]; /* lower and upper bytes of 0 to 127 as bfloat16 */

__attribute__((constructor)) static void fill_of_8(void) {
    for (int i = 0; i < 128; i++) {
        float number = (float)i;
        uint32_t bits;
        memcpy(&bits, &number, 4);
        of_8[0][i] = (uint8_t)(bits >> 16), of_8[1][i] = (uint8_t)(bits >> 24);
    }
}

/* ``direct`` for 8 bits of which none is -128, the same bits: steps become bfloat16 by two tables in registers, in seven
   instructions for 64 of them; conversions take ten and more, as many as the products of five rows. */
INLINE void direct_8(const int R, i64 groups, i64 group, const pair *a, i64 lda, const char *b, const Scales *by,
                     const float *totals, i64 ldt, float *c) {
    const __m512i lower0 = _mm512_loadu_si512(of_8[0]), lower1 = _mm512_loadu_si512(of_8[0] + 64);
    const __m512i upper0 = _mm512_loadu_si512(of_8[1]), upper1 = _mm512_loadu_si512(of_8[1] + 64);
    const __m512i order = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    for (i64 g = 0; g < groups; g++) {
        floats sums[ROWS][4];
        for (int r = 0; r < R; r++)
            for (int v = 0; v < 4; v++) sums[r][v] = splat(0);
        for (i64 p = g * group; p < (g + 1) * group; p++) {
            const char *from = b + p * PANEL * 2;
            fetch(from + FAR), fetch(from + FAR + 64);
            for (int v = 0; v < 4; v += 2) {
                __m512i steps = _mm512_loadu_si512(from + v * 2 * LANES), at = _mm512_abs_epi8(steps);
                __m512i lower = _mm512_permutex2var_epi8(lower0, at, lower1);
                __m512i upper = _mm512_permutex2var_epi8(upper0, at, upper1);
                upper = _mm512_ternarylogic_epi32(upper, steps, _mm512_set1_epi8((char)0x80), 0xF8); /* their signs */
                words even = (words)_mm512_unpacklo_epi8(lower, upper), odd = (words)_mm512_unpackhi_epi8(lower, upper);
                for (int r = 0; r < R; r++) {
                    words left = a[r * lda + p] - (words){0};
                    sums[r][v] = products(sums[r][v], even, left);
                    sums[r][v + 1] = products(sums[r][v + 1], odd, left);
                }
            }
        }
        for (int at = 0; at < PANEL; at += LANES) {
            __m512i here = _mm512_add_epi32(order, _mm512_set1_epi32(at / LANES % 2 * 8));
            int v = at / LANES / 2 * 2;
            floats own[ROWS]; /* four outputs of the even ones, four of the odd ones */
            for (int r = 0; r < R; r++)
                own[r] = (floats)_mm512_permutex2var_ps((__m512)sums[r][v], here, (__m512)sums[r][v + 1]);
            hand_over(R, own, by, g, at, totals, ldt, c);
        }
    }
}
#else
#define TABLED(R) 0
#define direct_8(R, groups, group, a, lda, b, by, totals, ldt, c)
#endif

static void direct_rows(const Product *call, i64 panel, const Table *table, float *sums) {
    const Linear *l = call->linear;
    i64 pairs = l->inputs / 2, group = l->group ? l->group : pairs, groups = pairs / group;
    const char *b = (const char *)l->weight + panel * pairs * PANEL * 2 * l->bits / 8;
    const Scales own = l->group ? scales_from(l, panel, 0) : (Scales){0}, *by = l->group ? &own : NULL;
#define DIRECT(R)                                                                                                      \
        if (l->bits == 4) direct(R, 4, groups, group, a, pairs, b, table, by, totals, groups, c);                      \
        else if (l->bits == 5) direct(R, 5, groups, group, a, pairs, b, table, by, totals, groups, c);                 \
        else if (l->bits == 6) direct(R, 6, groups, group, a, pairs, b, table, by, totals, groups, c);                 \
        else if (TABLED(R) && l->bounded) direct_8(R, groups, group, a, pairs, b, by, totals, groups, c);              \
        else direct(R, 8, groups, group, a, pairs, b, table, by, totals, groups, c);                                   \
        break;
    i64 tiles = (call->n + ROWS - 1) / ROWS;
    for (i64 tile = 0, row = 0; tile < tiles; tile++) {
        i64 rows = (call->n - row + tiles - tile - 1) / (tiles - tile);
        const pair *a = (const pair *)(call->x + row * l->inputs);
        const float *totals = l->offset ? call->totals + row * groups : NULL;
        float *c = sums + row * PANEL;
        switch (rows) {
        case 1: DIRECT(1)
        case 2: DIRECT(2)
        case 3: DIRECT(3)
        case 4: DIRECT(4)
        case 5: DIRECT(5)
        default: DIRECT(ROWS)
        }
        row += rows;
    }
#undef DIRECT
}

static void grouped_rows(int rows, i64 groups, i64 group, const pair *a, i64 lda, const pair *b, const Scales *by,
                         const float *totals, i64 ldt, float *c) {
    switch (rows) {
    case 1: grouped(1, groups, group, a, lda, b, by, totals, ldt, c); break;
    case 2: grouped(2, groups, group, a, lda, b, by, totals, ldt, c); break;
    case 3: grouped(3, groups, group, a, lda, b, by, totals, ldt, c); break;
    case 4: grouped(4, groups, group, a, lda, b, by, totals, ldt, c); break;
    case 5: grouped(5, groups, group, a, lda, b, by, totals, ldt, c); break;
    default: grouped(ROWS, groups, group, a, lda, b, by, totals, ldt, c); break;
    }
}

static void total_row(void *given, i64 row, int thread) {
    const Product *call = given;
    i64 group = call->linear->group, groups = call->linear->inputs / 2 / group;
    const uint16_t *x = call->x + row * call->linear->inputs;
    for (i64 g = 0; g < groups; g++) {
        floats sum = splat(0);
        for (i64 i = 0; i < 2 * group; i += LANES) sum += load_bf16(x + g * 2 * group + i);
        ((float *)call->totals)[row * groups + g] = sum_of(sum);
    }
    (void)thread;
}

static void multiply(void *given, i64 item, int thread) {
    const Product *call = given;
    const Linear *l = call->linear;
    i64 panel = item % call->panels, row = item / call->panels * SHARED_ROWS;
    i64 rows = call->n - row < SHARED_ROWS ? call->n - row : SHARED_ROWS, pairs = l->inputs / 2;
    pair *unpacked = (pair *)room[thread].at;
    float *sums = (float *)(unpacked + DEPTH * PANEL);
    if (l->group && call->n <= FEW) memset(sums, 0, rows * PANEL * 4);
    Table table = table_of(l);
    int straight = l->bits && call->n <= DIRECT_ROWS;
    if (straight) direct_rows(call, panel, &table, sums);
    int by_tiles = tiles_allowed && call->n > FEW && pairs % SQUARE == 0;
    i64 whole = by_tiles ? rows - rows % TILED_ROWS : 0;
    if (by_tiles) take_tiles();
    for (i64 k = 0; k < pairs && !straight; k += DEPTH) {
        i64 deep = pairs - k < DEPTH ? pairs - k : DEPTH;
        const pair *weight = (const pair *)l->weight + (panel * pairs + k) * PANEL;
        if (l->bits) {
            unpack(l, (const char *)l->weight + (panel * pairs + k) * PANEL * l->bits / 4, deep, &table, unpacked);
            weight = unpacked;
        }
        if (l->group) {
            i64 groups = pairs / l->group;
            const Scales by = scales_from(l, panel, k / l->group); /* DEPTH is whole super-blocks */
            if (call->n > FEW) scale_steps(&by, l->group, deep, unpacked);
            else {
                for (i64 r = 0; r < rows; r += ROWS)
                    grouped_rows(rows - r < ROWS ? (int)(rows - r) : ROWS, deep / l->group, l->group,
                                 (const pair *)(call->x + (row + r) * l->inputs) + k, pairs, weight, &by,
                                 by.offset ? call->totals + (row + r) * groups + k / l->group : NULL, groups,
                                 sums + r * PANEL);
                continue;
            }
        }
        for (i64 r = 0; r < whole; r += TILED_ROWS)
            tiled(deep, (const pair *)(call->x + (row + r) * l->inputs) + k, pairs, weight, PANEL, sums + r * PANEL,
                  PANEL, k > 0);
        for (i64 r = whole; r < rows; r += ROWS) {
            int some = rows - r < ROWS ? (int)(rows - r) : ROWS;
            tile_64(some, deep, (const pair *)(call->x + (row + r) * l->inputs) + k, pairs, weight, PANEL,
                    sums + r * PANEL, PANEL, k > 0, (const char *)weight + FAR, !l->bits && !r ? 4 : 0);
        }
    }
    if (by_tiles) leave_tiles();
    i64 first = panel * PANEL, width = l->outputs - first < PANEL ? l->outputs - first : PANEL;
    for (i64 r = 0; r < rows; r++) {
        float *y = call->y + (row + r) * l->outputs + first;
        for (i64 i = 0; i < width; i++) {
            float sum = sums[r * PANEL + i];
            if (l->scale && !l->group) sum *= l->scale[first + i];
            if (l->bias) sum += l->bias[first + i];
            y[i] = call->adds ? y[i] + sum : sum;
        }
    }
}

/* 0: done; 1: no memory */
static int linear(const Linear *l, const uint16_t *x, float *y, i64 n, int adds) {
    if (!reserve(DEPTH * PANEL * 4 + SHARED_ROWS * PANEL * 4)) return 1;
    Product call = {l, x, y, n, (l->outputs + PANEL - 1) / PANEL, adds, NULL};
    if (l->offset && n <= FEW) {
        static float *totals;
        static size_t size;
        size_t wanted = n * (l->inputs / 2 / l->group);
        if (size < wanted) {
            free(totals);
            totals = malloc(wanted * 4);
            size = totals ? wanted : 0;
            if (!totals) return 1;
        }
        call.totals = totals;
        for (i64 row = 0; row < n; row++) total_row(&call, row, 0);
    }
    share(call.panels * ((n + SHARED_ROWS - 1) / SHARED_ROWS), multiply, &call);
    return 0;
}
