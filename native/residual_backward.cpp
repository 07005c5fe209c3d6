// Backward of a residual chain. With g = ∂L/∂x behind a block, x̂ = (x − mean)·inverse and N units,
//
//   ∂L/∂φ = β ⟨g, W[i]⟩ where i is active      u = gain · φ′ · ∂L/∂φ, zero elsewhere
//   ∂L/∂x = g + inverse · (u − Σu/N − x̂ Σ(u x̂)/N)                     (no Σu with RMSNorm, neither without a norm)
//
// so all that is dense is one sweep over the stream with two numbers a sample. Two phases a block: the team shares the
// block's inputs, as in the chain, so that every weight row has one owner; then the stream's columns.
#include <algorithm>
#include <cstring>
#include <vector>

#include "buffers.h"
#include "residual.h"
#include "team.h"

namespace hush {
namespace {

// As in the backward of the chain: the δ of some tiles stays in L1 while this many rows of weights pass.
constexpr size_t kDeltaBytes = 24 * 1024;
constexpr size_t kRows = 16;
constexpr size_t kAheadBytes = 256 * 1024;

struct PartScratch {
    float *sum_u, *sum_ux;   // per sample, over the part's inputs
    float* columns;          // sums over the samples of the part's columns; gradients of a gain and a shift
    float* shifts;
    double along_branch = 0.0, along_bias = 0.0;  // the two summands of ∂L/∂β
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
    const Kernels& k = kernels();
    const ResidualKernels& r = residual_kernels();
    float* g = nullptr;  // in tiles, [tile][sample][lanes of a tile]
    float *sums = nullptr, *scaled = nullptr;
    float *level = nullptr, *factor = nullptr;  // per sample, one array for each part
    std::vector<PartScratch> scratch{};
    Barrier barrier{};

    size_t tile() const { return static_cast<size_t>(k.back) * static_cast<size_t>(k.lanes); }
    size_t tiles() const { return (width + tile() - 1) / tile(); }
    float* at(size_t column, size_t sample) const {
        return g + (column / tile() * batch + sample) * tile() + column % tile();
    }

    void place(Cutter& cutter) {
        size_t most = 0;
        for (size_t l = 0; l < n_blocks; ++l) most = std::max<size_t>(most, saved.row(l)[1]);
        g = cutter.cut<float>(tiles() * batch * tile());
        sums = cutter.cut<float>(most + 4);
        scaled = cutter.cut<float>(most + 4);
        level = cutter.cut<float>(batch * parts);
        factor = cutter.cut<float>(batch * parts);
        scratch.resize(parts);
        for (PartScratch& s : scratch) {
            s.sum_u = cutter.cut<float>(batch);
            s.sum_ux = cutter.cut<float>(batch);
            s.columns = cutter.cut<float>(width + tile());
            s.shifts = cutter.cut<float>(width + tile());
        }
    }

    // A vector parameter's gradient of some columns: written, or handed to its optimizer.
    void take(size_t l, Part which, float* parameter, Range range, const float* gradient) {
        const PartGradient& p = gradients[l].part[which];
        if (!p.wanted || !range.size()) return;
        if (p.optimizer.kind == Update::gradient)
            std::memcpy(p.gradient + range.first, gradient, range.size() * sizeof(float));
        else
            k.update(p.optimizer, parameter + range.first, gradient, p.state1 ? p.state1 + range.first : nullptr,
                     p.state2 ? p.state2 + range.first : nullptr, range.size());
    }

    Range columns_of(int part) const { return part_of(width, part, parts, static_cast<size_t>(k.lanes)); }

    void take_grad_out(int part) {
        const Range range = columns_of(part);
        for (size_t b = 0; b < batch; ++b) {
            const float* from = grad_out + b * grad_out_stride;
            for (size_t c = range.first; c < range.last;) {
                const size_t stop = std::min(range.last, (c / tile() + 1) * tile());
                std::memcpy(at(c, b), from + c, (stop - c) * sizeof(float));
                c = stop;
            }
            // The part that has the last column clears what lies beyond it.
            if (range.size() && range.last == width && width % tile())
                std::memset(at(width - 1, b) + 1, 0, (tile() - width % tile()) * sizeof(float));
        }
    }

    bool wants(size_t l, Part which) const { return gradients[l].part[which].wanted; }
    bool wants_sums(size_t l) const {
        return l || grad_h || wants(l, kGain) || wants(l, kShift) || wants(l, kScale);
    }

