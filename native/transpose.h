// Matrices turned around: the kernels read weights input by input, torch keeps them output by output.
#pragma once
#include <cstddef>
#include <vector>

namespace hush {

// to[c, r] = from[r, c], both packed row by row.
struct Transposition {
    const float* from;
    float* to;
    size_t rows, columns;
};

// All of them, shared by a team of threads.
void transpose(const std::vector<Transposition>& all, int threads);

// to[c, r] = from[r, c] for a part of two matrices, whose rows begin a stride apart.
void transpose_part(const float* from, size_t from_stride, float* to, size_t to_stride, size_t rows, size_t columns);

}  // namespace hush
