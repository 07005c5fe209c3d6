// The AVX-512 intrinsics that avx512.h uses, written as loops from their documentation: a test build (HUSH_EMULATE)
// runs that lane type on a machine without the instructions. Slow, and no proof that the compiler's code is right.
#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace hush::emulate {

template <class T, int N>
struct Lanes {
    T v[N];
};
using F = Lanes<float, 16>;
using I = Lanes<int32_t, 16>;
using D = Lanes<double, 8>;
using M = __mmask16;

template <class V, class G>
V each(G lane) {
    V r;
    for (int i = 0; i < 16; ++i) r.v[i] = lane(i);
    return r;
}
template <class To, class From>
To cast(const From& x) {
    To r;
    std::memcpy(&r, &x, sizeof r);
    return r;
}
inline F set1(float x) { return each<F>([&](int) { return x; }); }
inline I set1i(int x) { return each<I>([&](int) { return x; }); }
template <class... T>
I setr(T... x) {
    return I{{x...}};
}
template <class V>
V load(const void* p) {
    V r;
    std::memcpy(&r, p, sizeof r);
    return r;
}
template <class V>
void store(void* p, const V& x) {
    std::memcpy(p, &x, sizeof x);
}
inline F load_some(M m, const float* p) { return each<F>([&](int i) { return m >> i & 1 ? p[i] : 0.0f; }); }
inline void store_some(float* p, M m, const F& x) {
    for (int i = 0; i < 16; ++i)
        if (m >> i & 1) p[i] = x.v[i];
}
inline I widen(__m256i half) {
    uint16_t h[16];
    std::memcpy(h, &half, sizeof h);
    return each<I>([&](int i) { return static_cast<int32_t>(h[i]); });
}
inline I shift(const I& a, int n) {
    return each<I>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << n); });
}
inline F fma(const F& a, const F& b, const F& c) {
    return each<F>([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
inline F add(const F& a, const F& b) { return each<F>([&](int i) { return a.v[i] + b.v[i]; }); }
inline F sub(const F& a, const F& b) { return each<F>([&](int i) { return a.v[i] - b.v[i]; }); }
inline F mul(const F& a, const F& b) { return each<F>([&](int i) { return a.v[i] * b.v[i]; }); }
inline F div(const F& a, const F& b) { return each<F>([&](int i) { return a.v[i] / b.v[i]; }); }
inline F root(const F& a) { return each<F>([&](int i) { return std::sqrt(a.v[i]); }); }
// Both give the second operand when one is a NaN.
inline F max(const F& a, const F& b) { return each<F>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; }); }
inline F min(const F& a, const F& b) { return each<F>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; }); }
inline M compare(const F& a, const F& b, int how) {
    unsigned m = 0;
    for (int i = 0; i < 16; ++i) {
        const bool yes = how == _CMP_NEQ_UQ   ? !(a.v[i] == b.v[i])
                         : how == _CMP_LE_OQ ? a.v[i] <= b.v[i]
                                             : !(a.v[i] <= b.v[i]);  // _CMP_NLE_UQ
        m |= static_cast<unsigned>(yes) << i;
    }
    return static_cast<M>(m);
}
inline F keep(M m, const F& x) { return each<F>([&](int i) { return m >> i & 1 ? x.v[i] : 0.0f; }); }
inline I addi(const I& a, const I& b) { return each<I>([&](int i) { return a.v[i] + b.v[i]; }); }
inline I add_some(const I& other, M m, const I& a, const I& b) {
    return each<I>([&](int i) { return m >> i & 1 ? a.v[i] + b.v[i] : other.v[i]; });
}
template <class V>
V compress(M m, const V& x) {
    V r{};
    for (int i = 0, n = 0; i < 16; ++i)
        if (m >> i & 1) r.v[n++] = x.v[i];
    return r;
}
inline __m256 lower(const F& a) { return _mm256_loadu_ps(a.v); }
inline __m256d half(const D& a, int which) { return _mm256_loadu_pd(a.v + 4 * which); }

}  // namespace hush::emulate

#undef _mm512_setr_epi32
#undef _mm512_cmp_ps_mask
#undef _mm512_extractf64x4_pd
#undef _mm512_slli_epi32
#define __m512 hush::emulate::F
#define __m512i hush::emulate::I
#define __m512d hush::emulate::D
#define _mm512_setzero_ps() hush::emulate::set1(0.0f)
#define _mm512_set1_ps hush::emulate::set1
#define _mm512_set1_epi32 hush::emulate::set1i
#define _mm512_setr_epi32 hush::emulate::setr
#define _mm512_loadu_ps hush::emulate::load<hush::emulate::F>
#define _mm512_loadu_si512 hush::emulate::load<hush::emulate::I>
#define _mm512_storeu_ps hush::emulate::store<hush::emulate::F>
#define _mm512_storeu_si512 hush::emulate::store<hush::emulate::I>
#define _mm512_maskz_loadu_ps hush::emulate::load_some
#define _mm512_mask_storeu_ps hush::emulate::store_some
#define _mm512_castsi512_ps hush::emulate::cast<hush::emulate::F>
#define _mm512_castps_pd hush::emulate::cast<hush::emulate::D>
#define _mm512_cvtepu16_epi32 hush::emulate::widen
#define _mm512_slli_epi32 hush::emulate::shift
#define _mm512_fmadd_ps hush::emulate::fma
#define _mm512_add_ps hush::emulate::add
#define _mm512_sub_ps hush::emulate::sub
#define _mm512_mul_ps hush::emulate::mul
#define _mm512_div_ps hush::emulate::div
#define _mm512_sqrt_ps hush::emulate::root
#define _mm512_max_ps hush::emulate::max
#define _mm512_min_ps hush::emulate::min
#define _mm512_cmp_ps_mask hush::emulate::compare
#define _mm512_maskz_mov_ps hush::emulate::keep
#define _mm512_add_epi32 hush::emulate::addi
#define _mm512_mask_add_epi32 hush::emulate::add_some
#define _mm512_maskz_compress_ps hush::emulate::compress
#define _mm512_maskz_compress_epi32 hush::emulate::compress
#define _mm512_castps512_ps256 hush::emulate::lower
#define _mm512_castsi512_si256 hush::emulate::cast<__m256i>
#define _mm512_extractf64x4_pd hush::emulate::half
