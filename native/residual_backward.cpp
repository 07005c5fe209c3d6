// Backward of a residual chain. With g = ∂L/∂x behind a block, x̂ = (x − mean)·inverse and N units,
//
//   ∂L/∂φ = β ⟨g, W[i]⟩ where i is active      u = gain · φ′ · ∂L/∂φ, zero elsewhere
//   ∂L/∂x = g + inverse · (u − Σu/N − x̂ Σ(u x̂)/N)                     (no Σu with RMSNorm, neither without a norm)
//
// With two matrices u = gain · W₁ᵀ δ, δ = φ′ · ∂L/∂φ, has no zeros, and ∂L/∂W₁[i] = Σ δ_i n(x) over the samples in which i is active.
//
// The samples go back through a stretch of blocks group by group, as in the forward (a relay); when all have passed, the
// owner of the stretch makes its parameters' gradients of all samples' g, in order, whatever the number of threads.
#include <algorithm>
#include <cstring>
#include <vector>

#include "buffers.h"
#include "relay.h"
#include "residual.h"
#include "team.h"

namespace hush {
namespace {

constexpr size_t kRowsAhead = 2;  // of the stream

struct PartScratch {
    std::vector<float*> g;  // behind each block of a stretch but the last, [sample][stride]
    float *sums, *below;    // of one sample
    float *for_shift, *for_gain;  // of every active unit of each block of a stretch
    double* along;                // of every sample and block of a stretch
    float* totals;                // a vector parameter's gradient
    // Of blocks of two matrices: ∂L/∂n(x) of one sample; of every block of a stretch what its norm's gradients are so far, and δ of
    // its active units; and n(x) of all samples of one block.
    float *into, *shift_sums, *gain_sums, *deltas, *normed;
};

struct ResidualBackward {
    const ResidualBlock* blocks;
    const BlockGradient* gradients;
    size_t n_blocks, batch, width;
    SavedStream saved;
    const float* grad_out;
    size_t grad_out_stride;
    float* grad_h;
    size_t grad_h_stride;
    int parts;
    Relay relay{n_blocks, batch, parts};
    const Kernels& k = kernels();
    const ResidualKernels& r = residual_kernels();
    const size_t stride = round_up(width, static_cast<size_t>(k.lanes));
    const bool two = any_inner(blocks, n_blocks);
    // g behind a stretch, which another thread writes. When one is at stretch s, all threads have finished what they did
    // more than `parts` stretches above it, so that two more than that may take turns.
    std::vector<float*> handed = std::vector<float*>(static_cast<size_t>(parts) + 2);
    std::vector<PartScratch> scratch = std::vector<PartScratch>(static_cast<size_t>(parts));

    bool wants(size_t l, Part which) const { return gradients[l].part[which].wanted; }
    // Whether ⟨g, W[i]⟩ of this block is of use to anybody.
    bool wants_sums(size_t l) const {
        return l || grad_h || wants(l, kGain) || wants(l, kShift) || wants(l, kScale) || wants(l, kInnerWeight) ||
               wants(l, kInnerBias);
    }

    void place(Cutter& cutter) {
        size_t most = 0;
        for (size_t l = 0; l < n_blocks; ++l) most = std::max<size_t>(most, saved.row(l)[1]);
        for (float*& g : handed) g = cutter.cut<float>(batch * stride);
        for (PartScratch& own : scratch) {
            own.g.assign(relay.longest() - 1, nullptr);
            for (float*& g : own.g) g = cutter.cut<float>(batch * stride);
            own.sums = cutter.cut<float>(saved.most + 4);
            own.below = cutter.cut<float>(stride);
            own.for_shift = cutter.cut<float>(relay.longest() * most);
            own.for_gain = cutter.cut<float>(relay.longest() * most);
            own.along = cutter.cut<double>(relay.longest() * batch);
            own.totals = cutter.cut<float>(std::max(stride, saved.most));
            own.into = cutter.cut<float>(two ? stride : 0);
            own.shift_sums = cutter.cut<float>(two ? relay.longest() * stride : 0);
            own.gain_sums = cutter.cut<float>(two ? relay.longest() * stride : 0);
            own.deltas = cutter.cut<float>(two ? relay.longest() * most : 0);
            own.normed = cutter.cut<float>(two ? batch * stride : 0);
        }
        room = most;
    }
    size_t room = 0;  // for the active units of a block

