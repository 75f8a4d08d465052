#include "engine/opcase/import_wires.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "engine/model/numbers.h"
#include "engine/opcase/import_values.h"
#include "kernels/params/row_access.h"

namespace attnscope {
namespace {

// Of values that went through e4m3 in between: half a place of its 3 bits, and what is small beside
// the row's largest and becomes 0; twice as much is allowed.
constexpr double kCodeRounding = 1.0 / 8, kCodeFloor = 1.0 / 256;

// Rows of integers; negative = none.
struct Rows {
  std::vector<std::int64_t> values;
  std::int64_t rows = 0, width = 1;

  std::int64_t at(std::int64_t row, std::int64_t place = 0) const {
    return place < width ? std::max<std::int64_t>(-1, values[to_size(row * width + place)]) : -1;
  }
  // Leaves the first lens[t] of row t, or so many where there are no lengths.
  void cut(const Rows& lens, std::int64_t columns) {
    for (std::int64_t i = 0; i < to_count(values.size()); ++i) {
      const std::int64_t n = lens.rows > 0 ? lens.at(i / width % lens.rows) : columns;
      if (i % width >= n) values[to_size(i)] = -1;
    }
  }
};

bool is_integers(const StoredTensor& t) { return t.dtype == AS_I32 || t.dtype == AS_I64; }

// lists: the last axis is that of a row; else each row has one number.
Rows rows_of(const StoredTensor* t, bool lists = false) {
  Rows out;
  if (t == nullptr || !is_integers(*t)) return out;
  const auto take = [&](auto number) {
    for (std::size_t i = 0; i + sizeof(number) <= t->bytes.size(); i += sizeof(number)) {
      std::memcpy(&number, &t->bytes[i], sizeof(number));
      out.values.push_back(number);
    }
  };
  t->dtype == AS_I32 ? take(std::int32_t{}) : take(std::int64_t{});
  if (lists && !t->shape.empty()) out.width = std::max<std::int64_t>(1, t->shape.back());
  out.rows = to_count(out.values.size()) / out.width;
  return out;
}

// One end of a wire: a tensor of an op.
struct End {
  const PlacedCase* op = nullptr;
  const as_tap_info* tap = nullptr;
  const StoredTensor* tensor = nullptr;
  explicit operator bool() const { return tensor != nullptr; }
};

const StoredTensor* known_tensor(const OpCase& kept, const char* tap) {
  const auto it = kept.tensors.find(tap);
  return it != kept.tensors.end() && !kept.unknown.contains(tap) ? &it->second : nullptr;
}

// The rows of a cache that a tensor names, by its lengths where it has them.
const as_cache_access* access_by(const PlacedCase& op, std::size_t rows) {
  for (const as_cache_access& access : RowAccess::of(op.place.op)) {
    const bool names = access.by == AS_BY_LIST || access.by == AS_BY_SLOTS;
    if (names && access.rows == rows) return &access;
  }
  return nullptr;
}

class StepWires {
 public:
  StepWires(const ModelGraph& graph, std::int64_t step, const std::vector<PlacedCase>& ops)
      : graph_(graph), step_(step), ops_(ops) {}

  std::vector<std::string> check() && {
    for (const PlacedCase& op : ops_) check(op);
    check_positions();
    return std::move(found_);
  }

