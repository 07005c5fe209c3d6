// Backward of a residual chain. With g = ∂L/∂x behind a block, x̂ = (x − mean)·inverse and N units,
//
//   ∂L/∂φ = β ⟨g, W[i]⟩ where i is active      u = gain · φ′ · ∂L/∂φ, zero elsewhere
//   ∂L/∂x = g + inverse · (u − Σu/N − x̂ Σ(u x̂)/N)                     (no Σu with RMSNorm, neither without a norm)
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
    // g behind a stretch, which another thread writes. When one is at stretch s, all threads have finished what they did
    // more than `parts` stretches above it, so that two more than that may take turns.
    std::vector<float*> handed = std::vector<float*>(static_cast<size_t>(parts) + 2);
    std::vector<PartScratch> scratch = std::vector<PartScratch>(static_cast<size_t>(parts));

    bool wants(size_t l, Part which) const { return gradients[l].part[which].wanted; }
    // Whether ⟨g, W[i]⟩ of this block is of use to anybody.
    bool wants_sums(size_t l) const {
        return l || grad_h || wants(l, kGain) || wants(l, kShift) || wants(l, kScale);
    }

    void place(Cutter& cutter) {
        size_t most = 0;
        for (size_t l = 0; l < n_blocks; ++l) most = std::max<size_t>(most, saved.row(l)[1]);
        for (float*& g : handed) g = cutter.cut<float>(batch * stride);
        for (PartScratch& own : scratch) {
            own.g.assign(relay.longest() - 1, nullptr);
            for (float*& g : own.g) g = cutter.cut<float>(batch * stride);
            own.sums = cutter.cut<float>(width + 4);
            own.below = cutter.cut<float>(stride);
            own.for_shift = cutter.cut<float>(relay.longest() * most);
            own.for_gain = cutter.cut<float>(relay.longest() * most);
            own.along = cutter.cut<double>(relay.longest() * batch);
            own.totals = cutter.cut<float>(stride);
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
        task.width = width;
        task.norm = block.norm, task.gain = block.gain, task.activation = block.layer.activation;
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
        const PartGradient& w = gradients[l].part[kWeight];
        if (w.wanted) {
            WeightRowsTask task{};
            task.g = behind(s, l), task.g_stride = stride;
            task.weight = static_cast<float*>(block.layer.weight);
            task.width = width, task.first = 0, task.last = width;
            task.column_start = units.column_start, task.entries = units.entries;
            task.values = units.values, task.samples = units.samples;
            task.wide_samples = index_bytes(batch) == 4;
            task.beta = beta;
            task.optimizer = w.optimizer;
            task.gradient = w.gradient, task.state1 = w.state1, task.state2 = w.state2;
            r.weight_rows(task);
        }
        auto sum_units = [&](const float* summands) {
            summands += in_stretch * room;
            for (size_t i = 0; i < width; ++i) {
                float sum = 0.0f;
                for (uint32_t j = units.column_start[i]; j < units.column_start[i + 1]; ++j) sum += summands[units.entries[j]];
                totals[i] = sum;
            }
            return totals;
        };
        if (wants(l, kGain)) take(l, kGain, block.gain, width, sum_units(s.own.for_gain));
        if (wants(l, kShift)) take(l, kShift, block.shift, width, sum_units(s.own.for_shift));
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
    const size_t width = blocks[0].layer.inputs;
    const int most = static_cast<int>(std::min<size_t>(n, static_cast<size_t>(std::max(threads, 1))));
    ResidualBackward back{blocks,   gradients,       n,      batch,         width,
                          {saved, batch, n, width},  grad_out, grad_out_stride, grad_h, grad_h_stride, most};
    Scratch scratch(back);
    run_team(back.parts, [&back](int id, int team) { back.run(id, team); });
}

}  // namespace hush
