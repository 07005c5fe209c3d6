// The kernels for one instruction set; CMake gives this file its own compiler flags.
#include "simd/avx2.h"

#include "backward.inl.h"
#include "convolution.inl.h"
#include "forward.inl.h"
#include "machine_limits.inl.h"
#include "residual.inl.h"
#include "residual_back.inl.h"
#include "shared.inl.h"

namespace hush {
const Kernels avx2_kernels = {
    "avx2",       Avx2::W,    Avx2::kWide, Avx2::kPacked, Avx2::kBack,   Avx2::kShared,  activate<Avx2>,
    product<Avx2>, compact<Avx2>, pack<Avx2>, forward<Avx2>, backward<Avx2>, update<Avx2>};
const ResidualKernels avx2_residual = {"avx2", row_moments<Avx2>, normalise<Avx2>, inner<Avx2>, residual_sample<Avx2>, sample_back<Avx2>, weight_rows<Avx2>,
                                        column_sums<Avx2>};
const LimitKernels avx2_limits = {"avx2", multiply<Avx2>, read<Avx2>};
const ConvKernels avx2_convolution = {"avx2",          Avx2::W,          ConvSizes<Avx2>::kTile, count_units<Avx2>,
                                      list_row<Avx2>, convolve_row<Avx2>, convolve_back<Avx2>};
}
