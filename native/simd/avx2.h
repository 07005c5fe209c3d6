// Eight lanes with AVX2 and FMA. Every type here gives the same names, so that the kernels are written once.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace hush {

// perm[mask] lists the set bits of an 8-bit mask in order: AVX2 has no compress, a permutation does its work.
struct CompressTable {
    alignas(64) uint8_t perm[256][8];
    constexpr CompressTable() : perm{} {
        for (int mask = 0; mask < 256; ++mask) {
            int n = 0;
            for (int lane = 0; lane < 8; ++lane)
                if (mask >> lane & 1) perm[mask][n++] = static_cast<uint8_t>(lane);
        }
    }
};
inline constexpr CompressTable compress_table;
alignas(64) inline constexpr int32_t lane_mask_table[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

struct Avx2 {
    static constexpr int W = 8;
    static constexpr int kWide = 12;   // vectors of a forward tile read straight from the weights
    static constexpr int kPacked = 8;  // vectors of a forward tile read from a packed copy
    static constexpr int kBack = 5;    // vectors of a backward tile: 5 weights, 5 gradients, 4 sums, 2 temporaries
    static constexpr int kShared = 3;   // vectors of a tile of four samples that share their active units
    static constexpr int kInner = 2;    // rows of a tile of four units in the dense product of a block of two matrices
    using F = __m256;
    using A = __m256;  // which lanes are active

    static F zero() { return _mm256_setzero_ps(); }
    static F set1(float x) { return _mm256_set1_ps(x); }
    static F load(const float* p) { return _mm256_loadu_ps(p); }
    static __m256i lanes(int n) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lane_mask_table + 8 - n));
    }
    static F load_n(const float* p, int n) { return _mm256_maskload_ps(p, lanes(n)); }
    static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
    static void store_n(float* p, F x, int n) { _mm256_maskstore_ps(p, lanes(n), x); }
    static F load(const uint16_t* p) {  // bf16 is the upper half of a float
        const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
    }
    static F load_n(const uint16_t* p, int n) {
        alignas(16) uint16_t part[8] = {};
        for (int i = 0; i < n; ++i) part[i] = p[i];
        return load(part);
    }
    static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
    static F add(F a, F b) { return _mm256_add_ps(a, b); }
    static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
    static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
    static F div(F a, F b) { return _mm256_div_ps(a, b); }
    static F sqrt(F a) { return _mm256_sqrt_ps(a); }
    // The x86 min and max return the second operand when one is NaN: x stands second, so a NaN passes through.
    static F at_least(F x, F low) { return _mm256_max_ps(low, x); }
    static F at_most(F x, F high) { return _mm256_min_ps(high, x); }
    static A nonzero(F x) { return _mm256_cmp_ps(x, zero(), _CMP_NEQ_UQ); }
    static A not_at_most(F x, F t) { return _mm256_cmp_ps(x, t, _CMP_NLE_UQ); }
    static A no_more(F x, F t) { return _mm256_cmp_ps(x, t, _CMP_LE_OQ); }  // false for a NaN
    static bool any(A a) { return bits(a) != 0; }
    static F keep(F x, A a) { return _mm256_and_ps(x, a); }
    static A first(A a, int n) { return _mm256_and_ps(a, _mm256_castsi256_ps(lanes(n))); }
    static unsigned bits(A a) { return static_cast<unsigned>(_mm256_movemask_ps(a)); }

    // Writes W entries at values and indices, the active ones first; returns how many are active.
    static int compress(F x, A a, uint32_t base, float* values, uint32_t* indices) {
        const unsigned mask = bits(a);
        const __m256i order = _mm256_cvtepu8_epi32(
            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(compress_table.perm[mask])));
        _mm256_storeu_ps(values, _mm256_permutevar8x32_ps(x, order));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(indices),
                            _mm256_add_epi32(order, _mm256_set1_epi32(static_cast<int>(base))));
        return __builtin_popcount(mask);
    }
    static void count(uint32_t* counters, A a) {
        auto* p = reinterpret_cast<__m256i*>(counters);
        _mm256_storeu_si256(p, _mm256_sub_epi32(_mm256_loadu_si256(p), _mm256_castps_si256(a)));
    }
    static __m128 sum4(F a, F b, F c, F d) {
        const F ab = _mm256_hadd_ps(a, b), cd = _mm256_hadd_ps(c, d);
        const F abcd = _mm256_hadd_ps(ab, cd);
        return _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1));
    }
    static void put_sums(float* p, F a, F b, F c, F d) { _mm_storeu_ps(p, sum4(a, b, c, d)); }
    static void add_sums(float* p, F a, F b, F c, F d) {
        _mm_storeu_ps(p, _mm_add_ps(_mm_loadu_ps(p), sum4(a, b, c, d)));
    }
    static float sum(F a) {
        __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        s = _mm_add_ps(s, _mm_movehl_ps(s, s));
        return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
    }
};

}  // namespace hush
