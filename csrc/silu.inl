// SiLU times a second factor, for vectors of TNN_LANES channels; included once per instruction set,
// after direct.inl.

namespace {

typedef unsigned Bits __attribute__((vector_size(lanes * sizeof(unsigned))));

INLINE Vector filled(float value) { return Vector{} + value; }

// e^x for x in -88 .. 88, to about one unit in the last place: x = n log 2 + r, and e^r by its series.
INLINE Vector exponential(Vector x) {
    const float shift = 12582912.0f;  // 1.5 * 2^23: after adding it, the lowest bits of a float count whole numbers
    const Vector shifted = x * 1.44269504f + shift, n = shifted - shift;
    const Vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // log 2 in two parts; the product with the first is exact
    Vector power = filled(1.0f / 5040);
    power = power * r + 1.0f / 720;
    power = power * r + 1.0f / 120;
    power = power * r + 1.0f / 24;
    power = power * r + 1.0f / 6;
    power = power * r + 0.5f;
    power = power * r + 1.0f;
    power = power * r + 1.0f;
    return (Vector)((Bits)power + ((Bits)shifted << 23));  // n is added to the exponent
}

// 1 / (1 + e^-x); 0 below -87, where it is less than 1e-37. NaN stays NaN.
INLINE Vector sigmoid(Vector x) {
    const Vector low = filled(-87), high = filled(87);
    const Vector bounded = x < low ? low : x > high ? high : x;
    const Vector s = 1.0f / (1.0f + exponential(-bounded));
    return x < low ? Vector{} : x == x ? s : x;
}

INLINE Vector silu(Vector x) { return x * sigmoid(x); }

// The derivative of SiLU, given sigmoid(x).
INLINE Vector silu_slope(Vector x, Vector s) { return s * (1.0f + x * (1.0f - s)); }

// `lanes` floats, or fewer at the end of a row: the others are zero.
INLINE Vector read_some(const float *p, int64_t count) {
    if (count == lanes) return read<Vector>(p);
    Vector v{};
    for (int64_t lane = 0; lane < count; lane++) v[lane] = p[lane];
    return v;
}

INLINE void write_some(float *p, Vector v, int64_t count) {
    if (count == lanes) return write(p, v);
    for (int64_t lane = 0; lane < count; lane++) p[lane] = v[lane];
}

// Calls body(c, count) for each `lanes` values from `first` on, and for the fewer that are left.
template <class Body>
INLINE void for_vectors(int64_t first, int64_t last, const Body &body) {
    int64_t c = first;
    for (; c + lanes <= last; c += lanes) body(c, lanes);
    if (c < last) body(c, last - c);
}

void silu_product(const Share &values, const float *a, const float *b, float *y) {
    for_vectors(values.first, values.last, [&](int64_t c, int64_t count) {
        write_some(y + c, silu(read_some(a + c, count)) * read_some(b + c, count), count);
    });
}

void silu_product_gradient(const Share &values, const float *grad, const float *a, const float *b, float *grad_a,
                           float *grad_b) {
    for_vectors(values.first, values.last, [&](int64_t c, int64_t count) {
        const Vector from = read_some(grad + c, count), value = read_some(a + c, count), s = sigmoid(value);
        write_some(grad_a + c, from * read_some(b + c, count) * silu_slope(value, s), count);
        write_some(grad_b + c, from * value * s, count);
    });
}

}  // namespace
