// Backward: the team shares each layer's inputs, so every weight row has one owner and no sum crosses threads.
#include <algorithm>
#include <cstring>
#include <vector>

#include "buffers.h"
#include "chain.h"
#include "team.h"

namespace hush {
namespace {

// The δ of a block of outputs stays in L1 while the inputs stream past it.
constexpr size_t kDeltaBytes = 24 * 1024;
// Rows of weights a block of tiles visits before it moves on: long enough to amortise the call, short enough for L1.
constexpr size_t kRows = 16;

// A thread's share of the next layer's weights is fetched while it works on this one, if it leaves room in L2.
constexpr size_t kAheadBytes = 256 * 1024;

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
    // δ in tiles, [tile][sample][lanes of a tile]. Three buffers turn: one is read, one is filled, and the one that
    // was read before is cleared for the next layer, so that one barrier a layer is enough.
    float* delta[3] = {};
    float* sums = nullptr;
    std::vector<float*> bias_gradient{};  // per part
    // For centred gradients: δ summed over the batch, of which one is read and the other filled; and per part, what the
    // step of a layer's weights did to the mean input, which the bias takes back one layer later, when all parts are
    // known.
    float* delta_sum[2] = {};
    std::vector<float*> drift[2] = {};
    Barrier barrier{};

    size_t tile() const { return static_cast<size_t>(k.back) * k.lanes; }
    size_t tiles(size_t width) const { return (width + tile() - 1) / tile(); }
    size_t delta_floats(size_t width) const { return tiles(width) * batch * tile(); }

    void place(Cutter& cutter) {
        size_t widest = 0, most = 0;
        for (size_t l = 0; l < n_layers; ++l) {
            widest = std::max({widest, layers[l].outputs, layers[l].inputs});
            if (saved) most = std::max(most, saved_layer(saved, l).active);
        }
        for (float*& d : delta) d = cutter.cut<float>(delta_floats(widest));
        sums = cutter.cut<float>(most + 4);
        bias_gradient.assign(parts, nullptr);
        for (float*& g : bias_gradient) g = cutter.cut<float>(widest);
        const bool any = std::any_of(gradients, gradients + n_layers, [](const auto& g) { return g.means; });
        if (!any) return;
        const size_t whole = tiles(widest) * tile();
        for (int turn = 0; turn < 2; ++turn) {
            delta_sum[turn] = cutter.cut<float>(whole);
            if (delta_sum[turn]) std::memset(delta_sum[turn], 0, whole * sizeof(float));
            drift[turn].assign(parts, nullptr);
            for (float*& d : drift[turn]) d = cutter.cut<float>(whole);
        }
    }

    Range share(size_t n, int part) const { return {n * part / parts, n * (part + 1) / parts}; }

    void clear(float* buffer, size_t width, int part) {
        const Range r = share(delta_floats(width), part);
        std::memset(buffer + r.first, 0, r.size() * sizeof(float));
    }

    // Bias gradients are summed here and handed to the optimizer, a stretch of outputs at a time.
    void step_bias(size_t l, Range range, const float* gradient) {
        const LayerGradient& g = gradients[l];
        if (!g.want_bias || !range.size()) return;
        if (g.bias_optimizer.kind == Update::gradient)
            std::memcpy(g.bias + range.first, gradient, range.size() * sizeof(float));
        else
            k.update(g.bias_optimizer, layers[l].bias + range.first, gradient,
                     g.bias_state1 ? g.bias_state1 + range.first : nullptr,
                     g.bias_state2 ? g.bias_state2 + range.first : nullptr, range.size());
    }

    void take_grad_out(int part) {
        const size_t width = layers[n_layers - 1].outputs;
        const Range range = share(tiles(width), part);
        const size_t first = range.first * tile(), last = std::min(range.last * tile(), width);
        float* total = bias_gradient[part];
        if (first < last) std::memset(total, 0, (last - first) * sizeof(float));
        for (size_t t = range.first; t < range.last; ++t) {
            const size_t c0 = t * tile(), c1 = std::min(c0 + tile(), width);
            for (size_t b = 0; b < batch; ++b) {
                float* to = delta[0] + (t * batch + b) * tile();
                const float* from = grad_out + b * grad_out_stride;
                for (size_t c = c0; c < c1; ++c) {
                    to[c - c0] = from[c];
                    total[c - first] += from[c];
                }
                for (size_t c = c1; c < c0 + tile(); ++c) to[c - c0] = 0.0f;
            }
        }
        if (first < last && delta_sum[0]) std::memcpy(delta_sum[0] + first, total, (last - first) * sizeof(float));
        if (first < last) step_bias(n_layers - 1, {first, last}, total);
    }

    // A layer's biases take back what the step of its weights did to the mean input.
    void keep_mean(size_t l, int part, int turn) {
        const LayerGradient& g = gradients[l];
        if (!g.keeps_mean || !layers[l].bias) return;
        const Range range = share(layers[l].outputs, part);
        for (const float* d : drift[turn])
            for (size_t c = range.first; c < range.last; ++c) layers[l].bias[c] -= d[c];
    }

