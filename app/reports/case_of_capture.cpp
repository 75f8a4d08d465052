#include "app/reports/case_of_capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "app/reports/recorded_cache.h"
#include "app/text/format.h"
#include "app/views/op_order.h"
#include "engine/capture/again.h"
#include "engine/family/family.h"
#include "engine/family/models.h"
#include "engine/io/json_file.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/head.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Of the scheduler: what the scenario says, else what follows from the groups.
std::int64_t alignment_of(const Capture& capture) {
  auto scenario = parse_json(capture.index().origin.scenario_text, "");
  if (scenario && scenario->is_object()) {
    const nlohmann::json::json_pointer place("/serving/scheduler_block_size");
    if (scenario->contains(place) && (*scenario)[place].is_number_integer()) {
      return (*scenario)[place].get<std::int64_t>();
    }
  }
  std::int64_t multiple = 1;
  for (const CacheGroup& group : capture.info()->layout.groups) {
    multiple = std::lcm(multiple, group.block_tokens);
  }
  return multiple;
}

// A call put together from a capture: the struct and the memory behind it.
class Call {
 public:
  Call(const Capture& capture, const Place& place)
      : capture_(capture), place_(place), op_(*find_case_op(place.op)) {
    params_.assign((op_.params_size + 7) / 8, 0);
    const as_params_head head = {static_cast<std::uint32_t>(op_.params_size), AS_PARAMS_VERSION};
    std::memcpy(params_.data(), &head, sizeof(head));
  }

  Result<OpCase> keep() {
    auto trace = capture_.trace(place_.step);
    if (!trace) return trace.error();
    trace_ = *trace;
    recorded_ = trace_ ? trace_->find(place_.layer, place_.op) : nullptr;
    if (recorded_ == nullptr) return missing("was not recorded", "record with --level full");
    if (auto ok = put_tensors(); !ok) return ok.error();
    set_numbers();
    if (auto ok = put_caches(); !ok) return ok.error();
    put_rope();
    std::string from = capture_.path();
    const auto tokens = trace_->metadata.num_tokens_in_step();
    if (static_cast<std::int64_t>(trace_->kept.size()) != tokens) {
      // Tokens by themselves are a call of their own; spans of them are not, nor is a plan of all.
      if (place_.op == AS_OP_SWA_INDEX || place_.op == AS_OP_ATTENTION_PLAN) {
        return missing("not all tokens of the step were recorded", "record with --rows all");
      }
      from += fmt::format(" ({} of {} tokens)", trace_->kept.size(), tokens);
      if (place_.op == AS_OP_SPARSE_ATTENTION) keep_plan();
    }
    auto kept = keep_case(op_, params_.data(),
                          {std::move(from), recorded_->lane, place_.step, place_.layer});
    if (!kept) return kept;
    if (auto ok = check_rows(*kept); !ok) return ok.error();
    return kept;
  }

 private:
  Error missing(const std::string& what, const std::string& hint) const {
    return bad_input(fmt::format("{}: {}: {}", capture_.path(), format_place(place_), what), hint);
  }

  void set_numbers() {
    const SessionInfo& info = *capture_.info();
    const Family& family = family_of(info.config);
    if (as_op_find(place_.op)->phase == AS_PHASE_BEFORE) {
      family.set_step_numbers(place_.op, info.config, info.layout, capture_.index().token_budget,
                              alignment_of(capture_), params_.data());
      return;
    }
    const int layer = layer_index(info, place_.layer);
    const CacheSpec* read = info.layout.find(layer, table_cache(place_.op));
    family.set_layer_numbers(place_.op, layer, info.config,
                             read != nullptr ? read->rows_per_block : 0, params_.data());
  }

  Result<void> put_tensors() {
    auto entry = capture_.entry(place_.step);
    if (!entry) return entry.error();
    for (const as_tap_info& tap : op_.taps) {
      if (tap.kind != AS_TAP_TENSOR) continue;
      const TapCopy* copy = recorded_->tap(tap.name);
      if (copy != nullptr && copy->value.data != nullptr) {
        tensor_at(params_.data(), tap.offset) = copy->value;
        continue;
      }
      // What the op had, and the capture kept no values of.
      const TapEntry* had = *entry ? entry_of(**entry, tap.name) : nullptr;
      if (had == nullptr || had->value.dtype.empty()) continue;
      return missing(fmt::format("{} was recorded without its values", tap.name),
                     had->weight ? "record with --weights, which keeps those of the model"
                                 : capture_.why_missing(place_, tap.name));
    }
    return {};
  }

