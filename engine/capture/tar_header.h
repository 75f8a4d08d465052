// The header of one file in a tar archive, POSIX ustar: 512 bytes, numbers as octal texts.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace attnscope {

inline constexpr std::size_t kTarBlock = 512;
using TarBlock = std::array<char, kTarBlock>;

TarBlock tar_header(const std::string& name, std::uint64_t size);

struct TarEntry {
  std::string name;
  std::uint64_t size = 0;
  bool end = false;     // a block of zeros
  bool folder = false;  // which other programs write before the files in it
};
// Nothing when it is damaged or neither a plain file nor a folder.
std::optional<TarEntry> read_tar_header(const TarBlock& block);

}  // namespace attnscope
