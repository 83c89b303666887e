/* Sixteen numbers at a time through the compiler's vector types: it makes of them what the machine has. Only the product
   of bfloat16 pairs has an instruction of its own where there is one. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

typedef float f16 __attribute__((vector_size(64)));
typedef uint32_t u16 __attribute__((vector_size(64)));
typedef int32_t i16 __attribute__((vector_size(64)));
typedef uint16_t h16 __attribute__((vector_size(32)));
typedef uint16_t h32 __attribute__((vector_size(64)));
typedef int8_t b16 __attribute__((vector_size(16)));
typedef f16 f16_loose __attribute__((aligned(4), may_alias));
typedef u16 u16_loose __attribute__((aligned(2), may_alias));
typedef h16 h16_loose __attribute__((aligned(1), may_alias));
typedef b16 b16_loose __attribute__((aligned(1), may_alias));
typedef uint32_t pair __attribute__((may_alias, aligned(2))); /* two bfloat16 */

#define LANES 16
#define INLINE static inline __attribute__((always_inline))
#define SHUFFLE __builtin_shufflevector

INLINE f16 splat(float x) { return x - (f16){0}; }
INLINE f16 load(const float *p) { return *(const f16_loose *)p; }
INLINE void store(float *p, f16 x) { *(f16_loose *)p = x; }

INLINE f16 larger(f16 a, f16 b) {
#if defined(__AVX512BF16__)
    return (f16)_mm512_max_ps((__m512)a, (__m512)b);
#else
    i16 is = a > b;
    return (f16)((is & (i16)a) | (~is & (i16)b));
#endif
}

/* sums + the products of each lane's two pairs */
INLINE f16 products(f16 sums, u16 a, u16 b) {
#if defined(__AVX512BF16__)
    return (f16)_mm512_dpbf16_ps((__m512)sums, (__m512bh)a, (__m512bh)b);
#else
    sums += (f16)(a << 16) * (f16)(b << 16);
    return sums + (f16)(a & 0xffff0000u) * (f16)(b & 0xffff0000u);
#endif
}

/* a * b + c, rounded once wherever the machine can: what the compiler makes of it does not depend on what stands around */
INLINE f16 multiply_add(f16 a, f16 b, f16 c) {
#if defined(__AVX512F__)
    return (f16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FP_FAST_FMAF)
    for (int i = 0; i < LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#else
    return a * b + c;
#endif
}

/* to the nearest bfloat16, ties to even; not for NaN */
INLINE u16 rounded(f16 x) {
    u16 bits = (u16)x;
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

INLINE void store_bf16(uint16_t *p, f16 x) {
#if defined(__AVX512BF16__)
    *(h16_loose *)p = (h16)_mm512_cvtneps_pbh((__m512)x);
#else
    *(h16_loose *)p = __builtin_convertvector(rounded(x), h16);
#endif
}

INLINE u16 load_halves(const uint16_t *p) {
#if defined(__AVX512BF16__)
    return (u16)_mm512_cvtepu16_epi32((__m256i) * (const h16_loose *)p);
#else
    return __builtin_convertvector(*(const h16_loose *)p, u16);
#endif
}
INLINE f16 load_bf16(const uint16_t *p) { return (f16)(load_halves(p) << 16); }

/* Rows of int8 with a bfloat16 scale for each GROUP numbers behind them, see int8_rows.py */

#define GROUP 32

INLINE f16 scale_of(const int8_t *row, long dim, long group) {
    uint16_t bits;
    memcpy(&bits, row + dim + 2 * group, 2);
    return (f16)((u16){0} + ((uint32_t)bits << 16));
}

/* Their GROUP numbers from ``first`` on, as bfloat16 in this order; of a last group that is shorter, those there are. */
INLINE u16 load_group(const int8_t *row, long dim, long first) {
    f16 by = scale_of(row, dim, first / GROUP);
    const int8_t *from = row + first;
#if defined(__AVX512BF16__)
    f16 low = (f16)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i) * (const b16_loose *)from)) * by, high = splat(0);
    if (dim - first > LANES)
        high = (f16)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i) * (const b16_loose *)(from + LANES))) * by;
    return (u16)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
