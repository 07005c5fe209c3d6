// The Python face of the residual chain.
#include <algorithm>

#include "binding.h"
#include "residual.h"

namespace hush {
namespace {

class Residual {
public:
    // norm: 0 none, 1 RMSNorm, 2 LayerNorm. β is `scale`, or what lies in learned_scale when a call runs.
    void add(Array weight, std::optional<Array> bias, int kind, float threshold, float clip, int norm, float eps,
             std::optional<Array> gain, std::optional<Array> shift, float scale, std::optional<Array> learned_scale,
             std::optional<Array> inner_weight, std::optional<Array> inner_bias) {
        const size_t l = blocks_.size();
        ResidualBlock block;
        block.layer = to_layer(weight, bias, kind, threshold, clip, l);
        const size_t width = block.layer.outputs, units = block.layer.inputs;
        if (!width || !units || (!inner_weight && units != width) || (l && blocks_[0].layer.outputs != width))
            throw std::invalid_argument("The weight of block " + std::to_string(l) + " has shape " + shape_of(weight) +
                                        "; the blocks of a stream have weights of one width, square without an inner weight.");
        if (inner_weight) {
            const Layer inner = to_layer(*inner_weight, inner_bias, 3, 0.0f, INFINITY, l);
            if (inner.bf16 || inner.outputs != units || inner.inputs != width ||
                !has_strides(*inner_weight, static_cast<int64_t>(width), 1))
                throw std::invalid_argument("The inner weight of block " + std::to_string(l) + " has shape " +
                                            shape_of(*inner_weight) + "; it must be a float32 matrix (" +
                                            std::to_string(units) + ", " + std::to_string(width) + "), row by row.");
            block.inner_weight = static_cast<float*>(inner.weight), block.inner_bias = inner.bias;
        } else if (inner_bias) {
            throw std::invalid_argument("Block " + std::to_string(l) + " has an inner bias without an inner weight.");
        }
        if (norm < 0 || norm > 2)
            throw std::invalid_argument("The norm is " + std::to_string(norm) + "; it is 0, 1 or 2.");
        block.norm = static_cast<Norm>(norm);
        block.eps = eps;
        block.gain = vector_data(gain, width, "gain", l);
        block.shift = vector_data(shift, width, "shift", l);
        if ((block.gain && !norm) || (block.shift && !block.gain))
            throw std::invalid_argument("Block " + std::to_string(l) + " has a gain without a norm or a shift without a gain.");
        block.scale = scale;
        block.learned_scale = vector_data(learned_scale, 1, "scale", l);
        row_major_ = row_major_ || block.layer.row_major;
        blocks_.push_back(block);
    }

    Residual turned(int threads) const {
        Residual copy(*this);
        copy.row_major_ = false;
        std::vector<Layer*> layers;
        for (ResidualBlock& block : copy.blocks_) layers.push_back(&block.layer);
        nb::gil_scoped_release release;
        copy.weights_ = turn(layers, threads);
        return copy;
    }

    bool row_major() const { return row_major_; }

    nb::object forward(Matrix h, Matrix out, int threads) const {
        check_ready();
        const size_t batch = rows_of(h, width(), "input");
        if (rows_of(out, width(), "output") != batch)
            throw std::invalid_argument("The output's batch differs from the input's.");
        check_size(batch);
        ForwardResult result;
        void* memory = nullptr;
        {
            nb::gil_scoped_release release;
            Block saved(SavedStream{nullptr, batch, blocks_.size(), width(), most()}.bound());
            result = residual_forward(blocks_.data(), blocks_.size(), h.data(), h.stride(0), batch, out.data(),
                                      out.stride(0), saved.data(), threads);
            memory = saved.release();
        }
        return nb::make_tuple(owned_bytes(memory, result.saved_bytes), result.active);
    }

    uint64_t infer_at(uintptr_t h, size_t h_stride, size_t batch, uintptr_t out, size_t out_stride, int threads) const {
        check_ready();
        check_size(batch);
        nb::gil_scoped_release release;
        return residual_forward(blocks_.data(), blocks_.size(), reinterpret_cast<const float*>(h), h_stride, batch,
                                reinterpret_cast<float*>(out), out_stride, nullptr, threads)
            .active;
    }

    // The input that the forward was given, under the name by which a chain gives what its first matrix reads.
    void input(Bytes saved, Matrix out) const {
        check_ready();
        const size_t batch = rows_of(out, width(), "output");
        const SavedStream stream = view(saved, batch);
        for (size_t b = 0; b < batch; ++b)
            std::copy_n(stream.stream(0) + b * width(), width(), out.data() + static_cast<int64_t>(b) * out.stride(0));
    }

