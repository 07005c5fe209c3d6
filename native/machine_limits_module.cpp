// The Python face of the limits: each call runs on the thread that makes it, without the interpreter's lock.
#include <cstring>

#include "binding.h"
#include "kernels.h"
#include "machine_limits.h"

namespace hush {
namespace {

const LimitKernels& limits() {
#ifdef HUSH_X86
    for (const LimitKernels* each : {&avx512_limits, &avx2_limits})
        if (!std::strcmp(each->name, kernels().name)) return *each;
#endif
    return portable_limits;
}

}  // namespace

void bind_limits(nb::module_& m) {
    m.def("flops_a_round", [] { return 2 * kChains * kernels().lanes; });
    m.def(
        "multiply", [](size_t rounds) { return limits().multiply(rounds); }, "rounds"_a,
        nb::call_guard<nb::gil_scoped_release>());
    m.def(
        "read",
        [](Vector data, size_t passes) {
            if (!data.shape(0) || data.shape(0) % kStretch)
                throw std::invalid_argument("There are " + std::to_string(data.shape(0)) +
                                            " numbers to read; it must be a multiple of " + std::to_string(kStretch) + ".");
            nb::gil_scoped_release release;
            return limits().read(data.data(), data.shape(0), passes);
        },
        nb::arg("data").noconvert(), "passes"_a);
}

}  // namespace hush
