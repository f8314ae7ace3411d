#define TNN_LANES 4
#include "kernel.inl"
#include "norm.inl"
const tnn::Kernel tnn::portable_kernel = {"portable", convolve_any<>, correlate_any<>, norm, norm_gradient};
