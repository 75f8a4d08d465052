#include "engine/capture/capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <new>

#include "engine/capture/again.h"
#include "engine/capture/coverage_line.h"
#include "engine/capture/recorded_sums.h"
#include "engine/capture/trace_io.h"
#include "engine/io/json_file.h"
#include "engine/io/old_names.h"
#include "engine/session/lanes_ran.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What a summary says must name layers and ops that the model has.
std::string check_summary(const StepSummary& s, const SessionInfo& info) {
  const auto known = [&](int layer) {
    return layer == -1 || std::ranges::find(info.config.layers, layer) != info.config.layers.end();
  };
  if (s.step < 0 || s.step > std::int64_t{1} << 40) return "a step's number";
  if (s.layers.size() != info.config.layers.size() + 1) return "the number of layer cells";
  for (std::size_t i = 0; i < s.layers.size(); ++i) {
    if (s.layers[i].layer != (i == 0 ? -1 : info.config.layers[i - 1])) return "a cell's layer";
  }
  for (const TapResult& r : s.results) {
    if (!known(r.layer)) return "a result's layer";
    if (r.worst && r.worst->index.size() > AS_MAX_RANK) return "a result's worst element";
  }
  for (const OpTiming& t : s.timings) {
    if (!known(t.layer)) return "the layer of an op's time";
    if (t.stream < 0 || t.stream >= OpTiming::kMostStreams) return "the stream of an op's time";
    if (!std::isfinite(t.start) || !std::isfinite(t.microseconds)) return "an op's time";
  }
  const auto requests = static_cast<std::int32_t>(info.request_names.size());
  for (const Event& e : s.events) {
    if (!known(e.place.layer) || e.request < -1 || e.request >= requests || e.block < -1 ||
        e.block >= info.num_blocks || e.group < -1 ||
        e.group >= static_cast<std::int32_t>(info.layout.groups.size())) {
      return "an event's place";
    }
  }
  if (s.cache_events == nullptr) return "";
  for (const CacheEvent& e : *s.cache_events) {
    if (e.request < -1 || e.request >= requests || e.block < -1 || e.block >= info.num_blocks ||
        e.group < -1 || e.group >= static_cast<std::int32_t>(info.layout.groups.size())) {
      return "a block event";
    }
  }
  return "";
}

// A link could lead to any file of this machine, of which whoever made the capture knows nothing.
std::string link_in(const std::string& folder, const std::string& name) {
  std::error_code code;
  if (!fs::is_symlink(fs::path(folder) / name, code)) return "";
  return name + " is a link, and the files of a capture lie in its own folder";
}

Error no_step(const Capture& capture, std::int64_t step) {
  const auto& steps = capture.summaries();
  return bad_input(
      fmt::format("{}: has no step {}", capture.path(), step),
      steps.empty()
          ? "it holds no step: the recording was interrupted before one ended"
          : fmt::format("it has steps {} to {}", steps.front()->step, steps.back()->step));
}

}  // namespace

bool is_capture_folder(const std::string& path) {
  std::error_code code;
  return fs::exists(path + "/index.json", code) || path.ends_with(".acap") ||
         path.ends_with(".acap/");
}

Error Capture::damaged(const std::string& what) const {
  return bad_input(fmt::format("{}: damaged: {}", path_, what),
                   "record it again, or copy it again from where it came");
}

