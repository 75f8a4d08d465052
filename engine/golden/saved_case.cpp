#include "engine/golden/saved_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "engine/golden/golden_collect.h"
#include "engine/golden/op_inputs.h"
#include "engine/io/byte_stream.h"
#include "engine/io/json_file.h"
#include "engine/io/shell_word.h"
#include "engine/opcase/case_file.h"
#include "engine/opcase/case_run.h"
#include "engine/opcase/case_trace.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

fs::path case_file_of(const GoldenSpec& spec) {
  return fs::path(spec.path).parent_path() / (spec.saved_case + ".json");
}

Result<std::string> files_digest(const fs::path& case_json) {
  auto tensors = case_tensors(case_json.string());
  if (!tensors) return tensors.error();
  std::string all;
  for (const std::string& file : {case_json.string(), *tensors}) {
    auto bytes = read_text_file(file);
    if (!bytes) return bytes.error();
    all += *bytes;
  }
  return text_checksum(all);
}

// A case says which request a token is of where its op asks for that.
RowOwners owners_of(const OpTrace& trace) {
  RowOwners owners;
  std::int64_t rows = 0;
  for (const TapCopy& tap : trace.taps) {
    if (tap.axes.starts_with("T") || tap.axes.starts_with("N")) rows = tap.value.shape[0];
  }
  owners.requests.resize(static_cast<std::size_t>(rows));
  if (const TapCopy* tap = trace.tap("token_to_req");
      tap != nullptr && tap->value.shape[0] == rows) {
    for (std::int64_t t = 0; t < rows; ++t) {
      owners.requests[static_cast<std::size_t>(t)] = std::max(0, *at<std::int32_t>(tap->value, t));
    }
  }
  owners.sampled = owners.requests;
  owners.tokens.resize(owners.requests.size());
  std::iota(owners.tokens.begin(), owners.tokens.end(), 0);
  return owners;
}

}  // namespace

Result<OpCase> read_saved_case(const GoldenSpec& spec) {
  const std::string path = case_file_of(spec).string();
  std::error_code code;
  if (!fs::exists(path, code)) {
    return bad_input(
        fmt::format("{}: case: there is no {}", spec.path, path),
        "save it there: attnscope case save SCENARIO --at STEP/LAYER/OP -o " + shell_word(path));
  }
  auto kept = read_case(path);
  if (kept && (kept->op.helper || !has_own_inputs(static_cast<as_op_id>(kept->op.id)))) {
    return bad_input(
        fmt::format("{}: {} is no op that a lane of a session runs by itself", path, kept->op.name),
        "save another op, or name a scenario");
  }
  return kept;
}

Result<void> judge_case(const OpCase& done, const LaneRegistry& registry,
                        const GoldenRunOptions& options, const std::string& name,
                        GoldenValues& out) {
  const Lane *sim = registry.find("ref.sim"), *cpu = registry.find("cpu");
  if (sim == nullptr || sim->ops[done.op.id] == nullptr) return {};
  auto tolerances = Tolerances::load(options.tolerance_file);
  if (!tolerances) return tolerances.error();
  CaseRunOptions run;
  run.tolerances = &*tolerances;
  if (cpu != nullptr) run.guard = cpu->ops[done.op.id];
  auto judged = run_case(done, {"ref.sim", sim->ops[done.op.id], true}, run);
  if (!judged) return judged.error();
  out.judged = true;
  const auto wrong = std::ranges::find(judged->taps, Verdict::kWrong, &CaseTap::verdict);
  if (wrong == judged->taps.end() || !out.fault.empty()) return {};
  out.fault = fmt::format("{}, {} of {}: {:.6g} instead of {:.6g}, {} of {} elements beyond", name,
                          wrong->tap, done.op.name, wrong->comparison.worst.value,
                          wrong->comparison.worst.reference, wrong->comparison.figures.beyond,
                          wrong->comparison.elements);
  return {};
}

Result<void> run_saved_case(const GoldenSpec& spec, const LaneRegistry& registry,
                            const GoldenRunOptions& options, GoldenValues& out) {
  auto kept = read_saved_case(spec);
  if (!kept) return kept.error();
  const auto op = static_cast<as_op_id>(kept->op.id);
  auto digest = files_digest(case_file_of(spec));
  if (!digest) return digest.error();
  out.inputs = *digest;
  auto lanes = lanes_with_op(registry, options.lanes.empty() ? spec.lanes : options.lanes, op);
  if (!lanes) return lanes.error();
  auto tolerances = Tolerances::load(options.tolerance_file);
  if (!tolerances) return tolerances.error();
  out.lanes = lanes->lane(op);
  CaseRunOptions run;
  run.tolerances = &*tolerances;
  if (const Lane* cpu = registry.find("cpu")) run.guard = cpu->ops[op];
  auto done = rerun_case(*kept, {out.lanes, lanes->function(op), false}, run);
  if (!done) return done.error();
  const OpTrace trace = trace_of_case(*done, out.lanes);
  collect_taps(trace, owners_of(trace), spec, spec.saved_case, out.taps);
  return options.judged ? judge_case(*done, registry, options, spec.saved_case, out)
                        : Result<void>();
}

}  // namespace attnscope
