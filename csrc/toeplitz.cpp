// Choice of instruction set and frame length, twiddles, threads. The arithmetic is in the .inl files.

#include "toeplitz.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "kernel.h"
#include "parallel.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

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
// the root and r, -r, ir, -ir for its children. The tree is the same for every length, with a different depth.
std::unique_ptr<float[]> make_twiddles(int levels) {
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

// Made once per depth and kept for the life of the process. There is no lock, because a fork could leave it locked forever:
// if two threads make a table at once, the second one discards its own.
const float *twiddles_for(const Frames &frames) {
    static std::atomic<const float *> tables[max_log2_half / 2 + 2];
    const int levels = (frames.log2_half + 1) / 2;
    const float *known = tables[levels].load(std::memory_order_acquire);
    if (known) return known;
    std::unique_ptr<float[]> made = make_twiddles(levels);
    if (tables[levels].compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) return made.release();
    return known;
}

// The frame length with the least work over all rows, including one transform of the kernel. False: no frame is long enough.
bool choose_frames(const tnn_problem &p, Frames *best) {
    const int64_t past = p.lags - 1 - p.future;
    double least = 0;
    bool found = false;
    for (int log2 = min_log2_half; log2 <= max_log2_half; log2++) {
        const int64_t length = int64_t(2) << log2;
        Frames frames;
        if (length >= std::max(p.lags, p.n + std::max(past, p.future))) {
            // Everything in one frame that starts with the inputs: the outputs start at index `future`, and of the
            // n + lags - 1 results only those before and after the outputs wrap around.
            frames = {log2, p.n, 1, 0, p.future};
        } else if (length >= p.lags) {
            // The first lags - 1 results of a frame wrap around, the rest are outputs.
            const int64_t block = length - p.lags + 1;
            frames = {log2, block, (p.n + block - 1) / block, past, p.lags - 1};
        } else {
            continue;
        }
        // Measured: a frame of more than 2^14 inputs, one megabyte of scratch, needs extra passes through the cache.
        const double passes = log2 + (log2 > 13 ? 4 : 2);
        const double work = (2.0 * double(frames.blocks) * double(p.rows) + 1) * double(length) * passes;
        if (!found || work < least) {
            *best = frames;
            least = work;
            found = true;
        }
        if (frames.blocks == 1) break;
    }
    return found;
}

// Memory for one worker, aligned to cache lines.
struct Free {
    void operator()(void *p) const { std::free(p); }
};
using Scratch = std::unique_ptr<float, Free>;

Scratch allocate(int64_t floats) {
    const size_t bytes = (size_t(std::max<int64_t>(floats, 1)) * sizeof(float) + 63) / 64 * 64;
    return Scratch(static_cast<float *>(std::aligned_alloc(64, bytes)));
}

// Calls work(task, scratch) for every task on up to `threads` threads. Each task writes separate outputs, so results do not
// depend on which thread takes it.
template <class Work>
int for_each_task(int64_t tasks, Threads threads, int64_t scratch_floats, const Work &work) {
    struct Shared {
        const Work &work;
        const int64_t tasks;
        std::vector<Scratch> scratch;
        std::atomic<int64_t> next{0};
    } shared{work, tasks, {}, {}};
    threads.count = int(std::max<int64_t>(1, std::min<int64_t>(threads.count, tasks)));
    for (int worker = 0; worker < threads.count; worker++) {
        shared.scratch.push_back(allocate(scratch_floats));
        if (!shared.scratch.back()) return TNN_OUT_OF_MEMORY;
    }
    run_workers(
        threads,
        [](void *context, int worker) {
            Shared &s = *static_cast<Shared *>(context);
            for (int64_t task; (task = s.next.fetch_add(1)) < s.tasks;) s.work(task, s.scratch[size_t(worker)].get());
        },
        &shared);
    return TNN_OK;
}

// Tasks: tiles of channels times shares of the blocks.
struct Plan {
    const tnn_problem &problem;
    int64_t units, shares, tasks;

    Plan(const tnn_problem &p, const Frames &frames, int wanted_shares)
        : problem(p), units(p.rows * frames.blocks), shares(std::min<int64_t>(units, wanted_shares)),
          tasks(shares * ((p.d + tile_channels - 1) / tile_channels)) {}

    Tile tile(int64_t task) const {
        const int64_t share = task % shares, channel = task / shares * tile_channels;
        return {channel, std::min<int64_t>(tile_channels, problem.d - channel), units * share / shares,
                units * (share + 1) / shares};
    }
};

// Waking a thread costs about as much as this many inputs.
constexpr int64_t inputs_per_thread = 1 << 14;

Threads useful_threads(int64_t inputs, int threads, int forked) {
    return {int(std::max<int64_t>(1, std::min<int64_t>(threads, inputs / inputs_per_thread))), forked != 0};
}

Threads useful_threads(const tnn_problem &p, int threads, int forked) {
    return useful_threads(p.rows * p.n * p.d, threads, forked);
}

// Calls work(share, scratch) for shares of `count` positions or channels, one per thread, cut at multiples of `unit`.
template <class Work>
int for_each_share(int64_t count, int64_t unit, Threads threads, int64_t scratch_floats, const Work &work) {
    const int64_t units = (count + unit - 1) / unit, shares = std::max<int64_t>(1, std::min<int64_t>(threads.count, units));
    return for_each_task(shares, threads, scratch_floats, [&](int64_t share, float *scratch) {
        const int64_t first = units * share / shares * unit, last = units * (share + 1) / shares * unit;
        work(Share{first, std::min(last, count)}, scratch);
    });
}

// Measured: up to so many lags the sums themselves take less time than a transform.
constexpr int64_t direct_max_lags = 24;

// A large output is new memory, mapped when it is first written. Huge pages mean hundreds of times fewer page faults, and
// fewer TLB misses for the scattered writes of the tiles.
void ask_for_large_pages(const tnn_problem &p, tnn_sequence y) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr uintptr_t page = 1 << 21;
    const uintptr_t first = reinterpret_cast<uintptr_t>(y.data);
    const uintptr_t bytes = uintptr_t(p.rows) * uintptr_t(p.n) * uintptr_t(p.d) * sizeof(float);
    const bool contiguous = y.position_stride == p.d && y.row_stride == p.n * p.d;
    if (!contiguous || bytes < 4 * page) return;
    const uintptr_t begin = (first + page - 1) / page * page, end = (first + bytes) / page * page;
    madvise(reinterpret_cast<void *>(begin), end - begin, MADV_HUGEPAGE);  // a hint: failure does no harm
#else
    (void)p, (void)y;
#endif
}

}  // namespace
}  // namespace tnn

