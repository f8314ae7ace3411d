// Work shared by several threads.

#ifndef TNN_PARALLEL_H
#define TNN_PARALLEL_H

namespace tnn {

// Calls body(context, worker) once each for some distinct worker numbers in 0 .. workers-1, 0 always among them, and
// returns when all calls have. How many there are is up to the system: a body takes tasks until none is left.
void run_workers(int workers, void (*body)(void *context, int worker), void *context);

}  // namespace tnn
#endif
