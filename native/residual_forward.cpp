// Forward of a residual chain: every thread takes its own samples through all blocks, with the weights in L2 and the
// stream in L1. The threads never meet, except once at the end where gradients are wanted: what the backward reads is
// sorted by input, block by block.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "buffers.h"
#include "residual.h"
#include "team.h"

namespace hush {
namespace {

// The next block's weights are fetched into L2, a few lines behind each sample, where they leave room there.
constexpr size_t kAheadBytes = 512 * 1024;
// Fewer samples do not read all rows of a block, and those that they read are not known beforehand.
constexpr size_t kReadsAll = 16;

struct Lane {  // one thread's samples
    Range samples;
    float* stream;  // [sample][width], where nothing is saved
    float* values;  // the lists of all blocks and samples one after the other, or of one sample
    uint32_t *indices, *count, *cursor;
    std::vector<uint64_t> first;  // per block: where its lists begin; one more for the end
    uint64_t active = 0;
};

struct ResidualForward {
    const ResidualBlock* blocks;
    size_t n_blocks, batch, width;
    const float* h;
    size_t h_stride;
    float* out;
    size_t out_stride;
    SavedStream saved;
    std::vector<Lane> lanes;
    const ResidualKernels& k = residual_kernels();
    const size_t slack = static_cast<size_t>(kernels().lanes);
    Barrier barrier{};
    size_t saved_bytes = 0;

    void place(Cutter& cutter) {
        for (Lane& lane : lanes) {
            const size_t n = lane.samples.size(), lists = saved.base ? n_blocks * n * width : width;
            lane.stream = cutter.cut<float>(saved.base ? 0 : n * width);
            lane.values = cutter.cut<float>(lists + slack);
            lane.indices = cutter.cut<uint32_t>(lists + slack);
            lane.count = cutter.cut<uint32_t>(saved.base ? n_blocks * n : 0);
            lane.cursor = cutter.cut<uint32_t>(width + 1);
        }
    }

    void run_lane(Lane& lane) {
        const size_t n = lane.samples.size(), first = lane.samples.first;
        SampleTask task{};
        task.width = width;
        task.fetch_ahead = n <= kFewSamples;
        lane.first.assign(n_blocks + 1, 0);
        for (size_t b = 0; saved.base && b < n; ++b)
            std::memcpy(saved.stream(0) + (first + b) * width, h + (first + b) * h_stride, width * sizeof(float));
        uint64_t at = 0;
        for (size_t l = 0; l < n_blocks; ++l) {
            const ResidualBlock& block = blocks[l];
            const bool last = l + 1 == n_blocks;
            task.norm = block.norm, task.eps = block.eps, task.gain = block.gain, task.shift = block.shift;
            task.activation = block.layer.activation;
            task.weight = block.layer.weight, task.bf16 = block.layer.bf16, task.bias = block.layer.bias;
            task.beta = block.beta();
            lane.first[l] = at;
            Ahead ahead;
            const size_t bytes = width * width * (last || blocks[l + 1].layer.bf16 ? 2 : 4);
            if (!last && n >= kReadsAll && bytes <= kAheadBytes)
                ahead = {static_cast<const char*>(blocks[l + 1].layer.weight), bytes, bytes, 1, 0, 0, bytes / 64 / n + 1};
            for (size_t b = 0; b < n; ++b) {
                const size_t sample = first + b;
                float* to = out + sample * out_stride;
                if (saved.base) {
                    task.x = saved.stream(l) + sample * width;
                    task.out = last ? to : saved.stream(l + 1) + sample * width;
                    task.values = lane.values + at, task.indices = lane.indices + at;
                } else {
                    float* stream = lane.stream + b * width;
                    task.x = l ? stream : h + sample * h_stride;
                    task.out = last ? to : stream;
                    task.values = lane.values, task.indices = lane.indices;
                }
                k.sample(task);
                fetch<void>(&ahead);
                lane.active += task.count;
                if (!saved.base) continue;
                at += task.count;
                lane.count[l * n + b] = task.count;
                saved.mean(l)[sample] = task.mean, saved.inverse(l)[sample] = task.inverse;
            }
        }
        lane.first[n_blocks] = at;
    }

