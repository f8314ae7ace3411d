#define TNN_LANES 4
#include "kernel.inl"
#include "direct.inl"
#include "silu.inl"
#include "norm.inl"
const tnn::Kernel tnn::portable_kernel = {"portable", convolve_any<>, correlate_any<>, convolve_direct, correlate_direct, silu_product, silu_product_gradient, norm, norm_gradient};
