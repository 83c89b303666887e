/* A decoder's pass over n new tokens in one call. See reference.py for what each step is. bfloat16 products, keys and
   values; the residual stream, norms, rotations and sums are float. */

#if defined(__linux__)
#include <sys/mman.h>
#endif
#include "threads.h"
#include "vectors.h"
#include "tiles.h"
#include "attention.h"
#include "linear.h"
#include "laws.h"
#include "chunks.h"
#include "panels.h"

typedef struct {
    Linear qkv, output, gate_up, down;
    /* Before attention and MLP, of queries and keys, and of what attention and MLP give; NULL where there is none. */
    const float *input_norm, *post_norm, *q_norm, *k_norm, *attention_norm, *mlp_norm;
    int64_t rope, query_rope; /* which of the ropes keys and queries turn by */
    int64_t whole; /* q_norm and k_norm are over all heads together */
} Layer;

typedef struct { /* a layer's keys and values, and what this pass sees of them; see Attention */
    char *keys, *values;
    const uint8_t *mask;
    int64_t slots, first_slot, length, masked, row, bits, noted; /* noted: whether mass is wanted */
} Place;

typedef struct {
    const Layer *layers;
    const Linear *head;
    const float *final_norm, *cos, *sin; /* [ropes, n, D]; of sin the first half is negated */
    float *hidden; /* [n, d] */
    float *logits; /* [logits_rows, vocabulary] */
    const Place *places; /* of each layer */
    float *mass; /* [layers, H, chunks] or NULL */
    uint16_t *queries; /* [layers, n, H * G, D] where ``keeps_queries``, else [n, H * G, D] */
    uint16_t *narrow; /* [n, widest input of a product] */
    float *wide; /* [n, widest output of one of a layer] */
    int64_t num_layers, n, width, heads, group, dim, inner, mass_rows, chunk, chunks, logits_rows, keeps_queries, threads,
        gelu; /* the gate is one, not SiLU */
    float eps;
} Pass;

typedef struct {
    const Pass *pass;
    const Layer *layer;
    const Place *place;
    const float *weight, *from;
    float *into;
    uint16_t *queries;
} Step;

static float inverse_rms(const float *x, i64 width, float eps) {
    floats sum = splat(0);
    i64 i = 0;
    for (; i + LANES <= width; i += LANES) sum += load(x + i) * load(x + i);
    float rest = 0;
    for (; i < width; i++) rest += x[i] * x[i];
    return 1.0f / sqrtf((sum_of(sum) + rest) / (float)width + eps);
}

static void norm_row(void *given, i64 row, int thread) {
    const Step *s = given;
    i64 width = s->pass->width, i = 0;
    const float *x = s->from + row * width;
    uint16_t *out = s->pass->narrow + row * width;
    if (s->weight) {
        float by = inverse_rms(x, width, s->pass->eps);
        for (; i < width; i += LANES) store_bf16(out + i, load(x + i) * by * load(s->weight + i));
    } else
        for (; i < width; i += LANES) store_bf16(out + i, load(x + i));
    (void)thread;
}

/* The norm of what attention or the MLP gave is added to the stream. */
static void add_norm_row(void *given, i64 row, int thread) {
    const Step *s = given;
    i64 width = s->pass->width;
    const float *x = s->from + row * width;
    float *out = s->into + row * width;
    float by = inverse_rms(x, width, s->pass->eps);
    for (i64 i = 0; i < width; i += LANES) store(out + i, load(out + i) + load(x + i) * by * load(s->weight + i));
    (void)thread;
}

static void store_slot(char *slot, const float *x, i64 dim, int64_t bits) {
    if (bits == 8) store_row((int8_t *)slot, x, dim, 8);
    else if (bits == 4) store_row((int8_t *)slot, x, dim, 4);
    else
        for (i64 d = 0; d < dim; d += LANES) store_bf16((uint16_t *)slot + d, load(x + d));
}

