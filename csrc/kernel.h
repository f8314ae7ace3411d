// What one instruction set provides. Each kernel_*.cpp compiles kernel.inl for another one.

#ifndef TNN_KERNEL_H
#define TNN_KERNEL_H

#include "toeplitz.h"

namespace tnn {

// One task: `channels` channels from `channel` on (one vector of them, or less), all blocks of rows first .. last-1.
struct Tile {
    int64_t channel, channels, first, last;
};

// How the outputs are cut into blocks: frames of 2 << log2_half inputs give `block` outputs each, `blocks` to a row.
struct Frames {
    int log2_half;
    int64_t block, blocks;
};

struct Kernel {
    const char *name;
    int lanes;            // channels in a vector
    int convolve_points;  // scratch, in complex vectors per point of half a frame
    int correlate_points;
    void (*convolve)(const tnn_problem &, const Frames &, const Tile &, const float *twiddles, tnn_sequence x,
                     const float *k, tnn_sequence y, float *scratch);
    void (*correlate)(const tnn_problem &, const Frames &, const Tile &, const float *twiddles, tnn_sequence x,
                      tnn_sequence y, float *g, float *scratch);
};

extern const Kernel portable_kernel;
extern const Kernel avx2_kernel;
extern const Kernel avx512_kernel;

constexpr int min_log2_half = 2, max_log2_half = 17;

}  // namespace tnn
#endif
