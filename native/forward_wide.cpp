// Forward of layers larger than L2: the team shares the samples while it lists active units, and a layer's outputs while it
// multiplies, so that every thread reads its share of the weights only once.
//
// The lists of a thread's samples stand one behind the other, and take as much memory as there are active units: lists with
// room for all units would have every sample on pages of its own.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "buffers.h"
#include "forward.h"
#include "team.h"

namespace hush {
namespace {
// A packed tile of weights stays in L2 while all samples pass it: smaller ones, and tiles in L1, start more often than they
// save. Tiles that are read in place are wider and go by the same blocks of rows.
constexpr size_t kTileBytes = 256 * 1024;
constexpr int kTileVectors = 16;
// Reuse of a weight over the batch from which a packed copy pays, and a thread's share of a layer that stays in L2 unpacked.
constexpr double kPackReuse = 4.0;
constexpr size_t kDirectBytes = 256 * 1024;

struct Lane {  // one thread's samples
    Range samples;
    float* values;
    uint32_t* indices;
    uint32_t* cuts;    // [block][sample]: where in the lists a sample's units of that block begin; of the last one, end
    uint32_t* counts;  // samples in which each unit is active
    uint64_t active = 0;
};

struct Part {  // what a thread needs for its outputs
    float *tile, *partial;
    uint32_t* cursor;
    uint32_t* samples;  // in which each unit is active
    size_t used;        // units that any sample has
};

struct Wide {
    const ForwardCall& call;
    const Kernels& k;
    std::vector<Lane> lanes;
    std::vector<Part> parts;
    float* between = nullptr;  // the outputs of a layer that is not the last, before φ
    size_t stride = 0;         // of `between`
    Barrier barrier{};
    size_t saved_bytes = 0;
    uint64_t active = 0;

    explicit Wide(const ForwardCall& c) : call(c), k(kernels()), lanes(c.threads), parts(c.threads) {
        for (size_t p = 0; p < lanes.size(); ++p)
            lanes[p].samples = {c.batch * p / lanes.size(), c.batch * (p + 1) / lanes.size()};
    }

    // Inputs in blocks, cut at whole vectors; at least as many blocks as threads, which sort them.
    size_t block_rows() const { return round_up(kTileBytes / (sizeof(float) * k.packed * k.lanes), k.lanes); }
    size_t blocks(size_t inputs) const {
        return std::max((inputs + block_rows() - 1) / block_rows(), lanes.size());
    }
    Range block(size_t inputs, size_t b) const {
        return part_of(inputs, static_cast<int>(b), static_cast<int>(blocks(inputs)), k.lanes);
    }

    void place(Cutter& cutter) {
        size_t widest = 0, outputs = 0;
        for (size_t l = 0; l < call.n_layers; ++l) {
            widest = std::max(widest, call.layers[l].inputs);
            if (l + 1 < call.n_layers) outputs = std::max(outputs, call.layers[l].outputs);
        }
        const size_t room = round_up(widest, k.lanes) + k.lanes;
        for (Lane& lane : lanes) {
            const size_t n = lane.samples.size();
            lane.values = cutter.cut<float>(n * widest + k.lanes);
            lane.indices = cutter.cut<uint32_t>(n * widest + k.lanes);
            lane.cuts = cutter.cut<uint32_t>(n * (blocks(widest) + 1));
            lane.counts = cutter.cut<uint32_t>(room);
        }
        for (Part& part : parts) {
            part.tile = cutter.cut<float>((block_rows() + k.lanes) * k.packed * k.lanes);
            part.partial = cutter.cut<float>(call.batch * std::max<size_t>(k.packed, kTileVectors) * k.lanes);
            part.cursor = cutter.cut<uint32_t>(room);
            part.samples = cutter.cut<uint32_t>(room);
        }
        stride = round_up(outputs, 16) | 16;  // an odd number of lines: samples spread over the cache sets
        if (outputs) between = cutter.cut<float>(call.batch * stride);
    }