 private:
  void check(const PlacedCase& op) {
    // What ranks add up, and what a sampler does to logits, lies in between.
    const std::int32_t role = as_op_role(op.place.op);
    const LayerGraph& part = part_of(op);
    const Node* node = part.find(op.place.op);
    if (node == nullptr || role == AS_ROLE_RESIDUAL || role == AS_ROLE_SAMPLE) return;
    for (const Binding& input : node->bindings()) {
      const bool of_step = input.to == BoundTo::kStep && !input.name.starts_with("tables");
      if (!of_step && input.to != BoundTo::kValue && input.to != BoundTo::kSlots) continue;
      const bool lengths = std::ranges::any_of(RowAccess::of(op.place.op), [&](const auto& access) {
        return access.by == AS_BY_LIST && access.lens == input.tap->offset;
      });
      if (lengths || input.is_output()) continue;  // lengths: with their lists
      const End to = {&op, input.tap, known_tensor(*op.kept, input.tap->name)};
      if (!to) continue;
      const as_cache_access* access = access_by(op, input.tap->offset);
      if (access != nullptr && access->by == AS_BY_LIST) {
        const auto lens = std::ranges::find_if(
            node->bindings(), [&](const Binding& b) { return b.tap->offset == access->lens; });
        if (lens == node->bindings().end()) continue;
        const End to_lens = {&op, lens->tap, known_tensor(*op.kept, lens->tap->name)};
        if (to_lens) check_list(to, source(part, input), to_lens, source(part, *lens), access);
      } else if (const End from = source(part, input)) {
        is_integers(*to.tensor) ? check_list(to, from, {}, {}, access) : check_values(to, from);
      }
    }
  }

  const LayerGraph& part_of(const PlacedCase& op) const {
    if (op.index >= 0) return graph_.layer(op.index);
    return graph_.before.find(op.place.op) != nullptr ? graph_.before : graph_.after;
  }

  // What the dump has of the output that an input is.
  End source(const LayerGraph& part, const Binding& input) const {
    for (const LayerGraph* from : {&graph_.before, &part}) {
      for (const Node& node : from->nodes()) {
        for (const Binding& output : node.bindings()) {
          if (!reads_from(input, output) || output.tap->mask == AS_MASK_SLOTS) continue;
          const auto op = std::ranges::find_if(ops_, [&](const PlacedCase& p) {
            return p.place.op == node.op() && &part_of(p) == from;
          });
          if (op == ops_.end()) return {};
          return {&*op, output.tap, known_tensor(*op->kept, output.tap->name)};
        }
      }
    }
    return {};
  }

  void wrong(const End& to, const End& from, std::int64_t row, const std::string& where,
             const std::string& value, const std::string& instead) {
    const Place& place = to.op->place;
    const char first = to.tap->axes[0];
    const std::string as =
        std::strcmp(to.tap->name, from.tap->name) == 0 ? "" : fmt::format(" as {}", from.tap->name);
    found_.push_back(
        fmt::format("step {}{}: {} was given other {} than {} put out{}: {} {}{}: {} instead of {}",
                    step_, place.layer < 0 ? "" : fmt::format(", layer {}", place.layer),
                    to.op->kept->op.name, to.tap->name, from.op->kept->op.name, as,
                    first == 'T' ? "token" : "row", row, where, value, instead));
  }

  static std::string shown(std::int64_t n) { return n < 0 ? "none" : std::to_string(n); }

  // Whether the first n places of a list all have rows.
  static bool counts_rows(const Rows& list, std::int64_t row, std::int64_t n) {
    for (std::int64_t k = 0; k < n; ++k) {
      if (list.at(row, k) < 0) return false;
    }
    return n <= list.width;
  }
  // The same in every group of an output that has several.
  static bool counts_rows_of_groups(const Rows& made, std::int64_t rows, std::int64_t row,
                                    std::int64_t n) {
    if (made.rows == 0 || made.rows % rows != 0) return false;
    for (std::int64_t r = row; r < made.rows; r += rows) {
      if (!counts_rows(made, r, n)) return false;
    }
    return true;
  }

