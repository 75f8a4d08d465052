#include "engine/capture/row_match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/capture/logical_slots.h"
#include "engine/family/op_graph.h"
#include "engine/model/numbers.h"
#include "engine/trace/axis_words.h"
#include "engine/trace/compare.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Which axis has the tokens (or the sampled ones), -1 = none.
int row_axis(const TapCopy& tap) {
  int axis = 0;
  for (std::size_t at = 0; at < tap.axes.size(); ++axis) {
    const std::size_t end = std::min(tap.axes.find(',', at), tap.axes.size());
    const std::string letter = tap.axes.substr(at, end - at);
    if (letter == "T" || (letter == "N" && axis == 0)) return axis;
    at = end + 1;
  }
  return -1;
}

// Row of a tap that holds this token row, -1 = none.
std::int64_t row_of(const StepTrace& trace, const TapCopy& tap, std::int32_t token) {
  if (!tap.axes.starts_with('N')) return trace.kept_index(token);
  const auto& rows = trace.metadata.sample_rows;
  const auto it = std::ranges::find(rows, std::int64_t{token});
  return it == rows.end() ? -1 : it - rows.begin();
}

// [outer, rows, inner] of a dense tensor.
struct Extent {
  std::int64_t outer = 1, rows = 1, inner = 1;
};
Extent extent_of(const as_tensor& t, int axis) {
  Extent e;
  for (int i = 0; i < t.rank; ++i) {
    (i < axis ? e.outer : i == axis ? e.rows : e.inner) *= t.shape[i];
  }
  return e;
}

struct Pair {
  std::int64_t a = 0, b = 0;  // rows of the taps
  std::int32_t token_a = 0, token_b = 0;
};

// The matched rows, dense: [outer * pairs, inner].
struct Gathered {
  std::vector<std::uint8_t> bytes;
  as_tensor tensor{};
};
Gathered gather(const as_tensor& t, const Extent& e, std::int64_t inner,
                const std::vector<Pair>& pairs, bool second) {
  const std::int64_t size = as_dtype_size(t.dtype);
  const auto* from = static_cast<const std::uint8_t*>(t.data);
  Gathered out;
  out.bytes.resize(to_size(e.outer * to_count(pairs.size()) * inner * size));
  std::uint8_t* to = out.bytes.data();
  for (std::int64_t o = 0; o < e.outer; ++o) {
    for (const Pair& p : pairs) {
      const std::int64_t row = o * e.rows + (second ? p.b : p.a);
      std::memcpy(to, from + row * e.inner * size, to_size(inner * size));
      to += inner * size;
    }
  }
  out.tensor = make_tensor(out.bytes.data(), t.dtype, {e.outer * to_count(pairs.size()), inner});
  return out;
}

std::int64_t integer(const as_tensor& t, std::int64_t i) {
  return t.dtype == AS_I64 ? static_cast<const std::int64_t*>(t.data)[i]
                           : static_cast<const std::int32_t*>(t.data)[i];
}

// Slots of every row become logical rows, as i64.
void make_logical(Gathered& g, const StepTrace& trace, const SessionInfo& info, const OpTrace& op,
                  const TapCopy& tap, const std::vector<Pair>& pairs, bool second) {
  const std::int64_t rows = g.tensor.shape[0], inner = g.tensor.shape[1];
  const std::int64_t n = to_count(pairs.size());
  std::vector<std::uint8_t> out(to_size(rows * inner) * sizeof(std::int64_t));
  auto* to = reinterpret_cast<std::int64_t*>(out.data());
  for (std::int64_t row = 0; row < rows; ++row) {
    const Pair& p = pairs[to_size(row % n)];
    const std::int32_t request = trace.request_of(second ? p.token_b : p.token_a);
    const SlotSpace space = slot_space(info, op.place, tap.name, row / n);
    for (std::int64_t c = 0; c < inner; ++c) {
      to[row * inner + c] = logical_row(trace, request, space, integer(g.tensor, row * inner + c));
    }
  }
  g.bytes = std::move(out);
  g.tensor = make_tensor(g.bytes.data(), AS_I64, {rows, inner});
}

// Entries -1 behind the end of every row.
void widen(Gathered& g, std::int64_t width) {
  const std::int64_t rows = g.tensor.shape[0], had = g.tensor.shape[1];
  if (had == width) return;
  const auto size = as_dtype_size(g.tensor.dtype);
  std::vector<std::uint8_t> out(to_size(rows * width * size), 0xff);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(out.data() + row * width * size, g.bytes.data() + row * had * size,
                to_size(had * size));
  }
  g.bytes = std::move(out);
  g.tensor = make_tensor(g.bytes.data(), g.tensor.dtype, {rows, width});
}

