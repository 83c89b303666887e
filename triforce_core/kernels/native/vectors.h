/* As many numbers at a time as one of the machine's registers holds, through the compiler's vector types (GCC keeps
   vectors that are wider than registers in memory). Only what compilers do not find by themselves, as the product of
   bfloat16 pairs, is told by instruction. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#if defined(__AVX512BF16__) || (defined(__aarch64__) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC))
#define PAIRS 1 /* there is an instruction for the products of pairs of bfloat16 */
#else
#define PAIRS 0
#endif

/* A tile has up to ROWS rows, and of each STEP vectors are summed at a time: with what they are made of, about as many
   as there are registers, 32 of AVX-512 and of NEON, 16 of the others. */
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif
#if defined(__AVX512F__)
#define ROWS 6
#define STEP(R) 4
#elif defined(__aarch64__)
#define ROWS (PAIRS ? 6 : 5)
#define STEP(R) ((R) == 1 ? 16 : (R) <= 3 ? 8 : 4)
#else
#define ROWS 5
#define STEP(R) ((R) == 1 ? 8 : (R) <= 3 ? 4 : 2)
#endif
#define MOST 16 /* STEP at most */
#define LONGEST 512 /* pairs along a tile's sums */

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES)));
typedef uint16_t all_halves __attribute__((vector_size(4 * LANES)));
typedef int8_t octets __attribute__((vector_size(LANES)));
typedef uint8_t bytes __attribute__((vector_size(LANES)));
typedef floats floats_loose __attribute__((aligned(4), may_alias));
typedef words words_loose __attribute__((aligned(2), may_alias));
typedef halves halves_loose __attribute__((aligned(1), may_alias));
typedef octets octets_loose __attribute__((aligned(1), may_alias));
typedef bytes bytes_loose __attribute__((aligned(1), may_alias));
typedef uint32_t pair __attribute__((may_alias, aligned(2))); /* two bfloat16 */

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else /* GCC has the other one too, but only from version 12 on */
#define SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif

INLINE floats splat(float x) { return x - (floats){0}; }
INLINE floats load(const float *p) { return *(const floats_loose *)p; }
INLINE void store(float *p, floats x) { *(floats_loose *)p = x; }

INLINE floats larger(floats a, floats b) {
#if defined(__AVX512F__)
    return (floats)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (floats)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__aarch64__)
    return (floats)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
#else
    ints is = a > b;
    return (floats)((is & (ints)a) | (~is & (ints)b));
#endif
}

