// Forward, the team sharing the samples: every thread takes its own through the whole chain, with the weights in L2.
//
// A layer runs in one of two ways. Deep in a chain all inputs have nearly the same active units: then it is a dense
// product over those that any sample has, and a weight in registers serves four samples. Elsewhere every sample has a
// list of its own. Both add the same terms in the same order, so the choice does not show in the result.
//
// A few samples of which nothing is kept always go by their lists, which each layer leaves behind while its outputs are in
// registers. Without gradients the threads never meet. With them they meet once a layer, because the batch makes the choice
// together, and once more where what the backward reads is sorted by input and each thread sorts a stretch of inputs.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "buffers.h"
#include "forward.h"
#include "team.h"

namespace hush {
namespace {

// What a term of the dense products costs beside an entry of a list (`python benchmarks/shared_units.py`): in the forward;
// and in a step, forward and backward together. The backward's part is less where only some outputs have a gradient.
constexpr double kInference = 0.36, kStepForward = 0.14, kStepBackward = 0.58;
// Samples that a dense product takes at a time; with fewer there is nothing to share.
constexpr size_t kSharedRows = 4;

struct Side {  // φ of a lane's samples before one layer
    float* x;          // [sample][stride]
    uint32_t* counts;  // samples in which each unit is active
};

struct Lane {  // one thread's samples
    Range samples;
    Side side[2];
    ActiveLists lists;            // of the layer at hand, where it runs by lists
    ActiveLists next;             // of the layer behind it, for a few samples
    uint32_t* cuts;               // [cut][sample]: how many of a sample's entries lie below that cut
    std::vector<uint64_t> below;  // per cut: the same, over the lane's samples
    uint32_t* columns;            // the units that any sample has
    size_t shared;                // how many; 0: this layer runs by lists
    uint32_t* cursor;
    uint64_t active = 0;
};

struct BySamples {
    const ForwardCall& call;
    const Kernels& k;
    std::vector<Lane> lanes;
    Barrier barrier;
    size_t stride = 0;  // of x and of the lists
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
        stride = round_up(room, 16) | 16;  // an odd number of lines: spread over the cache sets
        for (Lane& lane : lanes) {
            const size_t n = lane.samples.size();
            for (Side& side : lane.side) {
                side.x = cutter.cut<float>(n * stride);
                side.counts = cutter.cut<uint32_t>(room);
            }
            cut_lists(cutter, lane.lists, n);
            cut_lists(cutter, lane.next, n);
            lane.cuts = cutter.cut<uint32_t>(n * (lanes.size() + 1));
            lane.below.assign(lanes.size() + 1, 0);
            lane.columns = cutter.cut<uint32_t>(room);
            lane.cursor = cutter.cut<uint32_t>(room);
        }
    }

    void cut_lists(Cutter& cutter, ActiveLists& lists, size_t n) const {
        lists.stride = stride;
        lists.values = cutter.cut<float>(n * stride);
        lists.indices = cutter.cut<uint32_t>(n * stride);
        lists.count = cutter.cut<uint32_t>(n);
    }

    // A width in tiles of at most so many vectors; the stretches of inputs that the threads sort end at tiles.
    size_t vectors(size_t width) const { return (width + k.lanes - 1) / k.lanes; }
    size_t tiles(size_t width, int most) const { return (vectors(width) + most - 1) / most; }
    Range tile(size_t width, int most, size_t t) const {
        const size_t n = tiles(width, most), v = vectors(width);
        return {v * t / n * k.lanes, std::min(v * (t + 1) / n * k.lanes, width)};
    }
    Range stretch(size_t width, size_t part) const {
        const size_t n = tiles(width, k.wide);
        auto cut = [&](size_t p) { return n * p / lanes.size(); };
        auto first = [&](size_t t) { return t < n ? tile(width, k.wide, t).first : width; };
        return {first(cut(part)), first(cut(part + 1))};
    }

    Side& empty_side(size_t layer, Lane& lane, size_t width) const {
        Side& side = lane.side[layer % 2];
        std::memset(side.counts, 0, (round_up(width, k.lanes) + k.lanes) * 4);
        return side;
    }

