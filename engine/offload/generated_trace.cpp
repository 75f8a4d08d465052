#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "engine/io/stopped.h"
#include "engine/model/synthetic_fill.h"
#include "engine/offload/selection_trace.h"

namespace attnscope {
namespace {

// A stream of numbers of its own for a layer and a request.
class Draws {
 public:
  explicit Draws(std::uint64_t key) : key_(key) {}
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(element_hash(key_, next_++) % static_cast<std::uint64_t>(n));
  }
  bool chance(double share) { return static_cast<double>(below(1 << 30)) < share * (1 << 30); }

 private:
  std::uint64_t key_, next_ = 0;
};

// The selections of one request in one layer, step by step.
class SelectingRequest {
 public:
  SelectingRequest(const GeneratorOptions& options, int layer, std::int32_t request)
      : options_(options),
        request_(request),
        draws_(mix64(options.seed) ^ mix64(static_cast<std::uint64_t>(layer) << 32 |
                                           static_cast<std::uint32_t>(request))) {
    for (std::int64_t i = 0; i < options.hot_rows; ++i) {
      hot_.push_back(static_cast<std::int32_t>(draws_.below(options.context)));
    }
  }

  // The selection of the token at `position`, which sees the rows up to its own.
  const std::vector<HostRow>& select(std::int64_t position) {
    const std::int64_t k = std::min(options_.topk, position + 1);
    const auto keep = std::min<std::int64_t>(
        std::ssize(now_), std::llround(options_.overlap * static_cast<double>(k)));
    // Those that leave are drawn, the others keep their order.
    while (std::ssize(now_) > keep) {
      now_.erase(now_.begin() + draws_.below(std::ssize(now_)));
    }
    std::unordered_set<std::int32_t> have;
    for (const HostRow& row : now_) have.insert(row.row);
    const auto own = static_cast<std::int32_t>(position);
    if (have.insert(own).second && std::ssize(now_) < k) now_.push_back({request_, own});
    while (std::ssize(now_) < k) {
      const bool hot = !hot_.empty() && draws_.chance(options_.hot_share);
      std::int64_t row = hot ? hot_[static_cast<std::size_t>(draws_.below(std::ssize(hot_)))]
                             : draws_.below(position + 1);
      // A row that is selected already hands on to the next: the list gets full in any case.
      while (row > position || !have.insert(static_cast<std::int32_t>(row)).second) {
        row = row >= position ? 0 : row + 1;
      }
      now_.push_back({request_, static_cast<std::int32_t>(row)});
    }
    return now_;
  }

 private:
  const GeneratorOptions& options_;
  std::int32_t request_;
  Draws draws_;
  std::vector<std::int32_t> hot_;
  std::vector<HostRow> now_;
};

constexpr std::int64_t kMostRows = std::int64_t{1} << 28;  // 3 GiB of them

Result<void> check_generator(const GeneratorOptions& o) {
  const auto refuse = [](const char* what, double value, const char* range) -> Result<void> {
    return usage_error(fmt::format("{} {}: out of range", what, value), range);
  };
  const auto in = [](std::int64_t v, std::int64_t low, std::int64_t high) {
    return v >= low && v <= high;
  };
  if (!in(o.context, 1, 1 << 24)) {
    return refuse("--context", static_cast<double>(o.context), "1 to 16777216 rows");
  }
  if (!in(o.batch, 1, 1024)) {
    return refuse("--batch", static_cast<double>(o.batch), "1 to 1024 requests");
  }
  if (!in(o.topk, 1, o.context)) {
    return refuse("--top-k", static_cast<double>(o.topk), "1 to the rows of the context");
  }
  if (!in(o.steps, 1, 1 << 20)) {
    return refuse("--steps", static_cast<double>(o.steps), "1 to 1048576");
  }
  if (!in(o.layers, 1, 1024)) {
    return refuse("--layers", static_cast<double>(o.layers), "1 to 1024");
  }
  // Rows of all selections, those of prefill among them.
  const std::int64_t selections = o.batch * o.layers * (o.steps + kWarmWindows);
  if (selections > kMostRows / o.topk) {
    return usage_error(fmt::format("batch {}, layers {}, steps {} and top-k {}: more rows than {} "
                                   "are selected",
                                   o.batch, o.layers, o.steps, o.topk, kMostRows),
                       "choose smaller ones");
  }
  if (!(o.overlap >= 0 && o.overlap <= 1)) return refuse("--overlap", o.overlap, "0 to 1");
  if (!in(o.hot_rows, 0, o.context)) {
    return refuse("--hot-rows", static_cast<double>(o.hot_rows), "0 to the rows of the context");
  }
  if (!(o.hot_share >= 0 && o.hot_share <= 1)) return refuse("--hot-share", o.hot_share, "0 to 1");
  return {};
}

}  // namespace

Result<SelectionTrace> generated_trace(const GeneratorOptions& options,
                                       const std::atomic<bool>* stop) {
  if (auto ok = check_generator(options); !ok) return ok.error();
  SelectionTrace trace;
  trace.source = fmt::format(
      "generated: context {}, batch {}, top-k {}, overlap {}, steps {}, layers {}, seed {}",
      options.context, options.batch, options.topk, options.overlap, options.steps, options.layers,
      options.seed);
  if (options.hot_rows > 0) {
    trace.source +=
        fmt::format(", {} of the rest from {} hot rows", options.hot_share, options.hot_rows);
  }
  trace.context = options.context + options.steps;
  trace.requests = options.batch;
  trace.rows = trace.context * options.batch;
  trace.row_bytes = options.row_bytes;
  trace.index_bytes = options.index_bytes;
  trace.steps.resize(static_cast<std::size_t>(options.steps));
  for (int layer = 0; layer < options.layers; ++layer) {
    trace.layers.push_back(layer);
    std::vector<HostRow> warm;
    std::vector<SelectingRequest> requests;
    for (std::int64_t r = 0; r < options.batch; ++r) {
      requests.emplace_back(options, layer, static_cast<std::int32_t>(r));
    }
    const std::int64_t windows = std::min<std::int64_t>(kWarmWindows, options.context);
    for (std::int64_t at = options.context - windows; at < options.context; ++at) {
      if (is_stopped(stop)) return stopped_error();
      for (SelectingRequest& request : requests) {
        const auto& rows = request.select(at);
        warm.insert(warm.end(), rows.begin(), rows.end());
      }
    }
    for (std::int64_t s = 0; s < options.steps; ++s) {
      if (is_stopped(stop)) return stopped_error();
      SelectionStep& step = trace.steps[static_cast<std::size_t>(s)];
      step.step = s;
      step.tokens = options.batch;
      step.context = options.context + s + 1;
      LayerSelection& out = step.layers.emplace_back();
      if (s == 0) out.warm.swap(warm);
      for (std::int64_t r = 0; r < options.batch; ++r) {
        const std::int64_t position = options.context + s;
        const auto& rows = requests[static_cast<std::size_t>(r)].select(position);
        out.selected.insert(out.selected.end(), rows.begin(), rows.end());
        if (options.batch > 1) {
          out.halves.resize(out.selected.size(), 2 * r < options.batch ? 1 : 2);
        }
        out.written.push_back({static_cast<std::int32_t>(r), static_cast<std::int32_t>(position)});
      }
    }
  }
  return trace;
}

}  // namespace attnscope
