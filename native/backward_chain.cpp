// Backward: the team shares each layer's inputs, so every weight row has one owner and no sum crosses threads.
//
// A layer whose samples share their active inputs goes by dense products over those inputs, and where the layer behind it
// does so too, over its shared inputs alone: the others' gradients are zero. Any other layer goes input by input.
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

// Inputs whose gradients are summed at once: as many rows as a dense product takes.
constexpr size_t kRowsAtOnce = 4;

struct SharedScratch {  // of one part
    float* weights;   // of the part's shared inputs, turned around: [output][input]
    float* gradient;  // of kRowsAtOnce of them
    float* row;       // one input's gradient over all outputs; zeros between two uses
    float* before;    // its weights before the step
    float *sums, *passed;
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
        scratch.assign(parts, {});
        const size_t padded = round_up(widest, k.lanes) + k.lanes, all = batch * padded;
        for (SharedScratch& own : scratch) {
            if (!any_shared()) break;
            own.weights = cutter.cut<float>(padded * padded);
            own.gradient = cutter.cut<float>(kRowsAtOnce * padded);
            own.row = cutter.cut<float>(padded);
            if (own.row) std::memset(own.row, 0, padded * sizeof(float));
            own.before = cutter.cut<float>(padded);
            own.sums = cutter.cut<float>(padded);
            own.passed = cutter.cut<float>(all);
        }
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

    bool any_shared() const {
        for (size_t l = 0; l < n_layers; ++l)
            if (shared(l)) return true;
        return false;
    }
    bool shared(size_t l) const { return saved && saved_layer(saved, l).shared; }

    // The outputs of a shared layer whose δ is not zero throughout: those that the layer behind it shares, or all.
    struct Outputs {
        const uint32_t* at;  // null: all
        size_t count, stride;
        size_t operator[](size_t j) const { return at ? at[j] : j; }
    };
    Outputs outputs_of(size_t l) const {
        Outputs o{nullptr, layers[l].outputs, 0};
        if (l + 1 < n_layers && shared(l + 1)) {
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
    bool written_whole(size_t l) const { return shared(l) && l + 1 < n_layers && shared(l + 1); }

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
            const Place place = place_of(n_layers - 1, delta[0], c0);
            const size_t end = shared(n_layers - 1) ? std::min(c0 + tile(), place.stride) : c0 + tile();
            for (size_t b = 0; b < batch; ++b) {
                float* to = place.first + b * place.stride;
                const float* from = grad_out + b * grad_out_stride;
                for (size_t c = c0; c < c1; ++c) {
                    to[c - c0] = from[c];
                    total[c - first] += from[c];
                }
                for (size_t c = c1; c < end; ++c) to[c - c0] = 0.0f;
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
        if (l && !shared(l - 1)) {
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
                const Place place = l ? place_of(l - 1, to, i) : Place{grad_h + i, grad_h_stride};
                float sum = 0.0f;
                for (uint32_t j = s.column_start[i]; j < s.column_start[i + 1]; ++j) {
                    const float d = phi.slope(s.values[j]) != 0.0f ? sums[j] : 0.0f;
                    place.first[samples[j] * place.stride] = d;
                    sum += d;
                }
                total[i - range.first] = sum;
            }
        };
        if (index_bytes(batch) == 2)
            put(static_cast<const uint16_t*>(s.samples));
        else
            put(static_cast<const uint32_t*>(s.samples));
        pass_sums(l, range, total, turn);
    }

    // Sums over the batch of the δ that layer l gave to a stretch of its inputs, the outputs of the layer below.
    void pass_sums(size_t l, Range range, const float* total, int turn) {
        if (!l) return;
        if (delta_sum[0] && range.size())
            std::memcpy(delta_sum[1 - turn] + range.first, total, range.size() * sizeof(float));
        step_bias(l - 1, range, total);
    }

    // A part's shared inputs, cut at whole vectors, and all inputs from its first one to the next part's.
    struct SharedPart {
        Range shared, inputs;
    };
    SharedPart shared_part(const SavedLayer& s, size_t inputs, int part) const {
        const size_t vectors = (s.shared + k.lanes - 1) / k.lanes;
        auto cut = [&](int p) { return std::min(vectors * p / parts * k.lanes, s.shared); };
        auto input = [&](int p) {
            const size_t u = cut(p);
            return p == parts || u == s.shared ? inputs : u ? s.columns[u] : 0;
        };
        return {{cut(part), part + 1 == parts ? s.shared : cut(part + 1)}, {input(part), input(part + 1)}};
    }

    void run_shared(size_t l, int part, const float* from, bool want_sums, float* to, int turn) {
        const SavedLayer s = saved_layer(saved, l);
        const SharedPart own = shared_part(s, layers[l].inputs, part);
        const Outputs outputs = outputs_of(l);
        if (want_sums) pass_shared(l, part, s, own, outputs, from, to, turn);
        if (gradients[l].want_weight) step_shared(l, part, s, own, outputs, from, turn);
    }

    // The weights of the u-th shared input of this part, which the thread will want one layer later.
    void fetch_ahead(size_t l, int part, size_t u) const {
        const SavedLayer s = saved_layer(saved, l);
        if (!s.shared) return;
        const Range own = shared_part(s, layers[l].inputs, part).shared;
        if (u >= own.size()) return;
        const size_t bytes = layers[l].outputs * sizeof(float);
        const char* row = static_cast<const char*>(layers[l].weight) + s.columns[own.first + u] * bytes;
        for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at, 0, 2);
    }

