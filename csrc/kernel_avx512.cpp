#define TNN_LANES 16
#include "kernel.inl"
TNN_KERNEL(avx512)
