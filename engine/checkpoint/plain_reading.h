// Tensor files read once more, to hold against what the loaders made of them. Nothing of it is
// shared with them: headers are parsed, tensors found and formats decoded by their definitions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kernels/params/result.h"

namespace attnscope::plain {

double bf16_number(std::uint16_t bits);
double from_e4m3(std::uint8_t code);
// The bf16 number nearest to a value, of two the one with an even mantissa.
double nearest_bf16(double value);

// A tensor as a file has it.
struct Stored {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // in the file
  std::filesystem::path file;

  std::int64_t columns() const { return shape.size() > 1 ? shape.back() : 1; }
  std::int64_t element_bytes() const;
};

using FileValues = std::vector<double>;

Error unreadable(const std::filesystem::path& file, const std::string& what);

class Files {
 public:
  // Of a checkpoint: by its index, or the one file there is.
  Result<void> open_checkpoint(const std::filesystem::path& folder);
  // All tensors of a file.
  Result<void> open_file(const std::filesystem::path& file) { return add(file, {}); }

  bool has(const std::string& name) const {
    return stored_.contains(name) || shards_.contains(name);
  }
  Result<const Stored*> find(const std::string& name);
  // Values of rows [first, first + rows) of a tensor of any rank, seen as [rows, columns].
  static Result<FileValues> read(const Stored& t, std::int64_t first, std::int64_t rows);

 private:
  // All tensors of a file; of a shard those that the index looks for there.
  Result<void> add(const std::filesystem::path& file, const std::string& wanted);

  std::map<std::string, std::filesystem::path> shards_;
  std::map<std::string, Stored> stored_;
};

}  // namespace attnscope::plain
