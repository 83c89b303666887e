/* Attention of n new rows over a cache, blocks of keys at a time with a running maximum (arXiv 2205.14135).
   Letters: n rows, H KV heads, G query heads of each, D head_dim, C slots. */

#define BLOCK 128 /* keys at a time: with their values, in L1 */
#define AHEAD 64 /* slots: read so far ahead, memory keeps up where rows are of one tile */
#define PACKED_MOST 2 /* rows up to which packing takes longer than products; of rounded rows it does with more, too */
#define STRIP 32 /* values of one; of keys it has 64 */
#define WIDE_ROWS 384 /* query rows that share one packing of a block */
#define PART 4096 /* slots of one share of a pass of few rows; part i begins at slot i * PART whatever the pass */
#define FEW 64 /* rows of a pass up to which it is computed in such parts, and its rows as if each were alone */

typedef struct {
    const uint16_t *queries; /* [n, H * G, D] */
    const char *keys, *values; /* bfloat16 [H, C, D] or [H, C] rows of kv_rows.py; heads apart by ``stride`` bytes */
    uint16_t *out; /* [n, H * G, D] */
    float *mass; /* [H, chunks] or NULL */
    const uint8_t *mask; /* [n, masked] or NULL: causal */
    int64_t stride, row, bits, n, heads, group, dim, length, masked, mass_rows, chunk, chunks; /* row: bytes of a slot */
    /* of the call */
    int64_t parts, blocks, row_blocks, rows_of_block, mass_blocks;
    float *partial; /* [H, n G, parts, D + 2]: sums, maximum, sum of weights */
    float *chunk_sums, *tops; /* [H, mass rows G, chunks], [H, mass rows G, mass_blocks] */
} Attention;

/* fetches: packing asks for what comes AHEAD slots later; a constant where each instruction counts. */
INLINE void pack_row_keys(const int8_t *keys, i64 have, i64 dim, i64 row, const int bits, pair *out, int fetches) {
    i64 half = dim / 2;
    for (i64 j = 0; j < have; j += LANES)
        for (i64 d = 0; d < half; d += LANES) {
            words rows[LANES];
            i64 width = half - d < LANES ? half - d : LANES;
            for (int i = 0; i < LANES; i++) {
                if (fetches) fetch(keys + (j + i + AHEAD) * row + 2 * d * bits / 8);
                rows[i] = j + i < have ? load_group(keys + (j + i) * row, dim, 2 * d, bits) : (words){0};
            }
            transpose(rows);
            for (int i = 0; i < width; i++)
                *(words_loose *)(out + j / 64 * 64 * half + (d + i) * 64 + j % 64) = rows[i];
        }
}

INLINE void pack_row_values(const int8_t *values, i64 have, i64 dim, i64 row, const int bits, pair *out,
                            int fetches) {
    for (i64 j = 0; j < have; j += 2)
        for (i64 d = 0; d < dim; d += 2 * LANES) {
            if (fetches) {
                fetch(values + (j + AHEAD) * row + d * bits / 8);
                fetch(values + (j + 1 + AHEAD) * row + d * bits / 8);
            }
            words low = load_group(values + j * row, dim, d, bits);
            words high = j + 1 < have ? load_group(values + (j + 1) * row, dim, d, bits) : (words){0};
            *(words_loose *)(out + j / 2 * dim + d) = INTERLEAVED(low, high, 0);
            if (dim - d > LANES) *(words_loose *)(out + j / 2 * dim + d + LANES) = INTERLEAVED(low, high, LANES);
        }
}

/* LANES keys, words from ``d`` on, as columns: whole ones. */
INLINE void pack_square(const uint16_t *keys, i64 dim, i64 d, pair *out, int fetches) {
    words rows[LANES];
    for (int i = 0; i < LANES; i++) {
        if (fetches) fetch((const char *)(keys + AHEAD * dim) + 4 * LANES * (d + i));
        rows[i] = *(const words_loose *)((const pair *)(keys + i * dim) + d);
    }
    transpose(rows);
    for (int i = 0; i < LANES; i++) *(words_loose *)(out + (d + i) * 64) = rows[i];
}