    // δ of the part's shared inputs, W δ where φ has slope 1.
    void pass_shared(size_t l, int part, const SavedLayer& s, const SharedPart& own, const Outputs& outputs,
                     const float* from, float* to, int turn) {
        const Layer& layer = layers[l];
        const SharedScratch& mine = scratch[part];
        const size_t n = own.shared.size(), wide = round_up(n, k.lanes);
        for (size_t u = 0; u < n; ++u) {
            if (l) fetch_ahead(l - 1, part, u);
            const float* row = static_cast<const float*>(layer.weight) + s.columns[own.shared.first + u] * layer.outputs;
            for (size_t j = 0; j < outputs.count; ++j) mine.weights[j * wide + u] = row[outputs[j]];
        }
        for (size_t u = n; u < wide; ++u)
            for (size_t j = 0; j < outputs.count; ++j) mine.weights[j * wide + u] = 0.0f;
        std::memset(mine.sums, 0, wide * sizeof(float));
        const bool straight = l && shared(l - 1);  // the layer below reads it as it is
        ProductTask task{};
        task.a = from;
        task.a_row = outputs.stride;
        task.a_term = 1;
        task.b_stride = wide;
        task.rows = batch;
        task.terms = outputs.count;
        task.out_stride = straight ? round_up(s.shared, k.lanes) : wide;
        task.finish = Finish::slope;
        task.activation = layer.activation;
        task.y_stride = s.stride;
        const size_t vectors = wide / k.lanes, tiles = (vectors + k.shared - 1) / k.shared;
        for (size_t t = 0; t < tiles; ++t) {
            const size_t v0 = vectors * t / tiles, v1 = vectors * (t + 1) / tiles, u = v0 * k.lanes;
            task.b = mine.weights + u;
            task.vectors = static_cast<int>(v1 - v0);
            task.y = s.rows + own.shared.first + u;
            task.out = straight ? to + own.shared.first + u : mine.passed + u;
            task.sums = mine.sums + u;
            k.product(task);
        }
        for (size_t u = 0; u < n && !straight; ++u) {
            const size_t i = s.columns[own.shared.first + u];
            const Place place = l ? place_of(l - 1, to, i) : Place{grad_h + i, grad_h_stride};
            for (size_t b = 0; b < batch; ++b) place.first[b * place.stride] = mine.passed[b * wide + u];
        }
        float* total = bias_gradient[part];
        if (own.inputs.size()) std::memset(total, 0, own.inputs.size() * sizeof(float));
        for (size_t u = 0; u < n; ++u) total[s.columns[own.shared.first + u] - own.inputs.first] = mine.sums[u];
        pass_sums(l, own.inputs, total, turn);
    }

