#include "app/common/capture_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>

#include "app/common/capture_record.h"
#include "app/common/own_judge.h"
#include "app/common/private_folder.h"
#include "engine/capture/op_blame.h"
#include "engine/trace/tolerances.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;
using Made = Result<std::shared_ptr<const RunPair>>;

// A comparison with the folder that holds its copy of a session; the folder goes with it.
struct WithCopy {
  RunPair comparison;
  fs::path folder;
  WithCopy() = default;
  WithCopy(const WithCopy&) = delete;
  WithCopy& operator=(const WithCopy&) = delete;
  ~WithCopy() {
    std::error_code code;
    if (!folder.empty()) fs::remove_all(folder, code);
  }
};

Result<void> copy_session(const Snapshot& snapshot, const Scenario& scenario, WithCopy& made) {
  auto folder = make_private_folder();
  if (!folder) return folder.error();
  made.folder = *folder;
  const std::string copy = *folder + "/session.acap";
  auto written = write_capture(snapshot, scenario, copy);
  if (!written) return written.error();
  auto opened = Capture::open(copy);
  if (!opened) return opened.error();
  made.comparison.a = std::move(*opened);
  const auto& steps = made.comparison.a->summaries();
  made.comparison.name_a =
      fmt::format("the session, steps {} to {}", steps.front()->step, steps.back()->step);
  return {};
}

bool beyond(DiffVerdict verdict) {
  return verdict == DiffVerdict::kOrigin || verdict == DiffVerdict::kInherited ||
         verdict == DiffVerdict::kDiffers;
}

int badness(DiffVerdict verdict) {
  switch (verdict) {
    case DiffVerdict::kOrigin:
      return 5;
    case DiffVerdict::kDiffers:
      return 4;
    case DiffVerdict::kInherited:
      return 3;
    case DiffVerdict::kUnknown:
      return 1;
    default:
      return 2;
  }
}

void note_the_worst(RunPair& pair) {
  for (std::size_t i = 0; i < pair.diff.ops.size(); ++i) {
    const OpDiff& op = pair.diff.ops[i];
    auto [of_op, first_of_op] = pair.worst.try_emplace({op.a.step, op.a.layer, op.a.op}, i);
    if (!first_of_op && badness(op.verdict) > badness(pair.diff.ops[of_op->second].verdict)) {
      of_op->second = i;
    }
    if (!beyond(op.verdict)) continue;
    auto [cell, first] = pair.parted.try_emplace({op.a.step, op.a.layer}, op.verdict);
    if (!first && badness(op.verdict) > badness(cell->second)) cell->second = op.verdict;
  }
}

Made compare_sides(const std::shared_ptr<WithCopy>& made, const Snapshot& snapshot,
                   const Scenario& scenario, const std::function<bool(double)>& go_on) {
  RunPair& c = made->comparison;
  if (!c.a) {
    if (auto ok = copy_session(snapshot, scenario, *made); !ok) return ok.error();
  }
  auto tolerances = Tolerances::load();
  if (!tolerances) return tolerances.error();
  auto diff = diff_captures(*c.a, *c.b, *tolerances, go_on, reference_judge(*tolerances));
  if (!diff) return diff.error();
  c.diff = std::move(*diff);
  note_the_worst(c);
  return std::shared_ptr<const RunPair>(made, &c);
}

}  // namespace

std::optional<DiffVerdict> RunPair::verdict(const Place& place) const {
  if (!diff.compared.contains(place.step)) return std::nullopt;
  const OpDiff* op = find(place);
  return op != nullptr ? op->verdict : DiffVerdict::kEqual;
}

const OpDiff* RunPair::find(const Place& place) const {
  const auto at = worst.find({place.step, place.layer, place.op});
  return at == worst.end() ? nullptr : &diff.ops[at->second];
}

const OpDiff* RunPair::next(const Place& from) const {
  // In causal order: behind the op itself, or behind its step when it is none of these.
  const auto here = std::ranges::find_if(diff.ops.rbegin(), diff.ops.rend(),
                                         [&](const OpDiff& op) { return op.a == from; });
  auto at = here.base();
  if (here == diff.ops.rend()) {
    at = std::ranges::find_if(diff.ops, [&](const OpDiff& op) { return op.a.step > from.step; });
  }
  at = std::find_if(at, diff.ops.end(), [](const OpDiff& op) { return beyond(op.verdict); });
  return at == diff.ops.end() ? nullptr : &*at;
}

