// A step's batch as a metadata builder takes it (engine/metadata/batch_plan.h): who decodes, who
// prefills, in which order and chunks, and which recorded graph replays the step, or why none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/metadata/batch_plan.h"
#include "engine/session/snapshot.h"

namespace attnscope {

struct BatchLine {
  std::int32_t request = -1;
  std::string name;
  bool decode = false;
  std::int64_t place = 0, row = 0;  // in the batch, in the step
  std::int64_t query = 0, computed = 0, length = 0;
  std::string chunks;  // of a prefill, by ratio: "1 of 2"
};

struct BatchView {
  std::string sentence;
  std::string order, graph;         // what was moved, which graph
  std::string drafts;               // what was verified and drafted; empty: nothing, or not yet
  std::vector<std::string> chunks;  // how prefill is cut, a ratio a line
  std::vector<BatchLine> rows;      // in the order of the batch
  BatchPlan plan;
};

// The rules of a session: its drafts, its window, its layers, its limits.
BatchRules batch_rules(const SessionInfo& info);
BatchView batch_view(const SessionInfo& info, const StepTrace& step);
// "2 decodes (2 tokens), 1 prefill (510 tokens), no graph"
std::string batch_line(const BatchPlan& plan);

}  // namespace attnscope
