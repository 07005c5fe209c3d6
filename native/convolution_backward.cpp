// From ∂L/∂out to ∂L/∂x at the active units and to the weights' gradient: one sweep over the active units of each input,
// in which every δ that is loaded serves both.
//
// δ of a few images at a time is laid out with zeros around it, so that no tap reads outside, and tile by tile of outputs,
// whole vectors wide, because a tile's part must stay in cache while all weights of the tile pass by. A
// thread owns some inputs, for all images: nobody else adds to what it adds to, and the sums do not depend on how many
// threads there are.
#include <algorithm>
#include <cstring>
#include <vector>

#include "buffers.h"
#include "convolution.h"
#include "team.h"

namespace hush {
namespace {

constexpr size_t kFrameBytes = 256 << 10;  // of a tile of δ at a time: a part of L2
constexpr size_t kInputs = 8;              // threads share out inputs by so many

// One axis: position p of the padded image lies at p / stride + margin of the frame, and tap k of phase p mod stride, the
// t-th of them, reads t before it.
struct Axis {
    size_t stride, taps, first, last, margin, size;  // positions [first, last) have pixels
    Axis(size_t stride, size_t taps, size_t before, size_t pixels, size_t padded, size_t outputs, bool circular)
        : stride(stride), taps(taps), first(circular ? 0 : before), last(circular ? padded : before + pixels) {
        const size_t reach = (taps + stride - 1) / stride - 1, least = first / stride;
        margin = reach > least ? reach - least : 0;
        size = margin + std::max(outputs, last ? (last - 1) / stride + 1 : 0);
    }
    size_t taps_of(size_t phase) const { return taps > phase ? (taps - phase + stride - 1) / stride : 0; }
};

// What one thread keeps of a group of images: its inputs' active units, input by input and phase by phase.
struct Sorted {
    std::vector<uint32_t> start;  // of each (input, phase); one more at the end
    uint32_t *positions, *targets;
    float *values, *sums;
};

struct Backward {
    const ConvShape& s;
    const Activation& phi;
    const float* packed;
    const ConvLists& lists;
    const float* delta;
    float* dx;
    float* gradient;
    ConvTiles tiles;
    Axis y, x;
    size_t group, most;  // images at a time, and the most entries they have
    float* frames[2];
    Barrier barrier;

    size_t pixels() const { return y.size * x.size; }  // of a frame
    size_t part(size_t tile) const { return group * pixels() * tiles.first(tile) * tiles.lanes; }  // where it begins
    size_t phases() const { return y.stride * x.stride; }
    const uint32_t* starts(size_t image, size_t row) const {
        return lists.starts + (image * s.height + row) * (s.padded_width() + 1);
    }

    void fill(size_t first, size_t last, float* frames, int id, int n) const {
        const size_t down = s.out_height(), across = s.out_width();
        const size_t rows = (last - first) * down, pixel = s.height * s.width * s.inputs;
        for (size_t r = rows * id / n; r < rows * (id + 1) / n; ++r) {
            const size_t image = r / down, row = r % down;
            const float* from = delta + ((first + image) * down + row) * across * s.outputs;
            const size_t place = image * pixels() + (row + y.margin) * x.size + x.margin;
            for (size_t tile = 0; tile < tiles.count(); ++tile) {
                const size_t at = tiles.first(tile) * tiles.lanes, width = tiles.size(tile) * tiles.lanes;
                const size_t outputs = std::min(width, s.outputs - at);
                float* to = frames + part(tile) + place * width;
                for (size_t o = 0; o < across; ++o) std::copy_n(from + o * s.outputs + at, outputs, to + o * width);
            }
        }
        if (dx) {
            const size_t all = (last - first) * pixel, from = all * id / n, to = all * (id + 1) / n;
            std::memset(dx + first * pixel + from, 0, (to - from) * sizeof(float));
        }
    }

    // visit(first entry, end, position in the frames, phase, target in dx) for each pixel, a repeated one more than once.
    template <class Visit>
    void each_pixel(size_t first, size_t last, Visit visit) const {
        for (size_t image = first; image < last; ++image)
            for (size_t py = y.first; py < y.last; ++py) {
                const size_t row = source_of(py, s.top, s.height, s.circular);
                const uint32_t* at = starts(image, row);
                const size_t line = ((image - first) * y.size + py / y.stride + y.margin) * x.size + x.margin;
                for (size_t px = x.first; px < x.last; ++px) {
                    const size_t target = ((image - first) * s.height + row) * s.width + source_of(px, s.left, s.width, s.circular);
                    visit(at[px], at[px + 1], px, line + px / x.stride, (py % y.stride) * x.stride + px % x.stride,
                          target * s.inputs);
                }
            }
    }

    void sort(size_t first, size_t last, size_t c0, size_t c1, Sorted& sorted) const {
        const size_t phases = this->phases();
        const uint32_t span = static_cast<uint32_t>(c1 - c0);
        std::fill(sorted.start.begin(), sorted.start.end(), 0);
        each_pixel(first, last, [&](uint32_t e, uint32_t end, size_t px, size_t, size_t phase, size_t) {
            const uint32_t base = static_cast<uint32_t>(px * s.inputs + c0);
            for (; e < end; ++e) {
                const uint32_t c = lists.entries[e] - base;
                if (c < span) ++sorted.start[c * phases + phase + 1];
            }
        });
        for (size_t i = 1; i < sorted.start.size(); ++i) sorted.start[i] += sorted.start[i - 1];
        each_pixel(first, last, [&](uint32_t e, uint32_t end, size_t px, size_t position, size_t phase, size_t target) {
            const uint32_t base = static_cast<uint32_t>(px * s.inputs + c0);
            for (; e < end; ++e) {
                const uint32_t c = lists.entries[e] - base;
                if (c >= span) continue;
                const uint32_t at = sorted.start[c * phases + phase]++;
                sorted.positions[at] = static_cast<uint32_t>(position);
                sorted.targets[at] = static_cast<uint32_t>(target + c0 + c);
                sorted.values[at] = lists.values[e];
            }
        });
        // Every start has moved to the next one's.
        for (size_t i = sorted.start.size() - 1; i > 0; --i) sorted.start[i] = sorted.start[i - 1];
        sorted.start[0] = 0;
    }

