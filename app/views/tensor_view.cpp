#include "app/views/tensor_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "app/text/format.h"
#include "app/views/op_order.h"
#include "engine/io/plural.h"
#include "engine/trace/axis_words.h"
#include "kernels/cpu/codec.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

bool after_layers(const OpTrace& op) { return as_op_find(op.place.op)->phase == AS_PHASE_AFTER; }

std::int64_t offset_of(const as_tensor& t, const TapIndex& index) {
  std::int64_t offset = 0;
  for (int axis = 0; axis < t.rank; ++axis) offset += index[axis] * t.stride[axis];
  return offset;
}

}  // namespace

std::string axis_name(const std::string& letters, std::span<const std::string> beside) {
  // Of values of heads, and heads that share keys; V and G mean something else elsewhere.
  const bool of_heads = std::ranges::count(beside, "H") > 0 || std::ranges::count(beside, "T") > 0;
  if (letters == "V" && of_heads) return "value dim";
  if (letters == "G" && beside.size() == 3 && beside[0] == "T") return "KV head";
  static const std::map<std::string, std::string> kNames = {{"T", "token"},
                                                            {"H", "head"},
                                                            {"D", "dim"},
                                                            {"J", "index head"},
                                                            {"d", "dim"},
                                                            {"K", "list place"},
                                                            {"W", "window slot"},
                                                            {"A", "entry"},
                                                            {"N", "entry"},
                                                            {"V", "token id"},
                                                            {"C", "table entry"},
                                                            {"G", "group"},
                                                            {"R", "request"},
                                                            {"S", "SWA group"},
                                                            {"F", "place"},
                                                            {"2", "field"},
                                                            {"4", "scale byte"},
                                                            {"in", "input"},
                                                            {"out", "output"},
                                                            {"bytes", "byte"},
                                                            {"groups", "out group"},
                                                            {"ratio", "position"},
                                                            {"chunked", "chunk group"},
                                                            {"L", "sequence"},
                                                            {"P", "block"},
                                                            {"Y", "layer type"},
                                                            {"X", "split"},
                                                            {"5", "field"}};
  const auto found = kNames.find(letters);
  return found == kNames.end() ? letters : found->second;
}

TapIndex::TapIndex(const std::vector<std::int64_t>& index)
    : rank(static_cast<int>(std::min<std::size_t>(index.size(), AS_MAX_RANK))) {
  std::copy_n(index.begin(), rank, at.begin());
}

std::vector<TapAxis> axes_of(const StepTrace& step, const OpTrace& op, const TapCopy& tap) {
  std::vector<TapAxis> axes;
  std::vector<std::string> letters = split_axes(tap.axes);
  letters.resize(static_cast<std::size_t>(std::max(tap.value.rank, 0)));
  for (int i = 0; i < tap.value.rank; ++i) {
    const std::string& letter = letters[static_cast<std::size_t>(i)];
    TapAxis axis{letter, axis_name(letter, letters), tap.value.shape[i], AxisLink::kNone};
    const bool sampled = after_layers(op) && i == 0 && (letter == "T" || letter == "N");
    if (sampled) {
      axis.name = "sampled row";
      axis.link = AxisLink::kToken;
    } else if (letter == "T" && axis.size == static_cast<std::int64_t>(step.kept.size())) {
      axis.link = AxisLink::kToken;
    } else if (letter == "H") {
      axis.link = AxisLink::kHead;
    } else if (letter == "D" || letter == "d") {
      axis.link = AxisLink::kDim;
    }
    axes.push_back(std::move(axis));
  }
  return axes;
}

std::int64_t token_row_at(const StepTrace& step, const OpTrace& op, std::int64_t index) {
  const auto i = static_cast<std::size_t>(index);
  if (after_layers(op)) {
    const auto& rows = step.metadata.sample_rows;
    return index >= 0 && i < rows.size() ? rows[i] : -1;
  }
  return index >= 0 && i < step.kept.size() ? step.kept[i] : -1;
}

