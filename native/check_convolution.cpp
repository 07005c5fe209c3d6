// make -C native convolutions: the convolution's kernels on random shapes beside plain loops in double, one instruction set
// at a time, under AddressSanitizer and UBSan, then under ThreadSanitizer. Without Python, so that a set compiles in seconds.
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <random>
#include <vector>

#if defined(USE_AVX512)
#include "simd/avx512.h"
using Lanes = hush::Avx512;
#elif defined(USE_AVX2)
#include "simd/avx2.h"
using Lanes = hush::Avx2;
#else
#include "simd/portable.h"
using Lanes = hush::Portable;
#endif
#include "convolution.inl.h"
#include "kernels.h"

namespace hush {
// Whatever the dispatcher asks for, it gets the set under test.
#define UNDER_TEST {"test", Lanes::W, ConvSizes<Lanes>::kTile, count_units<Lanes>, list_row<Lanes>, convolve_row<Lanes>, convolve_back<Lanes>}
const ConvKernels portable_convolution = UNDER_TEST, avx2_convolution = UNDER_TEST, avx512_convolution = UNDER_TEST;
const Kernels& kernels() {
    static Kernels chosen{};
    chosen.name = "test";
    return chosen;
}
}  // namespace hush

using namespace hush;

namespace {

std::mt19937 random_bits(1);
size_t draw(size_t low, size_t high) { return std::uniform_int_distribution<size_t>(low, high)(random_bits); }

ConvShape draw_shape() {
    ConvShape s{};
    s.images = draw(1, 5), s.height = draw(1, 9), s.width = draw(1, 9), s.inputs = draw(1, 40), s.outputs = draw(1, 150);
    s.taps_y = draw(1, 5), s.taps_x = draw(1, 5), s.stride_y = draw(1, 3), s.stride_x = draw(1, 3);
    s.circular = draw(0, 1);
    const size_t most_y = s.circular ? std::min<size_t>(3, s.height) : 5, most_x = s.circular ? std::min<size_t>(3, s.width) : 5;
    s.top = draw(0, most_y), s.bottom = draw(0, most_y), s.left = draw(0, most_x), s.right = draw(0, most_x);
    return s;
}

double error(const std::vector<float>& found, const std::vector<double>& right) {
    double most = 0.0, scale = 1e-3;
    for (size_t i = 0; i < right.size(); ++i) {
        most = std::fmax(most, std::fabs(found[i] - right[i]));
        scale = std::fmax(scale, std::fabs(right[i]));
    }
    return most / scale;
}

// The largest error of the output and of both gradients.
double check(const ConvShape& s) {
    Activation phi;
    phi.threshold = 0.5f, phi.clip = draw(0, 1) ? INFINITY : 1.0f;
    const int threads = static_cast<int>(draw(1, 4));
    const bool want_x = draw(0, 3) != 0;
    const size_t down = s.out_height(), across = s.out_width(), rows = s.taps() * s.inputs;
    const WeightStrides at = draw(0, 1) ? WeightStrides{rows, 1, s.taps_x * s.inputs, s.inputs}
                                        : WeightStrides{rows, s.taps(), s.taps_x, 1};
    std::vector<float> x(s.rows() * s.width * s.inputs), w(s.outputs * rows), delta(s.images * down * across * s.outputs),
        bias(s.outputs), out(delta.size()), dx(x.size()), dw(w.size());
    std::normal_distribution<float> normal;
    for (auto* all : {&x, &w, &delta, &bias})
        for (float& one : *all) one = normal(random_bits);

    std::vector<uint32_t> per_row(s.rows()), starts(s.rows() * (s.padded_width() + 1));
    count_active(s, phi, x.data(), per_row.data(), threads);
    size_t active = 0;
    for (uint32_t n : per_row) active += n;
    std::vector<uint32_t> entries(active);
    std::vector<float> values(active), packed(tiled_weights(s)), tiled(tiled_weights(s));
    const ConvLists lists{starts.data(), entries.data(), values.data(), active};
    list_active(s, phi, x.data(), per_row.data(), lists, threads);
    pack_weights(s, w.data(), at, packed.data(), threads);
    convolution_forward(s, packed.data(), bias.data(), lists, out.data(), threads);
    convolution_backward(s, phi, packed.data(), lists, delta.data(), want_x ? dx.data() : nullptr, tiled.data(), threads);
    unpack_gradient(s, tiled.data(), dw.data(), at, threads);

    std::vector<double> right(out.size()), right_x(x.size()), right_w(w.size());
    for (size_t i = 0; i < out.size(); ++i) {
        const size_t o = i % s.outputs, pixel = i / s.outputs, ox = pixel % across, oy = pixel / across % down;
        const size_t image = pixel / across / down;
        right[i] = bias[o];
        for (size_t tap = 0; tap < s.taps(); ++tap) {
            const size_t ky = tap / s.taps_x, kx = tap % s.taps_x;
            const size_t y = source_of(oy * s.stride_y + ky, s.top, s.height, s.circular);
            const size_t px = source_of(ox * s.stride_x + kx, s.left, s.width, s.circular);
            if (y == kNowhere || px == kNowhere) continue;
            for (size_t c = 0; c < s.inputs; ++c) {
                const size_t xi = ((image * s.height + y) * s.width + px) * s.inputs + c;
                const size_t wi = o * at.output + c * at.input + ky * at.y + kx * at.x;
                const float value = std::fmin(std::fmax(x[xi] - phi.threshold, 0.0f), phi.clip);
                right[i] += static_cast<double>(value) * w[wi];
                right_w[wi] += static_cast<double>(value) * delta[i];
                if (value > 0.0f && value < phi.clip) right_x[xi] += static_cast<double>(w[wi]) * delta[i];
            }
        }
    }
    return std::fmax(std::fmax(error(out, right), error(dw, right_w)), want_x ? error(dx, right_x) : 0.0);
}

}  // namespace

int main() {
    double worst = 0.0;
    for (int trial = 0; trial < 400; ++trial) {
        const ConvShape s = draw_shape();
        if (s.padded_height() < s.taps_y || s.padded_width() < s.taps_x) continue;
        const double found = check(s);
        worst = std::fmax(worst, found);
        if (!(found < 5e-6)) {
            std::printf("shape %d: relative error %g\n", trial, found);
            return 1;
        }
    }
    std::printf("400 random shapes, largest relative error %.1e\n", worst);
}
