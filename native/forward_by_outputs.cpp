// Forward, the team sharing each layer's outputs: for batches smaller than the team and for layers larger than L2,
// where every thread should read its share of the weights only once.
#include <algorithm>
#include <cstring>
#include <vector>

#include "buffers.h"
#include "forward.h"
#include "team.h"

namespace hush {
namespace {

// Reuse of a weight strip over the batch from which a packed, aligned copy of it should pay. Not tuned.
constexpr double kPackReuse = 4.0;
// A packed tile fills a quarter of L2. In L1 the loop would run 1.4 times as fast, but its stretches become so short
// that starting them costs more.
constexpr size_t kTileBytes = 128 * 1024;
// A thread's share of the weights up to this size is read in place, straight from L2.
constexpr size_t kDirectBytes = 256 * 1024;
constexpr size_t kPackBatch = 8;

struct Boundary {  // the compact activations between two layers, one set of lists per part
    std::vector<ActiveLists> parts;
    std::vector<uint32_t*> cuts;  // per part: where, in each sample's list, each block of columns but the first begins
};

struct Scratch {  // of one part
    float *tile, *partial;
    uint32_t* cursor;
};

struct Forward {
    const Layer* layers;
    size_t n_layers, batch;
    const float* h;
    size_t h_stride;
    float* out;
    size_t out_stride;
    char* saved;
    int parts;
    const Kernels& k;
    Boundary boundary[2];
    std::vector<Scratch> scratch;
    std::vector<uint64_t> active;  // [layer][part]
    Barrier barrier;

    size_t width(size_t layer) const { return layers[layer].inputs; }
    Range columns(size_t layer, int part) const { return part_of(width(layer), part, parts, k.lanes); }

    void place(Cutter& cutter) {
        size_t widest = 0, widest_out = 0;
        for (size_t l = 0; l < n_layers; ++l) {
            widest = std::max(widest, layers[l].inputs);
            widest_out = std::max(widest_out, layers[l].outputs);
        }
        scratch.assign(parts, {});
        const size_t room = ((widest + k.lanes - 1) / k.lanes / parts + 2) * k.lanes;
        for (Boundary& side : boundary) {
            side.parts.assign(parts, {});
            side.cuts.assign(parts, nullptr);
            for (int p = 0; p < parts; ++p) {
                ActiveLists& lists = side.parts[p];
                lists.stride = round_up(room, 16) | 16;  // an odd number of lines: samples spread over the cache sets
                lists.values = cutter.cut<float>(batch * lists.stride);
                lists.indices = cutter.cut<uint32_t>(batch * lists.stride);
                lists.count = cutter.cut<uint32_t>(batch);
                lists.per_column = cutter.cut<uint32_t>(room);
                side.cuts[p] = cutter.cut<uint32_t>(batch * blocks(room));
            }
        }
        for (Scratch& s : scratch) {
            s.tile = cutter.cut<float>(block_rows() * k.packed * k.lanes);
            s.partial = cutter.cut<float>(batch * k.packed * k.lanes);
            s.cursor = cutter.cut<uint32_t>(room);
        }
    }

    // A part's columns are the next layer's rows: in blocks of so many, a packed tile of them fits L1.
    size_t block_rows() const { return std::max<size_t>(kTileBytes / (4 * k.packed * k.lanes), 1); }
    size_t blocks(size_t columns) const { return (columns + block_rows() - 1) / block_rows(); }
    Range block_of(Range part, size_t block, size_t n) const {
        return {part.first + part.size() * block / n, part.first + part.size() * (block + 1) / n};
    }

    ActiveLists lists_for(size_t layer, int part) {  // emptied, for the part's columns of that boundary
        ActiveLists lists = boundary[layer % 2].parts[part];
        const Range range = columns(layer, part);
        lists.first_column = range.first;
        std::memset(lists.count, 0, batch * 4);
        if (saved)
            std::memset(lists.per_column, 0, (range.size() + k.lanes) * 4);
        else
            lists.per_column = nullptr;
        return lists;
    }

    void publish(size_t layer, int part) {
        const uint32_t* count = boundary[layer % 2].parts[part].count;
        uint64_t total = 0;
        for (size_t b = 0; b < batch; ++b) total += count[b];
        active[layer * parts + part] = total;
        if (batch < kPackBatch) return;
        // Lists ascend, so a block's entries are a stretch of each: found by bisection.
        const Range range = columns(layer, part);
        const size_t n = blocks(range.size());
        const ActiveLists& lists = boundary[layer % 2].parts[part];
        uint32_t* cuts = boundary[layer % 2].cuts[part];
        for (size_t block = 1; block < n; ++block) {
            const uint32_t row = static_cast<uint32_t>(block_of(range, block, n).first);
            uint32_t* cut = cuts + block * batch;
            for (size_t b = 0; b < batch; ++b) {
                const uint32_t* index = lists.indices + b * lists.stride;
                const uint32_t from = block > 1 ? cut[b - batch] : 0;
                cut[b] = static_cast<uint32_t>(std::lower_bound(index + from, index + count[b], row) - index);
            }
        }
    }

    void compact_input(int part) {
        const Range range = columns(0, part);
        k.compact({h, h_stride, batch, range.first, range.last, layers[0].activation, lists_for(0, part)});
        publish(0, part);
    }

    uint64_t layer_active(size_t layer) const {
        uint64_t total = 0;
        for (int p = 0; p < parts; ++p) total += active[layer * parts + p];
        return total;
    }

