/* A pool of threads that share out numbered items. Nobody is waited for but for an item already begun: where another
   program holds a core, the others do its share. */

#include <stdatomic.h>

#include "system.h"

typedef void (*item_fn)(void *arg, i64 item, int thread);

#define MOST_THREADS 256
#define SPINS 20000 /* while a pass runs, the next share of it comes within microseconds; then sleep */

static struct {
    Lock turn, sleep;
    Signal wake;
    _Atomic uint64_t ticket; /* generation << 32 | next item */
    _Atomic i64 done;
    _Atomic int sleeping;
    item_fn fn;
    void *arg;
    uint32_t items;
    int wanted, started;
} pool = {.turn = LOCK, .sleep = LOCK, .wake = SIGNAL, .wanted = 1};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Items of the present generation until none is left. What is read of the job is true if the ticket can still be taken:
   it changes only when all items are done, this one among them. */
static void work(int thread) {
    for (;;) {
        uint64_t ticket = atomic_load(&pool.ticket);
        item_fn fn = pool.fn;
        void *arg = pool.arg;
        uint32_t item = (uint32_t)ticket;
        if (item >= pool.items) return;
        if (!atomic_compare_exchange_weak(&pool.ticket, &ticket, ticket + 1)) continue;
        fn(arg, item, thread);
        atomic_fetch_add(&pool.done, 1);
    }
}

static void worker(int thread) {
    uint32_t seen = 0;
    for (;;) {
        int spins = 0;
        while ((uint32_t)(atomic_load(&pool.ticket) >> 32) == seen) {
            relax();
            if (++spins < SPINS) continue;
            lock(&pool.sleep);
            atomic_fetch_add(&pool.sleeping, 1);
            while ((uint32_t)(atomic_load(&pool.ticket) >> 32) == seen) wait_for(&pool.wake, &pool.sleep);
            atomic_fetch_sub(&pool.sleeping, 1);
            unlock(&pool.sleep);
        }
        seen = (uint32_t)(atomic_load(&pool.ticket) >> 32);
        if (thread < pool.wanted) work(thread);
    }
}

THREAD(worker)

static void start_threads(void) {
    while (pool.started < pool.wanted - 1) {
        if (!start_thread(pool.started + 1)) {
            pool.wanted = pool.started + 1; /* do with those there are */
            return;
        }
        pool.started++;
    }
}

/* A process that was forked has none of the threads. */
static inline void forked(void) {
    pool.started = 0;
    atomic_store(&pool.sleeping, 0);
    pool.turn = (Lock)LOCK;
    pool.sleep = (Lock)LOCK;
    pool.wake = (Signal)SIGNAL;
}

IN_CHILDREN(forked)

/* fn(arg, i, thread) for all i in [0, items); the caller takes part. The pool is the caller's: see begin. */
static void share(i64 items, item_fn fn, void *arg) {
    if (items <= 1 || pool.wanted <= 1) {
        for (i64 i = 0; i < items; i++) fn(arg, i, 0);
        return;
    }
    start_threads();
    uint64_t ticket = atomic_load(&pool.ticket);
    /* No ticket can be taken while these change: all of the last generation's are gone. */
    atomic_store(&pool.ticket, ticket | 0xffffffffu);
    pool.fn = fn;
    pool.arg = arg;
    pool.items = (uint32_t)items;
    atomic_store(&pool.done, 0);
    atomic_store(&pool.ticket, ((ticket >> 32) + 1) << 32);
    if (atomic_load(&pool.sleeping)) {
        lock(&pool.sleep);
        wake_all(&pool.wake);
        unlock(&pool.sleep);
    }
    work(0);
    for (int spins = 0; atomic_load(&pool.done) < items; spins++) {
        if (spins < SPINS) relax();
        else give_way();
    }
}

/* One pass at a time has the pool; another thread of the process waits for its turn. threads: 0 is as many as last. */
static void begin(int threads) {
    lock(&pool.turn);
    if (threads > 0) pool.wanted = threads > MOST_THREADS ? MOST_THREADS : threads;
}

static void end(void) { unlock(&pool.turn); }

static struct { void *at; size_t size; } room[MOST_THREADS];

/* So many bytes for each thread that may take part; 0: there is no memory. Before ``share``. */
static int reserve(size_t bytes) {
    for (int i = 0; i < pool.wanted; i++) {
        if (room[i].size >= bytes) continue;
        free_aligned(room[i].at);
        room[i].at = aligned(bytes);
        room[i].size = room[i].at ? bytes : 0;
        if (!room[i].at) return 0;
    }
    return 1;
}
