#include "buffers.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace hush {
namespace {

struct Header {
    size_t capacity;
    void* raw;
};
static_assert(sizeof(Header) <= kLine);

constexpr size_t kKept = 8;
// Rows of large blocks are visited in no order, and small pages cost a search for many of them.
constexpr size_t kLargePage = 2 << 20;
std::mutex mutex;
std::vector<void*>& kept() {
    static auto* blocks = new std::vector<void*>;  // never destroyed: tensors may outlive static destructors
    return *blocks;
}
Header* header(void* block) { return reinterpret_cast<Header*>(static_cast<char*>(block) - kLine); }

}  // namespace

void* take_block(size_t bytes) {
    {
        std::lock_guard lock(mutex);
        auto& blocks = kept();
        auto best = blocks.end();
        for (auto it = blocks.begin(); it != blocks.end(); ++it) {
            const size_t capacity = header(*it)->capacity;
            if (capacity < bytes || capacity / 4 > bytes + 4096) continue;
            if (best == blocks.end() || capacity < header(*best)->capacity) best = it;
        }
        if (best != blocks.end()) {
            void* block = *best;
            blocks.erase(best);
            return block;
        }
    }
    const size_t capacity = round_up(std::max<size_t>(bytes, 1), kLine);
    const bool large = capacity >= kLargePage;
    const size_t line = large ? kLargePage : kLine;  // where the block begins
    void* raw = std::malloc(capacity + line + kLine);
    if (!raw) throw std::bad_alloc();
    char* block = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(raw) + kLine, line));
#ifdef MADV_HUGEPAGE
    if (large) madvise(block, capacity, MADV_HUGEPAGE);  // and where the system declines, it is memory like any other
#endif
    *header(block) = {capacity, raw};
    return block;
}

void give_block(void* block) {
    void* old = nullptr;
    {
        std::lock_guard lock(mutex);
        auto& blocks = kept();
        blocks.push_back(block);
        if (blocks.size() > kKept) {
            old = blocks.front();
            blocks.erase(blocks.begin());
        }
    }
    if (old) std::free(header(old)->raw);
}

}  // namespace hush
