// The loops of machine_limits.h, for each instruction set.
#pragma once
#include "machine_limits.h"

namespace hush {

// Keeps a value in a register without saying where it comes from: a sum over a loop stays a loop.
template <class V>
inline void opaque(V& value) {
    asm volatile("" : "+m"(value));
}

template <class S>
float added_up(typename S::F x) {
    float lanes[S::W], sum = 0;
    S::store(lanes, x);
    for (float lane : lanes) sum += lane;
    return sum;
}

template <class S>
float multiply(size_t rounds) {
    float factor = 0.999f, shift = 1e-3f;
    opaque(factor);
    opaque(shift);
    const auto a = S::set1(factor), b = S::set1(shift);
    typename S::F sums[kChains];
    for (auto& sum : sums) sum = S::set1(shift);
    for (size_t round = 0; round < rounds; ++round)
        for (auto& sum : sums) sum = S::fma(sum, a, b);
    auto all = S::zero();
    for (const auto& sum : sums) all = S::add(all, sum);
    return added_up<S>(all);
}

template <class S>
float read(const float* data, size_t count, size_t passes) {
    constexpr int kSums = 8;
    typename S::F sums[kSums];
    for (auto& sum : sums) sum = S::zero();
    for (size_t pass = 0; pass < passes; ++pass) {
        opaque(data);
        for (size_t i = 0; i < count; i += kSums * S::W)
            for (int k = 0; k < kSums; ++k) sums[k] = S::add(sums[k], S::load(data + i + k * S::W));
    }
    auto all = S::zero();
    for (const auto& sum : sums) all = S::add(all, sum);
    return added_up<S>(all);
}

}  // namespace hush
