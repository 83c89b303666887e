/* Which chunks of a cache weigh most, and copies of chunks side by side. */

typedef struct {
    const float *scores; /* rows of ``count``, ``stride`` floats apart; none is negative */
    int64_t *chosen; /* [rows, wanted], ascending */
    int64_t stride, count, wanted; /* wanted <= count */
} Heaviest;

typedef struct {
    char *to;
    const char *from; /* of heads, so many bytes apart */
    const int64_t *chunks; /* [heads, k] */
    int64_t to_stride, from_stride, k, run; /* run: bytes of a chunk */
} Gathering;

#define SOON 3 /* chunks: asked for so many ahead of their use */

static void choose_row(void *given, i64 row, int thread) {
    const Heaviest *a = given;
    const float *x = a->scores + row * a->stride;
    float *kept = room[thread].at;
    floats most = splat(0);
    i64 n = a->count, found = 0;
    memcpy(kept, x, n * 4);
    while (n % LANES) kept[n++] = -1;
    for (i64 i = 0; i < n; i += LANES) most = larger(most, load(kept + i));
    float bar = bar_of(kept, n, 0, largest_of(most), (double)a->wanted, 0);
    float below = bar > 0 ? nextafterf(bar, 0) : -0.5f;
    ints above = {0};
    for (i64 i = 0; i < n; i += LANES) above -= load(kept + i) > splat(bar);
    i64 level = a->wanted; /* so many of those at the bar, the first ones */
    for (int i = 0; i < LANES; i++) level -= above[i];
    int64_t *chosen = a->chosen + row * a->wanted;
    for (i64 first = 0; first < n; first += LANES) {
        if (!exceeds(load(kept + first), below)) continue;
        for (i64 i = first; i < first + LANES && found < a->wanted; i++)
            if (kept[i] > bar || (kept[i] == bar && level-- > 0)) chosen[found++] = i;
    }
    while (found < a->wanted) chosen[found++] = 0; /* only where some are not numbers */
}

static void gather_head(void *given, i64 head, int thread) {
    const Gathering *a = given;
    const int64_t *chunks = a->chunks + head * a->k;
    const char *from = a->from + head * a->from_stride;
    char *to = a->to + head * a->to_stride;
    for (i64 i = 0; i < a->k; i++) {
        if (i + SOON < a->k)
            for (i64 at = 0; at < a->run; at += 64) __builtin_prefetch(from + chunks[i + SOON] * a->run + at);
        memcpy(to + i * a->run, from + chunks[i] * a->run, a->run);
    }
    (void)thread;
}

/* 0: done; 1: no memory */
static int heaviest(Heaviest *a, i64 rows) {
    if (!reserve((a->count + LANES) * 4)) return 1;
    share(rows, choose_row, a);
    return 0;
}