/* a * b + c, rounded once wherever the machine can: what the compiler makes of it depends on nothing around it */
INLINE floats multiply_add(floats a, floats b, floats c) {
#if defined(__AVX512F__)
    return (floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
    return (floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

/* sums + the products of each lane's two pairs */
INLINE floats products(floats sums, words a, words b) {
#if PAIRS && defined(__AVX512F__)
    return (floats)_mm512_dpbf16_ps((__m512)sums, (__m512bh)a, (__m512bh)b);
#elif PAIRS
    return (floats)vbfdotq_f32((float32x4_t)sums, (bfloat16x8_t)a, (bfloat16x8_t)b);
#else
    sums = multiply_add((floats)(a << 16), (floats)(b << 16), sums);
    return multiply_add((floats)(a & 0xffff0000u), (floats)(b & 0xffff0000u), sums);
#endif
}

/* to the nearest bfloat16, ties to even; not for NaN */
INLINE words rounded(floats x) {
    words bits = (words)x;
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

INLINE void store_bf16(uint16_t *p, floats x) {
#if defined(__AVX512BF16__)
    *(halves_loose *)p = (halves)_mm512_cvtneps_pbh((__m512)x);
#else
    *(halves_loose *)p = __builtin_convertvector(rounded(x), halves);
#endif
}

INLINE words load_halves(const uint16_t *p) {
#if defined(__AVX512F__)
    return (words)_mm512_cvtepu16_epi32((__m256i) * (const halves_loose *)p);
#elif defined(__AVX2__)
    return (words)_mm256_cvtepu16_epi32((__m128i) * (const halves_loose *)p);
#else
    return __builtin_convertvector(*(const halves_loose *)p, words);
#endif
}

/* 2 * LANES numbers, or LANES and zeros where there are no more than that. */
INLINE words load_pairs(const uint16_t *p, i64 there) {
    if (there >= 2 * LANES) return *(const words_loose *)p;
    words some = {0};
    memcpy(&some, p, 2 * LANES);
    return some;
}

INLINE floats load_bf16(const uint16_t *p) { return (floats)(load_halves(p) << 16); }

/* Rows of steps in ``bits`` (8 or 4) with a bfloat16 scale for each GROUP of them behind, see kv_rows.py */

#define GROUP 32

INLINE floats scale_of(const int8_t *row, i64 dim, i64 group, const int bits) {
    uint16_t stored;
    memcpy(&stored, row + dim * bits / 8 + 2 * group, 2);
    return (floats)((words){0} + ((uint32_t)stored << 16));
}

/* 2 * LANES numbers, or those of them that a row still has (``left``), as bfloat16 in this order */
INLINE words load_8(const int8_t *from, floats by, i64 left) {
#if defined(__AVX512BF16__)
    floats low = (floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i) * (const octets_loose *)from)) * by;
    floats high = splat(0);
    if (left > LANES)
        high = (floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i) * (const octets_loose *)(from + LANES))) * by;
    return (words)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
#else
    ints both;
    if (left >= 2 * LANES) both = (ints)load_halves((const uint16_t *)from);
    else {
        uint16_t some[LANES] = {0};
        memcpy(some, from, LANES);
        both = (ints)load_halves(some);
    }
    words even = rounded(__builtin_convertvector((both << 24) >> 24, floats) * by);
    return even | (rounded(__builtin_convertvector((both << 16) >> 24, floats) * by) << 16);
#endif
}

INLINE words load_4(const int8_t *from, floats by, i64 left) {
    uint8_t some[LANES] = {0};
    if (left < 2 * LANES) from = memcpy(some, from, left / 2);
#if defined(__AVX512BF16__) && defined(__AVX512BW__) /* the sixteen numbers there can be, and which of them each is */
    const floats steps = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    __m512i all = _mm512_broadcast_i64x4((__m256i)_mm512_cvtneps_pbh((__m512)(steps * by)));
    words both = (words)_mm512_cvtepu8_epi32((__m128i) * (const bytes_loose *)from);
    return (words)_mm512_permutexvar_epi16((__m512i)((both | both << 12) & 0x000f000fu), all);
#else
    ints both = __builtin_convertvector(*(const bytes_loose *)from, ints);
    words even = rounded(__builtin_convertvector((both & 15) - 8, floats) * by);
    return even | (rounded(__builtin_convertvector((both >> 4) - 8, floats) * by) << 16);
#endif
}

/* A row's numbers from ``first`` on, as many as a vector holds. */
INLINE words load_group(const int8_t *row, i64 dim, i64 first, const int bits) {
    floats by = scale_of(row, dim, first / GROUP, bits);
    if (bits == 8) return load_8(row + first, by, dim - first);
    return load_4(row + first / 2, by, dim - first);
}

/* INTERLEAVED: pairs of a's and b's numbers, the first (at 0) or the second (at LANES) half of them. EVEN and ODD of
   two vectors: groups of so many numbers from both, by turns. */
#if LANES == 16
#define INTERLEAVED(a, b, at)                                                                                          \
    (words) SHUFFLE(all_halves, (all_halves)a, (all_halves)b, at, at + 32, at + 1, at + 33, at + 2, at + 34, at + 3,   \
                    at + 35, at + 4, at + 36, at + 5, at + 37, at + 6, at + 38, at + 7, at + 39, at + 8, at + 40,      \
                    at + 9, at + 41, at + 10, at + 42, at + 11, at + 43, at + 12, at + 44, at + 13, at + 45, at + 14,  \
                    at + 46, at + 15, at + 47)
