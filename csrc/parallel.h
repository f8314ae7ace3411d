// Work shared by several threads.

#ifndef TNN_PARALLEL_H
#define TNN_PARALLEL_H

namespace tnn {

// How many threads to use, this one included, and whether this process was forked from one that may have used OpenMP.
struct Threads {
    int count;
    bool forked;
};

// Calls body(context, worker) once for each of some distinct worker numbers in 0 .. count-1, always including 0, and
// returns when all calls have returned. The system decides how many there are: a body takes tasks until none is left.
void run_workers(Threads threads, void (*body)(void *context, int worker), void *context);

}  // namespace tnn
#endif