    // A vector parameter's gradient: written, or handed to its optimizer.
    void take(size_t l, Part which, float* parameter, size_t n, const float* gradient) const {
        const PartGradient& p = gradients[l].part[which];
        if (p.optimizer.kind == Update::gradient)
            std::memcpy(p.gradient, gradient, n * sizeof(float));
        else
            k.update(p.optimizer, parameter, gradient, p.state1, p.state2, n);
    }

    // A thread's stretch, from its last block to its first.
    struct Stretch {
        size_t number;
        Range blocks;
        PartScratch& own;
    };
    float* behind(const Stretch& s, size_t l) const {
        return l + 1 == s.blocks.last ? handed[s.number % handed.size()] : s.own.g[l - s.blocks.first];
    }
    float* before(const Stretch& s, size_t l) const {
        return l > s.blocks.first ? behind(s, l - 1) : handed[(s.number + handed.size() - 1) % handed.size()];
    }

    void take_grad_out(const Stretch& s, Range samples) const {
        for (size_t b = samples.first; b < samples.last; ++b) {
            float* to = behind(s, n_blocks - 1) + b * stride;
            std::memcpy(to, grad_out + b * grad_out_stride, width * sizeof(float));
            std::memset(to + width, 0, (stride - width) * sizeof(float));
        }
    }

    // Some samples through block l, before its parameters change.
    void run_samples(const Stretch& s, size_t l, Range samples, Ahead ahead) const {
        const ResidualBlock& block = blocks[l];
        const SavedUnits units = saved.units(l);
        const size_t in_stretch = l - s.blocks.first;
        SampleBackTask task{};
        const bool inner = block.inner_weight != nullptr;
        task.width = width, task.units = block.units();
        task.norm = block.norm, task.gain = block.gain, task.activation = block.layer.activation;
        task.inner_weight = block.inner_weight;
        task.into = s.own.into;
        task.shift_sums = inner && wants(l, kShift) ? s.own.shift_sums + in_stretch * stride : nullptr;
        task.gain_sums = inner && wants(l, kGain) ? s.own.gain_sums + in_stretch * stride : nullptr;
        task.weight = static_cast<const float*>(block.layer.weight);
        task.beta = block.beta();
        task.sums = s.own.sums;
        task.bias = wants(l, kScale) ? saved.bias(l) : nullptr;
        for (size_t b = samples.first; b < samples.last; ++b) {
            const size_t first = units.sample_start[b];
            task.g = behind(s, l) + b * stride;
            task.below = l ? before(s, l) + b * stride : grad_h ? s.own.below : nullptr;
            task.x = saved.stream(l) + b * width;
            task.moments = saved.moments(l)[b];
            // The stream was last touched in the forward, and a prefetcher stops at the end of a page.
            if (block.norm != Norm::none && b + kRowsAhead < samples.last)
                for (size_t i = 0; i < width; i += kLine / sizeof(float))
                    __builtin_prefetch(task.x + kRowsAhead * width + i, 0, 3);
            task.values = units.values + first, task.indices = units.indices + first;
            task.count = units.sample_start[b + 1] - units.sample_start[b];
            task.deltas = inner ? s.own.deltas + in_stretch * room + first : nullptr;
            task.for_shift = wants(l, kShift) ? s.own.for_shift + in_stretch * room + first : nullptr;
            task.for_gain = wants(l, kGain) ? s.own.for_gain + in_stretch * room + first : nullptr;
            r.sample_back(task);
            if (task.bias) s.own.along[in_stretch * batch + b] = task.along;
            fetch<void>(&ahead);
            if (!l && grad_h) std::memcpy(grad_h + b * grad_h_stride, s.own.below, width * sizeof(float));
        }
    }

