#define TNN_LANES 8
#include "kernel.inl"
TNN_KERNEL(avx2)
