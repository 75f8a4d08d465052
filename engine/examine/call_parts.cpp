#include "engine/examine/call_parts.h"

#include <algorithm>

#include "engine/examine/clause.h"
#include "engine/examine/helper_calls.h"
#include "engine/golden/op_inputs.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

bool is_list(const as_tap_info& tap, const StoredTensor& t) {
  return tap.direction == AS_TAP_IN && by_token(tap) && t.dtype == AS_I32 && t.shape.size() == 2;
}

bool is_lengths(const as_tap_info& tap, const StoredTensor& t) {
  return tap.direction == AS_TAP_IN && by_token(tap) && t.dtype == AS_I32 && t.shape.size() == 1;
}

}  // namespace

std::vector<ListedRows> listed_rows(OpCase& call) {
  std::vector<ListedRows> found;
  const auto taps = call.op.taps;
  for (std::size_t i = 0; i + 2 < taps.size(); ++i) {
    const bool plain = taps[i].kind == AS_TAP_TENSOR && std::string_view(taps[i].name) == "rows";
    if ((taps[i].kind != AS_TAP_CACHE && !plain) || taps[i].direction != AS_TAP_IN) continue;
    StoredTensor* list = tensor_of(call, taps[i + 1]);
    StoredTensor* lens = tensor_of(call, taps[i + 2]);
    if (list == nullptr || lens == nullptr) continue;
    if (!plain && !call.caches.contains(taps[i].name)) continue;
    if (is_list(taps[i + 1], *list) && is_lengths(taps[i + 2], *lens)) {
      found.push_back({list, lens, taps[i + 1].name});
    }
  }
  return found;
}

std::vector<OpCase> ordinary_calls(as_op_id op, bool page_ends) {
  std::vector<OpCase> calls;
  if (const CaseOp of = *find_case_op(op); of.helper) return helper_calls(of, page_ends);
  if (!has_own_inputs(op)) return calls;
  const std::vector<GoldenCase> plain = {{"one token", {9}, 1, 11},
                                         {"two chunks", {133, 40}, 4, 12},
                                         {"three requests", {700, 129, 4}, 3, 13}};
  const std::vector<GoldenCase> ends = {{"a full page", {64}, 1, 21},
                                        {"a row behind it", {65}, 2, 22},
                                        {"both", {256, 257, 63}, 2, 23}};
  for (const GoldenCase& shape : page_ends ? ends : plain) {
    OpInputs inputs(op, shape);
    auto kept = keep_case(*find_case_op(op), inputs.params().data(),
                          {"examiner, " + shape.name, "", -1, -1});
    if (kept) calls.push_back(std::move(*kept));
  }
  return calls;
}

std::string_view row_axis(const CaseOp& op) {
  if (!op.helper || std::ranges::any_of(op.taps, by_token)) return "T";
  return op.id == AS_OP_GATHER_ROWS || op.id == AS_OP_COPY_BLOCKS ? "N" : "sequences";
}

std::int64_t tokens_apart(const OpCase& call) {
  if (as_op_has(call.op.id, AS_BY_ENGINE) != 0) return 0;
  std::int64_t tokens = 0;
  for (const as_tap_info& tap : call.op.taps) {
    const auto it = call.tensors.find(tap.name);
    if (it == call.tensors.end()) continue;
    if (by_row(call.op, tap)) {
      tokens = it->second.shape[0];
    } else if (std::string_view(tap.axes).find(row_axis(call.op)) != std::string_view::npos ||
               std::string_view(tap.name) == "query_start_loc") {
      return 0;
    } else if (call.op.helper && tap.direction == AS_TAP_OUT) {
      return 0;
    }
  }
  return tokens;
}

std::optional<OpCase> one_token(const OpCase& call, std::int64_t token) {
  if (token >= tokens_apart(call)) return std::nullopt;
  OpCase alone = call;
  for (const as_tap_info& tap : call.op.taps) {
    StoredTensor* t = tensor_of(alone, tap);
    if (t == nullptr || !by_row(call.op, tap)) continue;
    const auto row = static_cast<std::ptrdiff_t>(t->bytes.size()) / t->shape[0];
    t->bytes = {t->bytes.begin() + token * row, t->bytes.begin() + (token + 1) * row};
    t->shape[0] = 1;
  }
  return alone;
}

}  // namespace attnscope
