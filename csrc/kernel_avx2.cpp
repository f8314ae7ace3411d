#define TNN_LANES 8
#include "kernel.inl"
#include "direct.inl"
#include "silu.inl"
#include "norm.inl"
const tnn::Kernel tnn::avx2_kernel = {"avx2", convolve_any<>, correlate_any<>, convolve_direct, correlate_direct, silu_product, silu_product_gradient, norm, norm_gradient};
