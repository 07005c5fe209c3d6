// A team of threads that runs one function, each with its number.
#pragma once
#include <atomic>
#include <thread>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#define HUSH_PAUSE() _mm_pause()
#else
#define HUSH_PAUSE() ((void)0)
#endif

namespace hush {

// All n wait for the last. A short spin, because a layer takes microseconds; then the thread sleeps, because the one it
// waits for may need this core (a yield is not enough: the scheduler may hand the core straight back).
class Barrier {
public:
    void wait(int n) {
        if (n == 1) return;
        const unsigned now = round_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(now + 1, std::memory_order_release);
            round_.notify_all();
            return;
        }
        for (int spins = 0; spins < kSpins; ++spins) {
            if (round_.load(std::memory_order_acquire) != now) return;
            HUSH_PAUSE();
        }
        round_.wait(now, std::memory_order_acquire);
    }

private:
    static constexpr int kSpins = 3000;
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<unsigned> round_{0};
};

using TeamFunction = void (*)(void* data, int id, int n);
void run_team(int threads, TeamFunction function, void* data);
const char* team_kind();  // "gomp" when the team is torch's own OpenMP pool, else "std"

// body(id, n) on at most `threads` threads; n is what was really given. body must not throw.
template <class Body>
void run_team(int threads, Body&& body) {
    if (threads <= 1) return body(0, 1);
    run_team(
        threads, [](void* data, int id, int n) { (*static_cast<std::remove_reference_t<Body>*>(data))(id, n); }, &body);
}

}  // namespace hush
