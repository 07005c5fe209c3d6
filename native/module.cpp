// The Python face: arrays in, arrays out, no copy, no torch headers.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "buffers.h"
#include "chain.h"
#include "team.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace hush {
namespace {

using Array = nb::ndarray<nb::device::cpu>;
using Matrix = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;
using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::string shape_of(const Array& a) {
    std::string s = "(";
    for (size_t i = 0; i < a.ndim(); ++i) s += (i ? ", " : "") + std::to_string(a.shape(i));
    return s + ")";
}

// kind: 0 one-sided, 1 odd, 2 jump
Activation activation(int kind, float threshold, float clip) {
    if (kind < 0 || kind > 2) throw std::invalid_argument("The activation kind is " + std::to_string(kind) + "; it is 0, 1 or 2.");
    if (!(clip > 0)) throw std::invalid_argument("The clip is " + std::to_string(clip) + "; it must be positive.");
    if (threshold != threshold || (kind != 0 && threshold < 0))
        throw std::invalid_argument("The threshold is " + std::to_string(threshold) +
                                    "; an odd activation or one with a jump needs one of at least 0.");
    Activation a;
    a.threshold = threshold;
    a.clip = kind == 2 ? INFINITY : clip;
    if (kind == 1) a.low = -threshold, a.floor = -clip;
    a.jump = kind == 2;
    return a;
}

float* vector_data(const std::optional<Array>& a, size_t n, const char* what, size_t layer) {
    if (!a) return nullptr;
    if (a->dtype() != nb::dtype<float>() || a->ndim() != 1 || a->shape(0) != n || (n > 1 && a->stride(0) != 1))
        throw std::invalid_argument(std::string("The ") + what + " of layer " + std::to_string(layer) + " has shape " +
                                    shape_of(*a) + "; it must be a contiguous float32 vector of " + std::to_string(n) + ".");
    return static_cast<float*>(a->data());
}

void check_input_major(const Array& w, const char* what, size_t layer) {
    const bool good = w.ndim() == 2 && (w.shape(0) <= 1 || w.stride(0) == 1) &&
                      (w.shape(1) <= 1 || w.stride(1) == static_cast<int64_t>(w.shape(0)));
    if (!good)
        throw std::invalid_argument(std::string("The ") + what + " of layer " + std::to_string(layer) + " has shape " +
                                    shape_of(w) + " and is not laid out input-major; it needs strides (1, out_features).");
}

Layer to_layer(const Array& w, const std::optional<Array>& bias, int kind, float threshold, float clip, size_t l) {
    Layer layer;
    const bool f32 = w.dtype() == nb::dtype<float>();
    const bool bf16 = w.dtype().code == static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat) && w.dtype().bits == 16;
    if (!f32 && !bf16)
        throw std::invalid_argument("The weight of layer " + std::to_string(l) + " must be float32 or bfloat16.");
    check_input_major(w, "weight", l);
    layer.weight = w.data();
    layer.bf16 = bf16;
    layer.outputs = w.shape(0), layer.inputs = w.shape(1);
    if (layer.inputs >> 31 || layer.outputs >> 31) throw std::invalid_argument("A layer is wider than 2^31.");
    layer.bias = vector_data(bias, layer.outputs, "bias", l);
    layer.activation = activation(kind, threshold, clip);
    return layer;
}

class Chain {
public:
    // Nothing but a list of checked pointers: Python keeps the tensors alive while a call runs.
    void add(Array weight, std::optional<Array> bias, int kind, float threshold, float clip) {
        Layer layer = to_layer(weight, bias, kind, threshold, clip, layers_.size());
        if (!layers_.empty() && layers_.back().outputs != layer.inputs)
            throw std::invalid_argument("Layer " + std::to_string(layers_.size()) + " takes " + std::to_string(layer.inputs) +
                                        " inputs, but the layer before it gives " + std::to_string(layers_.back().outputs) + ".");
        layers_.push_back(layer);
    }
    nb::object forward(Matrix h, Matrix out, bool save, int threads) {
        const size_t batch = check(h, layers_.front().inputs, "input");
        if (check(out, layers_.back().outputs, "output") != batch)
            throw std::invalid_argument("The output's batch differs from the input's.");
        for (const Layer& layer : layers_)
            if (batch * layer.inputs >> 32) throw std::invalid_argument("Batch times width reaches 2^32; split the batch.");
        ForwardResult result;
        void* block = nullptr;
        {
            nb::gil_scoped_release release;
            Block saved(save ? saved_bound(layers_.data(), layers_.size(), batch) : 1);
            result = forward_chain(layers_.data(), layers_.size(), h.data(), h.stride(0), batch, out.data(), out.stride(0),
                                   save ? saved.data() : nullptr, threads);
            if (save) block = saved.release();
        }
        if (!save) return nb::make_tuple(nb::none(), result.active);
        nb::capsule owner(block, [](void* p) noexcept { give_block(p); });
        nb::ndarray<uint8_t, nb::numpy, nb::ndim<1>> saved(block, {result.saved_bytes}, owner);
        return nb::make_tuple(saved, result.active);
    }

