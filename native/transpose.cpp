#include "transpose.h"

#include <algorithm>

#include "team.h"

#ifdef HUSH_X86
#include <xmmintrin.h>
#endif

namespace hush {
namespace {

// A square of this side is one cache line wide on both sides: every line that is fetched is used whole.
constexpr size_t kSide = 16;
// Rows of the result that a thread takes at a time.
constexpr size_t kStrip = 64;

#ifdef HUSH_X86
// Four by four in registers: every x86-64 has these instructions.
void square(const float* from, size_t from_stride, float* to, size_t to_stride) {
    for (size_t c = 0; c < kSide; c += 4)
        for (size_t r = 0; r < kSide; r += 4) {
            const float* at = from + r * from_stride + c;
            __m128 a = _mm_loadu_ps(at), b = _mm_loadu_ps(at + from_stride), d = _mm_loadu_ps(at + 2 * from_stride),
                   e = _mm_loadu_ps(at + 3 * from_stride);
            _MM_TRANSPOSE4_PS(a, b, d, e);
            float* put = to + c * to_stride + r;
            _mm_storeu_ps(put, a), _mm_storeu_ps(put + to_stride, b), _mm_storeu_ps(put + 2 * to_stride, d),
                _mm_storeu_ps(put + 3 * to_stride, e);
        }
}
#else
void square(const float* from, size_t from_stride, float* to, size_t to_stride) {
    for (size_t c = 0; c < kSide; ++c)
        for (size_t r = 0; r < kSide; ++r) to[c * to_stride + r] = from[r * from_stride + c];
}
#endif

}  // namespace

void transpose_part(const float* from, size_t from_stride, float* to, size_t to_stride, size_t rows, size_t columns) {
    for (size_t c = 0; c < columns; c += kSide) {
        const size_t c1 = std::min(c + kSide, columns);
        for (size_t r = 0; r < rows; r += kSide) {
            const size_t r1 = std::min(r + kSide, rows);
            if (c1 - c == kSide && r1 - r == kSide) {
                square(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
                continue;
            }
            for (size_t i = c; i < c1; ++i)
                for (size_t j = r; j < r1; ++j) to[i * to_stride + j] = from[j * from_stride + i];
        }
    }
}

void transpose(const std::vector<Transposition>& all, int threads) {
    size_t strips = 0;
    for (const Transposition& t : all) strips += (t.columns + kStrip - 1) / kStrip;
    const int team = static_cast<int>(std::min<size_t>(std::max(threads, 1), std::max<size_t>(strips, 1)));
    run_team(team, [&](int id, int n) {
        // Every thread counts through the strips and takes its own stretch of them.
        const size_t from = strips * id / n, to = strips * (id + 1) / n;
        size_t at = 0;
        for (const Transposition& t : all)
            for (size_t c = 0; c < t.columns; c += kStrip, ++at)
                if (at >= from && at < to)
                    transpose_part(t.from + c, t.columns, t.to + c * t.rows, t.rows, t.rows, std::min(kStrip, t.columns - c));
    });
}

}  // namespace hush
