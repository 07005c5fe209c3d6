// Sixteen lanes with AVX-512 F, BW and VL.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace hush {

struct Avx512 {
    static constexpr int W = 16;
    static constexpr int kWide = 20;   // a 300-wide output stays in 19 registers
    static constexpr int kPacked = 8;
    static constexpr int kBack = 5;
    static constexpr int kShared = 6;
    static constexpr int kInner = 6;
    using F = __m512;
    using A = __mmask16;

    static F zero() { return _mm512_setzero_ps(); }
    static F set1(float x) { return _mm512_set1_ps(x); }
    static A lanes(int n) { return static_cast<A>((1u << n) - 1u); }
    static F load(const float* p) { return _mm512_loadu_ps(p); }
    static F load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(lanes(n), p); }
    static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
    static void store_n(float* p, F x, int n) { _mm512_mask_storeu_ps(p, lanes(n), x); }
    static F widen(__m256i half) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
    }
    static F load(const uint16_t* p) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
    static F load_n(const uint16_t* p, int n) {
        alignas(32) uint16_t part[16] = {};
        for (int i = 0; i < n; ++i) part[i] = p[i];
        return load(part);
    }
    static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
    static F add(F a, F b) { return _mm512_add_ps(a, b); }
    static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
    static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
    static F div(F a, F b) { return _mm512_div_ps(a, b); }
    static F sqrt(F a) { return _mm512_sqrt_ps(a); }
    // x stands second, so a NaN passes through.
    static F at_least(F x, F low) { return _mm512_max_ps(low, x); }
    static F at_most(F x, F high) { return _mm512_min_ps(high, x); }
    static A nonzero(F x) { return _mm512_cmp_ps_mask(x, zero(), _CMP_NEQ_UQ); }
    static A not_at_most(F x, F t) { return _mm512_cmp_ps_mask(x, t, _CMP_NLE_UQ); }
    static A no_more(F x, F t) { return _mm512_cmp_ps_mask(x, t, _CMP_LE_OQ); }
    static bool any(A a) { return a != 0; }
    static F keep(F x, A a) { return _mm512_maskz_mov_ps(a, x); }
    static A first(A a, int n) { return static_cast<A>(a & lanes(n)); }
    static unsigned bits(A a) { return a; }

    // Compressed in the register: a compress to memory is microcoded on Zen 4. Half a vector holds what is active in most,
    // and storing a whole one across two lines costs twice as much.
    static int compress(F x, A a, uint32_t base, float* values, uint32_t* indices) {
        const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i index = _mm512_add_epi32(lane, _mm512_set1_epi32(static_cast<int>(base)));
        const F active = _mm512_maskz_compress_ps(a, x);
        const __m512i at = _mm512_maskz_compress_epi32(a, index);
        const int n = __builtin_popcount(static_cast<unsigned>(a));
        if (n <= 8) {
            _mm256_storeu_ps(values, _mm512_castps512_ps256(active));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(indices), _mm512_castsi512_si256(at));
        } else {
            _mm512_storeu_ps(values, active);
            _mm512_storeu_si512(indices, at);
        }
        return n;
    }
    static void count(uint32_t* counters, A a) {
        const __m512i c = _mm512_loadu_si512(counters);
        _mm512_storeu_si512(counters, _mm512_mask_add_epi32(c, a, c, _mm512_set1_epi32(1)));
    }
    static __m256 halves(F a) {
        return _mm256_add_ps(_mm512_castps512_ps256(a),
                             _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)));
    }
    static __m128 sum4(F a, F b, F c, F d) {
        const __m256 ab = _mm256_hadd_ps(halves(a), halves(b)), cd = _mm256_hadd_ps(halves(c), halves(d));
        const __m256 abcd = _mm256_hadd_ps(ab, cd);
        return _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1));
    }
    static void put_sums(float* p, F a, F b, F c, F d) { _mm_storeu_ps(p, sum4(a, b, c, d)); }
    static void add_sums(float* p, F a, F b, F c, F d) {
        _mm_storeu_ps(p, _mm_add_ps(_mm_loadu_ps(p), sum4(a, b, c, d)));
    }
    static float sum(F a) {
        const __m256 h = halves(a);
        __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
        s = _mm_add_ps(s, _mm_movehl_ps(s, s));
        return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
    }
};

}  // namespace hush