/* The same of ``have`` keys, or of fewer than LANES words. */
static void pack_corner(const uint16_t *keys, i64 have, i64 dim, i64 d, pair *out) {
    words rows[LANES];
    i64 width = dim / 2 - d < LANES ? dim / 2 - d : LANES;
    for (int i = 0; i < LANES; i++) {
        uint32_t some[LANES] = {0};
        if (i < have) memcpy(some, (const pair *)(keys + i * dim) + d, 4 * width);
        memcpy(&rows[i], some, sizeof some);
    }
    transpose(rows);
    for (int i = 0; i < width; i++) *(words_loose *)(out + (d + i) * 64) = rows[i];
}

INLINE void pack_bf16_keys(const uint16_t *keys, i64 have, i64 dim, pair *out, int fetches) {
    i64 half = dim / 2;
    for (i64 j = 0; j < have; j += LANES)
        for (i64 d = 0; d < half; d += LANES) {
            pair *to = out + j / 64 * 64 * half + j % 64;
            if (have - j >= LANES && half - d >= LANES) pack_square(keys + j * dim, dim, d, to, fetches);
            else pack_corner(keys + j * dim, have - j, dim, d, to);
        }
}

INLINE void pack_bf16_values(const uint16_t *values, i64 have, i64 dim, pair *out, int fetches) {
    for (i64 j = 0; j < have; j += 2)
        for (i64 d = 0; d < dim; d += 2 * LANES) {
            if (fetches) fetch(values + (j + AHEAD) * dim + d), fetch(values + (j + 1 + AHEAD) * dim + d);
            const uint16_t *at = values + j * dim + d;
            words low = load_pairs(at, dim - d), high = j + 1 < have ? load_pairs(at + dim, dim - d) : (words){0};
            *(words_loose *)(out + j / 2 * dim + d) = INTERLEAVED(low, high, 0);
            if (dim - d > LANES) *(words_loose *)(out + j / 2 * dim + d + LANES) = INTERLEAVED(low, high, LANES);
        }
}

static void pack_keys(const Attention *a, const char *keys, i64 have, pair *out, int fetches) {
    if (a->bits == 8) pack_row_keys((const int8_t *)keys, have, a->dim, a->row, 8, out, fetches);
    else if (a->bits == 4) pack_row_keys((const int8_t *)keys, have, a->dim, a->row, 4, out, fetches);
    else if (fetches) pack_bf16_keys((const uint16_t *)keys, have, a->dim, out, 1);
    else pack_bf16_keys((const uint16_t *)keys, have, a->dim, out, 0);
}

static void pack_values(const Attention *a, const char *values, i64 have, pair *out, int fetches) {
    if (a->bits == 8) pack_row_values((const int8_t *)values, have, a->dim, a->row, 8, out, fetches);
    else if (a->bits == 4) pack_row_values((const int8_t *)values, have, a->dim, a->row, 4, out, fetches);
    else if (fetches) pack_bf16_values((const uint16_t *)values, have, a->dim, out, 1);
    else pack_bf16_values((const uint16_t *)values, have, a->dim, out, 0);
}

/* Scores of a row that it does not see become -inf. first: slot of scores[0]. */
static void hide(const Attention *a, i64 row, i64 first, i64 have, i64 padded, float *scores) {
    i64 i = row / a->group, from = a->mask ? a->length - a->masked : a->length - a->n + i + 1;
    for (i64 j = from > first ? from - first : 0; j < have; j++)
        if (!a->mask || !a->mask[i * a->masked + (first + j - (a->length - a->masked))]) scores[j] = -INFINITY;
    for (i64 j = have; j < padded; j++) scores[j] = -INFINITY;
}

/* scores [padded] -> weights 2^(scale * (score - top)), with the new running maximum; totals [16] add up. keeps:
   the weights are wanted as floats too. Returns by what older sums shrink. */
INLINE float weigh(float *scores, uint16_t *weights, i64 padded, float scale, float *top, float *totals,
                   int keeps) {
    floats most = load(scores);
    for (i64 j = LANES; j < padded; j += LANES) most = larger(most, load(scores + j));
    float before = *top, now = before;
    if (exceeds(most, before)) now = largest_of(most); /* seldom: nothing else has to wait for it */
    float base = now == -INFINITY ? 0 : now;
    floats offset = splat(-base * scale), sum = splat(0);
    for (i64 j = 0; j < padded; j += LANES) {
        floats weight = exp2_of(load(scores + j) * scale + offset);
        sum += weight;
        if (keeps) store(scores + j, weight);
        store_bf16(weights + j, weight);
    }
    float shrink = before == now ? 1.0f : before == -INFINITY ? 0.0f : exp2f((before - now) * scale);
    store(totals, load(totals) * shrink + sum);
    *top = now;
    return shrink;
}

