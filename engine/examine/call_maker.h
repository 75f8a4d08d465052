// Makes ordinary calls of ops from a seed, tensor by tensor.
#pragma once

#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/model/numbers.h"
#include "engine/opcase/op_case.h"
#include "kernels/params/dtype.h"

namespace attnscope {

class CallMaker {
 public:
  CallMaker(const CaseOp& op, const std::string& name, std::uint64_t seed) : random_(seed) {
    call_.op = op;
    call_.origin.from = "examiner, " + name;
  }
  OpCase& call() { return call_; }

  StoredTensor& add(const char* tap, std::int32_t dtype, std::vector<std::int64_t> shape) {
    StoredTensor& t = call_.tensors[tap];
    t.dtype = dtype;
    std::int64_t elements = 1;
    for (const std::int64_t n : shape) elements *= n;
    t.shape = std::move(shape);
    t.bytes.assign(to_size(elements * as_dtype_size(dtype)), 0);
    return t;
  }

  // Roughly normal.
  void fill(StoredTensor& t, double mean = 0, double width = 1) {
    std::normal_distribution<double> normal(mean, width);
    const std::size_t size = to_size(as_dtype_size(t.dtype));
    for (std::size_t at = 0; at < t.bytes.size(); at += size) {
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(normal(random_)));
      const std::uint32_t stored = t.dtype == AS_BF16 ? bits >> 16 : bits;
      std::memcpy(t.bytes.data() + at, &stored, size);
    }
  }

  std::int64_t below(std::int64_t end) {
    return std::uniform_int_distribution<std::int64_t>(0, end - 1)(random_);
  }

  // An element, by its place in dense memory.
  template <class T>
  static void put(StoredTensor& t, std::int64_t at, T value) {
    std::memcpy(t.bytes.data() + to_size(at) * sizeof(value), &value, sizeof(value));
  }

 private:
  OpCase call_;
  std::mt19937_64 random_;
};

}  // namespace attnscope
