// The tolerance file (assets/tolerances.json): which bound a tap must keep, by class, with reasons,
// and exceptions by op, tap, dtype and lane. Every bound gives its reason.
//
// An element passes when ONE of the bounds given for its class holds; every element must pass, the
// cosine-type difference of the whole tap must keep its bound too, and NaN and infinities must sit
// at the same positions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/params/op_ids.h"
#include "kernels/params/result.h"

namespace attnscope {

struct Tolerance {
  std::string name;      // class
  bool exact = false;    // same bits (integers, bytes)
  bool top_k = false;    // sets; swapped pairs within score_rel of the row's largest |score|
  double abs = 0;        // |a - b|
  double rel = 0;        // |a - b| / |b|
  double bf16_ulp = 0;   // bf16 taps only: |a - b| in bf16 steps of the larger magnitude
  double row_max = 0;    // |a - b| / largest |b| of the row (last axis)
  double score_rel = 0;  // top_k only
  std::optional<double> cosine;  // of the whole tap
  std::string reason;
};

class Tolerances {
 public:
  // The file, or assets/tolerances.json when empty.
  static Result<Tolerances> load(const std::string& path = {});
  static Result<Tolerances> parse(const std::string& text, const std::string& name);

  // The class named by the op table, or the exception for this op, tap, dtype and lane. An unknown
  // class is AS_BAD_INPUT: a tap without a rule is an error, not a pass.
  Result<Tolerance> find(as_op_id op, std::string_view tap, std::string_view lane,
                         std::string_view rule, std::string_view dtype = {}) const;

  double drift_limit() const { return drift_limit_; }
  const std::string& drift_reason() const { return drift_reason_; }
  const std::map<std::string, Tolerance>& classes() const { return classes_; }

 private:
  struct Exception {
    std::string rule, op, tap, dtype, lane;  // empty = any
    Tolerance tolerance;
  };
  std::map<std::string, Tolerance> classes_;
  std::vector<Exception> exceptions_;
  double drift_limit_ = 0;
  std::string drift_reason_;
};

}  // namespace attnscope
