// Forward of a few samples, the team sharing each layer's outputs: every thread reads its share of the weights only once.
#include <algorithm>
#include <cstring>
#include <vector>

#include "buffers.h"
#include "forward.h"
#include "team.h"

namespace hush {
namespace {

struct Boundary {  // the compact activations between two layers, one set of lists per part
    std::vector<ActiveLists> parts;
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
    std::vector<uint32_t*> cursors;  // per part
    std::vector<uint64_t> active;  // [layer][part]
    Barrier barrier;

    size_t width(size_t layer) const { return layers[layer].inputs; }
    Range columns(size_t layer, int part) const { return part_of(width(layer), part, parts, k.lanes); }

    void place(Cutter& cutter) {
        size_t widest = 0;
        for (size_t l = 0; l < n_layers; ++l) widest = std::max(widest, layers[l].inputs);
        cursors.assign(parts, nullptr);
        const size_t room = ((widest + k.lanes - 1) / k.lanes / parts + 2) * k.lanes;
        for (Boundary& side : boundary) {
            side.parts.assign(parts, {});
            for (int p = 0; p < parts; ++p) {
                ActiveLists& lists = side.parts[p];
                lists.stride = round_up(room, 16) | 16;  // an odd number of lines: samples spread over the cache sets
                lists.values = cutter.cut<float>(batch * lists.stride);
                lists.indices = cutter.cut<uint32_t>(batch * lists.stride);
                lists.count = cutter.cut<uint32_t>(batch);
                lists.per_column = cutter.cut<uint32_t>(room);
            }
        }
        for (uint32_t*& cursor : cursors) cursor = cutter.cut<uint32_t>(room);
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
        uint32_t* cursor = cursors[part];
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

        const size_t vectors = (range.size() + k.lanes - 1) / k.lanes, tiles = (vectors + k.wide - 1) / k.wide;
        task.weight_stride = layer.outputs;
        task.rows = layer.inputs;
        task.bf16 = layer.bf16;
        for (size_t t = 0; t < tiles; ++t) {
            const size_t v0 = vectors * t / tiles, v1 = vectors * (t + 1) / tiles;
            const size_t column = range.first + v0 * k.lanes;
            const size_t stop = std::min(range.first + v1 * k.lanes, range.last);
            task.column = column;
            task.vectors = static_cast<int>(v1 - v0);
            task.tail = static_cast<int>((stop - column) % k.lanes);
            task.bias = layer.bias ? layer.bias + column : nullptr;
            task.out = last ? out + column : nullptr;
            task.weight = static_cast<const char*>(layer.weight) + column * (layer.bf16 ? 2 : 4);
            k.forward(task);
        }
        if (!last) publish(l + 1, part);
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
    Scratch scratch(f);
    write_table(c.saved, c.n_layers, c.batch);
    run_team(f.parts, [&f](int id, int team) { f.run(id, team); });
    ForwardResult result;
    result.saved_bytes = c.saved ? f.saved_bytes : 0;
    for (uint64_t a : f.active) result.active += a;
    return result;
}

}  // namespace hush
