// Convolve and correlate for few lags, term by term: cheaper there than a transform. Included once per instruction set,
// after kernel.inl.
//
// The loops run along the rows of memory, so that each input is read from memory once and then from the L1 cache. Four
// positions at a time share the coefficients.

namespace {

using tnn::Share;

constexpr int positions = 4;
constexpr int64_t partial_positions = 128;  // are summed alone before they are added: long sums in float32 lose digits

template <class T>
INLINE T read(const float *p);
template <>
INLINE Vector read<Vector>(const float *p) { return *reinterpret_cast<const Unaligned *>(p); }
template <>
INLINE float read<float>(const float *p) { return *p; }
INLINE void write(float *p, Vector v) { *reinterpret_cast<Unaligned *>(p) = v; }
INLINE void write(float *p, float v) { *p = v; }

// Calls body.run<Vector>(c) for the channels c that fill vectors, and body.run<float>(c) for those that are left.
template <class Body>
INLINE void for_channels(int64_t first, int64_t last, const Body &body) {
    int64_t c = first;
    for (; c + lanes <= last; c += lanes) body.template run<Vector>(c);
    for (; c < last; c++) body.template run<float>(c);
}

// The lags m in first .. last-1 that have an input at position i - (m - future) of n.
struct Lags {
    int64_t first, last;
    INLINE Lags(const tnn_problem &p, int64_t i)
        : first(i + p.future > p.n - 1 ? i + p.future - (p.n - 1) : 0),
          last(i + p.future < p.lags - 1 ? i + p.future + 1 : p.lags) {}
};

// Whether all `positions` from i on have an input at every lag.
INLINE bool inside(const tnn_problem &p, int64_t i, int64_t end) {
    return i + positions <= end && i - (p.lags - 1 - p.future) >= 0 && i + positions - 1 + p.future <= p.n - 1;
}

// Outputs i .. i+count-1 of one row, for a range of lags that all of them have.
template <int count>
struct Outputs {
    const tnn_problem &p;
    const float *x, *k;  // x: position i + future
    float *y;            // position i
    int64_t x_stride, y_stride;
    Lags m;

    template <class T>
    INLINE void run(int64_t c) const {
        T sum[count] = {};
        for (int64_t lag = m.first; lag < m.last; lag++) {
            const T weight = read<T>(k + lag * p.d + c);
            for (int j = 0; j < count; j++) sum[j] += weight * read<T>(x + (j - lag) * x_stride + c);
        }
        for (int j = 0; j < count; j++) write(y + j * y_stride + c, sum[j]);
    }
};

void convolve_direct(const tnn_problem &p, const Share &share, tnn_sequence x, const float *k, tnn_sequence y) {
    for (int64_t index = share.first; index < share.last;) {
        const int64_t row = index / p.n, i = index % p.n, end = i + share.last - index < p.n ? i + share.last - index : p.n;
        const float *from = x.data + row * x.row_stride + (i + p.future) * x.position_stride;
        float *to = y.data + row * y.row_stride + i * y.position_stride;
        if (inside(p, i, end)) {
            for_channels(0, p.d, Outputs<positions>{p, from, k, to, x.position_stride, y.position_stride, Lags(p, i)});
            index += positions;
        } else {
            for_channels(0, p.d, Outputs<1>{p, from, k, to, x.position_stride, y.position_stride, Lags(p, i)});
            index++;
        }
    }
}

// What positions i .. i+count-1 of one row add to the sums of each lag that all of them have.
template <int count>
struct Terms {
    const tnn_problem &p;
    const float *x, *y;  // x: position i + future; y: position i
    float *sums;         // (lags, channels)
    int64_t x_stride, y_stride, first, channels;
    Lags m;

    template <class T>
    INLINE void run(int64_t c) const {
        T output[count];
        for (int j = 0; j < count; j++) output[j] = read<T>(y + j * y_stride + c);
        for (int64_t lag = m.first; lag < m.last; lag++) {
            float *const at = sums + lag * channels + (c - first);
            T sum = read<T>(at);
            for (int j = 0; j < count; j++) sum += output[j] * read<T>(x + (j - lag) * x_stride + c);
            write(at, sum);
        }
    }
};

// sums += part, and part = 0.
struct Collect {
    float *sums, *part;
    template <class T>
    INLINE void run(int64_t c) const {
        write(sums + c, read<T>(sums + c) + read<T>(part + c));
        write(part + c, T{});
    }
};

// The channels first .. last-1 of all rows. `scratch` holds two floats per lag and channel.
void correlate_direct(const tnn_problem &p, const Share &share, tnn_sequence x, tnn_sequence y, float *g, float *scratch) {
    const int64_t channels = share.last - share.first, size = p.lags * channels;
    float *const part = scratch, *const sums = scratch + size;
    for (int64_t j = 0; j < 2 * size; j++) scratch[j] = 0;
    int64_t summed = 0;
    for (int64_t row = 0; row < p.rows; row++) {
        for (int64_t i = 0; i < p.n;) {
            const float *from = x.data + row * x.row_stride + (i + p.future) * x.position_stride;
            const float *at = y.data + row * y.row_stride + i * y.position_stride;
            const int64_t xs = x.position_stride, ys = y.position_stride;
            const int64_t count = inside(p, i, p.n) ? positions : 1;
            const Lags m(p, i);
            if (count == positions)
                for_channels(share.first, share.last, Terms<positions>{p, from, at, part, xs, ys, share.first, channels, m});
            else
                for_channels(share.first, share.last, Terms<1>{p, from, at, part, xs, ys, share.first, channels, m});
            i += count;
            summed += count;
            if (summed >= partial_positions) {
                for_channels(0, size, Collect{sums, part});
                summed = 0;
            }
        }
    }
    for_channels(0, size, Collect{sums, part});
    for (int64_t lag = 0; lag < p.lags; lag++)
        for (int64_t c = 0; c < channels; c++) g[lag * p.d + share.first + c] = sums[lag * channels + c];
}

}  // namespace