using namespace tnn;

extern "C" int tnn_convolve(const tnn_problem *problem, tnn_sequence x, const float *k, tnn_sequence y, int threads,
                            int forked) try {
    if (problem->lags <= direct_max_lags)
        return for_each_share(problem->rows * problem->n, 1, useful_threads(*problem, threads, forked), 0,
                              [&](const Share &share, float *) {
                                  active_kernel().convolve_direct(*problem, share, x, k, y);
                              });
    Frames frames;
    if (!choose_frames(*problem, &frames)) return TNN_TOO_LONG;
    const Kernel &kernel = active_kernel();
    const float *twiddles = twiddles_for(frames);
    const Threads useful = useful_threads(*problem, threads, forked);
    ask_for_large_pages(*problem, y);
    // With few channels the blocks are distributed as well; each share transforms the kernel again.
    const Plan plan(*problem, frames, problem->d < 2 * useful.count * tile_channels ? 2 * useful.count : 1);
    return for_each_task(plan.tasks, useful, scratch_floats(frames, 2), [&](int64_t task, float *scratch) {
        kernel.convolve(*problem, frames, plan.tile(task), twiddles, x, k, y, scratch);
    });
} catch (const std::bad_alloc &) {
    return TNN_OUT_OF_MEMORY;
}

extern "C" int tnn_correlate(const tnn_problem *problem, tnn_sequence x, tnn_sequence y, float *g, int threads,
                             int forked) try {
    if (problem->lags <= direct_max_lags)
        return for_each_share(problem->d, tile_channels, useful_threads(*problem, threads, forked),
                              2 * problem->lags * problem->d, [&](const Share &share, float *scratch) {
                                  active_kernel().correlate_direct(*problem, share, x, y, g, scratch);
                              });
    Frames frames;
    if (!choose_frames(*problem, &frames)) return TNN_TOO_LONG;
    const Kernel &kernel = active_kernel();
    const float *twiddles = twiddles_for(frames);
    // One task sums over all rows and blocks of its channels in order: the result does not depend on the threads.
    const Plan plan(*problem, frames, 1);
    return for_each_task(plan.tasks, useful_threads(*problem, threads, forked), scratch_floats(frames, 3),
                         [&](int64_t task, float *scratch) {
                             kernel.correlate(*problem, frames, plan.tile(task), twiddles, x, y, g, scratch);
                         });
} catch (const std::bad_alloc &) {
    return TNN_OUT_OF_MEMORY;
}

extern "C" int tnn_rms_norm(int64_t n, int64_t d, float e, const float *x, const float *gate, int silu_gate, float *y,
                            int threads, int forked) try {
    return for_each_share(n, 1, useful_threads(n * d, threads, forked), 0, [&](const Share &share, float *) {
        active_kernel().norm({share.first, share.last, d, e}, x, gate, silu_gate, y);
    });
} catch (const std::bad_alloc &) {
    return TNN_OUT_OF_MEMORY;
}

extern "C" int tnn_rms_norm_gradient(int64_t n, int64_t d, float e, const float *grad, const float *x, const float *gate,
                                     int silu_gate, float *grad_x, float *grad_gate, int threads, int forked) try {
    return for_each_share(n, 1, useful_threads(n * d, threads, forked), 0, [&](const Share &share, float *) {
        active_kernel().norm_gradient({share.first, share.last, d, e}, grad, x, gate, silu_gate, grad_x, grad_gate);
    });
} catch (const std::bad_alloc &) {
    return TNN_OUT_OF_MEMORY;
}

extern "C" int tnn_silu_product(int64_t n, const float *a, const float *b, float *y, int threads, int forked) try {
    return for_each_share(n, tile_channels, useful_threads(n, threads, forked), 0, [&](const Share &share, float *) {
        active_kernel().silu_product(share, a, b, y);
    });
} catch (const std::bad_alloc &) {
    return TNN_OUT_OF_MEMORY;
}

extern "C" int tnn_silu_product_gradient(int64_t n, const float *grad, const float *a, const float *b, float *grad_a,
                                         float *grad_b, int threads, int forked) try {
    return for_each_share(n, tile_channels, useful_threads(n, threads, forked), 0, [&](const Share &share, float *) {
        active_kernel().silu_product_gradient(share, grad, a, b, grad_a, grad_b);
    });
} catch (const std::bad_alloc &) {
    return TNN_OUT_OF_MEMORY;
}

extern "C" const char *tnn_instruction_set(void) { return active_kernel().name; }
