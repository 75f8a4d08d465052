// Step traces by hand, for tests of views: one request whose last tokens are computed in the step.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

template <class T>
as_tensor into(std::vector<std::uint8_t>& bytes, const std::vector<T>& values, std::int64_t rows) {
  bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return make_tensor(reinterpret_cast<T*>(bytes.data()),
                     {rows, static_cast<std::int64_t>(values.size()) / rows});
}

// A tap [rows, values / rows].
template <class T>
void add_tap(OpTrace& op, const std::string& name, const std::vector<T>& values,
             std::int64_t rows) {
  TapCopy& tap = op.taps.emplace_back();
  tap.name = name;
  tap.axes = "T,N";
  tap.value = into(tap.value_bytes, values, rows);
}

template <class T>
void add_reference(OpTrace& op, const std::vector<T>& values, std::int64_t rows) {
  TapCopy& tap = op.taps.back();
  tap.reference = into(tap.reference_bytes, values, rows);
}

// tokens: of the step, the last `tokens` ones of a request that then has `known` tokens.
inline StepTrace make_step(std::int64_t number, std::int64_t known, std::int64_t tokens) {
  StepTrace step;
  step.step = number;
  step.complete = true;
  step.metadata.live = {0};
  for (std::int64_t t = 0; t < tokens; ++t) {
    step.metadata.positions.push_back(known - tokens + t);
    step.metadata.token_to_req.push_back(0);
    step.metadata.tokens.push_back('a' + static_cast<int>(t % 26));
    step.kept.push_back(static_cast<std::int32_t>(t));
  }
  step.metadata.query_start_loc = {0, static_cast<std::int32_t>(tokens)};
  step.metadata.seq_lens = {static_cast<std::int32_t>(known)};
  return step;
}

inline OpTrace& add_op(StepTrace& step, int layer, as_op_id id) {
  auto op = std::make_shared<OpTrace>();
  op->place = {step.step, layer, id};
  OpTrace& out = *op;
  step.ops.push_back(std::move(op));
  return out;
}

}  // namespace attnscope
