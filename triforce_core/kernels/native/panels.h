/* Weights put into panels, once, when they are loaded: see linear.h. */

typedef struct {
    const char *from; /* [rows, count] */
    char *to; /* of items, [panels, count, PANEL]; of steps, [panels, count / 8, PANEL * bits] */
    int64_t rows, count, size; /* size: bytes of an item, 1, 2 or 4 */
    int64_t bits, least; /* of steps of 4, 5 or 6 bits, 8 to an item of 8 bytes: the least one becomes 0 */
} Panels;

#define STRETCH 64 /* items of a row that are taken at once */

INLINE void items_in_panel(const Panels *a, i64 panel, const i64 size) {
    i64 kept = a->rows - panel * PANEL;
    const char *from = a->from + panel * PANEL * a->count * size;
    char *to = a->to + panel * PANEL * a->count * size;
    if (kept < PANEL) memset(to, 0, (size_t)(PANEL * a->count * size));
    else kept = PANEL;
    for (i64 first = 0; first < a->count; first += STRETCH) {
        i64 last = first + STRETCH < a->count ? first + STRETCH : a->count;
        for (i64 o = 0; o < kept; o++)
            for (i64 i = first; i < last; i++)
                memcpy(to + (i * PANEL + o) * size, from + (o * a->count + i) * size, (size_t)size);
    }
}

/* Eight numbers, a byte each: the lowest four bits of those two apart side by side, in the order of linear.h. */
INLINE uint32_t lowest_in_panel(uint64_t numbers) {
    uint64_t low = numbers & 0x0f0f0f0f0f0f0f0fu;
    uint32_t joined[2];
    for (int half = 0; half < 2; half++, low >>= 32) joined[half] = ((uint32_t)low & 0xffff) | (uint32_t)low >> 16 << 4;
    joined[0] &= 0xffff, joined[1] &= 0xffff;
    return (joined[0] & 0xff) | (joined[1] & 0xff) << 8 | (joined[0] & 0xff00) << 8 | (joined[1] & 0xff00) << 16;
}

INLINE void steps_in_panel(const Panels *a, i64 panel, const int bits) {
    const int above = bits - 4, run = above ? PANEL * above / 4 : 1; /* run: outputs whose upper bits lie side by side */
    const uint64_t add = 0x0101010101010101u * (uint64_t)-a->least, top = 0x8080808080808080u;
    i64 items = a->count / 8, kept = a->rows - panel * PANEL < PANEL ? a->rows - panel * PANEL : PANEL;
    const char *from = a->from + panel * PANEL * a->count;
    char *to = a->to + panel * items * PANEL * bits;
    for (i64 first = 0; first < items; first += STRETCH) {
        i64 last = first + STRETCH < items ? first + STRETCH : items;
        for (i64 o = 0; o < PANEL; o++)
            for (i64 j = first; j < last; j++) {
                uint64_t numbers = 0;
                char *at = to + j * PANEL * bits;
                if (o < kept) {
                    memcpy(&numbers, from + o * a->count + 8 * j, 8);
                    numbers = ((numbers & ~top) + add) ^ (numbers & top);
                }
                uint32_t low = lowest_in_panel(numbers);
                memcpy(at + 4 * o, &low, 4);
                if (!above) continue;
                uint64_t high = numbers >> 4 & 0x0303030303030303u;
                uint32_t joined = 0;
                for (int k = 0; k < 4; k++, high >>= 16) joined |= (uint32_t)(high & 0xffff) << k * above;
                uint8_t *upper = (uint8_t *)at + 4 * PANEL + o % run * 4;
                i64 turn = o / run; /* of those that share a place, by bytes, and with one bit by halves of them */
                i64 byte = above == 2 ? turn : turn / 2;
                for (int e = 0; e < 2; e++) {
                    uint8_t bits_of = (uint8_t)(joined >> 8 * e);
                    if (above == 2 || turn % 2 == 0) upper[2 * e + byte] = bits_of;
                    else upper[2 * e + byte] |= (uint8_t)(bits_of << 4);
                }
            }
    }
}

static void fill_panel(void *given, i64 panel, int thread) {
    const Panels *a = given;
    (void)thread;
    switch (a->bits * 16 + a->size) {
        case 1: items_in_panel(a, panel, 1); break;
        case 2: items_in_panel(a, panel, 2); break;
        case 4: items_in_panel(a, panel, 4); break;
        case 4 * 16: steps_in_panel(a, panel, 4); break;
        case 5 * 16: steps_in_panel(a, panel, 5); break;
        default: steps_in_panel(a, panel, 6);
    }
}
