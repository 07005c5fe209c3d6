// The kernels for one instruction set; CMake gives this file its own compiler flags.
#include "simd/portable.h"

#include "backward.inl.h"
#include "convolution.inl.h"
#include "forward.inl.h"
#include "machine_limits.inl.h"
#include "residual.inl.h"
#include "residual_back.inl.h"
#include "shared.inl.h"

namespace hush {
const Kernels portable_kernels = {
    "portable",       Portable::W,    Portable::kWide, Portable::kPacked, Portable::kBack,   Portable::kShared,  activate<Portable>,
    product<Portable>, compact<Portable>, pack<Portable>, forward<Portable>, backward<Portable>, update<Portable>};
const ResidualKernels portable_residual = {"portable", row_moments<Portable>, normalise<Portable>, inner<Portable>, residual_sample<Portable>, sample_back<Portable>, weight_rows<Portable>,
                                        column_sums<Portable>};
const LimitKernels portable_limits = {"portable", multiply<Portable>, read<Portable>};
const ConvKernels portable_convolution = {"portable",          Portable::W,          ConvSizes<Portable>::kTile, count_units<Portable>,
                                      list_row<Portable>, convolve_row<Portable>, convolve_back<Portable>};
}
