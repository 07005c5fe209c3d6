// The layout of what a residual chain keeps for its backward.
#include <cstring>
#include <stdexcept>

#include "buffers.h"
#include "residual.h"

namespace hush {

size_t SavedStream::stream_at() const { return kLine; }
size_t SavedStream::mean_at() const { return stream_at() + round_up(blocks * batch * width * 4, kLine); }
size_t SavedStream::inverse_at() const { return mean_at() + round_up(blocks * batch * 4, kLine); }
size_t SavedStream::biases_at() const { return inverse_at() + round_up(blocks * batch * 4, kLine); }
size_t SavedStream::table_at() const { return biases_at() + round_up(blocks * width * 4, kLine); }
size_t SavedStream::lists_at() const { return table_at() + round_up(blocks * 16, kLine); }

size_t SavedStream::bound() const {
    return lists_at() + blocks * saved_layer_bytes(width, width * batch, index_bytes(batch));
}

SavedLayer SavedStream::lists(size_t block) const {
    const size_t active = row(block)[1];
    const SavedTarget to = saved_target(base, row(block)[0], width, active);
    return {to.column_start, to.values, to.samples, active};
}

void SavedStream::write_head() const {
    std::memset(base, 0, kLine);
    uint64_t* head = at<uint64_t>(0);
    head[0] = kMagic, head[1] = batch, head[2] = blocks, head[3] = width;
    // The gaps between the arrays are cleared: two runs of one forward give the same bytes.
    const size_t ends[][2] = {{stream_at() + blocks * batch * width * 4, mean_at()},
                              {mean_at() + blocks * batch * 4, inverse_at()},
                              {inverse_at() + blocks * batch * 4, biases_at()},
                              {biases_at() + blocks * width * 4, table_at()},
                              {table_at() + blocks * 16, lists_at()}};
    for (const auto& [from, to] : ends) std::memset(base + from, 0, to - from);
}

void SavedStream::check(size_t bytes) const {
    const uint64_t* head = at<uint64_t>(0);
    bool good = bytes >= lists_at() && head[0] == kMagic && head[1] == batch && head[2] == blocks && head[3] == width;
    for (size_t l = 0; good && l < blocks; ++l) {
        const uint64_t offset = row(l)[0], active = row(l)[1];
        good = active <= width * batch && offset <= bytes && offset % kLine == 0 &&
               saved_layer_bytes(width, active, index_bytes(batch)) <= bytes - offset;
    }
    if (!good)
        throw std::invalid_argument(
            "The saved activations do not belong to these blocks and this batch; pass the tensor that the forward "
            "returned.");
}

}  // namespace hush
