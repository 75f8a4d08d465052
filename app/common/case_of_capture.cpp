#include "app/common/case_of_capture.h"

#include <fmt/format.h>

#include <cstring>

#include "app/common/format.h"

namespace attnscope {
namespace {

// The number of a params struct that follows from the model.
bool number_of(const Capture& capture, const ParamField& field, unsigned char* params) {
  if (field.kind != FieldKind::kReal || std::string_view(field.name) != "eps") return false;
  const double eps = capture.index().model.rms_eps;
  std::memcpy(params + field.offset, &eps, sizeof(eps));
  return true;
}

}  // namespace

Result<OpCase> case_of_capture(const Capture& capture, const Place& place) {
  const CaseOp op = *find_case_op(place.op);
  const std::string where = fmt::format("{}: {}", capture.path(), format_place(place));
  const std::string from_scenario =
      fmt::format("save it from its scenario: attnscope case save {} --at {}/{}/{}",
                  capture.index().origin.scenario, place.step,
                  place.layer < 0 ? std::string("-") : std::to_string(place.layer), op.name);
  auto trace = capture.trace(place.step);
  if (!trace) return trace.error();
  const OpTrace* recorded = *trace ? (*trace)->find(place.layer, place.op) : nullptr;
  if (recorded == nullptr) {
    return bad_input(where + ": was not recorded", "record with --level full, or name another");
  }
  std::vector<std::uint64_t> params((op.params_size + 7) / 8, 0);
  auto* bytes = reinterpret_cast<unsigned char*>(params.data());
  for (const ParamField& field : op.fields) {
    if (number_of(capture, field, bytes)) continue;
    return bad_input(fmt::format("{}: a capture does not hold its {}", where, field.name),
                     from_scenario);
  }
  const auto tokens = (*trace)->metadata.num_tokens_in_step();
  for (const as_tap_info& tap : op.taps) {
    if (tap.kind == AS_TAP_CACHE) {
      return bad_input(
          fmt::format("{}: a capture does not hold the rows of its {}", where, tap.name),
          from_scenario);
    }
    const TapCopy* copy = recorded->tap(tap.name);
    if (copy == nullptr) {
      if (tap.optional != 0) continue;
      return bad_input(fmt::format("{}: {} was not recorded", where, tap.name),
                       capture.why_missing(place, tap.name));
    }
    if (copy->value.data == nullptr) {
      return bad_input(fmt::format("{}: {} was recorded without its values", where, tap.name),
                       capture.why_missing(place, tap.name));
    }
    tensor_at(params.data(), tap.offset) = copy->value;
  }
  // Every op of tensors alone goes token by token: the kept ones are a call of their own.
  std::string from = capture.path();
  if (static_cast<std::int64_t>((*trace)->kept.size()) != tokens) {
    from += fmt::format(" ({} of {} tokens)", (*trace)->kept.size(), tokens);
  }
  return keep_case(op, params.data(), {std::move(from), recorded->lane, place.step, place.layer});
}

}  // namespace attnscope