static void add_neighbours(const float *restrict from, i64 count, float *restrict to) {
    for (i64 j = 0; j < count; j++) to[j] = from[2 * j] + from[2 * j + 1];
}

/* weights [BLOCK]: what stands in them is lost. */
static void note_chunks(const Attention *a, i64 head, i64 row, i64 first, float *weights, float top) {
    i64 i = row - (a->n - a->mass_rows) * a->group, rows = a->mass_rows * a->group, from = first / a->chunk;
    if (i < 0) return;
    i64 whole = BLOCK / a->chunk, here = whole < a->chunks - from ? whole : a->chunks - from;
    float other[BLOCK], *sums = weights, *next = other;
    for (i64 count = BLOCK / 2; count >= whole; count /= 2) {
        add_neighbours(sums, count, next);
        float *swapped = sums;
        sums = next, next = swapped;
    }
    float *to = a->chunk_sums + (head * rows + i) * a->chunks + from;
    for (i64 c = 0; c < here; c++) to[c] = sums[c];
    __builtin_prefetch(to + 2 * whole, 1); /* or the next block's store holds up all that come after it */
    if (first / BLOCK < a->mass_blocks) a->tops[(head * rows + i) * a->mass_blocks + first / BLOCK] = top;
}

static size_t attention_scratch(const Attention *a) {
    size_t rows = a->rows_of_block;
    return 2 * BLOCK * a->dim * 2 + rows * (a->dim * 6 + 4 + 4 * LANES) + TILED_ROWS * BLOCK * 6 + 4096;
}

static void finish_row(const Attention *a, i64 head, i64 row, const float *sums, float total) {
    uint16_t *out = a->out + ((row / a->group * a->heads + head) * a->group + row % a->group) * a->dim;
    float by = 1.0f / total;
    for (i64 d = 0; d < a->dim; d += LANES) store_bf16(out + d, load(sums + d) * by);
}

/* One share: rows of one head over a part of the slots, and what it is computed in. */
typedef struct {
    i64 head, part, first_row, rows, plain; /* plain: slots that all rows see */
    int streamed; /* rows of one tile: a block is packed a strip at a time, all of it would crowd L1 */
    int packing_fetches; /* or else products do: whichever takes longer */
    int by_tiles; /* products of TILED_ROWS rows; what is left of a block's slots to a whole square counts as hidden */
    pair *keys, *values; /* packed: of a block, or where ``streamed`` of a strip */
    float *sums, *scores, *totals, *tops; /* [rows, D], [TILED_ROWS, BLOCK], [rows, LANES], [rows] */
    uint16_t *weights, *queries; /* as scores, [rows, D] */
    float scale;
} Share;

static void take_room(const Attention *a, Share *s, char *at) {
    i64 dim = a->dim, rows = s->rows;
    s->keys = (pair *)at, s->values = (pair *)(at += BLOCK * dim * 2);
    s->sums = (float *)(at += BLOCK * dim * 2), s->scores = (float *)(at += rows * dim * 4);
    s->totals = (float *)(at += TILED_ROWS * BLOCK * 4), s->tops = (float *)(at += rows * 4 * LANES);
    s->weights = (uint16_t *)(at += rows * 4 + (-rows * 4 & 63)), s->queries = s->weights + TILED_ROWS * BLOCK;
}

/* Tiles are as even as can be: few rows use registers badly. */
INLINE int rows_of_tile(i64 left, i64 tiles) { return (int)((left + tiles - 1) / tiles); }

/* ``have`` slots from ``first`` on folded into rows [r, r + some), of one tile. next: so many bytes from the block's
   first key and value on is what products ask for, ``lines`` at each step. */