std::string RunPair::sentence() const {
  std::string text = blameless_text(diff), open = open_text(diff);
  if (!open.empty()) open = " " + open;
  if (diff.first) {
    if (!text.empty()) text += " ";
    return text + diff.first->text + "." + open;
  }
  return fmt::format(
             "No op's output differs beyond its tolerance: {} tokens of {} steps are in both, {} "
             "ops have the same bits and {} are within tolerance.",
             diff.tokens, diff.steps, diff.count(DiffVerdict::kEqual),
             diff.count(DiffVerdict::kWithin)) +
         open;
}

Result<ComparedToken> locate(const RunPair& c, std::int64_t step, std::int32_t request,
                             std::int64_t position) {
  ComparedToken out;
  const bool known = std::ranges::any_of(
      c.a->summaries(), [&](const auto& summary) { return summary->step == step; });
  if (!known) return out;
  auto a = c.a->trace(step);
  if (!a) return a.error();
  out.a = std::move(*a);
  if (!out.a || out.a->kept.empty()) return out;
  const auto place = [&](std::int32_t row) {
    out.row_a = row;
    out.request_a = out.a->request_of(row);
    out.position = out.a->metadata.positions[static_cast<std::size_t>(row)];
  };
  place(out.a->kept.back());
  for (const std::int32_t row : out.a->kept) {
    if (out.a->request_of(row) == request) place(row);
  }
  for (const std::int32_t row : out.a->kept) {
    if (out.a->request_of(row) == request &&
        out.a->metadata.positions[static_cast<std::size_t>(row)] == position) {
      place(row);
    }
  }
  const auto r = static_cast<std::size_t>(out.request_a);
  if (r >= c.diff.requests.size() || c.diff.requests[r] < 0) return out;
  out.request_b = c.diff.requests[r];
  const auto at = c.diff.where.find({out.request_b, out.position});
  if (at == c.diff.where.end()) return out;
  auto b = c.b->trace(at->second.step);
  if (!b) return b.error();
  out.b = std::move(*b);
  if (out.b) out.row_b = at->second.row;
  return out;
}

CompareSession::~CompareSession() {
  if (state_) state_->stopped = true;
  wait();
}

Result<void> CompareSession::open(const Workbench& bench, const std::string& path) {
  if (running()) return usage_error("a comparison is running", "wait for it");
  if (bench.snapshot() == nullptr) {
    return usage_error("there is nothing to compare with", "open a scenario or a capture first");
  }
  auto second = Capture::open(path);
  if (!second) return second.error();
  auto state = std::make_shared<State>();
  auto made = std::make_shared<WithCopy>();
  made->comparison.b = std::move(*second);
  made->comparison.name_b = path;
  if (bench.capture() != nullptr) {
    auto first = Capture::open(bench.capture()->path());
    if (!first) return first.error();
    made->comparison.a = std::move(*first);
    made->comparison.name_a = bench.capture()->path();
  }
  work_ = std::async(std::launch::async,
                     [made, state, snapshot = bench.shared_snapshot(),
                      scenario = bench.setup().scenario]() -> Made {
                       try {
                         return compare_sides(made, *snapshot, scenario, [&](double share) {
                           state->share = share;
                           return !state->stopped;
                         });
                       } catch (const std::exception& e) {  // no memory, say
                         return internal_error(fmt::format("it was given up: {}", e.what()));
                       }
                     });
  path_ = path;
  state_ = std::move(state);
  error_.clear();
  ++version_;
  return {};
}

void CompareSession::close() {
  if (state_) state_->stopped = true;
  wait();
  result_.reset();
  path_.clear();
  error_.clear();
  ++version_;
}

void CompareSession::wait() {
  if (work_.valid()) work_.wait();
  poll();
}

bool CompareSession::poll() {
  if (!work_.valid() || work_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return false;
  }
  Made made = work_.get();
  if (made) {
    result_ = std::move(*made);
  } else {
    error_ = made.error().text();
  }
  ++version_;
  return true;
}

}  // namespace attnscope