    // ∂L/∂W[i] = Σ_b φ(h)[b, i] δ[b] for the part's inputs, and what the optimizer makes of it.
    void step_shared(size_t l, int part, const SavedLayer& s, const SharedPart& own, const Outputs& outputs,
                     const float* from, int turn) {
        const LayerGradient& g = gradients[l];
        const SharedScratch& mine = scratch[part];
        float* own_drift = g.keeps_mean ? drift[turn][part] : nullptr;
        if (own_drift) std::memset(own_drift, 0, layers[l].outputs * sizeof(float));
        const bool idle = g.optimizer.kind == Update::sgd && g.optimizer.weight_decay == 0.0f;
        ProductTask task{};
        task.a_row = 1;
        task.a_term = s.stride;
        task.b_stride = outputs.stride;
        task.terms = batch;
        task.out_stride = outputs.stride;
        const size_t vectors = outputs.stride / k.lanes, tiles = (vectors + k.shared - 1) / k.shared;
        size_t i = own.inputs.first;
        auto step_idle = [&](size_t last) {  // inputs that no sample has
            for (; i < last; ++i)
                if (!idle || (g.means && g.means[i] != 0.0f)) step_row(l, part, i, nullptr, outputs, own_drift, turn);
        };
        for (size_t u = own.shared.first; u < own.shared.last; u += kRowsAtOnce) {
            task.a = s.rows + u;
            task.rows = std::min(kRowsAtOnce, own.shared.last - u);
            for (size_t t = 0; t < tiles; ++t) {
                const size_t v0 = vectors * t / tiles, v1 = vectors * (t + 1) / tiles;
                task.b = from + v0 * k.lanes;
                task.vectors = static_cast<int>(v1 - v0);
                task.out = mine.gradient + v0 * k.lanes;
                k.product(task);
            }
            for (size_t r = 0; r < task.rows; ++r) {
                step_idle(s.columns[u + r]);
                step_row(l, part, i++, mine.gradient + r * outputs.stride, outputs, own_drift, turn);
            }
        }
        step_idle(own.inputs.last);
    }

    // One input's weights, its gradient given at `outputs`, zero elsewhere; null: zero.
    void step_row(size_t l, int part, size_t i, const float* gradient, const Outputs& outputs, float* own_drift, int turn) {
        const LayerGradient& g = gradients[l];
        const SharedScratch& mine = scratch[part];
        const size_t n = layers[l].outputs;
        float* row = mine.row;
        const float mean = g.means ? g.means[i] : 0.0f;
        for (size_t j = 0; j < outputs.count && (gradient || mean != 0.0f); ++j)
            row[outputs[j]] = (gradient ? gradient[j] : 0.0f) - (mean != 0.0f ? mean * delta_sum[turn][outputs[j]] : 0.0f);
        auto at = [&](float* p) { return p ? p + i * n : nullptr; };
        float* weight = static_cast<float*>(layers[l].weight) + i * n;
        if (g.optimizer.kind == Update::gradient) {
            std::memcpy(g.weight + i * n, row, n * sizeof(float));
        } else {
            if (own_drift && mean != 0.0f) std::memcpy(mine.before, weight, n * sizeof(float));
            k.update(g.optimizer, weight, row, at(g.weight_state1), at(g.weight_state2), n);
            if (own_drift && mean != 0.0f)
                for (size_t c = 0; c < n; ++c) own_drift[c] += mean * (weight[c] - mine.before[c]);
        }
        for (size_t j = 0; j < outputs.count; ++j) row[outputs[j]] = 0.0f;
    }

    void run(int id, int n) {
        auto each = [&](auto&& work) {
            for (int p = id; p < parts; p += n) work(p);
        };
        float *read = delta[0], *fill = delta[1], *spare = delta[2];
        each([&](int p) {
            take_grad_out(p);
            if (n_layers > 1 && !written_whole(n_layers - 2)) clear(fill, layers[n_layers - 1].inputs, p);
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
                if (shared(l)) {
                    run_shared(l, p, read, want_sums, fill, turn);
                } else {
                    run_layer(l, p, read, want_sums, turn);
                    if (want_sums) spread(l, p, fill, turn);
                }
                if (l > 1 && !written_whole(l - 2)) clear(spare, layers[l - 1].inputs, p);
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
