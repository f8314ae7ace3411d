// The gated norm for vectors of TNN_LANES channels; included once per instruction set, after direct.inl.
//
// Each position is one pass over a row that stays in the L1 cache: memory is read and written once.

namespace {

using tnn::Positions;

INLINE float sum_of(Vector v) {
    float sum = 0;
    for (int lane = 0; lane < lanes; lane++) sum += v[lane];
    return sum;
}

// sum over c of a[c] b[c], or of a[c] b[c] g[c]; in four sums, so that no addition waits for the one before.
template <bool gated>
INLINE float dot(const float *a, const float *b, const float *g, int64_t d) {
    Vector sums[4] = {};
    int64_t c = 0;
    for (; c + 4 * lanes <= d; c += 4 * lanes)
        for (int part = 0; part < 4; part++) {
            const int64_t at = c + part * lanes;
            const Vector product = read<Vector>(a + at) * read<Vector>(b + at);
            sums[part] += gated ? product * read<Vector>(g + at) : product;
        }
    for (; c + lanes <= d; c += lanes) {
        const Vector product = read<Vector>(a + c) * read<Vector>(b + c);
        sums[0] += gated ? product * read<Vector>(g + c) : product;
    }
    float sum = sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; c < d; c++) sum += gated ? a[c] * b[c] * g[c] : a[c] * b[c];
    return sum;
}

INLINE float rms_of(const float *x, int64_t d) { return __builtin_sqrtf(dot<false>(x, x, nullptr, d) / float(d)); }

template <bool gated>
void norm_rows(const Positions &p, const float *x, const float *gate, float *y) {
    for (int64_t i = p.first; i < p.last; i++) {
        const int64_t row = i * p.d;
        const float scale = 1.0f / (rms_of(x + row, p.d) + p.e);
        int64_t c = row;
        for (; c + lanes <= row + p.d; c += lanes) {
            const Vector scaled = read<Vector>(x + c) * scale;
            write(y + c, gated ? scaled * read<Vector>(gate + c) : scaled);
        }
        for (; c < row + p.d; c++) y[c] = gated ? x[c] * scale * gate[c] : x[c] * scale;
    }
}

// With q = 1 / (r + e):  grad_x = q (grad gate) - x q^2 (grad gate . x) / (r d),  grad_gate = q grad x.
template <bool gated>
void norm_rows_gradient(const Positions &p, const float *grad, const float *x, const float *gate, float *grad_x,
                        float *grad_gate) {
    for (int64_t i = p.first; i < p.last; i++) {
        const int64_t row = i * p.d;
        const float r = rms_of(x + row, p.d), scale = 1.0f / (r + p.e);
        const float product = dot<gated>(grad + row, x + row, gated ? gate + row : nullptr, p.d);
        const float slope = r == 0 ? 0 : product * scale * scale / (r * float(p.d));  // a row of zeros has none
        int64_t c = row;
        for (; c + lanes <= row + p.d; c += lanes) {
            const Vector from = read<Vector>(grad + c) * scale, value = read<Vector>(x + c);
            write(grad_x + c, (gated ? from * read<Vector>(gate + c) : from) - value * slope);
            if (gated) write(grad_gate + c, from * value);
        }
        for (; c < row + p.d; c++) {
            const float from = grad[c] * scale, value = x[c];
            grad_x[c] = (gated ? from * gate[c] : from) - value * slope;
            if (gated) grad_gate[c] = from * value;
        }
    }
}

void norm(const Positions &p, const float *x, const float *gate, float *y) {
    gate ? norm_rows<true>(p, x, gate, y) : norm_rows<false>(p, x, gate, y);
}

void norm_gradient(const Positions &p, const float *grad, const float *x, const float *gate, float *grad_x,
                   float *grad_gate) {
    gate ? norm_rows_gradient<true>(p, grad, x, gate, grad_x, grad_gate)
         : norm_rows_gradient<false>(p, grad, x, gate, grad_x, grad_gate);
}

}  // namespace
