// The Python face of the convolution.
#include "binding.h"
#include "convolution.h"

namespace hush {
namespace {

// One call of a convolution: its sizes and its activation, and where the images' active units begin once they are counted.
class Convolution {
public:
    // sizes: images, height, width, inputs, outputs, taps (y, x), strides (y, x), padding (top, left, bottom, right).
    Convolution(const std::vector<size_t>& sizes, bool circular, int kind, float threshold, float clip)
        : phi_(activation(kind, threshold, clip)) {
        if (sizes.size() != 13) throw std::invalid_argument("A convolution has 13 sizes, not " + std::to_string(sizes.size()) + ".");
        size_t* const to[13] = {&s_.images, &s_.height, &s_.width, &s_.inputs, &s_.outputs, &s_.taps_y, &s_.taps_x,
                                &s_.stride_y, &s_.stride_x, &s_.top, &s_.left, &s_.bottom, &s_.right};
        for (size_t i = 0; i < 13; ++i) {
            if (sizes[i] >> 31 || (i < 9 && !sizes[i]))
                throw std::invalid_argument("Size " + std::to_string(i) + " of the convolution is " + std::to_string(sizes[i]) + ".");
            *to[i] = sizes[i];
        }
        s_.circular = circular;
        if (s_.padded_height() < s_.taps_y || s_.padded_width() < s_.taps_x)
            throw std::invalid_argument("The padded image is smaller than the kernel.");
        if (circular && (s_.top > s_.height || s_.bottom > s_.height || s_.left > s_.width || s_.right > s_.width))
            throw std::invalid_argument("Circular padding wraps around more than once.");
        if (s_.rows() * s_.padded_width() >> 32 || s_.rows() * s_.padded_width() * s_.inputs >> 32)
            throw std::invalid_argument("The images hold 2^32 numbers or more; split the batch.");
    }

    // How many units of x, channels-last and packed, are active.
    uint64_t count(uintptr_t x, int threads) {
        per_row_.resize(s_.rows());
        nb::gil_scoped_release release;
        return count_active(s_, phi_, reinterpret_cast<const float*>(x), per_row_.data(), threads);
    }

    // The active units of the x that count() has just seen, for forward() and backward().
    nb::object list(uintptr_t x, int threads) const {
        if (per_row_.size() != s_.rows()) throw std::invalid_argument("The active units have not been counted.");
        size_t active = 0;
        for (uint32_t n : per_row_) active += n;
        const size_t bytes = place(nullptr, active, nullptr);
        void* memory = nullptr;
        {
            nb::gil_scoped_release release;
            Block saved(bytes);
            ConvLists lists{};
            place(saved.data(), active, &lists);
            auto* head = reinterpret_cast<uint64_t*>(saved.data());
            head[0] = kMagic, head[1] = s_.rows(), head[2] = s_.padded_width(), head[3] = active;
            list_active(s_, phi_, reinterpret_cast<const float*>(x), per_row_.data(), lists, threads);
            memory = saved.release();
        }
        return nb::cast(owned_bytes(memory, bytes));
    }

    // out, channels-last and packed. bias 0: none.
    void forward(Bytes saved, uintptr_t weight, const std::vector<size_t>& strides, uintptr_t bias, uintptr_t out,
                 int threads) const {
        const ConvLists lists = view(saved);
        const WeightStrides at = strides_of(strides);
        nb::gil_scoped_release release;
        Block packed(tiled_weights(s_) * sizeof(float));
        auto* tiles = reinterpret_cast<float*>(packed.data());
        pack_weights(s_, reinterpret_cast<const float*>(weight), at, tiles, threads);
        convolution_forward(s_, tiles, reinterpret_cast<const float*>(bias), lists, reinterpret_cast<float*>(out), threads);
    }