#define EVEN_8(a, b) SHUFFLE(words, a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
#define ODD_8(a, b) SHUFFLE(words, a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)
#define EVEN_4(a, b) SHUFFLE(words, a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27)
#define ODD_4(a, b) SHUFFLE(words, a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31)
#define EVEN_2(a, b) SHUFFLE(words, a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define ODD_2(a, b) SHUFFLE(words, a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#define EVEN_1(a, b) SHUFFLE(words, a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30)
#define ODD_1(a, b) SHUFFLE(words, a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31)
#elif LANES == 8
#define INTERLEAVED(a, b, at)                                                                                          \
    (words) SHUFFLE(all_halves, (all_halves)a, (all_halves)b, at, at + 16, at + 1, at + 17, at + 2, at + 18, at + 3,   \
                    at + 19, at + 4, at + 20, at + 5, at + 21, at + 6, at + 22, at + 7, at + 23)
#define EVEN_4(a, b) SHUFFLE(words, a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define ODD_4(a, b) SHUFFLE(words, a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#define EVEN_2(a, b) SHUFFLE(words, a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define ODD_2(a, b) SHUFFLE(words, a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define EVEN_1(a, b) SHUFFLE(words, a, b, 0, 8, 2, 10, 4, 12, 6, 14)
#define ODD_1(a, b) SHUFFLE(words, a, b, 1, 9, 3, 11, 5, 13, 7, 15)
#else
#define INTERLEAVED(a, b, at)                                                                                          \
    (words) SHUFFLE(all_halves, (all_halves)a, (all_halves)b, at, at + 8, at + 1, at + 9, at + 2, at + 10, at + 3,     \
                    at + 11)
#define EVEN_2(a, b) SHUFFLE(words, a, b, 0, 1, 4, 5)
#define ODD_2(a, b) SHUFFLE(words, a, b, 2, 3, 6, 7)
#define EVEN_1(a, b) SHUFFLE(words, a, b, 0, 4, 2, 6)
#define ODD_1(a, b) SHUFFLE(words, a, b, 1, 5, 3, 7)
#endif

/* Halves on each other until one number is left: in one order, whatever stands around. */
#define HALVE(x, how, step) x = how((floats)EVEN_##step((words)x, (words)x), (floats)ODD_##step((words)x, (words)x));
#if LANES == 16
#define FOLD(x, how) HALVE(x, how, 8) HALVE(x, how, 4) HALVE(x, how, 2) HALVE(x, how, 1)
#elif LANES == 8
#define FOLD(x, how) HALVE(x, how, 4) HALVE(x, how, 2) HALVE(x, how, 1)
#else
#define FOLD(x, how) HALVE(x, how, 2) HALVE(x, how, 1)
#endif
#define ADD(a, b) ((a) + (b))

INLINE float sum_of(floats x) {
    FOLD(x, ADD)
    return x[0];
}

INLINE float largest_of(floats x) {
    FOLD(x, larger)
    return x[0];
}

/* Whether one of x is larger than ``bar``. */
INLINE int exceeds(floats x, float bar) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)x, (__m512)splat(bar), _CMP_GT_OQ) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_ps((__m256)(x > splat(bar))) != 0;
#else
    return largest_of(x) > bar;
#endif
}

