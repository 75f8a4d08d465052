// Reads safetensors files: 8 bytes of header length (little endian), a JSON header, then the bytes
// of all tensors without gap or overlap. The file is mapped; a tensor costs memory when somebody
// reads it. Whatever the header says is checked when the file is opened, so that no tensor reaches
// outside of it: every error names file, tensor and what was expected.
//
//   auto file = TensorFile::open("model-00001.safetensors");
//   if (!file) return file.error();
//   if (const TensorEntry* t = file->find("layers.0.attn.wq_a.weight")) use(t->data, t->bytes);
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/io/mapped_file.h"
#include "engine/tensorfile/element_type.h"
#include "kernels/params/result.h"
#include "kernels/params/tensor.h"

namespace attnscope {

struct TensorEntry {
  std::string name;
  ElementType type = ElementType::kU8;
  std::vector<std::int64_t> shape;  // outermost first; empty = one element
  std::int64_t elements = 0;
  std::uint64_t offset = 0;            // from the end of the header
  const std::uint8_t* data = nullptr;  // of the mapping; may be unaligned in files of others
  std::size_t bytes = 0;

  // Whether data can be read as the element type in place.
  bool aligned() const;
};

// Element i of an entry that holds T; of unaligned data too.
template <class T>
T entry_value(const TensorEntry& entry, std::int64_t i) {
  T value;
  std::memcpy(&value, entry.data + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

// Longest header that is read, as elsewhere: 100 million bytes.
inline constexpr std::uint64_t kLargestHeader = 100'000'000;

class TensorFile {
 public:
  static Result<TensorFile> open(const std::string& path);
  // Of entries that another format has; `owners` keep their bytes. AS_BAD_INPUT for a name twice.
  static Result<TensorFile> of(const std::string& path, std::vector<TensorEntry> entries,
                               std::vector<std::shared_ptr<const void>> owners);
  TensorFile(TensorFile&&) = default;
  TensorFile& operator=(TensorFile&&) = default;

  // In the order of their bytes; what the writer put between tensors to align them left out.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  const TensorEntry* find(std::string_view name) const;  // nullptr = not there
  // find() or an error that names what was looked for.
  Result<const TensorEntry*> get(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }
  // Of header and tensors: reads all of the file.
  std::uint64_t digest() const;
  // Keeps the bytes alive after the TensorFile.
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  TensorFile() = default;

  std::string path_;
  std::shared_ptr<const void> owner_;  // of header and bytes
  std::string_view header_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // keys of tensors_' names
  std::map<std::string, std::string> metadata_;
};

// A dense as_tensor over an entry: rank at most AS_MAX_RANK, a type that has an as_dtype, aligned.
Result<as_tensor> as_tensor_of(const TensorFile& file, const TensorEntry& entry);

// One more piece of a digest.
std::uint64_t digest_of(std::uint64_t before, const void* data, std::size_t bytes);
// The same of bytes whose checksum() is known.
std::uint64_t digest_with(std::uint64_t before, std::uint64_t sum);

}  // namespace attnscope
