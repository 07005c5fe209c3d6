// What one instruction set offers: plain function pointers over plain structs, filled in once per set.
#pragma once
#include <cstddef>
#include <cstdint>

#include "activation.h"

namespace hush {

// The active units of every sample, in one stretch of columns: sample b owns values[b·stride ..], count[b] of them.
// A slot has room for all its columns and one vector more, because a compress stores full width.
struct ActiveLists {
    float* values = nullptr;
    uint32_t* indices = nullptr;
    uint32_t* count = nullptr;       // per sample
    uint32_t* per_column = nullptr;  // samples in which a column is active; null where nobody asks
    size_t stride = 0;
    size_t first_column = 0;
};

// Weights the thread will want next: fetched into L2 a few lines at a time while it computes, because the next layer
// comes from memory and its rows are visited in no order that a hardware prefetcher would guess.
struct Ahead {
    const char* base = nullptr;
    size_t row_stride = 0, row_bytes = 0, rows = 0;
    size_t row = 0, byte = 0;  // the next line to fetch
    size_t quota = 0;          // lines per step
};

template <class S>
inline void fetch(Ahead* a) {
    for (size_t n = a->quota; n && a->row < a->rows; --n) {
        __builtin_prefetch(a->base + a->row * a->row_stride + a->byte, 0, 2);
        a->byte += 64;
        if (a->byte >= a->row_bytes) a->byte = 0, ++a->row;
    }
}

// Rows of weights are read in whole vectors: lanes behind a row's end take what follows it, and are never used. Only the
// last row, or all of rows shorter than a vector, is read with a mask: a masked load costs several times a plain one.
// `entries` rows are read in rising order, the last of them `last`; how many of them may be read whole.
template <class S>
inline size_t whole_rows(size_t entries, size_t last, size_t rows, size_t stride) {
    if (stride < S::W) return 0;
    return entries && last + 1 == rows ? entries - 1 : entries;
}

// So few samples do not find the rows they want in L2: the first are fetched before anything is added, each of the others
// while some rows before it are added.
constexpr size_t kFewSamples = 4;
constexpr uint32_t kFetchAhead = 4;
template <class S, int N, class T>
inline void fetch_row(const T* row) {
#pragma GCC unroll 32
    for (int v = 0; v < N; ++v) __builtin_prefetch(row + v * S::W, 0, 3);
}

// Appends φ(h), columns [first, last) of a row-major h, to each sample's list.
struct CompactTask {
    const float* h;
    size_t row_stride, batch, first, last;
    Activation activation;
    ActiveLists out;
};

// A stretch of each sample's list: entries [begin[b], end[b]).
struct Segment {
    const float* values;
    const uint32_t* indices;
    const uint32_t* begin;  // null: from 0
    const uint32_t* end;
    size_t stride;
};

// One tile of outputs, all samples: out[b, tile] = start + Σ_k values[k] · W[indices[k] − first_row, tile].
struct ForwardTask {
    const void* weight;  // at the tile's first column
    size_t weight_stride;
    uint32_t first_row;  // the input that the first row of weight belongs to
    size_t rows;         // of weight
    bool bf16;
    int vectors, tail;  // tail: lanes of the last vector, 0 when it is full
    const float* bias;  // at the tile's first column, or null
    const float* start; // partial sums [batch][vectors·W] of an earlier block of inputs, or null
    float* partial;     // where to leave partial sums when this is not the last block
    float* out;         // dense result at the tile's first column, or null: then activate and compact
    size_t out_stride;
    size_t batch;
    const Segment* segments;
    int n_segments;
    Activation activation;
    ActiveLists lists;
    size_t column;  // of the tile in the layer's output
};

// Copies W[first_row .. +rows, tile] into [rows][vectors·W], as float, zeros after the tail.
struct PackTask {
    const void* weight;
    size_t weight_stride, rows;
    bool bf16;
    int vectors, tail;
    float* out;
};

// φ of a row-major h, dense, into out; counts[j] += the samples in which column j is active, where anybody asks.
// Rows of out have room for whole vectors; out may be h. Of a relative φ the root mean squares of the samples, and h itself,
// are left where anybody asks for them.
struct ActivateTask {
    const float* h;
    size_t row_stride, batch, width;
    Activation activation;
    float* out;
    size_t out_stride;
    uint32_t* counts;
    float* scales;
    float* kept;  // [batch][width]
};

// A tile of columns of a dense product, in registers:
//
//   out[m, tile] = bias + Σ_k a[m, k] · b[k, tile]     m < rows, k < terms
//
// With a list `at`, term k stands at at[k] in both factors: that is how a layer's shared active inputs are picked.
enum class Finish : int {
    plain,
    activate,  // out = φ(·), and counts
    slope      // out = · where φ′(y) = 1, else 0, and sums over the rows
};
struct ProductTask {
    const float* a;  // a[m, k] at a[m · a_row + k · a_term]
    size_t a_row, a_term;
    const void* b;  // at the tile's first column
    size_t b_stride, b_rows;
    bool bf16;
    const uint32_t* at;  // null: every k
    size_t rows, terms;
    int vectors, tail;  // tail: lanes of b's, the bias's and a plain out's last vector, 0 when it is full
    const float* bias;  // or null
    float* out;
    size_t out_stride;
    Finish finish;
    Activation activation;
    uint32_t* counts;
    const float* y;
    size_t y_stride;
    float* sums;
};

enum class Update : int { none, gradient, sgd, momentum, adamw };

struct Optimizer {
    Update kind = Update::gradient;
    float lr = 0, weight_decay = 0, momentum = 0, dampening = 0;
    bool nesterov = false;
    float beta1 = 0, beta2 = 0, eps = 0, correction1 = 1, correction2 = 1;  // 1 − β^t, and √(1 − β₂^t)
};

// One tile of outputs, inputs [first, last): with δ the gradient of the outputs,
//
//   sums[k]    (+)= ⟨δ[sample[k], tile], W[i, tile]⟩         for each k in the column list of i
//   ∂L/∂W[i, tile] = Σ_k values[k] · δ[sample[k], tile]
//
// Both in one sweep, so that every δ is loaded once for two multiplications, and W is read and written once.
// With delta_sum the gradient is centred, ∂L/∂W[i, tile] − means[i] · delta_sum[tile], and with drift the step ΔW that
// the weights took is told by what it does to the mean input: drift[tile] += means[i] · ΔW[i, tile].
struct BackwardTask {
    const float* delta;  // [batch][kBack·W]
    size_t delta_stride;
    float* weight;  // at the tile's first column
    size_t weight_stride;
    int vectors, tail;
    size_t first, last;
    const uint32_t* column_start;
    const float* values;
    const void* samples;  // uint16_t or uint32_t
    bool wide_samples;
    float* sums;  // null when nobody needs the input's gradient
    bool add_sums;
    Optimizer optimizer;
    Ahead* ahead;
    float *gradient, *state1, *state2;  // at the tile's first column, same stride as the weight
    const float* means;      // of each input over the batch
    const float* delta_sum;  // of δ over the batch, at the tile's first column, whole vectors; null: not centred
    float* drift;            // at the tile's first column, whole vectors; null where nobody asks
};

struct Kernels {
    const char* name;
    int lanes, wide, packed, back, shared;
    void (*activate)(const ActivateTask&);
    void (*product)(const ProductTask&);
    void (*compact)(const CompactTask&);
    void (*pack)(const PackTask&);
    void (*forward)(const ForwardTask&);
    void (*backward)(const BackwardTask&);
    void (*update)(const Optimizer&, float* weight, const float* gradient, float* state1, float* state2, size_t n);
};

extern const Kernels portable_kernels;
#ifdef HUSH_X86
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
#endif

const Kernels& kernels();  // the best this machine runs, or what HUSH_ISA names

}  // namespace hush
