#define TNN_LANES 16
#include "kernel.inl"
#include "norm.inl"
const tnn::Kernel tnn::avx512_kernel = {"avx512", convolve_any<>, correlate_any<>, norm, norm_gradient};
