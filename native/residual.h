// A chain of residual blocks x ← x + β(W φ(n(x)) + b) in one call, forward and backward.
#pragma once
#include "chain.h"

namespace hush {

enum class Norm : int { none, rms, layer };

struct ResidualBlock {
    Layer layer;  // W, b and φ; as many outputs as inputs
    Norm norm = Norm::none;
    float eps = 0.0f;
    float *gain = nullptr, *shift = nullptr;  // of the norm, null where it has none
    float scale = 1.0f;
    float* learned_scale = nullptr;  // null: β is `scale`
    float beta() const { return learned_scale ? *learned_scale : scale; }
};

// The parameters of a block, in the order in which Python names them.
enum Part : int { kWeight, kBias, kGain, kShift, kScale, kParts };

// What becomes of one parameter's gradient: where it is written, or the optimizer and its states.
struct PartGradient {
    bool wanted = false;
    float *gradient = nullptr, *state1 = nullptr, *state2 = nullptr;
    Optimizer optimizer;
};
struct BlockGradient {
    PartGradient part[kParts];
};

// One sample through one block. The list of its active units stays behind, with the norm's two numbers.
struct SampleTask {
    const float* x;
    float* out;  // may be x
    size_t width;
    Norm norm;
    float eps;
    const float *gain, *shift;
    Activation activation;
    const void* weight;
    bool bf16;
    const float* bias;
    float beta;
    bool fetch_ahead;  // rows of weights are not in L2: fetch each a few before it is added
    float* values;  // room for all units and a vector more
    uint32_t* indices;
    uint32_t count;
    float mean, inverse;  // x̂ = (x − mean) · inverse
};

// g ← g − level[b] − factor[b] (x − mean[b]) in some columns of a tile, and the columns' sums over the samples.
struct StreamBackTask {
    float* g;
    size_t g_stride;
    const float* x;  // null: only the sums
    size_t x_stride, batch;
    int vectors, tail;
    const float *level, *factor, *mean;
    float* sums;  // [vectors · lanes]
};

struct ResidualKernels {
    const char* name;
    void (*sample)(SampleTask&);
    void (*stream_back)(const StreamBackTask&);
};

extern const ResidualKernels portable_residual;
#ifdef HUSH_X86
extern const ResidualKernels avx2_residual;
extern const ResidualKernels avx512_residual;
#endif
const ResidualKernels& residual_kernels();  // of the set that kernels() has chosen

// What the forward leaves for the backward, in one block of memory:
//
//   head     magic, batch, blocks, width, offset of the lists' table
//   stream   x before each block, [block][sample][width]: the norm's backward needs all of it
//   mean, inverse    [block][sample]
//   biases   [block][width], as this forward saw them: ∂L/∂β needs them, and they may change in between
//   table    per block: offset and number of the active units; then the lists, input by input, as in SavedLayer
struct SavedStream {
    char* base;
    size_t batch, blocks, width;
    static constexpr uint64_t kMagic = 0x6875736872657331;  // "hushres1"
    size_t stream_at() const;
    size_t mean_at() const;
    size_t inverse_at() const;
    size_t biases_at() const;
    size_t table_at() const;
    size_t lists_at() const;
    size_t bound() const;
    float* stream(size_t block) const { return at<float>(stream_at()) + block * batch * width; }
    float* mean(size_t block) const { return at<float>(mean_at()) + block * batch; }
    float* inverse(size_t block) const { return at<float>(inverse_at()) + block * batch; }
    float* bias(size_t block) const { return at<float>(biases_at()) + block * width; }
    uint64_t* row(size_t block) const { return at<uint64_t>(table_at()) + 2 * block; }
    SavedLayer lists(size_t block) const;
    void write_head() const;
    void check(size_t bytes) const;  // throws

private:
    template <class T>
    T* at(size_t offset) const {
        return reinterpret_cast<T*>(base + offset);
    }
};

// out[b, :] for a row-major h; saved (of SavedStream::bound bytes) may be null: nothing is kept.
ForwardResult residual_forward(const ResidualBlock* blocks, size_t n, const float* h, size_t h_stride, size_t batch,
                               float* out, size_t out_stride, char* saved, int threads);

// From ∂L/∂out to ∂L/∂h (null: not wanted) and every parameter's gradient or update.
void residual_backward(const ResidualBlock* blocks, const BlockGradient* gradients, size_t n, char* saved,
                       const float* grad_out, size_t grad_out_stride, size_t batch, float* grad_h,
                       size_t grad_h_stride, int threads);

}  // namespace hush
