// Choice of instruction set and frame length, twiddles, threads. The arithmetic is in kernel.inl.

#include "toeplitz.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "kernel.h"

namespace tnn {
namespace {

bool supported(const Kernel &kernel) {
#if defined(TNN_X86)
    if (&kernel == &avx512_kernel) return __builtin_cpu_supports("avx512f");
    if (&kernel == &avx2_kernel) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return &kernel == &portable_kernel;
}

const Kernel &choose_kernel() {
    static const Kernel *const all[] = {
#if defined(TNN_X86)
        &avx512_kernel, &avx2_kernel,
#endif
        &portable_kernel};
    const char *wanted = std::getenv("TNN_NATIVE_ISA");
    for (const Kernel *kernel : all)
        if (wanted && !std::strcmp(wanted, kernel->name) && supported(*kernel)) return *kernel;
    for (const Kernel *kernel : all)
        if (supported(*kernel)) return *kernel;
    return portable_kernel;
}

const Kernel &active_kernel() {
    static const Kernel &kernel = choose_kernel();
    return kernel;
}

// The weights r, r^2, r^3 of every node of the transform's tree: r is a fourth root of the node's constant, which is i at
// the root and r, -r, ir, -ir for its children. The tree is the same for every length, cut at another depth.
class Twiddles {
   public:
    // Levels 0 .. levels-1, valid for the life of the process.
    const float *get(int levels) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (levels > levels_) {
            tables_.push_back(make(levels));  // an older, shorter table may be in use elsewhere: it is kept
            levels_ = levels;
        }
        return tables_.back().get();
    }

   private:
    static std::unique_ptr<float[]> make(int levels) {
        const double pi = 3.14159265358979323846;
        const int64_t nodes = ((int64_t(1) << (2 * levels)) - 1) / 3;
        std::unique_ptr<float[]> table(new float[6 * nodes]);
        std::vector<double> angles = {pi / 2}, children;
        float *entry = table.get();
        for (int level = 0; level < levels; level++) {
            children.clear();
            for (double angle : angles) {
                const double root = angle / 4;
                for (int power = 1; power <= 3; power++) {
                    *entry++ = float(std::cos(power * root));
                    *entry++ = float(std::sin(power * root));
                }
                for (double turn : {0.0, pi, pi / 2, 3 * pi / 2}) children.push_back(root + turn);
            }
            angles.swap(children);
        }
        return table;
    }

