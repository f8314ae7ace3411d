// The gated norm for vectors of TNN_LANES channels; included once per instruction set, after silu.inl.
//
// Each position is one pass over a row that stays in the L1 cache: memory is read and written once.

namespace {

using tnn::Positions;

INLINE float sum_of(Vector v) {
    float sum = 0;
    for (int lane = 0; lane < lanes; lane++) sum += v[lane];
    return sum;
}

INLINE float sum_of_squares(const float *x, int64_t d) {
    Vector sums[4] = {};  // so that no addition waits for the one before
    int64_t c = 0;
    for (; c + 4 * lanes <= d; c += 4 * lanes)
        for (int part = 0; part < 4; part++) {
            const Vector value = read<Vector>(x + c + part * lanes);
            sums[part] += value * value;
        }
    for_vectors(c, d, [&](int64_t at, int64_t count) {
        const Vector value = read_some(x + at, count);
        sums[0] += value * value;
    });
    return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

INLINE float rms_of(const float *x, int64_t d) { return __builtin_sqrtf(sum_of_squares(x, d) / float(d)); }

enum class Gate { none, plain, silu };

// What the norm is multiplied by.
template <Gate kind>
INLINE Vector factor(const float *gate, int64_t count) {
    if (kind == Gate::none) return filled(1);
    const Vector value = read_some(gate, count);
    return kind == Gate::silu ? silu(value) : value;
}

template <Gate kind>
void norm_rows(const Positions &p, const float *x, const float *gate, float *y) {
    for (int64_t i = p.first; i < p.last; i++) {
        const int64_t row = i * p.d;
        const float scale = 1.0f / (rms_of(x + row, p.d) + p.e);
        for_vectors(row, row + p.d, [&](int64_t c, int64_t count) {
            write_some(y + c, read_some(x + c, count) * scale * factor<kind>(gate + c, count), count);
        });
    }
}

// With q = 1 / (r + e) and the factor f of the gate:
//   grad_x = q f grad - x q^2 (f grad . x) / (r d),  grad_gate = q grad x, times the slope of the SiLU if there is one.
template <Gate kind>
void norm_rows_gradient(const Positions &p, const float *grad, const float *x, const float *gate, float *grad_x,
                        float *grad_gate) {
    for (int64_t i = p.first; i < p.last; i++) {
        const int64_t row = i * p.d;
        const float r = rms_of(x + row, p.d), scale = 1.0f / (r + p.e);
        Vector products{};
        for_vectors(row, row + p.d, [&](int64_t c, int64_t count) {  // grad_x holds f grad until the sum is known
            const Vector from = read_some(grad + c, count), value = read_some(x + c, count);
            Vector onward = from;
            if (kind != Gate::none) {
                const Vector g = read_some(gate + c, count), s = kind == Gate::silu ? sigmoid(g) : filled(1);
                onward *= kind == Gate::silu ? g * s : g;
                write_some(grad_gate + c, from * value * scale * (kind == Gate::silu ? silu_slope(g, s) : s), count);
            }
            products += onward * value;
            write_some(grad_x + c, onward, count);
        });
        const float slope = r == 0 ? 0 : sum_of(products) * scale * scale / (r * float(p.d));  // zeros have none
        for_vectors(row, row + p.d, [&](int64_t c, int64_t count) {
            write_some(grad_x + c, read_some(grad_x + c, count) * scale - read_some(x + c, count) * slope, count);
        });
    }
}

void norm(const Positions &p, const float *x, const float *gate, bool silu_gate, float *y) {
    if (!gate) return norm_rows<Gate::none>(p, x, gate, y);
    silu_gate ? norm_rows<Gate::silu>(p, x, gate, y) : norm_rows<Gate::plain>(p, x, gate, y);
}

void norm_gradient(const Positions &p, const float *grad, const float *x, const float *gate, bool silu_gate,
                   float *grad_x, float *grad_gate) {
    if (!gate) return norm_rows_gradient<Gate::none>(p, grad, x, gate, grad_x, grad_gate);
    silu_gate ? norm_rows_gradient<Gate::silu>(p, grad, x, gate, grad_x, grad_gate)
              : norm_rows_gradient<Gate::plain>(p, grad, x, gate, grad_x, grad_gate);
}

}  // namespace
