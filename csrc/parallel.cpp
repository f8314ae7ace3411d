// Threads come from the OpenMP runtime that torch has loaded into the process, found by name and not linked: its workers
// stay awake after torch's own work, and would compete with our own threads for the cores. Without it, or in a child
// process (where an OpenMP runtime may wait for threads that the fork did not copy), threads are started for the call.

#include "parallel.h"

#include <dlfcn.h>

#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace tnn {
namespace {

using OpenMP = void (*)(void (*)(void *), void *, unsigned threads, unsigned flags);

OpenMP find_openmp() { return reinterpret_cast<OpenMP>(dlsym(RTLD_DEFAULT, "GOMP_parallel")); }

struct Call {
    void (*body)(void *, int);
    void *context;
    std::atomic<int> next{0};
};

void join_call(void *data) {
    Call &call = *static_cast<Call *>(data);
    call.body(call.context, call.next.fetch_add(1));
}

}  // namespace

void run_workers(Threads threads, void (*body)(void *, int), void *context) {
    if (threads.count == 1) return body(context, 0);
    static const OpenMP openmp = find_openmp();
    if (openmp && !threads.forked) {
        Call call{body, context};
        return openmp(join_call, &call, unsigned(threads.count), 0);
    }
    std::vector<std::thread> helpers;
    helpers.reserve(size_t(threads.count - 1));
    try {
        for (int worker = 1; worker < threads.count; worker++) helpers.emplace_back(body, context, worker);
    } catch (const std::system_error &) {
        // No more threads available: those that started, and this one, do the work.
    }
    body(context, 0);
    for (std::thread &helper : helpers) helper.join();
}

}  // namespace tnn
