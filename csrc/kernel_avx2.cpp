#define TNN_LANES 8
#include "kernel.inl"
#include "direct.inl"
#include "norm.inl"
const tnn::Kernel tnn::avx2_kernel = {"avx2", convolve_any<>, correlate_any<>, convolve_direct, correlate_direct, norm, norm_gradient};