    void list(size_t l, Lane& lane, const float* h, size_t h_stride) const {
        const Layer& layer = call.layers[l];
        const size_t n = lane.samples.size(), n_blocks = blocks(layer.inputs);
        std::memset(lane.counts, 0, (round_up(layer.inputs, k.lanes) + k.lanes) * sizeof(uint32_t));
        uint32_t at = 0;
        for (size_t b = 0; b < n; ++b) {
            for (size_t i = 0; i < n_blocks; ++i) {
                lane.cuts[i * n + b] = at;
                uint32_t found = 0;
                const Range columns = block(layer.inputs, i);
                k.compact({h + (lane.samples.first + b) * h_stride, h_stride, 1, columns.first, columns.last, layer.activation,
                           {lane.values + at, lane.indices + at, &found, lane.counts, 0, 0}});
                at += found;
            }
            lane.cuts[n_blocks * n + b] = at;
        }
        lane.active = at;
    }

    void count(size_t inputs, Part& part) const {
        std::memcpy(part.samples, lanes[0].counts, inputs * sizeof(uint32_t));
        for (size_t p = 1; p < lanes.size(); ++p)
            for (size_t i = 0; i < inputs; ++i) part.samples[i] += lanes[p].counts[i];
        part.used = inputs - static_cast<size_t>(std::count(part.samples, part.samples + inputs, 0u));
    }

    // Thread p sorts its stretch of inputs, from the lists of every lane; samples stay in order.
    void save(size_t l, size_t p, size_t offset, uint64_t total) {
        const size_t inputs = call.layers[l].inputs, n_blocks = blocks(inputs);
        const size_t b0 = n_blocks * p / lanes.size(), b1 = n_blocks * (p + 1) / lanes.size();
        if (p == 0) write_row(call.saved, l, offset, total, inputs);
        const SavedTarget to = saved_target(call.saved, offset, inputs, total);
        if (p == 0) to.column_start[inputs] = static_cast<uint32_t>(total);
        if (b0 == b1) return;
        const Range columns = {block(inputs, b0).first, block(inputs, b1 - 1).last};
        uint32_t* cursor = parts[p].cursor;
        const uint32_t* samples = parts[p].samples;
        uint32_t next = std::accumulate(samples, samples + columns.first, uint32_t{0});
        for (size_t i = columns.first; i < columns.last; ++i) {
            cursor[i - columns.first] = to.column_start[i] = next;
            next += samples[i];
        }
        for (const Lane& lane : lanes) {
            const size_t n = lane.samples.size();
            scatter_lists({lane.values, lane.indices, nullptr, nullptr, 0, 0}, 0, n, lane.samples.first, lane.cuts + b0 * n,
                          lane.cuts + b1 * n, static_cast<uint32_t>(columns.first), cursor, to, index_bytes(call.batch));
        }
    }

    // Rows that are used often are packed, where a thread's share of them does not stay in L2.
    static bool packs(const Layer& layer, Range range, const Part& part, uint64_t total) {
        return part.used * range.size() * (layer.bf16 ? 2 : 4) > kDirectBytes &&
               static_cast<double>(total) >= kPackReuse * static_cast<double>(part.used);
    }

