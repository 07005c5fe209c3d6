// Dense products over a lane type S, for layers whose samples share their active units.
#pragma once
#include <cmath>
#include <cstring>

#include "kernels.h"

namespace hush {

template <class S>
float root_mean_square(const float* x, size_t width) {
    const size_t full = width / S::W * S::W;
    typename S::F sum = S::zero();
    for (size_t j = 0; j < full; j += S::W) {
        const typename S::F v = S::load(x + j);
        sum = S::fma(v, v, sum);
    }
    if (full < width) {
        const typename S::F v = S::load_n(x + full, static_cast<int>(width - full));
        sum = S::fma(v, v, sum);
    }
    return std::sqrt(S::sum(sum)) / std::sqrt(static_cast<float>(width));
}

template <class S>
void activate(const ActivateTask& t) {
    ActivationLanes<S> phi(t.activation);
    const size_t full = t.width / S::W * S::W;
    const int tail = static_cast<int>(t.width - full);
    for (size_t b = 0; b < t.batch; ++b) {
        const float* h = t.h + b * t.row_stride;
        float* out = t.out + b * t.out_stride;
        if (t.activation.relative) {
            const float s = root_mean_square<S>(h, t.width);
            if (t.scales) t.scales[b] = s;
            if (t.kept) std::memcpy(t.kept + b * t.width, h, t.width * sizeof(float));
            if (!std::isfinite(s)) {
                for (size_t j = 0; j < t.width; ++j) {
                    out[j] = t.activation.at_any_scale(h[j], s);
                    if (t.counts) t.counts[j] += out[j] != 0.0f;
                }
                for (size_t j = t.width; j < full + S::W; ++j) out[j] = 0.0f;
                continue;
            }
            phi = ActivationLanes<S>(t.activation.at_scale(s));
        }
        auto put = [&](typename S::F x, size_t j, int lanes) {
            typename S::A active = phi(x);
            if (lanes < S::W) active = S::first(active, lanes);
            if (t.counts) S::count(t.counts + j, active);
            S::store(out + j, S::keep(x, active));
        };
        for (size_t j = 0; j < full; j += S::W) put(S::load(h + j), j, S::W);
        if (tail) put(S::load_n(h + full, tail), full, tail);
    }
}

// M rows by N vectors of sums stay in registers: a vector of b is loaded once for M multiplications.
template <class S, int M, int N, class T>
inline void product_rows(const ProductTask& t, size_t m, const typename S::F* bias, const ActivationLanes<S>& phi,
                         const SlopeLanes<S>& slope) {
    using F = typename S::F;
    const T* b = static_cast<const T*>(t.b);
    const float* a = t.a + m * t.a_row;
    F sum[M][N];
#pragma GCC unroll 8
    for (int r = 0; r < M; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) sum[r][v] = bias[v];
    auto term = [&]<bool Masked>(size_t k) {
        const T* row = b + k * t.b_stride;
        const float* x = a + k * t.a_term;
        F by[M];
#pragma GCC unroll 8
        for (int r = 0; r < M; ++r) by[r] = S::set1(x[r * t.a_row]);
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) {
            const F w = Masked && v == N - 1 ? S::load_n(row + v * S::W, t.tail) : S::load(row + v * S::W);
#pragma GCC unroll 8
            for (int r = 0; r < M; ++r) sum[r][v] = S::fma(by[r], w, sum[r][v]);
        }
    };
    auto at = [&](size_t k) { return t.at ? size_t{t.at[k]} : k; };
    size_t k = 0, whole = t.terms;
    if (t.tail && whole) whole = whole_rows<S>(whole, at(whole - 1), t.b_rows, t.b_stride);
    if (t.at)
        for (; k < whole; ++k) term.template operator()<false>(t.at[k]);
    else
        for (; k < whole; ++k) term.template operator()<false>(k);
    for (; k < t.terms; ++k) term.template operator()<true>(at(k));
    for (int r = 0; r < M; ++r) {
        float* out = t.out + (m + r) * t.out_stride;
        const float* y = t.y + (m + r) * t.y_stride;
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) {
            const bool part = t.tail && v == N - 1;
            F x = sum[r][v];
            if (t.finish == Finish::activate) {
                typename S::A active = phi(x);
                if (part) active = S::first(active, t.tail);
                if (t.counts) S::count(t.counts + v * S::W, active);
                S::store(out + v * S::W, S::keep(x, active));
            } else if (t.finish == Finish::slope) {
                x = slope(x, S::load(y + v * S::W));
                S::store(out + v * S::W, x);
                S::store(t.sums + v * S::W, S::add(S::load(t.sums + v * S::W), x));
            } else if (part) {
                S::store_n(out + v * S::W, x, t.tail);
            } else {
                S::store(out + v * S::W, x);
            }
        }
    }
}

template <class S, int N, class T>
void product_tile(const ProductTask& t) {
    const ActivationLanes<S> phi(t.activation);
    const SlopeLanes<S> slope(t.activation);
    typename S::F bias[N];
    for (int v = 0; v < N; ++v) {
        bias[v] = S::zero();
        if (t.bias) bias[v] = t.tail && v == N - 1 ? S::load_n(t.bias + v * S::W, t.tail) : S::load(t.bias + v * S::W);
    }
    size_t m = 0;
    for (; m + 4 <= t.rows; m += 4) product_rows<S, 4, N, T>(t, m, bias, phi, slope);
    for (; m < t.rows; ++m) product_rows<S, 1, N, T>(t, m, bias, phi, slope);
}

template <class S, int N>
void product_n(const ProductTask& t) {
    if constexpr (N > 0) {
        if (t.vectors != N) return product_n<S, N - 1>(t);
        t.bf16 ? product_tile<S, N, uint16_t>(t) : product_tile<S, N, float>(t);
    }
}

template <class S>
void product(const ProductTask& t) {
    product_n<S, S::kShared>(t);
}

}  // namespace hush
