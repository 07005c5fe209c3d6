// The layers of a backward that go input by input, each with the samples in which it is active.
#include "backward_chain.h"

#include <algorithm>
#include <cstring>

namespace hush {
namespace {

// The δ of a block of outputs stays in L1 while the inputs stream past it.
constexpr size_t kDeltaBytes = 24 * 1024;
// Rows of weights a block of tiles visits before it moves on: long enough to amortise the call, short enough for L1.
constexpr size_t kRows = 16;

// A thread's share of the next layer's weights is fetched while it works on this one, if it leaves room in L2.
constexpr size_t kAheadBytes = 256 * 1024;

}  // namespace

void Backward::run_lists(size_t l, int part, const float* from, bool want_sums, int turn) {
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
    // A layer without outputs adds nothing to them.
    if (want_sums && !all) std::fill(sums + s.column_start[range.first], sums + s.column_start[range.last], 0.0f);
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

void Backward::spread(size_t l, int part, float* to, int turn) {
    const Layer& layer = layers[l];
    const SavedLayer s = saved_layer(saved, l);
    const Range range = inputs_of(s, layer.inputs, part, parts);
    const ThroughPhi through_phi = begin_through_phi(l, part);
    float* total = bias_gradient[part];
    auto put = [&](auto* samples) {
        for (size_t i = range.first; i < range.last; ++i) {
            const Place place = l ? place_of(l - 1, to, i) : Place{grad_h + i, grad_h_stride};
            float sum = 0.0f;
            for (uint32_t j = s.column_start[i]; j < s.column_start[i + 1]; ++j) {
                const float d = through_phi(samples[j], s.values[j], sums[j]);
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
    if (!through_scale(l)) pass_sums(l, range, total, turn);
}

void Backward::add_through_scale(size_t l, int part, float* to, int turn) {
    const size_t inputs = layers[l].inputs;
    const SavedLayer active = saved_layer(saved, l);
    const Range range = active.shared ? shared_part(active, inputs, part).inputs : inputs_of(active, inputs, part, parts);
    const SavedScales s = scales(l);
    float* total = bias_gradient[part];
    for (size_t b = 0; b < batch; ++b) {
        double sum = 0.0;
        for (const double* d : of_scale) sum += d[b];
        // At a sample of zeros the derivative of its root mean square is taken as 0.
        const float by = s.scales[b] == 0.0f ? 0.0f : static_cast<float>(sum / (static_cast<double>(inputs) * s.scales[b]));
        const float* h = s.h + b * inputs;
        for (size_t i = range.first, next; i < range.last; i = next) {
            // As far as δ lies in one piece.
            next = l && !shared(l - 1) ? std::min((i / tile() + 1) * tile(), range.last) : range.last;
            const Place place = l ? place_of(l - 1, to, i) : Place{grad_h + i, grad_h_stride};
            float* __restrict row = place.first + b * place.stride;
            float* __restrict sum_of = total + (i - range.first);
            const float* __restrict own = h + i;
            for (size_t c = 0; c < next - i; ++c) {
                const float d = by * own[c];
                row[c] += d;
                sum_of[c] += d;
            }
        }
    }
    pass_sums(l, range, total, turn);
}

}  // namespace hush
