// Runs a case in a lane and judges what came out: against the outputs that the case holds, with the
// tolerances of the comparator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/opcase/op_case.h"
#include "engine/trace/compare.h"
#include "engine/trace/tolerances.h"
#include "kernels/params/lane.h"

namespace attnscope {

// One implementation of the case's op.
struct CaseLane {
  std::string name;
  as_op_fn function = nullptr;
  bool reference = false;  // float64, logical caches: ref.sim, ref.exact
};

struct CaseRunOptions {
  const as_threads* threads = nullptr;
  const Tolerances* tolerances = nullptr;
  // Looks at the case before anybody else does: refuses numbers that lead out of a tensor. Null for
  // ops that only the engine itself carries out.
  as_op_fn guard = nullptr;
  // ref.sim: judges codes on the lane's own row before quantisation. Null = codes must be equal.
  as_op_fn sim = nullptr;
  // What to do where it refuses; empty: by where the case comes from.
  std::string refused;
  int repeat = 1;  // calls timed; the fastest counts
  bool keep_references = false;
  // A kept selection of the right set that is no list of entries is wrong as well, since a case may
  // be another engine's; beside a reference it always is. Mistakes are not asked so: what they
  // leave unwritten differs by call.
  bool judge_kept_lists = false;
};

struct CaseTap {
  std::string tap;
  std::string tolerance;  // class
  Tolerance rule;         // the bounds that it was held to
  Comparison comparison;
  Verdict verdict = Verdict::kNotCompared;
  std::string note;
  std::vector<std::int64_t> shape;
  std::string dtype;
  // With keep_references: what it was compared with, float64 or codes; of a cache rows by token.
  StoredTensor reference;
};

struct CaseRun {
  std::string lane;
  double microseconds = 0;
  std::vector<CaseTap> taps;
  // Written although it was not the lane's to write: "input q", "cache, 64 bytes at slot 12".
  std::vector<std::string> trespasses;
  std::int64_t compared() const;  // elements of all outputs
  // Something was compared, and nothing was wrong.
  bool right() const;
};

// The class of an output: the one that the case names, else that of the op with these params.
std::string class_of_output(const OpCase& kept, const as_tap_info& tap, const void* params);
// The bound that an output must keep. rule: its class. dtype: of the output.
Result<Tolerance> case_rule(const CaseOp& op, const as_tap_info& tap, const std::string& rule,
                            const std::string& lane, const char* dtype,
                            const Tolerances& tolerances);

// An error: the case cannot be run, or the lane said so.
Result<CaseRun> run_case(const OpCase& kept, const CaseLane& lane, const CaseRunOptions& options);

// The lane's outputs in the place of those of the case.
Result<OpCase> rerun_case(const OpCase& kept, const CaseLane& lane, const CaseRunOptions& options);

}  // namespace attnscope
