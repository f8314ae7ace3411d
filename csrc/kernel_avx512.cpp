#define TNN_LANES 16
#include "kernel.inl"
#include "direct.inl"
#include "norm.inl"
const tnn::Kernel tnn::avx512_kernel = {"avx512", convolve_any<>, correlate_any<>, convolve_direct, correlate_direct, norm, norm_gradient};
