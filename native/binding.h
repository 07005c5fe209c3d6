// What the Python faces of the programs share: arrays in, checked pointers out.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "buffers.h"
#include "chain.h"
#include "transpose.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace hush {

using Array = nb::ndarray<nb::device::cpu>;
using Matrix = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;
using Vector = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

inline std::string shape_of(const Array& a) {
    std::string s = "(";
    for (size_t i = 0; i < a.ndim(); ++i) s += (i ? ", " : "") + std::to_string(a.shape(i));
    return s + ")";
}

// kind: 0 one-sided, 1 odd, 2 jump, 3 identity
inline Activation activation(int kind, float threshold, float clip) {
    if (kind < 0 || kind > 3)
        throw std::invalid_argument("The activation kind is " + std::to_string(kind) + "; it is 0, 1, 2 or 3.");
    if (!(clip > 0)) throw std::invalid_argument("The clip is " + std::to_string(clip) + "; it must be positive.");
    if (threshold != threshold || (kind != 0 && threshold < 0))
        throw std::invalid_argument("The threshold is " + std::to_string(threshold) +
                                    "; an odd activation or one with a jump needs one of at least 0.");
    Activation a;
    a.threshold = threshold;
    a.clip = kind == 2 ? INFINITY : clip;
    if (kind == 1) a.low = -threshold, a.floor = -clip;
    a.jump = kind == 2;
    if (kind == 3) a.threshold = 0.0f, a.low = 0.0f, a.floor = -INFINITY, a.clip = INFINITY, a.identity = true;
    return a;
}

inline float* vector_data(const std::optional<Array>& a, size_t n, const char* what, size_t layer) {
    if (!a) return nullptr;
    if (a->dtype() != nb::dtype<float>() || a->ndim() != 1 || a->shape(0) != n || (n > 1 && a->stride(0) != 1))
        throw std::invalid_argument(std::string("The ") + what + " of layer " + std::to_string(layer) + " has shape " +
                                    shape_of(*a) + "; it must be a contiguous float32 vector of " + std::to_string(n) + ".");
    return static_cast<float*>(a->data());
}

inline bool has_strides(const Array& w, int64_t of_rows, int64_t of_columns) {
    return (w.shape(0) <= 1 || w.stride(0) == of_rows) && (w.shape(1) <= 1 || w.stride(1) == of_columns);
}

inline Layer to_layer(const Array& w, const std::optional<Array>& bias, int kind, float threshold, float clip, size_t l) {
    Layer layer;
    const bool f32 = w.dtype() == nb::dtype<float>();
    const bool bf16 = w.dtype().code == static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat) && w.dtype().bits == 16;
    if (!f32 && !bf16)
        throw std::invalid_argument("The weight of layer " + std::to_string(l) + " must be float32 or bfloat16.");
    if (w.ndim() != 2)
        throw std::invalid_argument("The weight of layer " + std::to_string(l) + " has shape " + shape_of(w) +
                                    "; it must be a matrix (out, in).");
    layer.weight = w.data();
    layer.bf16 = bf16;
    layer.outputs = w.shape(0), layer.inputs = w.shape(1);
    if (layer.inputs >> 31 || layer.outputs >> 31) throw std::invalid_argument("A layer is wider than 2^31.");
    layer.row_major = !has_strides(w, 1, static_cast<int64_t>(layer.outputs));
    if (layer.row_major && (bf16 || !has_strides(w, static_cast<int64_t>(layer.inputs), 1)))
        throw std::invalid_argument("The weight of layer " + std::to_string(l) + " has shape " + shape_of(w) +
                                    " and strides that are neither (in, 1) nor (1, out); a bfloat16 one needs (1, out).");
    layer.bias = vector_data(bias, layer.outputs, "bias", l);
    layer.activation = activation(kind, threshold, clip);
    return layer;
}

// What a pool block holds, given back when the last one that uses it is gone.
inline std::shared_ptr<char> pooled(size_t bytes) {
    return {static_cast<char*>(take_block(bytes)), [](char* p) { give_block(p); }};
}

// Input-major copies of those of the layers whose weights lie row by row, as they are at this moment; the layers then
// refer to them.
inline std::shared_ptr<char> turn(const std::vector<Layer*>& layers, int threads) {
    Cutter size(nullptr);
    for (const Layer* layer : layers)
        if (layer->row_major) size.cut<float>(layer->inputs * layer->outputs);
    std::shared_ptr<char> memory = pooled(std::max<size_t>(size.used(), 1));
    Cutter cutter(memory.get());
    std::vector<Transposition> all;
    for (Layer* layer : layers)
        if (layer->row_major) {
            float* to = cutter.cut<float>(layer->inputs * layer->outputs);
            all.push_back({static_cast<const float*>(layer->weight), to, layer->outputs, layer->inputs});
            layer->rows = static_cast<float*>(layer->weight);
            layer->weight = to;
            layer->row_major = false;
        }
    transpose(all, threads);
    return memory;
}

// Gradients of weights that are to lie row by row, written input-major into memory of their own first.
class RowGradients {
public:
    void add(float** gradient, const Layer& layer) { all_.push_back({gradient, &layer}); }
    void divert() {
        Cutter size(nullptr);
        for (const auto& [gradient, layer] : all_) size.cut<float>(layer->inputs * layer->outputs);
        memory_ = pooled(std::max<size_t>(size.used(), 1));
        Cutter cutter(memory_.get());
        for (const auto& [gradient, layer] : all_) {
            float* at = cutter.cut<float>(layer->inputs * layer->outputs);
            to_turn_.push_back({at, *gradient, layer->inputs, layer->outputs});
            *gradient = at;
        }
    }
    void turn_around(int threads) const {
        if (!to_turn_.empty()) transpose(to_turn_, threads);
    }

private:
    struct One {
        float** gradient;
        const Layer* layer;
    };
    std::vector<One> all_;
    std::vector<Transposition> to_turn_;
    std::shared_ptr<char> memory_;
};

inline bool lacks_tensor(Update kind, const float* gradient, const float* one, const float* two) {
    return (kind == Update::gradient && !gradient) || (kind == Update::momentum && !one) ||
           (kind == Update::adamw && !(one && two));
}

// A matrix of that many columns, contiguous in each row: its number of rows.
inline size_t rows_of(const Matrix& m, size_t width, const char* what) {
    if (m.shape(1) != width || (width > 1 && m.shape(0) > 0 && m.stride(1) != 1))
        throw std::invalid_argument(std::string("The ") + what + " has " + std::to_string(m.shape(1)) +
                                    " columns; it needs " + std::to_string(width) + ", contiguous in each row.");
    return m.shape(0);
}

// What a forward saved, as an array that gives its memory back to the pool.
inline nb::ndarray<uint8_t, nb::numpy, nb::ndim<1>> owned_bytes(void* block, size_t bytes) {
    nb::capsule owner(block, [](void* p) noexcept { give_block(p); });
    return {block, {bytes}, owner};
}

void bind_residual(nb::module_& m);     // residual_module.cpp
void bind_limits(nb::module_& m);       // machine_limits_module.cpp
void bind_convolution(nb::module_& m);  // convolution_module.cpp

}  // namespace hush