// How many entries a row of a selection has.
std::int64_t entries_of(const Gathered& g, std::int64_t row) {
  std::int64_t n = 0;
  for (std::int64_t c = 0; c < g.tensor.shape[1]; ++c) {
    n += integer(g.tensor, row * g.tensor.shape[1] + c) == -1 ? 0 : 1;
  }
  return n;
}

template <class T>
void sort_rows(Gathered& g) {
  for (std::int64_t row = 0; row < g.tensor.shape[0]; ++row) {
    T* first = static_cast<T*>(g.tensor.data) + row * g.tensor.shape[1];
    std::sort(first, first + g.tensor.shape[1], std::greater<T>());
  }
}

template <class T, class Number>
void count_differences_as(const Gathered& x, const Gathered& y, const Number& number, TapDiff& out,
                          std::int64_t& worst) {
  const T* const first = static_cast<const T*>(x.tensor.data);
  const T* const second = static_cast<const T*>(y.tensor.data);
  double largest = -1;
  for (std::int64_t i = 0, n = as_tensor_numel(&x.tensor); i < n; ++i) {
    // By its bits: a NaN equals itself, and -0 is not 0.
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
    if (std::memcmp(first + i, second + i, sizeof(T)) == 0) continue;
    ++out.differing;
    const double distance = std::fabs(number(first[i]) - number(second[i]));
    const double rank = std::isnan(distance) ? HUGE_VAL : distance;
    if (rank > largest) {
      largest = rank;
      worst = i;
    }
  }
  out.max_abs = std::max(0.0, largest);
}

// Elements whose bits differ, and the one with the largest distance.
void count_differences(const Gathered& x, const Gathered& y, TapDiff& out, std::int64_t& worst) {
  const auto plain = [](auto v) { return static_cast<double>(v); };
  const auto bf16 = [](std::uint16_t v) {
    return static_cast<double>(std::bit_cast<float>(std::uint32_t{v} << 16));
  };
  switch (x.tensor.dtype) {
    case AS_F64:
      return count_differences_as<double>(x, y, plain, out, worst);
    case AS_F32:
      return count_differences_as<float>(x, y, plain, out, worst);
    case AS_BF16:
      return count_differences_as<std::uint16_t>(x, y, bf16, out, worst);
    case AS_U8:
      return count_differences_as<std::uint8_t>(x, y, plain, out, worst);
    case AS_I32:
      return count_differences_as<std::int32_t>(x, y, plain, out, worst);
    case AS_I64:
      return count_differences_as<std::int64_t>(x, y, plain, out, worst);
    default:
      return;
  }
}

// One side of a selection: [rows, K] entries, and the scores it was made by.
struct Chosen {
  const as_tensor* entries;
  const TapCopy *logits, *lens;
  bool second;
};

as_tensor row_of(const as_tensor& t, std::int64_t row) {
  const std::int64_t bytes = t.shape[1] * as_dtype_size(t.dtype);
  return make_tensor(static_cast<std::uint8_t*>(t.data) + row * bytes, t.dtype, {1, t.shape[1]});
}

// Other entries whose scores are the same within tolerance are a near-tie: each side's selection
// by the scores of the other. Where the scores themselves differ, entries may trade places that
// are twice that difference apart.
void judge_selection(const Chosen& a, const Chosen& b, const std::vector<Pair>& pairs,
                     const Tolerance& tolerance, TapDiff& out) {
  for (const Chosen* side : {&a, &b}) {
    if (side->logits == nullptr || side->lens == nullptr || side->logits->value.rank != 2 ||
        side->logits->value.data == nullptr || side->lens->value.data == nullptr) {
      out.evidence += ", scores not recorded";
      return;
    }
  }
  const auto scores_of = [&](const Chosen& c) {
    const as_tensor& t = c.logits->value;
    return gather(t, extent_of(t, 0), t.shape[1], pairs, c.second);
  };
  const auto lens_of = [&](const Chosen& c) {
    return gather(c.lens->value, extent_of(c.lens->value, 0), 1, pairs, c.second);
  };
  const Gathered scores_a = scores_of(a), scores_b = scores_of(b);
  const Gathered lens_a = lens_of(a), lens_b = lens_of(b);
  bool tie = true;
  double used = 0, margin = 0;
  for (std::int64_t row = 0; row < to_count(pairs.size()); ++row) {
    const auto len = static_cast<std::int32_t>(integer(lens_a.tensor, row));
    tie &= len == static_cast<std::int32_t>(integer(lens_b.tensor, row));
    double scale = 0, apart = 0;
    for (std::int32_t c = 0; tie && c < len; ++c) {
      const double x = element(scores_a.tensor, row, c), y = element(scores_b.tensor, row, c);
      scale = std::max({scale, std::fabs(x), std::fabs(y)});
      apart = std::max(apart, std::fabs(x - y));
    }
    Tolerance allowed = tolerance;
    if (scale > 0) allowed.score_rel += 2 * apart / scale;
    const as_tensor x = row_of(*a.entries, row), y = row_of(*b.entries, row);
    const Comparison by_a = compare_top_k(y, x, row_of(scores_a.tensor, row), &len, allowed);
    const Comparison by_b = compare_top_k(x, y, row_of(scores_b.tensor, row), &len, allowed);
    tie = tie && by_a.within && by_b.within;
    used = std::max({used, by_a.budget_used, by_b.budget_used});
    margin = std::max({margin, by_a.figures.max_abs, by_b.figures.max_abs});
  }
  out.within = out.near_tie = tie;
  out.budget_used = used;
  out.evidence += fmt::format(", margin {:.3g}, {}", margin, tie ? "a near-tie" : "no near-tie");
}

