#include "engine/golden/saved_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "engine/config/json_file.h"
#include "engine/golden/golden_collect.h"
#include "engine/golden/op_inputs.h"
#include "engine/opcase/case_file.h"
#include "engine/opcase/case_run.h"
#include "engine/session/byte_stream.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

Result<std::string> files_digest(const fs::path& json) {
  std::string all;
  for (const char* extension : {".json", ".safetensors"}) {
    auto bytes = read_text_file(fs::path(json).replace_extension(extension).string());
    if (!bytes) return bytes.error();
    all += *bytes;
  }
  return hex64(checksum(reinterpret_cast<const std::uint8_t*>(all.data()), all.size()));
}

// The slots that say which rows a tap's cache got.
const StoredTensor* slots_of(const OpCase& done, const as_tap_info& tap) {
  for (const as_tap_info& other : done.op.taps) {
    if (other.offset != tap.mask_offset) continue;
    const auto it = done.tensors.find(other.name);
    if (it != done.tensors.end()) return &it->second;
  }
  return nullptr;
}

RowsCopy written_rows(const OpCase& done, const as_tap_info& tap, const StoredCache& cache) {
  RowsCopy rows;
  rows.name = tap.name;
  rows.record = cache.record;
  rows.width = cache.width;
  rows.row_bytes = cache.row_bytes();
  rows.rows_per_block = cache.rows_per_block;
  const StoredTensor* stored = slots_of(done, tap);
  if (stored == nullptr || stored->dtype != AS_I64) return rows;
  const as_tensor slots = stored_view(*stored);
  for (std::int64_t t = 0; t < as_tensor_numel(&slots); ++t) {
    const std::int64_t slot = *at<std::int64_t>(slots, t);
    const auto it = std::ranges::lower_bound(cache.slots, slot);
    if (slot < 0 || it == cache.slots.end() || *it != slot) continue;
    const std::uint8_t* row = cache.rows.data() + (it - cache.slots.begin()) * rows.row_bytes;
    rows.tokens.push_back(static_cast<std::int32_t>(t));
    rows.slots.push_back(slot);
    rows.bytes.insert(rows.bytes.end(), row, row + rows.row_bytes);
  }
  return rows;
}

OpTrace trace_of(const OpCase& done, const std::string& lane) {
  OpTrace trace;
  trace.place = {0, -1, static_cast<as_op_id>(done.op.id)};
  trace.lane = lane;
  for (const as_tap_info& tap : done.op.taps) {
    const bool output = tap.direction == AS_TAP_OUT;
    if (tap.kind == AS_TAP_CACHE) {
      const auto it = done.caches.find(tap.name);
      if (output && it != done.caches.end()) {
        trace.rows.push_back(written_rows(done, tap, it->second));
      }
      continue;
    }
    const auto it = done.tensors.find(tap.name);
    if (it == done.tensors.end() || it->second.bytes.empty()) continue;
    TapCopy copy;
    copy.name = tap.name;
    copy.axes = tap.axes;
    copy.rule = tap.rule;
    copy.output = output;
    copy.value = stored_view(it->second);
    trace.taps.push_back(std::move(copy));
  }
  return trace;
}

// A case says which request a token is of where its op asks for that.
RowOwners owners_of(const OpTrace& trace) {
  RowOwners owners;
  std::int64_t rows = 0;
  for (const TapCopy& tap : trace.taps) {
    if (tap.axes.starts_with("T") || tap.axes.starts_with("N")) rows = tap.value.shape[0];
  }
  owners.requests.resize(static_cast<std::size_t>(rows));
  if (const TapCopy* tap = trace.tap("request_of"); tap != nullptr && tap->value.shape[0] == rows) {
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

Result<void> run_saved_case(const GoldenSpec& spec, const LaneRegistry& registry,
                            const GoldenRunOptions& options, GoldenValues& out) {
  const fs::path json = fs::path(spec.path).parent_path() / (spec.saved_case + ".json");
  auto kept = read_case(json.string());
  if (!kept) return kept.error();
  const auto op = static_cast<as_op_id>(kept->op.id);
  if (kept->op.helper || !has_own_inputs(op)) {
    return bad_input(fmt::format("{}: {} is no op that a lane of a session runs by itself",
                                 json.string(), kept->op.name),
                     "save another op, or name a scenario");
  }
  auto digest = files_digest(json);
  if (!digest) return digest.error();
  out.inputs = *digest;
  auto lanes = LaneSelector::make(registry, options.lanes.empty() ? spec.lanes : options.lanes);
  if (!lanes) return lanes.error();
  auto tolerances = Tolerances::load(options.tolerance_file);
  if (!tolerances) return tolerances.error();
  out.lanes = lanes->lane(op);
  CaseRunOptions run;
  run.tolerances = &*tolerances;
  if (const as_lane* cpu = registry.find("cpu")) run.guard = cpu->ops[op];
  auto done = rerun_case(*kept, {out.lanes, lanes->function(op), false}, run);
  if (!done) return done.error();
  const OpTrace trace = trace_of(*done, out.lanes);
  collect_taps(trace, owners_of(trace), spec, spec.saved_case, out.taps);
  return {};
}

}  // namespace attnscope