static void rotate_head(const float *x, const float *cos, const float *sin, const float *norm, float by, i64 dim,
                        float *turned) {
    i64 half = dim / 2;
    float scaled[1024];
    if (norm) {
        for (i64 d = 0; d < dim; d++) scaled[d] = x[d] * by * norm[d];
        x = scaled;
    }
    for (i64 d = 0; d < half; d++) {
        turned[d] = x[d] * cos[d] + x[d + half] * sin[d];
        turned[d + half] = x[d + half] * cos[d + half] + x[d] * sin[d + half];
    }
}

static void place_row(void *given, i64 row, int thread) {
    const Step *s = given;
    const Pass *p = s->pass;
    const Place *to = s->place;
    i64 dim = p->dim, asking = p->heads * p->group, slot = to->first_slot + row;
    const float *x = p->wide + row * (asking + 2 * p->heads) * dim;
    float turned[1024], by = 1;
    for (i64 h = 0; h < asking + p->heads; h++) {
        const float *norm = h < asking ? s->layer->q_norm : s->layer->k_norm, *own = x + h * dim;
        i64 first = h < asking ? 0 : asking;
        if (norm && !s->layer->whole) by = inverse_rms(own, dim, p->eps);
        else if (norm) {
            if (h == first) by = inverse_rms(own, (h < asking ? asking : p->heads) * dim, p->eps);
            norm += (h - first) * dim;
        }
        i64 at = ((h < asking ? s->layer->query_rope : s->layer->rope) * p->n + row) * dim;
        rotate_head(own, p->cos + at, p->sin + at, norm, by, dim, turned);
        if (h < asking) store_slot((char *)(s->queries + (row * asking + h) * dim), turned, dim, 16);
        else store_slot(to->keys + ((h - asking) * to->slots + slot) * to->row, turned, dim, to->bits);
    }
    for (i64 h = 0; h < p->heads; h++)
        store_slot(to->values + (h * to->slots + slot) * to->row, x + (asking + p->heads + h) * dim, dim, to->bits);
    (void)thread;
}

static void gate_row(void *given, i64 row, int thread) {
    const Step *s = given;
    i64 inner = s->pass->inner;
    const float *gate = s->pass->wide + row * 2 * inner, *up = gate + inner;
    uint16_t *out = s->pass->narrow + row * inner;
    for (i64 i = 0; i < inner; i += LANES) {
        floats g = load(gate + i), z = s->pass->gelu ? (g + g * g * g * 0.044715f) * 1.5957691f : g;
        floats bounded = larger(z * 1.4426950f, splat(-120)); /* where z is lower still, the result is zero anyway */
        store_bf16(out + i, g / (1.0f + exp2_of(-bounded)) * load(up + i));
    }
    (void)thread;
}

/* Rows by themselves where there are many of them. */
static void rows(i64 n, item_fn fn, Step *step) {
    if (n >= 4) share(n, fn, step);
    else
        for (i64 i = 0; i < n; i++) fn(step, i, 0);
}

/* A product on n rows whose result, or its norm, is added to the stream. */
static int add_product(const Linear *by, const uint16_t *x, const float *norm, float *stream, i64 n, Step *s) {
    if (!norm) return linear(by, x, stream, n, 1);
    if (linear(by, x, s->pass->wide, n, 0)) return 1;
    s->from = s->pass->wide;
    s->into = stream;
    s->weight = norm;
    rows(n, add_norm_row, s);
    return 0;
}

