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

// visit(address in a tile, output, input, tap y, tap x) for every weight, shared by a team.
template <class Visit>
void each_weight(const ConvShape& s, int threads, Visit visit) {
    const ConvTiles tiles = tiles_of(s);
    const size_t blocks = (s.inputs + kInputs - 1) / kInputs, units = tiles.count() * blocks;
    run_team(static_cast<int>(std::min<size_t>(std::max(threads, 1), std::max<size_t>(units, 1))), [&](int id, int n) {
        for (size_t u = units * id / n; u < units * (id + 1) / n; ++u) {
            const size_t tile = u / blocks, block = u % blocks, width = tiles.size(tile) * tiles.lanes;
            const size_t first = tiles.first(tile) * tiles.lanes, last = std::min(first + width, s.outputs);
            const size_t at = s.taps() * s.inputs * first;
            for (size_t ky = 0; ky < s.taps_y; ++ky)
                for (size_t kx = 0; kx < s.taps_x; ++kx)
                    for (size_t c = block * kInputs; c < std::min(s.inputs, (block + 1) * kInputs); ++c) {
                        const size_t row = at + ((ky * s.taps_x + kx) * s.inputs + c) * width;
                        visit(row, width, first, last, c, ky, kx);
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
    each_weight(s, threads, [&](size_t row, size_t width, size_t first, size_t last, size_t c, size_t ky, size_t kx) {
        const float* from = weight + c * at.input + ky * at.y + kx * at.x;
        for (size_t o = first; o < last; ++o) packed[row + o - first] = from[o * at.output];
        std::fill(packed + row + (last - first), packed + row + width, 0.0f);
    });
}

void unpack_gradient(const ConvShape& s, const float* packed, float* gradient, const WeightStrides& at, int threads) {
    each_weight(s, threads, [&](size_t row, size_t, size_t first, size_t last, size_t c, size_t ky, size_t kx) {
        float* to = gradient + c * at.input + ky * at.y + kx * at.x;
        for (size_t o = first; o < last; ++o) to[o * at.output] = packed[row + o - first];
    });
}

}  // namespace hush
