// φ → Conv2d over channels-last images: a pixel's active channels are listed once, and every product visits only them.
//
// Positions are counted in the padded image, p = y + top, so that output o reads p = o·stride + k for each tap k. A list
// entry is p_x·channels + c: for output o_x and row k_y of taps, the entry's weight is row (entry − o_x·stride·channels)
// of that row of taps, and all entries between two pixels lie one after the other.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "activation.h"

namespace hush {

struct ConvShape {
    size_t images, height, width, inputs, outputs, taps_y, taps_x, stride_y, stride_x, top, left, bottom, right;
    bool circular;  // else what is padded is 0
    size_t padded_height() const { return height + top + bottom; }
    size_t padded_width() const { return width + left + right; }
    size_t out_height() const { return (padded_height() - taps_y) / stride_y + 1; }
    size_t out_width() const { return (padded_width() - taps_x) / stride_x + 1; }
    size_t rows() const { return images * height; }
    size_t taps() const { return taps_y * taps_x; }
};

constexpr size_t kNowhere = ~size_t(0);

// The pixel of an axis that lies at padded position p; kNowhere in a padding of zeros.
inline size_t source_of(size_t p, size_t before, size_t size, bool circular) {
    if (p >= before && p < before + size) return p - before;
    return circular ? (p + size - before) % size : kNowhere;
}

// Weights as the kernels read them: tiles of outputs, each [tap][input][vectors·lanes], zeros behind the last output.
struct ConvTiles {
    size_t lanes, vectors, most;  // in all, and in one tile
    size_t count() const { return (vectors + most - 1) / most; }
    size_t first(size_t tile) const { return vectors * tile / count(); }
    size_t size(size_t tile) const { return first(tile + 1) - first(tile); }
    size_t width() const { return vectors * lanes; }
};

// Writes the active channels of one row of pixels, padding included: entries, values, and where each pixel's begin.
struct ListTask {
    const float* x;  // [width][channels]
    const ConvShape* shape;
    Activation activation;
    uint32_t* entries;  // room for one vector more
    float* values;
    uint32_t* starts;  // padded width + 1, from 0
};

// One row of outputs, one tile of them, one row of taps after the other.
struct ConvForwardTask {
    const ConvShape* shape;
    const float* weight;  // of the tile
    int vectors, tail;    // tail: lanes of the last vector that are outputs, 0 when it is full
    const float* bias;    // at the tile's first output, whole vectors; null: none
    const uint32_t* entries;
    const float* values;
    const uint32_t* const* starts;  // per row of taps; null where it reads padding
    float* sums;                    // [out width][vectors·lanes]
    float* out;                     // at the tile's first output
    size_t out_stride;
};

// One input, one tile, one row of taps of one phase of the stride. An entry reads δ at its position less
// shift + t:
//
//   sums[i]      += Σ_t ⟨W[t, tile], δ⟩
//   gradient[t]  += Σ_i values[i] · δ
struct ConvBackwardTask {
    const float* delta;
    size_t delta_stride;        // of a pixel
    const uint32_t* positions;  // in pixels
    uint32_t shift;
    const float* values;
    size_t entries;
    int vectors;
    size_t taps;
    const float* weight;  // of the first tap
    float* gradient;
    size_t tap_stride;
    float* sums;  // null: not wanted
};

struct ConvKernels {
    const char* name;
    int lanes, tile;
    size_t (*count)(const float* x, size_t n, const Activation&);
    void (*list)(const ListTask&);
    void (*forward)(const ConvForwardTask&);
    void (*backward)(const ConvBackwardTask&);
};

extern const ConvKernels portable_convolution;
#ifdef HUSH_X86
extern const ConvKernels avx2_convolution;
extern const ConvKernels avx512_convolution;
#endif
const ConvKernels& convolution_kernels();  // of the set that kernels() has chosen

// The lists of all rows: of row r, pixel p: entries [starts[r·(padded width + 1) + p], …).
struct ConvLists {
    uint32_t* starts;
    uint32_t* entries;
    float* values;
    size_t count;
};

// Where weights and their gradients lie in torch's memory.
struct WeightStrides {
    size_t output, input, y, x;
};

ConvTiles tiles_of(const ConvShape& shape);
size_t tiled_weights(const ConvShape& shape);  // how many floats they take
void pack_weights(const ConvShape& shape, const float* weight, const WeightStrides& strides, float* packed, int threads);
void unpack_gradient(const ConvShape& shape, const float* packed, float* gradient, const WeightStrides& strides, int threads);

// Active units per row of pixels, those that circular padding repeats included; their sum without these.
uint64_t count_active(const ConvShape& shape, const Activation& phi, const float* x, uint32_t* per_row, int threads);
void list_active(const ConvShape& shape, const Activation& phi, const float* x, const uint32_t* per_row,
                 const ConvLists& lists, int threads);
void convolution_forward(const ConvShape& shape, const float* packed, const float* bias, const ConvLists& lists,
                         float* out, int threads);
// dx (null: not wanted) is written whole; packed_gradient is tiled as the weights are.
void convolution_backward(const ConvShape& shape, const Activation& phi, const float* packed, const ConvLists& lists,
                          const float* delta, float* dx, float* packed_gradient, int threads);

}  // namespace hush
