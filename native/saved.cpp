// The layout of what the backward needs.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "buffers.h"
#include "chain.h"

namespace hush {
namespace {
size_t samples_offset(size_t inputs, size_t active) {
    return round_up((inputs + 1) * 4, kLine) + round_up(active * 4, kLine);
}
constexpr size_t kRow = 4;  // words of a layer in the table
const uint64_t* table(const char* saved) { return reinterpret_cast<const uint64_t*>(saved); }
}  // namespace

size_t saved_layer_bytes(size_t inputs, size_t active, size_t index_bytes) {
    return samples_offset(inputs, active) + round_up(active * index_bytes, kLine);
}

size_t saved_shared_bytes(size_t shared, size_t batch) {
    return round_up(shared * 4, kLine) + round_up(batch * shared_stride(shared) * 4, kLine);
}

size_t saved_table_bytes(size_t layers) { return round_up((4 + kRow * layers) * 8, kLine); }

size_t saved_scales_bytes(const Layer* layers, size_t n, size_t batch) {
    size_t bytes = 0;
    for (size_t l = 0; l < n; ++l)
        if (layers[l].activation.relative)
            bytes += round_up(batch * 4, kLine) + round_up(batch * layers[l].inputs * 4, kLine);
    return bytes;
}

SavedScales saved_scales(char* saved, const Layer* layers, size_t n, size_t l, size_t batch) {
    if (!saved || !layers[l].activation.relative) return {};
    char* at = saved + saved_table_bytes(n) + saved_scales_bytes(layers, l, batch);
    return {reinterpret_cast<float*>(at), reinterpret_cast<float*>(at + round_up(batch * 4, kLine))};
}

size_t saved_bound(const Layer* layers, size_t n, size_t batch) {
    size_t bytes = saved_table_bytes(n) + saved_scales_bytes(layers, n, batch);
    for (size_t l = 0; l < n; ++l)
        bytes += std::max(saved_layer_bytes(layers[l].inputs, layers[l].inputs * batch, index_bytes(batch)),
                          saved_shared_bytes(layers[l].inputs, batch));
    return bytes;
}

SavedTarget saved_target(char* saved, size_t offset, size_t inputs, size_t active) {
    char* at = saved + offset;
    return {reinterpret_cast<uint32_t*>(at), reinterpret_cast<float*>(at + round_up((inputs + 1) * 4, kLine)),
            at + samples_offset(inputs, active)};
}

void write_table(char* saved, size_t layers, size_t batch) {
    if (!saved) return;
    auto* t = reinterpret_cast<uint64_t*>(saved);
    std::memset(t, 0, saved_table_bytes(layers));
    t[0] = kMagic, t[1] = batch, t[2] = layers, t[3] = index_bytes(batch);
}

void clear_scale_gaps(char* saved, const Layer* layers, size_t n, size_t batch) {
    for (size_t l = 0; l < n; ++l) {
        const SavedScales s = saved_scales(saved, layers, n, l, batch);
        if (!s.scales) continue;
        std::memset(s.scales + batch, 0, round_up(batch * 4, kLine) - batch * 4);
        const size_t units = batch * layers[l].inputs;
        std::memset(s.h + units, 0, round_up(units * 4, kLine) - units * 4);
    }
}

void write_row(char* saved, size_t layer, size_t offset, size_t active, size_t inputs) {
    uint64_t* row = reinterpret_cast<uint64_t*>(saved) + 4 + kRow * layer;
    row[0] = offset, row[1] = active, row[2] = inputs, row[3] = 0;
    // The gaps between the arrays are cleared: two runs of one forward give the same bytes.
    char* at = saved + offset;
    auto clear = [](char* from, char* to) { std::memset(from, 0, static_cast<size_t>(to - from)); };
    const SavedTarget to = saved_target(saved, offset, inputs, active);
    clear(at + (inputs + 1) * 4, reinterpret_cast<char*>(to.values));
    clear(reinterpret_cast<char*>(to.values + active), static_cast<char*>(to.samples));
    const size_t width = reinterpret_cast<uint64_t*>(saved)[3];
    clear(static_cast<char*>(to.samples) + active * width, at + saved_layer_bytes(inputs, active, width));
}

float* shared_rows(char* saved, size_t offset, size_t shared) {
    return reinterpret_cast<float*>(saved + offset + round_up(shared * 4, kLine));
}

void write_shared_row(char* saved, size_t layer, size_t offset, size_t inputs, size_t batch, const uint32_t* columns,
                      size_t shared) {
    uint64_t* row = reinterpret_cast<uint64_t*>(saved) + 4 + kRow * layer;
    row[0] = offset, row[1] = 0, row[2] = inputs, row[3] = shared;
    char* at = saved + offset;
    std::memcpy(at, columns, shared * 4);
    std::memset(at + shared * 4, 0, round_up(shared * 4, kLine) - shared * 4);
    char* end = reinterpret_cast<char*>(shared_rows(saved, offset, shared) + batch * shared_stride(shared));
    std::memset(end, 0, static_cast<size_t>(at + saved_shared_bytes(shared, batch) - end));
}

void scatter_lists(const ActiveLists& lists, size_t from, size_t n, size_t base, const uint32_t* begin,
                   const uint32_t* end, uint32_t first_column, uint32_t* cursor, const SavedTarget& to,
                   size_t index_bytes) {
    auto scatter = [&](auto* samples) {
        using I = std::remove_pointer_t<decltype(samples)>;
        for (size_t b = from; b < from + n; ++b) {
            const float* values = lists.values + b * lists.stride;
            const uint32_t* indices = lists.indices + b * lists.stride;
            const I name = static_cast<I>(base + b);
            for (uint32_t j = begin ? begin[b] : 0; j < end[b]; ++j) {
                const uint32_t at = cursor[indices[j] - first_column]++;
                to.values[at] = values[j];
                samples[at] = name;
            }
        }
    };
    if (index_bytes == 2)
        scatter(static_cast<uint16_t*>(to.samples));
    else
        scatter(static_cast<uint32_t*>(to.samples));
}

SavedLayer saved_layer(const char* saved, size_t layer) {
    const uint64_t* row = table(saved) + 4 + kRow * layer;
    const char* at = saved + row[0];
    const size_t inputs = row[2], active = row[1], shared = row[3];
    if (shared) {
        SavedLayer found;
        found.shared = shared, found.stride = shared_stride(shared);
        found.columns = reinterpret_cast<const uint32_t*>(at);
        found.rows = reinterpret_cast<const float*>(at + round_up(shared * 4, kLine));
        return found;
    }
    return {reinterpret_cast<const uint32_t*>(at),
            reinterpret_cast<const float*>(at + round_up((inputs + 1) * 4, kLine)),
            at + samples_offset(inputs, active), active};
}

void expand_saved(const char* saved, size_t layer, size_t inputs, size_t batch, float* out) {
    const SavedLayer s = saved_layer(saved, layer);
    if (!inputs || !batch) return;
    std::memset(out, 0, inputs * batch * sizeof(float));
    if (s.shared) {
        for (size_t b = 0; b < batch; ++b)
            for (size_t u = 0; u < s.shared; ++u) out[b * inputs + s.columns[u]] = s.rows[b * s.stride + u];
        return;
    }
    auto put = [&](auto* samples) {
        for (size_t i = 0; i < inputs; ++i)
            for (uint32_t j = s.column_start[i]; j < s.column_start[i + 1]; ++j) out[samples[j] * inputs + i] = s.values[j];
    };
    if (index_bytes(batch) == 2)
        put(static_cast<const uint16_t*>(s.samples));
    else
        put(static_cast<const uint32_t*>(s.samples));
}

void mean_inputs(const char* saved, const Layer* layers, size_t n, size_t batch, float* out) {
    for (size_t l = 0; l < n; out += layers[l++].inputs) {
        const SavedLayer s = saved_layer(saved, l);
        if (s.shared) {
            std::vector<double> sums(s.shared, 0.0);
            for (size_t b = 0; b < batch; ++b)
                for (size_t u = 0; u < s.shared; ++u) sums[u] += s.rows[b * s.stride + u];
            std::memset(out, 0, layers[l].inputs * sizeof(float));
            for (size_t u = 0; u < s.shared; ++u) out[s.columns[u]] = static_cast<float>(sums[u] / static_cast<double>(batch));
            continue;
        }
        for (size_t i = 0; i < layers[l].inputs; ++i) {
            double sum = 0.0;
            for (uint32_t k = s.column_start[i]; k < s.column_start[i + 1]; ++k) sum += s.values[k];
            out[i] = batch ? static_cast<float>(sum / static_cast<double>(batch)) : 0.0f;
        }
    }
}

void check_saved(const char* saved, size_t bytes, const Layer* layers, size_t n, size_t batch) {
    const uint64_t* t = table(saved);
    bool good = bytes >= saved_table_bytes(n) + saved_scales_bytes(layers, n, batch) && t[0] == kMagic && t[1] == batch && t[2] == n &&
                t[3] == index_bytes(batch);
    for (size_t l = 0; good && l < n; ++l) {
        const uint64_t* row = t + 4 + kRow * l;
        const uint64_t offset = row[0], active = row[1], inputs = row[2], shared = row[3];
        good = inputs == layers[l].inputs && active <= inputs * batch && shared <= inputs && offset <= bytes &&
               offset % kLine == 0 &&
               (shared ? saved_shared_bytes(shared, batch) : saved_layer_bytes(inputs, active, t[3])) <= bytes - offset;
    }
    if (!good)
        throw std::invalid_argument(
            "The saved activations do not belong to this chain and batch; pass the tensor that the forward returned.");
}

}  // namespace hush
