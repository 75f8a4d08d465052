#include "engine/tensorfile/tensor_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/io/byte_stream.h"
#include "engine/io/json_object.h"
#include "engine/tensorfile/header_parser.h"
#include "engine/tensorfile/tensor_writer.h"

namespace attnscope {
namespace {

constexpr std::size_t kPrefix = 8;
const char* const kCutOffHint = "the file was damaged or cut off: fetch or write it again";

// Product of the shape, nothing when it does not fit 63 bits.
std::optional<std::int64_t> count_elements(const std::vector<std::uint64_t>& shape) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t n = 1;
  bool empty = false;
  for (const std::uint64_t size : shape) {
    if (size > kMost) return std::nullopt;
    if (size == 0) {
      empty = true;
    } else if (n > kMost / size) {
      return std::nullopt;
    } else {
      n *= size;
    }
  }
  return empty ? 0 : static_cast<std::int64_t>(n);
}

// Whether so many elements are `bytes` bytes; no product that could overflow.
bool fills(std::int64_t elements, ElementType type, std::uint64_t bytes) {
  const auto n = static_cast<std::uint64_t>(elements);
  const auto bits = static_cast<std::uint64_t>(element_bits(type));
  if (bits % 8 == 0) return bytes % (bits / 8) == 0 && bytes / (bits / 8) == n;
  const std::uint64_t in_a_byte = 8 / bits;
  return n % in_a_byte == 0 && n / in_a_byte == bytes;
}

Error damaged(const std::string& path, const std::string& tensor, const std::string& what) {
  return bad_input(fmt::format("{}: tensor {}: {}", path, shown_name(tensor), what), kCutOffHint);
}

// One tensor against its own numbers and the bytes there are.
Result<TensorEntry> check(const RawTensor& raw, std::uint64_t available, const std::string& path) {
  if (raw.begin > raw.end) {
    return damaged(path, raw.name,
                   fmt::format("data_offsets [{}, {}] run backwards", raw.begin, raw.end));
  }
  if (raw.end > available) {
    return damaged(path, raw.name,
                   fmt::format("data_offsets end at {}, but the file holds {} bytes of data",
                               raw.end, available));
  }
  const auto elements = count_elements(raw.shape);
  const std::string shape =
      fmt::format("{} [{}]", element_name(raw.type), fmt::join(raw.shape, ","));
  if (!elements) return damaged(path, raw.name, shape + " has more than 2^63 - 1 elements");
  const std::uint64_t bytes = raw.end - raw.begin;
  if (!fills(*elements, raw.type, bytes)) {
    return damaged(path, raw.name,
                   fmt::format("{} does not take the {} bytes that data_offsets [{}, {}] hold",
                               shape, bytes, raw.begin, raw.end));
  }
  TensorEntry entry;
  entry.name = raw.name;
  entry.type = raw.type;
  for (const std::uint64_t size : raw.shape) entry.shape.push_back(static_cast<std::int64_t>(size));
  entry.elements = *elements;
  entry.offset = raw.begin;
  entry.bytes = static_cast<std::size_t>(bytes);
  return entry;
}

// Every byte after the header belongs to one tensor.
Result<void> check_coverage(const std::vector<TensorEntry>& tensors, std::uint64_t available,
                            const std::string& path) {
  std::uint64_t at = 0;
  const TensorEntry* before = nullptr;
  for (const TensorEntry& t : tensors) {
    if (t.offset < at) {
      return damaged(path, t.name,
                     fmt::format("begins at {}, inside tensor {}, which ends at {}", t.offset,
                                 shown_name(before->name), at));
    }
    if (t.offset > at) {
      return damaged(path, t.name,
                     fmt::format("begins at {}, expected {}: a hole of {} bytes", t.offset, at,
                                 t.offset - at));
    }
    at += t.bytes;
    before = &t;
  }
  if (at != available) {
    return bad_input(
        fmt::format("{}: {} bytes after the last tensor belong to none", path, available - at),
        kCutOffHint);
  }
  return {};
}

std::uint64_t read_length(const std::uint8_t* p) {
  std::uint64_t n = 0;
  for (int i = 7; i >= 0; --i) n = n << 8 | p[i];
  return n;
}

}  // namespace

bool TensorEntry::aligned() const {
  const auto step = static_cast<std::size_t>(std::max(1, element_bits(type) / 8));
  return reinterpret_cast<std::uintptr_t>(data) % step == 0;
}

