// Two captures beside each other, and the place of one token in both.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "engine/capture/capture.h"
#include "engine/capture/capture_diff.h"
#include "engine/session/place.h"

namespace attnscope {

// Two captures and how they differ.
struct RunPair {
  std::shared_ptr<const Capture> a, b;
  std::string name_a, name_b;  // "run.acap", "the session, steps 3 to 9"
  CaptureDiff diff;
  // The worst of what lies beyond its tolerance, by step and layer of the first.
  std::map<std::pair<std::int64_t, int>, DiffVerdict> parted;
  // The worst difference of each op of the first: its place in diff.ops. By step, layer and op.
  std::map<std::tuple<std::int64_t, int, int>, std::size_t> worst;

  // Of an op of the first that ran; nothing where its step is not in the second.
  std::optional<DiffVerdict> verdict(const Place& place) const;
  // The worst of the op's differences; null where it is equal or not in both.
  const OpDiff* find(const Place& place) const;
  // First op beyond its tolerance whose place is behind `from`; null when there is none.
  const OpDiff* next(const Place& from) const;
  // What the whole says: where they part, or that they do not.
  std::string sentence() const;
};

// Fills parted and worst from diff.
void note_the_worst(RunPair& pair);

// One token in both. Traces are null and rows -1 where it was not recorded.
struct ComparedToken {
  std::shared_ptr<const StepTrace> a, b;
  std::int32_t row_a = -1, row_b = -1;  // token rows of the steps
  std::int32_t request_a = -1, request_b = -1;
  std::int64_t position = -1;
};
// request and position: of the first; a position of -1 or one that is not in the step: the
// request's last row there, else the step's.
Result<ComparedToken> locate(const RunPair& comparison, std::int64_t step, std::int32_t request,
                             std::int64_t position);

}  // namespace attnscope
