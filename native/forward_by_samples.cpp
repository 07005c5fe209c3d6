// Forward, the team sharing the samples: every thread takes its own through the whole chain, with the weights in L2
// and its lists in L1. Without gradients the threads never meet; with them they meet once a layer, because what the
// backward reads is sorted by input and each thread sorts a stretch of inputs.
#include <algorithm>
#include <cstring>
#include <vector>

#include "buffers.h"
#include "forward.h"
#include "team.h"

namespace hush {
namespace {

struct Side {  // a lane's compact activations before one layer
    ActiveLists lists;
    uint32_t* cuts;               // [cut][sample]: how many of a sample's entries lie below that cut
    std::vector<uint64_t> below;  // per cut: the same, over the lane's samples
};

struct Lane {  // one thread's samples
    Range samples;
    Side side[2];
    uint32_t* cursor;
    uint64_t active = 0;
};

struct BySamples {
    const ForwardCall& call;
    const Kernels& k;
    std::vector<Lane> lanes;
    Barrier barrier;
    size_t saved_bytes = 0;

    BySamples(const ForwardCall& c) : call(c), k(kernels()), lanes(c.threads) {
        const size_t n = lanes.size();
        for (size_t p = 0; p < n; ++p) lanes[p].samples = {c.batch * p / n, c.batch * (p + 1) / n};
    }

    void place(Cutter& cutter) {
        size_t widest = 0;
        for (size_t l = 0; l < call.n_layers; ++l)
            widest = std::max({widest, call.layers[l].inputs, call.layers[l].outputs});
        const size_t room = round_up(widest, k.lanes) + k.lanes;
        for (Lane& lane : lanes) {
            const size_t n = lane.samples.size();
            for (Side& side : lane.side) {
                side.lists.stride = round_up(room, 16) | 16;  // an odd number of lines: spread over the cache sets
                side.lists.values = cutter.cut<float>(n * side.lists.stride);
                side.lists.indices = cutter.cut<uint32_t>(n * side.lists.stride);
                side.lists.count = cutter.cut<uint32_t>(n);
                side.lists.per_column = cutter.cut<uint32_t>(room);
                side.cuts = cutter.cut<uint32_t>(n * (lanes.size() + 1));
                side.below.assign(lanes.size() + 1, 0);
            }
            lane.cursor = cutter.cut<uint32_t>(room);
        }
    }

    // A width in tiles of registers; the stretches of inputs that the threads sort end at tiles.
    size_t tiles(size_t width) const { return (vectors(width) + k.wide - 1) / k.wide; }
    size_t vectors(size_t width) const { return (width + k.lanes - 1) / k.lanes; }
    Range tile(size_t width, size_t t) const {
        const size_t n = tiles(width), v = vectors(width);
        return {v * t / n * k.lanes, std::min(v * (t + 1) / n * k.lanes, width)};
    }
    size_t cut_tile(size_t width, size_t cut) const { return tiles(width) * cut / lanes.size(); }

    Side& empty_side(size_t layer, Lane& lane, size_t width) {
        Side& side = lane.side[layer % 2];
        std::memset(side.lists.count, 0, lane.samples.size() * 4);
        if (call.saved) std::memset(side.lists.per_column, 0, (round_up(width, k.lanes) + k.lanes) * 4);
        return side;
    }

    ActiveLists target(const Side& side) const {
        ActiveLists lists = side.lists;
        if (!call.saved) lists.per_column = nullptr;
        return lists;
    }

    // Called when tiles [0, t) of a boundary are done: notes the cuts that fall there.
    void note_cuts(Side& side, size_t width, size_t t, size_t n) {
        if (!call.saved) return;
        for (size_t cut = 0; cut <= lanes.size(); ++cut) {
            if (cut_tile(width, cut) != t) continue;
            std::memcpy(side.cuts + cut * n, side.lists.count, n * 4);
            uint64_t below = 0;
            for (size_t b = 0; b < n; ++b) below += side.lists.count[b];
            side.below[cut] = below;
        }
    }

    void count_active(Lane& lane, const Side& side) {
        for (size_t b = 0; b < lane.samples.size(); ++b) lane.active += side.lists.count[b];
    }

    void compact_input(Lane& lane) {
        const Layer& first = call.layers[0];
        Side& side = empty_side(0, lane, first.inputs);
        for (size_t t = 0, n = tiles(first.inputs); t <= n; ++t) {
            note_cuts(side, first.inputs, t, lane.samples.size());
            if (t == n) break;
            const Range columns = tile(first.inputs, t);
            k.compact({call.h + lane.samples.first * call.h_stride, call.h_stride, lane.samples.size(), columns.first,
                       columns.last, first.activation, target(side)});
        }
        count_active(lane, side);
    }

