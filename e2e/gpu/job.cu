// A job for one of NVIDIA's GPUs, for e2e/gpu/check. It keeps to the rules of docs/applications.md.
//
// Its input holds a seed and a number of rounds. In each round 2^18 threads go on with a sequence of their own,
// x := 6364136223846793005 x + 1442695040888963407 modulo 2^64, by 2^16 steps; the output is the sum of where all of
// them are in the end, which can be reckoned without a GPU. It keeps a checkpoint after each round, and leaves when the
// client says so.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

// Programs that link BOINC's library hold such a mark. By it, clients know in which way to tell them something.
static const char *const SPEAKS = "API_VERSION_7.27.0";
static const int THREADS = 1 << 18, STEPS = 1 << 16;

__global__ void go_on(uint64_t *x) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t value = x[at];
    for (int step = 0; step < STEPS; step++) value = value * 6364136223846793005ull + 1442695040888963407ull;
    x[at] = value;
}

static std::string all_of(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// What stands between two marks, or what is given instead.
static std::string between(const std::string &text, const std::string &from, const std::string &to, const std::string &or_else) {
    auto begin = text.find(from), end = text.find(to);
    if (begin == std::string::npos || end == std::string::npos) return or_else;
    return text.substr(begin + from.size(), end - begin - from.size());
}

// The file behind a name.
static std::string place(const std::string &name) {
    return between(all_of(name), "<soft_link>", "</soft_link>", name);
}

static void check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    std::cerr << what << ": " << cudaGetErrorString(error) << std::endl;
    exit(3);
}

int main(int count, char **arguments) {
    if (count == 2 && !strcmp(arguments[1], "--version")) return puts(SPEAKS) < 0;
    std::string init = all_of("init_data.xml");
    int device = atoi(between(init, "<gpu_device_num>", "</gpu_device_num>", "-1").c_str());
    for (int at = 1; at + 1 < count; at++)
        if (!strcmp(arguments[at], "--device")) device = atoi(arguments[at + 1]);
    check(cudaSetDevice(device), "this device cannot be used");
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device), "nothing is known of this device");
    std::cerr << "device " << device << " is " << properties.name << " at " << properties.pciBusID << std::endl;

    std::ifstream input(place("in"));
    uint64_t seed = 0;
    int rounds = 0, done = 0;
    input >> seed >> rounds;
    std::vector<uint64_t> x(THREADS);
    std::string kept = all_of("checkpoint");
    if (kept.size() == sizeof done + THREADS * sizeof x[0]) {
        memcpy(&done, kept.data(), sizeof done);
        memcpy(x.data(), kept.data() + sizeof done, THREADS * sizeof x[0]);
        std::cerr << "goes on after round " << done << std::endl;
    } else {
        for (int at = 0; at < THREADS; at++) x[at] = seed + at;
    }
    uint64_t *there;
    check(cudaMalloc(&there, THREADS * sizeof x[0]), "there is no memory");
    while (done < rounds) {
        check(cudaMemcpy(there, x.data(), THREADS * sizeof x[0], cudaMemcpyHostToDevice), "nothing gets there");
        go_on<<<THREADS / 256, 256>>>(there);
        check(cudaGetLastError(), "it does not start");
        check(cudaMemcpy(x.data(), there, THREADS * sizeof x[0], cudaMemcpyDeviceToHost), "nothing comes back");
        done++;
        {
            std::ofstream checkpoint("checkpoint.new", std::ios::binary);
            checkpoint.write((const char *)&done, sizeof done);
            checkpoint.write((const char *)x.data(), THREADS * sizeof x[0]);
        }
        rename("checkpoint.new", "checkpoint");
        if (all_of("boinc_mmap_file").find("<quit/>") != std::string::npos) {
            std::cerr << "leaves after round " << done << std::endl;
            return 0;
        }
    }
    uint64_t sum = 0;
    for (uint64_t value : x) sum += value;
    std::ofstream(place("out")) << "sum=" << sum << std::endl;
    std::ofstream("boinc_finish_called") << 0 << std::endl;
    return 0;
}
