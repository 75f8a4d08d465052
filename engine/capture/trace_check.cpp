#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "engine/capture/trace_io.h"
#include "engine/model/numbers.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Keeps the first thing that does not hold.
class Check {
 public:
  bool ok() const { return wrong_.empty(); }
  const std::string& wrong() const { return wrong_; }
  void that(bool holds, const char* what) {
    if (!holds && wrong_.empty()) wrong_ = what;
  }
  template <class T, class A>
  void size(const std::vector<T, A>& list, std::int64_t expected, const char* name) {
    if (wrong_.empty() && static_cast<std::int64_t>(list.size()) != expected) {
      wrong_ = fmt::format("{} has {} elements, expected {}", name, list.size(), expected);
    }
  }
  // Every element in [low, high].
  template <class T>
  void range(const std::vector<T>& list, std::int64_t low, std::int64_t high, const char* name) {
    if (!wrong_.empty()) return;
    for (const T v : list) {
      if (v >= low && v <= high) continue;
      wrong_ = fmt::format("{} holds {}, expected {} to {}", name, v, low, high);
      return;
    }
  }
  template <class T>
  void ascending(const std::vector<T>& list, const char* name) {
    if (!std::is_sorted(list.begin(), list.end())) that(false, name);
  }

 private:
  std::string wrong_;
};

// Nothing, or as many as expected: lists that only some models have.
template <class T>
void size_if_any(Check& check, const std::vector<T>& list, std::int64_t expected,
                 const char* name) {
  if (!list.empty()) check.size(list, expected, name);
}

void check_metadata(Check& check, const StepMetadata& m, const SessionInfo& info) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  constexpr std::int64_t kWidest = std::int64_t{1} << 24;  // positions that a model has at most
  const std::int64_t rows = m.num_live(), tokens = m.num_tokens_in_step();
  const std::int64_t groups = to_count(info.layout.groups.size());
  const std::int64_t blocks = info.num_blocks;
  check.that(
      m.columns >= 0 && m.columns <= kWidest && m.list_columns >= 0 && m.list_columns <= kWidest,
      "table columns are out of range");
  check.that(rows <= to_count(info.request_names.size()), "more requests are live than there are");
  if (!check.ok()) return;
  check.range(m.live, 0, to_count(info.request_names.size()) - 1, "live");
  check.size(m.num_tokens, rows, "num_tokens");
  check.size(m.num_before, rows, "num_before");
  check.size(m.running, rows, "running");
  check.size(m.joins, rows, "joins");
  check.size(m.lost_to, rows, "lost_to");
  check.range(m.lost_to, -1, rows - 1, "lost_to");
  check.size(m.matching, rows, "matching");
  check.size(m.num_computed, rows, "num_computed");
  check.size(m.num_scheduled_tokens, rows, "num_scheduled_tokens");
  check.size(m.groups, groups * 2, "groups");
  check.size(m.blocks, groups * rows * m.columns, "blocks");
  check.range(m.blocks, 0, blocks - 1, "blocks");
  check.size(m.tables_before, groups * rows * m.columns, "tables_before");
  check.size(m.tables, groups * rows * m.columns, "tables");
  check.range(m.tables_before, 0, blocks - 1, "tables_before");
  check.range(m.tables, 0, blocks - 1, "tables");
  check.size(m.counts_before, groups * rows, "counts_before");
  check.size(m.counts, groups * rows, "counts");
  check.range(m.counts_before, 0, m.columns, "counts_before");
  check.range(m.counts, 0, m.columns, "counts");
  check.size(m.tokens, tokens, "tokens");
  check.range(m.tokens, 0, kMostTokens - 1, "tokens");
  check.range(m.positions, 0, kMany, "positions");
  check.size(m.token_to_req, tokens, "token_to_req");
  check.range(m.token_to_req, 0, rows - 1, "token_to_req");
  check.size(m.query_start_loc, rows + 1, "query_start_loc");
  check.range(m.query_start_loc, 0, tokens, "query_start_loc");
  check.ascending(m.query_start_loc, "query_start_loc does not ascend");
  check.size(m.seq_lens, rows, "seq_lens");
  check.range(m.sample_rows, 0, tokens - 1, "sample_rows");
  check.size(m.sample_request, to_count(m.sample_rows.size()), "sample_request");
  check.range(m.sample_request, 0, rows - 1, "sample_request");
  check.size(m.slots, groups * tokens, "slots");
  for (const StepTensor& tensor : m.own) {
    if (tensor.empty() && !tensor.always) continue;
    if (tensor.lengths >= 0) {
      const StepTensor& lengths = m.own[static_cast<std::size_t>(tensor.lengths)];
      check.size(lengths.numbers, tokens, lengths.name);
    }
    tensor.values([&](const auto& values) {
      check.size(values, tensor.size(tokens, m.list_columns), tensor.name);
    });
  }
}

