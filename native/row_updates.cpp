#include "row_updates.h"

#include <algorithm>

#include "buffers.h"
#include "team.h"
#include "transpose.h"

namespace hush {
namespace {
// The side of a square of weights whose gradient is turned around and used while it is in L1.
constexpr size_t kSide = 64;
}  // namespace

void RowUpdates::add(LayerGradient& gradient, const Layer& layer) {
    all_.push_back({&gradient, gradient.optimizer, layer.rows, gradient.weight_state1, gradient.weight_state2, layer.inputs,
                    layer.outputs, nullptr});
    gradient.optimizer.kind = Update::gradient;
}

void RowUpdates::divert() {
    if (all_.empty()) return;
    Cutter size(nullptr);
    for (const One& one : all_) size.cut<float>(one.inputs * one.outputs);
    memory_ = {static_cast<char*>(take_block(std::max<size_t>(size.used(), 1))), [](char* p) { give_block(p); }};
    Cutter cutter(memory_.get());
    for (One& one : all_) {
        one.to->weight = cutter.cut<float>(one.inputs * one.outputs);
        one.gradient = one.to->weight;
    }
}

void RowUpdates::step(int threads) const {
    if (all_.empty()) return;
    const Kernels& k = kernels();
    size_t strips = 0;
    for (const One& one : all_) strips += (one.outputs + kSide - 1) / kSide;
    run_team(std::max(threads, 1), [&](int id, int n) {
        // Every thread counts through the strips of outputs and takes its own stretch of them.
        const size_t from = strips * id / n, to = strips * (id + 1) / n;
        alignas(kLine) float square[kSide * kSide];
        size_t at = 0;
        for (const One& one : all_)
            for (size_t o = 0; o < one.outputs; o += kSide, ++at) {
                if (at < from || at >= to) continue;
                const size_t rows = std::min(kSide, one.outputs - o);
                for (size_t i = 0; i < one.inputs; i += kSide) {
                    const size_t columns = std::min(kSide, one.inputs - i);
                    transpose_part(one.gradient + i * one.outputs + o, one.outputs, square, kSide, columns, rows);
                    for (size_t r = 0; r < rows; ++r) {
                        const size_t first = (o + r) * one.inputs + i;
                        k.update(one.optimizer, one.weight + first, square + r * kSide,
                                 one.state1 ? one.state1 + first : nullptr, one.state2 ? one.state2 + first : nullptr,
                                 columns);
                    }
                }
            }
    });
}

}  // namespace hush
