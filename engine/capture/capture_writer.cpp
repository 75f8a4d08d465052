#include "engine/capture/capture_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "engine/capture/coverage_line.h"
#include "engine/capture/step_line.h"
#include "engine/capture/trace_io.h"
#include "engine/io/atomic_file.h"
#include "engine/io/folder_swap.h"
#include "engine/io/json_file.h"
#include "engine/io/json_text.h"
#include "engine/io/plural.h"
#include "engine/tensorfile/tensor_file.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecording = ".recording-";

Error capture_error(const std::string& path, const char* doing, int code) {
  return bad_input(fmt::format("{}: {}: {}", path, doing, std::strerror(code)),
                   code == ENOSPC || code == EDQUOT ? "make room on the disk"
                   : code == EFBIG                  ? "raise the limit of a file's size: ulimit -f"
                                                    : "");
}

// Recordings of this name whose programs are gone.
void remove_leftovers(const fs::path& path) {
  std::error_code code;
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const std::string prefix = path.filename().string() + kRecording;
  std::vector<fs::path> gone;
  for (const auto& entry : fs::directory_iterator(parent, code)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    long pid = 0;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), pid);
    if (pid > 0 && ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) {
      gone.push_back(entry.path());
    }
  }
  for (const fs::path& old : gone) fs::remove_all(old, code);
}

int open_new(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
}

}  // namespace

Result<std::unique_ptr<CaptureWriter>> CaptureWriter::create(const std::string& name,
                                                             const CaptureOptions& options,
                                                             const SessionInfo& info,
                                                             const CaptureOrigin& origin) {
  std::string path = name;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (auto ok = check_capture_target(path); !ok) return ok.error();
  remove_leftovers(path);
  std::unique_ptr<CaptureWriter> writer(new CaptureWriter);
  writer->path_ = path;
  writer->options_ = options;
  writer->index_ = make_index(info, options, origin);
  std::error_code code;
  const bool taken = fs::exists(path, code);
  if (taken && !options.replace && !fs::is_empty(path, code)) {
    return bad_input(fmt::format("{}: exists already", path), "choose another name");
  }
  // A program of the same number may have left one: in a container numbers begin anew.
  for (int n = 0; writer->folder_.empty(); ++n) {
    const std::string folder =
        fmt::format("{}{}{}.{}", path, kRecording, static_cast<long>(::getpid()), n);
    if (fs::create_directory(folder, code)) writer->folder_ = folder;
    if (code) {
      return bad_input(fmt::format("{}: cannot create the folder: {}", path, code.message()),
                       "choose a name in a folder that can be written");
    }
  }
  for (const char* sub : {"payload", "cache"})
    fs::create_directory(writer->folder_ + "/" + sub, code);
  if (code) return capture_error(writer->folder_, "cannot create a folder in it", code.value());
  writer->steps_ = open_new(writer->folder_ + "/steps.jsonl");
  writer->traces_ = open_new(writer->folder_ + "/traces.jsonl");
  if (writer->steps_ < 0 || writer->traces_ < 0) {
    return capture_error(writer->folder_, "cannot write in it", errno);
  }
  hold_capture(writer->steps_);
  if (auto ok = write_text_file(writer->folder_ + "/index.json", index_text(writer->index_)); !ok) {
    return ok.error();
  }
  // Under its own name it is there as a whole: whoever interrupts the next line leaves a capture,
  // incomplete, or none.
  if (!taken) {
    if (::rename(writer->folder_.c_str(), path.c_str()) != 0) {
      return capture_error(path, "cannot create the folder", errno);
    }
    writer->folder_ = path;
  }
  return writer;
}

CaptureWriter::~CaptureWriter() {
  for (const int fd : {steps_, traces_}) {
    if (fd >= 0) ::close(fd);
  }
  std::error_code code;
  if (!finished_ && totals_.steps == 0 && !folder_.empty()) fs::remove_all(folder_, code);
}

Error CaptureWriter::explain(Error error) const {
  if (totals_.steps > 0) {
    error.hint +=
        fmt::format("{}{} before it {} kept in {}", error.hint.empty() ? "" : "; ",
                    totals_.steps == 1 ? "the step" : fmt::format("the {} steps", totals_.steps),
                    agree(totals_.steps, "is", "are"), folder_);
  }
  return error;
}

Result<void> CaptureWriter::append(int fd, const std::string& name, const std::string& line) {
  const off_t before = ::lseek(fd, 0, SEEK_END);
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(fd, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int why = n < 0 ? errno : ENOSPC;
      // A part of a line is not left; where that fails too, readers take it for an interruption.
      const bool cut = before >= 0 && ::ftruncate(fd, before) == 0;
      (void)cut;
      return capture_error(folder_ + "/" + name, "cannot write", why);
    }
    done += static_cast<std::size_t>(n);
  }
  totals_.bytes += line.size();
  return {};
}

