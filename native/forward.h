// The three ways to share a forward chain among threads.
#pragma once
#include "chain.h"

namespace hush {

struct ForwardCall {
    const Layer* layers;
    size_t n_layers;
    const float* h;
    size_t h_stride, batch;
    float* out;
    size_t out_stride;
    char* saved;
    int threads;
};

ForwardResult forward_by_outputs(const ForwardCall& call);
ForwardResult forward_wide(const ForwardCall& call);
ForwardResult forward_by_samples(const ForwardCall& call);

}  // namespace hush
