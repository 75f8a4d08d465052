#include "engine/examine/helper_calls.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "engine/model/numbers.h"
#include "kernels/params/dtype.h"
#include "kernels/params/op_ids.h"

namespace attnscope {
namespace {

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

  static void put(StoredTensor& t, std::int64_t at, std::int32_t value) {
    std::memcpy(t.bytes.data() + to_size(at) * sizeof(value), &value, sizeof(value));
  }

 private:
  OpCase call_;
  std::mt19937_64 random_;
};

OpCase merge(const CaseOp& op, const char* name, std::int64_t tokens, std::uint64_t seed) {
  constexpr std::int64_t kHeads = 8, kDims = 512;
  CallMaker make(op, name, seed);
  for (const char* side : {"a", "b"}) make.fill(make.add(side, AS_BF16, {tokens, kHeads, kDims}));
  for (const char* side : {"lse_a", "lse_b"})
    make.fill(make.add(side, AS_F32, {tokens, kHeads}), 4);
  make.add("out", AS_BF16, {tokens, kHeads, kDims});
  make.add("lse", AS_F32, {tokens, kHeads});
  make.call().integers["base_2"] = 0;
  return std::move(make.call());
}

OpCase workspace(const CaseOp& op, const char* name, std::int64_t tokens, std::int64_t rows,
                 std::int64_t columns, std::uint64_t seed) {
  constexpr std::int64_t kHeads = 8, kDims = 512;
  CallMaker make(op, name, seed);
  make.fill(make.add("q", AS_BF16, {tokens, kHeads, kDims}));
  make.fill(make.add("rows", AS_BF16, {rows, kDims}));
  StoredTensor& indices = make.add("indices", AS_I32, {tokens, columns});
  StoredTensor& lens = make.add("topk_length", AS_I32, {tokens});
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto len = static_cast<std::int32_t>(1 + make.below(columns));
    CallMaker::put(lens, t, len);
    for (std::int64_t k = 0; k < columns; ++k) {
      const std::int64_t row = k < len ? make.below(rows) : -1;
      CallMaker::put(indices, t * columns + k, static_cast<std::int32_t>(row));
    }
  }
  make.fill(make.add("sinks", AS_F32, {kHeads}));
  make.add("o", AS_BF16, {tokens, kHeads, kDims});
  make.add("lse", AS_F32, {tokens, kHeads});
  make.call().reals["scale"] = 1 / std::sqrt(static_cast<double>(kDims));
  return std::move(make.call());
}

}  // namespace

std::vector<OpCase> helper_calls(const CaseOp& op) {
  switch (op.id) {
    case AS_OP_MERGE_STATES:
      return {merge(op, "one token", 1, 31), merge(op, "37 tokens", 37, 32)};
    case AS_OP_WORKSPACE_ATTENTION:
      return {workspace(op, "one token", 1, 9, 64, 41),
              workspace(op, "19 tokens", 19, 300, 192, 42)};
    default:
      return {};
  }
}

}  // namespace attnscope
