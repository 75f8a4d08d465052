#include "engine/io/old_names.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace attnscope {
namespace {

constexpr OldTapName kTaps[] = {
    {AS_OP_SCHEDULE, "scheduled", "num_scheduled_tokens"},
    {AS_OP_BLOCK_TABLES, "scheduled", "num_scheduled_tokens"},
    {AS_OP_SLOT_MAPPING, "request_of", "token_to_req"},
    {AS_OP_SWA_INDEX, "query_start", "query_start_loc"},
    {AS_OP_SWA_INDEX, "request_of", "token_to_req"},
    {AS_OP_C128_INDEX, "request_of", "token_to_req"},
    {AS_OP_COMPRESS_INSERT, "request_of", "token_to_req"},
    {AS_OP_INDEXER_COMPRESS_INSERT, "request_of", "token_to_req"},
    {AS_OP_INDEXER_LOGITS, "request_of", "token_to_req"},
    {AS_OP_TOPK_TO_SLOTS, "request_of", "token_to_req"},
    {AS_OP_SPARSE_ATTENTION, "lens", "topk_length"},
    {AS_OP_SPARSE_ATTENTION, "extra_lens", "extra_topk_length"},
    {AS_OP_WORKSPACE_ATTENTION, "lens", "topk_length"},
};

constexpr OldStepName kStep[] = {
    {"scheduled", "num_scheduled_tokens"},
    {"request_of", "token_to_req"},
    {"query_start", "query_start_loc"},
};

bool has_tap(const as_op_info& info, std::string_view name) {
  return std::any_of(info.taps, info.taps + info.num_taps,
                     [&](const as_tap_info& tap) { return name == tap.name; });
}

void rename_key(nlohmann::json& object, const char* before, const char* now) {
  if (!object.is_object()) return;
  const auto found = object.find(before);
  if (found == object.end() || object.contains(now)) return;
  nlohmann::json value = std::move(*found);
  object.erase(found);
  object[now] = std::move(value);
}

}  // namespace

std::span<const OldTapName> old_tap_names() { return kTaps; }

std::span<const OldStepName> old_step_names() { return kStep; }

std::string_view tap_name_now(as_op_id op, std::string_view name) {
  for (const OldTapName& old : kTaps) {
    if (old.op == op && old.before == name) return old.now;
  }
  return name;
}

std::string_view tap_name_now(std::string_view name) {
  for (int i = 0; as_op_at(i) != nullptr; ++i) {
    if (has_tap(*as_op_at(i), name)) return name;
  }
  const auto* old = std::ranges::find(kTaps, name, &OldTapName::before);
  return old == std::end(kTaps) ? name : old->now;
}

std::string_view tap_name_at_first(as_op_id op, std::string_view name) {
  for (const OldTapName& old : kTaps) {
    if (old.op == op && old.now == name) return old.before;
  }
  return name;
}

void rename_tap_keys(nlohmann::json& object, as_op_id op) {
  for (const OldTapName& old : kTaps) {
    if (old.op == op) rename_key(object, old.before, old.now);
  }
}

void rename_step_keys(nlohmann::json& object) {
  for (const OldStepName& old : kStep) rename_key(object, old.before, old.now);
}

std::string_view step_name_before(std::string_view now) {
  const auto* old = std::ranges::find(kStep, now, &OldStepName::now);
  return old == std::end(kStep) ? std::string_view() : old->before;
}

}  // namespace attnscope
