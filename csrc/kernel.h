// The functions of one instruction set. Each kernel_*.cpp compiles the .inl files for a different one.

#ifndef TNN_KERNEL_H
#define TNN_KERNEL_H

#include "toeplitz.h"

namespace tnn {

// Channels that are read together: complete cache lines, and a multiple of the vector length of every instruction set.
constexpr int tile_channels = 16;

// The work of one call: `channels` channels starting at `channel`, at most tile_channels, and the blocks first .. last-1,
// counted row by row.
struct Tile {
    int64_t channel, channels, first, last;
};

// How a row is divided into `blocks` of `block` outputs, each computed from a frame of 2 << log2_half inputs. The frame of
// the block that starts at s begins with input s - in_offset; its result at index p is output s - out_offset + p.
struct Frames {
    int log2_half;
    int64_t block, blocks, in_offset, out_offset;
};

// The part first .. last-1 of the positions of all rows, of the channels, or of all values.
struct Share {
    int64_t first, last;
};

// The positions first .. last-1 of a norm over d channels, with e added to the root mean square.
struct Positions {
    int64_t first, last, d;
    float e;
};

struct Kernel {
    const char *name;
    void (*convolve)(const tnn_problem &, const Frames &, const Tile &, const float *twiddles, tnn_sequence x,
                     const float *k, tnn_sequence y, float *scratch);
    void (*correlate)(const tnn_problem &, const Frames &, const Tile &, const float *twiddles, tnn_sequence x,
                      tnn_sequence y, float *g, float *scratch);
    void (*convolve_direct)(const tnn_problem &, const Share &positions, tnn_sequence x, const float *k, tnn_sequence y);
    void (*correlate_direct)(const tnn_problem &, const Share &channels, tnn_sequence x, tnn_sequence y, float *g,
                             float *scratch);
    void (*silu_product)(const Share &values, const float *a, const float *b, float *y);
    void (*silu_product_gradient)(const Share &values, const float *grad, const float *a, const float *b, float *grad_a,
                                  float *grad_b);
    void (*norm)(const Positions &, const float *x, const float *gate, bool silu_gate, float *y);
    void (*norm_gradient)(const Positions &, const float *grad, const float *x, const float *gate, bool silu_gate,
                          float *grad_x, float *grad_gate);
};

extern const Kernel portable_kernel;
extern const Kernel avx2_kernel;
extern const Kernel avx512_kernel;

constexpr int min_log2_half = 2, max_log2_half = 17;

// Floats of scratch per call: one complex number per point of a frame, in two sets for convolve and three for correlate.
inline int64_t scratch_floats(const Frames &frames, int sets) {
    return int64_t(sets) * 2 * tile_channels << frames.log2_half;
}

}  // namespace tnn
#endif
