#include "app/views/compare_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "app/text/format.h"
#include "app/views/tensor_view.h"
#include "engine/capture/logical_slots.h"
#include "engine/trace/axis_words.h"

namespace attnscope {
namespace {

constexpr std::int64_t kWrap = 64;

std::string op_name(const Place& place) { return as_op_find(place.op)->name; }

// The element of a tap that belongs to a token, by its place along the other axes.
struct TokenSlice {
  std::shared_ptr<const OpTrace> op;
  const TapCopy* tap = nullptr;
  int axis = -1;  // of the tokens; -1 = none
  std::int64_t row = 0;
  std::vector<int> others;

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (const int axis_of : others) n *= tap->value.shape[axis_of];
    return n;
  }
  // Of a tap with two more axes the last one; else lines of kWrap.
  std::int64_t columns() const {
    return others.size() > 1 ? tap->value.shape[others.back()] : std::min(kWrap, elements());
  }
  TapIndex index(std::int64_t element) const {
    TapIndex at;
    at.rank = tap->value.rank;
    if (axis >= 0) at[axis] = row;
    for (std::size_t i = others.size(); i-- > 0;) {
      const std::int64_t n = tap->value.shape[others[i]];
      at[others[i]] = element % n;
      element /= n;
    }
    return at;
  }
  double value(std::int64_t element) const { return element_at(tap->value, index(element)); }
};

std::shared_ptr<const OpTrace> op_of(const std::shared_ptr<const StepTrace>& step,
                                     const Place& place) {
  if (!step) return nullptr;
  const auto it = std::ranges::find_if(step->ops, [&](const auto& op) {
    return op->place.layer == place.layer && op->place.op == place.op;
  });
  return it == step->ops.end() ? nullptr : *it;
}

// False where the tap has no row of this token.
bool slice_of(const std::shared_ptr<const StepTrace>& step,
              const std::shared_ptr<const OpTrace>& op, const std::string& name,
              std::int32_t token_row, TokenSlice& out) {
  out.op = op;
  out.tap = op ? op->tap(name) : nullptr;
  if (out.tap == nullptr || out.tap->value.data == nullptr) return false;
  const std::vector<std::string> letters = split_axes(out.tap->axes);
  for (int i = 0; i < out.tap->value.rank; ++i) {
    const std::string& letter = letters[static_cast<std::size_t>(i)];
    if (out.axis < 0 && (letter == "T" || (letter == "N" && i == 0))) {
      out.axis = i;
    } else {
      out.others.push_back(i);
    }
  }
  if (out.axis >= 0) {
    out.row = index_of_token_row(*step, *op, token_row);
    if (out.row < 0 || out.row >= out.tap->value.shape[out.axis]) return false;
  }
  return out.elements() > 0;
}

// How far two values are apart; what is finite on one side alone is furthest.
double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  return std::isfinite(a - b) ? std::fabs(a - b) : std::numeric_limits<double>::infinity();
}

using RowSlots = std::map<std::int64_t, std::int64_t>;  // slot by logical row

RowSlots list_of(const SessionInfo& info, const StepTrace& step, const OpTrace& op,
                 const std::string& name, std::int32_t request, const TokenSlice& slice) {
  RowSlots out;
  const SlotSpace space = slot_space(info, op.place, name, 0);
  // Of attention, or of the op that makes the list.
  const char* own = op.tap("topk_length") != nullptr ? "topk_length" : "lens";
  const TapCopy* lens = op.tap(name == "indices" ? own : "extra_topk_length");
  std::int64_t n = slice.elements();
  if (lens != nullptr && lens->value.data != nullptr && lens->value.rank == 1 &&
      slice.row < lens->value.shape[0]) {
    n = std::min(n, static_cast<std::int64_t>(
                        element_at(lens->value, TapIndex(std::vector<std::int64_t>{slice.row}))));
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const auto slot = static_cast<std::int64_t>(slice.value(i));
    if (slot < 0) continue;
    out.emplace(logical_row(step, request, space, slot), slot);
  }
  return out;
}

}  // namespace

DiffLook diff_look(DiffVerdict verdict) {
  switch (verdict) {
    case DiffVerdict::kEqual:
      return {"same bits", Verdict::kEqual};
    case DiffVerdict::kWithin:
      return {"within tolerance", Verdict::kRounding};
    case DiffVerdict::kOrigin:
      return {"begins here", Verdict::kWrong};
    case DiffVerdict::kInherited:
      return {"inherited", Verdict::kQuantisation, true};
    case DiffVerdict::kDiffers:
      return {"differs, by how much unknown", Verdict::kNearTie};
    default:
      return {"not recorded in both", Verdict::kNotCompared};
  }
}