    void sweep(const float* frames, size_t c0, size_t c1, const Sorted& sorted) const {
        const ConvKernels& k = convolution_kernels();
        const size_t phases = this->phases();
        for (size_t tile = 0; tile < tiles.count(); ++tile) {
            const size_t first = tiles.first(tile) * tiles.lanes, width = tiles.size(tile) * tiles.lanes;
            const size_t base = s.taps() * s.inputs * first;
            for (size_t c = c0; c < c1; ++c)
                for (size_t phase = 0; phase < phases; ++phase) {
                    const uint32_t at = sorted.start[(c - c0) * phases + phase], end = sorted.start[(c - c0) * phases + phase + 1];
                    const size_t phase_y = phase / x.stride, phase_x = phase % x.stride;
                    if (at == end || !x.taps_of(phase_x)) continue;
                    for (size_t t = 0; t < y.taps_of(phase_y); ++t) {
                        const size_t tap = (phase_y + t * y.stride) * s.taps_x + phase_x;
                        const size_t row = base + (tap * s.inputs + c) * width;
                        ConvBackwardTask task{};
                        task.delta = frames + part(tile);
                        task.delta_stride = width;
                        task.positions = sorted.positions + at;
                        task.shift = static_cast<uint32_t>(t * x.size);
                        task.values = sorted.values + at;
                        task.entries = end - at;
                        task.vectors = static_cast<int>(tiles.size(tile));
                        task.taps = x.taps_of(phase_x);
                        task.weight = packed + row;
                        task.gradient = gradient + row;
                        task.tap_stride = x.stride * s.inputs * width;
                        task.sums = dx ? sorted.sums + at : nullptr;
                        k.backward(task);
                    }
                }
        }
    }

    void run(int id, int n) {
        const size_t blocks = (s.inputs + kInputs - 1) / kInputs;
        const size_t c0 = std::min(s.inputs, blocks * id / n * kInputs), c1 = std::min(s.inputs, blocks * (id + 1) / n * kInputs);
        Block memory(4 * (most * sizeof(float) + 2 * kLine));
        Cutter cutter(memory.data());
        Sorted sorted;
        sorted.start.resize((c1 - c0) * phases() + 1);
        sorted.positions = cutter.cut<uint32_t>(most), sorted.targets = cutter.cut<uint32_t>(most);
        sorted.values = cutter.cut<float>(most), sorted.sums = cutter.cut<float>(most);
        for (size_t first = 0, turn = 0; first < s.images; first += group, ++turn) {
            const size_t last = std::min(s.images, first + group);
            float* frame = frames[turn % 2];
            fill(first, last, frame, id, n);
            if (c0 < c1) sort(first, last, c0, c1, sorted);
            // One wait is enough: nobody fills this frame again before all have come to the next wait.
            barrier.wait(n);
            if (c0 == c1) continue;
            const uint32_t found = sorted.start.back();
            if (dx) std::fill_n(sorted.sums, found, 0.0f);
            sweep(frame, c0, c1, sorted);
            if (!dx) continue;
            float* to = dx + first * s.height * s.width * s.inputs;
            for (uint32_t i = 0; i < found; ++i)
                if (phi.slope(sorted.values[i]) != 0.0f) to[sorted.targets[i]] += sorted.sums[i];
        }
    }
};

}  // namespace

void convolution_backward(const ConvShape& s, const Activation& phi, const float* packed, const ConvLists& lists,
                          const float* delta, float* dx, float* packed_gradient, int threads) {
    Backward b{s, phi, packed, lists, delta, dx, packed_gradient, tiles_of(s),
               Axis(s.stride_y, s.taps_y, s.top, s.height, s.padded_height(), s.out_height(), s.circular),
               Axis(s.stride_x, s.taps_x, s.left, s.width, s.padded_width(), s.out_width(), s.circular),
               1, 1, {nullptr, nullptr}, {}};
    const size_t of_tile = b.pixels() * std::min(b.tiles.most, b.tiles.vectors) * b.tiles.lanes * sizeof(float);
    b.group = std::max<size_t>(1, std::min(s.images, kFrameBytes / of_tile));
    for (size_t first = 0; first < s.images; first += b.group) {
        size_t entries = 0;
        b.each_pixel(first, std::min(s.images, first + b.group),
                     [&](uint32_t e, uint32_t end, size_t, size_t, size_t, size_t) { entries += end - e; });
        b.most = std::max(b.most, entries);
    }
    const size_t frames = b.group * b.pixels() * b.tiles.width();
    Block memory(2 * frames * sizeof(float));
    for (int i = 0; i < 2; ++i) b.frames[i] = reinterpret_cast<float*>(memory.data()) + i * frames;
    std::memset(memory.data(), 0, 2 * frames * sizeof(float));
    std::fill_n(packed_gradient, tiled_weights(s), 0.0f);
    const size_t blocks = (s.inputs + kInputs - 1) / kInputs;
    const int team = static_cast<int>(std::min<size_t>(std::max(threads, 1), std::max<size_t>(blocks, 1)));
    run_team(team, [&](int id, int n) { b.run(id, n); });
}

}  // namespace hush
