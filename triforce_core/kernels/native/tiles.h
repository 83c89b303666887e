/* Products of many rows by the matrix unit that Intel's processors have from Sapphire Rapids on (AMX): sixteen rows by
   sixteen outputs by sixteen pairs in one instruction, eight times as fast as vectors. Its sums are not those of the
   vectors to the last bit, so passes of few rows, which are the same bits as their rows alone, stay with these. */

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__linux__) && LANES == 16
#include <sys/syscall.h>
#include <unistd.h>

#define SQUARE 16 /* rows, outputs and pairs of one tile */
#define TILED_ROWS 32 /* rows at a time */

static int tiles_allowed; /* the kernel gives the unit's registers to a process that asks for them */

__attribute__((constructor)) static void ask_for_tiles(void) {
    tiles_allowed = !syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* XTILEDATA */);
}

/* Not on the stack: GCC 12 does not know that all of it is read. */
static const struct {
    uint8_t palette, start, unused[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_shapes __attribute__((aligned(64), used)) = {
    1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {SQUARE, SQUARE, SQUARE, SQUARE, SQUARE, SQUARE, SQUARE, SQUARE}};

/* Of the thread that calls; until ``leave_tiles``. */
static void take_tiles(void) { _tile_loadconfig(&tile_shapes); }

static void leave_tiles(void) { _tile_release(); }

/* c [TILED_ROWS, 32] (+)= a [TILED_ROWS, 2 k] times b [2 k, 32], both in pairs along k, which is whole squares. */
INLINE void tiled_square(i64 k, const pair *a, i64 lda, const pair *b, i64 ldb, float *c, i64 ldc, int adds) {
    __asm__ volatile("" ::: "memory"); /* nor that loads of tiles read what was stored before */
    if (adds) {
        _tile_loadd(0, c, 4 * ldc);
        _tile_loadd(1, c + SQUARE, 4 * ldc);
        _tile_loadd(2, c + SQUARE * ldc, 4 * ldc);
        _tile_loadd(3, c + SQUARE * ldc + SQUARE, 4 * ldc);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (i64 p = 0; p < k; p += SQUARE) {
        _tile_loadd(4, a + p, 4 * lda);
        _tile_loadd(6, b + p * ldb, 4 * ldb);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + p * ldb + SQUARE, 4 * ldb);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + SQUARE * lda + p, 4 * lda);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, 4 * ldc);
    _tile_stored(1, c + SQUARE, 4 * ldc);
    _tile_stored(2, c + SQUARE * ldc, 4 * ldc);
    _tile_stored(3, c + SQUARE * ldc + SQUARE, 4 * ldc);
}

/* The same for any width of whole 32s. */
static void tiled(i64 k, const pair *a, i64 lda, const pair *b, i64 width, float *c, i64 ldc, int adds) {
    for (i64 at = 0; at < width; at += 2 * SQUARE) tiled_square(k, a, lda, b + at, width, c + at, ldc, adds);
}
#else
#define tiles_allowed 0
#define TILED_ROWS 32
#define SQUARE 16

static void take_tiles(void) {}

static void leave_tiles(void) {}

static void tiled(i64 k, const pair *a, i64 lda, const pair *b, i64 width, float *c, i64 ldc, int adds) {
    (void)k, (void)a, (void)lda, (void)b, (void)width, (void)c, (void)ldc, (void)adds;
}
#endif
