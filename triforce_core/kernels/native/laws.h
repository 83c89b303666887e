/* From logits to distributions, without sorting. What top-k and top-p leave is all numbers from a bar on. The bar is
   searched for by halving: bits of positive floats are in the order of the floats. */

typedef struct {
    const float *logits;
    float *out;
    i64 width, top_k;
    float temperature;
    double top_p;
} Laws;

#define SUMMED 4096 /* floats: more of them add up to too great an error */

/* How many of x [n] are the bar or more, or their sum; n is a multiple of LANES. */
static double from_bar(const float *x, i64 n, float bar, int by_mass) {
    double found = 0;
    for (i64 first = 0; first < n; first += SUMMED) {
        floats sums = splat(0), limit = splat(bar);
        ints counts = {0};
        for (i64 i = first; i < n && i < first + SUMMED; i += LANES) {
            floats v = load(x + i);
            ints is = v >= limit;
            counts -= is;
            sums += (floats)((ints)v & is);
        }
        for (int i = 0; i < LANES; i++) found += by_mass ? (double)sums[i] : (double)counts[i];
    }
    return found;
}

/* The greatest bar from which on there is as much as wanted, none below the lowest. highest: no number is greater */
static float bar_of(const float *x, i64 n, float lowest, float highest, double wanted, int by_mass) {
    uint32_t low, high;
    memcpy(&low, &lowest, 4);
    memcpy(&high, &highest, 4);
    high++;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        float bar;
        memcpy(&bar, &middle, 4);
        if (from_bar(x, n, bar, by_mass) >= wanted) low = middle;
        else high = middle;
    }
    float bar;
    memcpy(&bar, &low, 4);
    return bar;
}

INLINE floats some_of(const float *x, i64 count, float rest) {
    if (count >= LANES) return load(x);
    floats v = splat(rest);
    for (i64 i = 0; i < count; i++) v[i] = x[i];
    return v;
}

INLINE void store_some(float *to, floats v, i64 count) {
    if (count >= LANES) store(to, v);
    else for (i64 i = 0; i < count; i++) to[i] = v[i];
}

static void law(void *given, i64 row, int thread) {
    const Laws *a = given;
    i64 width = a->width;
    const float *x = a->logits + row * width;
    float *out = a->out + row * width, *kept = room[thread].at, top = -INFINITY;
    floats best = splat(-INFINITY);
    for (i64 i = 0; i < width; i += LANES) best = larger(best, some_of(x + i, width - i, -INFINITY));
    for (int i = 0; i < LANES; i++) top = best[i] > top ? best[i] : top;
    float by = 1.44269504f / a->temperature;
    double mass = 0;
    for (i64 first = 0; first < width; first += SUMMED) {
        floats sums = splat(0);
        for (i64 i = first; i < width && i < first + SUMMED; i += LANES) {
            floats v = exp2_of((some_of(x + i, width - i, -INFINITY) - splat(top)) * splat(by));
            store_some(out + i, v, width - i);
            sums += v;
        }
        for (int i = 0; i < LANES; i++) mass += sums[i];
    }
    float bar = 0;
    if (a->top_k < width || a->top_p < 1) {
        /* All that are smaller have less mass together than top-p leaves out. */
        float lowest = a->top_k < width ? 0 : (float)((1 - a->top_p) * mass / width);
        i64 n = 0;
        for (i64 i = 0; i < width; i++) {
            kept[n] = out[i];
            n += out[i] > lowest;
        }
        while (n % LANES) kept[n++] = -1;
        bar = lowest;
        if (a->top_k < width) {
            bar = bar_of(kept, n, bar, 1, (double)a->top_k, 0);
            mass = from_bar(kept, n, bar, 1);
        }
        if (a->top_p < 1) bar = bar_of(kept, n, bar, 1, a->top_p * mass, 1);
        mass = from_bar(kept, n, bar, 1);
    }
    floats limit = splat(bar), share = splat((float)(1 / mass));
    for (i64 i = 0; i < width; i += LANES) {
        floats v = some_of(out + i, width - i, 0);
        ints stays = v >= limit;
        store_some(out + i, (floats)((ints)(v * share) & stays), width - i);
    }
}

/* 0: done; 1: no memory */
static int laws(Laws *a, i64 rows) {
    if (!reserve((a->width + LANES) * 4)) return 1;
    share(rows, law, a);
    return 0;
}