    uint64_t active(size_t l) const {
        uint64_t total = 0;
        for (const Lane& lane : lanes) total += lane.first[l + 1] - lane.first[l];
        return total;
    }

    // A counting sort of one block's lists by input; samples stay in order.
    void sort(size_t l, size_t offset, uint32_t* cursor) {
        const size_t total = active(l), bytes = index_bytes(batch);
        saved.row(l)[0] = offset, saved.row(l)[1] = total;
        const SavedTarget to = saved_target(saved.base, offset, width, total);
        std::memset(cursor, 0, (width + 1) * sizeof(uint32_t));
        for (const Lane& lane : lanes)
            for (uint64_t j = lane.first[l]; j < lane.first[l + 1]; ++j) ++cursor[lane.indices[j]];
        uint32_t next = 0;
        for (size_t i = 0; i <= width; ++i) {
            to.column_start[i] = next;
            const uint32_t count = cursor[i];
            cursor[i] = next;
            next += count;
        }
        auto scatter = [&](auto* samples) {
            using I = std::remove_pointer_t<decltype(samples)>;
            for (const Lane& lane : lanes) {
                uint64_t j = lane.first[l];
                for (size_t b = 0, n = lane.samples.size(); b < n; ++b)
                    for (const uint64_t end = j + lane.count[l * n + b]; j < end; ++j) {
                        const uint32_t at = cursor[lane.indices[j]]++;
                        to.values[at] = lane.values[j];
                        samples[at] = static_cast<I>(lane.samples.first + b);
                    }
            }
        };
        bytes == 2 ? scatter(static_cast<uint16_t*>(to.samples)) : scatter(static_cast<uint32_t*>(to.samples));
        auto clear = [](void* from, void* until) {
            std::memset(from, 0, static_cast<size_t>(static_cast<char*>(until) - static_cast<char*>(from)));
        };
        clear(to.column_start + width + 1, to.values);
        clear(to.values + total, to.samples);
        clear(static_cast<char*>(to.samples) + total * bytes, saved.base + offset + saved_layer_bytes(width, total, bytes));
        float* bias = saved.bias(l);
        blocks[l].layer.bias ? std::memcpy(bias, blocks[l].layer.bias, width * sizeof(float))
                             : std::memset(bias, 0, width * sizeof(float));
    }

    void run(int id, int n) {
        for (size_t p = static_cast<size_t>(id); p < lanes.size(); p += static_cast<size_t>(n)) run_lane(lanes[p]);
        if (!saved.base) return;
        barrier.wait(n);
        size_t offset = saved.lists_at();
        for (size_t l = 0; l < n_blocks; ++l) {
            if (l % static_cast<size_t>(n) == static_cast<size_t>(id)) sort(l, offset, lanes[id].cursor);
            offset += saved_layer_bytes(width, active(l), index_bytes(batch));
        }
        if (id == 0) {
            saved.write_head();
            saved_bytes = offset;
        }
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
    const size_t width = blocks[0].layer.inputs;
    const size_t team = std::max<size_t>(1, std::min<size_t>(static_cast<size_t>(std::max(threads, 1)), batch));
    ResidualForward f{blocks, n, batch, width, h, h_stride, out, out_stride, {saved, batch, n, width}, std::vector<Lane>(team)};
    for (size_t p = 0; p < team; ++p) f.lanes[p].samples = {batch * p / team, batch * (p + 1) / team};
    Cutter size(nullptr);
    f.place(size);
    Block block(size.used());
    Cutter cutter(block.data());
    f.place(cutter);
    run_team(static_cast<int>(team), [&f](int id, int members) { f.run(id, members); });
    ForwardResult result;
    result.saved_bytes = saved ? f.saved_bytes : 0;
    for (const Lane& lane : f.lanes) result.active += lane.active;
    return result;
}

}  // namespace hush
