#include "app/views/row_error_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "app/text/format.h"
#include "app/views/bytes_view.h"
#include "engine/model/numbers.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

struct Squares {
  double off = 0, all = 0;
  double error() const {
    if (off == 0) return 0;  // 0 of 0 is right
    const double share = std::sqrt(off / all);
    return std::isfinite(share) ? share : std::numeric_limits<double>::quiet_NaN();
  }
};

// Rows whose numbers before they were stored are not kept are left out.
CacheErrors errors_of(const StepTrace& step, const OpTrace& op, const RowsCopy& rows) {
  CacheErrors out;
  out.name = rows.name;
  out.format = as_row_format_of(rows.record)->name;
  out.heads = rows.heads;
  const std::vector<float> beside = scales_beside_cache(step, op.place.layer, rows.name);
  const std::int64_t size = rows.width / rows.heads;
  std::vector<Squares> heads(to_size(rows.heads));
  for (std::size_t i = 0; i < rows.tokens.size(); ++i) {
    const std::vector<double> before =
        values_before(step, op, rows, to_count(i), ValuesOf::kEngine);
    if (before.empty()) continue;
    const std::span<const std::uint8_t> bytes(rows.bytes.data() + to_count(i) * rows.row_bytes,
                                              to_size(rows.row_bytes));
    const RecordBytes row{rows.record, rows.width, bytes, rows.heads, beside};
    out.rows.push_back(rows.tokens[i]);
    for (std::int64_t h = 0; h < rows.heads; ++h) {
      Squares own;
      for (std::int64_t d = h * size; d < (h + 1) * size; ++d) {
        const double x = before[to_size(d)], off = decode_element(row, d).value - x;
        own.off += off * off;
        own.all += x * x;
      }
      const double error = own.error();
      out.errors.push_back(error);
      if (std::isnan(error)) {
        ++out.not_numbers;
        heads[to_size(h)].off = std::numeric_limits<double>::quiet_NaN();
        continue;
      }
      heads[to_size(h)].off += own.off;
      heads[to_size(h)].all += own.all;
      if (error > out.largest || out.worst_row < 0) {
        out.largest = error;
        out.worst_row = to_count(out.rows.size()) - 1;
        out.worst_head = h;
      }
    }
  }
  for (const Squares& head : heads) out.of_heads.push_back(head.error());
  return out;
}

std::string words_of(const CacheErrors& cache, const StepTrace& step) {
  std::string text = fmt::format("{} ({}): ", cache.name, cache.format);
  if (cache.worst_row < 0) return text + "no numbers";
  if (cache.largest == 0) return text + "nothing is lost";
  const auto row = to_size(cache.rows[to_size(cache.worst_row)]);
  text += fmt::format("{:.3g} of a head's length at most, head {} of the token at position {}",
                      cache.largest, cache.worst_head, format_count(step.metadata.positions[row]));
  if (cache.not_numbers > 0) {
    text += fmt::format("; {} NaN, infinities or no bound",
                        plural(cache.not_numbers, "head has", "heads have"));
  }
  return text;
}

}  // namespace

RowErrorView row_error_view(const SessionInfo& info, const StepTrace& step, int layer) {
  RowErrorView view;
  view.layer = layer;
  if (std::ranges::count(info.config.layers, layer) == 0) {
    view.why_empty = "Rows are stored in layers; the cursor is outside of them.";
    return view;
  }
  bool wrote = false, empty = true;
  for (const std::shared_ptr<const OpTrace>& op : step.ops) {
    if (op->place.layer != layer || as_op_role(op->place.op) != AS_ROLE_CACHE_WRITE) continue;
    for (const RowsCopy& rows : op->rows) {
      wrote = true;
      empty &= rows.tokens.empty();
      if (rows.heads < 1 || as_row_format_of(rows.record) == nullptr) continue;
      CacheErrors cache = errors_of(step, *op, rows);
      if (!cache.rows.empty()) view.caches.push_back(std::move(cache));
    }
  }
  if (view.caches.empty()) {
    const auto at = static_cast<std::size_t>(layer);
    const std::vector<int>& sides = info.config.dense.sides;
    view.none = wrote && empty && at < sides.size() && sides[at] == kCrossSide;
    view.why_empty =
        view.none
            ? fmt::format("Layer {} stores rows of source tokens, and this step has none.", layer)
        : wrote ? fmt::format("What rows of layer {} were made of is not kept.", layer)
                : fmt::format("Layer {} has stored no rows in this step yet.", layer);
    return view;
  }
  view.sentence = fmt::format("Layer {}, ", layer);
  for (const CacheErrors& cache : view.caches) {
    if (&cache != &view.caches.front()) view.sentence += "; ";
    view.sentence += words_of(cache, step);
    view.largest = std::max(view.largest, cache.largest);
  }
  return view;
}

WorstOfRows worst_of_rows(const CacheErrors& cache, std::int64_t head, std::int64_t first,
                          std::int64_t end) {
  WorstOfRows worst;
  for (std::int64_t row = first; row < end; ++row) {
    const double error = cache.errors[to_size(row * cache.heads + head)];
    if (std::isnan(error)) return {error, row};
    if (worst.row < 0 || error > worst.error) worst = {error, row};
  }
  return worst;
}

}  // namespace attnscope