/* x [dim] as such a row. The same bits as ``to_rows``: scales are the next bfloat16 away from zero. */
INLINE void store_row(int8_t *row, const float *x, i64 dim, const int bits) {
    for (i64 first = 0; first < dim; first += GROUP) {
        i64 last = first + GROUP < dim ? first + GROUP : dim;
        floats above = splat(1e-30f), below = above;
        for (i64 d = first; d < last; d += LANES) {
            above = larger(above, load(x + d));
            below = larger(below, -load(x + d));
        }
        float high = largest_of(above), low = largest_of(below), scale;
        float wanted = (high > low ? high : low) / (bits == 8 ? 127.0f : 8.0f);
        uint32_t stored;
        memcpy(&stored, &wanted, 4);
        stored = (stored + 0xffff) & 0xffff0000u;
        if (bits == 4 && high > low) stored |= 0x80000000u;
        memcpy(&scale, &stored, 4);
        uint16_t half = (uint16_t)(stored >> 16);
        memcpy(row + dim * bits / 8 + 2 * (first / GROUP), &half, 2);
        int8_t steps[GROUP];
        for (i64 d = first; d < last; d += LANES) {
            floats exact = load(x + d) / splat(scale);
            if (bits == 4) exact = -larger(-larger(exact, splat(-8)), splat(-7));
            exact += 12582912.0f; /* 1.5 * 2^23: ties to even */
            *(octets_loose *)(bits == 8 ? row + d : steps + d - first) =
                __builtin_convertvector((ints)exact - 0x4b400000 + (bits == 4 ? 8 : 0), octets);
        }
        if (bits == 4)
            for (i64 d = 0; d < last - first; d += 2) row[(first + d) / 2] = (int8_t)(steps[d] | steps[d + 1] << 4);
    }
}

/* 2^x for x <= 127 to about 2 units in the last place; 0 far below -126 */
INLINE floats exp2_of(floats x) {
#if defined(__AVX512DQ__)
    floats f = (floats)_mm512_reduce_ps((__m512)x, 0); /* of -inf: 0 */
#else
    floats small = splat(-126.0f);
    ints gone = x < small;
    x = larger(x, small);
    floats shifted = x + 12582912.0f; /* 1.5 * 2^23: what is left of the fraction is rounded off */
    floats f = x - (shifted - 12582912.0f);
#endif
    floats y = f * 1.3264727e-3f + 9.6715127e-3f;
    y = y * f + 5.5507337e-2f;
    y = y * f + 2.4022242e-1f;
    y = y * f + 6.9314698e-1f;
    y = y * f + 1.0f;
#if defined(__AVX512DQ__)
    return (floats)_mm512_scalef_ps((__m512)y, _mm512_roundscale_ps((__m512)x, 0));
#else
    ints result = (ints)y + (((ints)shifted - 0x4b400000) << 23);
    return (floats)(result & ~gone);
#endif
}

/* Rows a[0..LANES - 1] become columns. */
#define SWAP_HALVES(a, step)                                                                                           \
    for (int i = 0; i < LANES; i++) {                                                                                  \
        if (i & step) continue;                                                                                        \
        words x = a[i], y = a[i + step];                                                                               \
        a[i] = EVEN_##step(x, y);                                                                                      \
        a[i + step] = ODD_##step(x, y);                                                                                \
    }

INLINE void transpose(words *a) {
#if LANES == 16
    SWAP_HALVES(a, 8)
#endif
#if LANES >= 8
    SWAP_HALVES(a, 4)
#endif
    SWAP_HALVES(a, 2)
    SWAP_HALVES(a, 1)
}

/* What lies so far ahead in memory is on its way: processors by themselves fetch to the end of a page at most. */
#define FAR 8192

/* To L2: more lines can be on their way there than to L1. */
INLINE void fetch(const void *from) { __builtin_prefetch(from, 0, 2); }

INLINE void fetch_far(const void *from) { fetch((const char *)from + FAR); }

/* c [R, width] (+)= a [R, 2 k] times b [2 k, width], b in pairs along k <= LONGEST: [k, width] of two. Each number is
   summed along k in one order, whatever R and width are: a row is the same bits in any company. far: what is wanted
   next is asked for on the way, ``lines`` of 64 bytes (none, 1, 2 or 4) at each of the k steps: all at once would hold
   up what is being read. */