as_tensor one_row(const as_tensor& tensor, std::int64_t row) {
  as_tensor out = tensor;
  out.data = static_cast<std::uint8_t*>(tensor.data) +
             row * tensor.stride[0] * as_dtype_size(tensor.dtype);
  out.shape[0] = 1;
  return out;
}

std::int64_t index_of_token_row(const StepTrace& step, const OpTrace& op, std::int64_t token_row) {
  if (!after_layers(op)) return step.kept_index(token_row);
  const auto& rows = step.metadata.sample_rows;
  const auto found = std::find(rows.begin(), rows.end(), token_row);
  return found == rows.end() ? -1 : found - rows.begin();
}

std::string token_label(const StepTrace& step, std::int64_t token_row) {
  const auto i = static_cast<std::size_t>(token_row);
  if (token_row < 0 || i >= step.metadata.positions.size()) return "?";
  std::string position = std::to_string(step.metadata.positions[i]);
  if (step.metadata.num_live() < 2) return position;
  return fmt::format("{}:{}", step.request_of(token_row), position);
}

std::string kept_rows(const StepTrace& step) {
  const std::int64_t total = step.metadata.num_tokens_in_step();
  if (total == 0 || static_cast<std::int64_t>(step.kept.size()) >= total) return {};
  std::string text = "rows ";
  int ranges = 0;
  for (std::size_t i = 0; i < step.kept.size();) {
    std::size_t end = i + 1;
    while (end < step.kept.size() && step.kept[end] == step.kept[end - 1] + 1) ++end;
    if (++ranges > 4) {
      text += ", ..";
      break;
    }
    if (ranges > 1) text += ", ";
    text += end - i == 1 ? fmt::format("{}", step.kept[i])
                         : fmt::format("{}-{}", step.kept[i], step.kept[end - 1]);
    i = end;
  }
  if (step.kept.empty()) return fmt::format("none of {} rows kept", total);
  return fmt::format("{} of {} kept", text, total);
}

double element_at(const as_tensor& t, const TapIndex& index) {
  const std::int64_t offset = offset_of(t, index);
  switch (t.dtype) {
    case AS_F64:
      return static_cast<const double*>(t.data)[offset];
    case AS_F32:
      return static_cast<const float*>(t.data)[offset];
    case AS_BF16:
      return cpu::bf16_to_float(static_cast<const std::uint16_t*>(t.data)[offset]);
    case AS_U8:
      return static_cast<const std::uint8_t*>(t.data)[offset];
    case AS_I32:
      return static_cast<const std::int32_t*>(t.data)[offset];
    case AS_I64:
      return static_cast<double>(static_cast<const std::int64_t*>(t.data)[offset]);
    default:
      return 0;
  }
}

bool is_float_tensor(const as_tensor& t) {
  return t.dtype == AS_F64 || t.dtype == AS_F32 || t.dtype == AS_BF16;
}

bool same_when_rounded(double value, double reference, std::int32_t dtype) {
  if (value == reference || (std::isnan(value) && std::isnan(reference))) return true;
  if (!std::isfinite(reference)) return false;
  if (dtype == AS_BF16) return value == static_cast<double>(cpu::round_bf16(reference));
  return dtype == AS_F32 && value == static_cast<double>(static_cast<float>(reference));
}

const char* TapGaps::why(const TapCopy& tap, const TapIndex& index) const {
  if (slots != nullptr) {
    TapIndex row;
    row.rank = 1;
    row[0] = index[0];
    if (index[0] >= slots->value.shape[0] || element_at(slots->value, row) < 0) {
      return "no row is written for this token";
    }
  }
  if (lens != nullptr) {
    TapIndex row;
    row.rank = 1;
    row[0] = index[0];
    const int last = tap.value.rank - 1;
    if (index[0] >= lens->value.shape[0] ||
        static_cast<double>(index[last]) >= element_at(lens->value, row)) {
      return "beyond what this token sees";
    }
  }
  if (!minus_one && !null_block) return nullptr;
  const double value = element_at(tap.value, index);
  if (minus_one && value == -1) return "-1: none";
  if (null_block && value == static_cast<double>(AS_NULL_BLOCK)) return "0: null block";
  return nullptr;
}