static void fold_block(const Attention *a, const Share *s, const char *keys, const char *values, i64 first, i64 have,
                       i64 r, int some, i64 next, i64 lines) {
    int by_tiles = some == TILED_ROWS;
    i64 dim = a->dim, half = dim / 2, whole = by_tiles ? 2 * SQUARE : LANES, padded = (have + whole - 1) / whole * whole;
    for (i64 j = 0; j < have; j += 64) {
        if (by_tiles) {
            tiled(half, (const pair *)(s->queries + r * dim), half, s->keys + j * half, 64, s->scores + j, BLOCK, 0);
            continue;
        }
        const pair *packed = s->keys + (s->streamed ? 0 : j * half);
        if (s->streamed) pack_keys(a, keys + j * a->row, have - j < 64 ? have - j : 64, s->keys, s->packing_fetches);
        tile_64(some, half, (const pair *)(s->queries + r * dim), half, packed, 64, s->scores + j, BLOCK, 0,
                keys + next + j * half * lines, lines);
    }
    for (i64 i = 0; i < some; i++) {
        float *scores = s->scores + i * BLOCK, *sums = s->sums + (r + i) * dim;
        if (first + have > s->plain || have < padded) hide(a, s->first_row + r + i, first, have, padded, scores);
        float shrink = weigh(scores, s->weights + i * BLOCK, padded, s->scale, s->tops + r + i, s->totals + (r + i) * LANES,
                             a->mass != NULL);
        if (shrink != 1.0f)
            for (i64 d = 0; d < dim; d += LANES) store(sums + d, load(sums + d) * shrink);
        if (a->mass) note_chunks(a, s->head, s->first_row + r + i, first, scores, s->tops[r + i]);
    }
    if (by_tiles) {
        tiled(padded / 2, (const pair *)s->weights, BLOCK / 2, s->values, dim, s->sums + r * dim, dim, 1);
        return;
    }
    i64 strip = s->streamed ? STRIP : BLOCK;
    for (i64 j = 0; j < have; j += strip) {
        i64 deep = have - j < strip ? have - j : strip;
        if (s->streamed) pack_values(a, values + j * a->row, deep, s->values, s->packing_fetches);
        product(some, (deep + 1) / 2, (const pair *)(s->weights + j), BLOCK / 2, s->values, dim, s->sums + r * dim, dim,
                1, values + j * a->row + next, lines);
    }
}

/* A block of slots folded into all rows. */
static void fold(const Attention *a, const Share *s, i64 first, i64 have) {
    i64 at = s->head * a->stride + first * a->row, bytes = BLOCK * a->row, tiles = (s->rows + ROWS - 1) / ROWS;
    const char *keys = a->keys + at, *values = a->values + at;
    i64 next = AHEAD * a->row, lines = s->packing_fetches ? 0 : 2 * a->row / a->dim;
    if (!s->streamed) {
        pack_keys(a, keys, have, s->keys, 0);
        pack_values(a, values, have, s->values, 0);
        if (s->by_tiles) memset(s->values + (have + 1) / 2 * a->dim, 0, (BLOCK - have) / 2 * a->dim * 4);
        next = bytes, lines = (bytes + tiles * a->dim * 64 - 1) / (tiles * a->dim * 64); /* a tile has D steps */
    }
    i64 r = 0;
    if (s->by_tiles)
        for (; s->rows - r >= TILED_ROWS; r += TILED_ROWS) fold_block(a, s, keys, values, first, have, r, TILED_ROWS, 0, 0);
    tiles = (s->rows - r + ROWS - 1) / ROWS;
    for (i64 t = 0, now; t < tiles; t++, r += now, next += a->dim * lines * 64) {
        now = rows_of_tile(s->rows - r, tiles - t);
        fold_block(a, s, keys, values, first, have, r, (int)now, next, next < 2 * bytes ? lines : 0);
    }
}

static void attend(void *given, i64 item, int thread) {
    const Attention *a = given;
    i64 dim = a->dim, all = a->n * a->group, block = item / a->parts % a->row_blocks;
    Share s = {.head = item / a->parts / a->row_blocks, .part = item % a->parts,
               .scale = 1.4426950408889634f / sqrtf((float)dim)};
    /* The last rows see most: first come, longest served. */
    block = a->row_blocks - 1 - block;
    s.first_row = block * a->rows_of_block;
    s.rows = all - s.first_row < a->rows_of_block ? all - s.first_row : a->rows_of_block;
    s.streamed = s.rows <= ROWS;
    s.packing_fetches = s.rows <= PACKED_MOST || a->bits != 16;
    i64 start = s.part * PART, stop = a->parts == 1 ? a->length : start + PART < a->length ? start + PART : a->length;
    i64 seen = a->mask ? a->length : a->length - a->n + (s.first_row + s.rows - 1) / a->group + 1;
    s.plain = a->mask ? a->length - a->masked : a->length - a->n + s.first_row / a->group + 1;
    if (stop > seen) stop = seen;
    s.by_tiles = tiles_allowed && a->n > FEW && dim % (2 * SQUARE) == 0;
    take_room(a, &s, room[thread].at);
    for (i64 r = 0; r < s.rows; r++) {
        i64 row = s.first_row + r;
        memcpy(s.queries + r * dim,
               a->queries + ((row / a->group * a->heads + s.head) * a->group + row % a->group) * dim, 2 * dim);
        s.tops[r] = -INFINITY;
    }
    memset(s.sums, 0, s.rows * dim * 4);
    memset(s.totals, 0, s.rows * 4 * LANES);
    if (s.by_tiles) take_tiles();
    for (i64 first = start; first < stop; first += BLOCK)
        fold(a, &s, first, stop - first < BLOCK ? stop - first : BLOCK);
    if (s.by_tiles) leave_tiles();
    for (i64 r = 0; r < s.rows; r++) {
        float *partial = a->partial + ((s.head * all + s.first_row + r) * a->parts + s.part) * (dim + 2);
        float total = sum_of(load(s.totals + r * LANES));
        if (a->parts == 1) finish_row(a, s.head, s.first_row + r, s.sums + r * dim, total);
        else memcpy(partial, s.sums + r * dim, dim * 4);
        partial[dim] = s.tops[r];
        partial[dim + 1] = total;
    }
}

