// The layers of a backward whose samples share their active inputs: dense products over those, and over the shared
// outputs alone where the layer behind has such.
#include "backward_chain.h"

#include <algorithm>
#include <cstring>

namespace hush {

Backward::SharedPart Backward::shared_part(const SavedLayer& s, size_t inputs, int part) const {
    const size_t vectors = (s.shared + k.lanes - 1) / k.lanes;
    auto cut = [&](int p) { return std::min(vectors * p / parts * k.lanes, s.shared); };
    auto input = [&](int p) {
        const size_t u = cut(p);
        return p == parts || u == s.shared ? inputs : u ? s.columns[u] : 0;
    };
    return {{cut(part), part + 1 == parts ? s.shared : cut(part + 1)}, {input(part), input(part + 1)}};
}

void Backward::run_shared(size_t l, int part, const float* from, bool want_sums, float* to, int turn) {
    const SavedLayer s = saved_layer(saved, l);
    const SharedPart own = shared_part(s, layers[l].inputs, part);
    const Outputs outputs = outputs_of(l);
    if (want_sums) pass_shared(l, part, s, own, outputs, from, to, turn);
    if (gradients[l].want_weight) step_shared(l, part, s, own, outputs, from, turn);
}

void Backward::fetch_ahead(size_t l, int part, size_t u) const {
    const SavedLayer s = saved_layer(saved, l);
    if (!s.shared) return;
    const Range own = shared_part(s, layers[l].inputs, part).shared;
    if (u >= own.size()) return;
    const size_t bytes = layers[l].outputs * sizeof(float);
    const char* row = static_cast<const char*>(layers[l].weight) + s.columns[own.first + u] * bytes;
    for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at, 0, 2);
}

void Backward::pass_shared(size_t l, int part, const SavedLayer& s, const SharedPart& own, const Outputs& outputs,
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
    const bool relative = layer.activation.relative;
    const bool straight = l && shared(l - 1) && !relative;  // the layer below reads it as it is
    ProductTask task{};
    task.a = from;
    task.a_row = outputs.stride;
    task.a_term = 1;
    task.b_stride = wide;
    task.rows = batch;
    task.terms = outputs.count;
    task.out_stride = straight ? round_up(s.shared, k.lanes) : wide;
    task.finish = relative ? Finish::plain : Finish::slope;
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
    if (relative) return pass_relative(l, part, s, own, wide, to, turn);
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

void Backward::pass_relative(size_t l, int part, const SavedLayer& s, const SharedPart& own, size_t wide, float* to, int turn) {
    const ThroughPhi through_phi = begin_through_phi(l, part);
    float* total = bias_gradient[part];
    if (own.inputs.size()) std::memset(total, 0, own.inputs.size() * sizeof(float));
    for (size_t u = 0; u < own.shared.size(); ++u) {
        const size_t i = s.columns[own.shared.first + u];
        const Place place = l ? place_of(l - 1, to, i) : Place{grad_h + i, grad_h_stride};
        float sum = 0.0f;
        for (size_t b = 0; b < batch; ++b) {
            const float y = s.rows[b * s.stride + own.shared.first + u];
            if (y == 0.0f) continue;
            const float d = through_phi(b, y, scratch[part].passed[b * wide + u]);
            place.first[b * place.stride] = d;
            sum += d;
        }
        total[i - own.inputs.first] = sum;
    }
    if (!through_scale(l)) pass_sums(l, own.inputs, total, turn);
}

void Backward::step_shared(size_t l, int part, const SavedLayer& s, const SharedPart& own, const Outputs& outputs,
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

void Backward::step_row(size_t l, int part, size_t i, const float* gradient, const Outputs& outputs, float* own_drift, int turn) {
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

}  // namespace hush