Result<std::shared_ptr<const Capture>> Capture::open(const std::string& path) {
  std::error_code code;
  if (path.empty()) {
    return bad_input("no capture is named: its name is empty",
                     "name a folder that 'attnscope record' made");
  }
  if (!fs::exists(path, code)) {
    return bad_input(path + ": there is no such capture",
                     "captures are made with 'attnscope record'");
  }
  if (!fs::is_directory(path, code)) {
    return bad_input(path + ": is a file, and captures are folders",
                     "if it was packed for sending: attnscope unpack FILE");
  }
  std::shared_ptr<Capture> capture(new Capture);
  capture->path_ = path;
  while (capture->path_.size() > 1 && capture->path_.back() == '/') capture->path_.pop_back();
  const std::string& folder = capture->path_;
  for (const char* name :
       {"index.json", "steps.jsonl", "traces.jsonl", "weights.safetensors", "payload", "cache"}) {
    if (const std::string link = link_in(folder, name); !link.empty()) {
      return capture->damaged(link);
    }
  }
  auto text = read_text_file(folder + "/index.json");
  if (!text) {
    return fs::exists(folder + "/index.json", code)
               ? capture->damaged("index.json cannot be read: " + text.error().message)
               : bad_input(folder + ": is a folder without index.json, no capture",
                           "captures are made with 'attnscope record'");
  }
  try {
    auto index = parse_index(*text, folder);
    if (!index) return index.error();
    capture->index_ = std::move(*index);
    auto info = info_of(capture->index_, folder);
    if (!info) return info.error();
    capture->info_ = std::move(*info);
    auto traces = MappedFile::open(folder + "/traces.jsonl");
    if (!traces) return capture->damaged(traces.error().message);
    capture->traces_ = std::move(*traces);
    if (capture->index_.weights) {
      auto weights = TensorFile::open(folder + "/weights.safetensors");
      if (!weights) return capture->damaged(weights.error().message);
      capture->weights_ = std::make_shared<const TensorFile>(std::move(*weights));
    }
    if (auto ok = capture->read_steps(); !ok) return ok.error();
    capture->name_lanes();
  } catch (const std::bad_alloc&) {
    return Error{AS_NO_ENVIRONMENT, folder + ": not enough memory to open it", ""};
  }
  return std::shared_ptr<const Capture>(std::move(capture));
}

Result<void> Capture::read_steps() {
  auto file = MappedFile::open(path_ + "/steps.jsonl");
  if (!file) return damaged(file.error().message);
  const std::string_view text = text_of(file->bytes());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    const std::string_view line = text.substr(at, end - at);
    const bool whole = end != std::string_view::npos;
    const bool last = !whole || end + 1 == text.size();
    if (!whole || !check_line(line)) {
      if (last && !index_.complete) break;  // interrupted in the middle of it
      return damaged(
          fmt::format("line {} of steps.jsonl does not fit its checksum", summaries_.size() + 1));
    }
    StepLine step;
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    std::string wrong = from_json_fields(json, step);
    if (wrong.empty() && !take_coverage(json, step.summary)) wrong = "exercise";
    if (!wrong.empty()) {
      return damaged(fmt::format("line {} of steps.jsonl: '{}' is missing or of another kind",
                                 summaries_.size() + 1, wrong));
    }
    for (TapResult& r : step.summary.results) {
      r.step = step.summary.step;
      r.tap = tap_name_now(r.op, r.tap);
    }
    if (step.cache_events) {
      step.summary.cache_events =
          std::make_shared<const std::vector<CacheEvent>>(std::move(*step.cache_events));
    }
    if (const std::string odd = check_summary(step.summary, *info_); !odd.empty()) {
      return damaged(fmt::format("line {} of steps.jsonl: {} does not fit the model",
                                 summaries_.size() + 1, odd));
    }
    if (!summaries_.empty() && summaries_.back()->step >= step.summary.step) {
      return damaged("steps do not ascend");
    }
    const std::uint64_t traces = traces_.bytes().size();
    if (step.trace.at > traces || step.trace.bytes > traces - step.trace.at) {
      return damaged(
          fmt::format("step {}: its trace lies outside of traces.jsonl", step.summary.step));
    }
    lines_.push_back({step.trace, step.payload, step.cache});
    summaries_.push_back(std::make_shared<const StepSummary>(std::move(step.summary)));
    at = end + 1;
  }
  if (index_.complete && static_cast<std::int64_t>(summaries_.size()) != index_.steps) {
    return damaged(
        fmt::format("it has {} steps, index.json says {}", summaries_.size(), index_.steps));
  }
  return {};
}