TapGaps gaps_of(const OpTrace& op, const TapCopy& tap) {
  TapGaps gaps;
  const as_op_info& info = *as_op_find(op.place.op);
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& entry = info.taps[i];
    if (tap.name != entry.name || entry.mask == AS_MASK_ALL) continue;
    for (std::uint32_t k = 0; k < info.num_taps; ++k) {
      if (info.taps[k].kind != AS_TAP_TENSOR || info.taps[k].offset != entry.mask_offset) continue;
      const TapCopy* mask = op.tap(info.taps[k].name);
      if (mask == nullptr || mask->value.rank != 1 || tap.value.rank < 1) continue;
      (entry.mask == AS_MASK_SLOTS ? gaps.slots : gaps.lens) = mask;
    }
  }
  const bool integers = tap.value.dtype == AS_I32 || tap.value.dtype == AS_I64;
  gaps.null_block =
      integers && tap.axes.size() >= 2 && tap.axes.substr(tap.axes.size() - 2) == ",C";
  gaps.minus_one = integers && (tap.name.find("indices") != std::string::npos ||
                                tap.name.find("slots") != std::string::npos);
  return gaps;
}

std::int64_t TapSlice::rows() const {
  if (row_axis >= 0) return shape[row_axis];
  const std::int64_t n = shape.rank == 0 ? 0 : shape[column_axis];
  return (n + kWrap - 1) / kWrap;
}

std::int64_t TapSlice::columns() const {
  if (shape.rank == 0) return 0;
  const std::int64_t n = shape[column_axis];
  return row_axis >= 0 ? n : std::min(n, kWrap);
}

TapIndex TapSlice::index(std::int64_t row, std::int64_t column) const {
  TapIndex out = fixed;
  out.rank = shape.rank;
  if (row_axis >= 0) {
    out[row_axis] = row;
    out[column_axis] = column;
    return out;
  }
  const std::int64_t place = row * kWrap + column;
  if (place >= shape[column_axis]) return {};
  out[column_axis] = place;
  return out;
}

CellAt TapSlice::cell(const TapIndex& element) const {
  if (element.rank != shape.rank || shape.rank == 0) return {};
  if (row_axis >= 0) return {element[row_axis], element[column_axis]};
  const std::int64_t place = element[column_axis];
  if (place < 0) return {};
  return {place / kWrap, place % kWrap};
}

TapSlice default_slice(const TapCopy& tap) {
  TapSlice slice;
  slice.shape.rank = slice.fixed.rank = tap.value.rank;
  for (int i = 0; i < tap.value.rank; ++i) slice.shape[i] = tap.value.shape[i];
  slice.column_axis = std::max(0, tap.value.rank - 1);
  slice.row_axis = tap.value.rank >= 2 ? tap.value.rank - 2 : -1;
  return slice;
}

std::vector<std::int64_t> rows_before(const StepTrace& step, const StepTrace& before) {
  // Last token row of every request, in both steps.
  const auto ends = [](const StepTrace& trace) {
    std::map<std::int32_t, std::int64_t> last;
    for (std::int64_t t = 0; t < trace.metadata.num_tokens_in_step(); ++t) {
      last[trace.request_of(t)] = t;
    }
    return last;
  };
  const auto now = ends(step), then = ends(before);
  std::vector<std::int64_t> rows;
  for (const std::int32_t row : step.kept) {
    const std::int32_t request = step.request_of(row);
    const auto last = then.find(request);
    std::int64_t index = -1;
    if (last != then.end()) {
      const std::int64_t old = last->second - (now.at(request) - row);
      if (old >= 0 && before.request_of(old) == request) index = before.kept_index(old);
    }
    rows.push_back(index);
  }
  return rows;
}

