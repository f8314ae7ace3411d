#define TNN_LANES 8
#include "kernel.inl"
#include "norm.inl"
const tnn::Kernel tnn::avx2_kernel = {"avx2", convolve_any<>, correlate_any<>, norm, norm_gradient};
