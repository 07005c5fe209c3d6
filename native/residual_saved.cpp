// The layout of what a residual chain keeps for its backward.
#include <cstring>
#include <stdexcept>

#include "buffers.h"
#include "residual.h"

namespace hush {

size_t SavedStream::stream_at() const { return kLine; }
size_t SavedStream::moments_at() const { return stream_at() + round_up(blocks * batch * width * 4, kLine); }
size_t SavedStream::biases_at() const { return moments_at() + round_up(blocks * batch * sizeof(Moments), kLine); }
size_t SavedStream::table_at() const { return biases_at() + round_up(blocks * width * 4, kLine); }
size_t SavedStream::lists_at() const { return table_at() + round_up(blocks * 16, kLine); }

size_t SavedStream::units_bytes(size_t active) const {
    return round_up((batch + 1) * 4, kLine) + round_up((most + 1) * 4, kLine) + 3 * round_up(active * 4, kLine) +
           round_up(active * index_bytes(batch), kLine);
}

size_t SavedStream::bound() const { return lists_at() + blocks * units_bytes(most * batch); }

SavedUnits SavedStream::units_at(size_t offset, size_t active) const {
    auto cut = [&offset, this]<class T>(T*, size_t n, size_t bytes) {
        T* found = at<T>(offset);
        offset += round_up(n * bytes, kLine);
        return found;
    };
    SavedUnits units;
    units.sample_start = cut(static_cast<uint32_t*>(nullptr), batch + 1, 4);
    units.values = cut(static_cast<float*>(nullptr), active, 4);
    units.indices = cut(static_cast<uint32_t*>(nullptr), active, 4);
    units.column_start = cut(static_cast<uint32_t*>(nullptr), most + 1, 4);
    units.entries = cut(static_cast<uint32_t*>(nullptr), active, 4);
    units.samples = cut(static_cast<char*>(nullptr), active, index_bytes(batch));
    units.end = at<char>(offset);
    return units;
}

void SavedStream::write_head() const {
    std::memset(base, 0, kLine);
    uint64_t* head = at<uint64_t>(0);
    head[0] = kMagic, head[1] = batch, head[2] = blocks, head[3] = width, head[4] = most;
    // The gaps between the arrays are cleared: two runs of one forward give the same bytes.
    const size_t ends[][2] = {{stream_at() + blocks * batch * width * 4, moments_at()},
                              {moments_at() + blocks * batch * sizeof(Moments), biases_at()},
                              {biases_at() + blocks * width * 4, table_at()},
                              {table_at() + blocks * 16, lists_at()}};
    for (const auto& [from, to] : ends) std::memset(base + from, 0, to - from);
}

void SavedStream::check(size_t bytes) const {
    const uint64_t* head = at<uint64_t>(0);
    bool good = bytes >= lists_at() && head[0] == kMagic && head[1] == batch && head[2] == blocks && head[3] == width &&
                head[4] == most;
    for (size_t l = 0; good && l < blocks; ++l) {
        const uint64_t offset = row(l)[0], active = row(l)[1];
        good = active <= most * batch && offset <= bytes && offset % kLine == 0 &&
               units_bytes(active) <= bytes - offset;
    }
    if (!good)
        throw std::invalid_argument(
            "The saved activations do not belong to these blocks and this batch; pass the tensor that the forward "
            "returned.");
}

}  // namespace hush
