// Kernels of the convolution over a lane type S.
#pragma once
#include <algorithm>
#include <type_traits>

#include "convolution.h"

namespace hush {

// Registers hold, in the forward, a tile of outputs, and in the backward the weights and the gradients of some taps.
template <class S>
struct ConvSizes {
    static constexpr int kTile = S::W == 16 ? 4 : 8;
    static constexpr int kBackVectors = S::W == 16 ? 4 : 2;
    static constexpr int kBackTaps = S::W == 16 ? 3 : 2;
};

template <class S>
size_t count_units(const float* x, size_t n, const Activation& activation) {
    using F = typename S::F;
    const ActivationLanes<S> phi(activation);
    const F one = S::set1(1.0f);
    F count = S::zero();
    size_t j = 0;
    for (; j + S::W <= n; j += S::W) {
        F y = S::load(x + j);
        const typename S::A active = phi(y);
        count = S::add(count, S::keep(one, active));
    }
    if (j < n) {
        F y = S::load_n(x + j, static_cast<int>(n - j));
        const typename S::A active = S::first(phi(y), static_cast<int>(n - j));
        count = S::add(count, S::keep(one, active));
    }
    return static_cast<size_t>(S::sum(count));
}

template <class S>
void list_row(const ListTask& t) {
    using F = typename S::F;
    const ConvShape& s = *t.shape;
    const ActivationLanes<S> phi(t.activation);
    const size_t padded = s.padded_width(), channels = s.inputs;
    uint32_t n = 0;
    for (size_t p = 0; p < padded; ++p) {
        t.starts[p] = n;
        const size_t source = source_of(p, s.left, s.width, s.circular);
        if (source == kNowhere) continue;
        const float* x = t.x + source * channels;
        const uint32_t base = static_cast<uint32_t>(p * channels);
        size_t c = 0;
        for (; c + S::W <= channels; c += S::W) {
            F y = S::load(x + c);
            const typename S::A active = phi(y);
            n += S::compress(y, active, base + static_cast<uint32_t>(c), t.values + n, t.entries + n);
        }
        if (c < channels) {
            F y = S::load_n(x + c, static_cast<int>(channels - c));
            const typename S::A active = S::first(phi(y), static_cast<int>(channels - c));
            n += S::compress(y, active, base + static_cast<uint32_t>(c), t.values + n, t.entries + n);
        }
    }
    t.starts[padded] = n;
}

// Entries are taken two at a time into two sets of sums, so that a few registers do not wait for each other.
template <class S, int N, bool First, bool Last>
void forward_taps(const ConvForwardTask& t, size_t ky, const uint32_t* starts) {
    using F = typename S::F;
    constexpr bool two = N <= 4;
    constexpr size_t width = static_cast<size_t>(N) * S::W;
    const ConvShape& s = *t.shape;
    const size_t across = s.out_width(), step = s.stride_x * s.inputs;
    const float* taps = t.weight + ky * s.taps_x * s.inputs * width;
    for (size_t o = 0; o < across; ++o) {
        F sum[N], other[two ? N : 1];
        float* kept = t.sums + o * width;
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) {
            if constexpr (First)
                sum[v] = t.bias ? S::load(t.bias + v * S::W) : S::zero();
            else
                sum[v] = S::load(kept + v * S::W);
        }
        if (starts) {
            const uint32_t shift = static_cast<uint32_t>(o * step);
            uint32_t e = starts[o * s.stride_x];
            const uint32_t end = starts[o * s.stride_x + s.taps_x];
            if constexpr (two) {
#pragma GCC unroll 8
                for (int v = 0; v < N; ++v) other[v] = S::zero();
                for (; e + 2 <= end; e += 2) {
                    const float *w0 = taps + (t.entries[e] - shift) * width, *w1 = taps + (t.entries[e + 1] - shift) * width;
                    const F x0 = S::set1(t.values[e]), x1 = S::set1(t.values[e + 1]);
#pragma GCC unroll 8
                    for (int v = 0; v < N; ++v) {
                        sum[v] = S::fma(x0, S::load(w0 + v * S::W), sum[v]);
                        other[v] = S::fma(x1, S::load(w1 + v * S::W), other[v]);
                    }
                }
            }
            for (; e < end; ++e) {
                const float* w = taps + (t.entries[e] - shift) * width;
                const F x = S::set1(t.values[e]);
#pragma GCC unroll 8
                for (int v = 0; v < N; ++v) sum[v] = S::fma(x, S::load(w + v * S::W), sum[v]);
            }
            if constexpr (two) {
#pragma GCC unroll 8
                for (int v = 0; v < N; ++v) sum[v] = S::add(sum[v], other[v]);
            }
        }
        if constexpr (Last) {
            float* out = t.out + o * t.out_stride;
            const int whole = t.tail ? N - 1 : N;
#pragma GCC unroll 8
            for (int v = 0; v < N; ++v)
                if (v < whole)
                    S::store(out + v * S::W, sum[v]);
                else
                    S::store_n(out + v * S::W, sum[v], t.tail);
        } else {
#pragma GCC unroll 8
            for (int v = 0; v < N; ++v) S::store(kept + v * S::W, sum[v]);
        }
    }
}