  // Lists, slots and lengths. access: the cache whose rows they name; nullptr = none.
  void check_list(const End& to, const End& from, const End& to_lens, const End& from_lens,
                  const as_cache_access* access) {
    const bool lists = to.tensor->shape.size() > 1;
    Rows list = rows_of(to.tensor, lists), made = rows_of(from.tensor, lists);
    const Rows lens = rows_of(to_lens.tensor);
    const Rows made_lens = from_lens ? rows_of(from_lens.tensor) : lens;
    if (lens.rows != made_lens.rows || (to_lens && lens.rows != list.rows)) return;
    for (std::int64_t t = 0; t < lens.rows; ++t) {
      const std::int64_t n = lens.at(t), other = made_lens.at(t);
      // Places without a row may be counted or not.
      const bool filled = n > other   ? counts_rows(list, t, n)
                          : n < other ? counts_rows_of_groups(made, list.rows, t, other)
                                      : false;
      if (filled) return wrong(to_lens, from_lens, t, "", shown(n), shown(other));
    }
    const std::int64_t columns = std::min(list.width, made.width);
    list.cut(lens, columns);
    made.cut(made_lens, columns);
    const std::int64_t page = page_rows(*to.op, access);
    const auto more = std::ssize(from.tensor ? from.tensor->shape : to.tensor->shape) -
                      std::ssize(to.tensor->shape);
    const bool groups = more == 1 && page > 0 && list.rows > 0 && made.rows % list.rows == 0;
    if (made.rows == 0 || (made.rows != list.rows && !groups)) return;
    if (made.values == list.values) return;
    if (page > 0 && !take_group(list, page, made)) return;
    for (std::int64_t t = 0; t < list.rows; ++t) {
      bool same = true;
      for (std::int64_t k = 0; same && k < std::max(list.width, made.width); ++k) {
        same = list.at(t, k) == made.at(t, k);
      }
      if (same) continue;
      std::multiset<std::int64_t> given, due;
      for (std::int64_t k = 0; k < list.width; ++k) given.insert(list.at(t, k));
      for (std::int64_t k = 0; k < made.width; ++k) due.insert(made.at(t, k));
      given.erase(-1), due.erase(-1);
      // A row that is not written needs no slot.
      const bool slots = access != nullptr && access->by == AS_BY_SLOTS;
      if (given == due || (slots && given.empty())) continue;
      for (std::int64_t k = 0; k < std::max(list.width, made.width); ++k) {
        const std::int64_t a = list.at(t, k), b = made.at(t, k);
        if (a == b || (given.count(a) == due.count(a) && given.count(b) == due.count(b))) continue;
        return wrong(to, from, t, lists ? fmt::format(", place {}", k) : "", shown(a), shown(b));
      }
    }
  }

  static std::int64_t page_rows(const PlacedCase& op, const as_cache_access* access) {
    for (const as_tap_info& tap : op.kept->op.taps) {
      if (access == nullptr || tap.offset != access->cache) continue;
      const auto cache = op.kept->caches.find(tap.name);
      if (cache != op.kept->caches.end()) return cache->second.rows_per_block;
    }
    return 0;
  }

  // Leaves of an output of several cache groups the one that the list is of: which layers are in
  // which group is the other engine's affair. So is how it numbers the pages of a layer. false:
  // nothing differs, or most pages are others, but always the same in one's place.
  static bool take_group(const Rows& list, std::int64_t page, Rows& made) {
    const std::int64_t size = list.rows * made.width;
    std::int64_t most = -1;
    Rows best;
    for (auto from = made.values.begin(); from != made.values.end(); from += size) {
      Rows part = {{from, from + size}, list.rows, made.width};
      if (part.values == list.values) return false;
      std::set<std::int64_t> pages;
      for (const std::int64_t slot : part.values) pages.insert(slot < 0 ? -1 : slot / page);
      const std::int64_t alike = std::ranges::count_if(
          list.values, [&](std::int64_t s) { return s >= 0 && pages.contains(s / page); });
      if (alike > most) most = alike, best = std::move(part);
    }
    made = std::move(best);
    std::map<std::int64_t, std::int64_t> to, back;
    std::int64_t same = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t a = list.at(i / made.width, i % made.width), b = made.values[to_size(i)];
      if (a < 0 && b < 0) continue;
      if (a < 0 || b < 0) return true;
      const bool fits = a % page == b % page &&
                        to.emplace(a / page, b / page).first->second == b / page &&
                        back.emplace(b / page, a / page).first->second == a / page;
      if (!fits) return true;
    }
    for (const auto& [a, b] : to) same += a == b ? 1 : 0;
    return to.empty() || 2 * same >= std::ssize(to);
  }