    std::mutex mutex_;
    std::vector<std::unique_ptr<float[]>> tables_;
    int levels_ = 0;
};

const float *twiddles_for(const Frames &frames) {
    static Twiddles twiddles;
    return twiddles.get((frames.log2_half + 1) / 2);
}

// The frame length with the least work over all rows, one transform of the kernel included. False: too long for us.
bool choose_frames(const tnn_problem &p, Frames *best) {
    double least = 0;
    bool found = false;
    for (int log2 = min_log2_half; log2 <= max_log2_half; log2++) {
        const int64_t length = int64_t(2) << log2, block = length - p.lags + 1;
        if (block <= 0) continue;
        const int64_t blocks = (p.n + block - 1) / block;
        // A frame beyond the second-level cache pays for its passes through the third.
        const double passes = log2 + (log2 > 12 ? 4 : 2);
        const double work = (2.0 * double(blocks) * double(p.rows) + 1) * double(length) * passes;
        if (!found || work < least) {
            *best = {log2, block, blocks};
            least = work;
            found = true;
        }
        if (blocks == 1) break;
    }
    return found;
}

// Memory for one worker, aligned to cache lines.
struct Free {
    void operator()(void *p) const { std::free(p); }
};
using Scratch = std::unique_ptr<float, Free>;

Scratch allocate(int64_t floats) {
    const size_t bytes = (size_t(floats) * sizeof(float) + 63) / 64 * 64;
    return Scratch(static_cast<float *>(std::aligned_alloc(64, bytes)));
}

// Calls work(task, scratch) for every task on up to `threads` threads, this one included. The threads live no longer
// than the call: nothing to inherit across a fork, nothing to share between callers. Each task writes outputs of its own,
// so results do not depend on who takes it.
template <class Work>
int for_each_task(int64_t tasks, int threads, int64_t scratch_floats, const Work &work) {
    const int workers = int(std::max<int64_t>(1, std::min<int64_t>(threads, tasks)));
    std::vector<Scratch> scratch;
    for (int w = 0; w < workers; w++) {
        scratch.push_back(allocate(scratch_floats));
        if (!scratch.back()) return TNN_OUT_OF_MEMORY;
    }
    std::atomic<int64_t> next{0};
    const auto run = [&](int worker) {
        for (int64_t task; (task = next.fetch_add(1)) < tasks;) work(task, scratch[size_t(worker)].get());
    };
    std::vector<std::thread> helpers;
    helpers.reserve(size_t(workers - 1));
    try {
        for (int w = 1; w < workers; w++) helpers.emplace_back(run, w);
    } catch (const std::system_error &) {
        // No more threads to be had: those that started, and this one, do the work.
    }
    run(0);
    for (std::thread &helper : helpers) helper.join();
    return TNN_OK;
}

// Tasks: a cache line of channels (several vectors of them, one after the other) times a share of the blocks.
struct Plan {
    int64_t channels_per_task, channel_tasks, shares, tasks;
};

Plan plan_tasks(const tnn_problem &p, const Kernel &kernel, int64_t units, int threads, bool divide) {
    Plan plan;
    plan.channels_per_task = std::max(16, kernel.lanes);
    plan.channel_tasks = (p.d + plan.channels_per_task - 1) / plan.channels_per_task;
    // With few channels the blocks are shared out as well, each share with a kernel transform of its own.
    plan.shares = divide && plan.channel_tasks < 2 * threads ? std::min<int64_t>(units, 2 * threads) : 1;
    plan.tasks = plan.channel_tasks * plan.shares;
    return plan;
}

template <class Body>
void for_each_tile(const tnn_problem &p, const Kernel &kernel, const Plan &plan, int64_t units, int64_t task,
                   const Body &body) {
    const int64_t share = task % plan.shares, begin = task / plan.shares * plan.channels_per_task;
    const int64_t end = std::min(p.d, begin + plan.channels_per_task);
    Tile tile;
    tile.first = units * share / plan.shares;
    tile.last = units * (share + 1) / plan.shares;
    for (tile.channel = begin; tile.channel < end; tile.channel += kernel.lanes) {
        tile.channels = std::min<int64_t>(kernel.lanes, end - tile.channel);
        body(tile);
    }
}

// Starting a thread costs about as much as this many inputs.
constexpr int64_t inputs_per_thread = 1 << 15;

int useful_threads(const tnn_problem &p, int threads) {
    return int(std::max<int64_t>(1, std::min<int64_t>(threads, p.rows * p.n * p.d / inputs_per_thread)));
}

}  // namespace
}  // namespace tnn

using namespace tnn;

extern "C" int tnn_convolve(const tnn_problem *problem, tnn_sequence x, const float *k, tnn_sequence y, int threads) try {
    const tnn_problem &p = *problem;
    const Kernel &kernel = active_kernel();
    Frames frames;
    if (!choose_frames(p, &frames)) return TNN_TOO_LONG;
    const float *twiddles = twiddles_for(frames);
    const int64_t units = p.rows * frames.blocks;
    threads = useful_threads(p, threads);
    const Plan plan = plan_tasks(p, kernel, units, threads, true);
    const int64_t floats = (int64_t(kernel.convolve_points) * 2 * kernel.lanes) << frames.log2_half;
    return for_each_task(plan.tasks, threads, floats, [&](int64_t task, float *scratch) {
        for_each_tile(p, kernel, plan, units, task, [&](const Tile &tile) {
            kernel.convolve(p, frames, tile, twiddles, x, k, y, scratch);
        });
    });
} catch (const std::bad_alloc &) {
    return TNN_OUT_OF_MEMORY;
}

extern "C" int tnn_correlate(const tnn_problem *problem, tnn_sequence x, tnn_sequence y, float *g, int threads) try {
    const tnn_problem &p = *problem;
    const Kernel &kernel = active_kernel();
    Frames frames;
    if (!choose_frames(p, &frames)) return TNN_TOO_LONG;
    const float *twiddles = twiddles_for(frames);
    const int64_t units = p.rows * frames.blocks;
    threads = useful_threads(p, threads);
    // One task sums over all rows and blocks of its channels, in their order: the result never depends on the threads.
    const Plan plan = plan_tasks(p, kernel, units, threads, false);
    const int64_t floats = (int64_t(kernel.correlate_points) * 2 * kernel.lanes) << frames.log2_half;
    return for_each_task(plan.tasks, threads, floats, [&](int64_t task, float *scratch) {
        for_each_tile(p, kernel, plan, units, task, [&](const Tile &tile) {
            kernel.correlate(p, frames, tile, twiddles, x, y, g, scratch);
        });
    });
} catch (const std::bad_alloc &) {
    return TNN_OUT_OF_MEMORY;
}

extern "C" const char *tnn_instruction_set(void) { return active_kernel().name; }
