#define TNN_LANES 16
#include "kernel.inl"
#include "direct.inl"
#include "silu.inl"
#include "norm.inl"
const tnn::Kernel tnn::avx512_kernel = {"avx512", convolve_any<>, correlate_any<>, convolve_direct, correlate_direct, silu_product, silu_product_gradient, norm, norm_gradient};
