// Weights of a convolution from torch's memory into the kernels' tiles, and gradients back.
#include <algorithm>
#include <cstring>
#include <string>

#include "convolution.h"
#include "kernels.h"
#include "team.h"

namespace hush {
namespace {

constexpr size_t kInputs = 16;  // a block of so many inputs is one cache line of channels-last weights

// visit(place in the tiles, place in torch's memory) for every weight, shared by a team. Channels-last weights are taken
// output by output, because their rows often begin a power of two apart, and then few of them fit into the first cache.
template <class Visit>
void each_weight(const ConvShape& s, const WeightStrides& at, int threads, Visit visit) {
    const ConvTiles tiles = tiles_of(s);
    const size_t blocks = (s.inputs + kInputs - 1) / kInputs, units = tiles.count() * blocks;
    run_team(static_cast<int>(std::min<size_t>(std::max(threads, 1), std::max<size_t>(units, 1))), [&](int id, int n) {
        for (size_t u = units * id / n; u < units * (id + 1) / n; ++u) {
            const size_t tile = u / blocks, block = u % blocks, width = tiles.size(tile) * tiles.lanes;
            const size_t first = tiles.first(tile) * tiles.lanes, last = std::min(first + width, s.outputs);
            const size_t base = s.taps() * s.inputs * first, c0 = block * kInputs, c1 = std::min(s.inputs, c0 + kInputs);
            auto one = [&](size_t o, size_t c, size_t tap) {
                visit(base + (tap * s.inputs + c) * width + o - first,
                      o * at.output + c * at.input + tap / s.taps_x * at.y + tap % s.taps_x * at.x);
            };
            if (at.input == 1) {
                for (size_t o = first; o < last; ++o)
                    for (size_t tap = 0; tap < s.taps(); ++tap)
                        for (size_t c = c0; c < c1; ++c) one(o, c, tap);
            } else {
                for (size_t tap = 0; tap < s.taps(); ++tap)
                    for (size_t c = c0; c < c1; ++c)
                        for (size_t o = first; o < last; ++o) one(o, c, tap);
            }
        }
    });
}

}  // namespace

const ConvKernels& convolution_kernels() {
    static const ConvKernels& chosen = []() -> const ConvKernels& {
#ifdef HUSH_X86
        const std::string name = kernels().name;
        if (name == avx512_convolution.name) return avx512_convolution;
        if (name == avx2_convolution.name) return avx2_convolution;
#endif
        return portable_convolution;
    }();
    return chosen;
}

ConvTiles tiles_of(const ConvShape& shape) {
    const ConvKernels& k = convolution_kernels();
    const size_t lanes = static_cast<size_t>(k.lanes);
    return {lanes, (shape.outputs + lanes - 1) / lanes, static_cast<size_t>(k.tile)};
}

size_t tiled_weights(const ConvShape& shape) { return shape.taps() * shape.inputs * tiles_of(shape).width(); }

void pack_weights(const ConvShape& s, const float* weight, const WeightStrides& at, float* packed, int threads) {
    const ConvTiles tiles = tiles_of(s);
    if (const size_t beyond = tiles.width() - s.outputs) {  // of the last tile: no outputs, but read by its last vector
        const size_t tile = tiles.count() - 1, width = tiles.size(tile) * tiles.lanes, rows = s.taps() * s.inputs;
        float* base = packed + rows * tiles.first(tile) * tiles.lanes;
        for (size_t row = 0; row < rows; ++row) std::fill_n(base + (row + 1) * width - beyond, beyond, 0.0f);
    }
    each_weight(s, at, threads, [=](size_t to, size_t from) { packed[to] = weight[from]; });
}

void unpack_gradient(const ConvShape& s, const float* packed, float* gradient, const WeightStrides& at, int threads) {
    each_weight(s, at, threads, [=](size_t from, size_t to) { gradient[to] = packed[from]; });
}

}  // namespace hush