static int run_layer(const Pass *p, i64 index, Step *s, int last) {
    const Layer *layer = s->layer;
    const Place *at = s->place;
    i64 kept = last ? p->logits_rows : p->n, dropped = p->n - kept, asking = p->heads * p->group;
    s->from = p->hidden;
    s->weight = layer->input_norm;
    rows(p->n, norm_row, s);
    if (linear(&layer->qkv, p->narrow, p->wide, p->n, 0)) return 1;
    rows(p->n, place_row, s);
    if (!kept) return 0; /* its keys and values are all that was wanted */
    int64_t noted = p->mass && at->noted;
    Attention a = {.queries = s->queries, .keys = at->keys, .values = at->values, .out = p->narrow, .mask = at->mask,
                   .mass = noted ? p->mass + index * p->heads * p->chunks : NULL, .stride = at->slots * at->row,
                   .row = at->row, .bits = at->bits, .n = p->n, .heads = p->heads, .group = p->group, .dim = p->dim,
                   .length = at->length, .masked = at->masked, .mass_rows = noted ? p->mass_rows : 0,
                   .chunk = noted ? p->chunk : 1, .chunks = noted ? p->chunks : 0};
    if (attention(&a)) return 1;
    float *stream = p->hidden + dropped * p->width;
    if (add_product(&layer->output, p->narrow + dropped * asking * p->dim, layer->attention_norm, stream, kept, s)) return 1;
    s->from = stream;
    s->weight = layer->post_norm;
    rows(kept, norm_row, s);
    if (linear(&layer->gate_up, p->narrow, p->wide, kept, 0)) return 1;
    rows(kept, gate_row, s);
    return add_product(&layer->down, p->narrow, layer->mlp_norm, stream, kept, s);
}

/* 0: done; 1: no memory, what was staged is void */
EXPORT int triforce_pass(const Pass *p) {
    begin((int)p->threads);
    int failed = 0;
    for (i64 index = 0; index < p->num_layers && !failed; index++) {
        Step step = {.pass = p, .layer = p->layers + index, .place = p->places + index,
                     .queries = p->queries + (p->keeps_queries ? index * p->n * p->heads * p->group * p->dim : 0)};
        failed = run_layer(p, index, &step, index == p->num_layers - 1);
    }
    if (!failed && p->logits_rows) {
        Step step = {.pass = p, .weight = p->final_norm, .from = p->hidden + (p->n - p->logits_rows) * p->width};
        rows(p->logits_rows, norm_row, &step);
        failed = linear(p->head, p->narrow, p->logits, p->logits_rows, 0);
    }
    end();
    return failed;
}

EXPORT int triforce_attention(Attention *a, int64_t threads) {
    begin((int)threads);
    int failed = attention(a);
    end();
    return failed;
}

EXPORT int triforce_linear(const Linear *l, const uint16_t *x, float *y, int64_t n, int64_t threads) {
    begin((int)threads);
    int failed = linear(l, x, y, n, 0);
    end();
    return failed;
}

EXPORT int triforce_laws(Laws *a, int64_t rows, int64_t threads) {
    begin((int)threads);
    int failed = laws(a, rows);
    end();
    return failed;
}

/* Memory that every pass reads from end to end, in large pages where the system has them: fewer of its addresses have to
   be looked up. What it cannot do it leaves. */
EXPORT void triforce_settle(char *at, int64_t bytes) {
#if defined(__linux__)
    const uintptr_t page = 2 << 20, first = ((uintptr_t)at + page - 1) & ~(page - 1);
    const uintptr_t last = ((uintptr_t)at + (uintptr_t)bytes) & ~(page - 1);
    if (last > first) madvise((void *)first, last - first, 25 /* MADV_COLLAPSE */);
#else
    (void)at, (void)bytes;
#endif
}

/* These two belong to the pass before them, and take its threads: torch has a single one meanwhile. */
EXPORT int triforce_heaviest(Heaviest *a, int64_t rows) {
    begin(0);
    int failed = heaviest(a, rows);
    end();
    return failed;
}

EXPORT int triforce_panels(Panels *a, int64_t threads) {
    begin((int)threads);
    share((a->rows + PANEL - 1) / PANEL, fill_panel, a);
    end();
    return 0;
}

EXPORT int triforce_gather(Gathering *a, int64_t heads) {
    begin(0);
    share(heads, gather_head, a);
    end();
    return 0;
}