    // Sorts the part's lists by column: what the backward sums over is, per input, the samples that used it.
    void save(size_t layer, int part, size_t offset) {
        const Range range = columns(layer, part);
        const size_t inputs = width(layer), total = layer_active(layer);
        const SavedTarget to = saved_target(saved, offset, inputs, total);
        if (part == 0) write_row(saved, layer, offset, total, inputs);
        const ActiveLists& lists = boundary[layer % 2].parts[part];
        uint64_t next = 0;
        for (int p = 0; p < part; ++p) next += active[layer * parts + p];
        uint32_t* cursor = scratch[part].cursor;
        for (size_t j = 0; j < range.size(); ++j) {
            cursor[j] = to.column_start[range.first + j] = static_cast<uint32_t>(next);
            next += lists.per_column[j];
        }
        if (part == parts - 1) to.column_start[inputs] = static_cast<uint32_t>(next);
        scatter_lists(lists, 0, batch, 0, nullptr, lists.count, static_cast<uint32_t>(range.first), cursor, to,
                      index_bytes(batch));
    }

    void run_layer(size_t l, int part) {
        const Layer& layer = layers[l];
        const bool last = l + 1 == n_layers;
        const Range range = part_of(layer.outputs, part, parts, k.lanes);
        ForwardTask task{};
        task.batch = batch;
        if (last)
            task.out_stride = out_stride;
        else {
            task.activation = layers[l + 1].activation;
            task.lists = lists_for(l + 1, part);
        }
        std::vector<Segment> segments;
        for (const ActiveLists& lists : boundary[l % 2].parts)
            segments.push_back({lists.values, lists.indices, nullptr, lists.count, lists.stride});
        task.segments = segments.data();
        task.n_segments = parts;

        const bool pack = batch >= kPackBatch && packs(layer, range) &&
                          static_cast<double>(layer_active(l)) >= kPackReuse * static_cast<double>(layer.inputs);
        const size_t vectors = (range.size() + k.lanes - 1) / k.lanes;
        const size_t most = pack ? k.packed : k.wide;
        const size_t tiles = (vectors + most - 1) / most;
        const size_t item = layer.bf16 ? 2 : 4;
        for (size_t t = 0; t < tiles; ++t) {
            const size_t v0 = vectors * t / tiles, v1 = vectors * (t + 1) / tiles;
            const size_t column = range.first + v0 * k.lanes;
            const size_t stop = std::min(range.first + v1 * k.lanes, range.last);
            task.column = column;
            task.vectors = static_cast<int>(v1 - v0);
            task.tail = static_cast<int>((stop - column) % k.lanes);
            task.bias = layer.bias ? layer.bias + column : nullptr;
            task.out = last ? out + column : nullptr;
            const char* weight = static_cast<const char*>(layer.weight) + column * item;
            if (pack) {
                run_packed(task, l, weight, part);
            } else {
                task.weight = weight;
                task.weight_stride = layer.outputs;
                task.rows = layer.inputs;
                task.bf16 = layer.bf16;
                k.forward(task);
            }
        }
        if (!last) publish(l + 1, part);
    }

    // A large share does not stay in L2; rows a multiple of 1 KB apart fall into few of its sets.
    static bool packs(const Layer& layer, Range range) {
        const size_t item = layer.bf16 ? 2 : 4;
        return layer.inputs * range.size() * item > kDirectBytes || layer.outputs * item % 1024 == 0;
    }

    void run_packed(ForwardTask task, size_t l, const char* weight, int part) {
        const Layer& layer = layers[l];
        const Scratch& s = scratch[part];
        const Boundary& from = boundary[l % 2];
        Segment segment{};
        task.segments = &segment;
        task.n_segments = 1;
        task.weight = s.tile;
        task.weight_stride = task.vectors * k.lanes;
        for (int p = 0; p < parts; ++p) {
            const Range range = columns(l, p);
            const ActiveLists& lists = from.parts[p];
            const size_t n = blocks(range.size());
            for (size_t block = 0; block < n; ++block) {
                const Range rows = block_of(range, block, n);
                k.pack({weight + rows.first * layer.outputs * (layer.bf16 ? 2 : 4), layer.outputs, rows.size(), layer.bf16,
                        task.vectors, task.tail, s.tile});
                task.first_row = static_cast<uint32_t>(rows.first);
                task.rows = rows.size();
                segment = {lists.values, lists.indices, block ? from.cuts[p] + block * batch : nullptr,
                           block + 1 < n ? from.cuts[p] + (block + 1) * batch : lists.count, lists.stride};
                task.partial = rows.last < layer.inputs ? s.partial : nullptr;
                k.forward(task);
                task.start = s.partial;
            }
        }
    }

    void run(int id, int n) {
        size_t offset = saved_table_bytes(n_layers);
        for (int p = id; p < parts; p += n) compact_input(p);
        for (size_t l = 0; l < n_layers; ++l) {
            barrier.wait(n);
            if (saved) {
                for (int p = id; p < parts; p += n) save(l, p, offset);
                offset += saved_layer_bytes(width(l), layer_active(l), index_bytes(batch));
            }
            for (int p = id; p < parts; p += n) run_layer(l, p);
        }
        if (id == 0) saved_bytes = offset;
    }
    size_t saved_bytes = 0;
};

}  // namespace

ForwardResult forward_by_outputs(const ForwardCall& c) {
    Forward f{c.layers, c.n_layers, c.batch, c.h, c.h_stride, c.out, c.out_stride, c.saved, c.threads, kernels(),
              {},       {},         {},      {}};
    f.active.assign(c.n_layers * f.parts, 0);
    Cutter size(nullptr);
    f.place(size);
    Block block(size.used());
    Cutter cutter(block.data());
    f.place(cutter);
    write_table(c.saved, c.n_layers, c.batch);
    run_team(f.parts, [&f](int id, int team) { f.run(id, team); });
    ForwardResult result;
    result.saved_bytes = c.saved ? f.saved_bytes : 0;
    for (uint64_t a : f.active) result.active += a;
    return result;
}

}  // namespace hush
