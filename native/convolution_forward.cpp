// The active units of the images, then every output from them.
#include <algorithm>
#include <cstring>
#include <vector>

#include "buffers.h"
#include "convolution.h"
#include "team.h"

namespace hush {
namespace {

constexpr size_t kRows = 256;  // rows of outputs that one tile of weights is read for before the next: it lies in L2 by then

int team_for(size_t work, int threads) {
    return static_cast<int>(std::min<size_t>(std::max(threads, 1), std::max<size_t>(work, 1)));
}

}  // namespace

uint64_t count_active(const ConvShape& s, const Activation& phi, const float* x, uint32_t* per_row, int threads) {
    const ConvKernels& k = convolution_kernels();
    const size_t row = s.width * s.inputs;
    std::vector<uint64_t> found(static_cast<size_t>(std::max(threads, 1)));
    run_team(team_for(s.rows(), threads), [&](int id, int n) {
        uint64_t all = 0;
        for (size_t r = s.rows() * id / n; r < s.rows() * (id + 1) / n; ++r) {
            const float* at = x + r * row;
            size_t active = k.count(at, row, phi);
            all += active;
            if (s.circular)  // padding is at most as wide as the image
                active += k.count(at, s.right * s.inputs, phi) + k.count(at + (s.width - s.left) * s.inputs, s.left * s.inputs, phi);
            per_row[r] = static_cast<uint32_t>(active);
        }
        found[id] = all;
    });
    uint64_t all = 0;
    for (uint64_t f : found) all += f;
    return all;
}

void list_active(const ConvShape& s, const Activation& phi, const float* x, const uint32_t* per_row,
                 const ConvLists& lists, int threads) {
    const ConvKernels& k = convolution_kernels();
    const size_t padded = s.padded_width(), most = padded * s.inputs + static_cast<size_t>(k.lanes);
    run_team(team_for(s.rows(), threads), [&](int id, int n) {
        // A compress writes whole vectors, and behind a row begins that of another thread: so elsewhere first.
        Block scratch(most * 8);
        auto* entries = reinterpret_cast<uint32_t*>(scratch.data());
        auto* values = reinterpret_cast<float*>(scratch.data()) + most;
        const size_t first = s.rows() * id / n, last = s.rows() * (id + 1) / n;
        uint32_t at = 0;
        for (size_t r = 0; r < first; ++r) at += per_row[r];
        for (size_t r = first; r < last; ++r) {
            uint32_t* starts = lists.starts + r * (padded + 1);
            k.list({x + r * s.width * s.inputs, &s, phi, entries, values, starts});
            std::memcpy(lists.entries + at, entries, starts[padded] * sizeof(uint32_t));
            std::memcpy(lists.values + at, values, starts[padded] * sizeof(float));
            for (size_t p = 0; p <= padded; ++p) starts[p] += at;
            at = starts[padded];
        }
    });
}

void convolution_forward(const ConvShape& s, const float* packed, const float* bias, const ConvLists& lists, float* out,
                         int threads) {
    const ConvKernels& k = convolution_kernels();
    const ConvTiles tiles = tiles_of(s);
    const size_t down = s.out_height(), across = s.out_width(), padded = s.padded_width(), rows = s.images * down;
    std::vector<float> whole_bias(bias ? tiles.width() : 0);
    if (bias) std::copy_n(bias, s.outputs, whole_bias.begin());
    run_team(team_for(rows, threads), [&](int id, int n) {
        Block scratch(across * tiles.most * tiles.lanes * sizeof(float));
        std::vector<const uint32_t*> starts(s.taps_y);
        const size_t from = rows * id / n, to = rows * (id + 1) / n;
        for (size_t block = from; block < to; block += kRows)
            for (size_t tile = 0; tile < tiles.count(); ++tile) {
                const size_t first = tiles.first(tile) * tiles.lanes;
                ConvForwardTask task{};
                task.shape = &s;
                task.weight = packed + s.taps() * s.inputs * first;
                task.vectors = static_cast<int>(tiles.size(tile));
                task.tail = first + tiles.size(tile) * tiles.lanes > s.outputs ? static_cast<int>(s.outputs % tiles.lanes) : 0;
                task.bias = bias ? whole_bias.data() + first : nullptr;
                task.entries = lists.entries, task.values = lists.values;
                task.starts = starts.data();
                task.sums = reinterpret_cast<float*>(scratch.data());
                task.out_stride = s.outputs;
                for (size_t row = block; row < std::min(block + kRows, to); ++row) {
                    const size_t image = row / down, o = row % down;
                    for (size_t ky = 0; ky < s.taps_y; ++ky) {
                        const size_t y = source_of(o * s.stride_y + ky, s.top, s.height, s.circular);
                        starts[ky] = y == kNowhere ? nullptr : lists.starts + (image * s.height + y) * (padded + 1);
                    }
                    task.out = out + row * across * s.outputs + first;
                    k.forward(task);
                }
            }
    });
}

}  // namespace hush
