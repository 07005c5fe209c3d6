// Threads come from the OpenMP runtime that torch has already loaded: one pool, so nothing spins against it, and
// its threads are still awake after a torch op. Only where there is none do we keep threads of our own.
#include "team.h"

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#ifdef __linux__
#include <dlfcn.h>
#include <link.h>
#endif

namespace hush {
namespace {

struct Gomp {
    void (*parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
    int (*thread_num)() = nullptr;
    int (*num_threads)() = nullptr;
};

#ifdef __linux__
Gomp find_gomp() {
    Gomp gomp;
    auto visit = [](dl_phdr_info* info, size_t, void* data) -> int {
        const char* path = info->dlpi_name;
        if (!path || !(std::strstr(path, "libgomp") || std::strstr(path, "libomp") || std::strstr(path, "libiomp")))
            return 0;
        // torch's copy lies in its own folders; another package's copy would be a second pool.
        if (!std::strstr(path, "torch")) return 0;
        void* handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
        if (!handle) return 0;
        Gomp found;
        found.parallel = reinterpret_cast<decltype(found.parallel)>(dlsym(handle, "GOMP_parallel"));
        found.thread_num = reinterpret_cast<decltype(found.thread_num)>(dlsym(handle, "omp_get_thread_num"));
        found.num_threads = reinterpret_cast<decltype(found.num_threads)>(dlsym(handle, "omp_get_num_threads"));
        if (!found.parallel || !found.thread_num || !found.num_threads) return 0;
        *static_cast<Gomp*>(data) = found;
        return 1;
    };
    dl_iterate_phdr(visit, &gomp);
    return gomp;
}
#else
Gomp find_gomp() { return {}; }
#endif

const Gomp& gomp() {
    static const Gomp found = find_gomp();
    return found;
}

struct Job {
    TeamFunction function;
    void* data;
};

void gomp_entry(void* raw) {
    const Job* job = static_cast<const Job*>(raw);
    job->function(job->data, gomp().thread_num(), gomp().num_threads());
}

// Threads of our own, asleep between calls. Never destroyed: a static destructor would race with interpreter exit.
class Pool {
public:
    void run(int threads, Job job) {
        std::unique_lock busy(in_use_, std::try_to_lock);
        if (!busy.owns_lock()) return job.function(job.data, 0, 1);  // another Python thread has the pool: go alone
        {
            std::lock_guard lock(mutex_);
            while (static_cast<int>(workers_.size()) < threads - 1)
                workers_.emplace_back([this, id = static_cast<int>(workers_.size()) + 1] { work(id); });
            job_ = job, size_ = threads, running_ = threads - 1, ++round_;
        }
        wake_.notify_all();
        job.function(job.data, 0, threads);
        std::unique_lock lock(mutex_);
        done_.wait(lock, [this] { return running_ == 0; });
    }

private:
    void work(int id) {
        unsigned seen = 0;
        for (;;) {
            std::unique_lock lock(mutex_);
            wake_.wait(lock, [&] { return round_ != seen; });
            seen = round_;
            if (id >= size_) continue;
            const Job job = job_;
            const int n = size_;
            lock.unlock();
            job.function(job.data, id, n);
            lock.lock();
            if (--running_ == 0) done_.notify_one();
        }
    }

    std::mutex in_use_, mutex_;
    std::condition_variable wake_, done_;
    std::vector<std::thread> workers_;
    Job job_{};
    int size_ = 0, running_ = 0;
    unsigned round_ = 0;
};

}  // namespace

const char* team_kind() { return gomp().parallel ? "gomp" : "std"; }

void run_team(int threads, TeamFunction function, void* data) {
    Job job{function, data};
    if (gomp().parallel) return gomp().parallel(gomp_entry, &job, static_cast<unsigned>(threads), 0);
    static Pool* pool = new Pool;
    pool->run(threads, job);
}

}  // namespace hush