template <class S, int N = ConvSizes<S>::kTile>
void convolve_row(const ConvForwardTask& t) {
    if constexpr (N > 0) {
        if (t.vectors != N) return convolve_row<S, N - 1>(t);
        const size_t last = t.shape->taps_y - 1;
        for (size_t ky = 0; ky <= last; ++ky) {
            if (ky == 0 && last == 0)
                forward_taps<S, N, true, true>(t, ky, t.starts[ky]);
            else if (ky == 0)
                forward_taps<S, N, true, false>(t, ky, t.starts[ky]);
            else if (ky == last)
                forward_taps<S, N, false, true>(t, ky, t.starts[ky]);
            else
                forward_taps<S, N, false, false>(t, ky, t.starts[ky]);
        }
    }
}

template <class S, int N, int T, bool Sums>
void backward_taps(const ConvBackwardTask& t) {
    using F = typename S::F;
    F w[T][N], g[T][N];
    for (int k = 0; k < T; ++k)
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) {
            if constexpr (Sums) w[k][v] = S::load(t.weight + k * t.tap_stride + v * S::W);
            g[k][v] = S::load(t.gradient + k * t.tap_stride + v * S::W);
        }
    auto visit = [&](size_t i, F& sum) {
        const float* delta = t.delta + static_cast<size_t>(t.positions[i] - t.shift) * t.delta_stride;
        const F x = S::set1(t.values[i]);
#pragma GCC unroll 4
        for (int k = 0; k < T; ++k)
#pragma GCC unroll 8
            for (int v = 0; v < N; ++v) {
                const F d = S::load(delta - k * t.delta_stride + v * S::W);
                g[k][v] = S::fma(x, d, g[k][v]);
                if constexpr (Sums) sum = k + v ? S::fma(w[k][v], d, sum) : S::mul(w[k][v], d);
            }
    };
    size_t i = 0;
    for (; i + 4 <= t.entries; i += 4) {
        F a, b, c, d;
        visit(i, a), visit(i + 1, b), visit(i + 2, c), visit(i + 3, d);
        if constexpr (Sums) S::add_sums(t.sums + i, a, b, c, d);
    }
    for (; i < t.entries; ++i) {
        F a;
        visit(i, a);
        if constexpr (Sums) t.sums[i] += S::sum(a);
    }
    for (int k = 0; k < T; ++k)
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) S::store(t.gradient + k * t.tap_stride + v * S::W, g[k][v]);
}

template <class S, int N, int T = ConvSizes<S>::kBackTaps>
void backward_some(const ConvBackwardTask& t) {
    if constexpr (T > 0) {
        if (t.taps != T) return backward_some<S, N, T - 1>(t);
        t.sums ? backward_taps<S, N, T, true>(t) : backward_taps<S, N, T, false>(t);
    }
}

template <class S, int N = ConvSizes<S>::kBackVectors>
void backward_vectors(const ConvBackwardTask& t) {
    if constexpr (N > 0) {
        if (t.vectors != N) return backward_vectors<S, N - 1>(t);
        ConvBackwardTask part = t;
        for (size_t k = 0; k < t.taps; k += part.taps) {
            part.taps = std::min<size_t>(ConvSizes<S>::kBackTaps, t.taps - k);
            part.weight = t.weight + k * t.tap_stride;
            part.gradient = t.gradient + k * t.tap_stride;
            part.shift = t.shift + static_cast<uint32_t>(k);
            backward_some<S, N>(part);
        }
    }
}

template <class S>
void convolve_back(const ConvBackwardTask& t) {
    ConvBackwardTask part = t;
    for (int v = 0; v < t.vectors; v += part.vectors) {
        part.vectors = std::min(ConvSizes<S>::kBackVectors, t.vectors - v);
        part.weight = t.weight + v * S::W;
        part.gradient = t.gradient + v * S::W;
        part.delta = t.delta + v * S::W;
        backward_vectors<S>(part);
    }
}

}  // namespace hush
