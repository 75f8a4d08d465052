// An op case and a dump that maps read, and what is asked of them when bytes of theirs change.
#pragma once

#include <string>

namespace attnscope::fuzz {

// A call of q_rope_kv_insert, whose case has tensors, a cache, a rotary embedding and numbers.
class SmallCase {
 public:
  // Creates the folder. Throws when the case cannot be kept there.
  explicit SmallCase(const std::string& folder);

  const std::string& folder() const { return folder_; }
  std::string path() const { return folder_ + "/small.json"; }
  std::string tensors_path() const { return folder_ + "/small.safetensors"; }
  // What both files held at the beginning; the JSON without the digest of the other.
  const std::string& json() const { return json_; }
  const std::string& tensors() const { return tensors_; }

  // Reads the case as it lies there and lays its call out. Empty, or what is wrong with the answer.
  std::string judge() const;

 private:
  std::string folder_, json_, tensors_;
};

// A dump of the inputs of sparse_attention under the names of its taps, cache pages as bytes.
// Throws when it cannot be written.
void write_small_dump(const std::string& file);
// Reads a map and applies each of its ops to the dump.
std::string judge_map(const std::string& map, const std::string& dump);

}  // namespace attnscope::fuzz
