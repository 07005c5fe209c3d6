// The Python face: arrays in, arrays out, no copy, no torch headers.
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "binding.h"
#include "row_updates.h"
#include "team.h"
#include "witness.h"

namespace hush {
namespace {

class Chain {
public:
    // Nothing but a list of checked pointers: Python keeps the tensors alive while a call runs.
    void add(Array weight, std::optional<Array> bias, int kind, float threshold, float clip, bool relative,
             bool through_scale) {
        Layer layer = to_layer(weight, bias, kind, threshold, clip, layers_.size());
        if (relative && (layer.activation.jump || layer.activation.identity))
            throw std::invalid_argument("Only one-sided and odd activations can be relative.");
        layer.activation.relative = relative;
        layer.activation.through_scale = through_scale;
        if (!layers_.empty() && layers_.back().outputs != layer.inputs)
            throw std::invalid_argument("Layer " + std::to_string(layers_.size()) + " takes " + std::to_string(layer.inputs) +
                                        " inputs, but the layer before it gives " + std::to_string(layers_.back().outputs) + ".");
        row_major_ = row_major_ || layer.row_major;
        layers_.push_back(layer);
    }

    // The same chain on input-major copies of the weights that lie row by row, as they are at this moment.
    Chain turned(int threads) const {
        Chain copy(*this);
        copy.row_major_ = false;
        std::vector<Layer*> layers;
        for (Layer& layer : copy.layers_) layers.push_back(&layer);
        nb::gil_scoped_release release;
        copy.weights_ = turn(layers, threads);
        return copy;
    }

    bool row_major() const { return row_major_; }

    nb::object forward(Matrix h, Matrix out, int threads) const {
        check_ready();
        const size_t batch = rows_of(h, layers_.front().inputs, "input");
        if (rows_of(out, layers_.back().outputs, "output") != batch)
            throw std::invalid_argument("The output's batch differs from the input's.");
        check_size(batch);
        ForwardResult result;
        void* block = nullptr;
        {
            nb::gil_scoped_release release;
            Block saved(saved_bound(layers_.data(), layers_.size(), batch));
            result = forward_chain(layers_.data(), layers_.size(), h.data(), h.stride(0), batch, out.data(), out.stride(0),
                                   saved.data(), threads);
            block = saved.release();
        }
        return nb::make_tuple(owned_bytes(block, result.saved_bytes), result.active);
    }

    // Without keeping anything, on bare addresses of row-major float32 memory: a DLPack exchange shows at one sample.
    uint64_t infer_at(uintptr_t h, size_t h_stride, size_t batch, uintptr_t out, size_t out_stride, int threads) const {
        check_ready();
        check_size(batch);
        nb::gil_scoped_release release;
        return forward_chain(layers_.data(), layers_.size(), reinterpret_cast<const float*>(h), h_stride, batch,
                             reinterpret_cast<float*>(out), out_stride, nullptr, threads)
            .active;
    }

    // φ(h) of the first layer, dense, from what the forward saved.
    void first_activations(Bytes saved, Matrix out) const {
        check_ready();
        const size_t batch = rows_of(out, layers_.front().inputs, "output");
        check_saved(reinterpret_cast<const char*>(saved.data()), saved.shape(0), layers_.data(), layers_.size(), batch);
        if (batch > 1 && out.stride(0) != static_cast<int64_t>(layers_.front().inputs))
            throw std::invalid_argument("The output must be contiguous.");
        nb::gil_scoped_release release;
        expand_saved(reinterpret_cast<const char*>(saved.data()), 0, layers_.front().inputs, batch, out.data());
    }

    // h of the first layer, whose activation is relative, from what the forward saved.
    void first_inputs(Bytes saved, Matrix out) const {
        check_ready();
        const size_t inputs = layers_.front().inputs, batch = rows_of(out, inputs, "output");
        check_saved(reinterpret_cast<const char*>(saved.data()), saved.shape(0), layers_.data(), layers_.size(), batch);
        if (!layers_.front().activation.relative)
            throw std::invalid_argument("Only of a relative activation is the input saved.");
        if (batch > 1 && out.stride(0) != static_cast<int64_t>(inputs))
            throw std::invalid_argument("The output must be contiguous.");
        const SavedScales s = saved_scales(const_cast<char*>(reinterpret_cast<const char*>(saved.data())), layers_.data(),
                                           layers_.size(), 0, batch);
        if (batch) std::memcpy(out.data(), s.h, batch * inputs * sizeof(float));
    }