  const TapEntry* entry_of(const TraceEntry& entry, const char* tap) const {
    for (const OpEntry& op : entry.ops) {
      if (op.layer != place_.layer || op.op != place_.op) continue;
      for (const TapEntry& t : op.taps) {
        if (t.name == tap) return &t;
      }
    }
    return nullptr;
  }

  Result<void> put_caches() {
    if (moves_blocks(place_.op)) {
      return missing("whole blocks as they were are not recorded",
                     "save the case from the scenario");
    }
    for (const as_tap_info& tap : op_.taps) {
      if (tap.kind != AS_TAP_CACHE) continue;
      const CacheSpec* spec = cache_of_tap(*capture_.info(), place_, tap.name);
      if (spec == nullptr) continue;  // the second cache of a layer that has one
      auto cache = RecordedCache::read(capture_, *spec, place_.layer, place_.step);
      if (!cache) return cache.error();
      cache_at(params_.data(), tap.offset) = cache->cache();
      caches_.emplace(tap.name, std::move(*cache));
    }
    return {};
  }

  // Of a plan for all tokens of a step: the splits of those that are kept, one behind the other,
  // for their rows in the call. Each split is cut as it was, by the same part of the grid.
  void keep_plan() {
    auto& p = *reinterpret_cast<as_sparse_attention_params*>(params_.data());
    if (!present(p.plan_rows)) return;
    const std::int64_t tokens = p.plan_rows.shape[0], most = p.plan_splits.shape[0];
    plan_splits_.assign(static_cast<std::size_t>(most * AS_PLAN_COLUMNS), -1);
    std::int32_t next = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int32_t first = *at<std::int32_t>(p.plan_rows, t, 0);
      const std::int32_t count = *at<std::int32_t>(p.plan_rows, t, 1);
      plan_rows_.insert(plan_rows_.end(), {next, count});
      for (std::int32_t n = first; n < first + count && n >= 0 && n < most; ++n, ++next) {
        std::int32_t* split = plan_splits_.data() + std::int64_t{next} * AS_PLAN_COLUMNS;
        std::copy_n(at<std::int32_t>(p.plan_splits, n), AS_PLAN_COLUMNS, split);
        split[AS_PLAN_ROW] = static_cast<std::int32_t>(t);
      }
    }
    p.plan_rows = make_tensor(plan_rows_.data(), {tokens, 2});
    p.plan_splits = make_tensor(plan_splits_.data(), {most, AS_PLAN_COLUMNS});
  }

  void put_rope() {
    for (const as_param_info& field : op_.fields) {
      if (field.kind != AS_PARAM_ROPE) continue;
      const SessionInfo& info = *capture_.info();
      as_rope& rope = rope_at(params_.data(), field.offset);
      rope = layer_rope(info.config, layer_index(info, place_.layer));
      if (rope.base == 0) continue;  // nothing is rotated
      std::int64_t rows = 1;
      for (const std::int64_t p : trace_->metadata.positions) rows = std::max(rows, p + 1);
      rope_.resize(static_cast<std::size_t>(rows * info.config.rope_dim));
      cpu::build_rope_table(rope, rows, rope_.data(), nullptr, info.config.rope_dim);
      set_rope_table(rope, rope_.data(), rows, info.config.rope_dim);
    }
  }

  // Rows that the op reads and that nobody saw written.
  Result<void> check_rows(const OpCase& kept) const {
    for (const auto& [name, cache] : caches_) {
      const auto it = kept.caches.find(name);
      if (it == kept.caches.end()) continue;
      const auto unknown = std::ranges::find_if(
          it->second.slots, [&cache = cache](std::int64_t slot) { return !cache.knows(slot); });
      if (unknown == it->second.slots.end()) continue;
      const std::string words = scenario_words(capture_.index());
      std::string hint = "record all steps from the first one with --level full";
      if (!words.empty()) {
        hint += fmt::format(
            ", or save it from its scenario: attnscope case save {} --at {}/{}/{} -o {}.json",
            words, place_.step, place_.layer < 0 ? std::string("-") : std::to_string(place_.layer),
            op_.name, op_.name);
      }
      return missing(
          fmt::format("slot {} of its {} was written by no step of the capture", *unknown, name),
          hint);
    }
    return {};
  }

  const Capture& capture_;
  const Place& place_;
  CaseOp op_;
  std::vector<std::uint64_t> params_;
  std::shared_ptr<const StepTrace> trace_;
  const OpTrace* recorded_ = nullptr;
  std::map<std::string, RecordedCache> caches_;  // by tap
  std::vector<float> rope_;
  std::vector<std::int32_t> plan_rows_, plan_splits_;
};

}  // namespace

Result<OpCase> case_of_capture(const Capture& capture, const Place& place) {
  return Call(capture, place).keep();
}

}  // namespace attnscope
