#define TNN_LANES 4
#include "kernel.inl"
TNN_KERNEL(portable)