    // The mean over the batch of every layer's inputs, from what the forward saved.
    void mean_inputs(Bytes saved, size_t batch, Vector out) const {
        check_ready();
        check_saved(reinterpret_cast<const char*>(saved.data()), saved.shape(0), layers_.data(), layers_.size(), batch);
        size_t all = 0;
        for (const Layer& layer : layers_) all += layer.inputs;
        if (out.shape(0) != all) throw std::invalid_argument("The means must have room for every layer's inputs.");
        nb::gil_scoped_release release;
        hush::mean_inputs(reinterpret_cast<const char*>(saved.data()), layers_.data(), layers_.size(), batch, out.data());
    }

    // wants: per layer, bit 0 the weight, bit 1 the bias, bit 5 that the bias takes back what the weight's step does to
    // the mean input. groups: the optimizers of weight and bias. addresses: per layer, six: the weight's gradient and the
    // optimizer's two states of it, then the bias's, 0 where there is none; all laid out as the parameter is,
    // input-major, except that with row_gradients the weights' gradients are to lie row by row. means: none, or per layer
    // the address of the mean inputs that the weight's gradient is to be centred by, or 0. The caller allocates all of
    // them, so they come as addresses: a hundred layers would otherwise cost several hundred DLPack exchanges a step.
    void backward(Bytes saved, Matrix grad_out, std::optional<Matrix> grad_h, int threads, const std::vector<int>& wants,
                  const std::vector<Optimizer>& optimizers, const std::vector<int>& groups,
                  const std::vector<uintptr_t>& addresses, bool row_gradients, const std::vector<uintptr_t>& means) const {
        check_ready();
        const size_t n = layers_.size(), batch = rows_of(grad_out, layers_.back().outputs, "output gradient");
        if (grad_h && rows_of(*grad_h, layers_.front().inputs, "input gradient") != batch)
            throw std::invalid_argument("The input gradient's batch differs from the output gradient's.");
        check_saved(reinterpret_cast<const char*>(saved.data()), saved.shape(0), layers_.data(), n, batch);
        if (wants.size() != n || groups.size() != 2 * n || addresses.size() != 6 * n || (!means.empty() && means.size() != n))
            throw std::invalid_argument("wants, groups, addresses and means must hold one, two, six and one entries per layer.");
        std::vector<LayerGradient> gradients(n);
        for (size_t l = 0; l < n; ++l) {
            if (layers_[l].bf16)
                throw std::invalid_argument("A chain with bfloat16 weights has no backward; use float32 weights.");
            LayerGradient& g = gradients[l];
            g.want_weight = wants[l] & 1;
            g.want_bias = (wants[l] & 2) && layers_[l].bias;
            if (g.want_weight && !means.empty()) g.means = reinterpret_cast<const float*>(means[l]);
            g.keeps_mean = g.means && (wants[l] & 4) && layers_[l].bias;
            g.optimizer = optimizers.at(static_cast<size_t>(groups[2 * l]));
            g.bias_optimizer = optimizers.at(static_cast<size_t>(groups[2 * l + 1]));
            float** slots[6] = {&g.weight, &g.weight_state1, &g.weight_state2, &g.bias, &g.bias_state1, &g.bias_state2};
            for (int i = 0; i < 6; ++i) *slots[i] = reinterpret_cast<float*>(addresses[6 * l + i]);
            if ((g.want_weight && lacks_tensor(g.optimizer.kind, g.weight, g.weight_state1, g.weight_state2)) ||
                (g.want_bias && lacks_tensor(g.bias_optimizer.kind, g.bias, g.bias_state1, g.bias_state2)))
                throw std::invalid_argument("Layer " + std::to_string(l) + " lacks a tensor that its update needs.");
            if (layers_[l].rows && g.keeps_mean && g.optimizer.kind != Update::gradient)
                throw std::invalid_argument("Layer " + std::to_string(l) + " is to keep its mean, but its weights are copies.");
        }
        nb::gil_scoped_release release;
        RowGradients rows;
        RowUpdates updates;
        for (size_t l = 0; l < n; ++l) {
            LayerGradient& g = gradients[l];
            if (!g.want_weight) continue;
            if (g.optimizer.kind != Update::gradient) {
                if (layers_[l].rows) updates.add(g, layers_[l]);
            } else if (row_gradients) {
                rows.add(&g.weight, layers_[l]);
            }
        }
        rows.divert();
        updates.divert();
        backward_chain(layers_.data(), gradients.data(), n, reinterpret_cast<const char*>(saved.data()), grad_out.data(),
                       grad_out.stride(0), batch, grad_h ? grad_h->data() : nullptr, grad_h ? grad_h->stride(0) : 0,
                       threads);
        rows.turn_around(threads);
        updates.step(threads);
    }

private:
    void check_ready() const {
        if (layers_.empty()) throw std::invalid_argument("The chain has no layers.");
        if (row_major_) throw std::invalid_argument("The chain has weights that lie row by row; run what turned() gives.");
    }
    void check_size(size_t batch) const {
        for (const Layer& layer : layers_)
            if (batch * layer.inputs >> 32) throw std::invalid_argument("Batch times width reaches 2^32; split the batch.");
    }
    std::vector<Layer> layers_;
    bool row_major_ = false;
    std::shared_ptr<char> weights_;  // of turned()
};

Optimizer optimizer(int kind, float lr, float weight_decay, float momentum, float dampening, bool nesterov, float beta1,
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
    // Memory that was used before: pages fresh from the system cost more than what is computed on them.
    m.def("take_bytes", [](size_t count) { return owned_bytes(take_block(count), count); }, "count"_a);
    // Adds one to the float at each address. A step counts hundreds of parameters, each in a tensor of its own.
    m.def(
        "count_on",
        [](const std::vector<uintptr_t>& addresses) {
            std::vector<float> counts;
            counts.reserve(addresses.size());
            for (uintptr_t at : addresses) counts.push_back(*reinterpret_cast<float*>(at) += 1.0f);
            return counts;
        },
        "addresses"_a);
    m.def("team", [] { return std::string(team_kind()); });
    m.def("unchanged", &unchanged, "dicts"_a, "keys"_a, "values"_a, "children"_a, "orders"_a, "objects"_a, "types"_a,
          "hooks"_a, "filled"_a, "tensors"_a, "addresses"_a, "forms"_a, "versions"_a, "data_ptr"_a, "numel"_a, "stride"_a, "version"_a);
    nb::class_<DictVersions>(m, "DictVersions")
        .def(nb::init<nb::list>(), "dicts"_a)
        .def("same", &DictVersions::same)
        .def("refresh", &DictVersions::refresh);
    nb::class_<Optimizer>(m, "Optimizer")
        .def_static("make", &optimizer, "kind"_a, "lr"_a = 0.0f, "weight_decay"_a = 0.0f, "momentum"_a = 0.0f,
                    "dampening"_a = 0.0f, "nesterov"_a = false, "beta1"_a = 0.0f, "beta2"_a = 0.0f, "eps"_a = 0.0f,
                    "correction1"_a = 1.0f, "correction2"_a = 1.0f);
    // noconvert: an array of another type would be converted into a copy, and what is written there is lost.
    nb::class_<Chain>(m, "Chain")
        .def(nb::init<>())
        .def("add", &Chain::add, nb::arg("weight").noconvert(), nb::arg("bias").noconvert().none(), "kind"_a, "threshold"_a,
             "clip"_a, "relative"_a = false, "through_scale"_a = true)
        .def("turned", &Chain::turned, "threads"_a)
        .def_prop_ro("row_major", &Chain::row_major)
        .def("forward", &Chain::forward, nb::arg("h").noconvert(), nb::arg("out").noconvert(), "threads"_a)
        .def("infer_at", &Chain::infer_at, "h"_a, "h_stride"_a, "batch"_a, "out"_a, "out_stride"_a, "threads"_a)
        .def("first_activations", &Chain::first_activations, nb::arg("saved").noconvert(), nb::arg("out").noconvert())
        .def("first_inputs", &Chain::first_inputs, nb::arg("saved").noconvert(), nb::arg("out").noconvert())
        .def("mean_inputs", &Chain::mean_inputs, nb::arg("saved").noconvert(), "batch"_a, nb::arg("out").noconvert())
        .def("backward", &Chain::backward, nb::arg("saved").noconvert(), nb::arg("grad_out").noconvert(),
             nb::arg("grad_h").noconvert().none(), "threads"_a, "wants"_a, "optimizers"_a, "groups"_a, "addresses"_a,
             "row_gradients"_a, "means"_a = std::vector<uintptr_t>());
    bind_residual(m);
    bind_limits(m);
    bind_convolution(m);
}
