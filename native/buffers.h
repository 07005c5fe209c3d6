// Aligned memory that is kept for the next call, and a way to cut it into arrays.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hush {

inline constexpr size_t kLine = 64;
inline size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Pages fresh from the system cost more than the arithmetic on them: a freed block is handed out again.
// A block may be much larger than what is used of it: untouched pages take no memory.
void* take_block(size_t bytes);
void give_block(void* block);

class Block {
public:
    explicit Block(size_t bytes) : data_(take_block(bytes)) {}
    ~Block() {
        if (data_) give_block(data_);
    }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    char* data() const { return static_cast<char*>(data_); }
    void* release() {
        void* p = data_;
        data_ = nullptr;
        return p;
    }

private:
    void* data_;
};

// Cuts arrays off a block; with no block it only counts, so one function both sizes and places.
class Cutter {
public:
    explicit Cutter(char* base) : base_(base) {}
    template <class T>
    T* cut(size_t n) {
        T* p = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
        used_ += round_up(n * sizeof(T), kLine) + kLine;
        return p;
    }
    size_t used() const { return used_; }

private:
    char* base_;
    size_t used_ = 0;
};

// The memory of all arrays that work.place(cutter) cuts, which is called twice: to count, and to place.
class Scratch {
public:
    template <class Work>
    explicit Scratch(Work& work) : block_(bytes(work)) {
        Cutter cutter(block_.data());
        work.place(cutter);
    }

private:
    template <class Work>
    static size_t bytes(Work& work) {
        Cutter size(nullptr);
        work.place(size);
        return size.used();
    }
    Block block_;
};

}  // namespace hush