  // Floats and codes.
  void check_values(const End& to, const End& from) {
    const StoredTensor &given = *to.tensor, &due = *from.tensor;
    if (given.dtype != due.dtype || given.shape.empty() || due.shape.empty() ||
        given.shape[0] != due.shape[0] || given.shape[0] == 0 || given.bytes == due.bytes) {
      return;
    }
    const std::int64_t size = as_dtype_size(given.dtype), rows = given.shape[0];
    const std::int64_t width = to_count(given.bytes.size()) / size / rows;
    const std::int64_t other = to_count(due.bytes.size()) / size / rows;
    const bool masked = to.tap->mask == AS_MASK_LENS && given.shape.size() == 2;
    if (width != other && (!masked || due.shape.size() != 2)) return;
    Rows lens;
    if (masked) {
      for (const as_tap_info& tap : to.op->kept->op.taps) {
        if (tap.offset == to.tap->mask_offset) lens = rows_of(known_tensor(*to.op->kept, tap.name));
      }
    }
    const auto value = [&](const StoredTensor& t, std::int64_t element) {
      return value_of(element_of(t.dtype), &t.bytes[to_size(element * size)]);
    };
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int64_t columns = std::min(width, other);
      if (row < lens.rows) columns = std::min(columns, lens.at(row));
      double largest = 0;
      for (std::int64_t k = 0; k < columns; ++k) {
        const double b = std::abs(value(due, row * other + k));
        if (std::isfinite(b)) largest = std::max(largest, b);
      }
      for (std::int64_t k = 0; k < columns; ++k) {
        const double a = value(given, row * width + k), b = value(due, row * other + k);
        if (a == b || (std::isnan(a) && std::isnan(b))) continue;
        const double allowed =
            std::max(std::abs(a), std::abs(b)) * kCodeRounding + largest * kCodeFloor;
        const bool finite = std::isfinite(a) && std::isfinite(b);
        if (given.dtype != AS_U8 && finite && std::abs(a - b) <= allowed) continue;
        std::vector<std::int64_t> place;
        for (std::size_t axis = given.shape.size(), left = to_size(k); axis-- > 1;) {
          place.insert(place.begin(), to_count(left) % given.shape[axis]);
          left /= to_size(given.shape[axis]);
        }
        return wrong(to, from, row,
                     place.empty() ? "" : fmt::format(", element [{}]", fmt::join(place, ",")),
                     fmt::format("{:.6g}", a), fmt::format("{:.6g}", b));
      }
    }
  }

  // The last token of a request is where its sequence ends.
  void check_positions() {
    const StoredTensor* positions = nullptr;
    for (const PlacedCase& op : ops_) {
      if (positions == nullptr) positions = known_tensor(*op.kept, "positions");
    }
    for (const PlacedCase& op : ops_) {
      const StoredTensor* starts = known_tensor(*op.kept, "query_start_loc");
      const StoredTensor* lens = known_tensor(*op.kept, "seq_lens");
      if (positions == nullptr || starts == nullptr || lens == nullptr) continue;
      const Rows at = rows_of(positions), start = rows_of(starts), end = rows_of(lens);
      for (std::int64_t r = 0; r + 1 < start.rows && r < end.rows; ++r) {
        const std::int64_t token = start.at(r + 1) - 1, tokens = end.at(r);
        // Requests without tokens are padding.
        if (token < 0 || token < start.at(r) || token >= at.rows || tokens <= 0) continue;
        if (at.at(token) + 1 == tokens) continue;
        found_.push_back(fmt::format(
            "step {}: the positions contradict seq_lens of {}: request {} has {} tokens, and its "
            "last one, token {}, position {} instead of {}",
            step_, op.kept->op.name, r, tokens, token, at.at(token), tokens - 1));
        return;
      }
    }
  }

  const ModelGraph& graph_;
  const std::int64_t step_;
  const std::vector<PlacedCase>& ops_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> contradictions(const ModelGraph& graph, std::int64_t step,
                                        const std::vector<PlacedCase>& ops) {
  return StepWires(graph, step, ops).check();
}

}  // namespace attnscope
