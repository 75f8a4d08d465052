// Which lanes carried out the ops of a run: those that were chosen, unless others stood in on the
// way (a plugin that failed, a GPU that was lost).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/registry.h"
#include "engine/trace/tap_result.h"

namespace attnscope {

struct StepRecord;  // engine/session/session.h

// Of the lanes that were asked for, those that carried out no op in these steps. chosen: by op id;
// merge: whose merge_states the session has, which leaves no trace of its own.
std::vector<std::string> idle_lanes(std::span<const std::string> choices,
                                    std::span<const std::string> chosen, std::string_view merge,
                                    std::span<const StepRecord> steps);
// "lane mutant:sink_scaled ran no op"; empty for none.
std::string idle_text(std::span<const std::string> lanes);

// Whether an op has another lane now than the one that was chosen, by op id.
bool another_stood_in(const std::vector<std::string>& chosen, const LaneSelector& now);

class LanesRan {
 public:
  explicit LanesRan(std::vector<std::string> chosen);  // by op id

  void add(std::span<const TapResult> results);  // in the order of the run
  // By op id: who carried it out last; of an op that did not run, who was chosen.
  const std::vector<std::string>& last() const { return last_; }
  // "cpu", or "cpu, residual=plugin:mine then cpu"; of a lane other than those of this program
  // whose op no layer has, "cpu, indexer_topk=mutant:topk_off_by_one (did not run)".
  std::string description() const;

 private:
  std::vector<std::string> last_;
  std::vector<std::vector<std::string>> ran_;  // by op id, each lane once
};

}  // namespace attnscope
