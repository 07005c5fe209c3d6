// Kernels of the residual chain's backward over a lane type S.
#pragma once
#include <algorithm>
#include <cmath>

#include "backward.inl.h"
#include "residual.inl.h"

namespace hush {

// Vectors of g in registers while rows of weights pass: four sums and what is being read need their place beside them.
template <class S>
constexpr int kDots = S::kWide > 16 ? S::kWide : (S::kWide < 8 ? S::kWide : 8);

// ⟨g, W[i]⟩ of the active units i, in some columns, four units at a time.
template <class S, int N, bool Tail>
void dots(const SampleBackTask& t, size_t column, int tail, bool add) {
    using F = typename S::F;
    const float* weight = t.weight + column;
    const typename S::A kept = Tail ? S::first(all_lanes<S>(), tail) : all_lanes<S>();
    F g[N];
#pragma GCC unroll 32
    for (int v = 0; v < N; ++v) g[v] = S::load(t.g + column + v * S::W);
    // What a whole vector reads behind a row's end may be anything, so it is dropped before it meets a zero of g.
    auto get = [&]<bool Masked>(const float* w, int v) {
        if (!Tail || v < N - 1) return S::load(w + v * S::W);
        return Masked ? S::load_n(w + v * S::W, tail) : S::keep(S::load(w + v * S::W), kept);
    };
    auto rows = [&]<int R, bool Masked>(uint32_t k) {
        const float* w[4];
        F sum[4];
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
            w[r] = weight + t.indices[k + (r < R ? r : 0)] * t.width;
            sum[r] = S::zero();
        }
#pragma GCC unroll 32
        for (int v = 0; v < N; ++v)
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) sum[r] = S::fma(g[v], get.template operator()<Masked>(w[r], v), sum[r]);
        add ? S::add_sums(t.sums + k, sum[0], sum[1], sum[2], sum[3])
            : S::put_sums(t.sums + k, sum[0], sum[1], sum[2], sum[3]);
    };
    uint32_t k = 0, whole = t.count;
    if (Tail && whole) whole = static_cast<uint32_t>(whole_rows<S>(whole, t.indices[whole - 1], t.units, t.width));
    for (; k + 4 <= whole; k += 4) rows.template operator()<4, false>(k);
    if (whole - k == 3)
        rows.template operator()<3, false>(k);
    else if (whole - k == 2)
        rows.template operator()<2, false>(k);
    else if (whole - k == 1)
        rows.template operator()<1, false>(k);
    for (k = whole; k < t.count; ++k) rows.template operator()<1, true>(k);
}

template <class S, int N = kDots<S>>
void dots_tile(const SampleBackTask& t, size_t column, int vectors, int tail) {
    if constexpr (N > 0) {
        if (vectors != N) return dots_tile<S, N - 1>(t, column, vectors, tail);
        tail ? dots<S, N, true>(t, column, tail, column > 0) : dots<S, N, false>(t, column, 0, column > 0);
    }
}

// Calls of(column, vectors, tail) for tiles of at most `most` vectors.
template <class S, class Of>
inline void each_tile(size_t width, int most, Of of) {
    const size_t vectors = (width + S::W - 1) / S::W, tiles = (vectors + most - 1) / most;
    for (size_t i = 0; i < tiles; ++i) {
        const size_t v0 = vectors * i / tiles, v1 = vectors * (i + 1) / tiles;
        of(v0 * S::W, static_cast<int>(v1 - v0), v1 * S::W > width ? static_cast<int>(width % S::W) : 0);
    }
}

// below = g − level − factor (x − mean), with zeros behind the width.
template <class S>
void sweep(const SampleBackTask& t, float level, float factor) {
    using F = typename S::F;
    const F by = S::set1(-factor), mean = S::set1(t.moments.mean), less = S::set1(level);
    size_t j = 0;
    for (; j + S::W <= t.width; j += S::W)
        S::store(t.below + j, S::fma(by, S::sub(S::load(t.x + j), mean), S::sub(S::load(t.g + j), less)));
    if (j < t.width) {
        const int tail = static_cast<int>(t.width - j);
        const F y = S::fma(by, S::sub(S::load_n(t.x + j, tail), mean), S::sub(S::load(t.g + j), less));
        S::store(t.below + j, S::keep(y, S::first(all_lanes<S>(), tail)));
    }
}

// Activation::slope at a unit of a list: 1, or only below the clip.
struct SlopeOfListed {
    bool bounded;
    float clip;
    explicit SlopeOfListed(const Activation& phi)
        : bounded(!phi.identity && (!std::isinf(phi.clip) || phi.floor != 0.0f)), clip(phi.clip) {}
    bool operator()(float value) const { return !bounded || std::fabs(value) < clip; }
};