std::string compared_text(const RunPair* comparison, const Place& place) {
  const auto verdict = comparison != nullptr ? comparison->verdict(place) : std::nullopt;
  if (!verdict) return "";
  std::string out = fmt::format("beside {}: {}", comparison->name_b, diff_look(*verdict).word);
  const OpDiff* op = comparison->find(place);
  if (op == nullptr) return out;
  const auto worst =
      std::ranges::find_if(op->taps, [](const TapDiff& tap) { return tap.output && !tap.within; });
  if (worst != op->taps.end()) out += fmt::format("; {}: {}", worst->tap, worst->evidence);
  if (!op->why.empty()) out += "; " + op->why;
  return out;
}

std::vector<ComparedOp> compared_ops(const RunPair& c, const ComparedToken& token) {
  std::vector<ComparedOp> out;
  if (!token.a) return out;
  for (const auto& op : token.a->ops) {
    ComparedOp row;
    row.place = op->place;
    row.lane_a = op->lane;
    const auto twin = op_of(token.b, op->place);
    if (twin) row.lane_b = twin->lane;
    if (const OpDiff* diff = c.find(op->place)) {
      row.verdict = diff->verdict;
      row.lane_b = diff->lane_b;
      for (const TapDiff& tap : diff->taps) {
        if (!tap.output || tap.equal) continue;
        if (row.worst == nullptr || (row.worst->within && !tap.within)) row.worst = &tap;
      }
    } else if (twin) {
      row.verdict = DiffVerdict::kEqual;
    }
    out.push_back(std::move(row));
  }
  return out;
}

std::string compare_sentence(const RunPair& c, const ComparedToken& token, const Place& place) {
  if (!token.a || token.request_a < 0) {
    return fmt::format("Step {} was not recorded in {}.", place.step, c.name_a);
  }
  std::string where = op_name(place);
  if (place.layer >= 0) where += fmt::format(" of layer {}", place.layer);
  if (!token.b) {
    return fmt::format("{}: {} has not recorded token {} of request \"{}\".", where, c.name_b,
                       token.position,
                       c.a->info()->request_names[static_cast<std::size_t>(token.request_a)]);
  }
  if (token.b->step != token.a->step) {
    where += fmt::format(", step {} here and {} in the second", token.a->step, token.b->step);
  }
  const OpDiff* diff = c.find(place);
  if (diff == nullptr) {
    return op_of(token.b, place) ? fmt::format("{}: the same bits in both.", where)
                                 : fmt::format("{}: the op was not recorded in both.", where);
  }
  const auto worst =
      std::ranges::find_if(diff->taps, [](const TapDiff& t) { return t.output && !t.within; });
  // Of values that were not kept there is no worst place.
  const auto evidence = [&] {
    return fmt::format("{}{}; {}", worst->by_checksum ? "" : "most at ", worst->evidence,
                       diff->why);
  };
  switch (diff->verdict) {
    case DiffVerdict::kOrigin:
      if (diff->inputs == DiffInputs::kEqual) {
        return fmt::format("{}: the inputs agree and {} does not, {}.", where, worst->tap,
                           evidence());
      }
      [[fallthrough]];
    case DiffVerdict::kInherited:
    case DiffVerdict::kDiffers:
      return fmt::format("{}: {} differs, {}.", where, worst->tap, evidence());
    case DiffVerdict::kWithin: {
      if (!diff->why.empty()) return fmt::format("{}: {}.", where, diff->why);
      const bool tie = std::ranges::any_of(diff->taps, [](const TapDiff& t) { return t.near_tie; });
      return fmt::format(
          "{}: {}.", where,
          tie ? "other entries of the same scores, a near-tie" : "differences within tolerance");
    }
    default:
      if (diff->open) {
        return fmt::format(
            "{}: could not be compared: {}{}.", where, diff->why,
            as_op_role(place.op) == AS_ROLE_COPY ? "" : "; record both at level full, all rows");
      }
      return fmt::format("{}: its values were not recorded in both; record at level full.", where);
  }
}

std::vector<std::string> compared_taps(const ComparedToken& token, const Place& place) {
  std::vector<std::string> out;
  const auto a = op_of(token.a, place), b = op_of(token.b, place);
  if (!a || !b) return out;
  for (const bool outputs : {true, false}) {
    for (const TapCopy& tap : a->taps) {
      if (tap.output == outputs && b->tap(tap.name) != nullptr) out.push_back(tap.name);
    }
  }
  return out;
}

