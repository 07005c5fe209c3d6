// Backward kernels over a lane type S.
#pragma once
#include "kernels.h"

namespace hush {

// One vector of weights and its gradient g through the optimizer; the formulas are those of torch.optim.
template <class S>
struct Step {
    using F = typename S::F;
    const Optimizer& o;
    F rate, decay, mu, fresh, beta1, beta2, one_beta1, one_beta2, eps, inverse_root, step, shrink;
    explicit Step(const Optimizer& opt)
        : o(opt), rate(S::set1(-opt.lr)), decay(S::set1(opt.weight_decay)), mu(S::set1(opt.momentum)),
          fresh(S::set1(1 - opt.dampening)), beta1(S::set1(opt.beta1)), beta2(S::set1(opt.beta2)),
          one_beta1(S::set1(1 - opt.beta1)), one_beta2(S::set1(1 - opt.beta2)), eps(S::set1(opt.eps)),
          inverse_root(S::set1(1 / opt.correction2)), step(S::set1(-opt.lr / opt.correction1)),
          shrink(S::set1(1 - opt.lr * opt.weight_decay)) {}

    // w ← w − lr (g + λ w)
    F sgd(F w, F g) const { return S::fma(rate, S::fma(decay, w, g), w); }

    // m ← μ m + (1 − d) g;   w ← w − lr m, or with Nesterov w − lr (g + μ m)
    F momentum(F w, F g, F& m) const {
        g = S::fma(decay, w, g);
        m = S::fma(mu, m, S::mul(fresh, g));
        return S::fma(rate, o.nesterov ? S::fma(mu, m, g) : m, w);
    }

