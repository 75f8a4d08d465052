// The part of Python's pickles that torch.save() writes for tensors in dicts, lists and tuples.
// Nothing is executed: a name that a pickle calls is compared with the few that tensors need, and
// any other is an error that tells it. Time and memory are bounded by the pickle's own length.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/tensorfile/element_type.h"
#include "kernels/params/result.h"

namespace attnscope {

enum class PickleKind {
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kList,     // tuples and lists
  kDict,     // keys and values by turns
  kGlobal,   // text: "module name"
  kStorage,  // text: its key; type; integer: its elements
  kTensor    // storage, integer: offset; shape; stride
};

struct PickleNode {
  PickleKind kind = PickleKind::kNone;
  ElementType type = ElementType::kU8;
  bool untyped = false;  // a storage whose size is in bytes, whose type the tensor gives
  std::int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<std::uint32_t> items;  // nodes
  std::uint32_t storage = 0;         // of a tensor
  std::vector<std::int64_t> shape, stride;
};

struct Pickle {
  std::vector<PickleNode> nodes;
  std::uint32_t root = 0;
};

// Containers may hold themselves: who walks them keeps count.
Result<Pickle> read_pickle(std::span<const std::uint8_t> bytes, const std::string& path);

}  // namespace attnscope
