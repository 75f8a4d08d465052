#include "engine/examine/unreached.h"

#include <algorithm>

#include "engine/examine/call_parts.h"
#include "kernels/params/row_access.h"

namespace attnscope {
namespace {

bool is_one_of(std::string_view clause, std::initializer_list<std::string_view> ids) {
  return std::ranges::find(ids, clause) != ids.end();
}

std::string no_list(std::string_view clause, const CaseOp& op) {
  switch (op.id) {
    case AS_OP_SWAP_IN:
      if (clause == "duplicates") return "no block is written twice";
      if (clause != "behind_lens") return "-1 in its list is tried by nothing_written";
      [[fallthrough]];
    case AS_OP_GATHER_ROWS:
    case AS_OP_COPY_BLOCKS:
    case AS_OP_SWAP_OUT:
      return "its list has no length of its own: all of it counts";
    case AS_OP_SEQUENCE_TABLE:
      return "lists are what it makes; it is given numbers of tokens";
    case AS_OP_PAD_ROWS:
      return "its values may be any: -1 and equal ones are values as others";
    case AS_OP_CROSS_BATCH:
      return "tokens that are listed twice are two tokens";
    case AS_OP_EXCHANGE_ROWS:
      return clause == "behind_lens" ? "its lists have no lengths: -1 alone is no entry"
                                     : "-1 in its lists is tried by nothing_written";
    default:
      if (std::ranges::any_of(RowAccess::of(op.id), RowAccess::by_table)) {
        return "its rows are found through a block table, and not listed";
      }
      return "it is given no list of rows: all that its tensors hold counts";
  }
}

}  // namespace

std::string why_unreached(std::string_view clause, const CaseOp& op) {
  const as_op_info* info = as_op_find(op.id);
  const bool reads_cache = std::ranges::any_of(op.taps, [](const as_tap_info& tap) {
    return tap.kind == AS_TAP_CACHE && tap.direction == AS_TAP_IN;
  });
  const bool has_cache = !RowAccess::of(op.id).empty();
  if (clause == "page_ends") return "no size of pages is known to it";
  if (is_one_of(clause, {"holes", "behind_lens", "duplicates", "nothing_listed"})) {
    return no_list(clause, op);
  }
  if (clause == "unlisted_nan") {
    return reads_cache ? "the rows that it reads are not those of a list with lengths"
                       : "it reads no cache, in which other rows could lie";
  }
  if (clause == "unread_pages") return "it reads no rows through a block table";
  if (clause == "high_blocks") {
    return has_cache ? "slots of 32 bits end before its rows lie so far" : "it has no cache";
  }
  if (is_one_of(clause, {"large_logits", "far_lse"})) {
    if (op.id == AS_OP_MERGE_STATES) return "its LSEs are inputs, which far_lse tries";
    return info->role == AS_ROLE_ATTENTION
               ? "logits are set in caches of bf16 rows, and it reads none"
               : "it attends to nothing, and has no logits";
  }
  if (clause == "sinks") return "it has no sinks";
  if (is_one_of(clause, {"every_code", "subnormals", "small_scales"})) {
    if (as_op_role(op.id) == AS_ROLE_COPY && op.id != AS_OP_GATHER_ROWS &&
        op.id != AS_OP_CONVERT_ROWS) {
      return "it moves bytes, whatever they hold";
    }
    return reads_cache ? "no row that it reads has codes of e4m3 with scales of ue8m0"
                       : "it reads no codes of e4m3";
  }
  if (is_one_of(clause, {"ties", "scores_behind"})) return "it selects nothing by its score";
  if (clause == "nothing_written") return "no slot says where its results are written";
  if (clause == "strides") return "each of its tensors has one dimension";
  if (clause == "nan_neighbours") {
    const bool floats = std::ranges::any_of(op.taps, [&](const as_tap_info& tap) {
      return tap.direction == AS_TAP_IN && by_row(op, tap) &&
             is_one_of(tap.dtype, {"bf16", "f32", "bf16|f32"});
    });
    return floats ? "its tokens cannot be called one by one"
                  : "tokens of its calls have no floats of their own";
  }
  if (clause == "alone") {
    if (op.id == AS_OP_COPY_BLOCKS)
      return "one pair alone leaves the blocks of the others as they are";
    return op.helper ? "lists that it makes or is given run through all sequences"
                     : "its tokens lie along other axes, too: they cannot be called one by one";
  }
  if (clause == "large_numbers")
    return "it is given no ids and lengths, or bounds them by its tensors";
  if (clause == "no_rows") return "a step has at least one token";
  return "no call of the op does so";
}

}  // namespace attnscope