    void run_layer(size_t l, Lane& lane) {
        const Layer& layer = call.layers[l];
        const bool last = l + 1 == call.n_layers;
        const size_t n = lane.samples.size(), item = layer.bf16 ? 2 : 4;
        const ActiveLists& from = lane.side[l % 2].lists;
        const Segment segment{from.values, from.indices, nullptr, from.count, from.stride};
        ForwardTask task{};
        task.batch = n;
        task.segments = &segment;
        task.n_segments = 1;
        task.weight_stride = layer.outputs;
        task.bf16 = layer.bf16;
        task.out_stride = call.out_stride;
        Side* side = last ? nullptr : &empty_side(l + 1, lane, layer.outputs);
        if (side) {
            task.activation = call.layers[l + 1].activation;
            task.lists = target(*side);
        }
        for (size_t t = 0, count = tiles(layer.outputs); t < count; ++t) {
            const Range columns = tile(layer.outputs, t);
            if (side) note_cuts(*side, layer.outputs, t, n);
            task.column = columns.first;
            task.vectors = static_cast<int>(vectors(columns.size()));
            task.tail = static_cast<int>(columns.size() % k.lanes);
            task.weight = static_cast<const char*>(layer.weight) + columns.first * item;
            task.bias = layer.bias ? layer.bias + columns.first : nullptr;
            task.out = last ? call.out + lane.samples.first * call.out_stride + columns.first : nullptr;
            k.forward(task);
        }
        if (side) {
            note_cuts(*side, layer.outputs, tiles(layer.outputs), n);
            count_active(lane, *side);
        }
    }

    // Thread p sorts the p-th stretch of inputs, from the lists of every lane; samples stay in order.
    size_t save(size_t l, size_t p, size_t offset) {
        const size_t inputs = call.layers[l].inputs, end = lanes.size();
        auto below = [&](size_t cut) {
            uint64_t n = 0;
            for (const Lane& lane : lanes) n += lane.side[l % 2].below[cut];
            return n;
        };
        const size_t total = below(end);
        const SavedTarget to = saved_target(call.saved, offset, inputs, total);
        const size_t t0 = cut_tile(inputs, p), t1 = cut_tile(inputs, p + 1);
        const size_t first = t0 < tiles(inputs) ? tile(inputs, t0).first : inputs;
        const size_t last = t1 < tiles(inputs) ? tile(inputs, t1).first : inputs;
        uint32_t* cursor = lanes[p].cursor;
        uint64_t next = below(p);
        for (size_t i = first; i < last; ++i) {
            cursor[i - first] = to.column_start[i] = static_cast<uint32_t>(next);
            for (const Lane& lane : lanes) next += lane.side[l % 2].lists.per_column[i];
        }
        if (p == 0) {
            write_row(call.saved, l, offset, total, inputs);
            to.column_start[inputs] = static_cast<uint32_t>(total);
        }
        for (const Lane& lane : lanes) {
            const Side& side = lane.side[l % 2];
            const size_t n = lane.samples.size();
            scatter_lists(side.lists, 0, n, lane.samples.first, side.cuts + p * n, side.cuts + (p + 1) * n,
                          static_cast<uint32_t>(first), cursor, to, index_bytes(call.batch));
        }
        return offset + saved_layer_bytes(inputs, total, index_bytes(call.batch));
    }

    void run(int id, int n) {
        size_t offset = saved_table_bytes(call.n_layers), after = offset;
        auto each = [&](auto&& work) {
            for (size_t p = id; p < lanes.size(); p += n) work(p);
        };
        each([&](size_t p) { compact_input(lanes[p]); });
        for (size_t l = 0; l < call.n_layers; ++l) {
            if (call.saved) {
                barrier.wait(n);
                each([&](size_t p) { after = save(l, p, offset); });
                offset = after;
            }
            each([&](size_t p) { run_layer(l, lanes[p]); });
        }
        if (id == 0) saved_bytes = offset;
    }
};

}  // namespace

ForwardResult forward_by_samples(const ForwardCall& call) {
    BySamples f(call);
    Cutter size(nullptr);
    f.place(size);
    Block block(size.used());
    Cutter cutter(block.data());
    f.place(cutter);
    write_table(call.saved, call.n_layers, call.batch);
    run_team(call.threads, [&f](int id, int n) { f.run(id, n); });
    ForwardResult result;
    result.saved_bytes = call.saved ? f.saved_bytes : 0;
    for (const Lane& lane : f.lanes) result.active += lane.active;
    return result;
}

}  // namespace hush
