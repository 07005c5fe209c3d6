// Forward of a residual chain. Without gradients every thread takes its own samples through all blocks, with the weights in
// L2 and the stream in L1, and the threads never meet. In training blocks belong to threads and the samples pass by (a
// relay); what the backward reads is packed as soon as a stretch has seen its last group, while its lists are at hand.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "buffers.h"
#include "relay.h"
#include "residual.h"
#include "team.h"

namespace hush {
namespace {

// Samples whose hidden units are made together, in blocks of two matrices: W₁ is read once for all of them, and what they
// take stays in L2.
constexpr size_t kTogether = 48;

struct Lists {  // of one block, sample after sample, or of one sample
    float* values;
    uint32_t* indices;
    uint32_t used;
};

struct ResidualForward {
    const ResidualBlock* blocks;
    size_t n_blocks, batch, width;
    const float* h;
    size_t h_stride;
    float* out;
    size_t out_stride;
    SavedStream saved;
    int parts;
    Relay relay{n_blocks, batch, parts};
    const ResidualKernels& k = residual_kernels();
    const size_t slack = static_cast<size_t>(kernels().lanes);
    float* stream = nullptr;  // [sample][width], where nothing is saved, and its moments
    Moments* moments = nullptr;
    std::vector<std::vector<Lists>> lists{};      // per part, for each block of a stretch; one without saving
    std::vector<std::vector<uint32_t*>> count{};  // of samples, in the same order
    std::vector<uint32_t*> cursor{};              // per part
    std::vector<float*> normed{}, hidden{};       // per part, [sample][stride] and [sample][hidden_stride]
    const size_t most = most_units(blocks, n_blocks);
    const bool two = any_inner(blocks, n_blocks);
    const size_t stride = round_up(width, slack), hidden_stride = round_up(most + 3, slack);
    std::vector<uint64_t> active{};               // per part
    std::vector<size_t> offset{};                 // of each stretch's packed lists, and where the last one ends

    void place(Cutter& cutter) {
        const size_t n = static_cast<size_t>(parts), room = saved.base ? batch * most : most;
        stream = cutter.cut<float>(saved.base ? 0 : batch * width);
        moments = cutter.cut<Moments>(saved.base ? 0 : batch);
        lists.assign(n, std::vector<Lists>(saved.base ? relay.longest() : 1));
        count.assign(n, std::vector<uint32_t*>(saved.base ? relay.longest() : 0));
        for (std::vector<Lists>& own : lists)
            for (Lists& each : own) each = {cutter.cut<float>(room + slack), cutter.cut<uint32_t>(room + slack), 0};
        for (std::vector<uint32_t*>& own : count)
            for (uint32_t*& each : own) each = cutter.cut<uint32_t>(batch);
        cursor.assign(n, nullptr);
        for (uint32_t*& each : cursor) each = cutter.cut<uint32_t>(most + 1);
        const size_t together = two ? std::min(batch, kTogether) : 0;
        normed.assign(n, nullptr), hidden.assign(n, nullptr);
        for (float*& each : normed) each = cutter.cut<float>(together * stride);
        for (float*& each : hidden) each = cutter.cut<float>(together * hidden_stride);
        active.assign(n, 0);
        offset.assign(relay.stretches() + 1, saved.base ? saved.lists_at() : 0);
    }

    // Where the stream of a sample lies in front of block l, and its moments.
    const float* stream_before(size_t l, size_t b) const {
        if (saved.base) return saved.stream(l) + b * width;
        return l ? stream + b * width : h + b * h_stride;
    }
    Moments* moments_before(size_t l) const { return saved.base ? saved.moments(l) : moments; }

    void begin(Range samples) {
        for (size_t b = samples.first; b < samples.last; ++b) {
            if (saved.base) std::memcpy(saved.stream(0) + b * width, h + b * h_stride, width * sizeof(float));
            moments_before(0)[b] = k.moments(stream_before(0, b), width, blocks[0].norm, blocks[0].eps);
        }
    }