Result<void> CaptureWriter::add_blocks(const Session& session, std::int64_t step,
                                       std::string& digest, std::uint64_t& bytes) {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> content;
  const std::int64_t stride = session.slab().own_bytes();
  const std::vector<BlockOwner> owners = session.serving().owners();
  for (std::size_t id = 1; id < owners.size(); ++id) {
    if (owners[id].request < 0 && !owners[id].keyed) continue;
    ids.push_back(static_cast<std::int32_t>(id));
    const std::uint8_t* block = session.slab().block(static_cast<std::int64_t>(id));
    content.insert(content.end(), block, block + stride);
  }
  const auto count = static_cast<std::int64_t>(ids.size());
  TensorWriter writer;
  writer.add("ids", ElementType::kI32, {count}, ids);
  writer.add("blocks", ElementType::kU8, {count, stride}, content);
  auto size = writer.write(folder_ + "/" + step_file("cache", step), Sync::kSoon);
  if (!size) return size.error();
  if (auto ok = check_blocks(session, step); !ok) return ok;
  digest = hex64(size->digest);
  bytes = size->bytes;
  totals_.bytes += size->bytes;
  index_.cache_steps.push_back(step);
  return {};
}

// What was written against the pool, block by block.
Result<void> CaptureWriter::check_blocks(const Session& session, std::int64_t step) const {
  auto file = TensorFile::open(folder_ + "/" + step_file("cache", step));
  if (!file) return file.error();
  auto ids = file->get("ids");
  auto blocks = file->get("blocks");
  if (!ids || !blocks) return (!ids ? ids : blocks).error();
  const auto stride = static_cast<std::size_t>(session.slab().own_bytes());
  for (std::int64_t i = 0; i < (*ids)->elements; ++i) {
    const auto id = entry_value<std::int32_t>(**ids, i);
    const std::uint8_t* kept = (*blocks)->data + static_cast<std::size_t>(i) * stride;
    if (std::memcmp(kept, session.slab().block(id), stride) == 0) continue;
    return internal_error(
        fmt::format("step {}: block {} was kept with other bytes than the pool has", step, id));
  }
  return {};
}

bool CaptureWriter::keeps_blocks(std::int64_t step) const {
  return std::ranges::find(options_.cache_steps, step) != options_.cache_steps.end();
}

Result<void> CaptureWriter::add(const StepSummary& summary, const StepTrace* trace,
                                const Session* session) {
  StepLine line;
  line.summary = summary;
  if (summary.cache_events) line.cache_events = *summary.cache_events;
  if (trace != nullptr) {
    TensorWriter payload;
    const TraceEntry entry =
        TraceWriter(options_).describe(*trace, payload, options_.weights ? &weights_ : nullptr);
    if (!payload.empty()) {
      auto size = payload.write(folder_ + "/" + step_file("payload", summary.step), Sync::kSoon);
      if (!size) return explain(size.error());
      line.payload = {size->bytes, hex64(size->digest)};
      totals_.bytes += size->bytes;
    }
    for (const auto& op : trace->ops) {
      for (const TapCopy& tap : op->taps) {
        const bool known = !weight_owners_.empty() && weight_owners_.back() == tap.owner;
        if (options_.weights && !known && is_weight(tap)) {
          weight_owners_.push_back(tap.owner);
        }
      }
    }
    const std::string text = checked_line(to_json_text(entry));
    line.trace = {traces_bytes_, text.size() - 1};
    if (auto ok = append(traces_, "traces.jsonl", text); !ok) return explain(ok.error());
    traces_bytes_ += text.size();
  }
  if (keeps_blocks(summary.step) && session != nullptr) {
    if (auto ok = add_blocks(*session, summary.step, line.cache.digest, line.cache.bytes); !ok) {
      return explain(ok.error());
    }
  }
  // Last: a step is there when its line is.
  std::string text = to_json_text(line);
  put_coverage(summary, text);
  if (auto ok = append(steps_, "steps.jsonl", checked_line(text)); !ok) {
    return explain(ok.error());
  }
  ++totals_.steps;
  return {};
}

Result<CaptureTotals> CaptureWriter::finish() {
  if (totals_.steps == 0) return bad_input(path_ + ": nothing to record: no step is complete");
  if (!weights_.empty()) {
    auto size = weights_.write(folder_ + "/weights.safetensors", Sync::kNo);
    if (!size) return explain(size.error());
    totals_.bytes += size->bytes;
    index_.weights = true;
  }
  // Everything that was written, at once: it was not synced step by step.
  const bool synced = ::syncfs(steps_) == 0;
  const int why = errno;
  ::close(traces_);
  traces_ = -1;
  if (!synced) return explain(capture_error(folder_, "cannot sync", why));
  index_.complete = true;
  index_.steps = totals_.steps;
  index_.bytes = totals_.bytes;
  if (auto ok = write_text_file(folder_ + "/index.json", index_text(index_)); !ok) {
    return explain(ok.error());
  }
  finished_ = true;
  ::close(steps_);  // held until nothing more is written
  steps_ = -1;
  if (folder_ != path_) {
    if (auto ok = replace_folder(folder_, path_); !ok) return explain(ok.error());
  }
  return totals_;
}

}  // namespace attnscope
