// Keeps the first visible card busy and checks what it computes: gpu SECONDS
//
// Prints one line of JSON. Exit 0: every number was right; 1: a CUDA call failed (its text on stderr);
// 2: a wrong number. Built for one real architecture only (code=sm_..., no PTX), so that it runs on that
// card or not at all.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define MUST(call)                                                                   \
    do {                                                                             \
        cudaError_t status = (call);                                                 \
        if (status != cudaSuccess) {                                                 \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));     \
            std::exit(1);                                                            \
        }                                                                            \
    } while (0)

static const uint32_t FACTOR = 1664525u, TERM = 1013904223u;  // Numerical Recipes' generator
static const int ROUNDS = 4096;
static const size_t COUNT = size_t(1) << 24;  // 64 MiB of numbers

__global__ void step(uint32_t *numbers, size_t count, int rounds, uint32_t *architecture) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i >= count) return;
    uint32_t x = numbers[i];
    for (int round = 0; round < rounds; round++) x = x * 1664525u + 1013904223u;
    numbers[i] = x;
#ifdef __CUDA_ARCH__
    if (i == 0) *architecture = __CUDA_ARCH__;
#endif
}

// ROUNDS steps of the generator are one step with another factor and term: so the host checks every number.
static size_t wrong(const uint32_t *numbers) {
    uint32_t factor = 1, term = 0;
    for (int round = 0; round < ROUNDS; round++) {
        factor *= FACTOR;
        term = term * FACTOR + TERM;
    }
    size_t bad = 0;
    for (size_t i = 0; i < COUNT; i++) bad += numbers[i] != uint32_t(i) * factor + term;
    return bad;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? std::atof(argv[1]) : 2.0;
    size_t bytes = COUNT * sizeof(uint32_t);
    uint32_t *in, *out, *numbers, *architecture, seen = 0;
    MUST(cudaMallocHost(&in, bytes));
    MUST(cudaMallocHost(&out, bytes));
    MUST(cudaMalloc(&numbers, bytes));
    MUST(cudaMalloc(&architecture, sizeof seen));
    MUST(cudaMemset(architecture, 0, sizeof seen));
    for (size_t i = 0; i < COUNT; i++) in[i] = uint32_t(i);
    cudaEvent_t before, after;
    MUST(cudaEventCreate(&before));
    MUST(cudaEventCreate(&after));
    auto start = std::chrono::steady_clock::now();
    auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
    int launches = 0;
    float best = 1e9f;  // milliseconds of the fastest copy to the card
    do {
        float copy = 0;
        MUST(cudaEventRecord(before));
        MUST(cudaMemcpyAsync(numbers, in, bytes, cudaMemcpyHostToDevice));
        MUST(cudaEventRecord(after));
        step<<<unsigned(COUNT / 256), 256>>>(numbers, COUNT, ROUNDS, architecture);
        MUST(cudaGetLastError());
        MUST(cudaMemcpyAsync(out, numbers, bytes, cudaMemcpyDeviceToHost));
        MUST(cudaDeviceSynchronize());
        MUST(cudaEventElapsedTime(&copy, before, after));
        if (copy < best) best = copy;
        launches++;
    } while (elapsed() < seconds);
    MUST(cudaMemcpy(&seen, architecture, sizeof seen, cudaMemcpyDeviceToHost));
    size_t bad = wrong(out);
    std::printf("{\"wrong\": %zu, \"launches\": %d, \"seconds\": %.2f, \"architecture\": %u, \"to_card_gb_s\": %.1f}\n",
                bad, launches, elapsed(), seen, bytes / (best * 1e6));
    return bad ? 2 : 0;
}