std::vector<std::int64_t> sampled_rows_before(const StepTrace& step, const StepTrace& before) {
  const auto requests = [](const StepTrace& trace) {
    std::vector<std::int32_t> ids;
    ids.reserve(trace.metadata.sample_rows.size());
    for (const std::int64_t row : trace.metadata.sample_rows) ids.push_back(trace.request_of(row));
    return ids;
  };
  const std::vector<std::int32_t> then = requests(before);
  std::vector<std::int64_t> rows;
  for (const std::int32_t id : requests(step)) {
    const auto found = std::find(then.begin(), then.end(), id);
    rows.push_back(found == then.end() ? -1 : found - then.begin());
  }
  return rows;
}

double TapReader::value(const TapIndex& index) const {
  switch (mode) {
    case TensorMode::kValue:
      return element_at(tap->value, index);
    case TensorMode::kReference:
      return element_at(tap->reference, index);
    case TensorMode::kDifference: {
      const double a = element_at(tap->value, index), b = element_at(tap->reference, index);
      if (a == b || (beyond_rounding && same_when_rounded(a, b, tap->value.dtype))) return 0;
      return a - b;
    }
    case TensorMode::kBefore: {
      TapIndex then = index;
      if (token_axis >= 0) then[token_axis] = before[static_cast<std::size_t>(index[token_axis])];
      return element_at(tap_before->value, then);
    }
  }
  return 0;
}

bool TapReader::absent(const TapIndex& index) const {
  if (index.rank == 0) return true;
  if (mode != TensorMode::kBefore) return gaps.any() && gaps.why(*tap, index) != nullptr;
  for (int axis = 0; axis < index.rank; ++axis) {
    if (axis == token_axis) {
      const auto row = static_cast<std::size_t>(index[axis]);
      if (row >= before.size() || before[row] < 0) return true;
    } else if (index[axis] >= tap_before->value.shape[axis]) {
      return true;
    }
  }
  TapIndex then = index;
  if (token_axis >= 0) then[token_axis] = before[static_cast<std::size_t>(index[token_axis])];
  return gaps_before.any() && gaps_before.why(*tap_before, then) != nullptr;
}

std::string why_not(const TapReader& reader, const StepTrace* before, TensorMode mode) {
  if (mode == TensorMode::kValue) return {};
  if (mode != TensorMode::kBefore) {
    if (present(reader.tap->reference)) return {};
    return reader.tap->output ? "No reference ran for this tap: choose a reference in the scenario."
                              : "This is an input: it was compared where it was made, as the "
                                "output of another op.";
  }
  if (reader.token_axis < 0)
    return "This tap has no token axis: nothing to follow from step to step.";
  if (before == nullptr)
    return "The step before is not kept; go back one step to compute it again.";
  if (reader.tap_before == nullptr) return "This op did not run in the step before.";
  if (std::all_of(reader.before.begin(), reader.before.end(), [](auto row) { return row < 0; })) {
    return "The request had no row in the step before.";
  }
  return {};
}

void TapScan::start(std::shared_ptr<const OpTrace> op, const TapCopy* tap) {
  *this = {};
  op_ = std::move(op);
  tap_ = tap;
  gaps_ = gaps_of(*op_, *tap_);
  index_.rank = tap->value.rank;
  done_ = as_tensor_numel(&tap->value) == 0;
}

double TapScan::progress() const {
  if (done_ || tap_ == nullptr) return 1;
  return static_cast<double>(elements) / static_cast<double>(as_tensor_numel(&tap_->value));
}

