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
Moments row_moments(const float* x, size_t width, Norm norm, float eps) {
    using F = typename S::F;
    Moments found;
    if (norm == Norm::none) return found;
    const float n = static_cast<float>(width);
    if (norm == Norm::layer) found.mean = row_sum<S>(x, width, [](F x) { return x; }) / n;
    const F mean = S::set1(found.mean);
    const float squares = row_sum<S>(x, width, [mean](F x) {
        const F d = S::sub(x, mean);
        return S::mul(d, d);
    });
    found.inverse = 1.0f / std::sqrt(squares / n + eps);
    return found;
}

// The same of a row that is in registers; the last of its N vectors has zeros behind the width.
template <class S, int N, bool Tail>
[[gnu::always_inline]] inline Moments register_moments(const typename S::F* x, size_t width, int tail, Norm norm, float eps) {
    using F = typename S::F;
    Moments found;
    if (norm == Norm::none) return found;
    const float n = static_cast<float>(width);
    // Four sums side by side, since one would wait for itself.
    auto add_up = [](auto of) {
        F sum[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
#pragma GCC unroll 32
        for (int v = 0; v < N; ++v) sum[v % 4] = of(sum[v % 4], v);
        return S::sum(S::add(S::add(sum[0], sum[1]), S::add(sum[2], sum[3])));
    };
    if (norm == Norm::layer) found.mean = add_up([x](F sum, int v) { return S::add(sum, x[v]); }) / n;
    const F mean = S::set1(found.mean);
    const float squares = add_up([&](F sum, int v) {
        F d = S::sub(x[v], mean);
        if (Tail && v == N - 1) d = S::keep(d, S::first(all_lanes<S>(), tail));
        return S::fma(d, d, sum);
    });
    found.inverse = 1.0f / std::sqrt(squares / n + eps);
    return found;
}

template <class S, bool Normed, bool Gain, bool Shift>
void list_active(SampleTask& t) {
    using F = typename S::F;
    const ActivationLanes<S> phi(t.activation);
    const F mean = S::set1(t.moments.mean), inverse = S::set1(t.moments.inverse);
    const float *x = t.x, *gain = t.gain, *shift = t.shift;
    float* values = t.values;
    uint32_t* indices = t.indices;
    const size_t width = t.width;
    auto take = [&](size_t j, int lanes, auto whole) {
        auto get = [&](const float* p) {
            if constexpr (decltype(whole)::value)
                return S::load(p + j);
            else
                return S::load_n(p + j, lanes);
        };
        F y = get(x);
        if constexpr (Normed) y = S::mul(S::sub(y, mean), inverse);
        if constexpr (Gain && Shift)
            y = S::fma(y, get(gain), get(shift));
        else if constexpr (Gain)
            y = S::mul(y, get(gain));
        typename S::A active = phi(y);
        if constexpr (!decltype(whole)::value) active = S::first(active, lanes);
        const int n = S::compress(y, active, static_cast<uint32_t>(j), values, indices);
        values += n, indices += n;
    };
    size_t j = 0;
    for (; j + S::W <= width; j += S::W) take(j, S::W, std::true_type{});
    if (j < width) take(j, static_cast<int>(width - j), std::false_type{});
    t.count = static_cast<uint32_t>(values - t.values);
}

// N vectors of the branch stay in registers while the active units stream past; then the stream takes them up.
template <class S, int N, bool Tail, class T>
void add_branch(SampleTask& t, size_t column, int tail) {
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
        branch[v] = S::fma(beta, branch[v], get(t.x + column, v));
        if (Tail && v == N - 1) branch[v] = S::keep(branch[v], S::first(all_lanes<S>(), tail));
        float* out = t.out + column + v * S::W;
        if (Tail && v == N - 1)
            S::store_n(out, branch[v], tail);
        else
            S::store(out, branch[v]);
    }
    if ((N - 1) * S::W < t.width && t.width <= N * S::W)
        t.next = register_moments<S, N, Tail>(branch, t.width, tail, t.next_norm, t.next_eps);
}

template <class S, class T, int N = S::kWide>
void add_tile(SampleTask& t, size_t column, int vectors, int tail) {
    if constexpr (N > 0) {
        if (vectors != N) return add_tile<S, T, N - 1>(t, column, vectors, tail);
        tail ? add_branch<S, N, true, T>(t, column, tail) : add_branch<S, N, false, T>(t, column, 0);
    }
}

template <class S>
void residual_sample(SampleTask& t) {
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
    if (tiles > 1) t.next = row_moments<S>(t.out, t.width, t.next_norm, t.next_eps);
}

}  // namespace hush
