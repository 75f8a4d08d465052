#include "engine/capture/tar_header.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace attnscope {
namespace {

// Fields of the header: where and how long.
constexpr std::size_t kTarName = 0, kTarNameBytes = 100, kTarMode = 100, kTarSize = 124,
                      kTarSizeBytes = 12, kTarTime = 136, kTarSum = 148, kTarSumBytes = 8,
                      kTarType = 156, kTarMagic = 257;

std::uint64_t sum_of(const TarBlock& block) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kTarBlock; ++i) {
    const bool own = i >= kTarSum && i < kTarSum + kTarSumBytes;  // counts as spaces
    sum += own ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

void put_octal(TarBlock& block, std::size_t at, int digits, std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "%0*llo", digits, static_cast<unsigned long long>(value));
  std::memcpy(block.data() + at, text, static_cast<std::size_t>(digits));
}

std::optional<std::uint64_t> octal(const TarBlock& block, std::size_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = at; i < at + bytes; ++i) {
    const char c = block[i];
    if (c == '\0' || c == ' ') {
      if (i == at) return std::nullopt;
      return value;
    }
    if (c < '0' || c > '7' || value > UINT64_MAX >> 3) return std::nullopt;
    value = value << 3 | static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

}  // namespace

TarBlock tar_header(const std::string& name, std::uint64_t size) {
  TarBlock block{};
  std::memcpy(block.data() + kTarName, name.data(), std::min(name.size(), kTarNameBytes - 1));
  put_octal(block, kTarMode, 7, 0644);
  put_octal(block, kTarMode + 8, 7, 0);
  put_octal(block, kTarMode + 16, 7, 0);
  put_octal(block, kTarSize, 11, size);
  put_octal(block, kTarTime, 11, 0);
  block[kTarType] = '0';
  std::memcpy(block.data() + kTarMagic, "ustar\00000", 8);
  put_octal(block, kTarSum, 6, sum_of(block));
  block[kTarSum + 7] = ' ';
  return block;
}

std::optional<TarEntry> read_tar_header(const TarBlock& block) {
  TarEntry entry;
  if (std::ranges::all_of(block, [](char c) { return c == '\0'; })) {
    entry.end = true;
    return entry;
  }
  const auto sum = octal(block, kTarSum, kTarSumBytes),
             size = octal(block, kTarSize, kTarSizeBytes);
  if (!sum || *sum != sum_of(block) || !size) return std::nullopt;
  const char type = block[kTarType];
  if (type != '0' && type != '\0' && type != '5') return std::nullopt;
  entry.name.assign(block.data(), strnlen(block.data(), kTarNameBytes));
  entry.size = *size;
  entry.folder = type == '5';
  return entry;
}

}  // namespace attnscope