bool TapScan::advance(ScanClock::time_point deadline) {
  if (done_ || tap_ == nullptr) return true;
  const bool compared = attnscope::present(tap_->reference);
  const bool integers = !is_float_tensor(tap_->value);
  while (!done_) {
    ++elements;
    const char* why = gaps_.any() ? gaps_.why(*tap_, index_) : nullptr;
    const double value = element_at(tap_->value, index_);
    if (why != nullptr) {
      ++(gaps_.null_block && value == 0 ? null_blocks : none);
    } else if (std::isnan(value)) {
      ++nan;
    } else if (std::isinf(value)) {
      ++inf;
    } else {
      min = present == 0 ? value : std::min(min, value);
      max = present == 0 ? value : std::max(max, value);
      ++present;
    }
    // A list entry of -1 differs from one that names an entry, so integers count everywhere.
    if (compared && (why == nullptr || (integers && gaps_.slots == nullptr))) {
      const double reference = element_at(tap_->reference, index_);
      if (!same_when_rounded(value, reference, tap_->value.dtype)) {
        ++differing;
        const double difference = std::fabs(value - reference);
        if (largest_at.rank == 0 || difference > largest || std::isnan(difference)) {
          largest = difference;
          largest_at = index_;
        }
      }
    }
    int axis = index_.rank - 1;
    while (axis >= 0 && ++index_[axis] == tap_->value.shape[axis]) index_[axis--] = 0;
    done_ = axis < 0;
    if (elements % 4096 == 0 && ScanClock::now() >= deadline) break;
  }
  return done_;
}

std::string element_text(const StepTrace& step, const OpTrace& op, const TapCopy& tap,
                         const TapIndex& index) {
  std::string text;
  const std::vector<TapAxis> axes = axes_of(step, op, tap);
  for (int i = 0; i < std::min<int>(index.rank, static_cast<int>(axes.size())); ++i) {
    const TapAxis& axis = axes[static_cast<std::size_t>(i)];
    if (i > 0) text += ", ";
    if (axis.link == AxisLink::kToken) {
      text += "token " + token_label(step, token_row_at(step, op, index[i]));
    } else {
      text += fmt::format("{} {}", axis.name, index[i]);
    }
  }
  return text;
}

std::string shape_text(const StepTrace& step, const OpTrace& op, const TapCopy& tap) {
  std::string text = "[";
  for (const TapAxis& axis : axes_of(step, op, tap)) {
    if (text.size() > 1) text += ", ";
    const bool number = !axis.letters.empty() && axis.letters[0] >= '0' && axis.letters[0] <= '9' &&
                        axis.letters == std::to_string(axis.size);
    text += number ? axis.letters : fmt::format("{} {}", axis.letters, axis.size);
  }
  return text + "]";
}

std::string kv_head_text(const SessionInfo& info, const OpTrace& op, const TapCopy& tap, int head) {
  const int layer = layer_index(info, op.place.layer);
  const CacheSpec* keys = layer < 0 ? nullptr : info.layout.find(layer, {AS_CACHE_K, 0});
  const as_op_info& known = *as_op_find(op.place.op);
  const std::span taps(known.taps, known.num_taps);
  const auto at =
      std::ranges::find_if(taps, [&](const as_tap_info& t) { return tap.name == t.name; });
  if (keys == nullptr || at == taps.end()) return {};
  const std::string axes = fmt::format(",{},", at->axes);
  const int kv_heads = keys->num_kv_heads, each = info.config.heads / kv_heads;
  if (axes.find(",H,") != std::string::npos) {
    if (head >= 0 && head < info.config.heads) {
      return fmt::format("; head {} reads KV head {} of {}", head, head / each, kv_heads);
    }
    return fmt::format("; {} on each of {}", each == 1 ? "one head" : fmt::format("{} heads", each),
                       counted(kv_heads, "KV head", "KV heads"));
  }
  if (axes.find(",G,") == std::string::npos) return {};
  return fmt::format("; each KV head serves {}",
                     each == 1 ? "one head" : fmt::format("{} heads", each));
}

