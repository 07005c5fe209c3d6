// A batch passes through blocks that belong to threads.
//
// Whatever one core writes and another one reads is sent from cache to cache, and invalidated there at the next write. In
// a training step that is every weight, if threads share the samples out among themselves: each reads all weights, and one
// of them writes. So blocks are dealt out instead, some neighbours (a stretch) at a time, stretch s to thread s mod n, in
// the forward as in the backward. The batch is cut into groups of samples, which go from stretch to stretch; all threads
// are at work as soon as the first groups have passed. Nobody but its owner touches a block's weights.
#pragma once
#include <algorithm>
#include <atomic>
#include <memory>

#include "chain.h"
#include "team.h"

namespace hush {

class Relay {
public:
    Relay(size_t blocks, size_t batch, int threads)
        : blocks_(blocks), batch_(batch), stretches_(stretches_of(blocks, threads)),
          groups_(threads <= 1 ? 1 : std::max<size_t>(1, std::min(batch, std::max(kGroups, static_cast<size_t>(threads))))),
          left_(new Count[stretches_]) {}

    size_t stretches() const { return stretches_; }
    size_t groups() const { return groups_; }
    Range blocks(size_t stretch) const { return {blocks_ * stretch / stretches_, blocks_ * (stretch + 1) / stretches_}; }
    Range samples(size_t group) const { return {batch_ * group / groups_, batch_ * (group + 1) / groups_}; }

    size_t longest() const {
        size_t most = 0;
        for (size_t s = 0; s < stretches_; ++s) most = std::max(most, blocks(s).size());
        return most;
    }

    // Another group has left a stretch; they do so in order.
    void leave(size_t stretch) {
        left_[stretch].groups.fetch_add(1, std::memory_order_release);
        left_[stretch].groups.notify_all();
    }
    // Until that group has left that stretch: a spin, then sleep, for the reason that Barrier gives. A longer spin than there,
    // since a group takes hundreds of microseconds, and a thread that sleeps wakes up late for all that follow.
    void await(size_t stretch, size_t group) {
        const std::atomic<unsigned>& groups = left_[stretch].groups;
        unsigned now = groups.load(std::memory_order_acquire);
        for (int spins = 0; now <= group; now = groups.load(std::memory_order_acquire)) {
            if (++spins < kSpins)
                HUSH_PAUSE();
            else
                groups.wait(now, std::memory_order_acquire);
        }
    }

private:
    // Groups are large, since each of them fetches a stretch's weights anew. Long stretches let the other threads wait for
    // the first group, short ones hand it over often.
    static constexpr size_t kGroups = 2, kStretch = 6;  // at least, at most
    static constexpr int kSpins = 30000;
    struct alignas(64) Count {
        std::atomic<unsigned> groups{0};
    };
    static size_t stretches_of(size_t blocks, int threads) {
        if (threads <= 1) return blocks;  // every block's weights are still in L2 for whatever comes next
        // Several stretches for each thread, and not many blocks in one.
        const size_t all = std::max(4 * static_cast<size_t>(threads), (blocks + kStretch - 1) / kStretch);
        return std::max<size_t>(1, std::min(blocks, all));
    }
    size_t blocks_, batch_, stretches_, groups_;
    std::unique_ptr<Count[]> left_;
};

}  // namespace hush