template <class S, bool Normed>
void through_units(SampleBackTask& t) {
    const SlopeOfListed passes(t.activation);
    const float beta = t.beta, mean = t.moments.mean, inverse = t.moments.inverse;
    float sum_u = 0.0f, sum_ux = 0.0f;
    for (uint32_t k = 0; k < t.count; ++k) {
        const float d = passes(t.values[k]) ? beta * t.sums[k] : 0.0f;
        if constexpr (!Normed) {
            t.sums[k] = d;
            continue;
        }
        const size_t i = t.indices[k];
        const float at_unit = (t.x[i] - mean) * inverse, u = t.gain ? t.gain[i] * d : d;
        if (t.for_shift) t.for_shift[k] = d;
        if (t.for_gain) t.for_gain[k] = d * at_unit;
        sum_u += u;
        sum_ux += u * at_unit;
        t.sums[k] = u * inverse;
    }
    if (!t.below) return;
    if constexpr (Normed) {
        const float n = static_cast<float>(t.width);
        sweep<S>(t, t.norm == Norm::layer ? inverse * sum_u / n : 0.0f, inverse * inverse * sum_ux / n);
    } else {
        for (size_t j = 0; j < t.width; j += S::W) S::store(t.below + j, S::load(t.g + j));
    }
    for (uint32_t k = 0; k < t.count; ++k) t.below[t.indices[k]] += t.sums[k];
}

// ∂L/∂n(x) = Σ_k δ_k W₁[i_k], in some columns.
template <class S, int N, bool Tail>
void into_stream(const SampleBackTask& t, size_t column, int tail) {
    typename S::F sums[N];
#pragma GCC unroll 32
    for (int v = 0; v < N; ++v) sums[v] = S::zero();
    add_rows<S, N, Tail>({t.deltas, t.indices, t.count, t.width, t.units, false}, t.inner_weight + column, tail, sums);
    if (Tail) sums[N - 1] = S::keep(sums[N - 1], S::first(all_lanes<S>(), tail));
#pragma GCC unroll 32
    for (int v = 0; v < N; ++v) S::store(t.into + column + v * S::W, sums[v]);
}

template <class S, int N = S::kWide>
void into_tile(const SampleBackTask& t, size_t column, int vectors, int tail) {
    if constexpr (N > 0) {
        if (vectors != N) return into_tile<S, N - 1>(t, column, vectors, tail);
        tail ? into_stream<S, N, true>(t, column, tail) : into_stream<S, N, false>(t, column, 0);
    }
}

// Calls of(j, lanes) for the vectors of a row, the last of which may have fewer lanes.
template <class S, class Of>
inline void each_vector(size_t width, Of of) {
    size_t j = 0;
    for (; j + S::W <= width; j += S::W) of(j, S::W);
    if (j < width) of(j, static_cast<int>(width - j));
}

// From ∂L/∂n(x) to ∂L/∂x; g, `into` and the sums have zeros behind the width, and so has `below`.
template <class S>
void through_norm(const SampleBackTask& t) {
    using F = typename S::F;
    const F mean = S::set1(t.moments.mean), inverse = S::set1(t.moments.inverse);
    auto get = [](const float* p, int lanes) { return lanes == S::W ? S::load(p) : S::load_n(p, lanes); };
    auto at_stream = [&](size_t j, int lanes) { return S::mul(S::sub(get(t.x + j, lanes), mean), inverse); };
    auto by_gain = [&](size_t j, int lanes) {
        const F v = S::load(t.into + j);
        return t.gain ? S::mul(get(t.gain + j, lanes), v) : v;
    };
    F sum_u = S::zero(), sum_ux = S::zero();
    each_vector<S>(t.width, [&](size_t j, int lanes) {
        F x = at_stream(j, lanes);
        if (lanes < S::W) x = S::keep(x, S::first(all_lanes<S>(), lanes));
        const F v = S::load(t.into + j), u = by_gain(j, lanes);
        if (t.shift_sums) S::store(t.shift_sums + j, S::add(S::load(t.shift_sums + j), v));
        if (t.gain_sums) S::store(t.gain_sums + j, S::fma(v, x, S::load(t.gain_sums + j)));
        sum_u = S::add(sum_u, u);
        sum_ux = S::fma(u, x, sum_ux);
    });
    if (!t.below) return;
    const float n = static_cast<float>(t.width);
    const F level = S::set1(t.norm == Norm::layer ? S::sum(sum_u) / n : 0.0f), along = S::set1(-S::sum(sum_ux) / n);
    each_vector<S>(t.width, [&](size_t j, int lanes) {
        const F u = S::fma(along, at_stream(j, lanes), S::sub(by_gain(j, lanes), level));
        F below = S::fma(inverse, u, S::load(t.g + j));
        if (lanes < S::W) below = S::keep(below, S::first(all_lanes<S>(), lanes));
        S::store(t.below + j, below);
    });
}

