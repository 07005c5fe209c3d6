// Weights of a convolution from torch's memory into the kernels' tiles, and gradients back.
#include <algorithm>
#include <cstring>
#include <string>

#include "convolution.h"
#include "kernels.h"
#include "team.h"
#include "transpose.h"

namespace hush {
namespace {

constexpr size_t kInputs = 16;  // a block of so many inputs is one cache line of channels-last weights

// What one tap of one tile has of a block of inputs: where it begins in the tiles and in torch's memory, and its size.
struct WeightBlock {
    size_t tiled, torch, width, outputs, inputs;
};

// visit(block) for every one of them, shared by a team.
template <class Visit>
void each_block(const ConvShape& s, const WeightStrides& at, int threads, Visit visit) {
    const ConvTiles tiles = tiles_of(s);
    const size_t blocks = (s.inputs + kInputs - 1) / kInputs, units = tiles.count() * blocks;
    run_team(static_cast<int>(std::min<size_t>(std::max(threads, 1), std::max<size_t>(units, 1))), [&](int id, int n) {
        for (size_t u = units * id / n; u < units * (id + 1) / n; ++u) {
            const size_t tile = u / blocks, c = u % blocks * kInputs, width = tiles.size(tile) * tiles.lanes;
            const size_t first = tiles.first(tile) * tiles.lanes, base = s.taps() * s.inputs * first;
            for (size_t tap = 0; tap < s.taps(); ++tap) {
                const size_t offset = tap / s.taps_x * at.y + tap % s.taps_x * at.x;
                visit(WeightBlock{base + (tap * s.inputs + c) * width, first * at.output + c * at.input + offset, width,
                                  std::min(width, s.outputs - first), std::min(kInputs, s.inputs - c)});
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
    each_block(s, at, threads, [=](const WeightBlock& b) {
        if (at.input == 1)  // channels-last
            return transpose_part(weight + b.torch, at.output, packed + b.tiled, b.width, b.outputs, b.inputs);
        for (size_t c = 0; c < b.inputs; ++c)
            for (size_t o = 0; o < b.outputs; ++o)
                packed[b.tiled + c * b.width + o] = weight[b.torch + o * at.output + c * at.input];
    });
}

void unpack_gradient(const ConvShape& s, const float* packed, float* gradient, const WeightStrides& at, int threads) {
    each_block(s, at, threads, [=](const WeightBlock& b) {
        if (at.input == 1)
            return transpose_part(packed + b.tiled, b.width, gradient + b.torch, at.output, b.inputs, b.outputs);
        for (size_t c = 0; c < b.inputs; ++c)
            for (size_t o = 0; o < b.outputs; ++o)
                gradient[b.torch + o * at.output + c * at.input] = packed[b.tiled + c * b.width + o];
    });
}

}  // namespace hush