// "head 3, dim 17": an element beside the axis of tokens. outer: over the axes before it, inner:
// over those behind it, or over all axes where no axis has tokens.
std::string coordinates_text(const TapCopy& tap, int axis, std::int64_t outer, std::int64_t inner) {
  const std::vector<std::string> axes = split_axes(tap.axes);
  std::vector<std::string> words;
  for (int i = tap.value.rank - 1; i >= 0; --i) {
    if (i == axis) continue;
    std::int64_t& rest = i < axis ? outer : inner;
    // The first axis behind the tokens', or of all, may be cut to what both have.
    const bool first = i == axis + 1;
    const std::int64_t extent = std::max<std::int64_t>(tap.value.shape[i], 1);
    const std::int64_t at = first ? rest : rest % extent;
    rest /= extent;
    const std::string name = to_size(i) < axes.size() ? axes[to_size(i)] : "";
    words.push_back(fmt::format("{} {}", axis_word(name), at));
  }
  std::ranges::reverse(words);
  return fmt::format("{}", fmt::join(words, ", "));
}

// Whose row a slot is that lies in no block of its own request.
std::string owner_text(const StepTrace& trace, const SlotSpace& space, std::int64_t slot) {
  for (std::size_t r = 0; r < trace.requests.size(); ++r) {
    const std::int64_t row = logical_row(trace, static_cast<std::int32_t>(r), space, slot);
    if (row < 0) continue;
    return fmt::format("row {} of request \"{}\"", row, trace.requests[r].request.name);
  }
  const bool null = space.rows_per_block > 0 && slot / space.rows_per_block == 0;
  return fmt::format("slot {}, {}", slot, null ? "of the null block" : "which no request holds");
}

// A number of a tap; a slot as the row that it stands for.
std::string number_text(const Gathered& g, std::int64_t row, std::int64_t column,
                        const StepTrace& trace, const SlotSpace* slots) {
  const double value = element(g.tensor, row, column);
  if (std::isnan(value)) return "nan";  // without the sign that a compiler may give it
  if (slots == nullptr || value > -2) return fmt::format("{:.6g}", value);
  return owner_text(trace, *slots, -2 - static_cast<std::int64_t>(value));
}

}  // namespace

bool is_selection(as_op_id op, const std::string& tap) {
  return (as_op_role(op) == AS_ROLE_SELECT && tap == "indices") ||
         (lists_selected(op) && (tap == "indices" || tap == "slots")) ||
         (as_op_role(op) == AS_ROLE_ATTENTION && tap == "extra_indices");
}

