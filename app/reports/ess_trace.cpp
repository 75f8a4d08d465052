#include "app/reports/ess_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/family/selected_entries.h"
#include "engine/metadata/host_rows.h"
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
        if (rows != nullptr) rows_ = HostRows(*rows, info_.prompt_tokens);
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

  Result<void> take_step(const StepTrace& trace) {
    const StepMetadata& step = trace.metadata;
    rows_.begin_step(step);
    SelectionStep out;
    out.step = trace.step;
    out.gone = rows_.gone();
    gone_.insert(gone_.end(), out.gone.begin(), out.gone.end());
    for (std::size_t r = 0; r < step.live.size(); ++r) {
      if (rows_.decodes(static_cast<std::int64_t>(r))) out.tokens += step.num_scheduled_tokens[r];
    }
    for (std::size_t i = 0; i < out_.layers.size(); ++i) {
      const TapCopy* indices = indices_of(trace, out_.layers[i]);
      if (indices == nullptr) return not_recorded(trace.step);
      LayerSelection& selection = out.layers.emplace_back();
      for (std::int64_t r = 0; r < step.num_live(); ++r) {
        auto ok = rows_.decodes(r) ? take_decode(trace, *indices, r, i, selection)
                                   : keep_windows(trace, *indices, r, windows_[i]);
        if (!ok) return ok;
      }
      selection.written = rows_.written();
      std::ranges::sort(selection.selected);
      const auto twice = std::ranges::unique(selection.selected);
      selection.selected.erase(twice.begin(), twice.end());
    }
    if (out.tokens == 0) return {};
    out.gone = std::exchange(gone_, {});
    for (std::int64_t t = 0; t < step.num_tokens_in_step(); ++t) {
      const std::int32_t r = step.token_to_req[static_cast<std::size_t>(t)];
      if (!rows_.decodes(r)) continue;
      std::int64_t& most = rows_of_[step.live[static_cast<std::size_t>(r)]];
      most = std::max(most, (step.positions[static_cast<std::size_t>(t)] + 1) / tokens_per_row_);
    }
    out_.steps.push_back(std::move(out));
    return {};
  }

  // Of one layer; nullptr where it has no values.
  static const TapCopy* indices_of(const StepTrace& trace, int layer) {
    const OpTrace* op = trace.find(layer, AS_OP_INDEXER_TOPK);
    const TapCopy* tap = op == nullptr ? nullptr : op->tap("indices");
    return tap != nullptr && present(tap->value) && !tap->stats ? tap : nullptr;
  }

  Error row_is_missing(const StepTrace& trace) const {
    return bad_input(fmt::format("{}: step {} keeps {} of {} token rows, and one that is missing "
                                 "belongs to the trace",
                                 capture_.path(), trace.step, trace.kept.size(),
                                 trace.metadata.num_tokens_in_step()),
                     "record it again with --rows all, without --request");
  }

  static std::vector<std::int32_t> entries_in(const TapCopy& indices, std::int64_t kept) {
    std::vector<std::int32_t> entries;
    for (std::int64_t k = 0; k < indices.value.shape[1]; ++k) {
      const std::int32_t entry = *at<std::int32_t>(indices.value, kept, k);
      if (entry >= 0) entries.push_back(entry);
    }
    return entries;
  }

  // Of the last tokens that a request prefills in this step. One whose row was not kept is noted
  // and told when the request decodes: the windows of a prompt are its last ones.
  Result<void> keep_windows(const StepTrace& trace, const TapCopy& indices, std::int64_t r,
                            WarmWindows& windows) {
    const auto& starts = trace.metadata.query_start_loc;
    const std::int64_t end = starts[static_cast<std::size_t>(r) + 1];
    const std::int64_t begin =
        std::max<std::int64_t>(starts[static_cast<std::size_t>(r)], end - kWarmWindows);
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t kept = trace.kept_index(t);
      const std::int32_t request = trace.metadata.live[static_cast<std::size_t>(r)];
      if (kept < 0) unkept_.insert_or_assign(request, row_is_missing(trace));
      windows.add(request, kept < 0 ? std::vector<std::int32_t>{-1} : entries_in(indices, kept));
    }
    return {};
  }

  Result<void> take_decode(const StepTrace& trace, const TapCopy& indices, std::int64_t r,
                           std::size_t layer, LayerSelection& out) {
    const StepMetadata& step = trace.metadata;
    if (rows_.begins(r)) {
      for (const auto& entries : windows_[layer].take(step.live[static_cast<std::size_t>(r)])) {
        for (const std::int32_t entry : entries) {
          if (entry < 0) return unkept_.at(step.live[static_cast<std::size_t>(r)]);
          out.warm.push_back(rows_.row(r, entry));
        }
      }
    }
    const auto row = static_cast<std::size_t>(r);
    for (std::int64_t t = step.query_start_loc[row]; t < step.query_start_loc[row + 1]; ++t) {
      const std::int64_t kept = trace.kept_index(t);
      if (kept < 0) return row_is_missing(trace);
      for (const std::int32_t entry : entries_in(indices, kept)) {
        out.selected.push_back(rows_.row(r, entry));
      }
    }
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
  }

  const Capture& capture_;
  const SessionInfo& info_;
  std::int64_t tokens_per_row_;
  SelectionTrace out_;
  HostRows rows_;
  std::map<std::int32_t, Error>
      unkept_;                        // by request: the last row of its prompt that is not there
  std::vector<HostRowRange> gone_;    // since the last step of the trace
  std::vector<WarmWindows> windows_;  // by index into out_.layers
  std::map<std::int32_t, std::int64_t> rows_of_;  // of requests that decode, the most so far
};

}  // namespace

Result<SelectionTrace> selections_of(const Capture& capture) {
  return CaptureSelections(capture).read();
}

}  // namespace attnscope