ComparedValues compared_values(const ComparedToken& token, const Place& place,
                               const std::string& tap) {
  ComparedValues out;
  TokenSlice a, b;
  if (!slice_of(token.a, op_of(token.a, place), tap, token.row_a, a) ||
      !slice_of(token.b, op_of(token.b, place), tap, token.row_b, b)) {
    out.why = "This token's values were not recorded in both: record both with --level full.";
    return out;
  }
  // Lists are as wide as the batch's longest request needs: what both have.
  const std::int64_t n = std::min(a.elements(), b.elements());
  out.columns = std::min(a.columns(), b.columns());
  if (a.others.size() > 1 && a.columns() != b.columns()) {
    out.why = "The tap has other dimensions in the second.";
    return out;
  }
  out.rows = (n + out.columns - 1) / out.columns;
  out.floats = is_float_tensor(a.tap->value);
  const std::vector<std::string> letters = split_axes(a.tap->axes);
  const auto name = [&](std::size_t from_end) {
    return axis_name(letters[static_cast<std::size_t>(a.others[a.others.size() - from_end])]);
  };
  if (a.others.size() > 1) {
    out.row_axis = name(2);
    out.column_axis = name(1);
  } else if (!a.others.empty()) {
    out.row_axis = name(1);
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = a.value(i), y = b.value(i);
    for (const double v : {x, y}) {
      if (!std::isfinite(v)) continue;
      const bool first = out.low > out.high;
      out.low = first ? v : std::min(out.low, v);
      out.high = first ? v : std::max(out.high, v);
    }
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    ++out.differing;
    if (distance(x, y) < out.largest || (out.worst_row >= 0 && distance(x, y) == out.largest)) {
      continue;
    }
    if (std::isfinite(x - y)) out.largest = std::fabs(x - y);
    out.worst_row = i / out.columns;
    out.worst_column = i % out.columns;
  }
  const std::int64_t columns = out.columns;
  out.a = [a, columns](std::int64_t r, std::int64_t c) { return a.value(r * columns + c); };
  out.b = [b, columns](std::int64_t r, std::int64_t c) { return b.value(r * columns + c); };
  out.absent = [n, columns](std::int64_t r, std::int64_t c) { return r * columns + c >= n; };
  return out;
}

std::optional<WorstPlace> worst_place(const RunPair& c, const Place& place,
                                      const std::string& tap) {
  const auto step = c.a->trace(place.step);
  if (!step || !*step) return std::nullopt;
  std::map<std::int64_t, std::shared_ptr<const StepTrace>> others;  // of the second, by step
  std::optional<WorstPlace> worst;
  double most = 0;
  for (const std::int32_t row : (*step)->kept) {
    const std::int32_t request = (*step)->request_of(row);
    const auto r = static_cast<std::size_t>(request);
    if (request < 0 || r >= c.diff.requests.size()) continue;
    const std::int64_t position = (*step)->metadata.positions[static_cast<std::size_t>(row)];
    const auto at = c.diff.where.find({c.diff.requests[r], position});
    if (at == c.diff.where.end()) continue;
    auto [other, fresh] = others.try_emplace(at->second.step);
    if (fresh) {
      if (auto trace = c.b->trace(at->second.step)) other->second = std::move(*trace);
    }
    TokenSlice x, y;
    if (!slice_of(*step, op_of(*step, place), tap, row, x) ||
        !slice_of(other->second, op_of(other->second, place), tap, at->second.row, y)) {
      continue;
    }
    const std::int64_t n = std::min(x.elements(), y.elements());
    for (std::int64_t i = 0; i < n; ++i) {
      const double apart = distance(x.value(i), y.value(i));
      if (apart <= most) continue;
      most = apart;
      worst = WorstPlace{request, position, row, x.index(i), x.axis};
    }
  }
  return worst;
}

std::string compared_blocks_sentence(const std::vector<ComparedBlock>& blocks) {
  std::int64_t alone = 0, other = 0;
  for (const ComparedBlock& row : blocks) {
    if (row.differs) {
      ++alone;
    } else if (row.block_a != row.block_b) {
      ++other;
    }
  }
  const auto entries = static_cast<std::int64_t>(blocks.size());
  if (entries == 0) return "This token's block tables were not recorded in both.";
  if (alone + other == 0) {
    return fmt::format("{} of the block tables: the same blocks in both.",
                       plural(entries, "entry", "entries"));
  }
  return fmt::format(
      "{} of the block tables: {} in one of the runs alone, {} in other blocks, {} "
      "the same.",
      plural(entries, "entry", "entries"), alone, other, entries - alone - other);
}