void check_step(Check& check, const StepTrace& t, const SessionInfo& info) {
  const std::int64_t blocks = info.num_blocks, requests = to_count(info.request_names.size());
  check.range(t.kept, 0, t.metadata.num_tokens_in_step() - 1, "kept");
  check.ascending(t.kept, "kept does not ascend");
  check.range(t.free_list, 1, blocks - 1, "free_list");
  check.range(t.fresh, 1, blocks - 1, "fresh");
  check.range(t.freed, 1, blocks - 1, "freed");
  check.range(t.sampled, -1, kMostTokens - 1, "sampled");
  size_if_any(check, t.sampled, t.metadata.num_live(), "sampled");
  check.size(t.requests, requests, "requests");
  for (std::size_t r = 0; r < t.requests.size() && check.ok(); ++r) {
    const Request& request = t.requests[r].request;
    const std::int64_t known = request.num_tokens();
    check.that(request.id == static_cast<std::int32_t>(r), "requests are not in the order of ids");
    check.range(request.tokens, 0, kMostTokens - 1, "tokens of a request");
    check.that(request.computed >= 0 && request.computed <= known && request.prompt_tokens >= 0 &&
                   request.prompt_tokens <= known,
               "lengths of a request do not fit each other");
    for (const auto& table : t.requests[r].tables) check.range(table, 0, blocks - 1, "a table");
  }
  const auto of_a_request = [&](const StepWhy& why) {
    check.that(why.request >= -1 && why.request < requests, "a reason is of no request");
  };
  std::ranges::for_each(t.misses, of_a_request);
  of_a_request(t.waiting);
  size_if_any(check, t.common_prefix, to_count(info.layout.groups.size()), "common_prefix");
  check.range(t.common_prefix, 0, blocks - 1, "common_prefix");
  check.size(t.owners, blocks, "owners");
  for (const BlockOwner& o : t.owners) {
    check.that(o.request >= -1 && o.request < requests && o.writer >= -1 && o.writer < requests &&
                   o.group >= -1 && o.group < to_count(info.layout.groups.size()) && o.index >= -1,
               "a block's owner is none of the requests or groups");
  }
  for (const BlockKey& k : t.keys) {
    check.that(k.block >= 0 && k.block < blocks && k.group >= -1 &&
                   k.group < to_count(info.layout.groups.size()),
               "a key belongs to no block");
  }
  for (const CacheEvent& e : t.cache_events) {
    check.that(e.block >= -1 && e.block < blocks && e.kind >= CacheEventKind::kAllocate &&
                   static_cast<int>(e.kind) < kCacheEventKinds && e.reason >= CacheReason::kNone &&
                   static_cast<int>(e.reason) < kCacheReasons,
               "a block event is of no known kind");
  }
}