    // W₁ n(x) + b₁ of some samples.
    void make_hidden(size_t l, Range samples, size_t part) const {
        const ResidualBlock& block = blocks[l];
        for (size_t b = samples.first; b < samples.last; ++b)
            k.normalise(stream_before(l, b), width, moments_before(l)[b], block.gain, block.shift,
                        normed[part] + (b - samples.first) * stride);
        k.inner({normed[part], stride, samples.size(), block.inner_weight, block.inner_bias, width, block.units(),
                 hidden[part], hidden_stride});
    }

    // Some samples through block l; how many of their units are active. `counts`, one for each sample, may be null.
    uint64_t run_samples(size_t l, Range samples, size_t part, Lists& to, uint32_t* counts, const ResidualBlock* next) {
        if (!l) begin(samples);
        const ResidualBlock& block = blocks[l];
        const bool last = l + 1 == n_blocks;
        SampleTask task{};
        task.width = width, task.units = block.units();
        task.fetch_ahead = samples.size() <= kFewSamples;
        task.norm = block.norm, task.gain = block.gain, task.shift = block.shift;
        task.activation = block.layer.activation;
        task.weight = block.layer.weight, task.bf16 = block.layer.bf16, task.bias = block.layer.bias;
        task.beta = block.beta();
        if (!last) task.next_norm = blocks[l + 1].norm, task.next_eps = blocks[l + 1].eps;
        Ahead ahead = next ? ahead_of(next->layer, samples.size()) : Ahead{};
        Moments* then = last ? nullptr : moments_before(l + 1);
        uint64_t total = 0;
        for (size_t b = samples.first; b < samples.last; ++b) {
            const size_t place = (b - samples.first) % kTogether;
            if (block.inner_weight && !place) make_hidden(l, {b, std::min(b + kTogether, samples.last)}, part);
            task.hidden = block.inner_weight ? hidden[part] + place * hidden_stride : nullptr;
            task.values = to.values + to.used, task.indices = to.indices + to.used;
            task.x = stream_before(l, b), task.moments = moments_before(l)[b];
            task.out = last ? out + b * out_stride : saved.base ? saved.stream(l + 1) + b * width : stream + b * width;
            k.sample(task);
            if (then) then[b] = task.next;
            fetch<void>(&ahead);
            total += task.count;
            if (!saved.base) continue;
            to.used += task.count;
            counts[b] = task.count;
        }
        return total;
    }

    // One block's lists as they are, and a counting sort of them by input; samples stay in order.
    void keep(size_t l, size_t offset, const Lists& from, const uint32_t* counts, uint32_t* cursor) {
        const size_t total = from.used, bytes = index_bytes(batch), units = blocks[l].units();
        saved.row(l)[0] = offset, saved.row(l)[1] = total;
        const SavedUnits to = saved.units(l);
        std::memcpy(to.values, from.values, total * sizeof(float));
        std::memcpy(to.indices, from.indices, total * sizeof(uint32_t));
        uint32_t next = 0;
        for (size_t b = 0; b < batch; ++b) {
            to.sample_start[b] = next;
            next += counts[b];
        }
        to.sample_start[batch] = next;
        std::memset(cursor, 0, (units + 1) * sizeof(uint32_t));
        for (size_t j = 0; j < total; ++j) ++cursor[to.indices[j]];
        next = 0;
        for (size_t i = 0; i <= units; ++i) {
            to.column_start[i] = next;
            const uint32_t count = cursor[i];
            cursor[i] = next;
            next += count;
        }
        auto sort = [&](auto* samples) {
            using I = std::remove_pointer_t<decltype(samples)>;
            for (size_t b = 0; b < batch; ++b)
                for (uint32_t j = to.sample_start[b]; j < to.sample_start[b + 1]; ++j) {
                    const uint32_t at = cursor[to.indices[j]]++;
                    to.entries[at] = j;
                    samples[at] = static_cast<I>(b);
                }
        };
        bytes == 2 ? sort(static_cast<uint16_t*>(to.samples)) : sort(static_cast<uint32_t*>(to.samples));
        auto clear = [](void* from, void* until) {
            std::memset(from, 0, static_cast<size_t>(static_cast<char*>(until) - static_cast<char*>(from)));
        };
        clear(to.sample_start + batch + 1, to.values);
        clear(to.values + total, to.indices);
        clear(to.indices + total, to.column_start);
        clear(to.column_start + units + 1, to.entries);
        clear(to.entries + total, to.samples);
        clear(static_cast<char*>(to.samples) + total * bytes, to.end);
        float* bias = saved.bias(l);
        blocks[l].layer.bias ? std::memcpy(bias, blocks[l].layer.bias, width * sizeof(float))
                             : std::memset(bias, 0, width * sizeof(float));
    }