    // Per block, in the order of Part: the bits of `wants`, as many optimizers, and three addresses of each: a gradient and two
    // states. As Chain::backward otherwise.
    void backward(Bytes saved, Matrix grad_out, std::optional<Matrix> grad_h, int threads, const std::vector<int>& wants,
                  const std::vector<Optimizer>& optimizers, const std::vector<int>& groups,
                  const std::vector<uintptr_t>& addresses, bool row_gradients) const {
        check_ready();
        const size_t n = blocks_.size(), batch = rows_of(grad_out, width(), "output gradient");
        if (grad_h && rows_of(*grad_h, width(), "input gradient") != batch)
            throw std::invalid_argument("The input gradient's batch differs from the output gradient's.");
        const SavedStream stream = view(saved, batch);
        if (wants.size() != n || groups.size() != kParts * n || addresses.size() != 3 * kParts * n)
            throw std::invalid_argument("wants, groups and addresses must hold one, seven and twenty-one entries per block.");
        std::vector<BlockGradient> gradients(n);
        RowGradients rows;
        for (size_t l = 0; l < n; ++l) {
            const ResidualBlock& block = blocks_[l];
            if (block.layer.bf16)
                throw std::invalid_argument("Blocks with bfloat16 weights have no backward; use float32 weights.");
            const bool there[kParts] = {true, block.layer.bias != nullptr, block.gain != nullptr, block.shift != nullptr,
                                        block.learned_scale != nullptr, block.inner_weight != nullptr,
                                        block.inner_bias != nullptr};
            for (size_t i = 0; i < kParts; ++i) {
                PartGradient& part = gradients[l].part[i];
                part.wanted = (wants[l] >> i & 1) && there[i];
                part.optimizer = optimizers.at(static_cast<size_t>(groups[kParts * l + i]));
                const uintptr_t* at = &addresses[3 * (kParts * l + i)];
                part.gradient = reinterpret_cast<float*>(at[0]);
                part.state1 = reinterpret_cast<float*>(at[1]);
                part.state2 = reinterpret_cast<float*>(at[2]);
                if (part.wanted && lacks_tensor(part.optimizer.kind, part.gradient, part.state1, part.state2))
                    throw std::invalid_argument("Block " + std::to_string(l) + " lacks a tensor that its update needs.");
            }
            PartGradient& weight = gradients[l].part[kWeight];
            if (row_gradients && weight.wanted) {
                if (weight.optimizer.kind != Update::gradient)
                    throw std::invalid_argument("Block " + std::to_string(l) + " is to be updated, but its weights are copies.");
                rows.add(&weight.gradient, block.layer);
            }
        }
        nb::gil_scoped_release release;
        if (row_gradients) rows.divert();
        residual_backward(blocks_.data(), gradients.data(), n, stream.base, grad_out.data(), grad_out.stride(0), batch,
                          grad_h ? grad_h->data() : nullptr, grad_h ? grad_h->stride(0) : 0, threads);
        rows.turn_around(threads);
    }

private:
    size_t width() const { return blocks_.front().layer.outputs; }
    size_t most() const { return most_units(blocks_.data(), blocks_.size()); }
    SavedStream view(const Bytes& saved, size_t batch) const {
        const SavedStream stream{reinterpret_cast<char*>(saved.data()), batch, blocks_.size(), width(), most()};
        stream.check(saved.shape(0));
        return stream;
    }
    void check_ready() const {
        if (blocks_.empty()) throw std::invalid_argument("The residual chain has no blocks.");
        if (row_major_) throw std::invalid_argument("The blocks have weights that lie row by row; run what turned() gives.");
    }
    void check_size(size_t batch) const {
        if (batch * std::max(width(), most()) >> 32)
            throw std::invalid_argument("Batch times width reaches 2^32; split the batch.");
    }
    std::vector<ResidualBlock> blocks_;
    bool row_major_ = false;
    std::shared_ptr<char> weights_;  // of turned()
};

}  // namespace

void bind_residual(nb::module_& m) {
    nb::class_<Residual>(m, "Residual")
        .def(nb::init<>())
        .def("add", &Residual::add, nb::arg("weight").noconvert(), nb::arg("bias").noconvert().none(), "kind"_a,
             "threshold"_a, "clip"_a, "norm"_a, "eps"_a, nb::arg("gain").noconvert().none(),
             nb::arg("shift").noconvert().none(), "scale"_a, nb::arg("learned_scale").noconvert().none(),
             nb::arg("inner_weight").noconvert().none(), nb::arg("inner_bias").noconvert().none())
        .def("turned", &Residual::turned, "threads"_a)
        .def_prop_ro("row_major", &Residual::row_major)
        .def("forward", &Residual::forward, nb::arg("h").noconvert(), nb::arg("out").noconvert(), "threads"_a)
        .def("infer_at", &Residual::infer_at, "h"_a, "h_stride"_a, "batch"_a, "out"_a, "out_stride"_a, "threads"_a)
        .def("first_activations", &Residual::input, nb::arg("saved").noconvert(), nb::arg("out").noconvert())
        .def("backward", &Residual::backward, nb::arg("saved").noconvert(), nb::arg("grad_out").noconvert(),
             nb::arg("grad_h").noconvert().none(), "threads"_a, "wants"_a, "optimizers"_a, "groups"_a, "addresses"_a,
             "row_gradients"_a);
}

}  // namespace hush
