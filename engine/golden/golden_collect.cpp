#include "engine/golden/golden_collect.h"

#include <algorithm>
#include <cmath>

#include "engine/io/byte_stream.h"
#include "engine/model/numbers.h"
#include "engine/model/synthetic_fill.h"
#include "engine/session/verify/forced_copy.h"
#include "engine/trace/compare.h"
#include "kernels/params/op_table.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr std::int64_t kMostRanges = 16;
constexpr std::int64_t kMostNumbers = 64;

bool by_row(const TapCopy& tap) { return tap.axes.starts_with("T") || tap.axes.starts_with("N"); }

std::int64_t row_bytes(const as_tensor& t) {
  return as_tensor_numel(&t) * as_dtype_size(t.dtype) / std::max<std::int64_t>(1, t.shape[0]);
}

std::string checksum_of(const void* data, std::int64_t bytes) {
  return hex64(checksum(static_cast<const std::uint8_t*>(data), to_size(bytes)));
}

// Of the whole tensor, or of one row of its first axis.
std::string tensor_checksum(const as_tensor& t) {
  return checksum_of(t.data, as_tensor_numel(&t) * as_dtype_size(t.dtype));
}
std::string row_checksum(const as_tensor& t, std::int64_t row) {
  const std::int64_t bytes = row_bytes(t);
  return checksum_of(static_cast<const std::uint8_t*>(t.data) + row * bytes, bytes);
}

// The row that an op's bytes are quantised from.
bool is_row(const OpTrace& op, const TapCopy& tap) {
  const as_tap_info* row = as_op_row(op.place.op);
  return row != nullptr && tap.name == row->name;
}

// Whether the bytes of an output are the values of this tap: of the row before quantisation, or of
// the input that the op table says.
bool gives_bytes(const OpTrace& op, const TapCopy& tap, const std::string& output) {
  const as_op_info* info = as_op_find(op.place.op);
  const as_tap_info *taps = info->taps, *end = taps + info->num_taps;
  const as_tap_info* out = std::find_if(taps, end, [&](const auto& t) { return output == t.name; });
  if (out == end || out->stores == 0) return is_row(op, tap);
  return std::any_of(taps, end,
                     [&](const auto& t) { return t.offset == out->stores && tap.name == t.name; });
}

// Whether other values of this tap excuse other bytes of an output that follows from them: what its
// bytes are made of, or float scores and selections where integers are computed from those.
bool gives(const OpTrace& op, const TapCopy& tap, const std::string& output,
           const std::string& rule) {
  if (rule == "bytes") return gives_bytes(op, tap, output);
  return !tap.output && (is_float(tap.value.dtype) || tap.name == "indices");
}

// row < 0: of all rows.
std::string given_of(const OpTrace& op, const std::string& output, const std::string& rule,
                     std::int64_t row, std::int64_t rows) {
  std::string joined;
  for (const TapCopy& tap : op.taps) {
    if (!gives(op, tap, output, rule)) continue;
    const bool one = row >= 0 && by_row(tap) && tap.value.shape[0] == rows;
    joined += one ? row_checksum(tap.value, row) : tensor_checksum(tap.value);
  }
  if (joined.size() <= 16) return joined;
  return checksum_of(joined.data(), static_cast<std::int64_t>(joined.size()));
}

void exact_figures(const OpTrace& op, const TapCopy& tap, GoldenTap& out) {
  if (by_row(tap)) {
    const std::int64_t rows = tap.value.shape[0];
    for (std::int64_t r = 0; r < rows; ++r) {
      out.parts.push_back({row_checksum(tap.value, r), given_of(op, tap.name, tap.rule, r, rows)});
    }
  } else {
    out.parts.push_back({tensor_checksum(tap.value), given_of(op, tap.name, tap.rule, -1, 0)});
  }
  if (as_tensor_numel(&tap.value) > kMostNumbers) return;
  const std::int64_t columns = columns_of(tap.value);
  for (std::int64_t i = 0; i < as_tensor_numel(&tap.value); ++i) {
    out.numbers.push_back(static_cast<std::int64_t>(element(tap.value, i / columns, i % columns)));
  }
}

std::vector<double> score_row(const as_tensor& logits, std::int64_t row) {
  std::vector<double> out(to_size(columns_of(logits)));
  for (std::size_t c = 0; c < out.size(); ++c) {
    out[c] = element(logits, row, static_cast<std::int64_t>(c));
  }
  return out;
}

void set_figures(const OpTrace& op, const TapCopy& tap, GoldenTap& out) {
  const TapCopy *logits = op.tap("logits"), *lens = op.tap("lens");
  for (std::int64_t r = 0; r < tap.value.shape[0]; ++r) {
    std::vector<std::int32_t> entries;
    for (std::int64_t k = 0; k < tap.value.shape[1]; ++k) {
      const std::int32_t entry = *at<std::int32_t>(tap.value, r, k);
      if (entry >= 0) entries.push_back(entry);
    }
    out.sets.push_back(set_text(std::move(entries)));
    if (logits == nullptr || lens == nullptr) continue;
    out.scores.push_back(score_row(logits->value, r));
    out.lens.push_back(*at<std::int32_t>(lens->value, r));
  }
}

GoldenTap head_of(const OpTrace& op, const std::string& where, const std::string& tap,
                  const std::string& rule, const as_tensor& value) {
  GoldenTap out;
  out.where = where;
  out.op = op.place.op;
  out.step = op.place.step;
  out.tap = tap;
  out.rule = rule;
  out.lane = op.lane;
  out.dtype = value.dtype;
  out.shape.assign(value.shape, value.shape + value.rank);
  return out;
}

