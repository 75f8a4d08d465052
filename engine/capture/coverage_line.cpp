#include "engine/capture/coverage_line.h"

#include <nlohmann/json.hpp>

namespace attnscope {
namespace {

constexpr const char* kKey = "exercise";

}  // namespace

void put_coverage(const StepSummary& summary, std::string& line) {
  if (!summary.coverage) return;
  const nlohmann::json coverage = {{"counts", summary.coverage->counts},
                                   {"lengths_mod_4", summary.coverage->lengths_mod_4}};
  line.back() = ',';
  line += nlohmann::json(kKey).dump() + ":" + coverage.dump() + "}";
}

bool take_coverage(const nlohmann::json& line, StepSummary& summary) {
  const auto found = line.find(kKey);
  if (found == line.end()) return true;
  if (!found->is_object()) return false;
  const auto counts = found->find("counts"), lengths = found->find("lengths_mod_4");
  if (counts == found->end() || !counts->is_array() || lengths == found->end() ||
      !lengths->is_number_integer()) {
    return false;
  }
  StepCoverage coverage;
  // A later program may know of more paths.
  for (std::size_t i = 0; i < counts->size() && i < coverage.counts.size(); ++i) {
    const nlohmann::json& n = (*counts)[i];
    if (!n.is_number_integer() || n.get<std::int64_t>() < 0) return false;
    coverage.counts[i] = n.get<std::int64_t>();
  }
  coverage.lengths_mod_4 = static_cast<std::uint8_t>(lengths->get<std::int64_t>() & 0xf);
  summary.coverage = coverage;
  return true;
}

}  // namespace attnscope