    // Behind block l: ∂L/∂x at its output is complete, and with it the bias's gradient.
    // Where `below` is given, g goes through the norm of that block first.
    void sweep_columns(size_t l, int part, bool has_block, bool through_norm, size_t above) {
        const Range range = columns_of(part);
        if (!range.size()) return;
        const float *stream = nullptr, *mean = nullptr;
        float *levels = level + part * batch, *factors = factor + part * batch;
        if (through_norm) {
            stream = saved.stream(above), mean = saved.mean(above);
            const float* inverse = saved.inverse(above);
            const bool centred = blocks[above].norm == Norm::layer;
            const float n = static_cast<float>(width);
            for (size_t b = 0; b < batch; ++b) {
                float u = 0.0f, ux = 0.0f;
                for (const PartScratch& s : scratch) u += s.sum_u[b], ux += s.sum_ux[b];
                levels[b] = centred ? inverse[b] * u / n : 0.0f;
                factors[b] = inverse[b] * inverse[b] * ux / n;
            }
        }
        const bool wants_bias = has_block && (wants(l, kBias) || wants(l, kScale));
        if (!through_norm && !wants_bias) return;
        StreamBackTask task{};
        task.g_stride = tile(), task.x_stride = width, task.batch = batch;
        task.level = levels, task.factor = factors, task.mean = mean;
        float* total = scratch[part].columns;
        for (size_t c = range.first; c < range.last;) {
            const size_t stop = std::min(range.last, (c / tile() + 1) * tile());
            task.g = at(c, 0);
            task.x = stream ? stream + c : nullptr;
            task.vectors = static_cast<int>((stop - c + k.lanes - 1) / k.lanes);
            task.tail = static_cast<int>((stop - c) % k.lanes);
            task.sums = total + (c - range.first);
            r.stream_back(task);
            c = stop;
        }
        if (!wants_bias) return;
        const float beta = blocks[l].beta();
        double along = 0.0;
        for (size_t c = range.first; c < range.last; ++c) {
            along += static_cast<double>(total[c - range.first]) * saved.bias(l)[c];
            total[c - range.first] *= beta;
        }
        scratch[part].along_bias = along;
        take(l, kBias, blocks[l].layer.bias, range, total);
    }

    // ⟨g, W[i]⟩ for every active unit of the part's inputs, and the weights' gradient or update.
    void run_inputs(size_t l, const SavedLayer& lists, Range range) {
        const PartGradient& w = gradients[l].part[kWeight];
        const bool want_sums = wants_sums(l);
        if (!w.wanted && !want_sums) return;
        const float beta = blocks[l].beta();
        for (uint32_t j = lists.column_start[range.first]; j < lists.column_start[range.last]; ++j)
            scaled[j] = beta * lists.values[j];
        BackwardTask task{};
        task.delta_stride = tile();
        task.weight_stride = width;
        task.column_start = lists.column_start;
        task.values = scaled;
        task.samples = lists.samples;
        task.wide_samples = index_bytes(batch) == 4;
        task.sums = want_sums ? sums : nullptr;
        task.optimizer = w.optimizer;
        if (!w.wanted) task.optimizer.kind = Update::none;
        Ahead ahead;
        if (l) {
            const size_t row = width * sizeof(float), bytes = row * range.size();
            if (bytes <= kAheadBytes) {
                const char* next = static_cast<const char*>(blocks[l - 1].layer.weight);
                ahead = {next + range.first * row, row, row, range.size(), 0, 0, 0};
                ahead.quota = bytes / 64 / std::max<size_t>(1, tiles() * range.size()) + 1;
                task.ahead = &ahead;
            }
        }
        const size_t block = std::max<size_t>(1, kDeltaBytes / std::max<size_t>(1, batch * tile() * sizeof(float)));
        auto column_of = [](float* p, size_t c) { return p ? p + c : nullptr; };
        for (size_t t0 = 0; t0 < tiles(); t0 += block) {
            const size_t t1 = std::min(t0 + block, tiles()), rows = block > 1 ? kRows : range.size();
            for (size_t i = range.first; i < range.last; i += rows) {
                task.first = i, task.last = std::min(i + rows, range.last);
                for (size_t t = t0; t < t1; ++t) {
                    const size_t column = t * tile(), stop = std::min(column + tile(), width);
                    task.delta = g + t * batch * tile();
                    task.weight = static_cast<float*>(blocks[l].layer.weight) + column;
                    task.gradient = column_of(w.gradient, column);
                    task.state1 = column_of(w.state1, column);
                    task.state2 = column_of(w.state2, column);
                    task.vectors = static_cast<int>((stop - column + k.lanes - 1) / k.lanes);
                    task.tail = static_cast<int>((stop - column) % k.lanes);
                    task.add_sums = t > 0;
                    k.backward(task);
                }
            }
        }
    }