std::string tensor_sentence(const StepTrace& step, const OpTrace& op, const TapCopy& tap,
                            const TapScan& scan, const TapIndex& worst) {
  std::string text = fmt::format("{} {} {}: ", tap.name, shape_text(step, op, tap),
                                 as_dtype_name(tap.value.dtype));
  if (scan.elements == 0) {
    text += "no elements";
  } else if (scan.present == 0) {
    text += scan.nan + scan.inf > 0 ? "no finite value" : "no element holds a value";
  } else if (is_float_tensor(tap.value)) {
    text += scan.min == scan.max
                ? fmt::format("all values {}", format_number(scan.min))
                : fmt::format("values {} to {}", format_number(scan.min), format_number(scan.max));
  } else {
    const auto whole = [](double v) { return format_count(static_cast<std::int64_t>(v)); };
    const std::string values = plural(scan.present, "value", "values");
    text += scan.min == scan.max
                ? fmt::format("{}, {}{}", values, agree(scan.present, "", "all "), whole(scan.min))
                : fmt::format("{} from {} to {}", values, whole(scan.min), whole(scan.max));
  }
  if (is_float_tensor(tap.value) && scan.present + scan.nan + scan.inf > 0) {
    if (scan.nan + scan.inf == 0) {
      text += ", no NaN";
    } else {
      if (scan.nan > 0) text += fmt::format(", {} NaN", format_count(scan.nan));
      if (scan.inf > 0) text += fmt::format(", {} infinite", format_count(scan.inf));
    }
  }
  if (scan.null_blocks > 0 && scan.null_blocks < scan.elements)
    text += fmt::format(", {} null", format_count(scan.null_blocks));
  if (scan.none > 0 && scan.none < scan.elements) {
    text += fmt::format(", {} none", plural(scan.none, "is", "are"));
  }
  if (!scan.done()) return text + fmt::format(" ({} read)", format_share(scan.progress()));
  const TapResult* result = op.result(tap.name);
  if (!tap.output) {
    text += "; an input";
  } else if (!present(tap.reference)) {
    text += "; not compared";
  } else if (scan.differing == 0) {
    text += scan.none + scan.null_blocks == scan.elements ? "; so says ref.sim"
                                                          : "; every element equals ref.sim";
  } else {
    const bool wrong = result != nullptr && result->verdict == Verdict::kWrong;
    text += fmt::format("; {} of {} elements {} ref.sim{}", format_count(scan.differing),
                        format_count(scan.elements), wrong ? "differ wrongly from" : "differ from",
                        wrong || result == nullptr                  ? ""
                        : result->verdict == Verdict::kNearTie      ? " in near-ties"
                        : result->verdict == Verdict::kQuantisation ? " within the format's error"
                                                                    : " by rounding");
    if (worst.rank > 0) {
      // Ids and counts are no more or less wrong by how far they are apart.
      const double by = std::fabs(element_at(tap.value, worst) - element_at(tap.reference, worst));
      text += fmt::format(", {} at {}",
                          is_float_tensor(tap.value) ? "the worst by " + format_error(by) : "one",
                          element_text(step, op, tap, worst));
    } else if (scan.largest_at.rank > 0) {
      text += fmt::format(", largest difference {} at {}", format_error(scan.largest),
                          element_text(step, op, tap, scan.largest_at));
    }
  }
  const std::string kept = kept_rows(step);
  const bool has_rows = tap.axes.substr(0, 1) == "T" || tap.axes.find(",T") != std::string::npos;
  if (!kept.empty() && has_rows) text += "; " + kept;
  return text + ".";
}

std::string slice_csv(std::int64_t rows, std::int64_t columns, const CellValue& value,
                      const CellAbsent& absent,
                      const std::function<std::string(std::int64_t)>& row_name,
                      const std::function<std::string(std::int64_t)>& column_name,
                      std::int64_t limit) {
  const std::int64_t shown =
      columns > 0 ? std::min(rows, std::max<std::int64_t>(1, limit / columns)) : 0;
  std::string csv;
  for (std::int64_t c = 0; c < columns; ++c) {
    csv += ',';
    csv += column_name(c);
  }
  csv += "\n";
  for (std::int64_t r = 0; r < shown; ++r) {
    csv += row_name(r);
    for (std::int64_t c = 0; c < columns; ++c) {
      csv += ",";
      if (!absent || !absent(r, c)) csv += format_exact(value(r, c));
    }
    csv += "\n";
  }
  return csv;
}

}  // namespace attnscope