    void run_layer(size_t l, int part, const float* from, bool want_sums, int turn) {
        const Layer& layer = layers[l];
        const LayerGradient& g = gradients[l];
        const SavedLayer s = saved_layer(saved, l);
        const Range range = inputs_of(s, layer.inputs, part, parts);
        BackwardTask task{};
        task.delta_stride = tile();
        task.weight_stride = layer.outputs;
        task.column_start = s.column_start;
        task.values = s.values;
        task.samples = s.samples;
        task.wide_samples = index_bytes(batch) == 4;
        task.sums = want_sums ? sums : nullptr;
        task.optimizer = g.optimizer;
        if (!g.want_weight) task.optimizer.kind = Update::none;
        const size_t all = tiles(layer.outputs);
        float* own_drift = g.keeps_mean ? drift[turn][part] : nullptr;
        if (own_drift) std::memset(own_drift, 0, all * tile() * sizeof(float));
        if (!g.want_weight && !want_sums) return;
        task.means = g.means;
        const size_t block = std::max<size_t>(1, kDeltaBytes / std::max<size_t>(1, batch * tile() * sizeof(float)));
        Ahead ahead;
        if (l) {
            const Layer& next = layers[l - 1];
            const Range share = inputs_of(saved_layer(saved, l - 1), next.inputs, part, parts);
            const size_t row = next.outputs * sizeof(float), bytes = row * share.size();
            if (bytes <= kAheadBytes) {
                ahead = {static_cast<const char*>(next.weight) + share.first * row, row, row, share.size(), 0, 0, 0};
                ahead.quota = bytes / 64 / std::max<size_t>(1, all * range.size()) + 1;
                task.ahead = &ahead;
            }
        }
        auto at = [](float* p, size_t c) { return p ? p + c : nullptr; };
        for (size_t t0 = 0; t0 < all; t0 += block) {
            const size_t t1 = std::min(t0 + block, all), rows = block > 1 ? kRows : range.size();
            for (size_t i = range.first; i < range.last; i += rows) {
                task.first = i, task.last = std::min(i + rows, range.last);
                for (size_t t = t0; t < t1; ++t) {
                    const size_t column = t * tile(), stop = std::min(column + tile(), layer.outputs);
                    task.delta = from + t * batch * tile();
                    task.weight = static_cast<float*>(layer.weight) + column;
                    task.gradient = at(g.weight, column);
                    task.state1 = at(g.weight_state1, column);
                    task.state2 = at(g.weight_state2, column);
                    task.vectors = static_cast<int>((stop - column + k.lanes - 1) / k.lanes);
                    task.tail = static_cast<int>((stop - column) % k.lanes);
                    task.add_sums = t > 0;
                    task.delta_sum = g.means ? delta_sum[turn] + column : nullptr;
                    task.drift = at(own_drift, column);
                    k.backward(task);
                }
            }
        }
    }

    // δ of the layer below: the sums where φ has slope 1, zero elsewhere.
    void spread(size_t l, int part, float* to, int turn) {
        const Layer& layer = layers[l];
        const SavedLayer s = saved_layer(saved, l);
        const Range range = inputs_of(s, layer.inputs, part, parts);
        const Activation& phi = layer.activation;
        float* total = bias_gradient[part];
        auto put = [&](auto* samples) {
            for (size_t i = range.first; i < range.last; ++i) {
                float* column = l ? to + i / tile() * batch * tile() + i % tile() : grad_h + i;
                const size_t stride = l ? tile() : grad_h_stride;
                float sum = 0.0f;
                for (uint32_t j = s.column_start[i]; j < s.column_start[i + 1]; ++j) {
                    const float d = phi.slope(s.values[j]) != 0.0f ? sums[j] : 0.0f;
                    column[samples[j] * stride] = d;
                    sum += d;
                }
                total[i - range.first] = sum;
            }
        };
        if (index_bytes(batch) == 2)
            put(static_cast<const uint16_t*>(s.samples));
        else
            put(static_cast<const uint32_t*>(s.samples));
        if (l && delta_sum[0] && range.size())
            std::memcpy(delta_sum[1 - turn] + range.first, total, range.size() * sizeof(float));
        if (l) step_bias(l - 1, range, total);
    }

    void run(int id, int n) {
        auto each = [&](auto&& work) {
            for (int p = id; p < parts; p += n) work(p);
        };
        float *read = delta[0], *fill = delta[1], *spare = delta[2];
        each([&](int p) {
            take_grad_out(p);
            if (n_layers > 1) clear(fill, layers[n_layers - 1].inputs, p);
            if (grad_h) {  // written where active, zero elsewhere
                const Range rows = share(batch, p);
                for (size_t b = rows.first; b < rows.last; ++b)
                    std::memset(grad_h + b * grad_h_stride, 0, layers[0].inputs * sizeof(float));
            }
        });
        int turn = 0;
        for (size_t l = n_layers; l-- > 0; turn = 1 - turn) {
            barrier.wait(n);
            const bool want_sums = l > 0 || grad_h;
            each([&](int p) {
                if (l + 1 < n_layers) keep_mean(l + 1, p, 1 - turn);
                run_layer(l, p, read, want_sums, turn);
                if (want_sums) spread(l, p, fill, turn);
                if (l > 1) clear(spare, layers[l - 1].inputs, p);
            });
            float* was_read = read;
            read = fill, fill = spare, spare = was_read;
        }
        if (!gradients[0].keeps_mean) return;
        barrier.wait(n);
        each([&](int p) { keep_mean(0, p, 1 - turn); });
    }
};

}  // namespace

void backward_chain(const Layer* layers, const LayerGradient* gradients, size_t n, const char* saved,
                    const float* grad_out, size_t grad_out_stride, size_t batch, float* grad_h, size_t grad_h_stride,
                    int threads) {
    Backward back{layers, gradients,     n,      saved, grad_out, grad_out_stride, batch, grad_h,
                  grad_h_stride, std::max(threads, 1), kernels()};
    Cutter size(nullptr);
    back.place(size);
    Block block(size.used());
    Cutter cutter(block.data());
    back.place(cutter);
    run_team(back.parts, [&back](int id, int team) { back.run(id, team); });
}

}  // namespace hush
