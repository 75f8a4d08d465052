// A lane inside of this program: a name and one function an op.
//
//   Lane lane{"mutant:wrong", "One sentence.", {}};
//   lane.ops[AS_OP_RESIDUAL] = residual;
//   if (lane.ops[AS_OP_SAMPLE] != nullptr) ..
//
// Shared libraries register a list instead (plugin.h), so that they know no number of ops.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "kernels/params/lane.h"
#include "kernels/params/op_ids.h"

namespace attnscope {

// A T for every op of the table, by its id.
template <class T>
class PerOp {
 public:
  T& operator[](std::int32_t op) { return all_[place(op)]; }
  const T& operator[](std::int32_t op) const { return all_[place(op)]; }
  // In the order of the table.
  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  // An id that is not in the table is a bug of the caller, in every build.
  static std::size_t place(std::int32_t op) {
    const std::int32_t index = as_op_index(op);
    if (index < 0) std::abort();
    return static_cast<std::size_t>(index);
  }
  std::array<T, AS_NUM_OPS> all_{};
};

// nullptr where there is none.
struct LaneFunctions : PerOp<as_op_fn> {
  int count() const { return static_cast<int>(AS_NUM_OPS - std::count(begin(), end(), nullptr)); }
};

struct Lane {
  const char* name = "";         // "cpu", "cuda", "mutant:window_off_by_one", "ref.sim", ..
  const char* description = "";  // one sentence
  LaneFunctions ops;
};

}  // namespace attnscope
