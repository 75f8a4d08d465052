// Equal pieces of memory filled with one byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace attnscope::cuda {

// Piece i lies at `memory` + i * bytes, on the GPU. stream: a cudaStream_t. 0 or a CUDA error.
int fill_pieces(void* memory, std::size_t bytes, std::span<const std::int32_t> pieces, int byte,
                void* stream);

}  // namespace attnscope::cuda
