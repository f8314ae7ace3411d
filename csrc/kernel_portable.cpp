#define TNN_LANES 4
#include "kernel.inl"
#include "direct.inl"
#include "norm.inl"
const tnn::Kernel tnn::portable_kernel = {"portable", convolve_any<>, correlate_any<>, convolve_direct, correlate_direct, norm, norm_gradient};
