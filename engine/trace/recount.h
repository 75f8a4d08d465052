// What a run's results come to, counted once more: the verdict, its exit code and who is blamed
// must follow from the results as they were judged.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/trace/tap_result.h"
#include "kernels/params/result.h"

namespace attnscope {

class Recount {
 public:
  // In the order of the run.
  void add(const TapResult& result);
  // AS_INTERNAL names the first wrong result where a summary of the same results passes it over,
  // counts others or begins its blame with another one.
  Result<void> hold(const Summary& summary) const;
  // ok: what was said in the end.
  Result<void> hold(bool ok) const;

 private:
  Error contradicted(const std::string& what) const;

  std::int64_t results_ = 0, wrong_ = 0;
  std::optional<TapResult> first_;
};

}  // namespace attnscope