std::optional<TapDiff> compare_taps(const RowMatch& match, const SessionInfo& info_a,
                                    const SessionInfo& info_b, const OpTrace& op,
                                    const OpTrace& twin, const TapCopy& a, const TapCopy& b,
                                    const Tolerances& tolerances) {
  const int axis = row_axis(a);
  const as_tensor &x = a.value, &y = b.value;
  if (a.axes != b.axes || x.dtype != y.dtype || x.rank != y.rank) return std::nullopt;
  std::vector<Pair> pairs;
  if (axis < 0) {
    // Of the model, not of tokens: as a whole.
    if (!std::equal(x.shape, x.shape + x.rank, y.shape)) return std::nullopt;
    pairs.push_back({});
  }
  for (const auto& [first, second] : match.rows) {
    if (axis < 0) break;
    const Pair p{row_of(*match.a, a, first), row_of(*match.b, b, second), first, second};
    if (p.a >= 0 && p.b >= 0) pairs.push_back(p);
  }
  TapDiff out;
  out.tap = a.name;
  out.output = a.output;
  out.rows = to_count(pairs.size());
  if (pairs.empty()) {  // no token of both was sampled
    out.equal = out.within = true;
    return out;
  }
  const Extent ex = extent_of(x, axis < 0 ? x.rank : axis);
  const Extent ey = extent_of(y, axis < 0 ? y.rank : axis);
  if (ex.outer != ey.outer || (ex.inner != ey.inner && x.rank != axis + 2)) return std::nullopt;
  // Lists are as wide as the batch's longest request needs: beyond the shorter one is nothing. But
  // selections are as wide as the model's top-k.
  const bool selection =
      is_selection(op.place.op, a.name) && (x.dtype == AS_I32 || x.dtype == AS_I64);
  const std::int64_t inner = std::min(ex.inner, ey.inner);
  if (axis < 0 && inner * ex.outer == 0) return std::nullopt;
  Extent fx = ex, fy = ey;
  if (axis < 0) fx = fy = {1, 1, ex.outer * ex.rows * ex.inner};
  const std::int64_t width = axis < 0 ? fx.inner : inner;
  Gathered gx = gather(x, fx, selection ? fx.inner : width, pairs, false);
  Gathered gy = gather(y, fy, selection ? fy.inner : width, pairs, true);
  if (tap_meaning(op.place.op, a.name) == TapMeaning::kSlots) {
    make_logical(gx, *match.a, info_a, op, a, pairs, false);
    make_logical(gy, *match.b, info_b, op, b, pairs, true);
  }
  if (selection) {
    for (Gathered* g : {&gx, &gy}) {
      widen(*g, std::max(fx.inner, fy.inner));
      if (g->tensor.dtype == AS_I64) sort_rows<std::int64_t>(*g);
      if (g->tensor.dtype == AS_I32) sort_rows<std::int32_t>(*g);
    }
  }
  std::int64_t worst = -1;
  count_differences(gx, gy, out, worst);
  out.equal = out.within = out.differing == 0;
  if (out.equal) return out;
  const std::int64_t cells = gx.tensor.shape[1];
  const Pair& at = pairs[to_size(worst / cells % to_count(pairs.size()))];
  if (axis >= 0) {
    const auto& request = info_a.request_names[to_size(match.a->request_of(at.token_a))];
    out.evidence = fmt::format("request \"{}\", token {}", request,
                               match.a->metadata.positions[to_size(at.token_a)]);
  }
  const std::string place =
      coordinates_text(a, axis, worst / cells / to_count(pairs.size()), worst % cells);
  const char* const between = out.evidence.empty() || place.empty() ? "" : ", ";
  const bool slots = tap_meaning(op.place.op, a.name) == TapMeaning::kSlots;
  const auto number = [&](const Gathered& g, const StepTrace& trace, const SessionInfo& info) {
    const SlotSpace space =
        slots ? slot_space(info, op.place, a.name, worst / cells / to_count(pairs.size()))
              : SlotSpace{};
    return number_text(g, worst / cells, worst % cells, trace, slots ? &space : nullptr);
  };
  out.evidence += fmt::format("{}{}: {} and {}, {} of {} elements differ", between, place,
                              number(gx, *match.a, info_a), number(gy, *match.b, info_b),
                              out.differing, gx.tensor.shape[0] * cells);
  if (selection) {
    const std::int64_t in_a = entries_of(gx, worst / cells), in_b = entries_of(gy, worst / cells);
    if (in_a != in_b) {
      out.evidence += fmt::format(", {} entries in the first, {} in the second", in_a, in_b);
    }
  }
  // An input is judged as what it is in most ops: the output of a dense one.
  if (!a.output && x.dtype != AS_BF16 && x.dtype != AS_F32) return out;
  auto tolerance =
      tolerances.find(op.place.op, a.name, op.lane, a.output ? a.rule : std::string("dense"));
  if (!tolerance || tolerance->exact) return out;
  if (tolerance->top_k) {
    const Chosen first{&gx.tensor, op.tap("logits"), op.tap("lens"), false};
    const Chosen second{&gy.tensor, twin.tap("logits"), twin.tap("lens"), true};
    judge_selection(first, second, pairs, *tolerance, out);
    return out;
  }
  const Comparison compared = compare(gx.tensor, gy.tensor, {}, *tolerance, match.threads);
  out.budget_used = compared.budget_used;
  out.within = compared.within;
  out.evidence += fmt::format(", {:.3g} times the tolerance", compared.budget_used);
  return out;
}