    // From ⟨g, W[i]⟩ to u, its two sums a sample, and the gradients of gain, shift and β.
    template <class I>
    void pass_activation(size_t l, int part, const SavedLayer& lists, Range range, const I* samples) {
        const ResidualBlock& block = blocks[l];
        PartScratch& s = scratch[part];
        std::memset(s.sum_u, 0, batch * sizeof(float));
        std::memset(s.sum_ux, 0, batch * sizeof(float));
        const float *stream = saved.stream(l), *mean = saved.mean(l), *inverse = saved.inverse(l);
        const float beta = block.beta();
        const bool normed = block.norm != Norm::none;
        double along = 0.0;
        for (size_t i = range.first; i < range.last; ++i) {
            const float gain = block.gain ? block.gain[i] : 1.0f;
            float for_gain = 0.0f, for_shift = 0.0f;
            for (uint32_t j = lists.column_start[i]; j < lists.column_start[i + 1]; ++j) {
                const float y = lists.values[j];
                along += static_cast<double>(y) * sums[j];
                const float d = block.layer.activation.slope(y) != 0.0f ? beta * sums[j] : 0.0f;
                if (!normed) {
                    sums[j] = d;
                    continue;
                }
                const size_t b = samples[j];
                const float at_unit = (stream[b * width + i] - mean[b]) * inverse[b], u = gain * d;
                for_gain += d * at_unit;
                for_shift += d;
                s.sum_u[b] += u;
                s.sum_ux[b] += u * at_unit;
                sums[j] = u * inverse[b];
            }
            s.columns[i - range.first] = for_gain;
            s.shifts[i - range.first] = for_shift;
        }
        s.along_branch = along;
        take(l, kGain, block.gain, range, s.columns);
        take(l, kShift, block.shift, range, s.shifts);
    }

    void add_to_stream(int part, const SavedLayer& lists) {
        const Range range = columns_of(part);
        auto add = [&](auto* samples) {
            for (size_t i = range.first; i < range.last; ++i) {
                float* column = at(i, 0);
                for (uint32_t j = lists.column_start[i]; j < lists.column_start[i + 1]; ++j)
                    column[samples[j] * tile()] += sums[j];
            }
        };
        index_bytes(batch) == 2 ? add(static_cast<const uint16_t*>(lists.samples))
                                : add(static_cast<const uint32_t*>(lists.samples));
    }

    void take_scale(size_t l, double along) {
        const PartGradient& p = gradients[l].part[kScale];
        if (!p.wanted) return;
        const float gradient = static_cast<float>(along);
        take(l, kScale, blocks[l].learned_scale, {0, 1}, &gradient);
    }

    void run(int id, int n) {
        auto each = [&](auto&& work) {
            for (int p = id; p < parts; p += n) work(p);
        };
        each([&](int p) {
            take_grad_out(p);
            sweep_columns(n_blocks - 1, p, true, false, 0);
        });
        for (size_t l = n_blocks; l-- > 0;) {
            barrier.wait(n);
            const SavedLayer lists = saved.lists(l);
            const bool want_sums = wants_sums(l);
            double along = 0.0;  // by everybody alike, before the next sweep writes it anew
            for (const PartScratch& s : scratch) along += s.along_bias;
            each([&](int p) {
                const Range range = inputs_of(lists, width, p, parts);
                run_inputs(l, lists, range);
                if (!want_sums) return;
                if (index_bytes(batch) == 2)
                    pass_activation(l, p, lists, range, static_cast<const uint16_t*>(lists.samples));
                else
                    pass_activation(l, p, lists, range, static_cast<const uint32_t*>(lists.samples));
            });
            if (!want_sums) break;  // only at block 0
            barrier.wait(n);
            if (id == 0) {
                for (const PartScratch& s : scratch) along += s.along_branch;
                take_scale(l, along);
            }
            if (!l && !grad_h) break;
            each([&](int p) {
                add_to_stream(p, lists);
                sweep_columns(l ? l - 1 : 0, p, l > 0, blocks[l].norm != Norm::none, l);
                if (!l) give_grad_h(p);
            });
        }
    }

    void give_grad_h(int part) const {
        const Range range = columns_of(part);
        for (size_t b = 0; b < batch; ++b)
            for (size_t c = range.first; c < range.last;) {
                const size_t stop = std::min(range.last, (c / tile() + 1) * tile());
                std::memcpy(grad_h + b * grad_h_stride + c, at(c, b), (stop - c) * sizeof(float));
                c = stop;
            }
    }
};

}  // namespace

void residual_backward(const ResidualBlock* blocks, const BlockGradient* gradients, size_t n, char* saved,
                       const float* grad_out, size_t grad_out_stride, size_t batch, float* grad_h,
                       size_t grad_h_stride, int threads) {
    const size_t width = blocks[0].layer.inputs;
    ResidualBackward back{blocks,   gradients,       n,      batch,         width,
                          {saved, batch, n, width},  grad_out, grad_out_stride, grad_h, grad_h_stride, std::max(threads, 1)};
    Cutter size(nullptr);
    back.place(size);
    Block block(size.used());
    Cutter cutter(block.data());
    back.place(cutter);
    run_team(back.parts, [&back](int id, int team) { back.run(id, team); });
}

}  // namespace hush
