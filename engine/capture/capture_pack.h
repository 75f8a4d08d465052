// One file for sending a capture: a tar archive compressed with zstd, which `tar --zstd -xf` opens
// as well. Names in it are those of a capture's files and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/params/result.h"

namespace attnscope {

struct PackTotals {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;   // of the capture
  std::uint64_t packed = 0;  // of the file
  // What in the capture does not fit its checksums; it may be all there is, and is packed as it is.
  std::optional<Error> damage;
};

// Those that pack, with versions; empty in a build without them.
std::string packing_libraries();

struct UnpackOptions {
  // A small file can hold a very large capture. One that would become more than kUnpackRatio times
  // as large as its file, and more than kUnpackFree bytes, is refused unless this is set.
  bool large = false;
};
inline constexpr std::uint64_t kUnpackRatio = 50, kUnpackFree = std::uint64_t{64} << 20;

// AS_NO_ENVIRONMENT in a build without libarchive or zstd. level: 1 (fast) to 19 (small).
Result<PackTotals> pack_capture(const std::string& folder, const std::string& file, int level);
// Replaces a capture at `folder`, never anything else; what is unpacked is opened before. Nothing
// is written before all sizes are known: those of the archive's headers fit on the disk and into
// what its index.json states (CaptureIndex::bytes).
Result<PackTotals> unpack_capture(const std::string& file, const std::string& folder,
                                  const UnpackOptions& options = {});

}  // namespace attnscope