#else
    uint16_t some[LANES] = {0};
    memcpy(some, from, dim - first > LANES ? GROUP : LANES);
    i16 both = (i16)load_halves(some);
    u16 even = rounded(__builtin_convertvector((both << 24) >> 24, f16) * by);
    return even | (rounded(__builtin_convertvector((both << 16) >> 24, f16) * by) << 16);
#endif
}

/* Pairs of a's and b's numbers, the first or the second half of them. */
#define INTERLEAVED(a, b, at)                                                                                          \
    (u16) SHUFFLE((h32)a, (h32)b, at, at + 32, at + 1, at + 33, at + 2, at + 34, at + 3, at + 35, at + 4, at + 36,     \
                  at + 5, at + 37, at + 6, at + 38, at + 7, at + 39, at + 8, at + 40, at + 9, at + 41, at + 10,        \
                  at + 42, at + 11, at + 43, at + 12, at + 44, at + 13, at + 45, at + 14, at + 46, at + 15, at + 47)

/* Halves on each other, four times: in one order, whatever the machine is. */
#define FOLD(x, how)                                                                                                   \
    x = how(x, SHUFFLE(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));                                   \
    x = how(x, SHUFFLE(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));                                   \
    x = how(x, SHUFFLE(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));                                   \
    x = how(x, SHUFFLE(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
#define ADD(a, b) ((a) + (b))

INLINE float sum_of(f16 x) {
    FOLD(x, ADD)
    return x[0];
}

INLINE float largest_of(f16 x) {
    FOLD(x, larger)
    return x[0];
}

/* x [dim] as such a row. The same bits as ``to_rows``: scales are the next bfloat16 upwards. */
INLINE void store_row(int8_t *row, const float *x, long dim) {
    for (long first = 0; first < dim; first += GROUP) {
        long last = first + GROUP < dim ? first + GROUP : dim;
        f16 most = splat(1e-30f);
        for (long d = first; d < last; d += LANES) most = larger(most, larger(load(x + d), -load(x + d)));
        float wanted = largest_of(most) / 127, scale;
        uint32_t bits;
        memcpy(&bits, &wanted, 4);
        bits = (bits + 0xffff) & 0xffff0000u;
        memcpy(&scale, &bits, 4);
        uint16_t stored = (uint16_t)(bits >> 16);
        memcpy(row + dim + 2 * (first / GROUP), &stored, 2);
        for (long d = first; d < last; d += LANES) {
            f16 steps = load(x + d) / splat(scale) + 12582912.0f; /* 1.5 * 2^23: ties to even */
            *(b16_loose *)(row + d) = __builtin_convertvector((i16)steps - 0x4b400000, b16);
        }
    }
}

/* 2^x for x <= 127 to about 2 units in the last place; 0 below -126 */
INLINE f16 exp2_of(f16 x) {
    f16 small = splat(-126.0f);
    i16 gone = x < small;
    x = larger(x, small);
    f16 shifted = x + 12582912.0f; /* 1.5 * 2^23: what is left of the fraction is rounded off */
    f16 f = x - (shifted - 12582912.0f);
    f16 y = f * 1.5403530e-4f + 1.3333558e-3f;
    y = y * f + 9.6181291e-3f;
    y = y * f + 5.5504109e-2f;
    y = y * f + 2.4022651e-1f;
    y = y * f + 6.9314718e-1f;
    y = y * f + 1.0f;
    i16 result = (i16)y + (((i16)shifted - 0x4b400000) << 23);
    return (f16)(result & ~gone);
}

/* Rows a[0..15] of sixteen become columns. */
INLINE void swap_halves(u16 *a, int step) {
    for (int i = 0; i < LANES; i++) {
        if (i & step) continue;
        u16 x = a[i], y = a[i + step];
        if (step == 8) {
            a[i] = SHUFFLE(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
            a[i + step] = SHUFFLE(x, y, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
        } else if (step == 4) {
            a[i] = SHUFFLE(x, y, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
            a[i + step] = SHUFFLE(x, y, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
        } else if (step == 2) {
            a[i] = SHUFFLE(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
            a[i + step] = SHUFFLE(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
        } else {
            a[i] = SHUFFLE(x, y, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
            a[i + step] = SHUFFLE(x, y, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
        }
    }
}

INLINE void transpose(u16 *a) {
    swap_halves(a, 8);
    swap_halves(a, 4);
    swap_halves(a, 2);
    swap_halves(a, 1);
}

/* What lies so far ahead in memory is on its way: processors by themselves fetch to the end of a page at most. */
#define FAR 8192

INLINE void fetch_far(const void *from, const int lines) {
    for (int line = 0; line < lines; line++) __builtin_prefetch((const char *)from + FAR + 64 * line);
}

/* c [R, 16 V] (+)= a [R, 2 k] times b [2 k, 16 V], b in pairs along k: [k, 16 V] of two. Each number is summed along k
   in one order, whatever R and V are: a row is the same bits in any company. far: b comes from memory. */
INLINE void tile(const int R, const int V, long k, const pair *a, long lda, const pair *b, long ldb, float *c, long ldc,
                 int adds, int far) {
    f16 sums[6][4];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) sums[r][v] = adds ? load(c + r * ldc + v * LANES) : splat(0);
    for (long p = 0; p < k; p++) {
        u16 right[4];
        if (far) fetch_far(b + p * ldb, V);
        for (int v = 0; v < V; v++) right[v] = *(const u16_loose *)(b + p * ldb + v * LANES);
        for (int r = 0; r < R; r++) {
            u16 left = a[r * lda + p] - (u16){0};
            for (int v = 0; v < V; v++) sums[r][v] = products(sums[r][v], right[v], left);
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) store(c + r * ldc + v * LANES, sums[r][v]);
}

#define ROWS 6 /* of a tile: with four vectors of sums each, and what they are made of, all 32 registers of AVX-512 */
#define TILES(V)                                                                                                       \
    static void tile_##V(int rows, long k, const pair *a, long lda, const pair *b, long ldb, float *c, long ldc,       \
                         int adds, int far) {                                                                          \
        switch (rows) {                                                                                                \
        case 1: tile(1, V, k, a, lda, b, ldb, c, ldc, adds, far); break;                                               \
        case 2: tile(2, V, k, a, lda, b, ldb, c, ldc, adds, far); break;                                               \
        case 3: tile(3, V, k, a, lda, b, ldb, c, ldc, adds, far); break;                                               \
        case 4: tile(4, V, k, a, lda, b, ldb, c, ldc, adds, far); break;                                               \
        case 5: tile(5, V, k, a, lda, b, ldb, c, ldc, adds, far); break;                                               \
        default: tile(6, V, k, a, lda, b, ldb, c, ldc, adds, far); break;                                              \
        }                                                                                                              \
    }
TILES(1)
TILES(2)
TILES(4)

/* The same for any width of whole vectors. rows <= ROWS */
static void product(int rows, long k, const pair *a, long lda, const pair *b, long width, float *c, long ldc,
                    int adds) {
    long at = 0;
    for (; width - at >= 64; at += 64) tile_4(rows, k, a, lda, b + at, width, c + at, ldc, adds, 0);
    if (width - at >= 32) {
        tile_2(rows, k, a, lda, b + at, width, c + at, ldc, adds, 0);
        at += 32;
    }
    if (width - at >= 16) tile_1(rows, k, a, lda, b + at, width, c + at, ldc, adds, 0);
}