    // The parameters of block l.
    void run_parameters(const Stretch& s, size_t l) const {
        const ResidualBlock& block = blocks[l];
        const SavedUnits units = saved.units(l);
        const size_t in_stretch = l - s.blocks.first;
        const float beta = block.beta();
        float* totals = s.own.totals;
        if (wants(l, kBias)) {
            r.column_sums({behind(s, l), stride, batch, stride / static_cast<size_t>(k.lanes), totals});
            for (size_t c = 0; c < width; ++c) totals[c] *= beta;
            take(l, kBias, block.layer.bias, width, totals);
        }
        // A matrix with a row for each unit, whose gradient is Σ values · g over the samples in which the unit is active.
        auto take_rows = [&](Part which, float* weight, const float* values, const float* g, float factor) {
            const PartGradient& w = gradients[l].part[which];
            WeightRowsTask task{};
            task.g = g, task.g_stride = stride;
            task.weight = weight;
            task.width = width, task.first = 0, task.last = block.units();
            task.column_start = units.column_start, task.entries = units.entries;
            task.values = values, task.samples = units.samples;
            task.wide_samples = index_bytes(batch) == 4;
            task.beta = factor;
            task.optimizer = w.optimizer;
            task.gradient = w.gradient, task.state1 = w.state1, task.state2 = w.state2;
            r.weight_rows(task);
        };
        if (wants(l, kWeight)) take_rows(kWeight, static_cast<float*>(block.layer.weight), units.values, behind(s, l), beta);
        if (wants(l, kInnerWeight)) {  // before the norm's parameters change
            for (size_t b = 0; b < batch; ++b)
                r.normalise(saved.stream(l) + b * width, width, saved.moments(l)[b], block.gain, block.shift,
                            s.own.normed + b * stride);
            take_rows(kInnerWeight, block.inner_weight, s.own.deltas + in_stretch * room, s.own.normed, 1.0f);
        }
        auto sum_units = [&](const float* summands) {
            summands += in_stretch * room;
            for (size_t i = 0; i < block.units(); ++i) {
                float sum = 0.0f;
                for (uint32_t j = units.column_start[i]; j < units.column_start[i + 1]; ++j) sum += summands[units.entries[j]];
                totals[i] = sum;
            }
            return totals;
        };
        if (wants(l, kInnerBias)) take(l, kInnerBias, block.inner_bias, block.units(), sum_units(s.own.deltas));
        auto norm_gradient = [&](const float* of_units, const float* sums) {
            return block.inner_weight ? sums + in_stretch * stride : sum_units(of_units);
        };
        if (wants(l, kGain)) take(l, kGain, block.gain, width, norm_gradient(s.own.for_gain, s.own.gain_sums));
        if (wants(l, kShift)) take(l, kShift, block.shift, width, norm_gradient(s.own.for_shift, s.own.shift_sums));
        if (wants(l, kScale)) {
            double total = 0.0;
            for (size_t b = 0; b < batch; ++b) total += s.own.along[in_stretch * batch + b];
            const float gradient = static_cast<float>(total);
            take(l, kScale, block.learned_scale, 1, &gradient);
        }
    }

    void run(int id, int n) {
        const size_t team = static_cast<size_t>(n), me = static_cast<size_t>(id);
        for (size_t number = relay.stretches(); number-- > 0;) {
            if (number % team != me) continue;
            const Stretch s{number, relay.blocks(number), scratch[me]};
            const bool last = number + 1 == relay.stretches();
            if (two) {
                std::memset(s.own.shift_sums, 0, s.blocks.size() * stride * sizeof(float));
                std::memset(s.own.gain_sums, 0, s.blocks.size() * stride * sizeof(float));
            }
            for (size_t m = 0; m < relay.groups(); ++m) {
                const Range samples = relay.samples(m);
                last ? take_grad_out(s, samples) : relay.await(number + 1, m);
                for (size_t l = s.blocks.last; l-- > s.blocks.first;) {
                    if (!wants_sums(l)) continue;
                    const bool more = m + 1 < relay.groups();
                    const size_t after = l > s.blocks.first ? l - 1 : more ? s.blocks.last - 1 : l && team == 1 ? l - 1 : n_blocks;
                    run_samples(s, l, samples, after < n_blocks ? ahead_of(blocks[after].layer, samples.size()) : Ahead{});
                }
                relay.leave(number);
            }
            for (size_t l = s.blocks.last; l-- > s.blocks.first;) run_parameters(s, l);
        }
    }
};

}  // namespace

void residual_backward(const ResidualBlock* blocks, const BlockGradient* gradients, size_t n, char* saved,
                       const float* grad_out, size_t grad_out_stride, size_t batch, float* grad_h,
                       size_t grad_h_stride, int threads) {
    const size_t width = blocks[0].layer.outputs;
    const int most = static_cast<int>(std::min<size_t>(n, static_cast<size_t>(std::max(threads, 1))));
    ResidualBackward back{blocks,   gradients,       n,      batch,         width,
                          {saved, batch, n, width, most_units(blocks, n)}, grad_out, grad_out_stride, grad_h, grad_h_stride, most};
    Scratch scratch(back);
    run_team(back.parts, [&back](int id, int team) { back.run(id, team); });
}

}  // namespace hush