// The tokens' axis has the kept rows, the heads' axis the model's heads, and so on.
void check_axes(Check& check, const TapCopy& tap, const StepTrace& t, const SessionInfo& info,
                bool head) {
  std::string_view axes = tap.axes;
  std::int32_t axis = 0;
  for (; !axes.empty(); ++axis) {
    const std::size_t end = std::min(axes.find(','), axes.size());
    const std::string_view letter = axes.substr(0, end);
    axes.remove_prefix(std::min(axes.size(), end + 1));
    if (axis >= tap.value.rank) break;
    const std::int64_t n = tap.value.shape[axis];
    if (letter == "T")
      check.that(n == to_count(t.kept.size()), "a tap has other rows than were kept");
    if (letter == "N" && head && axis == 0) {
      check.that(n == to_count(t.metadata.sample_rows.size()),
                 "a tap has other rows than were sampled");
    }
    if (letter == "H") check.that(n == info.config.heads, "a tap has other heads than the model");
    if (letter == "W") check.that(n == info.config.window, "a tap has another window");
    if (letter == "R") {  // query_start_loc has the end of the last one as well
      const std::int64_t live = t.metadata.num_live();
      // Where attention is in chunks, its rows are sequences, of which there are up to T.
      const bool sequences =
          !info.layout.chunk_groups.empty() && n == t.metadata.num_tokens_in_step();
      check.that(n == live || (n == live + 1 && tap.name == "query_start_loc") || sequences,
                 "a tap has other requests");
    }
    if (letter == "L") {
      const std::int64_t tokens = t.metadata.num_tokens_in_step();
      check.that(n == tokens || (n == tokens + 1 && tap.name == "local_query_start_loc"),
                 "a tap has other sequences");
    }
    // Groups of caches stand first; behind tokens it is heads that share a KV head.
    if (letter == "G" && axis == 0) {
      check.that(n == to_count(info.layout.groups.size()), "a tap has other groups");
    }
    if (letter == "G" && axis > 0) {
      check.that(n == info.config.kv_heads, "a tap has other KV heads than the model");
    }
    if (letter == "K") {  // or the list of a C128A layer, which is as wide as its entries need
      check.that(n <= std::max<std::int64_t>(info.config.index_topk, t.metadata.list_columns),
                 "a tap has a larger top-k");
    }
  }
  check.that(axis == tap.value.rank, "a tap's axes are not its shape's");
  if (present(tap.reference)) {
    check.that(
        tap.reference.rank == tap.value.rank &&
            std::equal(tap.value.shape, tap.value.shape + tap.value.rank, tap.reference.shape),
        "a tap's reference has another shape");
    check.that(tap.reference.dtype == AS_F64 || tap.reference.dtype == tap.value.dtype,
               "a tap's reference has another type");
  }
}

// The last slot that rows of the trace may lie in. Pools of rows are behind all blocks, and as
// large as a list's numbers reach.
std::int64_t last_slot(const SessionInfo& info, std::int64_t rows_per_block) {
  if (info.config.host_rows) return std::numeric_limits<std::int32_t>::max();
  return info.num_blocks * std::max<std::int64_t>(1, rows_per_block) - 1;
}

void check_rows(Check& check, const RowsCopy& r, const StepTrace& t, const SessionInfo& info) {
  const std::int64_t rows = to_count(r.tokens.size());
  const as_row_layout one = as_row_layout_of(r.record, r.width, r.heads, 1);
  check.that(one.format != nullptr && r.width > 0 && r.width <= 1 << 16 && r.row_bytes == one.row,
             "cache rows are of no known record");
  if (!check.ok()) return;
  check.that(r.group >= 0 && r.group < to_count(info.layout.groups.size()) &&
                 r.rows_per_block > 0 && r.rows_per_block <= 1 << 20,
             "cache rows are of no group");
  check.size(r.slots, rows, "slots of cache rows");
  check.range(r.tokens, 0, t.metadata.num_tokens_in_step() - 1, "tokens of cache rows");
  check.range(r.slots, 0, last_slot(info, r.rows_per_block), "slots of cache rows");
  check.size(r.bytes, rows * r.row_bytes, "bytes of cache rows");
}