std::vector<ComparedBlock> compared_blocks(const RunPair& c, const ComparedToken& token) {
  std::vector<ComparedBlock> out;
  const auto of = [](const std::shared_ptr<const StepTrace>& step, std::int32_t request) {
    const bool known =
        step && request >= 0 && static_cast<std::size_t>(request) < step->requests.size();
    return known ? &step->requests[static_cast<std::size_t>(request)] : nullptr;
  };
  const RequestView *a = of(token.a, token.request_a), *b = of(token.b, token.request_b);
  if (a == nullptr || b == nullptr) return out;
  const CacheLayout& layout = c.a->info()->layout;
  for (std::size_t g = 0; g < std::min(a->tables.size(), b->tables.size()); ++g) {
    const auto &p = a->tables[g], &q = b->tables[g];
    const std::int64_t tokens = layout.groups[g].block_tokens;
    for (std::size_t i = 0; i < std::max(p.size(), q.size()); ++i) {
      ComparedBlock row;
      row.group = static_cast<int>(g);
      row.entry = static_cast<std::int64_t>(i);
      row.first = row.entry * tokens;
      row.last = row.first + tokens - 1;
      if (i < p.size()) row.block_a = p[i];
      if (i < q.size()) row.block_b = q[i];
      row.differs = (row.block_a > 0) != (row.block_b > 0);
      out.push_back(row);
    }
  }
  return out;
}

ComparedLists compared_lists(const RunPair& c, const ComparedToken& token, int layer) {
  ComparedLists out;
  const OpTrace* attention = token.a ? token.a->find_role(layer, AS_ROLE_ATTENTION) : nullptr;
  if (attention != nullptr && attention->tap("indices") == nullptr) {
    out.sentence = fmt::format(
        "{} reads the rows of a request through its block table: a token has no list of them.",
        as_op_find(attention->place.op)->name);
    return out;
  }
  const Place place =
      attention != nullptr ? attention->place : Place{0, layer, AS_OP_SPARSE_ATTENTION};
  const auto a = op_of(token.a, place), b = op_of(token.b, place);
  if (!a || !b) {
    out.sentence =
        "The lists of this layer's attention were not recorded in both: choose an op of "
        "a layer, or record both with --level tables.";
    return out;
  }
  std::string text;
  for (const char* name : {"indices", "extra_indices"}) {
    // What the indexer of DeepSeek-V3.2 selects are tokens, and all that its attention reads.
    const bool tokens = place.op != AS_OP_SPARSE_ATTENTION;
    const bool window = !tokens && std::string_view(name) == "indices";
    const SlotSpace space = slot_space(*c.a->info(), a->place, name, 0);
    TokenSlice x, y;
    if (!slice_of(token.a, a, name, token.row_a, x) ||
        !slice_of(token.b, b, name, token.row_b, y)) {
      continue;
    }
    const RowSlots p = list_of(*c.a->info(), *token.a, *a, name, token.request_a, x);
    const RowSlots q = list_of(*c.b->info(), *token.b, *b, name, token.request_b, y);
    std::int64_t both = 0;
    std::map<std::int64_t, ComparedEntry> rows;
    for (const auto& [row, slot] : p) {
      ComparedEntry& entry = rows[row] = {window, row, slot};
      if (space.rows_per_block <= 0) continue;
      entry.group = space.group;
      entry.block = static_cast<std::int32_t>(slot / space.rows_per_block);
      entry.row_in_block = static_cast<std::int32_t>(slot % space.rows_per_block);
    }
    for (const auto& [row, slot] : q) {
      ComparedEntry& entry = rows.try_emplace(row, ComparedEntry{window, row}).first->second;
      entry.slot_b = slot;
      both += entry.slot_a >= 0 ? 1 : 0;
    }
    for (const auto& [row, entry] : rows) out.entries.push_back(entry);
    const auto only_a = static_cast<std::int64_t>(p.size()) - both;
    const auto only_b = static_cast<std::int64_t>(q.size()) - both;
    text += fmt::format("{}{}: {} in both", text.empty() ? "" : "; ",
                        window   ? "Window"
                        : tokens ? "Selected tokens"
                                 : "selected entries",
                        both);
    if (only_a > 0) text += fmt::format(", {} in the first alone", only_a);
    if (only_b > 0) text += fmt::format(", {} in the second alone", only_b);
  }
  out.sentence = text.empty() ? "This token's lists were not recorded in both." : text + ".";
  return out;
}

}  // namespace attnscope
