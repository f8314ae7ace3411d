// The Toeplitz product and the gradient of its coefficients, with a C interface: raw pointers and strides, no torch. And the
// norm and the gates that stand beside it in every block.
//
//   convolve:   y[b, i, c] = sum_m k[m, c] x[b, i - (m - future), c]
//   correlate:  g[m, c]    = sum over b and i of y[b, i, c] x[b, i - (m - future), c]
//
// b < rows, i < n, c < d, m < lags <= 2n - 1, 0 <= future < lags. Channels are contiguous, the other axes have any
// stride, counted in floats. Inputs outside 0 .. n-1 are zero.

#ifndef TNN_TOEPLITZ_H
#define TNN_TOEPLITZ_H

#include <stdint.h>

#define TNN_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int64_t rows, n, d, lags, future;
} tnn_problem;

typedef struct {
    float *data;
    int64_t row_stride, position_stride;
} tnn_sequence;

enum { TNN_OK = 0, TNN_OUT_OF_MEMORY = 1, TNN_TOO_LONG = 2 };

// k is (lags, d), contiguous. `forked` says that this process was forked from one that may have used OpenMP. Each function
// returns TNN_OK or an error; after an error the output is undefined.
TNN_EXPORT int tnn_convolve(const tnn_problem *problem, tnn_sequence x, const float *k, tnn_sequence y, int threads, int forked);
TNN_EXPORT int tnn_correlate(const tnn_problem *problem, tnn_sequence x, tnn_sequence y, float *g, int threads, int forked);

// The norm of SimpleRMSNorm, times a gate: with r(i) the root mean square of the d channels x[i, :], and e >= 0,
//
//   y[i, c] = gate[i, c] x[i, c] / (r(i) + e)
//
// and its gradients, given those of y; with `silu_gate`, silu(gate) in place of gate. All are (n, d), contiguous; without a
// gate, `gate` and `grad_gate` are null.
TNN_EXPORT int tnn_rms_norm(int64_t n, int64_t d, float e, const float *x, const float *gate, int silu_gate, float *y,
                            int threads, int forked);
TNN_EXPORT int tnn_rms_norm_gradient(int64_t n, int64_t d, float e, const float *grad, const float *x, const float *gate,
                                     int silu_gate, float *grad_x, float *grad_gate, int threads, int forked);

// y = silu(a) b, with silu(a) = a / (1 + e^-a), and its gradients; n values each.
TNN_EXPORT int tnn_silu_product(int64_t n, const float *a, const float *b, float *y, int threads, int forked);
TNN_EXPORT int tnn_silu_product_gradient(int64_t n, const float *grad, const float *a, const float *b, float *grad_a,
                                         float *grad_b, int threads, int forked);

// The instruction set in use: "avx512", "avx2" or "portable". The environment variable TNN_NATIVE_ISA selects one, if the
// processor has it.
TNN_EXPORT const char *tnn_instruction_set(void);

#ifdef __cplusplus
}
#endif
#endif