namespace {

// "e4m3 of element 40", "f32 scale of elements from 64 on": what a byte of a row is of.
std::string field_text(const RowsCopy& rows, std::int64_t byte) {
  const as_row_layout l = as_row_layout_of(rows.record, rows.width, rows.heads, 1);
  if (l.format == nullptr || byte >= l.row) return "no known field";
  const as_row_field f = as_field_at(&l, byte);
  if (f.kind == AS_FIELD_PADDING) return "padding";
  const std::int64_t first = f.head * l.width + f.first;
  if (f.kind == AS_FIELD_ELEMENT)
    return fmt::format("{} of element {}", as_code_name(f.code), first);
  return fmt::format("{} {} of elements from {} on", as_code_name(f.code),
                     f.kind == AS_FIELD_SCALE ? "scale" : "zero point", first);
}

std::string format_text(const RowsCopy& rows) {
  const as_row_format* format = as_row_format_of(rows.record);
  return format != nullptr ? format->name : "no known format";
}

// "row 9", by the block tables of the step: whose row a slot is, where it is not the writer's own.
std::string written_text(const StepTrace& trace, const RowsCopy& rows, std::int64_t index) {
  const SlotSpace space{rows.group, rows.rows_per_block};
  const std::int64_t slot = rows.slots[to_size(index)];
  const std::int32_t writer = trace.request_of(rows.tokens[to_size(index)]);
  const std::int64_t own = logical_row(trace, writer, space, slot);
  return own >= 0 ? fmt::format("row {}", own) : owner_text(trace, space, slot);
}

}  // namespace

TapDiff compare_rows(const RowMatch& match, const SessionInfo& info_a, const RowsCopy& a,
                     const RowsCopy& b) {
  TapDiff out;
  out.tap = a.name;
  out.output = true;
  out.equal = a.row_bytes == b.row_bytes;
  for (const auto& [first, second] : match.rows) {
    const auto x = std::ranges::lower_bound(a.tokens, first);
    const auto y = std::ranges::lower_bound(b.tokens, second);
    const bool in_a = x != a.tokens.end() && *x == first;
    const bool in_b = y != b.tokens.end() && *y == second;
    if (!in_a && !in_b) continue;
    ++out.rows;
    const auto of_row = [&](const std::string& what) {
      if (!out.evidence.empty()) return;  // the first that differs is named
      const std::string at = in_a ? written_text(*match.a, a, x - a.tokens.begin()) : "";
      const std::string then = in_b ? written_text(*match.b, b, y - b.tokens.begin()) : "";
      out.evidence = fmt::format("request \"{}\", token {}, {}{}{}",
                                 info_a.request_names[to_size(match.a->request_of(first))],
                                 match.a->metadata.positions[to_size(first)], in_a ? at : then,
                                 in_a && in_b && at != then ? ", in the second " + then : "", what);
    };
    if (in_a != in_b || a.row_bytes != b.row_bytes) {
      out.equal = false;
      of_row(
          in_a != in_b
              ? fmt::format(": written in the {} alone", in_a ? "first" : "second")
              : fmt::format(": wrote a row of {}, {} bytes, in the first and of {}, {} bytes, in "
                            "the second",
                            format_text(a), a.row_bytes, format_text(b), b.row_bytes));
      continue;
    }
    const std::uint8_t* p = a.bytes.data() + (x - a.tokens.begin()) * a.row_bytes;
    const std::uint8_t* q = b.bytes.data() + (y - b.tokens.begin()) * b.row_bytes;
    for (std::int64_t i = 0; i < a.row_bytes; ++i) {
      if (p[i] == q[i]) continue;
      if (out.differing++ == 0) {
        const std::string of = field_text(a, i), then = field_text(b, i);
        of_row(fmt::format(", byte {} of its row ({}{}): 0x{:02x} and 0x{:02x}", i, of,
                           of == then ? "" : "; in the second " + then, p[i], q[i]));
      }
      out.equal = false;
    }
    if (as_row_is_values(a.record) == 0) continue;
    for (std::int64_t i = 0; i + 4 <= a.row_bytes; i += 4) {
      float u = 0, v = 0;
      std::memcpy(&u, p + i, 4);
      std::memcpy(&v, q + i, 4);
      out.max_abs = std::max(out.max_abs, std::fabs(static_cast<double>(u) - v));
    }
  }
  out.within = out.equal;
  return out;
}

}  // namespace attnscope