    void activate(size_t layer, Lane& lane, const float* h, size_t h_stride, size_t width) const {
        const Side& side = empty_side(layer, lane, width);
        const SavedScales keep = saved_scales(call.saved, call.layers, call.n_layers, layer, call.batch);
        const size_t first = lane.samples.first;
        k.activate({h, h_stride, lane.samples.size(), width, call.layers[layer].activation, side.x, stride, side.counts,
                    keep.scales ? keep.scales + first : nullptr, keep.h ? keep.h + first * width : nullptr});
    }

    // Which units any sample has, and whether the samples share enough of them; of the whole batch where its backward
    // will go by it, else of the lane alone.
    void choose(size_t l, Lane& lane) const {
        const size_t inputs = call.layers[l].inputs, batch = call.saved ? call.batch : lane.samples.size();
        uint64_t active = 0;
        lane.shared = 0;
        if (batch < kSharedRows) return;
        for (size_t i = 0; i < inputs; ++i) {
            uint32_t samples = lane.side[l % 2].counts[i];
            if (call.saved && lanes.size() > 1) {
                samples = 0;
                for (const Lane& other : lanes) samples += other.side[l % 2].counts[i];
            }
            active += samples;
            lane.columns[lane.shared] = static_cast<uint32_t>(i);
            lane.shared += samples != 0;
        }
        // Outputs have a gradient where the layer behind is active; it is taken to share its units as this one does.
        const bool all = l + 1 == call.n_layers || call.layers[l + 1].activation.spreads_gradient();
        const double outputs = all ? 1.0 : static_cast<double>(lane.shared) / static_cast<double>(inputs);
        const double cost = call.saved ? kStepForward + kStepBackward * outputs : kInference;
        const double terms = static_cast<double>(lane.shared) * static_cast<double>(batch);
        if (cost * terms > static_cast<double>(active)) lane.shared = 0;
    }

    uint64_t count_active(size_t l, const Lane& lane) const {
        if (!lane.shared) return lane.below.back();
        const uint32_t* counts = lane.side[l % 2].counts;
        return std::accumulate(counts, counts + call.layers[l].inputs, uint64_t{0});
    }

    void list_active(size_t l, Lane& lane) const {
        const size_t n = lane.samples.size(), width = call.layers[l].inputs;
        Activation as_it_is;
        as_it_is.low = 0.0f, as_it_is.floor = -INFINITY, as_it_is.identity = true;
        std::memset(lane.lists.count, 0, n * 4);
        for (size_t p = 0; p < lanes.size(); ++p) {
            note_cut(lane, p, n);
            const Range columns = stretch(width, p);
            k.compact({lane.side[l % 2].x, stride, n, columns.first, columns.last, as_it_is, lane.lists});
        }
        note_cut(lane, lanes.size(), n);
    }

    void note_cut(Lane& lane, size_t cut, size_t n) const {
        std::memcpy(lane.cuts + cut * n, lane.lists.count, n * 4);
        lane.below[cut] = 0;
        for (size_t b = 0; b < n; ++b) lane.below[cut] += lane.lists.count[b];
    }

    void run_layer(size_t l, Lane& lane) {
        if (!lane.samples.size()) return;
        const Layer& layer = call.layers[l];
        const bool last = l + 1 == call.n_layers;
        float* out = last ? call.out + lane.samples.first * call.out_stride : lane.side[(l + 1) % 2].x;
        const size_t out_stride = last ? call.out_stride : stride;
        // A relative activation looks at a whole sample first.
        const bool at_once = lane.shared && !last && !call.layers[l + 1].activation.relative;
        if (lane.shared)
            run_shared(l, lane, out, out_stride, at_once);
        else
            run_lists(layer, lane.samples.size(), lane.lists, {out, out_stride});
        if (!last && !at_once) activate(l + 1, lane, out, stride, layer.outputs);
    }

