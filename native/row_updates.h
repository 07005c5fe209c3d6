// Updates of weights that lie row by row. The kernels of a backward read and write weights input-major: such a weight was
// turned around for them, its gradient is written the same way, and it takes its step while the gradient is turned back.
#pragma once
#include <memory>
#include <vector>

#include "chain.h"

namespace hush {

class RowUpdates {
public:
    // The backward is to write the gradient of this layer's weights and leave the step to `step`.
    void add(LayerGradient& gradient, const Layer& layer);
    // Memory for the gradients; once all have been added.
    void divert();
    void step(int threads) const;

private:
    struct One {
        LayerGradient* to;
        Optimizer optimizer;
        float *weight, *state1, *state2;
        size_t inputs, outputs;
        const float* gradient;
    };
    std::vector<One> all_;
    std::shared_ptr<char> memory_;
};

}  // namespace hush