void collect_rows(const OpTrace& op, const RowsCopy& rows, const RowOwners& owners,
                  const GoldenSpec& spec, const std::string& where, std::vector<GoldenTap>& out) {
  if (rows.tokens.empty()) return;
  const auto count = static_cast<std::int64_t>(rows.tokens.size());
  auto* data = const_cast<std::uint8_t*>(rows.bytes.data());
  const bool state = as_row_is_values(rows.record) != 0;
  const as_tensor value =
      state ? make_tensor(data, AS_F32, {count, rows.row_bytes / as_dtype_size(AS_F32)})
            : make_tensor(data, AS_U8, {count, rows.row_bytes});
  GoldenTap tap = head_of(op, where, rows.name, state ? "dense" : "bytes", value);
  std::vector<std::int64_t> kept;
  for (const std::int32_t token : rows.tokens) {
    kept.push_back(std::ranges::find(owners.tokens, token) - owners.tokens.begin());
    tap.requests.push_back(owners.requests[to_size(kept.back())]);
  }
  if (state) {
    float_figures(value, spec.samples, tap);
  } else {
    const auto all = static_cast<std::int64_t>(owners.tokens.size());
    for (std::int64_t r = 0; r < count; ++r) {
      tap.parts.push_back(
          {row_checksum(value, r), given_of(op, tap.tap, tap.rule, kept[to_size(r)], all)});
    }
  }
  out.push_back(std::move(tap));
}

}  // namespace

RowOwners row_owners(const StepTrace& step) {
  RowOwners owners;
  owners.tokens = step.kept;
  for (const std::int32_t token : step.kept) owners.requests.push_back(step.request_of(token));
  for (const std::int32_t row : step.metadata.sample_request) {
    owners.sampled.push_back(step.metadata.live[to_size(row)]);
  }
  return owners;
}

void float_figures(const as_tensor& tensor, std::int64_t samples, GoldenTap& tap) {
  // As a file keeps them, so that values that were read back compare equal.
  const auto kept = [](double v) { return short_number(v, AS_F32); };
  TapStats stats = tap_stats(tensor);
  stats.checksum.clear();
  for (double* v : {&stats.min, &stats.max, &stats.mean, &stats.l2}) *v = kept(*v);
  tap.stats = stats;
  const std::int64_t n = as_tensor_numel(&tensor), columns = columns_of(tensor);
  const std::int64_t rows = n / columns;
  // One in each of equally many stretches, so that no part of the tensor goes unseen.
  const std::int64_t count = std::min(samples, n);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = n * i / count, end = n * (i + 1) / count;
    const auto place =
        begin + static_cast<std::int64_t>(element_hash(static_cast<std::uint64_t>(i), 0) %
                                          static_cast<std::uint64_t>(end - begin));
    tap.at.push_back(place);
    tap.values.push_back(element(tensor, place / columns, place % columns));
  }
  const std::int64_t ranges = std::min(rows, kMostRanges);
  for (std::int64_t g = 0; g < ranges; ++g) {
    GoldenRange range;
    std::int64_t finite = 0;
    double squares = 0;
    for (std::int64_t r = rows * g / ranges; r < rows * (g + 1) / ranges; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const double v = element(tensor, r, c);
        if (!std::isfinite(v)) continue;
        ++finite;
        range.mean += v;
        squares += v * v;
        range.max = std::max(range.max, std::fabs(v));
      }
    }
    if (finite > 0) {
      range.mean = kept(range.mean / static_cast<double>(finite));
      range.rms = kept(std::sqrt(squares / static_cast<double>(finite)));
    }
    range.max = kept(range.max);
    tap.ranges.push_back(range);
  }
}

void collect_taps(const OpTrace& op, const RowOwners& owners, const GoldenSpec& spec,
                  const std::string& where, std::vector<GoldenTap>& out) {
  // Bytes are excused by their row alone, so that it is kept with them.
  const auto wants = [&](const TapCopy& tap) {
    if (spec.wants(op.place, tap.name)) return true;
    return is_row(op, tap) && std::ranges::any_of(op.rows, [&](const RowsCopy& rows) {
             return spec.wants(op.place, rows.name);
           });
  };
  for (const TapCopy& tap : op.taps) {
    if (!tap.output || !wants(tap)) continue;
    GoldenTap kept = head_of(op, where, tap.name, tap.rule, tap.value);
    if (tap.axes.starts_with("T")) kept.requests = owners.requests;
    if (tap.axes.starts_with("N")) kept.requests = owners.sampled;
    if (tap.rule == "topk") {
      set_figures(op, tap, kept);
    } else if (is_float(tap.value.dtype)) {
      float_figures(tap.value, spec.samples, kept);
    } else {
      exact_figures(op, tap, kept);
    }
    out.push_back(std::move(kept));
  }
  for (const RowsCopy& rows : op.rows) {
    if (spec.wants(op.place, rows.name)) collect_rows(op, rows, owners, spec, where, out);
  }
}

void collect_tokens(const StepTrace& step, std::vector<GoldenToken>& out) {
  const OpTrace* sample = step.find(-1, AS_OP_SAMPLE);
  const TapCopy* logits = sample != nullptr ? sample->tap("logits") : nullptr;
  const TapCopy* tokens = sample != nullptr ? sample->tap("tokens") : nullptr;
  if (logits == nullptr || tokens == nullptr) return;
  for (std::size_t n = 0; n < step.metadata.sample_request.size(); ++n) {
    const auto row = to_size(step.metadata.sample_request[n]);
    const auto at_row = static_cast<std::int64_t>(n);
    out.push_back({step.step, step.metadata.live[row], *at<std::int32_t>(tokens->value, at_row),
                   score_row(logits->value, at_row)});
  }
}

}  // namespace attnscope
