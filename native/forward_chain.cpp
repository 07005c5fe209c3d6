// Chooses how the threads share a forward chain.
#include <algorithm>

#include "forward.h"

namespace hush {
namespace {

// A layer up to this size stays in L2 while a thread's samples pass it.
constexpr size_t kL2Bytes = 400 * 1024;
// Weights below which one sample runs on one thread. At 300 × 300 two threads and one were equal (0.156 and 0.161 ms
// for 100 layers); where above that the second begins to pay has not been measured.
constexpr size_t kAloneWeights = 512 * 512;

// Samples from which lists one behind the other, and outputs that are written before they are listed, pay.
constexpr size_t kWideBatch = 8;

}  // namespace

ForwardResult forward_chain(const Layer* layers, size_t n, const float* h, size_t h_stride, size_t batch, float* out,
                            size_t out_stride, char* saved, int threads) {
    ForwardCall call{layers, n, h, h_stride, batch, out, out_stride, saved, std::max(threads, 1)};
    size_t largest = 0, bytes = 0;
    bool relative = false;
    for (size_t l = 0; l < n; ++l) {
        const size_t weights = layers[l].inputs * layers[l].outputs;
        largest = std::max(largest, weights);
        bytes = std::max(bytes, weights * (layers[l].bf16 ? 2 : 4));
        relative = relative || layers[l].activation.relative;
    }
    if (relative && batch) {  // a thread must have all of a sample to know its root mean square
        call.threads = static_cast<int>(std::clamp<size_t>(batch, 1, static_cast<size_t>(call.threads)));
        return forward_by_samples(call);
    }
    if (batch < static_cast<size_t>(call.threads) && batch * largest < kAloneWeights) call.threads = 1;
    if (bytes <= kL2Bytes && batch >= static_cast<size_t>(call.threads)) return forward_by_samples(call);
    return batch < kWideBatch ? forward_by_outputs(call) : forward_wide(call);
}

}  // namespace hush
