// Forward kernels over a lane type S.
#pragma once
#include "kernels.h"

namespace hush {

template <class S>
void compact(const CompactTask& t) {
    const ActivationLanes<S> phi(t.activation);
    const size_t full = t.first + (t.last - t.first) / S::W * S::W;
    const int tail = static_cast<int>(t.last - full);
    for (size_t b = 0; b < t.batch; ++b) {
        const float* h = t.h + b * t.row_stride;
        float* values = t.out.values + b * t.out.stride;
        uint32_t* indices = t.out.indices + b * t.out.stride;
        uint32_t n = t.out.count[b];
        auto take = [&](typename S::F x, size_t j, typename S::A active) {
            if (t.out.per_column) S::count(t.out.per_column + (j - t.out.first_column), active);
            n += static_cast<uint32_t>(S::compress(x, active, static_cast<uint32_t>(j), values + n, indices + n));
        };
        for (size_t j = t.first; j < full; j += S::W) {
            typename S::F x = S::load(h + j);
            const typename S::A active = phi(x);
            take(x, j, active);
        }
        if (tail) {
            typename S::F x = S::load_n(h + full, tail);
            const typename S::A active = phi(x);
            take(x, full, S::first(active, tail));
        }
        t.out.count[b] = n;
    }
}

template <class S, class T>
void pack_rows(const PackTask& t) {
    const T* w = static_cast<const T*>(t.weight);
    float* out = t.out;
    const int full = t.tail ? t.vectors - 1 : t.vectors;
    for (size_t i = 0; i < t.rows; ++i, w += t.weight_stride, out += t.vectors * S::W) {
        for (int v = 0; v < full; ++v) S::store(out + v * S::W, S::load(w + v * S::W));
        if (t.tail) S::store(out + full * S::W, S::load_n(w + full * S::W, t.tail));
    }
}

template <class S>
void pack(const PackTask& t) {
    t.bf16 ? pack_rows<S, uint16_t>(t) : pack_rows<S, float>(t);
}

// N vectors of outputs stay in registers while a sample's active inputs stream past.
template <class S, int N, class T>
void forward_tile(const ForwardTask& t) {
    const T* weight = static_cast<const T*>(t.weight);
    const ActivationLanes<S> phi(t.activation);
    const size_t stride = t.weight_stride;
    const uint32_t first_row = t.first_row;
    // A packed tile, whose stride is its own width, is padded with zeros.
    const bool masked = t.tail && stride != static_cast<size_t>(N * S::W);
    typename S::F bias[N];
#pragma GCC unroll 32
    for (int v = 0; v < N; ++v) bias[v] = S::zero();
    if (t.bias)
#pragma GCC unroll 32
        for (int v = 0; v < N; ++v)
            bias[v] = t.tail && v == N - 1 ? S::load_n(t.bias + v * S::W, t.tail) : S::load(t.bias + v * S::W);
    for (size_t b = 0; b < t.batch; ++b) {
        typename S::F acc[N];
#pragma GCC unroll 32
        for (int v = 0; v < N; ++v) acc[v] = t.start ? S::load(t.start + (b * N + v) * S::W) : bias[v];
        for (int s = 0; s < t.n_segments; ++s) {
            const Segment& g = t.segments[s];
            const float* values = g.values + b * g.stride;
            const uint32_t* indices = g.indices + b * g.stride;
            uint32_t k = g.begin ? g.begin[b] : 0;
            const uint32_t end = g.end[b];
            uint32_t whole = end;
            if (masked && k < end)
                whole = k + static_cast<uint32_t>(whole_rows<S>(end - k, indices[end - 1] - first_row, t.rows, stride));
            auto one = [&]<bool Masked>(uint32_t j) {
                const T* w = weight + (indices[j] - first_row) * stride;
                const typename S::F x = S::set1(values[j]);
#pragma GCC unroll 32
                for (int v = 0; v < N; ++v)
                    acc[v] = S::fma(x, Masked && v == N - 1 ? S::load_n(w + v * S::W, t.tail) : S::load(w + v * S::W),
                                    acc[v]);
            };
            if (t.batch <= kFewSamples) {
                for (uint32_t a = k; a < k + kFetchAhead && a < whole; ++a)
                    fetch_row<S, N>(weight + (indices[a] - first_row) * stride);
                for (; k + kFetchAhead < whole; ++k) {
                    fetch_row<S, N>(weight + (indices[k + kFetchAhead] - first_row) * stride);
                    one.template operator()<false>(k);
                }
            }
            for (; k < whole; ++k) one.template operator()<false>(k);
            for (; k < end; ++k) one.template operator()<true>(k);
        }
        if (t.partial) {
#pragma GCC unroll 32
            for (int v = 0; v < N; ++v) S::store(t.partial + (b * N + v) * S::W, acc[v]);
        } else if (t.out) {
            float* out = t.out + b * t.out_stride;
#pragma GCC unroll 32
            for (int v = 0; v < N; ++v) {
                if (v == N - 1 && t.tail)
                    S::store_n(out + v * S::W, acc[v], t.tail);
                else
                    S::store(out + v * S::W, acc[v]);
            }
        } else {
            uint32_t n = t.lists.count[b];
            float* values = t.lists.values + b * t.lists.stride;
            uint32_t* indices = t.lists.indices + b * t.lists.stride;
            const size_t local = t.column - t.lists.first_column;
#pragma GCC unroll 32
            for (int v = 0; v < N; ++v) {
                typename S::A active = phi(acc[v]);
                if (v == N - 1 && t.tail) active = S::first(active, t.tail);
                if (t.lists.per_column) S::count(t.lists.per_column + local + v * S::W, active);
                n += static_cast<uint32_t>(S::compress(acc[v], active, static_cast<uint32_t>(t.column + v * S::W),
                                                       values + n, indices + n));
            }
            t.lists.count[b] = n;
        }
    }
}

template <class S, int N>
void forward_n(const ForwardTask& t) {
    if constexpr (N == 0) {
        return;
    } else {
        if (t.vectors != N) return forward_n<S, N - 1>(t);
        t.bf16 ? forward_tile<S, N, uint16_t>(t) : forward_tile<S, N, float>(t);
    }
}

template <class S>
void forward(const ForwardTask& t) {
    forward_n<S, S::kWide>(t);
}

}  // namespace hush