    // The same on bare addresses of row-major float32 memory: a DLPack exchange shows at one sample.
    uint64_t infer_at(uintptr_t h, size_t h_stride, size_t batch, uintptr_t out, size_t out_stride, int threads) const {
        if (layers_.empty()) throw std::invalid_argument("The chain has no layers.");
        for (const Layer& layer : layers_)
            if (batch * layer.inputs >> 32) throw std::invalid_argument("Batch times width reaches 2^32; split the batch.");
        nb::gil_scoped_release release;
        return forward_chain(layers_.data(), layers_.size(), reinterpret_cast<const float*>(h), h_stride, batch,
                             reinterpret_cast<float*>(out), out_stride, nullptr, threads)
            .active;
    }

    // wants: per layer, bit 0 the weight, bit 1 the bias. groups: the optimisers of weight and bias. addresses: per
    // layer, six: the gradients of weight and bias, then the optimiser's two states of the weight and two of the bias,
    // 0 where there is none; all laid out as the parameter is. The engine allocates them, so they come as addresses: a
    // hundred layers would otherwise cost several hundred DLPack exchanges a step.
    void backward(Bytes saved, Matrix grad_out, std::optional<Matrix> grad_h, int threads, const std::vector<int>& wants,
                  const std::vector<Optimiser>& optimisers, const std::vector<int>& groups,
                  const std::vector<uintptr_t>& addresses) const {
        const size_t n = layers_.size(), batch = check(grad_out, layers_.back().outputs, "output gradient");
        if (grad_h && check(*grad_h, layers_.front().inputs, "input gradient") != batch)
            throw std::invalid_argument("The input gradient's batch differs from the output gradient's.");
        check_saved(reinterpret_cast<const char*>(saved.data()), saved.shape(0), layers_.data(), n, batch);
        if (wants.size() != n || groups.size() != 2 * n || addresses.size() != 6 * n)
            throw std::invalid_argument("wants, groups and addresses must hold one, two and six entries per layer.");
        std::vector<LayerGradient> gradients(n);
        for (size_t l = 0; l < n; ++l) {
            if (layers_[l].bf16)
                throw std::invalid_argument("A chain with bfloat16 weights has no backward; use float32 weights.");
            LayerGradient& g = gradients[l];
            g.want_weight = wants[l] & 1;
            g.want_bias = (wants[l] & 2) && layers_[l].bias;
            g.optimiser = optimisers.at(static_cast<size_t>(groups[2 * l]));
            g.bias_optimiser = optimisers.at(static_cast<size_t>(groups[2 * l + 1]));
            float** slots[6] = {&g.weight,        &g.bias,        &g.weight_state1,
                                &g.weight_state2, &g.bias_state1, &g.bias_state2};
            for (int i = 0; i < 6; ++i) *slots[i] = reinterpret_cast<float*>(addresses[6 * l + i]);
            auto lacks = [](Update kind, float* gradient, float* one, float* two) {
                return (kind == Update::gradient && !gradient) || (kind == Update::momentum && !one) ||
                       (kind == Update::adamw && !(one && two));
            };
            if ((g.want_weight && lacks(g.optimiser.kind, g.weight, g.weight_state1, g.weight_state2)) ||
                (g.want_bias && lacks(g.bias_optimiser.kind, g.bias, g.bias_state1, g.bias_state2)))
                throw std::invalid_argument("Layer " + std::to_string(l) + " lacks a tensor that its update needs.");
        }
        nb::gil_scoped_release release;
        backward_chain(layers_.data(), gradients.data(), n, reinterpret_cast<const char*>(saved.data()), grad_out.data(),
                       grad_out.stride(0), batch, grad_h ? grad_h->data() : nullptr, grad_h ? grad_h->stride(0) : 0,
                       threads);
    }

private:
    size_t check(const Matrix& m, size_t width, const char* what) const {
        if (layers_.empty()) throw std::invalid_argument("The chain has no layers.");
        if (m.shape(1) != width || (width > 1 && m.shape(0) > 0 && m.stride(1) != 1))
            throw std::invalid_argument(std::string("The ") + what + " has " + std::to_string(m.shape(1)) +
                                        " columns; it needs " + std::to_string(width) + ", contiguous in each row.");
        return m.shape(0);
    }
    std::vector<Layer> layers_;
};

