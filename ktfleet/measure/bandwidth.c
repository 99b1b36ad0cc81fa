/* Memory bandwidth: threads pinned to given CPUs read, then triad, memory that is bound to given NUMA nodes.

   bandwidth thp|hugetlb|off MIB SECONDS NODE:CPU,CPU,... [NODE:CPU,... ...]

   Each group has MIB of memory on NODE, first touched by its own CPUs; all groups run at once. One line of JSON: GB/s
   (10^9) of all groups together, best and median of the repetitions. Triad counts 24 bytes an element, as STREAM does.
   System calls instead of libnuma: nothing but a C compiler is needed on the host. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Of the width that the CPU has: a wider one is put on the stack by the compiler, and measures that. */
#ifdef __AVX512F__
typedef uint64_t wide __attribute__((vector_size(64)));
#else
typedef uint64_t wide __attribute__((vector_size(32)));
#endif
enum { MAX_THREADS = 1024, MAX_REPS = 4096, MIN_REPS = 5, LANES = 4, WIDE = sizeof(wide) };

struct worker { int cpu; char *begin; size_t bytes; uint64_t sum; };

static struct worker workers[MAX_THREADS];
static int threads;
static pthread_barrier_t barrier;
static double seconds, times[2][MAX_REPS];
static int reps[2];
static volatile int going;

static void fail(const char *what) {
    printf("{\"error\": \"%s: %s\"}\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void pin(int cpu) {
    cpu_set_t *set = CPU_ALLOC(cpu + 1);
    size_t size = CPU_ALLOC_SIZE(cpu + 1);
    CPU_ZERO_S(size, set);
    CPU_SET_S(cpu, size, set);
    if (sched_setaffinity(0, size, set)) fail("sched_setaffinity");
    CPU_FREE(set);
}

static uint64_t read_all(const char *begin, size_t bytes) {
    const wide *at = (const wide *)begin, *end = (const wide *)(begin + bytes);
    wide one = {0}, two = {0}, three = {0}, four = {0}, all;
    for (; at < end; at += LANES) one += at[0], two += at[1], three += at[2], four += at[3];
    uint64_t sum = 0;
    all = one + two + three + four;
    for (size_t part = 0; part < WIDE / 8; part++) sum += all[part];
    return sum;
}

static void triad(char *begin, size_t bytes) {
    size_t third = bytes / 3 / WIDE;
    wide *a = (wide *)begin, *b = a + third, *c = b + third;
    for (size_t at = 0; at < third; at++) a[at] = b[at] + 3 * c[at];
}

static void *work(void *given) {
    struct worker *w = given;
    pin(w->cpu);
    for (size_t at = 0; at < w->bytes; at += 8) *(uint64_t *)(w->begin + at) = 1;
    for (int kernel = 0; kernel < 2; kernel++) {
        pthread_barrier_wait(&barrier);
        double began = now();
        for (int rep = 0;; rep++) {
            /* One thread decides for all, between two barriers. */
            if (w == workers) going = rep < MAX_REPS && (rep < MIN_REPS || now() - began < seconds);
            pthread_barrier_wait(&barrier);
            if (!going) break;
            double start = now();
            if (kernel) triad(w->begin, w->bytes);
            else w->sum += read_all(w->begin, w->bytes);
            pthread_barrier_wait(&barrier);
            if (w == workers) times[kernel][rep] = now() - start, reps[kernel] = rep + 1;
        }
    }
    return NULL;
}

static char *allocate(const char *pages, size_t bytes, int node) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (strcmp(pages, "hugetlb") ? 0 : MAP_HUGETLB);
    size_t huge = 2 << 20;
    char *at = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at == MAP_FAILED) fail("mmap");
    at += -(uintptr_t)at % huge;
    unsigned long mask[16] = {0};
    mask[node / 64] = 1UL << node % 64;
    if (syscall(SYS_mbind, at, bytes, MPOL_BIND, mask, sizeof mask * 8, 0)) fail("mbind");
    if (!strcmp(pages, "thp")) madvise(at, bytes, MADV_HUGEPAGE);
    if (!strcmp(pages, "off")) madvise(at, bytes, MADV_NOHUGEPAGE);
    return at;
}

static size_t huge_bytes(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    size_t kib, sum = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "AnonHugePages: %zu", &kib) == 1 || sscanf(line, "Private_Hugetlb: %zu", &kib) == 1)
            sum += kib << 10;
    if (file) fclose(file);
    return sum;
}

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *name, int kernel, double bytes) {
    qsort(times[kernel], reps[kernel], sizeof(double), by_time);
    printf("\"%s\": {\"best\": %.3f, \"median\": %.3f, \"reps\": %d}, ", name, bytes / times[kernel][0] / 1e9,
           bytes / times[kernel][reps[kernel] / 2] / 1e9, reps[kernel]);
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    size_t bytes = (size_t)atol(argv[2]) << 20, all = 0, moved = 0;
    seconds = atof(argv[3]);
    for (int group = 4; group < argc; group++) {
        char *cpus = strchr(argv[group], ':');
        int first = threads;
        if (!cpus) return 2;
        for (char *cpu = strtok(cpus + 1, ","); cpu && threads < MAX_THREADS; cpu = strtok(NULL, ","))
            workers[threads++].cpu = atoi(cpu);
        if (first == threads) return 2;
        /* Whole numbers of what one step reads, and of three arrays. */
        size_t each = bytes / (threads - first) / (3 * LANES * WIDE) * (3 * LANES * WIDE);
        char *begin = allocate(argv[1], bytes, atoi(argv[group]));
        for (int t = first; t < threads; t++) {
            workers[t].begin = begin + (t - first) * each;
            workers[t].bytes = each;
            all += each;
            moved += each / 3 / WIDE * 3 * WIDE;
        }
    }
    pthread_t ids[MAX_THREADS];
    pthread_barrier_init(&barrier, NULL, threads);
    for (int t = 0; t < threads; t++)
        if ((errno = pthread_create(&ids[t], NULL, work, &workers[t]))) fail("pthread_create");
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        pthread_join(ids[t], NULL);
        sum += workers[t].sum;
    }
    size_t huge = huge_bytes();
    printf("{\"threads\": %d, ", threads);
    print("read", 0, all);
    print("triad", 1, moved);
    printf("\"huge_bytes\": %zu, \"bytes\": %zu, \"wrong\": %s}\n", huge, all,
           sum == all / 8 * reps[0] ? "false" : "true");
    return 0;
}
