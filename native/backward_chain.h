// The backward of a chain: what its parts share. backward_chain.cpp has the order of things, backward_lists.cpp the layers
// that go input by input, backward_shared.cpp those whose samples share their active inputs.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "buffers.h"
#include "chain.h"
#include "team.h"

namespace hush {

// Inputs whose gradients are summed at once: as many rows as a dense product takes.
constexpr size_t kRowsAtOnce = 4;

struct SharedScratch {  // of one part
    float* weights;   // of the part's shared inputs, turned around: [output][input]
    float* gradient;  // of kRowsAtOnce of them
    float* row;       // one input's gradient over all outputs; zeros between two uses
    float* before;    // its weights before the step
    float* sums;      // over the batch, of the δ that is handed on
    float* passed;    // that δ, where the layer below wants it elsewhere
};

struct Backward {
    const Layer* layers;
    const LayerGradient* gradients;
    size_t n_layers;
    const char* saved;
    const float* grad_out;
    size_t grad_out_stride, batch;
    float* grad_h;
    size_t grad_h_stride;
    int parts;
    const Kernels& k;
    // δ as the layer that reads it wants it: in tiles, [tile][sample][lanes of a tile], or, for a shared layer, sample
    // by sample. Three buffers turn: one is read, one is filled, and the one that was read before is cleared for the next
    // layer, so that one barrier a layer is enough.
    float* delta[3] = {};
    std::vector<SharedScratch> scratch{};  // per part
    float* sums = nullptr;
    std::vector<float*> bias_gradient{};  // per part
    // For centred gradients: δ summed over the batch, of which one is read and the other filled; and per part, what the
    // step of a layer's weights did to the mean input, which the bias takes back one layer later, when all parts are
    // known.
    float* delta_sum[2] = {};
    std::vector<float*> drift[2] = {};
    // Of a relative activation, per part and sample: Σ_j a_j ∂φ_j/∂s over the part's inputs, a the gradient of φ.
    std::vector<double*> of_scale{};
    Barrier barrier{};

    size_t tile() const { return static_cast<size_t>(k.back) * k.lanes; }
    size_t tiles(size_t width) const { return (width + tile() - 1) / tile(); }
    size_t delta_floats(size_t width) const { return tiles(width) * batch * tile(); }

    void place(Cutter& cutter);
    void run(int id, int n);

    bool any_shared() const {
        for (size_t l = 0; l < n_layers; ++l)
            if (shared(l)) return true;
        return false;
    }
    bool shared(size_t l) const { return saved && saved_layer(saved, l).shared; }
    SavedScales scales(size_t l) const { return saved_scales(const_cast<char*>(saved), layers, n_layers, l, batch); }
    bool through_scale(size_t l) const { return layers[l].activation.spreads_gradient(); }

    // The outputs of a shared layer whose δ is not zero throughout: those that the layer behind it shares, or all.
    struct Outputs {
        const uint32_t* at;  // null: all
        size_t count, stride;
        size_t operator[](size_t j) const { return at ? at[j] : j; }
    };
    Outputs outputs_of(size_t l) const {
        Outputs o{nullptr, layers[l].outputs, 0};
        if (l + 1 < n_layers && shared(l + 1) && !layers[l + 1].activation.relative) {
            const SavedLayer behind = saved_layer(saved, l + 1);
            o.at = behind.columns, o.count = behind.shared;
        }
        o.stride = round_up(o.count, k.lanes);
        return o;
    }

    // Where δ of output c of sample 0 stands for layer l to read it, and how far it is to the next sample.
    struct Place {
        float* first;
        size_t stride;
    };
    Place place_of(size_t l, float* buffer, size_t c) const {
        if (shared(l)) return {buffer + c, round_up(layers[l].outputs, k.lanes)};
        return {buffer + c / tile() * batch * tile() + c % tile(), tile()};
    }
    // Whether all of what layer l reads is written, zeros too: then its buffer need not be cleared.
    bool written_whole(size_t l) const {
        return shared(l) && l + 1 < n_layers && shared(l + 1) && !layers[l + 1].activation.relative;
    }

    // A part's shared inputs, cut at whole vectors, and all inputs from its first one to the next part's.
    struct SharedPart {
        Range shared, inputs;
    };

    Range share(size_t n, int part) const { return {n * part / parts, n * (part + 1) / parts}; }

    // Bias gradients are summed here and handed to the optimizer, a stretch of outputs at a time.
    void step_bias(size_t l, Range range, const float* gradient);
    // Sums over the batch of the δ that layer l gave to a stretch of its inputs, the outputs of the layer below.
    void pass_sums(size_t l, Range range, const float* total, int turn);
    // A layer's biases take back what the step of its weights did to the mean input.
    void keep_mean(size_t l, int part, int turn);
    void clear(float* buffer, size_t width, int part);
    void take_grad_out(int part);

    // By lists.
    void run_lists(size_t l, int part, const float* from, bool want_sums, int turn);
    // δ of the layer below: the sums where φ has slope 1, zero elsewhere.
    void spread(size_t l, int part, float* to, int turn);
    // What goes through the root mean square s of a sample: h_i/(N s) Σ_j a_j ∂φ_j/∂s, to every unit i.
    void add_through_scale(size_t l, int part, float* to, int turn);
    // What φ leaves of a gradient a where it is y ≠ 0, in a given sample: a · φ′. What a does to the root mean square of a
    // relative activation's sample is noted on the way.
    struct ThroughPhi {
        const Activation& phi;
        const float* scale;  // null: not relative
        double* of_scale;    // null: nothing to note
        float operator()(size_t sample, float y, float a) const {
            const bool rises = scale ? !(std::fabs(y) >= phi.clip * scale[sample]) : phi.slope(y) != 0.0f;
            if (of_scale) of_scale[sample] += (y < 0.0f ? -a : a) * (rises ? -phi.threshold : phi.clip);
            return rises ? a : 0.0f;
        }
    };
    ThroughPhi begin_through_phi(size_t l, int part) {
        double* noted = through_scale(l) ? of_scale[part] : nullptr;
        if (noted) std::fill(noted, noted + batch, 0.0);
        return {layers[l].activation, scales(l).scales, noted};
    }
    // Of a relative layer that is shared, pass_shared's last step.
    void pass_relative(size_t l, int part, const SavedLayer& s, const SharedPart& own, size_t wide, float* to, int turn);

    // By shared units.
    SharedPart shared_part(const SavedLayer& s, size_t inputs, int part) const;
    void run_shared(size_t l, int part, const float* from, bool want_sums, float* to, int turn);
    // The weights of the u-th shared input of this part, which the thread will want one layer later.
    void fetch_ahead(size_t l, int part, size_t u) const;
    // δ of the part's shared inputs, W δ where φ has slope 1.
    void pass_shared(size_t l, int part, const SavedLayer& s, const SharedPart& own, const Outputs& outputs,
                     const float* from, float* to, int turn);
    // ∂L/∂W[i] = Σ_b φ(h)[b, i] δ[b] for the part's inputs, and what the optimizer makes of it.
    void step_shared(size_t l, int part, const SavedLayer& s, const SharedPart& own, const Outputs& outputs,
                     const float* from, int turn);
    // One input's weights, its gradient given at `outputs`, zero elsewhere; null: zero.
    void step_row(size_t l, int part, size_t i, const float* gradient, const Outputs& outputs, float* own_drift, int turn);
};

}  // namespace hush
