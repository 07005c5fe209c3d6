// Which instruction set to run: the best of this machine, or the one HUSH_ISA names.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels.h"

namespace hush {

static const Kernels& choose() {
    const char* forced = std::getenv("HUSH_ISA");
    const std::string name = forced ? forced : "";
    if (name == "portable") return portable_kernels;
#ifdef HUSH_X86
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#ifdef HUSH_EMULATE
    if (name == "avx512") return avx512_kernels;
#endif
    if (name == "avx512" && has_avx512) return avx512_kernels;
    if (name == "avx2" && has_avx2) return avx2_kernels;
    if (name.empty()) return has_avx512 ? avx512_kernels : has_avx2 ? avx2_kernels : portable_kernels;
#else
    if (name.empty()) return portable_kernels;
#endif
    throw std::invalid_argument("HUSH_ISA is '" + name +
                                "', which this machine or this build cannot run; use avx512, avx2 or portable, or "
                                "unset it to take the best one.");
}

const Kernels& kernels() {
    static const Kernels& chosen = choose();
    return chosen;
}

}  // namespace hush
