#include "app/reports/ess_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/family/selected_entries.h"
#include "engine/io/stopped.h"
#include "engine/metadata/host_rows.h"
#include "engine/offload/overlap_choice.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

struct SelectionReader::State {
  State(const SessionInfo& info, std::string of)
      : name(std::move(of)),
        model(info.config.name),
        tokens_per_row_(tokens_of_selected(info.config)) {
    layers_known = find_layers(info);
  }

  Error not_recorded(std::int64_t step) const {
    return bad_input(
        fmt::format("{}: step {} holds no selections", name, step),
        "record it again with --level tables --rows all, without --op, --layer and --at-steps");
  }

  Result<void> find_layers(const SessionInfo& info) {
    for (std::size_t i = 0; i < info.ops.size(); ++i) {
      if (std::ranges::find(info.ops[i], AS_OP_INDEXER_TOPK) == info.ops[i].end()) continue;
      const int layer = static_cast<int>(i);
      if (out_.layers.empty()) {
        const CacheSpec* entries = entries_of(info.layout, layer);
        const CacheSpec* rows = entries != nullptr ? entries : token_rows(info.layout, layer);
        const CacheSpec* keys = info.layout.of_tap(layer, AS_OP_INDEXER_LOGITS, "cache");
        if (rows != nullptr) rows_ = HostRows(*rows, info.prompt_tokens);
        out_.row_bytes = rows != nullptr ? rows->row_bytes() : 0;
        out_.index_bytes = keys != nullptr ? keys->row_bytes() : 0;
      }
      out_.layers.push_back(info.config.layers[i]);
    }
    if (out_.layers.empty()) {
      return bad_input(fmt::format("{}: no layer of {} that ran has an indexer, so none selects "
                                   "rows",
                                   name, info.config.name),
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
    const std::int64_t second = second_half(step.query_start_loc);
    for (std::size_t i = 0; i < out_.layers.size(); ++i) {
      const TapCopy* indices = indices_of(trace, out_.layers[i]);
      if (indices == nullptr) return not_recorded(trace.step);
      LayerSelection& selection = out.layers.emplace_back();
      std::map<HostRow, std::uint8_t> rows;  // that are selected, with the halves that do
      for (std::int64_t r = 0; r < step.num_live(); ++r) {
        const bool first =
            second == 0 || step.query_start_loc[static_cast<std::size_t>(r)] < second;
        auto ok = rows_.decodes(r)
                      ? take_decode(trace, *indices, r, i, first ? 1 : 2, selection, rows)
                      : keep_windows(trace, *indices, r, windows_[i]);
        if (!ok) return ok;
      }
      selection.written = rows_.written();
      for (const auto& [row, halves] : rows) {
        selection.selected.push_back(row);
        if (second > 0) selection.halves.push_back(halves);
      }
    }
    if (out.tokens == 0) return {};
    out.gone = std::exchange(gone_, {});
    for (std::int64_t t = 0; t < step.num_tokens_in_step(); ++t) {
      const std::int32_t r = step.token_to_req[static_cast<std::size_t>(t)];
      if (!rows_.decodes(r)) continue;
      std::int64_t& most = rows_of_[step.live[static_cast<std::size_t>(r)]];
      const std::int64_t rows = (step.positions[static_cast<std::size_t>(t)] + 1) / tokens_per_row_;
      most = std::max(most, rows);
      out.context = std::max(out.context, rows);
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
    return bad_input(
        fmt::format("{}: step {} keeps {} of {} token rows, and one that is missing "
                    "belongs to the trace",
                    name, trace.step, trace.kept.size(), trace.metadata.num_tokens_in_step()),
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
                           std::size_t layer, std::uint8_t half, LayerSelection& out,
                           std::map<HostRow, std::uint8_t>& selected) {
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
        selected[rows_.row(r, entry)] |= half;
      }
    }
    return {};
  }

  std::string name, model;
  Result<void> layers_known;
  std::int64_t tokens_per_row_;
  SelectionTrace out_;
  HostRows rows_;
  std::map<std::int32_t, Error>
      unkept_;                        // by request: the last row of its prompt that is not there
  std::vector<HostRowRange> gone_;    // since the last step of the trace
  std::vector<WarmWindows> windows_;  // by index into out_.layers
  std::map<std::int32_t, std::int64_t> rows_of_;  // of requests that decode, the most so far
};

SelectionReader::SelectionReader(const SessionInfo& info, std::string name)
    : state_(std::make_unique<State>(info, std::move(name))) {}
SelectionReader::~SelectionReader() = default;
SelectionReader::SelectionReader(SelectionReader&&) noexcept = default;

Result<void> SelectionReader::known() const { return state_->layers_known; }
Error SelectionReader::not_recorded(std::int64_t step) const { return state_->not_recorded(step); }

Result<void> SelectionReader::take(const StepTrace& trace) {
  if (!state_->layers_known) return state_->layers_known;
  return state_->take_step(trace);
}

Result<SelectionTrace> SelectionReader::finish(const std::string& source) {
  State& s = *state_;
  if (!s.layers_known) return s.layers_known.error();
  if (s.out_.steps.empty()) {
    return bad_input(fmt::format("{}: no token behind a prompt was computed", s.name),
                     "record more steps: attnscope record SCENARIO --decode-steps 8 ..");
  }
  s.out_.source = fmt::format("{} of {}", source, s.model);
  for (const auto& [request, rows] : s.rows_of_) {
    s.out_.context = std::max(s.out_.context, rows);
    s.out_.rows += rows;
  }
  s.out_.requests = std::ssize(s.rows_of_);
  return std::move(s.out_);
}

Result<SelectionTrace> selections_of(const Capture& capture, const std::atomic<bool>* stop) {
  SelectionReader reader(*capture.info(), capture.path());
  if (auto ok = reader.known(); !ok) return ok.error();
  for (const auto& summary : capture.summaries()) {
    if (is_stopped(stop)) return stopped_error();
    auto trace = capture.trace(summary->step);
    if (!trace) return trace.error();
    if (*trace == nullptr) return reader.not_recorded(summary->step);
    if (auto ok = reader.take(**trace); !ok) return ok.error();
  }
  auto out = reader.finish("capture " + capture.path());
  if (out && !capture.complete()) {
    out->left = "The recording was interrupted: later steps are missing.";
  }
  return out;
}

}  // namespace attnscope