// Back through φ and W₁.
template <class S>
void through_inner(SampleBackTask& t) {
    const SlopeOfListed passes(t.activation);
    for (uint32_t k = 0; k < t.count; ++k) t.deltas[k] = passes(t.values[k]) ? t.beta * t.sums[k] : 0.0f;
    if (!t.below && !t.shift_sums && !t.gain_sums) return;
    each_tile<S>(t.width, S::kWide, [&t](size_t column, int vectors, int tail) { into_tile<S>(t, column, vectors, tail); });
    if (t.norm != Norm::none) return through_norm<S>(t);
    for (size_t j = 0; j < t.width; j += S::W) S::store(t.below + j, S::add(S::load(t.g + j), S::load(t.into + j)));
}

template <class S>
void sample_back(SampleBackTask& t) {
    each_tile<S>(t.width, kDots<S>, [&t](size_t column, int vectors, int tail) { dots_tile<S>(t, column, vectors, tail); });
    if (t.bias) {
        t.along = 0.0;
        for (uint32_t k = 0; k < t.count; ++k) t.along += static_cast<double>(t.values[k]) * t.sums[k];
        for (size_t j = 0; j < t.width; ++j) t.along += static_cast<double>(t.g[j]) * t.bias[j];
    }
    if (t.inner_weight)
        through_inner<S>(t);
    else
        t.norm == Norm::none ? through_units<S, false>(t) : through_units<S, true>(t);
}

template <class S, int N, bool Tail, class I>
void weight_rows_tile(const WeightRowsTask& t, size_t column, int tail) {
    using F = typename S::F;
    const I* samples = static_cast<const I*>(t.samples);
    const Step<S> step(t.optimizer);
    const F beta = S::set1(t.beta);
    // With plain SGD and no decay an input that was never active keeps its weights: not even a read.
    const bool may_skip = t.optimizer.kind == Update::sgd && t.optimizer.weight_decay == 0.0f;
    for (size_t i = t.first; i < t.last; ++i) {
        const uint32_t begin = t.column_start[i], end = t.column_start[i + 1];
        if (t.ahead) fetch<S>(t.ahead);
        if (begin == end && may_skip) continue;
        F sum[N];
        alignas(64) float stepped[N * S::W];
#pragma GCC unroll 32
        for (int v = 0; v < N; ++v) sum[v] = S::zero();
        for (uint32_t j = begin; j < end; ++j) {
            const float* g = t.g + samples[j] * t.g_stride + column;
            const F y = S::set1(t.values[t.entries[j]]);
#pragma GCC unroll 32
            for (int v = 0; v < N; ++v) sum[v] = S::fma(y, S::load(g + v * S::W), sum[v]);
        }
        // A gradient that is only wanted is multiplied into its place, any other on its way to the optimizer.
        const size_t row = i * t.width + column;
        const int last = Tail ? N - 1 : N;
        float* to = t.optimizer.kind == Update::gradient ? t.gradient + row : stepped;
#pragma GCC unroll 32
        for (int v = 0; v < last; ++v) S::store(to + v * S::W, S::mul(beta, sum[v]));
        if (Tail) S::store_n(to + last * S::W, S::mul(beta, sum[last]), tail);
        if (t.optimizer.kind != Update::gradient)
            update(step, t.weight + row, stepped, t.state1 ? t.state1 + row : nullptr,
                   t.state2 ? t.state2 + row : nullptr, static_cast<size_t>(last * S::W + tail));
    }
}

template <class S, class I, int N = S::kWide>
void weight_rows_n(const WeightRowsTask& t, size_t column, int vectors, int tail) {
    if constexpr (N > 0) {
        if (vectors != N) return weight_rows_n<S, I, N - 1>(t, column, vectors, tail);
        tail ? weight_rows_tile<S, N, true, I>(t, column, tail) : weight_rows_tile<S, N, false, I>(t, column, 0);
    }
}

template <class S>
void weight_rows(const WeightRowsTask& t) {
    each_tile<S>(t.width, S::kWide, [&t](size_t column, int vectors, int tail) {
        t.wide_samples ? weight_rows_n<S, uint32_t>(t, column, vectors, tail)
                       : weight_rows_n<S, uint16_t>(t, column, vectors, tail);
    });
}

template <class S, int N = S::kBack>
void column_sums_n(const ColumnSumsTask& t, size_t vector, int vectors) {
    if constexpr (N > 0) {
        if (vectors != N) return column_sums_n<S, N - 1>(t, vector, vectors);
        typename S::F sum[N];
        for (int v = 0; v < N; ++v) sum[v] = S::zero();
        const float* g = t.g + vector * S::W;
        for (size_t b = 0; b < t.batch; ++b, g += t.g_stride)
#pragma GCC unroll 16
            for (int v = 0; v < N; ++v) sum[v] = S::add(sum[v], S::load(g + v * S::W));
        for (int v = 0; v < N; ++v) S::store(t.sums + (vector + v) * S::W, sum[v]);
    }
}

template <class S>
void column_sums(const ColumnSumsTask& t) {
    for (size_t v = 0; v < t.vectors; v += S::kBack)
        column_sums_n<S>(t, v, static_cast<int>(std::min<size_t>(S::kBack, t.vectors - v)));
}

}  // namespace hush