    // Nothing is written but the stream: every part takes its own samples through all blocks.
    void infer(size_t part) {
        const size_t n = static_cast<size_t>(parts);
        const Range own = {batch * part / n, batch * (part + 1) / n};
        for (size_t l = 0; l < n_blocks; ++l)
            active[part] +=
                run_samples(l, own, part, lists[part][0], nullptr, l + 1 < n_blocks ? &blocks[l + 1] : nullptr);
    }

    void run(int id, int n) {
        const size_t first = static_cast<size_t>(id), step = static_cast<size_t>(n);
        if (!saved.base) {
            for (size_t p = first; p < static_cast<size_t>(parts); p += step) infer(p);
            return;
        }
        std::vector<Lists>& own_lists = lists[first];
        for (size_t s = first; s < relay.stretches(); s += step) {
            const Range own = relay.blocks(s);
            for (Lists& each : own_lists) each.used = 0;
            for (size_t m = 0; m < relay.groups(); ++m) {
                if (s) relay.await(s - 1, m);
                const bool more = m + 1 < relay.groups();
                for (size_t l = own.first; l < own.last; ++l) {
                    // Behind a stretch comes its first block again, with the next group, or the first one of another.
                    const size_t after = l + 1 < own.last ? l + 1 : more ? own.first : step == 1 ? l + 1 : n_blocks;
                    active[first] += run_samples(l, relay.samples(m), first, own_lists[l - own.first],
                                                 count[first][l - own.first], after < n_blocks ? &blocks[after] : nullptr);
                }
                if (!more) {  // stretches come to their ends in order
                    offset[s + 1] = offset[s];
                    for (size_t i = 0; i < own.size(); ++i) offset[s + 1] += saved.units_bytes(own_lists[i].used);
                }
                relay.leave(s);
            }
            size_t at = offset[s];
            for (size_t l = own.first; l < own.last; ++l) {
                const Lists& from = own_lists[l - own.first];
                keep(l, at, from, count[first][l - own.first], cursor[first]);
                at += saved.units_bytes(from.used);
            }
        }
        if (id == 0) saved.write_head();
    }
};

}  // namespace

const ResidualKernels& residual_kernels() {
    static const ResidualKernels& chosen = []() -> const ResidualKernels& {
#ifdef HUSH_X86
        const std::string name = kernels().name;
        if (name == avx512_residual.name) return avx512_residual;
        if (name == avx2_residual.name) return avx2_residual;
#endif
        return portable_residual;
    }();
    return chosen;
}

ForwardResult residual_forward(const ResidualBlock* blocks, size_t n, const float* h, size_t h_stride, size_t batch,
                               float* out, size_t out_stride, char* saved, int threads) {
    const size_t width = blocks[0].layer.outputs;
    const int most = static_cast<int>(std::min<size_t>(saved ? n : batch, static_cast<size_t>(std::max(threads, 1))));
    ResidualForward f{blocks, n, batch, width, h, h_stride, out, out_stride, {saved, batch, n, width, most_units(blocks, n)},
                      std::max(most, 1)};
    Scratch scratch(f);
    run_team(f.parts, [&f](int id, int members) { f.run(id, members); });
    ForwardResult result;
    result.saved_bytes = saved ? f.offset.back() : 0;
    for (uint64_t active : f.active) result.active += active;
    return result;
}

}  // namespace hush