    // With `activated` the output goes through the next layer's φ while it is in registers.
    void run_shared(size_t l, Lane& lane, float* out, size_t out_stride, bool activated) {
        const Layer& layer = call.layers[l];
        ProductTask task{};
        task.a = lane.side[l % 2].x;
        task.a_row = stride;
        task.a_term = 1;
        task.at = lane.columns;
        task.terms = lane.shared;
        task.rows = lane.samples.size();
        task.b_stride = layer.outputs;
        task.b_rows = layer.inputs;
        task.bf16 = layer.bf16;
        task.out_stride = out_stride;
        if (activated) {
            task.finish = Finish::activate;
            task.activation = call.layers[l + 1].activation;
        }
        uint32_t* counts = activated ? empty_side(l + 1, lane, layer.outputs).counts : nullptr;
        for (size_t t = 0, n = tiles(layer.outputs, k.shared); t < n; ++t) {
            const Range columns = tile(layer.outputs, k.shared, t);
            task.b = static_cast<const char*>(layer.weight) + columns.first * (layer.bf16 ? 2 : 4);
            task.bias = layer.bias ? layer.bias + columns.first : nullptr;
            task.vectors = static_cast<int>(vectors(columns.size()));
            task.tail = static_cast<int>(columns.size() % k.lanes);
            task.out = out + columns.first;
            task.counts = counts ? counts + columns.first : nullptr;
            k.product(task);
        }
    }

    // Where a layer's outputs go: written, or through the next layer's φ into its lists.
    struct Target {
        float* out;
        size_t out_stride;
        Activation activation{};
        ActiveLists lists{};
    };

    void run_lists(const Layer& layer, size_t samples, const ActiveLists& from, const Target& to) const {
        const Segment segment{from.values, from.indices, nullptr, from.count, from.stride};
        ForwardTask task{};
        task.batch = samples;
        task.segments = &segment;
        task.n_segments = 1;
        task.weight_stride = layer.outputs;
        task.rows = layer.inputs;
        task.bf16 = layer.bf16;
        task.out_stride = to.out_stride;
        task.activation = to.activation;
        task.lists = to.lists;
        for (size_t t = 0, n = tiles(layer.outputs, k.wide); t < n; ++t) {
            const Range columns = tile(layer.outputs, k.wide, t);
            task.vectors = static_cast<int>(vectors(columns.size()));
            task.tail = static_cast<int>(columns.size() % k.lanes);
            task.weight = static_cast<const char*>(layer.weight) + columns.first * (layer.bf16 ? 2 : 4);
            task.bias = layer.bias ? layer.bias + columns.first : nullptr;
            task.out = to.out ? to.out + columns.first : nullptr;
            task.column = columns.first;
            k.forward(task);
        }
    }

    // Whether a lane's samples are so few that they share nothing, with nothing to keep of them.
    bool has_few(const Lane& lane) const {
        if (call.saved || lane.samples.size() >= kSharedRows) return false;
        return std::none_of(call.layers, call.layers + call.n_layers, [](const Layer& l) { return l.activation.relative; });
    }

    void run_few(Lane& lane) const {
        const size_t n = lane.samples.size(), first = lane.samples.first;
        std::memset(lane.lists.count, 0, n * 4);
        k.compact({call.h + first * call.h_stride, call.h_stride, n, 0, call.layers[0].inputs, call.layers[0].activation,
                   lane.lists});
        for (size_t l = 0; l < call.n_layers; ++l) {
            for (size_t b = 0; b < n; ++b) lane.active += lane.lists.count[b];
            if (l + 1 == call.n_layers) {
                run_lists(call.layers[l], n, lane.lists, {call.out + first * call.out_stride, call.out_stride});
            } else {
                std::memset(lane.next.count, 0, n * 4);
                run_lists(call.layers[l], n, lane.lists, {nullptr, 0, call.layers[l + 1].activation, lane.next});
                std::swap(lane.lists, lane.next);
            }
        }
    }

