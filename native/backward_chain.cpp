// Backward: the team shares each layer's inputs, so every weight row has one owner and no sum crosses threads.
//
// A layer whose samples share their active inputs goes by dense products over those inputs, and where the layer behind it
// does so too, over its shared inputs alone: the others' gradients are zero. Any other layer goes input by input.
#include "backward_chain.h"

#include <algorithm>
#include <cstring>

namespace hush {

void Backward::place(Cutter& cutter) {
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
    of_scale.assign(parts, nullptr);
    for (size_t l = 0; l < n_layers; ++l)
        if (through_scale(l)) {
            for (double*& d : of_scale) d = cutter.cut<double>(batch);
            break;
        }
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

void Backward::clear(float* buffer, size_t width, int part) {
    const Range r = share(delta_floats(width), part);
    std::memset(buffer + r.first, 0, r.size() * sizeof(float));
}

void Backward::step_bias(size_t l, Range range, const float* gradient) {
    const LayerGradient& g = gradients[l];
    if (!g.want_bias || !range.size()) return;
    if (g.bias_optimizer.kind == Update::gradient)
        std::memcpy(g.bias + range.first, gradient, range.size() * sizeof(float));
    else
        k.update(g.bias_optimizer, layers[l].bias + range.first, gradient,
                 g.bias_state1 ? g.bias_state1 + range.first : nullptr,
                 g.bias_state2 ? g.bias_state2 + range.first : nullptr, range.size());
}

void Backward::take_grad_out(int part) {
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

void Backward::keep_mean(size_t l, int part, int turn) {
    const LayerGradient& g = gradients[l];
    if (!g.keeps_mean || !layers[l].bias) return;
    const Range range = share(layers[l].outputs, part);
    for (const float* d : drift[turn])
        for (size_t c = range.first; c < range.last; ++c) layers[l].bias[c] -= d[c];
}

void Backward::pass_sums(size_t l, Range range, const float* total, int turn) {
    if (!l) return;
    if (delta_sum[0] && range.size())
        std::memcpy(delta_sum[1 - turn] + range.first, total, range.size() * sizeof(float));
    step_bias(l - 1, range, total);
}

void Backward::run(int id, int n) {
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
                run_lists(l, p, read, want_sums, turn);
                if (want_sums) spread(l, p, fill, turn);
            }
            if (l > 1 && !written_whole(l - 2)) clear(spare, layers[l - 1].inputs, p);
        });
        if (want_sums && through_scale(l)) {
            barrier.wait(n);
            each([&](int p) { add_through_scale(l, p, fill, turn); });
        }
        float* was_read = read;
        read = fill, fill = spare, spare = was_read;
    }
    if (!gradients[0].keeps_mean) return;
    barrier.wait(n);
    each([&](int p) { keep_mean(0, p, 1 - turn); });
}
void backward_chain(const Layer* layers, const LayerGradient* gradients, size_t n, const char* saved,
                    const float* grad_out, size_t grad_out_stride, size_t batch, float* grad_h, size_t grad_h_stride,
                    int threads) {
    Backward back{layers, gradients,     n,      saved, grad_out, grad_out_stride, batch, grad_h,
                  grad_h_stride, std::max(threads, 1), kernels()};
    Scratch scratch(back);
    run_team(back.parts, [&back](int id, int team) { back.run(id, team); });
}

}  // namespace hush
