#include "app/reports/record_estimate.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "app/reports/capture_record.h"
#include "app/text/private_folder.h"

namespace attnscope {
namespace {

constexpr std::size_t kSamples = 8;

// Whole steps, evenly spread over those that are kept.
std::vector<const StepTrace*> samples_of(const Snapshot& snapshot) {
  std::vector<const StepTrace*> whole, samples;
  for (const auto& trace : snapshot.traces) {
    const bool known = trace->complete && snapshot.summary(trace->step) != nullptr;
    if (known && !trace->kept.empty()) whole.push_back(trace.get());
  }
  const std::size_t count = std::min(kSamples, whole.size());
  for (std::size_t i = 0; i < count; ++i) samples.push_back(whole[i * whole.size() / count]);
  return samples;
}

Result<std::uint64_t> bytes_of(const Snapshot& snapshot,
                               const std::vector<const StepTrace*>& samples,
                               const Scenario& scenario, CaptureLevel level,
                               const std::string& folder) {
  CaptureOptions options;
  options.level = level;
  auto writer = CaptureWriter::create(folder, options, *snapshot.info, capture_origin(scenario));
  if (!writer) return writer.error();
  for (const StepTrace* trace : samples) {
    const StepSummary& summary = *snapshot.summary(trace->step);
    if (auto ok = (*writer)->add(summary, trace, nullptr); !ok) return ok.error();
  }
  auto totals = (*writer)->finish();
  if (!totals) return totals.error();
  return totals->bytes;
}

}  // namespace

Result<RecordEstimate> estimate_recording(const Snapshot& snapshot, const Scenario& scenario,
                                          CaptureLevel level) {
  const auto samples = samples_of(snapshot);
  if (samples.empty()) {
    return usage_error("no whole step is kept to estimate from", "run a step first");
  }
  std::int64_t prompt = 0, longest = 0, rows = 0;
  for (const ScenarioRequest& request : scenario.requests) {
    const auto tokens = static_cast<std::int64_t>(request.tokens.size());
    prompt += tokens;
    longest = std::max(longest, request.max_new_tokens);
    rows += tokens + std::max<std::int64_t>(request.max_new_tokens - 1, 0);
  }
  RecordEstimate estimate;
  const std::int64_t budget = std::max<std::int64_t>(scenario.limits.token_budget, 1);
  estimate.steps = (prompt + budget - 1) / budget + std::max<std::int64_t>(longest - 1, 0);
  auto folder = make_private_folder();
  if (!folder) return folder.error();
  const auto bytes = bytes_of(snapshot, samples, scenario, level, *folder + "/sample.acap");
  std::error_code code;
  std::filesystem::remove_all(*folder, code);
  if (!bytes) return bytes.error();
  std::size_t kept = 0;
  for (const StepTrace* trace : samples) kept += trace->kept.size();
  const bool by_rows = level == CaptureLevel::kFull;
  const double one =
      static_cast<double>(*bytes) / static_cast<double>(by_rows ? kept : samples.size());
  estimate.bytes =
      static_cast<std::uint64_t>(one * static_cast<double>(by_rows ? rows : estimate.steps));
  return estimate;
}

}  // namespace attnscope
