// The transform and the two operations for vectors of TNN_LANES channels; included once per instruction set.
//
// A frame of N = 2M real inputs is a polynomial a(X) of degree below N. With X^M = i it becomes one of degree below M
// with complex coefficients, a_j + i a_{M+j}: the product of two such polynomials modulo X^M - i holds, in its real and
// imaginary parts, their real product modulo X^N + 1. So one complex transform of length M handles N real inputs, and no two
// blocks or rows share a transform. Wrap-around affects only results that are not used (choose_frames takes care of that).
//
// The transform divides X^m - c into four factors X^{m/4} - s, where s runs through the fourth roots of c: r, -r, ir, -ir.
// The remainders are sums of four coefficients weighted with 1, s, s^2, s^3. A node of the tree has the same weights for all
// its coefficients, and its subtree is finished before the next one starts, so all levels except the upper ones run in the L1
// cache. The order of the leaves does not matter: they are multiplied, and the same tree is traversed upwards again.
//
// Do not include library headers here: a function compiled for one instruction set must not be shared with the others.

#include "kernel.h"

// Otherwise the compiler calls these functions and passes vectors through memory.
#define INLINE inline __attribute__((always_inline))

namespace {

using tnn::Frames;
using tnn::Tile;

constexpr int lanes = TNN_LANES;
typedef float Vector __attribute__((vector_size(lanes * sizeof(float))));
typedef float Unaligned __attribute__((vector_size(lanes * sizeof(float)), aligned(4), may_alias));

struct Complex {
    Vector re, im;
};

INLINE Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
INLINE Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
INLINE Complex operator*(Complex a, Complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
INLINE Complex times_i(Complex a) { return {-a.im, a.re}; }

// Weights of a node: r, r^2, r^3.
struct Weights {
    const float *w;
    INLINE Complex turn(Complex a, int power) const {
        const float re = w[2 * power - 2], im = w[2 * power - 1];
        return {a.re * re - a.im * im, a.re * im + a.im * re};
    }
    INLINE Complex turn_back(Complex a, int power) const {
        const float re = w[2 * power - 2], im = w[2 * power - 1];
        return {a.re * re + a.im * im, a.im * re - a.re * im};
    }
};

// The weights of all nodes, level by level: 4^level of them, six floats each.
INLINE Weights weights_of(const float *twiddles, int level, int64_t node) {
    const int64_t before = ((int64_t(1) << (2 * level)) - 1) / 3;
    return {twiddles + 6 * (before + node)};
}

INLINE void split4(Complex &a, Complex &b, Complex &c, Complex &d, Weights w) {
    const Complex tb = w.turn(b, 1), tc = w.turn(c, 2), td = w.turn(d, 3);
    const Complex even = a + tc, odd = tb + td, even_i = a - tc, odd_i = times_i(tb - td);
    a = even + odd;
    b = even - odd;
    c = even_i + odd_i;
    d = even_i - odd_i;
}

INLINE void merge4(Complex &a, Complex &b, Complex &c, Complex &d, Weights w) {
    const Complex even = a + b, odd = a - b, even_i = c + d, odd_i = times_i(c - d);
    a = even + even_i;
    b = w.turn_back(odd - odd_i, 1);
    c = w.turn_back(even - even_i, 2);
    d = w.turn_back(odd + odd_i, 3);
}

// X^2 - c has the roots +-r^2.
INLINE void split2(Complex &a, Complex &b, Weights w) {
    const Complex turned = w.turn(b, 2);
    b = a - turned;
    a = a + turned;
}

INLINE void merge2(Complex &a, Complex &b, Weights w) {
    const Complex difference = a - b;
    a = a + b;
    b = w.turn_back(difference, 2);
}

// Remainders modulo X - s for every root s of X^m - c, m = 2^log2.
template <int log2>
void forward(Complex *a, const float *twiddles, int level, int64_t node) {
    const Weights w = weights_of(twiddles, level, node);
    if constexpr (log2 == 1) {
        split2(a[0], a[1], w);
    } else {
        constexpr int64_t quarter = int64_t(1) << (log2 - 2);
        for (int64_t j = 0; j < quarter; j++) split4(a[j], a[j + quarter], a[j + 2 * quarter], a[j + 3 * quarter], w);
        if constexpr (log2 > 2)
            for (int64_t child = 0; child < 4; child++)
                forward<log2 - 2>(a + child * quarter, twiddles, level + 1, 4 * node + child);
    }
}

// The inverse, times 2^log2.
template <int log2>
void inverse(Complex *a, const float *twiddles, int level, int64_t node) {
    const Weights w = weights_of(twiddles, level, node);
    if constexpr (log2 == 1) {
        merge2(a[0], a[1], w);
    } else {
        constexpr int64_t quarter = int64_t(1) << (log2 - 2);
        if constexpr (log2 > 2)
            for (int64_t child = 0; child < 4; child++)
                inverse<log2 - 2>(a + child * quarter, twiddles, level + 1, 4 * node + child);
        for (int64_t j = 0; j < quarter; j++) merge4(a[j], a[j + quarter], a[j + 2 * quarter], a[j + 3 * quarter], w);
    }
}

// Forward, times the kernel's remainders, and inverse; the leaves stay in registers.
template <int log2>
void multiply(Complex *a, const Complex *k, const float *twiddles, int level, int64_t node) {
    const Weights w = weights_of(twiddles, level, node);
    if constexpr (log2 == 0) {
        a[0] = a[0] * k[0];
    } else if constexpr (log2 == 1) {
        Complex a0 = a[0], a1 = a[1];
        split2(a0, a1, w);
        a0 = a0 * k[0];
        a1 = a1 * k[1];
        merge2(a0, a1, w);
        a[0] = a0;
        a[1] = a1;
    } else if constexpr (log2 == 2) {
        Complex a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3];
        split4(a0, a1, a2, a3, w);
        a0 = a0 * k[0];
        a1 = a1 * k[1];
        a2 = a2 * k[2];
        a3 = a3 * k[3];
        merge4(a0, a1, a2, a3, w);
        a[0] = a0;
        a[1] = a1;
        a[2] = a2;
        a[3] = a3;
    } else {
        constexpr int64_t quarter = int64_t(1) << (log2 - 2);
        for (int64_t j = 0; j < quarter; j++) split4(a[j], a[j + quarter], a[j + 2 * quarter], a[j + 3 * quarter], w);
        for (int64_t child = 0; child < 4; child++)
            multiply<log2 - 2>(a + child * quarter, k + child * quarter, twiddles, level + 1, 4 * node + child);
        for (int64_t j = 0; j < quarter; j++) merge4(a[j], a[j + quarter], a[j + 2 * quarter], a[j + 3 * quarter], w);
    }
}

// The channels of a tile are read and written together, at least one complete cache line per position, and then transformed
// vector by vector: the rows of x are far apart, so a cache line should be fetched only once.
constexpr int vectors = tnn::tile_channels / lanes;

// The channels of a tile in one row. Positions outside `begin` .. `end`-1 read as zero and are not written.
struct Columns {
    float *data;
    int64_t stride, begin, end;
    int channels;