INLINE void tile(const int R, const int width, i64 k, const pair *a, i64 lda, const pair *b, i64 ldb, float *c,
                 i64 ldc, int adds, const char *far, i64 lines) {
    const int V = STEP(R) * LANES < width ? STEP(R) : width / LANES;
#if !PAIRS
    uint32_t parts[2][ROWS][LONGEST]; /* of a, as floats: each is used for all of the width */
    for (int r = 0; r < R; r++)
        for (i64 p = 0; p < k; p++) {
            parts[0][r][p] = a[r * lda + p] << 16;
            parts[1][r][p] = a[r * lda + p] & 0xffff0000u;
        }
#endif
    for (i64 at = 0; at < width; at += V * LANES, b += V * LANES, c += V * LANES) {
        floats sums[ROWS][MOST];
        for (int r = 0; r < R; r++)
            for (int v = 0; v < V; v++) sums[r][v] = adds ? load(c + r * ldc + v * LANES) : splat(0);
        for (i64 p = 0; p < k; p++) {
            words right[MOST];
            if (lines && !at) {
                const char *next = far + 64 * lines * p;
                fetch(next);
                if (lines > 1) fetch(next + 64);
                if (lines > 2) fetch(next + 128), fetch(next + 192);
            }
            for (int v = 0; v < V; v++) right[v] = *(const words_loose *)(b + p * ldb + v * LANES);
#if PAIRS
            for (int r = 0; r < R; r++) {
                words left = a[r * lda + p] - (words){0};
                for (int v = 0; v < V; v++) sums[r][v] = products(sums[r][v], right[v], left);
            }
#else
            for (int half = 0; half < 2; half++)
                for (int r = 0; r < R; r++) {
                    floats left = (floats)(parts[half][r][p] - (words){0});
                    for (int v = 0; v < V; v++) {
                        floats own = (floats)(half ? right[v] & 0xffff0000u : right[v] << 16);
                        sums[r][v] = multiply_add(own, left, sums[r][v]);
                    }
                }
#endif
        }
        for (int r = 0; r < R; r++)
            for (int v = 0; v < V; v++) store(c + r * ldc + v * LANES, sums[r][v]);
    }
}

#define TILES(width)                                                                                                   \
    static void tile_##width(int rows, i64 k, const pair *a, i64 lda, const pair *b, i64 ldb, float *c, i64 ldc,   \
                             int adds, const char *far, i64 lines) {                                                  \
        switch (rows) {                                                                                                \
        case 1: tile(1, width, k, a, lda, b, ldb, c, ldc, adds, far, lines); break;                                    \
        case 2: tile(2, width, k, a, lda, b, ldb, c, ldc, adds, far, lines); break;                                    \
        case 3: tile(3, width, k, a, lda, b, ldb, c, ldc, adds, far, lines); break;                                    \
        case 4: tile(4, width, k, a, lda, b, ldb, c, ldc, adds, far, lines); break;                                    \
        case 5: tile(5, width, k, a, lda, b, ldb, c, ldc, adds, far, lines); break;                                    \
        default: tile(ROWS, width, k, a, lda, b, ldb, c, ldc, adds, far, lines); break;                                \
        }                                                                                                              \
    }
TILES(16)
TILES(32)
TILES(64)

/* The same for any width of whole sixteens. rows <= ROWS */
static void product(int rows, i64 k, const pair *a, i64 lda, const pair *b, i64 width, float *c, i64 ldc,
                    int adds, const char *far, i64 lines) {
    i64 at = 0;
    for (; width - at >= 64; at += 64, far += 64 * lines * k)
        tile_64(rows, k, a, lda, b + at, width, c + at, ldc, adds, far, lines);
    if (width - at >= 32) {
        tile_32(rows, k, a, lda, b + at, width, c + at, ldc, adds, far, lines);
        at += 32;
    }
    if (width - at >= 16) tile_16(rows, k, a, lda, b + at, width, c + at, ldc, adds, far, lines);
}
