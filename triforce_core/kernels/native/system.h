/* Locks, threads and memory by their names on this system. Windows has its own, so that clang needs no more there than
   the system's headers. */

#include <stdint.h>
#include <stdlib.h>

typedef int64_t i64; /* long has 32 bits on Windows */

#if defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#include <malloc.h>
#include <windows.h>
#undef far /* of pointers, in the days of 16 bits */
#undef near
#undef FAR

#define EXPORT __declspec(dllexport)
#define LOCK SRWLOCK_INIT
#define SIGNAL CONDITION_VARIABLE_INIT
typedef SRWLOCK Lock;
typedef CONDITION_VARIABLE Signal;

static inline void lock(Lock *l) { AcquireSRWLockExclusive(l); }
static inline void unlock(Lock *l) { ReleaseSRWLockExclusive(l); }
static inline void wait_for(Signal *s, Lock *l) { SleepConditionVariableSRW(s, l, INFINITE, 0); }
static inline void wake_all(Signal *s) { WakeAllConditionVariable(s); }
static inline void give_way(void) { SwitchToThread(); }

static DWORD WINAPI begin_thread(void *number);

/* 0: there is none */
static int start_thread(int number) {
    HANDLE thread = CreateThread(NULL, 0, begin_thread, (void *)(intptr_t)number, 0, NULL);
    return thread && CloseHandle(thread);
}

/* NULL: no memory */
static void *aligned(size_t bytes) { return _aligned_malloc(bytes, 64); }
static void free_aligned(void *at) { _aligned_free(at); }

#define THREAD(run)                                                                                                    \
    static DWORD WINAPI begin_thread(void *number) {                                                                   \
        run((int)(intptr_t)number);                                                                                    \
        return 0;                                                                                                      \
    }
#define IN_CHILDREN(run) /* no process is forked */

#else

#include <pthread.h>
#include <sched.h>

#define EXPORT
#define LOCK PTHREAD_MUTEX_INITIALIZER
#define SIGNAL PTHREAD_COND_INITIALIZER
typedef pthread_mutex_t Lock;
typedef pthread_cond_t Signal;

static inline void lock(Lock *l) { pthread_mutex_lock(l); }
static inline void unlock(Lock *l) { pthread_mutex_unlock(l); }
static inline void wait_for(Signal *s, Lock *l) { pthread_cond_wait(s, l); }
static inline void wake_all(Signal *s) { pthread_cond_broadcast(s); }
static inline void give_way(void) { sched_yield(); }

static void *begin_thread(void *number);

/* 0: there is none */
static int start_thread(int number) {
    pthread_t thread;
    return !pthread_create(&thread, NULL, begin_thread, (void *)(intptr_t)number) && !pthread_detach(thread);
}

/* NULL: no memory */
static void *aligned(size_t bytes) {
    void *at;
    return posix_memalign(&at, 64, bytes) ? NULL : at;
}
static void free_aligned(void *at) { free(at); }

#define THREAD(run)                                                                                                    \
    static void *begin_thread(void *number) {                                                                          \
        run((int)(intptr_t)number);                                                                                    \
        return NULL;                                                                                                   \
    }
#define IN_CHILDREN(run)                                                                                               \
    __attribute__((constructor)) static void loaded(void) { pthread_atfork(NULL, NULL, run); }

#endif