/* Of one head: its parts together, and the mass of its chunks. */
static void gather(void *given, i64 head, int thread) {
    const Attention *a = given;
    i64 dim = a->dim, all = a->n * a->group, mass_rows = a->mass_rows * a->group;
    float scale = 1.4426950408889634f / sqrtf((float)dim), *sums = room[thread].at;
    if (a->mass) memset(a->mass + head * a->chunks, 0, a->chunks * 4);
    for (i64 row = 0; row < all; row++) {
        float *parts = a->partial + (head * all + row) * a->parts * (dim + 2), top = -INFINITY, total = 0;
        for (i64 p = 0; p < a->parts; p++) {
            float own = parts[p * (dim + 2) + dim];
            top = own > top ? own : top;
        }
        memset(sums, 0, dim * 4);
        for (i64 p = 0; p < a->parts; p++) {
            const float *part = parts + p * (dim + 2);
            if (part[dim] == -INFINITY) continue;
            float by = exp2f((part[dim] - top) * scale);
            total += part[dim + 1] * by;
            for (i64 d = 0; d < dim; d += LANES) store(sums + d, load(sums + d) + load(part + d) * by);
        }
        if (a->parts > 1) finish_row(a, head, row, sums, total);
        i64 i = row - (all - mass_rows);
        if (!a->mass || i < 0) continue;
        const float *chunk_sums = a->chunk_sums + (head * mass_rows + i) * a->chunks;
        for (i64 block = 0; block < a->mass_blocks; block++) {
            float own = a->tops[(head * mass_rows + i) * a->mass_blocks + block];
            float by = own == -INFINITY ? 0 : exp2f((own - top) * scale) / total;
            i64 last = (block + 1) * BLOCK / a->chunk;
            for (i64 c = block * BLOCK / a->chunk; c < last && c < a->chunks; c++)
                a->mass[head * a->chunks + c] += chunk_sums[c] * by;
        }
    }
}

/* 0: done; 1: no memory. dim: whole vectors; with mass, chunks that fill blocks. */
static int attention(Attention *a) {
    i64 all = a->n * a->group;
    a->parts = a->n <= FEW ? (a->length + PART - 1) / PART : 1;
    a->rows_of_block = all < WIDE_ROWS || a->n <= FEW ? all : WIDE_ROWS;
    a->row_blocks = (all + a->rows_of_block - 1) / a->rows_of_block;
    a->mass_blocks = a->mass ? (a->chunks * a->chunk + BLOCK - 1) / BLOCK : 0;
    size_t partial = (size_t)a->heads * all * a->parts * (a->dim + 2);
    size_t sums = a->mass ? (size_t)a->heads * a->mass_rows * a->group * a->chunks : 0;
    size_t tops = a->mass ? (size_t)a->heads * a->mass_rows * a->group * a->mass_blocks : 0;
    static float *memory;
    static size_t size;
    if (size < partial + sums + tops) {
        free(memory);
        size = 0;
        memory = malloc((partial + sums + tops) * 4);
        if (!memory) return 1;
        size = partial + sums + tops;
    }
    if (!reserve(attention_scratch(a))) return 1;
    a->partial = memory;
    a->chunk_sums = memory + partial;
    a->tops = a->chunk_sums + sums;
    share(a->heads * a->row_blocks * a->parts, attend, a);
    if (a->parts > 1 || a->mass) share(a->heads, gather, a);
    return 0;
}