// The index says what was chosen before the first step; results say who ran.
void Capture::name_lanes() {
  LanesRan ran(info_->lane_of);
  for (const auto& summary : summaries_) ran.add(summary->results);
  if (ran.last() == info_->lane_of && ran.description() == info_->lanes) return;
  auto named = std::make_shared<SessionInfo>(*info_);
  named->lane_of = ran.last();
  named->lanes = ran.description();
  info_ = std::move(named);
}

const Capture::Line* Capture::line(std::int64_t step) const {
  const auto it = std::ranges::lower_bound(summaries_, step, {},
                                           [](const auto& summary) { return summary->step; });
  if (it == summaries_.end() || (*it)->step != step) return nullptr;
  return &lines_[static_cast<std::size_t>(it - summaries_.begin())];
}

Result<TraceEntry> Capture::read_entry(std::int64_t step, const Line& where) const {
  const std::string_view text = text_of(traces_.bytes()).substr(where.trace.at, where.trace.bytes);
  if (!check_line(text)) {
    return damaged(
        fmt::format("step {}: its line in traces.jsonl does not fit its checksum", step));
  }
  TraceEntry entry;
  const std::string wrong = from_json_fields(nlohmann::json::parse(text, nullptr, false), entry);
  if (!wrong.empty() || entry.step != step) {
    return damaged(fmt::format("step {}: traces.jsonl: '{}' is missing or of another kind", step,
                               wrong.empty() ? "step" : wrong));
  }
  for (OpEntry& op : entry.ops) {
    for (TapEntry& tap : op.taps) tap.name = tap_name_now(op.op, tap.name);
  }
  return entry;
}

Result<TensorFile> Capture::open_part(const char* folder, std::int64_t step,
                                      const FileRef& ref) const {
  const std::string name = step_file(folder, step);
  if (const std::string link = link_in(path_, name); !link.empty()) return damaged(link);
  auto file = TensorFile::open(path_ + "/" + name);
  if (!file) return damaged(file.error().message);
  if (hex64(file->digest()) != ref.digest) {
    return damaged(name + " does not fit its digest");
  }
  return file;
}

Result<std::shared_ptr<const TraceEntry>> Capture::entry(std::int64_t step) const {
  const Line* where = line(step);
  if (where == nullptr) return no_step(*this, step);
  if (where->trace.bytes == 0) return std::shared_ptr<const TraceEntry>();
  if (auto kept = recent_entries_.find(step)) return kept;
  auto read = read_entry(step, *where);
  if (!read) return read.error();
  auto entry = std::make_shared<const TraceEntry>(std::move(*read));
  recent_entries_.keep(entry);
  return std::shared_ptr<const TraceEntry>(std::move(entry));
}

Result<std::shared_ptr<const StepTrace>> Capture::trace(std::int64_t step) const {
  const Line* where = line(step);
  if (where == nullptr) return no_step(*this, step);
  if (where->trace.bytes == 0 || where->payload.bytes == 0) {
    return std::shared_ptr<const StepTrace>();
  }
  if (auto kept = recent_traces_.find(step)) return kept;
  auto trace = read_step(*where);
  if (trace) recent_traces_.keep(*trace);
  return trace;
}

Result<std::shared_ptr<const StepTrace>> Capture::read_step(const Line& where) const {
  const auto at = static_cast<std::size_t>(&where - lines_.data());
  const std::int64_t step = summaries_[at]->step;
  try {
    auto entry = read_entry(step, where);
    if (!entry) return entry.error();
    auto payload = open_part("payload", step, where.payload);
    if (!payload) return payload.error();
    return read_trace(*entry, summaries_[at]->results, *info_, &*payload, weights_.get(), path_);
  } catch (const std::bad_alloc&) {
    return Error{AS_NO_ENVIRONMENT, fmt::format("{}: not enough memory for step {}", path_, step),
                 ""};
  }
}

