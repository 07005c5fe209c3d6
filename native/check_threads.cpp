// make -C native threads: chains and residual chains of random shapes on several threads beside one, with every optimizer,
// under ThreadSanitizer, then under AddressSanitizer and UBSan, for every instruction set of this machine. Without Python and its
// OpenMP runtime, whose own waits the sanitizer does not know.
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "chain.h"
#include "residual.h"

using namespace hush;

namespace {

std::mt19937 random_bits(1);
size_t draw(size_t low, size_t high) { return std::uniform_int_distribution<size_t>(low, high)(random_bits); }

using Numbers = std::vector<float>;
Numbers normal(size_t n, float scale) {
    std::normal_distribution<float> of(0.0f, scale);
    Numbers found(n);
    for (float& x : found) x = of(random_bits);
    return found;
}

Activation draw_activation() {
    Activation phi;
    phi.threshold = 0.5f;
    if (draw(0, 1)) phi.clip = 1.0f;
    if (draw(0, 1) && !std::isinf(phi.clip)) phi.low = -phi.threshold, phi.floor = -phi.clip;
    return phi;
}

Optimizer draw_optimizer() {
    Optimizer o;
    const Update kinds[] = {Update::gradient, Update::sgd, Update::momentum, Update::adamw};
    o.kind = kinds[draw(0, 3)];
    o.lr = 1e-2f, o.weight_decay = 1e-2f, o.momentum = 0.9f;
    o.beta1 = 0.9f, o.beta2 = 0.999f, o.eps = 1e-8f, o.correction1 = 0.1f, o.correction2 = 0.03f;
    return o;
}

// A parameter, its gradient and the states of its optimizer.
struct Parameter {
    Numbers value, gradient, state1, state2;
    explicit Parameter(Numbers start) : value(std::move(start)), gradient(value.size()), state1(value.size()), state2(value.size()) {}
    void append_to(Numbers& all) const {
        for (const Numbers* each : {&value, &gradient, &state1, &state2}) all.insert(all.end(), each->begin(), each->end());
    }
};

// Every number that a step leaves behind: outputs, ∂L/∂h, parameters, gradients and states.
Numbers chain_step(unsigned seed, int threads) {
    random_bits.seed(seed);
    const size_t n = draw(1, 5), batch = draw(0, 40);
    const bool wide = draw(0, 9) == 0;  // layers that do not fit L2 go another way
    std::vector<size_t> widths(n + 1);
    for (size_t& width : widths) width = wide ? draw(330, 350) : draw(1, 70);
    std::vector<Parameter> weights, biases;
    std::vector<Layer> layers(n);
    std::vector<LayerGradient> gradients(n);
    const Optimizer optimizer = draw_optimizer();
    for (size_t l = 0; l < n; ++l) {
        weights.emplace_back(normal(widths[l] * widths[l + 1], 2.0f / std::sqrt(static_cast<float>(widths[l]))));
        biases.emplace_back(normal(widths[l + 1], 0.3f));
    }
    for (size_t l = 0; l < n; ++l) {
        layers[l].weight = weights[l].value.data(), layers[l].bias = biases[l].value.data();
        layers[l].inputs = widths[l], layers[l].outputs = widths[l + 1], layers[l].activation = draw_activation();
        LayerGradient& g = gradients[l];
        g.want_weight = g.want_bias = true;
        g.optimizer = g.bias_optimizer = optimizer;
        g.weight = weights[l].gradient.data(), g.weight_state1 = weights[l].state1.data(), g.weight_state2 = weights[l].state2.data();
        g.bias = biases[l].gradient.data(), g.bias_state1 = biases[l].state1.data(), g.bias_state2 = biases[l].state2.data();
    }
    const Numbers h = normal(batch * widths[0], 1.0f), grad_out = normal(batch * widths[n], 1.0f);
    Numbers out(batch * widths[n]), grad_h(batch * widths[0]);
    std::vector<char> saved(saved_bound(layers.data(), n, batch) + 64);
    forward_chain(layers.data(), n, h.data(), widths[0], batch, out.data(), widths[n], saved.data(), threads);
    backward_chain(layers.data(), gradients.data(), n, saved.data(), grad_out.data(), widths[n], batch, grad_h.data(), widths[0],
                   threads);
    Numbers all = out;
    all.insert(all.end(), grad_h.begin(), grad_h.end());
    for (size_t l = 0; l < n; ++l) weights[l].append_to(all), biases[l].append_to(all);
    return all;
}

Numbers residual_step(unsigned seed, int threads) {
    random_bits.seed(seed);
    const size_t n = draw(1, 14), batch = draw(0, 60), width = draw(1, 50);
    const Optimizer optimizer = draw_optimizer();
    std::vector<std::vector<Parameter>> parameters(n);  // of each block, in the order of Part
    std::vector<ResidualBlock> blocks(n);
    std::vector<BlockGradient> gradients(n);
    for (size_t l = 0; l < n; ++l) {
        const bool two = draw(0, 1);
        const size_t units = two ? draw(1, 60) : width;
        ResidualBlock& block = blocks[l];
        block.norm = static_cast<Norm>(draw(0, 2)), block.eps = 1e-5f;
        const size_t sizes[kParts] = {width * units, width, width, width, 1, width * units, units};
        const bool there[kParts] = {true, true, block.norm != Norm::none, block.norm == Norm::layer, true, two, two};
        for (size_t i = 0; i < kParts; ++i) parameters[l].emplace_back(normal(sizes[i], i == kBias ? 0.1f : 0.5f));
        for (size_t i = 0; i < kParts; ++i) {
            Parameter& p = parameters[l][i];
            gradients[l].part[i] = {there[i], p.gradient.data(), p.state1.data(), p.state2.data(), optimizer};
        }
        auto at = [&](Part part) { return there[part] ? parameters[l][part].value.data() : nullptr; };
        block.layer.weight = at(kWeight), block.layer.bias = at(kBias), block.layer.activation = draw_activation();
        block.layer.inputs = units, block.layer.outputs = width;
        block.gain = at(kGain), block.shift = at(kShift), block.learned_scale = at(kScale);
        block.inner_weight = at(kInnerWeight), block.inner_bias = at(kInnerBias);
    }
    const Numbers h = normal(batch * width, 1.0f), grad_out = normal(batch * width, 1.0f);
    Numbers out(batch * width), grad_h(batch * width);
    std::vector<char> memory(SavedStream{nullptr, batch, n, width, most_units(blocks.data(), n)}.bound() + 64);
    char* saved = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
    residual_forward(blocks.data(), n, h.data(), width, batch, out.data(), width, saved, threads);
    residual_backward(blocks.data(), gradients.data(), n, saved, grad_out.data(), width, batch, grad_h.data(), width, threads);
    Numbers all = out;
    all.insert(all.end(), grad_h.begin(), grad_h.end());
    for (const auto& block : parameters)
        for (const Parameter& p : block) p.append_to(all);
    return all;
}

double difference(const Numbers& a, const Numbers& b) {
    double most = 0.0, scale = 1e-3;
    for (size_t i = 0; i < a.size(); ++i) {
        most = std::fmax(most, std::fabs(static_cast<double>(a[i]) - b[i]));
        scale = std::fmax(scale, std::fabs(a[i]));
    }
    return most / scale;
}

}  // namespace

int main() {
    constexpr unsigned kTrials = 120;
    double worst = 0.0;
    for (unsigned seed = 0; seed < kTrials; ++seed) {
        const int threads = static_cast<int>(2 + seed % 3);
        const double chain = difference(chain_step(seed, 1), chain_step(seed, threads));
        const double residual = difference(residual_step(seed, 1), residual_step(seed, threads));
        worst = std::fmax(worst, chain);
        // Chains add in another order on several threads; residual ones do not.
        if (!(chain < 1e-4) || residual != 0.0) {
            std::printf("seed %u, %d threads: chains differ by %g, residual chains by %g\n", seed, threads, chain, residual);
            return 1;
        }
    }
    std::printf("%u steps of chains and of residual chains on 2 to 4 threads, largest relative difference %.1e\n", kTrials, worst);
}
