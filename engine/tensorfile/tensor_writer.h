// Writes safetensors files: every tensor begins at a multiple of 64 bytes of the file, so that it
// can be used where it is mapped. The format allows no holes: what lies between is tensors of U8
// whose names begin with the text that the metadata gives under kPaddingKey; leave_unaligned() does
// without them, for loaders that know what tensors they expect. The file appears as a whole or not
// at all (atomic_file.h).
//
//   TensorWriter writer;
//   writer.add("topk.indices", indices);            // as_tensor, any strides
//   writer.metadata("step", "12");
//   if (auto ok = writer.write("step-12.safetensors"); !ok) return ok.error();
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/io/atomic_file.h"
#include "engine/tensorfile/element_type.h"
#include "kernels/params/result.h"
#include "kernels/params/tensor.h"

namespace attnscope {

inline constexpr const char* kPaddingKey = "attnscope.padding";
inline constexpr std::size_t kTensorAlignment = 64;

// What a file came to be.
struct TensorFileSize {
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;  // TensorFile::digest() of the same file
};

class TensorWriter {
 public:
  // Memory must stay until write(). `bytes` must be what type and shape take.
  void add(std::string name, ElementType type, std::vector<std::int64_t> shape, const void* data,
           std::size_t bytes);
  template <class T, class A>
  void add(std::string name, ElementType type, std::vector<std::int64_t> shape,
           const std::vector<T, A>& values) {
    add(std::move(name), type, std::move(shape), values.data(), values.size() * sizeof(T));
  }
  // The bytes become the writer's.
  void add_owned(std::string name, ElementType type, std::vector<std::int64_t> shape,
                 std::vector<std::uint8_t> bytes);
  // Dense ones are written where they lie; of others a dense copy is made. sum: checksum() of the
  // dense bytes where it is known already, so that it is not computed again.
  void add(std::string name, const as_tensor& tensor, std::optional<std::uint64_t> sum = {});
  // Unless the name is there already.
  void add_once(const std::string& name, const as_tensor& tensor);
  void metadata(std::string key, std::string value);
  bool empty() const { return items_.empty(); }
  // Tensors follow one another directly, wide elements first: each is aligned to its own type.
  void leave_unaligned() { aligned_ = false; }

  // Sum of what was added.
  std::uint64_t bytes() const { return bytes_; }
  // AS_USAGE for a name added twice (or __metadata__, __pad_..) or a size that does not fit type
  // and shape, else the error of the disk.
  Result<TensorFileSize> write(const std::string& path, Sync sync = Sync::kYes) const;

 private:
  struct Item {
    std::string name;
    ElementType type;
    std::vector<std::int64_t> shape;
    const void* data;
    std::size_t bytes;
    std::optional<std::uint64_t> sum = {};
  };
  std::vector<const Item*> in_file_order() const;
  Result<void> check(const std::string& path) const;
  std::string header(const std::vector<const Item*>& order) const;

  std::vector<Item> items_;
  std::vector<std::unique_ptr<std::vector<std::uint8_t>>> copies_;
  std::map<std::string, std::string> metadata_;
  std::uint64_t bytes_ = 0;
  bool aligned_ = true;
};

}  // namespace attnscope