std::int64_t Capture::block_step(std::int64_t step) const {
  std::int64_t found = -1;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i].cache.bytes > 0 && summaries_[i]->step <= step) found = summaries_[i]->step;
  }
  return found;
}

Result<std::shared_ptr<const BlockBytes>> Capture::block(std::int64_t step, std::int32_t id) const {
  std::shared_ptr<const BlockBytes> none;
  const Line* where = line(step);
  if (where == nullptr || where->cache.bytes == 0) return none;
  auto file = open_part("cache", step, where->cache);
  if (!file) return file.error();
  const TensorEntry *ids = file->find("ids"), *blocks = file->find("blocks");
  const auto stride = info_->block_stride;
  if (stride == 0) return none;  // a model without caches
  if (ids == nullptr || blocks == nullptr || ids->type != ElementType::kI32 ||
      blocks->type != ElementType::kU8 || blocks->elements % stride != 0 ||
      blocks->elements / stride != ids->elements) {
    return damaged(step_file("cache", step) + " does not hold blocks");
  }
  for (std::int64_t i = 0; i < ids->elements; ++i) {
    std::int32_t at = 0;
    std::memcpy(&at, ids->data + i * 4, sizeof(at));
    if (at != id) continue;
    auto out = std::make_shared<BlockBytes>();
    out->block = id;
    out->step = step;
    out->after = step;
    out->bytes.assign(blocks->data + i * stride, blocks->data + (i + 1) * stride);
    auto owners = trace(step);
    if (!owners) return owners.error();
    if (*owners && static_cast<std::size_t>(id) < (*owners)->owners.size()) {
      out->owner = (*owners)->owners[static_cast<std::size_t>(id)];
    }
    return std::shared_ptr<const BlockBytes>(std::move(out));
  }
  return none;
}

Result<void> Capture::verify() const {
  auto index = read_text_file(path_ + "/index.json");
  if (!index) return damaged(index.error().message);
  if (!check_index(*index)) return damaged("index.json does not fit its checksum");
  for (const auto& summary : summaries_) {
    const Line& where = *line(summary->step);
    if (where.trace.bytes > 0 && where.payload.bytes > 0) {
      auto read = read_step(where);
      if (!read) return read.error();
      auto known = read_entry(summary->step, where);
      if (!known) return known.error();
      const std::string wrong = check_recorded(*known, **read);
      if (!wrong.empty()) return damaged(wrong);
    } else if (where.trace.bytes > 0) {
      if (auto known = read_entry(summary->step, where); !known) return known.error();
    }
    if (where.cache.bytes > 0) {
      if (auto file = open_part("cache", summary->step, where.cache); !file) return file.error();
    }
  }
  return {};
}

std::uint64_t Capture::bytes() const {
  std::uint64_t n = 0;
  std::error_code code;
  for (const auto& entry : fs::recursive_directory_iterator(path_, code)) {
    if (entry.is_regular_file(code)) n += entry.file_size(code);
  }
  return n;
}

std::string Capture::why_missing(const Place& place, const std::string& tap) const {
  const char* op = as_op_find(place.op)->name;
  if (line(place.step) == nullptr) {
    return fmt::format("Step {} is not in this capture.", place.step);
  }
  const std::string what = tap.empty() ? fmt::format("The taps of {} were", op)
                                       : fmt::format("Tap {} of {} was", tap, op);
  if (index_.level != CaptureLevel::kFull) {
    return fmt::format("{} not recorded: this capture's level is {}. {}", what,
                       capture_level_name(index_.level),
                       record_again(index_, path_, fmt::format("--level full --op {}", op)));
  }
  return fmt::format("{} not recorded in step {}: its filter is {}{}. {}", what, place.step,
                     index_.filter, index_.rows.empty() ? "" : ", its rows: " + index_.rows,
                     record_again(index_, path_, "--level full"));
}

}  // namespace attnscope
