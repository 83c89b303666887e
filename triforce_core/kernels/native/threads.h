/* A pool of threads that share out numbered items. Nobody is waited for but for an item already begun: where another
   program holds a core, the others do its share. */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

typedef void (*item_fn)(void *arg, long item, int thread);

#define MOST_THREADS 256
#define SPINS 20000 /* while a pass runs, the next share of it comes within microseconds; then sleep */

static struct {
    pthread_mutex_t turn, sleep;
    pthread_cond_t wake;
    _Atomic uint64_t ticket; /* generation << 32 | next item */
    _Atomic long done;
    _Atomic int sleeping;
    item_fn fn;
    void *arg;
    uint32_t items;
    int wanted, started;
} pool = {.turn = PTHREAD_MUTEX_INITIALIZER, .sleep = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER,
          .wanted = 1};

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

static void *worker(void *number) {
    int thread = (int)(intptr_t)number;
    uint32_t seen = 0;
    for (;;) {
        int spins = 0;
        while ((uint32_t)(atomic_load(&pool.ticket) >> 32) == seen) {
            relax();
            if (++spins < SPINS) continue;
            pthread_mutex_lock(&pool.sleep);
            atomic_fetch_add(&pool.sleeping, 1);
            while ((uint32_t)(atomic_load(&pool.ticket) >> 32) == seen) pthread_cond_wait(&pool.wake, &pool.sleep);
            atomic_fetch_sub(&pool.sleeping, 1);
            pthread_mutex_unlock(&pool.sleep);
        }
        seen = (uint32_t)(atomic_load(&pool.ticket) >> 32);
        if (thread < pool.wanted) work(thread);
    }
    return NULL;
}

static void start_threads(void) {
    while (pool.started < pool.wanted - 1) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&thread, &attributes, worker, (void *)(intptr_t)(pool.started + 1))) {
            pool.wanted = pool.started + 1; /* do with those there are */
            return;
        }
        pool.started++;
    }
}

/* A process that was forked has none of the threads. */
static void forked(void) {
    pool.started = 0;
    atomic_store(&pool.sleeping, 0);
    pthread_mutex_init(&pool.turn, NULL);
    pthread_mutex_init(&pool.sleep, NULL);
    pthread_cond_init(&pool.wake, NULL);
}

/* fn(arg, i, thread) for all i in [0, items); the caller takes part. The pool is the caller's: see begin. */
static void share(long items, item_fn fn, void *arg) {
    if (items <= 1 || pool.wanted <= 1) {
        for (long i = 0; i < items; i++) fn(arg, i, 0);
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
        pthread_mutex_lock(&pool.sleep);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.sleep);
    }
    work(0);
    for (int spins = 0; atomic_load(&pool.done) < items; spins++) {
        if (spins < SPINS) relax();
        else sched_yield();
    }
}

/* One pass at a time has the pool; another thread of the process waits for its turn. threads: 0 is as many as last. */
static void begin(int threads) {
    pthread_mutex_lock(&pool.turn);
    if (threads > 0) pool.wanted = threads > MOST_THREADS ? MOST_THREADS : threads;
}

static void end(void) { pthread_mutex_unlock(&pool.turn); }

static struct { void *at; size_t size; } room[MOST_THREADS];

/* So many bytes for each thread that may take part; 0: there is no memory. Before ``share``. */
static int reserve(size_t bytes) {
    for (int i = 0; i < pool.wanted; i++) {
        if (room[i].size >= bytes) continue;
        free(room[i].at);
        room[i].size = 0;
        if (posix_memalign(&room[i].at, 64, bytes)) {
            room[i].at = NULL;
            return 0;
        }
        room[i].size = bytes;
    }
    return 1;
}
