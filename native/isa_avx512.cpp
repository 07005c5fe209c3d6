// The kernels for one instruction set; CMake gives this file its own compiler flags.
#ifdef HUSH_EMULATE
#include "simd/emulate512.h"
#endif
#include "simd/avx512.h"

#include "backward.inl.h"
#include "convolution.inl.h"
#include "forward.inl.h"
#include "machine_limits.inl.h"
#include "residual.inl.h"
#include "residual_back.inl.h"
#include "shared.inl.h"

namespace hush {
const Kernels avx512_kernels = {
    "avx512",       Avx512::W,    Avx512::kWide, Avx512::kPacked, Avx512::kBack,   Avx512::kShared,  activate<Avx512>,
    product<Avx512>, compact<Avx512>, pack<Avx512>, forward<Avx512>, backward<Avx512>, update<Avx512>};
const ResidualKernels avx512_residual = {"avx512", row_moments<Avx512>, normalise<Avx512>, inner<Avx512>, residual_sample<Avx512>, sample_back<Avx512>, weight_rows<Avx512>,
                                        column_sums<Avx512>};
const LimitKernels avx512_limits = {"avx512", multiply<Avx512>, read<Avx512>};
const ConvKernels avx512_convolution = {"avx512",          Avx512::W,          ConvSizes<Avx512>::kTile, count_units<Avx512>,
                                      list_row<Avx512>, convolve_row<Avx512>, convolve_back<Avx512>};
}