// Whether every dicts[i][keys[i]] is still the object values[i], and the first of these objects, tensors, still lie at
// their addresses. Asked at each call about each parameter, so it stays below Python.
bool same(nb::list dicts, nb::list keys, nb::list values, nb::list addresses) {
    const Py_ssize_t n = PyList_GET_SIZE(dicts.ptr());
    if (PyList_GET_SIZE(keys.ptr()) != n || PyList_GET_SIZE(values.ptr()) != n ||
        PyList_GET_SIZE(addresses.ptr()) > n)
        throw std::invalid_argument("dicts, keys and values must be equally long, and addresses no longer.");
    for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject* dict = PyList_GET_ITEM(dicts.ptr(), i);
        if (!PyDict_Check(dict)) throw std::invalid_argument("dicts must hold dictionaries.");
        PyObject* value = PyDict_GetItemWithError(dict, PyList_GET_ITEM(keys.ptr(), i));
        if (!value && PyErr_Occurred()) throw nb::python_error();
        if (value != PyList_GET_ITEM(values.ptr(), i)) return false;
    }
    static PyObject* const data_ptr = PyUnicode_InternFromString("data_ptr");
    for (Py_ssize_t i = 0, m = PyList_GET_SIZE(addresses.ptr()); i < m; ++i) {
        nb::object at = nb::steal(PyObject_CallMethodNoArgs(PyList_GET_ITEM(values.ptr(), i), data_ptr));
        if (!at.is_valid()) throw nb::python_error();
        if (PyLong_AsSize_t(at.ptr()) != PyLong_AsSize_t(PyList_GET_ITEM(addresses.ptr(), i))) return false;
    }
    return true;
}

// Whether any of these dictionaries has an entry.
bool filled(nb::list dicts) {
    for (Py_ssize_t i = 0, n = PyList_GET_SIZE(dicts.ptr()); i < n; ++i) {
        PyObject* dict = PyList_GET_ITEM(dicts.ptr(), i);
        if (!PyDict_Check(dict)) throw std::invalid_argument("dicts must hold dictionaries.");
        if (PyDict_Size(dict)) return true;
    }
    return false;
}

Optimiser optimiser(int kind, float lr, float weight_decay, float momentum, float dampening, bool nesterov, float beta1,
                    float beta2, float eps, float correction1, float correction2) {
    return {static_cast<Update>(kind), lr, weight_decay, momentum, dampening, nesterov, beta1, beta2, eps, correction1, correction2};
}

}  // namespace
}  // namespace hush

NB_MODULE(_native, m) {
    // A model that lives until the interpreter ends keeps its chain: no leak worth a warning on every exit.
    nb::set_leak_warnings(false);
    using namespace hush;
    m.def("isa", [] { return std::string(kernels().name); });
    m.def("same", &same, "dicts"_a, "keys"_a, "values"_a, "addresses"_a);
    m.def("filled", &filled, "dicts"_a);
    m.def("team", [] { return std::string(team_kind()); });
    nb::class_<Optimiser>(m, "Optimiser")
        .def_static("make", &optimiser, "kind"_a, "lr"_a = 0.0f, "weight_decay"_a = 0.0f, "momentum"_a = 0.0f,
                    "dampening"_a = 0.0f, "nesterov"_a = false, "beta1"_a = 0.0f, "beta2"_a = 0.0f, "eps"_a = 0.0f,
                    "correction1"_a = 1.0f, "correction2"_a = 1.0f);
    nb::class_<Chain>(m, "Chain")
        .def(nb::init<>())
        .def("add", &Chain::add, "weight"_a, "bias"_a.none(), "kind"_a, "threshold"_a, "clip"_a)
        .def("forward", &Chain::forward, "h"_a, "out"_a, "save"_a, "threads"_a)
        .def("infer_at", &Chain::infer_at, "h"_a, "h_stride"_a, "batch"_a, "out"_a, "out_stride"_a, "threads"_a)
        .def("backward", &Chain::backward, "saved"_a, "grad_out"_a, "grad_h"_a.none(), "threads"_a,
             "wants"_a, "optimisers"_a, "groups"_a, "addresses"_a);
}
