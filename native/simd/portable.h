// Eight lanes in plain C++: loops a compiler can vectorise for any machine (ARM compiles only this).
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace hush {

struct Portable {
    static constexpr int W = 8;
    static constexpr int kWide = 4;
    static constexpr int kPacked = 4;
    static constexpr int kBack = 4;
    static constexpr int kShared = 2;
    static constexpr int kInner = 1;
    struct F {
        float v[W];
    };
    struct A {
        bool v[W];
    };
    template <class Op>
    static F map(F a, F b, Op op) {
        F r;
        for (int i = 0; i < W; ++i) r.v[i] = op(a.v[i], b.v[i]);
        return r;
    }
    template <class Test>
    static A test(F a, Test is) {
        A r;
        for (int i = 0; i < W; ++i) r.v[i] = is(a.v[i]);
        return r;
    }

    static F zero() { return F{}; }
    static F set1(float x) {
        F r;
        for (float& lane : r.v) lane = x;
        return r;
    }
    static F load(const float* p) {
        F r;
        std::memcpy(r.v, p, sizeof r.v);
        return r;
    }
    static F load_n(const float* p, int n) {
        F r{};
        for (int i = 0; i < n; ++i) r.v[i] = p[i];
        return r;
    }
    static void store(float* p, F x) { std::memcpy(p, x.v, sizeof x.v); }
    static void store_n(float* p, F x, int n) {
        for (int i = 0; i < n; ++i) p[i] = x.v[i];
    }
    static F load(const uint16_t* p) { return load_n(p, W); }
    static F load_n(const uint16_t* p, int n) {
        F r{};
        for (int i = 0; i < n; ++i) {
            const uint32_t bits = static_cast<uint32_t>(p[i]) << 16;
            std::memcpy(&r.v[i], &bits, 4);
        }
        return r;
    }
    static F fma(F a, F b, F c) {
        for (int i = 0; i < W; ++i) c.v[i] += a.v[i] * b.v[i];
        return c;
    }
    static F add(F a, F b) { return map(a, b, [](float x, float y) { return x + y; }); }
    static F sub(F a, F b) { return map(a, b, [](float x, float y) { return x - y; }); }
    static F mul(F a, F b) { return map(a, b, [](float x, float y) { return x * y; }); }
    static F div(F a, F b) { return map(a, b, [](float x, float y) { return x / y; }); }
    static F sqrt(F a) {
        for (float& lane : a.v) lane = std::sqrt(lane);
        return a;
    }
    // Written so that a NaN in x passes through.
    static F at_least(F x, F low) { return map(x, low, [](float a, float b) { return a < b ? b : a; }); }
    static F at_most(F x, F high) { return map(x, high, [](float a, float b) { return a > b ? b : a; }); }
    static A nonzero(F x) { return test(x, [](float a) { return !(a == 0.0f); }); }
    static A not_at_most(F x, F t) {
        const float bound = t.v[0];
        return test(x, [bound](float a) { return !(a <= bound); });
    }
    static A no_more(F x, F t) {
        A r;
        for (int i = 0; i < W; ++i) r.v[i] = x.v[i] <= t.v[i];
        return r;
    }
    static bool any(A a) {
        bool some = false;
        for (bool lane : a.v) some |= lane;
        return some;
    }
    static F keep(F x, A a) {
        for (int i = 0; i < W; ++i) x.v[i] = a.v[i] ? x.v[i] : 0.0f;
        return x;
    }
    static A first(A a, int n) {
        for (int i = n; i < W; ++i) a.v[i] = false;
        return a;
    }

    static int compress(F x, A a, uint32_t base, float* values, uint32_t* indices) {
        int n = 0;
        for (int i = 0; i < W; ++i) {  // no branch: write, then advance by 0 or 1
            values[n] = x.v[i];
            indices[n] = base + static_cast<uint32_t>(i);
            n += a.v[i];
        }
        return n;
    }
    static void count(uint32_t* counters, A a) {
        for (int i = 0; i < W; ++i) counters[i] += a.v[i];
    }
    static float sum(F a) {
        float s = 0.0f;
        for (float lane : a.v) s += lane;
        return s;
    }
    static void put_sums(float* p, F a, F b, F c, F d) {
        p[0] = sum(a), p[1] = sum(b), p[2] = sum(c), p[3] = sum(d);
    }
    static void add_sums(float* p, F a, F b, F c, F d) {
        p[0] += sum(a), p[1] += sum(b), p[2] += sum(c), p[3] += sum(d);
    }
};

}  // namespace hush
