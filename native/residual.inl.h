// Kernels of the residual chain over a lane type S.
#pragma once
#include <cmath>
#include <type_traits>

#include "residual.h"

namespace hush {

template <class S>
inline typename S::A all_lanes() {
    return S::nonzero(S::set1(1.0f));
}

// Σ f(x) over a row, in four sums side by side, since one would wait for itself.
template <class S, class Of>
inline float row_sum(const float* x, size_t width, Of of) {
    typename S::F sum[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
    size_t j = 0;
    for (; j + 4 * S::W <= width; j += 4 * S::W)
#pragma GCC unroll 4
        for (int u = 0; u < 4; ++u) sum[u] = S::add(sum[u], of(S::load(x + j + u * S::W)));
    for (; j + S::W <= width; j += S::W) sum[0] = S::add(sum[0], of(S::load(x + j)));
    if (j < width) {
        const int tail = static_cast<int>(width - j);
        sum[1] = S::add(sum[1], S::keep(of(S::load_n(x + j, tail)), S::first(all_lanes<S>(), tail)));
    }
    return S::sum(S::add(S::add(sum[0], sum[1]), S::add(sum[2], sum[3])));
}

template <class S>
void take_moments(SampleTask& t) {
    using F = typename S::F;
    t.mean = 0.0f, t.inverse = 1.0f;
    if (t.norm == Norm::none) return;
    const float n = static_cast<float>(t.width);
    if (t.norm == Norm::layer) t.mean = row_sum<S>(t.x, t.width, [](F x) { return x; }) / n;
    const F mean = S::set1(t.mean);
    const float squares = row_sum<S>(t.x, t.width, [mean](F x) {
        const F d = S::sub(x, mean);
        return S::mul(d, d);
    });
    t.inverse = 1.0f / std::sqrt(squares / n + t.eps);
}

template <class S, bool Normed, bool Gain, bool Shift>
void list_active(SampleTask& t) {
    using F = typename S::F;
    const ActivationLanes<S> phi(t.activation);
    const F mean = S::set1(t.mean), inverse = S::set1(t.inverse);
    uint32_t n = 0;
    auto take = [&](size_t j, int lanes, auto whole) {
        auto get = [&](const float* p) {
            if constexpr (decltype(whole)::value)
                return S::load(p + j);
            else
                return S::load_n(p + j, lanes);
        };
        F y = get(t.x);
        if constexpr (Normed) y = S::mul(S::sub(y, mean), inverse);
        if constexpr (Gain && Shift)
            y = S::fma(y, get(t.gain), get(t.shift));
        else if constexpr (Gain)
            y = S::mul(y, get(t.gain));
        typename S::A active = phi(y);
        if constexpr (!decltype(whole)::value) active = S::first(active, lanes);
        n += static_cast<uint32_t>(S::compress(y, active, static_cast<uint32_t>(j), t.values + n, t.indices + n));
    };
    size_t j = 0;
    for (; j + S::W <= t.width; j += S::W) take(j, S::W, std::true_type{});
    if (j < t.width) take(j, static_cast<int>(t.width - j), std::false_type{});
    t.count = n;
}

// N vectors of the branch stay in registers while the active units stream past; then the stream takes them up.
template <class S, int N, bool Tail, class T>
void add_branch(const SampleTask& t, size_t column, int tail) {
    const T* weight = static_cast<const T*>(t.weight) + column;
    const size_t stride = t.width;
    auto get = [tail](const auto* p, int v) {
        return Tail && v == N - 1 ? S::load_n(p + v * S::W, tail) : S::load(p + v * S::W);
    };
    typename S::F branch[N];
#pragma GCC unroll 32
    for (int v = 0; v < N; ++v) branch[v] = t.bias ? get(t.bias + column, v) : S::zero();
    auto one = [&]<bool Masked>(uint32_t k) {
        const T* w = weight + t.indices[k] * stride;
        const typename S::F a = S::set1(t.values[k]);
#pragma GCC unroll 32
        for (int v = 0; v < N; ++v) branch[v] = S::fma(a, Masked ? get(w, v) : S::load(w + v * S::W), branch[v]);
    };
    uint32_t k = 0, whole = t.count;
    if (Tail && whole) whole = static_cast<uint32_t>(whole_rows<S>(whole, t.indices[whole - 1], t.width, stride));
    if (t.fetch_ahead)
        for (; k + kFetchAhead < whole; ++k) {
            fetch_row<S, N>(weight + t.indices[k + kFetchAhead] * stride);
            one.template operator()<false>(k);
        }
    for (; k < whole; ++k) one.template operator()<false>(k);
    for (; k < t.count; ++k) one.template operator()<true>(k);
    const typename S::F beta = S::set1(t.beta);
#pragma GCC unroll 32
    for (int v = 0; v < N; ++v) {
        const typename S::F y = S::fma(beta, branch[v], get(t.x + column, v));
        float* out = t.out + column + v * S::W;
        if (Tail && v == N - 1)
            S::store_n(out, y, tail);
        else
            S::store(out, y);
    }
}

template <class S, class T, int N = S::kWide>
void add_tile(const SampleTask& t, size_t column, int vectors, int tail) {
    if constexpr (N > 0) {
        if (vectors != N) return add_tile<S, T, N - 1>(t, column, vectors, tail);
        tail ? add_branch<S, N, true, T>(t, column, tail) : add_branch<S, N, false, T>(t, column, 0);
    }
}

template <class S>
void residual_sample(SampleTask& t) {
    take_moments<S>(t);
    if (t.norm == Norm::none)
        list_active<S, false, false, false>(t);
    else if (!t.gain)
        list_active<S, true, false, false>(t);
    else if (!t.shift)
        list_active<S, true, true, false>(t);
    else
        list_active<S, true, true, true>(t);
    const size_t vectors = (t.width + S::W - 1) / S::W, tiles = (vectors + S::kWide - 1) / S::kWide;
    for (size_t i = 0; i < tiles; ++i) {
        const size_t v0 = vectors * i / tiles, v1 = vectors * (i + 1) / tiles, column = v0 * S::W;
        const int tail = v1 * S::W > t.width ? static_cast<int>(t.width % S::W) : 0;
        if (t.bf16)
            add_tile<S, uint16_t>(t, column, static_cast<int>(v1 - v0), tail);
        else
            add_tile<S, float>(t, column, static_cast<int>(v1 - v0), tail);
    }
}

template <class S, int N>
void stream_back_n(const StreamBackTask& t) {
    using F = typename S::F;
    if constexpr (N > 0) {
        if (t.vectors != N) return stream_back_n<S, N - 1>(t);
        F sum[N];
        for (int v = 0; v < N; ++v) sum[v] = S::zero();
        const typename S::A kept = t.tail ? S::first(all_lanes<S>(), t.tail) : all_lanes<S>();
        for (size_t b = 0; b < t.batch; ++b) {
            float* g = t.g + b * t.g_stride;
            if (!t.x) {
#pragma GCC unroll 8
                for (int v = 0; v < N; ++v) sum[v] = S::add(sum[v], S::load(g + v * S::W));
                continue;
            }
            const float* x = t.x + b * t.x_stride;
            const F level = S::set1(t.level[b]), factor = S::set1(-t.factor[b]), mean = S::set1(t.mean[b]);
#pragma GCC unroll 8
            for (int v = 0; v < N; ++v) {
                const F d = S::sub(v == N - 1 && t.tail ? S::load_n(x + v * S::W, t.tail) : S::load(x + v * S::W), mean);
                F y = S::fma(factor, d, S::sub(S::load(g + v * S::W), level));
                if (v == N - 1) y = S::keep(y, kept);  // what lies beyond the width stays 0
                S::store(g + v * S::W, y);
                sum[v] = S::add(sum[v], y);
            }
        }
        for (int v = 0; v < N; ++v) S::store(t.sums + v * S::W, sum[v]);
    }
}

template <class S>
void stream_back(const StreamBackTask& t) {
    stream_back_n<S, S::kBack>(t);
}

}  // namespace hush
