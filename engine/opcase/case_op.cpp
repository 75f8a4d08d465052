#include "engine/opcase/case_op.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "engine/io/nearest.h"

namespace attnscope {

std::optional<CaseOp> find_case_op(std::int32_t id) {
  const as_op_info* op = as_op_find(id);
  if (op == nullptr) return std::nullopt;
  return CaseOp{op->name,
                op->summary,
                op->id,
                op->phase == AS_PHASE_NONE,
                op->params_size,
                {op->taps, op->num_taps},
                {op->fields, op->num_fields}};
}

Result<CaseOp> case_op_by_name(std::string_view name) {
  std::vector<std::string> names;
  for (int i = 0; const as_op_info* op = as_op_at(i); ++i) {
    if (name == op->name) return *find_case_op(op->id);
    names.emplace_back(op->name);
  }
  return bad_input(fmt::format("unknown op \"{}\"", name),
                   fmt::format("{}ops: {}", did_you_mean(name, names), fmt::join(names, ", ")));
}

bool reads_tap(const as_tap_info& tap, const void* params) {
  if (tap.direction == AS_TAP_IN) return true;
  return tap.given_by != 0 && integer_at(params, tap.given_by) != 0;
}

}  // namespace attnscope
