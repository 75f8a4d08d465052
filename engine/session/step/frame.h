// The tensors of one step as one party sees them: the engine (bf16, fp32, bytes) or a free-running
// reference (ref.sim rounds where the engine does and keeps its dtypes, ref.exact is float64). They
// are the values of the model's graph (engine/family/op_graph.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "engine/family/op_graph.h"
#include "kernels/params/tensor.h"

namespace attnscope {

// A dense row-major tensor over memory.
as_tensor dense_tensor(void* data, std::int32_t dtype, std::span<const std::int64_t> shape);

// Where large tensors of a step lie, such as memory that a GPU copies from and to by itself. Chosen
// once, before the first session.
struct HostMemory {
  void* (*allocate)(std::size_t bytes);  // null where there is none
  void (*release)(void* memory);
};
void use_host_memory(HostMemory memory);

// Memory for tensors, reused: it grows to the largest step, and shrinks some steps after it.
class Scratch {
 public:
  // A dense tensor of this shape, contents undefined; valid until the next make() of this Scratch.
  as_tensor make(std::int32_t dtype, std::span<const std::int64_t> shape);
  as_tensor make(std::int32_t dtype, std::initializer_list<std::int64_t> shape) {
    return make(dtype, std::span(shape.begin(), shape.size()));
  }
  as_tensor make_like(std::int32_t dtype, const as_tensor& shape);
  // Whether make() would let go of what this Scratch holds: it is too small, or has been far too
  // large for a while, as it is for decode steps after those of a long prompt.
  bool let_go_for(std::int32_t dtype, std::span<const std::int64_t> shape) const;

 private:
  struct Free {
    void (*release)(void* memory);
    void operator()(void* memory) const { release(memory); }
  };
  void allocate(std::size_t bytes);
  bool lets_go(std::size_t bytes) const;
  std::unique_ptr<void, Free> memory_{nullptr, Free{nullptr}};
  std::size_t capacity_ = 0;
  int small_ = 0;  // tensors in a row that needed a small part of it
};

class Frame {
 public:
  enum class Kind { kEngine, kSim, kExact };
  explicit Frame(Kind kind) : kind_(kind) {}

  Kind kind() const { return kind_; }
  // kernel_dtype: the engine's; F64 in its place for ref.exact where it is a float.
  as_tensor make(ValueId value, std::int32_t kernel_dtype, std::span<const std::int64_t> shape);
  as_tensor make(ValueId value, std::int32_t kernel_dtype,
                 std::initializer_list<std::int64_t> shape) {
    return make(value, kernel_dtype, std::span(shape.begin(), shape.size()));
  }
  // Absent where nothing was made.
  as_tensor get(ValueId value) const;
  // A tensor that another frame made, as long as that one keeps it.
  void borrow(ValueId value, const Frame& from) { slot(value).tensor = from.get(value); }
  // The tensor of another value, as long as that one keeps it.
  void share(ValueId value, ValueId of) { slot(value).tensor = get(of); }
  void swap(ValueId a, ValueId b);
  // Memory that tensors have left for another size stays until this is called: somebody may be
  // looking at it.
  void drop_outgrown() { outgrown_.clear(); }

 private:
  struct Slot {
    as_tensor tensor{};
    Scratch memory;
  };
  Slot& slot(ValueId value);

  Kind kind_;
  std::vector<Slot> slots_;  // by value
  std::vector<Scratch> outgrown_;
};

}  // namespace attnscope
