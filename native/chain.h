// A chain of layers h ↦ W φ(h) + b in one call, forward and backward.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace hush {

struct Layer {
    void* weight = nullptr;  // input-major: row i holds the outputs' weights of input i
    float* rows = nullptr;   // where the weight lies row by row, of which `weight` is a turned copy
    bool row_major = false;  // as torch keeps it, row o holds the inputs' weights of output o: to be turned around first
    bool bf16 = false;
    float* bias = nullptr;
    size_t inputs = 0, outputs = 0;
    Activation activation;
};

// What a layer's backward writes or updates; a null pointer is not wanted.
struct LayerGradient {
    float *weight = nullptr, *bias = nullptr;
    float *weight_state1 = nullptr, *weight_state2 = nullptr;
    float *bias_state1 = nullptr, *bias_state2 = nullptr;
    Optimizer optimizer, bias_optimizer;
    bool want_weight = false, want_bias = false;
    const float* means = nullptr;  // ā of each input: the weight's gradient is centred, ∂W − ∂b ⊗ ā
    bool keeps_mean = false;       // the bias takes back what the weight's step does to ā: b ← b − ΔW ā
};

// The compact activations of all layers in one block:
//   table:      magic, batch, layers, bytes per sample index; then per layer: offset, active in lists, inputs, shared
//   per layer:  where every input has its own samples, shared = 0, input by input:
//                 column_start u32[inputs + 1] | values f32[active] | samples u16 or u32[active]
//               where all samples share most of their active inputs, those that any of them has, sample by sample:
//                 columns u32[shared] | rows f32[batch][stride], stride = shared rounded up, zeros where not active
//   between the two, of each layer with a relative activation:
//                 root mean squares f32[batch] | h f32[batch][inputs]
struct SavedLayer {
    const uint32_t* column_start = nullptr;
    const float* values = nullptr;
    const void* samples = nullptr;
    size_t active = 0;
    size_t shared = 0, stride = 0;
    const uint32_t* columns = nullptr;
    const float* rows = nullptr;
};
inline constexpr uint64_t kMagic = 0x6875736873617632;  // "hushsav2"
size_t saved_layer_bytes(size_t inputs, size_t active, size_t index_bytes);
size_t saved_shared_bytes(size_t shared, size_t batch);
size_t saved_table_bytes(size_t layers);
struct SavedScales {
    float* scales = nullptr;  // null: the layer's activation is not relative
    float* h = nullptr;
};
// Of the first n layers.
size_t saved_scales_bytes(const Layer* layers, size_t n, size_t batch);
void clear_scale_gaps(char* saved, const Layer* layers, size_t n, size_t batch);
SavedScales saved_scales(char* saved, const Layer* layers, size_t n, size_t l, size_t batch);
size_t saved_bound(const Layer* layers, size_t n, size_t batch);
inline size_t index_bytes(size_t batch) { return batch < 65536 ? 2 : 4; }
struct SavedTarget {
    uint32_t* column_start;
    float* values;
    void* samples;
};
SavedTarget saved_target(char* saved, size_t offset, size_t inputs, size_t active);
void write_table(char* saved, size_t layers, size_t batch);
void write_row(char* saved, size_t layer, size_t offset, size_t active, size_t inputs);
void write_shared_row(char* saved, size_t layer, size_t offset, size_t inputs, size_t batch, const uint32_t* columns,
                      size_t shared);
float* shared_rows(char* saved, size_t offset, size_t shared);
inline size_t shared_stride(size_t shared) { return (shared + 15) / 16 * 16; }  // whole vectors of any lane type

// Spreads samples [0, n) of some lists over the columns: entry (b, i, x) goes to cursor[i − first_column]++.
// Of each sample the stretch [begin[b], end[b]) is taken; sample b is known as base + b.
void scatter_lists(const ActiveLists& lists, size_t from, size_t n, size_t base, const uint32_t* begin,
                   const uint32_t* end, uint32_t first_column, uint32_t* cursor, const SavedTarget& to,
                   size_t index_bytes);

SavedLayer saved_layer(const char* saved, size_t layer);
// The dense φ(h) of a layer, from what was saved of it.
void expand_saved(const char* saved, size_t layer, size_t inputs, size_t batch, float* out);
// The mean over the batch of each input of each layer, one layer after the other.
void mean_inputs(const char* saved, const Layer* layers, size_t n, size_t batch, float* out);
void check_saved(const char* saved, size_t bytes, const Layer* layers, size_t n, size_t batch);  // throws

struct ForwardResult {
    size_t saved_bytes = 0;
    uint64_t active = 0;  // over all layers and samples
};

// out[b, :] for a row-major h; saved (of saved_bound bytes) may be null: nothing is kept.
ForwardResult forward_chain(const Layer* layers, size_t n, const float* h, size_t h_stride, size_t batch, float* out,
                            size_t out_stride, char* saved, int threads);

// From ∂L/∂out to ∂L/∂h (null: not wanted) and every layer's gradient or update.
void backward_chain(const Layer* layers, const LayerGradient* gradients, size_t n, const char* saved,
                    const float* grad_out, size_t grad_out_stride, size_t batch, float* grad_h, size_t grad_h_stride,
                    int threads);

// Columns of a part of a layer, cut at whole vectors.
struct Range {
    size_t first, last;
    size_t size() const { return last - first; }
};
inline Range part_of(size_t width, int part, int parts, size_t lanes) {
    const size_t vectors = (width + lanes - 1) / lanes;
    const size_t a = vectors * part / parts * lanes, b = vectors * (part + 1) / parts * lanes;
    return {a < width ? a : width, b < width ? b : width};
}

// The inputs of a saved layer that a part of the backward takes: an input costs what its active samples cost, plus a
// little for the row itself.
inline Range inputs_of(const SavedLayer& layer, size_t inputs, int part, int parts) {
    auto cost = [&](size_t i) { return layer.column_start[i] + 2.0 * static_cast<double>(i); };
    const double total = cost(inputs);
    auto cut = [&](int p) {
        if (p == 0) return size_t{0};
        if (p == parts) return inputs;
        size_t low = 0, high = inputs;
        while (low < high) {
            const size_t middle = (low + high) / 2;
            cost(middle) < total * p / parts ? low = middle + 1 : high = middle;
        }
        return low;
    };
    return {cut(part), cut(part + 1)};
}

}  // namespace hush
