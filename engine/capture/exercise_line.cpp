#include "engine/capture/exercise_line.h"

#include <nlohmann/json.hpp>

namespace attnscope {
namespace {

constexpr const char* kKey = "exercise";

}  // namespace

void put_exercise(const StepSummary& summary, std::string& line) {
  if (!summary.exercise) return;
  const nlohmann::json exercise = {{"counts", summary.exercise->counts},
                                   {"lengths_mod_4", summary.exercise->lengths_mod_4}};
  line.back() = ',';
  line += nlohmann::json(kKey).dump() + ":" + exercise.dump() + "}";
}

bool take_exercise(const nlohmann::json& line, StepSummary& summary) {
  const auto found = line.find(kKey);
  if (found == line.end()) return true;
  if (!found->is_object()) return false;
  const auto counts = found->find("counts"), lengths = found->find("lengths_mod_4");
  if (counts == found->end() || !counts->is_array() || lengths == found->end() ||
      !lengths->is_number_integer()) {
    return false;
  }
  StepExercise exercise;
  // A later program may know of more paths.
  for (std::size_t i = 0; i < counts->size() && i < exercise.counts.size(); ++i) {
    const nlohmann::json& n = (*counts)[i];
    if (!n.is_number_integer() || n.get<std::int64_t>() < 0) return false;
    exercise.counts[i] = n.get<std::int64_t>();
  }
  exercise.lengths_mod_4 = static_cast<std::uint8_t>(lengths->get<std::int64_t>() & 0xf);
  summary.exercise = exercise;
  return true;
}

}  // namespace attnscope
