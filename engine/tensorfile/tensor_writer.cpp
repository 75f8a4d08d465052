#include "engine/tensorfile/tensor_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "engine/io/byte_stream.h"
#include "engine/io/json_object.h"
#include "engine/io/printable.h"
#include "engine/tensorfile/tensor_file.h"

namespace attnscope {
namespace {

const char* const kPaddingPrefix = "__pad_";
constexpr std::uint8_t kZeros[kTensorAlignment] = {};

std::size_t padding_after(std::uint64_t bytes) {
  return (kTensorAlignment - bytes % kTensorAlignment) % kTensorAlignment;
}

bool dense(const as_tensor& t) {
  std::int64_t stride = 1;
  for (std::int32_t i = t.rank - 1; i >= 0; --i) {
    if (t.shape[i] > 1 && t.stride[i] != stride) return false;
    stride *= t.shape[i];
  }
  return true;
}

// Elements in row-major order, whatever their strides.
std::vector<std::uint8_t> dense_copy(const as_tensor& t, std::size_t bytes) {
  std::vector<std::uint8_t> out(bytes);
  const std::int64_t size = as_dtype_size(t.dtype);
  const auto* from = static_cast<const std::uint8_t*>(t.data);
  for (std::int64_t i = 0, n = as_tensor_numel(&t); i < n; ++i) {
    std::int64_t left = i, offset = 0;
    for (std::int32_t axis = t.rank - 1; axis >= 0; --axis) {
      offset += left % t.shape[axis] * t.stride[axis];
      left /= t.shape[axis];
    }
    std::memcpy(&out[static_cast<std::size_t>(i * size)], from + offset * size,
                static_cast<std::size_t>(size));
  }
  return out;
}

// One key of the header, behind those that are there. As text and not as a tree of values: a step
// of a capture has thousands.
void describe(const std::string& name, ElementType type, const std::vector<std::int64_t>& shape,
              std::uint64_t begin, std::uint64_t end, std::string& header) {
  fmt::format_to(std::back_inserter(header),
                 R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                 header.empty() ? "" : ",", json_text(nlohmann::json(name)), element_name(type),
                 fmt::join(shape, ","), begin, end);
}

// Length, header and the spaces that end it at a multiple of the alignment. keys: what lies between
// the header's braces.
std::string prefix(const std::string& keys) {
  const std::string text = "{" + keys + "}";
  const std::uint64_t length = text.size() + padding_after(8 + text.size());
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i) & 0xff);
  out += text;
  out.append(static_cast<std::size_t>(length - text.size()), ' ');
  return out;
}

}  // namespace

void TensorWriter::add(std::string name, ElementType type, std::vector<std::int64_t> shape,
                       const void* data, std::size_t bytes) {
  bytes_ += bytes;
  items_.push_back({std::move(name), type, std::move(shape), data, bytes});
}

void TensorWriter::add_owned(std::string name, ElementType type, std::vector<std::int64_t> shape,
                             std::vector<std::uint8_t> bytes) {
  copies_.push_back(std::make_unique<std::vector<std::uint8_t>>(std::move(bytes)));
  add(std::move(name), type, std::move(shape), copies_.back()->data(), copies_.back()->size());
}

void TensorWriter::add(std::string name, const as_tensor& tensor,
                       std::optional<std::uint64_t> sum) {
  std::vector<std::int64_t> shape(tensor.shape, tensor.shape + tensor.rank);
  const ElementType type = element_of(tensor.dtype);
  const auto bytes =
      static_cast<std::size_t>(as_tensor_numel(&tensor) * as_dtype_size(tensor.dtype));
  if (dense(tensor)) {
    add(std::move(name), type, std::move(shape), tensor.data, bytes);
    items_.back().sum = sum;
    return;
  }
  add_owned(std::move(name), type, std::move(shape), dense_copy(tensor, bytes));
}

