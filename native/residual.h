// A chain of residual blocks in one call, forward and backward:
//
//   x ← x + β(W φ(n(x)) + b)              one matrix: the units are those of the normalised stream
//   x ← x + β(W φ(W₁ n(x) + b₁) + b)      two: W₁'s product in the forward is dense, since it decides which units are active
#pragma once
#include "chain.h"

namespace hush {

enum class Norm : int { none, rms, layer };

struct ResidualBlock {
    Layer layer;  // W, b and φ: its inputs are the units, its outputs the stream
    // W₁, row u holding the weights of unit u, and b₁; null: one matrix, and as many units as the stream is wide.
    float *inner_weight = nullptr, *inner_bias = nullptr;
    Norm norm = Norm::none;
    float eps = 0.0f;
    float *gain = nullptr, *shift = nullptr;  // of the norm, null where it has none
    float scale = 1.0f;
    float* learned_scale = nullptr;  // null: β is `scale`
    float beta() const { return learned_scale ? *learned_scale : scale; }
    size_t units() const { return layer.inputs; }
};

// The most units that a block has.
inline size_t most_units(const ResidualBlock* blocks, size_t n) {
    size_t most = 0;
    for (size_t l = 0; l < n; ++l) most = blocks[l].units() > most ? blocks[l].units() : most;
    return most;
}

// Whether any block has two matrices.
inline bool any_inner(const ResidualBlock* blocks, size_t n) {
    for (size_t l = 0; l < n; ++l)
        if (blocks[l].inner_weight) return true;
    return false;
}

// The parameters of a block, in the order in which Python names them.
enum Part : int { kWeight, kBias, kGain, kShift, kScale, kInnerWeight, kInnerBias, kParts };

// What becomes of one parameter's gradient: where it is written, or the optimizer and its states.
struct PartGradient {
    bool wanted = false;
    float *gradient = nullptr, *state1 = nullptr, *state2 = nullptr;
    Optimizer optimizer;
};
struct BlockGradient {
    PartGradient part[kParts];
};

// x̂ = (x − mean) · inverse
struct Moments {
    float mean = 0.0f, inverse = 1.0f;
};

// One sample through one block. The list of its active units stays behind, and what the next block's norm will need, since
// the stream is in registers just then.
struct SampleTask {
    const float* x;
    float* out;  // may be x
    size_t width;
    Norm norm;
    Moments moments;  // of x
    const float *gain, *shift;
    const float* hidden;  // W₁ n(x) + b₁; null: the units are those of n(x)
    size_t units;
    Activation activation;
    const void* weight;
    bool bf16;
    const float* bias;
    float beta;
    bool fetch_ahead;  // rows of weights are not in L2: fetch each a few before it is added
    float* values;  // room for all units and a vector more
    uint32_t* indices;
    uint32_t count;
    Norm next_norm;
    float next_eps;
    Moments next;  // of out
};

// One sample back through one block, from g = ∂L/∂x behind it to ∂L/∂x in front of it (residual_backward.cpp has the
// formulas). Rows of g have whole vectors, with zeros behind the width.
struct SampleBackTask {
    const float* g;
    float* below;  // ∂L/∂x in front of the block, a row like g; null: not wanted
    size_t width;
    const float* x;  // the stream in front of the block
    Norm norm;
    Moments moments;
    const float* gain;
    Activation activation;
    const float* weight;
    size_t units;
    float beta;
    const float* values;  // the sample's active units
    const uint32_t* indices;
    uint32_t count;
    float* sums;  // ⟨g, W[i]⟩ of the active units; room for four more
    float *for_shift, *for_gain;  // each active unit's summands of ∂L/∂shift and ∂L/∂gain; null: not wanted
    const float* bias;  // null: nobody asks for ∂L/∂β
    double along;       // ⟨g, W φ + b⟩, the sample's summand of ∂L/∂β
    const float* inner_weight;  // null: one matrix
    float* deltas;              // with two: the gradient of each active unit's pre-activation, which stays behind
    float* into;                // with two: room for ∂L/∂n(x), whole vectors
    float *shift_sums, *gain_sums;  // with two: what ∂L/∂shift and ∂L/∂gain are so far, whole vectors; null: not wanted
};

// out[r, u] = ⟨n[r], W₁[u]⟩ + b₁[u]. Rows of n have whole vectors, with zeros behind the width, and rows of out room for three
// more behind the units.
struct InnerTask {
    const float* n;
    size_t n_stride, rows;
    const float *weight, *bias;  // bias may be null
    size_t width, units;
    float* out;
    size_t out_stride;
};

// For inputs [first, last), with j in the list of i,
//
//   ∂L/∂W[i] = β Σ_j values[entries[j]] · g[samples[j]]
//
// and what the optimizer makes of it. A row of weights stays in registers, where it is not wider than a tile.
struct WeightRowsTask {
    const float* g;
    size_t g_stride;
    float* weight;
    size_t width, first, last;
    const uint32_t *column_start, *entries;
    const float* values;
    const void* samples;  // uint16_t or uint32_t
    bool wide_samples;
    float beta;
    Optimizer optimizer;
    float *gradient, *state1, *state2;
    Ahead* ahead;
};

// sums[c] = Σ_b g[b, c] for whole vectors of columns.
struct ColumnSumsTask {
    const float* g;  // at the first column
    size_t g_stride, batch, vectors;
    float* sums;
};

struct ResidualKernels {
    const char* name;
    Moments (*moments)(const float* x, size_t width, Norm norm, float eps);
    // n(x), whole vectors with zeros behind the width.
    void (*normalise)(const float* x, size_t width, Moments moments, const float* gain, const float* shift, float* out);
    void (*inner)(const InnerTask&);
    void (*sample)(SampleTask&);
    void (*sample_back)(SampleBackTask&);
    void (*weight_rows)(const WeightRowsTask&);
    void (*column_sums)(const ColumnSumsTask&);
};

extern const ResidualKernels portable_residual;
#ifdef HUSH_X86
extern const ResidualKernels avx2_residual;
extern const ResidualKernels avx512_residual;
#endif
const ResidualKernels& residual_kernels();  // of the set that kernels() has chosen

// The active units of one block, sample by sample and, sorted, input by input.
struct SavedUnits {
    uint32_t* sample_start;  // [batch + 1]
    float* values;           // [active]
    uint32_t* indices;       // [active]
    uint32_t* column_start;  // [units + 1]
    uint32_t* entries;       // [active], places in values
    void* samples;           // [active], uint16_t or uint32_t
    char* end;
};

// What the forward leaves for the backward, in one block of memory:
//
//   head     magic, batch, blocks, width, units
//   stream   x before each block, [block][sample][width]: the norm's backward needs all of it
//   moments  of x, [block][sample]
//   biases   [block][width], as this forward saw them: ∂L/∂β needs them, and they may change in between
//   table    per block: offset and number of the active units; then the lists, as in SavedUnits
struct SavedStream {
    char* base;
    size_t batch, blocks, width;
    size_t most;  // units of the block that has most of them
    static constexpr uint64_t kMagic = 0x6875736872657333;  // "hushres3"
    size_t stream_at() const;
    size_t moments_at() const;
    size_t biases_at() const;
    size_t table_at() const;
    size_t lists_at() const;
    size_t bound() const;
    float* stream(size_t block) const { return at<float>(stream_at()) + block * batch * width; }
    Moments* moments(size_t block) const { return at<Moments>(moments_at()) + block * batch; }
    float* bias(size_t block) const { return at<float>(biases_at()) + block * width; }
    uint64_t* row(size_t block) const { return at<uint64_t>(table_at()) + 2 * block; }
    size_t units_bytes(size_t active) const;
    SavedUnits units(size_t block) const { return units_at(row(block)[0], row(block)[1]); }
    SavedUnits units_at(size_t offset, size_t active) const;
    void write_head() const;
    void check(size_t bytes) const;  // throws

private:
    template <class T>
    T* at(size_t offset) const {
        return reinterpret_cast<T*>(base + offset);
    }
};

// The weights that a thread wants next, a few lines of them behind each of so many samples: fetched into L2 where they leave
// room there, and where there are so many samples that they will read all rows.
inline Ahead ahead_of(const Layer& next, size_t samples) {
    constexpr size_t kAheadBytes = 512 * 1024, kReadsAll = 16;
    const size_t bytes = next.inputs * next.outputs * (next.bf16 ? 2 : 4);
    if (samples < kReadsAll || bytes > kAheadBytes) return {};
    return {static_cast<const char*>(next.weight), bytes, bytes, 1, 0, 0, bytes / 64 / samples + 1};
}

// out[b, :] for a row-major h; saved (of SavedStream::bound bytes) may be null: nothing is kept.
ForwardResult residual_forward(const ResidualBlock* blocks, size_t n, const float* h, size_t h_stride, size_t batch,
                               float* out, size_t out_stride, char* saved, int threads);

// From ∂L/∂out to ∂L/∂h (null: not wanted) and every parameter's gradient or update.
void residual_backward(const ResidualBlock* blocks, const BlockGradient* gradients, size_t n, char* saved,
                       const float* grad_out, size_t grad_out_stride, size_t batch, float* grad_h,
                       size_t grad_h_stride, int threads);

}  // namespace hush