    // delta and dx channels-last and packed. dx or gradient 0: not wanted.
    void backward(Bytes saved, uintptr_t weight, const std::vector<size_t>& strides, uintptr_t delta, uintptr_t dx,
                  uintptr_t gradient, const std::vector<size_t>& gradient_strides, int threads) const {
        const ConvLists lists = view(saved);
        const WeightStrides at = strides_of(strides), gradient_at = strides_of(gradient_strides);
        nb::gil_scoped_release release;
        Block memory(2 * (tiled_weights(s_) * sizeof(float) + 2 * kLine));
        Cutter cutter(memory.data());
        float *packed = cutter.cut<float>(tiled_weights(s_)), *tiled = cutter.cut<float>(tiled_weights(s_));
        pack_weights(s_, reinterpret_cast<const float*>(weight), at, packed, threads);
        convolution_backward(s_, phi_, packed, lists, reinterpret_cast<const float*>(delta), reinterpret_cast<float*>(dx), tiled,
                             threads);
        if (gradient) unpack_gradient(s_, tiled, reinterpret_cast<float*>(gradient), gradient_at, threads);
    }

    // φ(x) as the forward saw it, into zeros.
    void activations(Bytes saved, uintptr_t out) const {
        const ConvLists lists = view(saved);
        auto* to = reinterpret_cast<float*>(out);
        for (size_t r = 0; r < s_.rows(); ++r)
            for (size_t x = 0; x < s_.width; ++x) {
                const uint32_t* at = lists.starts + r * (s_.padded_width() + 1) + x + s_.left;
                const size_t base = (x + s_.left) * s_.inputs, pixel = (r * s_.width + x) * s_.inputs;
                for (uint32_t e = at[0]; e < at[1]; ++e) to[pixel + lists.entries[e] - base] = lists.values[e];
            }
    }

private:
    static constexpr uint64_t kMagic = 0x68757368636f6e76;  // "hushconv"

    size_t place(char* base, size_t active, ConvLists* lists) const {
        Cutter cutter(base);
        cutter.cut<uint64_t>(4);
        ConvLists found{};
        found.starts = cutter.cut<uint32_t>(s_.rows() * (s_.padded_width() + 1));
        found.entries = cutter.cut<uint32_t>(active);
        found.values = cutter.cut<float>(active);
        found.count = active;
        if (lists) *lists = found;
        return cutter.used();
    }

    ConvLists view(const Bytes& saved) const {
        const auto* head = reinterpret_cast<const uint64_t*>(saved.data());
        if (saved.shape(0) < 4 * sizeof(uint64_t) || head[0] != kMagic || head[1] != s_.rows() ||
            head[2] != s_.padded_width() || saved.shape(0) != place(nullptr, head[3], nullptr))
            throw std::invalid_argument("What was saved does not belong to this convolution.");
        ConvLists lists{};
        place(reinterpret_cast<char*>(saved.data()), head[3], &lists);
        return lists;
    }

    static WeightStrides strides_of(const std::vector<size_t>& s) {
        if (s.size() != 4) throw std::invalid_argument("A weight has four strides, not " + std::to_string(s.size()) + ".");
        return {s[0], s[1], s[2], s[3]};
    }

    ConvShape s_{};
    Activation phi_;
    std::vector<uint32_t> per_row_;
};

}  // namespace

void bind_convolution(nb::module_& m) {
    nb::class_<Convolution>(m, "Convolution")
        .def(nb::init<const std::vector<size_t>&, bool, int, float, float>(), "sizes"_a, "circular"_a, "kind"_a,
             "threshold"_a, "clip"_a)
        .def("count", &Convolution::count, "x"_a, "threads"_a)
        .def("list_active", &Convolution::list, "x"_a, "threads"_a)
        .def("forward", &Convolution::forward, nb::arg("saved").noconvert(), "weight"_a, "strides"_a, "bias"_a, "out"_a, "threads"_a)
        .def("backward", &Convolution::backward, nb::arg("saved").noconvert(), "weight"_a, "strides"_a, "delta"_a, "dx"_a,
             "gradient"_a, "gradient_strides"_a, "threads"_a)
        .def("activations", &Convolution::activations, nb::arg("saved").noconvert(), "out"_a);
}

}  // namespace hush