    INLINE bool holds(int64_t position) const { return position >= begin && position < end; }

    INLINE void prefetch(int64_t position) const {
        if (!holds(position)) return;
        const float *p = data + position * stride;
        for (int c = 0; c < tnn::tile_channels; c += 16) __builtin_prefetch(p + c);
    }

    INLINE Vector load(int64_t position, int v) const {
        Vector result = {};
        if (!holds(position)) return result;
        const float *p = data + position * stride + v * lanes;
        const int left = channels - v * lanes;
        if (left >= lanes) return *reinterpret_cast<const Unaligned *>(p);
        for (int c = 0; c < left; c++) result[c] = p[c];
        return result;
    }

    INLINE void store(int64_t position, int v, Vector value) const {
        if (!holds(position)) return;
        float *p = data + position * stride + v * lanes;
        const int left = channels - v * lanes;
        if (left >= lanes) *reinterpret_cast<Unaligned *>(p) = value;
        else
            for (int c = 0; c < left; c++) p[c] = value[c];
    }
};

// A frame of a tile: its point j is position start + j and, as the imaginary part, start + half + j.
struct Frame {
    Columns columns;
    int64_t start, half;

    INLINE void prefetch(int64_t j) const {
        columns.prefetch(start + j);
        columns.prefetch(start + half + j);
    }
    INLINE Complex load(int64_t j, int v) const {
        return {columns.load(start + j, v), columns.load(start + half + j, v)};
    }
    INLINE void store(int64_t j, int v, Complex a) const {
        columns.store(start + j, v, a.re);
        columns.store(start + half + j, v, a.im);
    }
};

// How many rows ahead to prefetch: each row is on another page, where the hardware does not prefetch.
constexpr int64_t ahead = 4;

// The first level of the transform reads its inputs in place. Vector v of the tile goes to a + v * half.
template <int log2>
void load_forward(Complex *a, const Frame &frame, const float *twiddles) {
    constexpr int64_t half = int64_t(1) << log2, quarter = half / 4;
    const Weights w = weights_of(twiddles, 0, 0);
    for (int64_t j = 0; j < quarter; j++) {
        for (int part = 0; part < 4; part++) frame.prefetch(j + ahead + part * quarter);
        for (int v = 0; v < vectors; v++) {
            Complex a0 = frame.load(j, v), a1 = frame.load(j + quarter, v);
            Complex a2 = frame.load(j + 2 * quarter, v), a3 = frame.load(j + 3 * quarter, v);
            split4(a0, a1, a2, a3, w);
            Complex *to = a + v * half + j;
            to[0] = a0;
            to[quarter] = a1;
            to[2 * quarter] = a2;
            to[3 * quarter] = a3;
        }
    }
}

// The last level of the inverse writes its outputs in place.
template <int log2>
void store_inverse(const Complex *a, const Frame &frame, const float *twiddles) {
    constexpr int64_t half = int64_t(1) << log2, quarter = half / 4;
    const Weights w = weights_of(twiddles, 0, 0);
    for (int64_t j = 0; j < quarter; j++) {
        for (int part = 0; part < 4; part++) frame.prefetch(j + ahead + part * quarter);
        for (int v = 0; v < vectors; v++) {
            const Complex *from = a + v * half + j;
            Complex a0 = from[0], a1 = from[quarter], a2 = from[2 * quarter], a3 = from[3 * quarter];
            merge4(a0, a1, a2, a3, w);
            frame.store(j, v, a0);
            frame.store(j + quarter, v, a1);
            frame.store(j + 2 * quarter, v, a2);
            frame.store(j + 3 * quarter, v, a3);
        }
    }
}

// The nodes below the first level are children 0 .. 3 of the root.
template <int log2>
void transform(Complex *a, const Frame &frame, const float *twiddles) {
    load_forward<log2>(a, frame, twiddles);
    if constexpr (log2 > 2)
        for (int64_t v = 0; v < vectors; v++)
            for (int64_t child = 0; child < 4; child++)
                forward<log2 - 2>(a + (v << log2) + (child << (log2 - 2)), twiddles, 1, child);
}

template <int log2>
void transform_back(Complex *a, const Frame &frame, const float *twiddles) {
    if constexpr (log2 > 2)
        for (int64_t v = 0; v < vectors; v++)
            for (int64_t child = 0; child < 4; child++)
                inverse<log2 - 2>(a + (v << log2) + (child << (log2 - 2)), twiddles, 1, child);
    store_inverse<log2>(a, frame, twiddles);
}

struct Block {
    int64_t row, start, end;
};

INLINE Block block_of(const tnn_problem &problem, const Frames &frames, int64_t index) {
    const int64_t start = index % frames.blocks * frames.block, end = start + frames.block;
    return {index / frames.blocks, start, end < problem.n ? end : problem.n};
}

INLINE Columns columns_of(tnn_sequence s, const Tile &tile, int64_t row, int64_t begin, int64_t end) {
    return {s.data + row * s.row_stride + tile.channel, s.position_stride, begin, end, int(tile.channels)};
}

// Coefficients (lags, d) as a sequence.
INLINE Columns columns_of(const float *k, const tnn_problem &problem, const Tile &tile) {
    return {const_cast<float *>(k) + tile.channel, problem.d, 0, problem.lags, int(tile.channels)};
}

template <int log2>
void convolve(const tnn_problem &problem, const Frames &frames, const Tile &tile, const float *twiddles, tnn_sequence x,
              const float *k, tnn_sequence y, float *scratch) {
    constexpr int64_t half = int64_t(1) << log2, points = vectors * half;
    Complex *a = reinterpret_cast<Complex *>(scratch), *spectrum = a + points;

    transform<log2>(spectrum, {columns_of(k, problem, tile), 0, half}, twiddles);
    const float scale = 1.0f / float(half);  // the inverse multiplies by half
    for (int64_t j = 0; j < points; j++) {
        spectrum[j].re *= scale;
        spectrum[j].im *= scale;
    }
    for (int64_t index = tile.first; index < tile.last; index++) {
        const Block block = block_of(problem, frames, index);
        load_forward<log2>(a, {columns_of(x, tile, block.row, 0, problem.n), block.start - frames.in_offset, half}, twiddles);
        for (int64_t v = 0; v < vectors; v++) {
            for (int64_t child = 0; child < 4; child++) {
                const int64_t at = (v << log2) + (child << (log2 - 2));
                multiply<log2 - 2>(a + at, spectrum + at, twiddles, 1, child);
            }
        }
        const Columns out = columns_of(y, tile, block.row, block.start, block.end);
        store_inverse<log2>(a, {out, block.start - frames.out_offset, half}, twiddles);
    }
}

template <int log2>
void correlate(const tnn_problem &problem, const Frames &frames, const Tile &tile, const float *twiddles, tnn_sequence x,
               tnn_sequence y, float *g, float *scratch) {
    constexpr int64_t half = int64_t(1) << log2, points = vectors * half;
    Complex *a = reinterpret_cast<Complex *>(scratch), *b = a + points, *sum = b + points;

    for (int64_t j = 0; j < points; j++) sum[j] = Complex{};
    for (int64_t index = tile.first; index < tile.last; index++) {
        const Block block = block_of(problem, frames, index);
        transform<log2>(a, {columns_of(x, tile, block.row, 0, problem.n), block.start - frames.in_offset, half}, twiddles);
        const Columns outputs = columns_of(y, tile, block.row, block.start, block.end);
        transform<log2>(b, {outputs, block.start - frames.out_offset, half}, twiddles);
        for (int64_t j = 0; j < points; j++) {
            sum[j].re += a[j].re * b[j].re + a[j].im * b[j].im;  // conj(a) b
            sum[j].im += a[j].re * b[j].im - a[j].im * b[j].re;
        }
    }
    const float scale = 1.0f / float(half);
    for (int64_t j = 0; j < points; j++) {
        sum[j].re *= scale;
        sum[j].im *= scale;
    }
    transform_back<log2>(sum, {columns_of(g, problem, tile), 0, half}, twiddles);
}

// Maps the length at run time to a length known at compile time.
template <int log2 = tnn::min_log2_half>
void convolve_any(const tnn_problem &problem, const Frames &frames, const Tile &tile, const float *twiddles,
                  tnn_sequence x, const float *k, tnn_sequence y, float *scratch) {
    if (frames.log2_half == log2) convolve<log2>(problem, frames, tile, twiddles, x, k, y, scratch);
    else if constexpr (log2 < tnn::max_log2_half)
        convolve_any<log2 + 1>(problem, frames, tile, twiddles, x, k, y, scratch);
}

template <int log2 = tnn::min_log2_half>
void correlate_any(const tnn_problem &problem, const Frames &frames, const Tile &tile, const float *twiddles,
                   tnn_sequence x, tnn_sequence y, float *g, float *scratch) {
    if (frames.log2_half == log2) correlate<log2>(problem, frames, tile, twiddles, x, y, g, scratch);
    else if constexpr (log2 < tnn::max_log2_half)
        correlate_any<log2 + 1>(problem, frames, tile, twiddles, x, y, g, scratch);
}

}  // namespace
