#include "app/reports/ess_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/family/selected_entries.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

class CaptureSelections {
 public:
  explicit CaptureSelections(const Capture& capture)
      : capture_(capture),
        info_(*capture.info()),
        tokens_per_row_(tokens_of_selected(info_.config)) {}

  Result<SelectionTrace> read() {
    if (auto ok = find_layers(); !ok) return ok.error();
    for (const auto& summary : capture_.summaries()) {
      auto trace = capture_.trace(summary->step);
      if (!trace) return trace.error();
      if (*trace == nullptr) return not_recorded(summary->step);
      if (auto ok = take_step(**trace); !ok) return ok.error();
    }
    if (out_.steps.empty()) {
      return bad_input(fmt::format("{}: no token behind a prompt was computed", capture_.path()),
                       "record more steps: attnscope record SCENARIO --decode-steps 8 ..");
    }
    finish();
    return std::move(out_);
  }

 private:
  Error not_recorded(std::int64_t step) const {
    return bad_input(
        fmt::format("{}: step {} holds no selections", capture_.path(), step),
        "record it again with --level tables --rows all, without --op, --layer and --at-steps");
  }

  Result<void> find_layers() {
    for (std::size_t i = 0; i < info_.ops.size(); ++i) {
      if (std::ranges::find(info_.ops[i], AS_OP_INDEXER_TOPK) == info_.ops[i].end()) continue;
      const int layer = static_cast<int>(i);
      if (out_.layers.empty()) {
        const CacheSpec* entries = entries_of(info_.layout, layer);
        const CacheSpec* rows = entries != nullptr ? entries : token_rows(info_.layout, layer);
        const CacheSpec* keys = info_.layout.of_tap(layer, AS_OP_INDEXER_LOGITS, "cache");
        out_.row_bytes = rows != nullptr ? rows->row_bytes() : 0;
        out_.index_bytes = keys != nullptr ? keys->row_bytes() : 0;
      }
      out_.layers.push_back(info_.config.layers[i]);
    }
    if (out_.layers.empty()) {
      return bad_input(fmt::format("{}: no layer of {} that ran has an indexer, so none selects "
                                   "rows",
                                   capture_.path(), info_.config.name),
                       "record a model whose layers select, such as the scenarios default and "
                       "tiny-v3.2, with --rows all");
    }
    windows_.resize(out_.layers.size());
    return {};
  }

  std::int64_t prompt_of(std::int32_t request) const {
    return info_.prompt_tokens.at(static_cast<std::size_t>(request));
  }

  Result<void> take_step(const StepTrace& trace) {
    std::vector<std::int32_t> rows;  // token rows that decode
    for (std::int64_t t = 0; t < trace.metadata.num_tokens_in_step(); ++t) {
      const auto row = static_cast<std::int32_t>(t);
      const std::int64_t from = trace.request_of(row) < 0 ? 0 : prompt_of(trace.request_of(row));
      const std::int64_t position = trace.metadata.positions[static_cast<std::size_t>(t)];
      if (position < from - kWarmWindows) continue;
      if (trace.kept_index(row) < 0) {
        return bad_input(fmt::format("{}: step {} keeps {} of {} token rows, and one that is "
                                     "missing belongs to the trace",
                                     capture_.path(), trace.step, trace.kept.size(),
                                     trace.metadata.num_tokens_in_step()),
                         "record it again with --rows all, without --request");
      }
      if (position >= from) {
        rows.push_back(row);
      } else if (auto ok = take_window(trace, row); !ok) {
        return ok.error();
      }
    }
    return rows.empty() ? Result<void>() : take_decode(trace, rows);
  }

  // Of one layer; nullptr where it has no values.
  static const TapCopy* indices_of(const StepTrace& trace, int layer) {
    const OpTrace* op = trace.find(layer, AS_OP_INDEXER_TOPK);
    const TapCopy* tap = op == nullptr ? nullptr : op->tap("indices");
    return tap != nullptr && present(tap->value) && !tap->stats ? tap : nullptr;
  }

  static void add_rows(const StepTrace& trace, const TapCopy& indices, std::int32_t row,
                       std::vector<HostRow>& out) {
    const std::int64_t kept = trace.kept_index(row);
    for (std::int64_t k = 0; k < indices.value.shape[1]; ++k) {
      const std::int32_t entry = *at<std::int32_t>(indices.value, kept, k);
      if (entry >= 0) out.push_back({trace.request_of(row), entry});
    }
  }

  Result<void> take_window(const StepTrace& trace, std::int32_t row) {
    for (std::size_t i = 0; i < out_.layers.size(); ++i) {
      const TapCopy* indices = indices_of(trace, out_.layers[i]);
      if (indices == nullptr) return not_recorded(trace.step);
      add_rows(trace, *indices, row, windows_[i]);
    }
    return {};
  }

  Result<void> take_decode(const StepTrace& trace, const std::vector<std::int32_t>& rows) {
    SelectionStep step;
    step.step = trace.step;
    step.tokens = std::ssize(rows);
    for (const int layer : out_.layers) {
      const TapCopy* indices = indices_of(trace, layer);
      if (indices == nullptr) return not_recorded(trace.step);
      LayerSelection& selection = step.layers.emplace_back();
      for (const std::int32_t row : rows) {
        add_rows(trace, *indices, row, selection.selected);
        // The token that completes a row writes it.
        const std::int64_t seen = trace.metadata.positions[static_cast<std::size_t>(row)] + 1;
        if (seen % tokens_per_row_ == 0) {
          const auto made = static_cast<std::int32_t>(seen / tokens_per_row_ - 1);
          selection.written.push_back({trace.request_of(row), made});
        }
        std::int64_t& most = rows_of_[trace.request_of(row)];
        most = std::max(most, seen / tokens_per_row_);
      }
      std::ranges::sort(selection.selected);
      const auto twice = std::ranges::unique(selection.selected);
      selection.selected.erase(twice.begin(), twice.end());
    }
    out_.steps.push_back(std::move(step));
    return {};
  }

  void finish() {
    out_.source = fmt::format("capture {} of {}", capture_.path(), info_.config.name);
    if (!capture_.complete()) out_.left = "The recording was interrupted: later steps are missing.";
    for (const auto& [request, rows] : rows_of_) {
      out_.context = std::max(out_.context, rows);
      out_.rows += rows;
    }
    out_.requests = std::ssize(rows_of_);
    // Of requests that decode in the trace alone.
    for (std::vector<HostRow>& rows : windows_) {
      std::erase_if(rows, [&](const HostRow& row) { return !rows_of_.contains(row.request); });
    }
    out_.prefill = std::move(windows_);
  }

  const Capture& capture_;
  const SessionInfo& info_;
  std::int64_t tokens_per_row_;
  SelectionTrace out_;
  std::vector<std::vector<HostRow>> windows_;     // by index into out_.layers
  std::map<std::int32_t, std::int64_t> rows_of_;  // of requests that decode, the most so far
};

}  // namespace

Result<SelectionTrace> selections_of(const Capture& capture) {
  return CaptureSelections(capture).read();
}

}  // namespace attnscope