void check_attention(Check& check, const AttentionCopy& a, const StepTrace& t,
                     const SessionInfo& info) {
  const std::int64_t kept = to_count(t.kept.size());
  // Without window lists the window is as long as what a token sees.
  constexpr std::int64_t kMostColumns = std::int64_t{1} << 24;
  const bool lists = !info.layout.swa_groups.empty();
  const bool window =
      lists ? a.window == info.config.window : a.window >= 0 && a.window <= kMostColumns;
  check.that(a.heads == info.config.heads && window && a.extra >= 0 && a.extra <= kMostColumns,
             "attention weights have other heads or another window than the model");
  if (!check.ok()) return;
  const std::int64_t columns = a.window + a.extra;
  check.size(a.slots, kept * columns, "slots of attention");
  check.size(a.window_len, kept, "window lengths of attention");
  check.size(a.extra_len, kept, "list lengths of attention");
  check.range(a.window_len, 0, a.window, "window lengths of attention");
  check.range(a.extra_len, 0, a.extra, "list lengths of attention");
  check.size(a.logits, kept * a.heads * columns, "logits of attention");
  check.size(a.weights, kept * a.heads * columns, "weights of attention");
  check.size(a.sink_mass, kept * a.heads, "sink mass of attention");
  check.size(a.sinks, a.heads, "sinks of attention");
}

// What CUDA allows: CUDA C++ Programming Guide, technical specifications by compute capability.
void check_launch(Check& check, const KernelLaunch& k) {
  constexpr std::int64_t kWide = (std::int64_t{1} << 31) - 1, kHigh = 65535, kThreads = 1024;
  const auto within = [](const LaunchExtent& e, std::int64_t x, std::int64_t y, std::int64_t z) {
    return e.x >= 1 && e.x <= x && e.y >= 1 && e.y <= y && e.z >= 1 && e.z <= z;
  };
  check.that(within(k.grid, kWide, kHigh, kHigh) && within(k.block, kThreads, kThreads, 64) &&
                 within(k.cluster, kThreads, kThreads, kThreads),
             "a launch has a grid that no GPU takes");
  for (const std::int64_t n :
       {k.registers, k.static_shared, k.dynamic_shared, k.local, k.at_once}) {
    check.that(n >= 0 && n <= kWide, "a launch has numbers that no GPU has");
  }
}

void check_launches(Check& check, const OpLaunches& launches) {
  for (const std::int64_t n : {launches.major, launches.minor, launches.multiprocessors}) {
    check.that(n >= 0 && n <= 1 << 20, "launches are of no GPU");
  }
  for (const KernelLaunch& kernel : launches.kernels) check_launch(check, kernel);
}

}  // namespace

std::string check_trace(const StepTrace& trace, const SessionInfo& info) {
  Check check;
  // A summary has no tables, and then no tensors either.
  const bool tables = !trace.owners.empty();
  if (tables) {
    check_metadata(check, trace.metadata, info);
    if (check.ok()) check_step(check, trace, info);
  }
  for (const auto& op : trace.ops) {
    if (!check.ok()) return fmt::format("step {}: {}", trace.step, check.wrong());
    const bool head = as_op_find(op->place.op)->phase == AS_PHASE_AFTER;
    check_launches(check, op->launches);
    for (const TapCopy& tap : op->taps) check_axes(check, tap, trace, info, head);
    for (const RowsCopy& rows : op->rows) check_rows(check, rows, trace, info);
    if (op->attention) check_attention(check, *op->attention, trace, info);
    if (!check.ok()) {
      return fmt::format("step {}, layer {}, {}: {}", trace.step, op->place.layer,
                         as_op_find(op->place.op)->name, check.wrong());
    }
  }
  return check.ok() ? "" : fmt::format("step {}: {}", trace.step, check.wrong());
}

}  // namespace attnscope