Result<TensorFile> TensorFile::open(const std::string& path) {
  auto mapped = MappedFile::open(path);
  if (!mapped) return mapped.error();
  const auto bytes = mapped->bytes();
  if (bytes.size() < kPrefix) {
    return bad_input(
        fmt::format("{}: {} bytes long, a safetensors file has at least 10", path, bytes.size()),
        kCutOffHint);
  }
  const std::uint64_t length = read_length(bytes.data());
  if (length > kLargestHeader) {
    return bad_input(fmt::format("{}: says its header is {} bytes long, at most {} are read", path,
                                 length, kLargestHeader),
                     "the file is damaged, or no safetensors file");
  }
  if (length > bytes.size() - kPrefix) {
    return bad_input(fmt::format("{}: says its header is {} bytes long, but {} bytes follow", path,
                                 length, bytes.size() - kPrefix),
                     kCutOffHint);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kPrefix, length);
  if (text.empty() || text.front() != '{') {
    return bad_input(fmt::format("{}: its header does not begin with {{", path),
                     "the file is damaged, or no safetensors file");
  }
  try {
    auto header = parse_header(text, path);
    if (!header) return header.error();
    const std::uint64_t available = bytes.size() - kPrefix - length;
    std::vector<TensorEntry> all;
    all.reserve(header->tensors.size());
    for (const RawTensor& raw : header->tensors) {
      auto entry = check(raw, available, path);
      if (!entry) return entry.error();
      entry->data = bytes.data() + kPrefix + length + entry->offset;
      all.push_back(std::move(*entry));
    }
    // An empty tensor lies before the one whose bytes begin at the same place.
    std::stable_sort(all.begin(), all.end(), [](const TensorEntry& a, const TensorEntry& b) {
      return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
    });
    if (auto ok = check_coverage(all, available, path); !ok) return ok.error();
    TensorFile file;
    file.path_ = path;
    file.header_ = text;
    file.owner_ = mapped->owner();
    file.metadata_ = std::move(header->metadata);
    const auto padding = file.metadata_.find(kPaddingKey);
    for (TensorEntry& entry : all) {
      const bool pads = padding != file.metadata_.end() && !padding->second.empty() &&
                        entry.type == ElementType::kU8 && entry.name.starts_with(padding->second);
      if (!pads) file.tensors_.push_back(std::move(entry));
    }
    for (std::size_t i = 0; i < file.tensors_.size(); ++i) {
      file.by_name_[file.tensors_[i].name] = i;
    }
    return file;
  } catch (const std::bad_alloc&) {
    return bad_input(fmt::format("{}: not enough memory for its header of {} bytes", path, length));
  }
}

Result<TensorFile> TensorFile::of(const std::string& path, std::vector<TensorEntry> entries,
                                  std::vector<std::shared_ptr<const void>> owners) {
  TensorFile file;
  file.path_ = path;
  file.tensors_ = std::move(entries);
  for (std::size_t i = 0; i < file.tensors_.size(); ++i) {
    if (!file.by_name_.emplace(file.tensors_[i].name, i).second) {
      return bad_input(
          fmt::format("{}: has tensor {} twice", path, shown_name(file.tensors_[i].name)),
          "give each tensor a name of its own");
    }
  }
  file.owner_ = std::make_shared<const std::vector<std::shared_ptr<const void>>>(std::move(owners));
  return file;
}

std::uint64_t digest_of(std::uint64_t before, const void* data, std::size_t bytes) {
  return digest_with(before, checksum(static_cast<const std::uint8_t*>(data), bytes));
}

std::uint64_t digest_with(std::uint64_t before, std::uint64_t sum) {
  const std::uint64_t pair[2] = {before, sum};
  return checksum(reinterpret_cast<const std::uint8_t*>(pair), sizeof(pair));
}

std::uint64_t TensorFile::digest() const {
  std::uint64_t digest = digest_of(0, header_.data(), header_.size());
  for (const TensorEntry& t : tensors_) digest = digest_of(digest, t.data, t.bytes);
  return digest;
}

const TensorEntry* TensorFile::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

Result<const TensorEntry*> TensorFile::get(std::string_view name) const {
  if (const TensorEntry* entry = find(name)) return entry;
  return bad_input(fmt::format("{}: has no tensor {}", path_, shown_name(name)));
}

Result<as_tensor> as_tensor_of(const TensorFile& file, const TensorEntry& entry) {
  const std::int32_t dtype = dtype_of(entry.type);
  if (dtype < 0) {
    return damaged(file.path(), entry.name,
                   fmt::format("{} is not computed with here", element_name(entry.type)));
  }
  if (entry.shape.empty() || entry.shape.size() > AS_MAX_RANK) {
    return damaged(
        file.path(), entry.name,
        fmt::format("has {} dimensions, expected 1 to {}", entry.shape.size(), AS_MAX_RANK));
  }
  if (!entry.aligned()) {
    return damaged(file.path(), entry.name,
                   fmt::format("its bytes are not aligned to {}", element_name(entry.type)));
  }
  as_tensor t{};
  t.data = const_cast<std::uint8_t*>(entry.data);
  t.dtype = dtype;
  t.rank = static_cast<std::int32_t>(entry.shape.size());
  std::int64_t stride = 1;
  for (std::int32_t i = t.rank - 1; i >= 0; --i) {
    t.shape[i] = entry.shape[static_cast<std::size_t>(i)];
    t.stride[i] = stride;
    stride *= std::max<std::int64_t>(1, t.shape[i]);
  }
  return t;
}

}  // namespace attnscope
