// Memory of tensors on the host that is kept when it is let go, for the next of that size: a
// program makes and drops arrays of megabytes at every line, and the kernel would clear each page
// of each of them again, which took as long as the arithmetic.
#pragma once

#include <cstddef>

namespace attnscope::reference {

// Smaller blocks are libtorch's own, as are those that are larger than the largest.
inline constexpr std::size_t kLeastKept = std::size_t{1} << 16, kMostKept = std::size_t{1} << 26;
// What lies ready for others, of all blocks together.
inline constexpr std::size_t kKeptBytes = std::size_t{128} << 20;

// Once, before tensors are made: from here on libtorch asks here for memory of the host.
void keep_tensor_memory();

}  // namespace attnscope::reference