    // m ← β₁ m + (1 − β₁) g;   v ← β₂ v + (1 − β₂) g²;   w ← (1 − lr λ) w − lr/c₁ · m / (√v / √c₂ + ε)
    F adamw(F w, F g, F& m, F& v) const {
        m = S::fma(beta1, m, S::mul(one_beta1, g));
        v = S::fma(beta2, v, S::mul(one_beta2, S::mul(g, g)));
        const F root = S::fma(S::sqrt(v), inverse_root, eps);
        return S::fma(step, S::div(m, root), S::mul(shrink, w));
    }
};

template <class S, bool Masked>
inline typename S::F get(const float* p, int n) {
    return Masked ? S::load_n(p, n) : S::load(p);
}
template <class S, bool Masked>
inline void put(float* p, typename S::F x, int n) {
    Masked ? S::store_n(p, x, n) : S::store(p, x);
}

// The weight after the step.
template <class S, bool Masked>
inline typename S::F apply(const Step<S>& step, typename S::F w, typename S::F g, float* weight, float* gradient,
                           float* state1, float* state2, int n) {
    switch (step.o.kind) {
        case Update::none:
            break;
        case Update::gradient:
            put<S, Masked>(gradient, g, n);
            break;
        case Update::sgd:
            w = step.sgd(w, g);
            put<S, Masked>(weight, w, n);
            break;
        case Update::momentum: {
            auto m = get<S, Masked>(state1, n);
            w = step.momentum(w, g, m);
            put<S, Masked>(weight, w, n);
            put<S, Masked>(state1, m, n);
            break;
        }
        case Update::adamw: {
            auto m = get<S, Masked>(state1, n), v = get<S, Masked>(state2, n);
            w = step.adamw(w, g, m, v);
            put<S, Masked>(weight, w, n);
            put<S, Masked>(state1, m, n);
            put<S, Masked>(state2, v, n);
            break;
        }
    }
    return w;
}

template <class S>
void update(const Step<S>& step, float* weight, const float* gradient, float* state1, float* state2, size_t n) {
    const Optimizer& o = step.o;
    size_t i = 0;
    auto at = [i = &i](float* p) { return p ? p + *i : nullptr; };
    // AdamW does nothing where the gradient and both moments are zero, as they are for units that were never active.
    const bool may_skip = o.kind == Update::adamw && o.weight_decay == 0.0f && o.eps > 0.0f;
    auto idle = [&] {
        return !S::any(S::nonzero(S::load(gradient + i))) && !S::any(S::nonzero(S::load(state1 + i))) &&
               !S::any(S::nonzero(S::load(state2 + i)));
    };
    for (; i + S::W <= n; i += S::W) {
        if (may_skip && idle()) continue;
        apply<S, false>(step, S::load(weight + i), S::load(gradient + i), weight + i, nullptr, at(state1), at(state2),
                        S::W);
    }
    if (i < n) {
        const int tail = static_cast<int>(n - i);
        apply<S, true>(step, S::load_n(weight + i, tail), S::load_n(gradient + i, tail), weight + i, nullptr,
                       at(state1), at(state2), tail);
    }
}

template <class S>
void update(const Optimizer& o, float* weight, const float* gradient, float* state1, float* state2, size_t n) {
    update(Step<S>(o), weight, gradient, state1, state2, n);
}

template <class S, int N, bool Tail, bool Sums, bool Grad, class I>
void backward_tile(const BackwardTask& t) {
    using F = typename S::F;
    const I* samples = static_cast<const I*>(t.samples);
    const Step<S> step(t.optimizer);
    // With plain SGD and no decay an input that was never active keeps its weights: not even a read.
    const bool may_skip = t.optimizer.kind == Update::none ||
                          (t.optimizer.kind == Update::sgd && t.optimizer.weight_decay == 0.0f);
    for (size_t i = t.first; i < t.last; ++i) {
        const uint32_t begin = t.column_start[i], end = t.column_start[i + 1];
        if (t.ahead) fetch<S>(t.ahead);
        if (begin == end && may_skip && !(t.delta_sum && t.means[i] != 0.0f)) continue;
        float* weight = t.weight + i * t.weight_stride;
        F w[N], g[N];
#pragma GCC unroll 16
        for (int v = 0; v < N; ++v) {
            w[v] = Tail && v == N - 1 ? S::load_n(weight + v * S::W, t.tail) : S::load(weight + v * S::W);
            g[v] = S::zero();
        }
        if (Grad && t.delta_sum) {
            const F mean = S::set1(-t.means[i]);
#pragma GCC unroll 16
            for (int v = 0; v < N; ++v) g[v] = S::mul(mean, S::load(t.delta_sum + v * S::W));
        }
        auto pair = [&](uint32_t k) {
            const float* delta = t.delta + samples[k] * t.delta_stride;
            const F x = Grad ? S::set1(t.values[k]) : S::zero();
            F d = S::load(delta);
            F acc = Sums ? S::mul(d, w[0]) : d;
            if (Grad) g[0] = S::fma(x, d, g[0]);
#pragma GCC unroll 16
            for (int v = 1; v < N; ++v) {
                d = S::load(delta + v * S::W);
                if (Sums) acc = S::fma(d, w[v], acc);
                if (Grad) g[v] = S::fma(x, d, g[v]);
            }
            return acc;
        };
        uint32_t k = begin;
        for (; k + 4 <= end; k += 4) {
            const F a = pair(k), b = pair(k + 1), c = pair(k + 2), d = pair(k + 3);
            if (Sums) t.add_sums ? S::add_sums(t.sums + k, a, b, c, d) : S::put_sums(t.sums + k, a, b, c, d);
        }
        for (; k < end; ++k) {
            const F a = pair(k);
            if (Sums) t.sums[k] = S::sum(a) + (t.add_sums ? t.sums[k] : 0.0f);
        }
        if (Grad) {
            const size_t row = i * t.weight_stride;
            auto at = [&](float* p, int v) { return p ? p + row + v * S::W : nullptr; };
#pragma GCC unroll 16
            for (int v = 0; v < N; ++v)
                g[v] = apply<S, Tail>(step, w[v], g[v], weight + v * S::W, at(t.gradient, v), at(t.state1, v),
                                      at(t.state2, v), Tail && v == N - 1 ? t.tail : S::W);
            if (t.drift) {
                const F mean = S::set1(t.means[i]), minus = S::set1(-t.means[i]);
#pragma GCC unroll 16
                for (int v = 0; v < N; ++v) {
                    float* drift = t.drift + v * S::W;
                    S::store(drift, S::fma(mean, g[v], S::fma(minus, w[v], S::load(drift))));
                }
            }
        }
    }
}

template <class S, int N, bool Tail>
void backward_kind(const BackwardTask& t) {
    const bool grad = t.optimizer.kind != Update::none;
    auto run = [&]<class I>(I) {
        if (t.sums)
            grad ? backward_tile<S, N, Tail, true, true, I>(t) : backward_tile<S, N, Tail, true, false, I>(t);
        else if (grad)
            backward_tile<S, N, Tail, false, true, I>(t);
    };
    t.wide_samples ? run(uint32_t{}) : run(uint16_t{});
}

template <class S, int N>
void backward_n(const BackwardTask& t) {
    if constexpr (N > 0) {
        if (t.vectors != N) return backward_n<S, N - 1>(t);
        t.tail ? backward_kind<S, N, true>(t) : backward_kind<S, N, false>(t);
    }
}

template <class S>
void backward(const BackwardTask& t) {
    backward_n<S, S::kBack>(t);
}

}  // namespace hush
