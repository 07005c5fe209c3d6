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

template <class S>
void normalise(const float* x, size_t width, Moments moments, const float* gain, const float* shift, float* out) {
    using F = typename S::F;
    const F mean = S::set1(moments.mean), inverse = S::set1(moments.inverse);
    auto put = [&](size_t j, auto get) {
        F y = S::mul(S::sub(get(x + j), mean), inverse);
        if (shift)
            y = S::fma(y, get(gain + j), get(shift + j));
        else if (gain)
            y = S::mul(y, get(gain + j));
        return y;
    };
    size_t j = 0;
    for (; j + S::W <= width; j += S::W) S::store(out + j, put(j, [](const float* p) { return S::load(p); }));
    if (j < width) {
        const int tail = static_cast<int>(width - j);
        const F last = put(j, [tail](const float* p) { return S::load_n(p, tail); });
        S::store(out + j, S::keep(last, S::first(all_lanes<S>(), tail)));
    }
}

// Four units by R rows of n, summed in registers. How many rows there are changes no bit of any of them.
template <class S, int R>
void inner_tile(const InnerTask& t, size_t row, size_t unit) {
    using F = typename S::F;
    const float *n = t.n + row * t.n_stride, *w[4];
    bool last = false;  // the matrix's last row, behind which nothing may be read
#pragma GCC unroll 4
    for (size_t u = 0; u < 4; ++u) {
        const size_t at = unit + u < t.units ? unit + u : t.units - 1;
        w[u] = t.weight + at * t.width;
        last = last || at + 1 == t.units;
    }
    F sums[R][4];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int u = 0; u < 4; ++u) sums[r][u] = S::zero();
    auto add = [&](size_t j, auto get) {
        F here[4];
#pragma GCC unroll 4
        for (int u = 0; u < 4; ++u) here[u] = get(w[u] + j);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const F from = S::load(n + r * t.n_stride + j);
#pragma GCC unroll 4
            for (int u = 0; u < 4; ++u) sums[r][u] = S::fma(from, here[u], sums[r][u]);
        }
    };
    size_t j = 0;
    for (; j + S::W <= t.width; j += S::W) add(j, [](const float* p) { return S::load(p); });
    if (j < t.width) {
        // What a whole vector reads behind a row's end may be anything, so it is dropped before it meets a zero of n.
        const int tail = static_cast<int>(t.width - j);
        const typename S::A kept = S::first(all_lanes<S>(), tail);
        if (last || t.width < S::W)
            add(j, [tail](const float* p) { return S::load_n(p, tail); });
        else
            add(j, [kept](const float* p) { return S::keep(S::load(p), kept); });
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
        float* out = t.out + (row + r) * t.out_stride + unit;
        S::put_sums(out, sums[r][0], sums[r][1], sums[r][2], sums[r][3]);
        if (t.bias)
            for (size_t u = 0; u < 4 && unit + u < t.units; ++u) out[u] += t.bias[unit + u];
    }
}

template <class S, int R = S::kInner>
void inner_rows(const InnerTask& t, size_t row, size_t rows, size_t unit) {
    if constexpr (R > 0) {
        for (; rows >= R; rows -= R, row += R) inner_tile<S, R>(t, row, unit);
        if (rows) inner_rows<S, R - 1>(t, row, rows, unit);
    }
}

// Four rows of weights stay in L1 while all rows of n pass.
template <class S>
void inner(const InnerTask& t) {
    for (size_t unit = 0; unit < t.units; unit += 4) inner_rows<S>(t, 0, t.rows, unit);
}

template <class S, bool Normed, bool Gain, bool Shift>
void list_active(SampleTask& t) {
    using F = typename S::F;
    const ActivationLanes<S> phi(t.activation);
    const F mean = S::set1(t.moments.mean), inverse = S::set1(t.moments.inverse);
    const float *x = t.hidden ? t.hidden : t.x, *gain = t.gain, *shift = t.shift;
    float* values = t.values;
    uint32_t* indices = t.indices;
    const size_t units = t.units;
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
    for (; j + S::W <= units; j += S::W) take(j, S::W, std::true_type{});
    if (j < units) take(j, static_cast<int>(units - j), std::false_type{});
    t.count = static_cast<uint32_t>(values - t.values);
}

// Some units, in rising order, and their rows of a matrix that has so many.
struct UnitRows {
    const float* values;
    const uint32_t* indices;
    uint32_t count;
    size_t stride, rows;
    bool fetch_ahead;
};

// sums += Σ_k values[k] · row[indices[k]], in some columns: N vectors stay in registers while the units stream past. Lanes of
// a tail behind the columns take whatever follows a row.
template <class S, int N, bool Tail, class T>
[[gnu::always_inline]] inline void add_rows(const UnitRows& u, const T* weight, int tail, typename S::F (&sums)[N]) {
    auto one = [&]<bool Masked>(uint32_t k) {
        const T* w = weight + u.indices[k] * u.stride;
        const typename S::F a = S::set1(u.values[k]);
#pragma GCC unroll 32
        for (int v = 0; v < N; ++v)
            sums[v] = S::fma(a, Masked && Tail && v == N - 1 ? S::load_n(w + v * S::W, tail) : S::load(w + v * S::W), sums[v]);
    };
    uint32_t k = 0, whole = u.count;
    if (Tail && whole) whole = static_cast<uint32_t>(whole_rows<S>(whole, u.indices[whole - 1], u.rows, u.stride));
    if (u.fetch_ahead) {
        for (uint32_t a = 0; a < kFetchAhead && a < whole; ++a) fetch_row<S, N>(weight + u.indices[a] * u.stride);
        for (; k + kFetchAhead < whole; ++k) {
            fetch_row<S, N>(weight + u.indices[k + kFetchAhead] * u.stride);
            one.template operator()<false>(k);
        }
    }
    for (; k < whole; ++k) one.template operator()<false>(k);
    for (; k < u.count; ++k) one.template operator()<true>(k);
}

// The branch, in registers; then the stream takes it up.
template <class S, int N, bool Tail, class T>
void add_branch(SampleTask& t, size_t column, int tail) {
    auto get = [tail](const float* p, int v) {
        return Tail && v == N - 1 ? S::load_n(p + v * S::W, tail) : S::load(p + v * S::W);
    };
    typename S::F branch[N];
#pragma GCC unroll 32
    for (int v = 0; v < N; ++v) branch[v] = t.bias ? get(t.bias + column, v) : S::zero();
    add_rows<S, N, Tail>({t.values, t.indices, t.count, t.width, t.units, t.fetch_ahead},
                         static_cast<const T*>(t.weight) + column, tail, branch);
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
    if (t.hidden || t.norm == Norm::none)
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
