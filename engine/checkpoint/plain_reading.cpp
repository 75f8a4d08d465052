#include "engine/checkpoint/plain_reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

namespace attnscope::plain {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// Five bits of exponent with bias 15, ten of mantissa.
double f16_number(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double mantissa = bits & 1023;
  double size = std::ldexp(1 + mantissa / 1024, exponent - 15);
  if (exponent == 0) size = std::ldexp(mantissa / 1024, -14);
  if (exponent == 31) size = mantissa == 0 ? INFINITY : NAN;
  return std::copysign(size, bits >= 0x8000 ? -1 : 1);
}

double e4m3_number(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code >= 128 ? -size : size;
}

double from_e8m0(std::uint8_t code) {
  return code == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, code - 127);
}

}  // namespace

double bf16_number(std::uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
}

double from_e4m3(std::uint8_t code) {
  static const std::array<double, 256> kValues = [] {
    std::array<double, 256> all{};
    for (int i = 0; i < 256; ++i) all[static_cast<std::size_t>(i)] = e4m3_number(i);
    return all;
  }();
  return kValues[code];
}

double nearest_bf16(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const auto single = static_cast<float>(value);
  const bool is_one =
      static_cast<double>(single) == value && (std::bit_cast<std::uint32_t>(single) & 0xffff) == 0;
  if (is_one) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int step = std::max(exponent - 8, -133);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -step)), step);
  const double infinite = std::ldexp(1.0, 128);
  return std::fabs(rounded) < infinite ? rounded : std::copysign(INFINITY, value);
}

std::int64_t Stored::element_bytes() const {
  if (dtype == "F64") return 8;
  if (dtype == "F32") return 4;
  if (dtype == "BF16" || dtype == "F16") return 2;
  return dtype.starts_with("F8_E") ? 1 : 0;
}

Error unreadable(const fs::path& file, const std::string& what) {
  return bad_input(fmt::format("{}: {} when read a second time", file.string(), what),
                   "the file must stay as it is while it is read");
}

Result<void> Files::open_checkpoint(const fs::path& folder) {
  const fs::path index = folder / "model.safetensors.index.json";
  std::error_code ignored;
  if (!fs::exists(index, ignored)) return add(folder / "model.safetensors", {});
  std::ifstream in(index);
  const json parsed = json::parse(in, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("weight_map")) {
    return unreadable(index, "no index");
  }
  for (const auto& [name, shard] : parsed["weight_map"].items()) {
    if (shard.is_string()) shards_[name] = folder / shard.get<std::string>();
  }
  return {};
}

Result<const Stored*> Files::find(const std::string& name) {
  const auto shard = shards_.find(name);
  if (!stored_.contains(name) && shard != shards_.end()) {
    if (auto ok = add(shard->second, name); !ok) return ok.error();
  }
  const auto at = stored_.find(name);
  if (at == stored_.end()) return unreadable(name, "no such tensor");
  return &at->second;
}

Result<FileValues> Files::read(const Stored& t, std::int64_t first, std::int64_t rows) {
  const std::int64_t size = t.element_bytes(), count = rows * t.columns();
  const std::int64_t at = t.begin + first * t.columns() * size;
  if (size == 0 || at + count * size > t.end) return unreadable(t.file, t.name + " is shorter");
  std::vector<char> bytes(static_cast<std::size_t>(count * size));
  std::ifstream in(t.file, std::ios::binary);
  in.seekg(at);
  if (!in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    return unreadable(t.file, "cut off");
  }
  FileValues values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const char* p = bytes.data() + i * static_cast<std::size_t>(size);
    if (size == 1) {
      const auto code = static_cast<std::uint8_t>(*p);
      values[i] = t.dtype == "F8_E8M0" ? from_e8m0(code) : from_e4m3(code);
    } else if (size == 2) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, p, 2);
      values[i] = t.dtype == "F16" ? f16_number(bits) : bf16_number(bits);
    } else if (size == 8) {
      std::memcpy(&values[i], p, 8);
    } else {
      float value = 0;
      std::memcpy(&value, p, 4);
      values[i] = static_cast<double>(value);
    }
  }
  return values;
}

Result<void> Files::add(const fs::path& file, const std::string& wanted) {
  std::ifstream in(file, std::ios::binary);
  std::uint64_t length = 0;
  if (!in.read(reinterpret_cast<char*>(&length), 8)) return unreadable(file, "not readable");
  std::error_code ignored;
  const std::uintmax_t size = fs::file_size(file, ignored);
  if (length > size) return unreadable(file, "cut off");
  std::string text(length, ' ');
  in.read(text.data(), static_cast<std::streamsize>(length));
  const json header = json::parse(text, nullptr, false);
  if (!in || !header.is_object()) return unreadable(file, "no header");
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto shard = shards_.find(name);
    if (!wanted.empty() && (shard == shards_.end() || shard->second != file)) continue;
    const json& offsets = entry["data_offsets"];
    const auto data = static_cast<std::int64_t>(8 + length);
    stored_[name] = {name,
                     entry["dtype"],
                     entry["shape"],
                     data + offsets[0].get<std::int64_t>(),
                     data + offsets[1].get<std::int64_t>(),
                     file};
  }
  return {};
}

}  // namespace attnscope::plain