    // Of its own samples, the units that the batch shares.
    void save_shared(size_t l, size_t p, size_t offset) {
        const Lane& lane = lanes[p];
        const size_t n = lane.shared, wide = shared_stride(n);
        if (p == 0) write_shared_row(call.saved, l, offset, call.layers[l].inputs, call.batch, lane.columns, n);
        for (size_t b = 0; b < lane.samples.size(); ++b) {
            const float* x = lane.side[l % 2].x + b * stride;
            float* row = shared_rows(call.saved, offset, n) + (lane.samples.first + b) * wide;
            for (size_t u = 0; u < n; ++u) row[u] = x[lane.columns[u]];
            std::memset(row + n, 0, (wide - n) * sizeof(float));
        }
    }

    // Thread p sorts the p-th stretch of inputs, from the lists of every lane; samples stay in order.
    void save_lists(size_t l, size_t p, size_t offset, uint64_t active) {
        const size_t inputs = call.layers[l].inputs;
        const SavedTarget to = saved_target(call.saved, offset, inputs, active);
        const Range columns = stretch(inputs, p);
        uint32_t* cursor = lanes[p].cursor;
        uint64_t next = 0;
        for (const Lane& lane : lanes) next += lane.below[p];
        for (size_t i = columns.first; i < columns.last; ++i) {
            cursor[i - columns.first] = to.column_start[i] = static_cast<uint32_t>(next);
            for (const Lane& lane : lanes) next += lane.side[l % 2].counts[i];
        }
        if (p == 0) {
            write_row(call.saved, l, offset, active, inputs);
            to.column_start[inputs] = static_cast<uint32_t>(active);
        }
        for (const Lane& lane : lanes) {
            const size_t n = lane.samples.size();
            scatter_lists(lane.lists, 0, n, lane.samples.first, lane.cuts + p * n, lane.cuts + (p + 1) * n,
                          static_cast<uint32_t>(columns.first), cursor, to, index_bytes(call.batch));
        }
    }

    void run(int id, int n) {
        size_t offset = saved_table_bytes(call.n_layers) + saved_scales_bytes(call.layers, call.n_layers, call.batch);
        auto each = [&](auto&& work) {
            for (size_t p = id; p < lanes.size(); p += n) work(p);
        };
        if (std::all_of(lanes.begin(), lanes.end(), [this](const Lane& lane) { return has_few(lane); }))
            return each([&](size_t p) { run_few(lanes[p]); });
        each([&](size_t p) {
            const Lane& lane = lanes[p];
            activate(0, lanes[p], call.h + lane.samples.first * call.h_stride, call.h_stride, call.layers[0].inputs);
        });
        for (size_t l = 0; l < call.n_layers; ++l) {
            if (call.saved) barrier.wait(n);
            each([&](size_t p) {
                choose(l, lanes[p]);
                if (!lanes[p].shared) list_active(l, lanes[p]);
                lanes[p].active += count_active(l, lanes[p]);
            });
            if (call.saved) {
                const size_t shared = lanes[id].shared;  // the same in every lane
                if (!shared) barrier.wait(n);
                if (shared) {
                    each([&](size_t p) { save_shared(l, p, offset); });
                    offset += saved_shared_bytes(shared, call.batch);
                } else {
                    uint64_t active = 0;
                    for (const Lane& lane : lanes) active += lane.below.back();
                    each([&](size_t p) { save_lists(l, p, offset, active); });
                    offset += saved_layer_bytes(call.layers[l].inputs, active, index_bytes(call.batch));
                }
            }
            each([&](size_t p) { run_layer(l, lanes[p]); });
        }
        if (id == 0) saved_bytes = offset;
    }
};

}  // namespace

ForwardResult forward_by_samples(const ForwardCall& call) {
    BySamples f(call);
    Scratch scratch(f);
    write_table(call.saved, call.n_layers, call.batch);
    clear_scale_gaps(call.saved, call.layers, call.n_layers, call.batch);
    run_team(call.threads, [&f](int id, int n) { f.run(id, n); });
    ForwardResult result;
    result.saved_bytes = call.saved ? f.saved_bytes : 0;
    for (const Lane& lane : f.lanes) result.active += lane.active;
    return result;
}

}  // namespace hush
