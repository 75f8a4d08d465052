#include "engine/capture/recorded_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/io/byte_stream.h"
#include "engine/model/numbers.h"
#include "engine/trace/plain_number.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

const OpEntry* entry_of(const TraceEntry& trace, int layer, as_op_id op) {
  const auto it = std::ranges::find_if(
      trace.ops, [&](const OpEntry& o) { return o.layer == layer && o.op == op; });
  return it != trace.ops.end() ? &*it : nullptr;
}

// Statistics once more, in the order of the elements.
std::string other_statistic(const TapStats& stats, const as_tensor& t) {
  std::int64_t nans = 0, infinities = 0, finite = 0;
  double low = INFINITY, high = -INFINITY, sum = 0, magnitudes = 0, squares = 0;
  const auto* data = static_cast<const std::uint8_t*>(t.data);
  const std::int64_t elements = as_tensor_numel(&t), size = as_dtype_size(t.dtype);
  for (std::int64_t i = 0; i < elements; ++i) {
    const double v = plain_number(data + i * size, t.dtype);
    if (!std::isfinite(v)) {
      ++(std::isnan(v) ? nans : infinities);
      continue;
    }
    ++finite;
    low = std::min(low, v);
    high = std::max(high, v);
    sum += v;
    magnitudes += std::fabs(v);
    squares += v * v;
  }
  // Sums in another order.
  const auto near = [](double a, double b, double scale) {
    return a == b || std::fabs(a - b) <= 1e-9 * scale;
  };
  if (stats.elements != elements) return "number of elements";
  if (stats.nans != nans || stats.infinities != infinities) return "number of NaN or infinities";
  if (finite == 0) return {};
  if (stats.min != low || stats.max != high) return "smallest or largest value";
  const auto n = static_cast<double>(finite);
  if (!near(stats.mean, sum / n, magnitudes / n)) return "mean";
  return near(stats.l2, std::sqrt(squares), std::sqrt(squares)) ? "" : "norm";
}

std::string other_sum(const TapStats& stats, const void* data, std::int64_t bytes) {
  const auto sum = hex64(checksum(static_cast<const std::uint8_t*>(data), to_size(bytes)));
  if (sum == stats.checksum) return {};
  return fmt::format("has checksum {}, recorded was {}", sum, stats.checksum);
}

std::string check_op(const OpEntry& entry, const OpTrace& op) {
  for (const TapEntry& tap : entry.taps) {
    const TapCopy* copy = op.tap(tap.name);
    if (tap.weight || !tap.stats || copy == nullptr || copy->value.data == nullptr) continue;
    const as_tensor& value = copy->value;
    const std::int64_t bytes = as_tensor_numel(&value) * as_dtype_size(value.dtype);
    if (std::string other = other_sum(*tap.stats, value.data, bytes); !other.empty()) {
      return fmt::format("tap {} {}", tap.name, other);
    }
    if (std::string other = other_statistic(*tap.stats, value); !other.empty()) {
      return fmt::format("a statistic of tap {} is not that of its values: {}", tap.name, other);
    }
  }
  for (const RowsEntry& rows : entry.rows) {
    const RowsCopy* copy = op.cache_rows(rows.name);
    if (!rows.stats || copy == nullptr) continue;
    const std::string other =
        other_sum(*rows.stats, copy->bytes.data(), to_count(copy->bytes.size()));
    if (!other.empty()) return fmt::format("{}: its rows: {}", rows.name, other);
  }
  return {};
}

}  // namespace

std::string check_recorded(const TraceEntry& entry, const StepTrace& trace) {
  for (const OpEntry& op : entry.ops) {
    const OpTrace* copy = trace.find(op.layer, op.op);
    if (copy == nullptr) continue;
    const std::string wrong = check_op(op, *copy);
    if (wrong.empty()) continue;
    return fmt::format("step {}, layer {}, {}: {}", entry.step, op.layer, as_op_find(op.op)->name,
                       wrong);
  }
  return {};
}

RecordedSums::RecordedSums(const RowMatch& match, const TraceEntry& a, const TraceEntry& b)
    : a_(a), b_(b) {
  const auto &x = match.a->kept, &y = match.b->kept;
  same_rows_ = match.rows.size() == x.size() && x.size() == y.size() &&
               match.a->metadata.sample_rows == match.b->metadata.sample_rows;
  for (std::size_t i = 0; same_rows_ && i < x.size(); ++i) {
    same_rows_ = match.rows[i] == std::pair(x[i], y[i]) && x[i] == y[i];
  }
}

std::optional<bool> RecordedSums::same(const Place& first, const Place& second,
                                       const std::string& tap) const {
  if (!same_rows_) return std::nullopt;
  const OpEntry *x = entry_of(a_, first.layer, first.op),
                *y = entry_of(b_, second.layer, second.op);
  if (x == nullptr || y == nullptr) return std::nullopt;
  const auto p = std::ranges::find(x->taps, tap, &TapEntry::name);
  const auto q = std::ranges::find(y->taps, tap, &TapEntry::name);
  if (p != x->taps.end() && q != y->taps.end()) {
    const bool laid_out_alike =
        p->value.dtype == q->value.dtype && p->value.shape == q->value.shape;
    if (!laid_out_alike || !p->stats || !q->stats) return std::nullopt;
    return p->stats->checksum == q->stats->checksum;
  }
  const auto r = std::ranges::find(x->rows, tap, &RowsEntry::name);
  const auto s = std::ranges::find(y->rows, tap, &RowsEntry::name);
  if (r == x->rows.end() || s == y->rows.end() || !r->stats || !s->stats) return std::nullopt;
  return r->stats->checksum == s->stats->checksum;
}

}  // namespace attnscope