void TensorWriter::add_once(const std::string& name, const as_tensor& tensor) {
  for (const Item& item : items_) {
    if (item.name == name) return;
  }
  add(name, tensor);
}

void TensorWriter::metadata(std::string key, std::string value) {
  metadata_[std::move(key)] = std::move(value);
}

std::vector<const TensorWriter::Item*> TensorWriter::in_file_order() const {
  std::vector<const Item*> order;
  order.reserve(items_.size());
  for (const Item& item : items_) order.push_back(&item);
  if (!aligned_) {
    std::stable_sort(order.begin(), order.end(), [](const Item* a, const Item* b) {
      return element_bits(a->type) > element_bits(b->type);
    });
  }
  return order;
}

Result<void> TensorWriter::check(const std::string& path) const {
  std::set<std::string_view> names;
  for (const Item& item : items_) {
    std::uint64_t bits = static_cast<std::uint64_t>(element_bits(item.type));
    for (const std::int64_t size : item.shape) bits *= static_cast<std::uint64_t>(size);
    if (bits != item.bytes * 8) {
      return usage_error(fmt::format("{}: tensor {}: {} bytes given for {} [{}]", path,
                                     shown_name(item.name), item.bytes, element_name(item.type),
                                     fmt::join(item.shape, ",")));
    }
    if (!names.insert(item.name).second) {
      return usage_error(fmt::format("{}: tensor {} added twice", path, shown_name(item.name)));
    }
    if (item.name == "__metadata__" || item.name.starts_with(kPaddingPrefix)) {
      return usage_error(
          fmt::format("{}: tensor {}: the name is taken", path, shown_name(item.name)));
    }
  }
  return {};
}

std::string TensorWriter::header(const std::vector<const Item*>& order) const {
  std::string keys;
  std::uint64_t at = 0;
  int pads = 0;
  for (const Item* item : order) {
    describe(item->name, item->type, item->shape, at, at + item->bytes, keys);
    at += item->bytes;
    const std::size_t pad = aligned_ && item != order.back() ? padding_after(at) : 0;
    if (pad == 0) continue;
    describe(kPaddingPrefix + std::to_string(pads++), ElementType::kU8,
             {static_cast<std::int64_t>(pad)}, at, at + pad, keys);
    at += pad;
  }
  std::map<std::string, std::string> metadata = metadata_;
  if (pads > 0) metadata[kPaddingKey] = kPaddingPrefix;
  if (!metadata.empty()) {
    keys += (keys.empty() ? "" : ",") + ("\"__metadata__\":" + json_text(nlohmann::json(metadata)));
  }
  return prefix(keys);
}

Result<TensorFileSize> TensorWriter::write(const std::string& path, Sync sync) const {
  if (auto ok = check(path); !ok) return ok.error();
  const std::vector<const Item*> order = in_file_order();
  std::string text;
  try {
    text = header(order);
  } catch (const nlohmann::json::exception&) {
    return usage_error(path + ": a name or a metadata text is not UTF-8");
  }
  auto file = AtomicFile::create(path);
  if (!file) return file.error();
  if (auto ok = file->append(text.data(), text.size()); !ok) return ok.error();
  TensorFileSize size{text.size(), digest_of(0, text.data() + 8, text.size() - 8)};
  for (const Item* next : order) {
    const Item& item = *next;
    if (auto ok = file->append(item.data, item.bytes); !ok) return ok.error();
    size.bytes += item.bytes;
    size.digest = item.sum ? digest_with(size.digest, *item.sum)
                           : digest_of(size.digest, item.data, item.bytes);
    if (next == order.back()) break;
    const std::size_t pad = aligned_ ? padding_after(item.bytes) : 0;
    if (auto ok = file->append(kZeros, pad); !ok) return ok.error();
    size.bytes += pad;
  }
  if (auto ok = file->commit(sync); !ok) return ok.error();
  return size;
}

}  // namespace attnscope
