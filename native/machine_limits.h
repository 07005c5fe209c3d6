// How fast one core multiplies and reads, for a roofline beside the kernels' own rates.
#pragma once
#include <cstddef>

namespace hush {

struct LimitKernels {
    const char* name;
    // Both return a number that depends on all they did, so that no compiler leaves any of it out.
    float (*multiply)(size_t rounds);                             // kChains · lanes multiply-adds a round
    float (*read)(const float* data, size_t count, size_t passes);  // count: a multiple of kStretch
};

constexpr int kChains = 12;       // independent multiply-adds in flight: more than any x86 needs
constexpr size_t kStretch = 256;  // floats that one turn of the reading loop takes

extern const LimitKernels portable_limits;
#ifdef HUSH_X86
extern const LimitKernels avx2_limits;
extern const LimitKernels avx512_limits;
#endif

}  // namespace hush