    void run_layer(size_t l, int p, uint64_t total) {
        const Layer& layer = call.layers[l];
        const bool last = l + 1 == call.n_layers;
        const Range range = part_of(layer.outputs, p, static_cast<int>(parts.size()), k.lanes);
        const bool pack = packs(layer, range, parts[p], total);
        const size_t item = layer.bf16 ? 2 : 4, most = pack ? k.packed : std::min(k.wide, kTileVectors);
        const size_t vectors = (range.size() + k.lanes - 1) / k.lanes, tiles = (vectors + most - 1) / most;
        float* out = last ? call.out : between;
        ForwardTask task{};
        task.out_stride = last ? call.out_stride : stride;
        task.bf16 = layer.bf16 && !pack;
        for (size_t t = 0; t < tiles; ++t) {
            const size_t v0 = vectors * t / tiles, v1 = vectors * (t + 1) / tiles;
            const size_t column = range.first + v0 * k.lanes, stop = std::min(range.first + v1 * k.lanes, range.last);
            task.vectors = static_cast<int>(v1 - v0);
            task.tail = static_cast<int>((stop - column) % k.lanes);
            task.bias = layer.bias ? layer.bias + column : nullptr;
            run_tile(task, layer, static_cast<const char*>(layer.weight) + column * item, parts[p], out + column, pack);
        }
    }

    void run_tile(ForwardTask task, const Layer& layer, const char* weight, const Part& part, float* out, bool pack) const {
        const size_t n_blocks = blocks(layer.inputs), sums = task.vectors * k.lanes;
        Segment segment{};
        task.segments = &segment;
        task.n_segments = 1;
        for (size_t b = 0; b < n_blocks; ++b) {
            const Range rows = block(layer.inputs, b);
            if (pack) {
                pack_used(task, layer, weight, part, rows);
                task.weight = part.tile, task.weight_stride = sums;
                task.first_row = static_cast<uint32_t>(rows.first), task.rows = rows.size();
            } else {
                task.weight = weight, task.weight_stride = layer.outputs, task.rows = layer.inputs;
            }
            for (const Lane& lane : lanes) {
                const size_t n = lane.samples.size(), first = lane.samples.first;
                task.batch = n;
                segment = {lane.values, lane.indices, lane.cuts + b * n, lane.cuts + (b + 1) * n, 0};
                task.start = b ? part.partial + first * sums : nullptr;
                task.partial = b + 1 < n_blocks ? part.partial + first * sums : nullptr;
                task.out = out + first * task.out_stride;
                k.forward(task);
            }
        }
    }

    void pack_used(const ForwardTask& task, const Layer& layer, const char* weight, const Part& part, Range rows) const {
        const size_t row = layer.outputs * (layer.bf16 ? 2 : 4), sums = task.vectors * k.lanes;
        for (size_t i = rows.first; i < rows.last;) {
            size_t end = i;
            while (end < rows.last && part.samples[end]) ++end;
            if (end > i)
                k.pack({weight + i * row, layer.outputs, end - i, layer.bf16, task.vectors, task.tail,
                        part.tile + (i - rows.first) * sums});
            i = end + 1;
        }
    }

    void run(int id, int n) {
        size_t offset = saved_table_bytes(call.n_layers);
        auto each = [&](auto&& work) {
            for (int p = id; p < static_cast<int>(lanes.size()); p += n) work(p);
        };
        each([&](int p) { list(0, lanes[p], call.h, call.h_stride); });
        for (size_t l = 0; l < call.n_layers; ++l) {
            barrier.wait(n);
            uint64_t total = 0;
            for (const Lane& lane : lanes) total += lane.active;
            each([&](int p) { count(call.layers[l].inputs, parts[p]); });
            if (call.saved) {
                each([&](int p) { save(l, p, offset, total); });
                offset += saved_layer_bytes(call.layers[l].inputs, total, index_bytes(call.batch));
            }
            each([&](int p) { run_layer(l, p, total); });
            if (id == 0) active += total;
            if (l + 1 == call.n_layers) break;
            barrier.wait(n);
            each([&](int p) { list(l + 1, lanes[p], between, stride); });
        }
        if (id == 0) saved_bytes = offset;
    }
};

}  // namespace

ForwardResult forward_wide(const ForwardCall& call) {
    Wide f(call);
    Scratch scratch(f);
    write_table(call.saved, call.n_layers, call.batch);
    run_team(call.threads, [&f](int id, int n) { f.run(id, n); });
    return {call.saved ? f.saved_bytes : 0, f.active};
}

}  // namespace hush
