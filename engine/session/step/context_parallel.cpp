#include "engine/session/step/context_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "engine/backend/call_op.h"
#include "engine/cache/dealt_cache.h"
#include "engine/io/elapsed.h"
#include "engine/model/numbers.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/params/row_access.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr float kNoRows = -std::numeric_limits<float>::infinity();

// The tap of this name where the op has it.
as_tensor* tensor_of(OpParams& params, std::string_view name) {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind == AS_TAP_TENSOR && name == tap.name) return &params.tensor(tap.offset);
  }
  return nullptr;
}
const as_tensor& given_tensor(const OpParams& params, std::string_view name) {
  return *tensor_of(const_cast<OpParams&>(params), name);
}

std::span<std::byte> bytes_of(const as_tensor& t) {
  return {static_cast<std::byte*>(t.data), to_size(as_tensor_numel(&t) * as_dtype_size(t.dtype))};
}

// Some heads of [T,H,..], one token behind the other.
void pack_heads(const as_tensor& from, RankHeads heads, std::vector<std::byte>& to) {
  const std::int64_t tokens = from.shape[0], all = from.shape[1];
  const std::int64_t head =
      as_tensor_numel(&from) / std::max<std::int64_t>(1, tokens * all) * as_dtype_size(from.dtype);
  const auto* data = static_cast<const std::byte*>(from.data);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::byte* first = data + (t * all + heads.first) * head;
    to.insert(to.end(), first, first + heads.count() * head);
  }
}
void unpack_heads(std::span<const std::byte> from, RankHeads heads, const as_tensor& to) {
  const std::int64_t tokens = to.shape[0], all = to.shape[1];
  const std::int64_t head =
      as_tensor_numel(&to) / std::max<std::int64_t>(1, tokens * all) * as_dtype_size(to.dtype);
  auto* data = static_cast<std::byte*>(to.data);
  const auto row = to_size(heads.count() * head);
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::memcpy(data + (t * all + heads.first) * head, from.data() + to_size(t) * row, row);
  }
}

// States that entries are made of are read whole.
bool writes_rows(const OpParams& params, const as_tap_info& tap) {
  return tap.direction == AS_TAP_OUT && params.has_cache(tap);
}

}  // namespace

ContextParallel::ContextParallel(const SessionParts& parts, const ContextSplit& split,
                                 std::int64_t num_blocks)
    : parts_(parts),
      split_(split),
      layout_(rank_layout(parts.layout, split)),
      ranks_(to_size(split.ranks)),
      transport_(std::make_unique<SimulatedTransport>()) {
  for (int rank = 0; rank < split.ranks; ++rank) {
    pages_.push_back(std::make_unique<Slab>(layout_, num_blocks));
  }
}

bool ContextParallel::inserts(as_op_id op) {
  return std::ranges::any_of(RowAccess::of(op), [](const as_cache_access& access) {
    const bool of_layer = access.role != AS_CACHE_ANY;  // nothing that moves rows
    return access.direction == AS_TAP_OUT && of_layer && is_dealt({access.role, access.nth});
  });
}
bool ContextParallel::attends(as_op_id op) {
  return op == AS_OP_PAGED_ATTENTION || op == AS_OP_MLA_ATTENTION || reads_lists(op);
}
bool ContextParallel::reads_lists(as_op_id op) {
  return op == AS_OP_SPARSE_MLA_ATTENTION || op == AS_OP_SPARSE_ATTENTION;
}
as_tensor ContextParallel::sinks_of(const OpParams& params) {
  const as_tensor* sinks = tensor_of(const_cast<OpParams&>(params), "sinks");
  return sinks != nullptr ? *sinks : no_tensor();
}

template <class F>
void ContextParallel::watched(const Calls& calls, const F& look) {
  if (calls.watch == nullptr) return;
  const auto start = std::chrono::steady_clock::now();
  look(*calls.watch);
  watch_seconds_ += seconds_since(start);
}

const CacheSpec& ContextParallel::spec_of(int layer, const OpParams& params,
                                          const as_tap_info& tap) const {
  return *parts_.layout.of_tap(layer, params.op(), tap.offset);
}

as_cache ContextParallel::cache_of(int rank, const CacheSpec& whole) const {
  const auto index = static_cast<std::size_t>(&whole - parts_.layout.specs.data());
  return pages_[to_size(rank)]->cache(layout_.specs[index]);
}

void ContextParallel::begin_step() { transport_->forget_counts(); }

void ContextParallel::poison(std::int64_t block) {
  for (const auto& pages : pages_) pages->poison(block);
}

void ContextParallel::take_over(const Slab& slab, const std::vector<std::int32_t>& groups) {
  std::vector<std::uint8_t> row;
  for (const CacheSpec& spec : parts_.layout.specs) {
    if (!is_dealt(spec)) continue;
    const as_cache whole = slab.cache(spec);
    row.resize(to_size(as_cache_row_bytes(&whole)));
    const std::int64_t rows = spec.rows_per_block, own = rows / split_.ranks;
    for (std::size_t block = 0; block < groups.size(); ++block) {
      if (groups[block] != spec.group) continue;
      for (std::int64_t i = 0; i < rows; ++i) {
        as_row_get(&whole, to_count(block) * rows + i, row.data());
        const as_cache to = cache_of(split_.owner(i), spec);
        as_row_put(&to, to_count(block) * own + split_.row(i), row.data());
      }
    }
  }
}

Result<void> ContextParallel::insert(int layer, const OpParams& whole, const StepMetadata& step,
                                     const Calls& calls) {
  slots_.clear();
  exchange_seconds_ = watch_seconds_ = 0;
  const as_op_info& info = whole.info();
  const CacheSpec* spec = nullptr;
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    if (writes_rows(whole, info.taps[i])) spec = &spec_of(layer, whole, info.taps[i]);
  }
  if (spec == nullptr) return {};  // queries alone
  slots_ = rank_slots(split_, step.positions, step.token_to_req, step.group_table(spec->group),
                      spec->block_size(), spec->tokens_per_row);
  if (calls.between != nullptr && calls.between->dealt != nullptr) calls.between->dealt(slots_);
  watched(calls, [&](ContextWatch& w) { w.dealt(layer, whole.op(), *spec, slots_); });
  for (int rank = 0; rank < split_.ranks; ++rank) {
    OpParams call = whole;
    // Queries and the row before quantisation are on every rank already.
    for (const char* name : {"q", "q_weight", "q_out", "k_row", "kv_row", "row"}) {
      if (as_tensor* t = tensor_of(call, name)) *t = no_tensor();
    }
    if (whole.op() == AS_OP_Q_ROPE_KV_INSERT) {
      // It makes queries whenever it makes rows.
      const as_tensor& q = given_tensor(whole, "q");
      *tensor_of(call, "q") = ranks_[to_size(rank)].query.make_like(q.dtype, q);
    }
    const std::vector<std::int64_t>& slots = slots_[to_size(rank)];
    *tensor_of(call, "slots") = make_tensor(slots.data(), {to_count(slots.size())});
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      if (writes_rows(call, tap))
        call.cache(tap.offset) = cache_of(rank, spec_of(layer, whole, tap));
    }
    if (auto ok = calls.op(call); !ok) {
      return Error{ok.error().code, fmt::format("rank {}: {}", rank, ok.error().message),
                   ok.error().hint};
    }
  }
  return {};
}

void ContextParallel::inserted(int layer, const OpParams& whole, const Calls& calls) {
  if (slots_.empty()) return;
  const as_tensor& all = given_tensor(whole, "slots");
  const auto* first = at<std::int64_t>(all);
  const std::vector<std::int64_t> slots(first, first + all.shape[0]);
  const as_op_info& info = whole.info();
  for (int rank = 0; rank < split_.ranks; ++rank) {
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      if (!writes_rows(whole, tap)) continue;
      watched(calls, [&](ContextWatch& w) {
        w.inserted(layer, whole.op(), tap, rank, whole.cache(tap.offset), slots,
                   cache_of(rank, spec_of(layer, whole, tap)), slots_[to_size(rank)]);
      });
    }
  }
}

std::vector<ContextParallel::Seen> ContextParallel::seen_rows(const OpParams& whole,
                                                              const CacheSpec& spec,
                                                              const StepMetadata& step) const {
  const bool paged = whole.op() == AS_OP_PAGED_ATTENTION;
  const std::int64_t window = paged ? whole.get<as_paged_attention_params>().window : 0;
  const bool chunked = spec.retention.kind == GroupKind::kChunked;
  const std::int64_t chunk = chunked ? spec.retention.window : 0;
  std::vector<Seen> seen(step.positions.size());
  for (std::size_t t = 0; t < seen.size(); ++t) {
    const std::int32_t r = step.token_to_req[t];
    if (r < 0) continue;
    const std::int64_t position = step.positions[t];
    seen[t].end = std::min<std::int64_t>(position + 1, step.seq_lens[to_size(r)]);
    if (window > 0) seen[t].first = std::max<std::int64_t>(0, position - window + 1);
    if (chunk > 0) seen[t].first = std::max(seen[t].first, position / chunk * chunk);
  }
  return seen;
}

// Which of its rows each token sees on a rank.
void ContextParallel::set_rows(int rank, const std::vector<Seen>& seen, const CacheSpec& spec,
                               const StepMetadata& step) {
  Rank& own = ranks_[to_size(rank)];
  const as_tensor tables = step.group_table(spec.group);
  const std::int64_t tokens = to_count(seen.size()), columns = tables.shape[1];
  const bool from_first = std::ranges::all_of(seen, [](const Seen& s) { return s.first == 0; });
  own.positions.assign(seen.size(), 0);
  own.token_to_req.assign(seen.size(), -1);
  own.first_rows.clear();
  own.seq_lens.clear();
  OpParams& call = own.call;
  if (from_first) {
    for (const std::int32_t length : step.seq_lens) {
      own.seq_lens.push_back(static_cast<std::int32_t>(split_.length(rank, length)));
    }
  } else {
    own.table.clear();
    own.first_rows.assign(seen.size(), 0);
    own.seq_lens.assign(seen.size(), 0);
  }
  for (std::size_t t = 0; t < seen.size(); ++t) {
    const std::int32_t request = step.token_to_req[t];
    const std::int64_t first = split_.length(rank, seen[t].first);
    const std::int64_t end = split_.length(rank, seen[t].end);
    if (request >= 0 && first < end) {
      own.token_to_req[t] = from_first ? request : static_cast<std::int32_t>(t);
      own.positions[t] = end - 1;
    }
    if (from_first) continue;
    const auto* row = at<std::int32_t>(tables, std::max(request, 0));
    own.table.insert(own.table.end(), row, row + columns);
    own.first_rows[t] = static_cast<std::int32_t>(first);
    own.seq_lens[t] = static_cast<std::int32_t>(std::max(first, end));
  }
  *tensor_of(call, "positions") = make_tensor(own.positions.data(), {tokens});
  *tensor_of(call, "token_to_req") = make_tensor(own.token_to_req.data(), {tokens});
  *tensor_of(call, "seq_lens") = make_tensor(own.seq_lens.data(), {to_count(own.seq_lens.size())});
  *tensor_of(call, "table") =
      from_first ? tables : make_tensor(own.table.data(), {tokens, columns});
  if (call.op() != AS_OP_PAGED_ATTENTION) return;
  auto& p = call.get<as_paged_attention_params>();
  p.causal = from_first ? 1 : 0;
  p.window = p.chunk = 0;
  p.first_rows = from_first ? no_tensor()
                            : make_tensor(own.first_rows.data(), {to_count(own.first_rows.size())});
  p.sinks = no_tensor();
}

// Of slots that tokens list, those of the rank, as it has them. What lists are in all stays as it
// is, and so does a plan of their tiles.
void ContextParallel::set_lists(int layer, int rank, const OpParams& whole) {
  Rank& own = ranks_[to_size(rank)];
  const auto accesses = RowAccess::of(whole.op());
  own.lists.resize(accesses.size());
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const as_tensor& list = whole.tensor(accesses[i].rows);
    if (!present(list)) continue;
    const CacheSpec& spec = *parts_.layout.of_tap(layer, whole.op(), accesses[i].cache);
    const std::int64_t rows = spec.rows_per_block;
    std::vector<std::int32_t>& slots = own.lists[i];
    slots.clear();
    for (std::int64_t t = 0; t < list.shape[0]; ++t) {
      for (std::int64_t k = 0; k < list.shape[1]; ++k) {
        const std::int64_t slot = *at<std::int32_t>(list, t, k);
        const bool is_own = slot >= 0 && split_.owner(slot % rows) == rank;
        const std::int64_t there = slot / rows * (rows / split_.ranks) + split_.row(slot % rows);
        slots.push_back(is_own ? static_cast<std::int32_t>(there) : -1);
      }
    }
    own.call.tensor(accesses[i].rows) = make_tensor(slots.data(), {list.shape[0], list.shape[1]});
  }
  if (const as_tensor sinks = sinks_of(whole); present(sinks)) {
    own.no_sinks.assign(to_size(sinks.shape[0]), kNoRows);
    *tensor_of(own.call, "sinks") = make_tensor(own.no_sinks.data(), {sinks.shape[0]});
  }
}

Result<void> ContextParallel::gather_queries(const as_tensor& q) {
  const std::int64_t heads = q.shape[1];
  for (int from = 0; from < split_.ranks; ++from) {
    const RankHeads own = rank_heads(heads, split_.ranks, from);
    if (own.count() == 0) continue;
    message_.clear();
    pack_heads(q, own, message_);
    for (int to = 0; to < split_.ranks; ++to) {
      if (auto ok = transport_->send(RankMessage::kQueries, from, to, message_); !ok) return ok;
    }
  }
  for (int to = 0; to < split_.ranks; ++to) {
    const as_tensor all = ranks_[to_size(to)].query.make_like(q.dtype, q);
    for (int from = 0; from < split_.ranks; ++from) {
      const RankHeads own = rank_heads(heads, split_.ranks, from);
      if (own.count() == 0) continue;
      message_.resize(to_size(as_tensor_numel(&q) / heads * own.count() * as_dtype_size(q.dtype)));
      if (auto ok = transport_->receive(RankMessage::kQueries, from, to, message_); !ok) return ok;
      unpack_heads(message_, own, all);
    }
    *tensor_of(ranks_[to_size(to)].call, "q") = all;
  }
  return {};
}

Result<void> ContextParallel::send_parts() {
  for (int from = 0; from < split_.ranks; ++from) {
    const OpParams& call = ranks_[to_size(from)].call;
    const as_tensor& o = given_tensor(call, "o");
    for (int to = 0; to < split_.ranks; ++to) {
      const RankHeads heads = rank_heads(o.shape[1], split_.ranks, to);
      if (heads.count() == 0) continue;
      message_.clear();
      pack_heads(o, heads, message_);
      pack_heads(given_tensor(call, "lse"), heads, message_);
      if (auto ok = transport_->send(RankMessage::kParts, from, to, message_); !ok) return ok;
    }
  }
  return {};
}

Result<void> ContextParallel::merge(int layer, int rank, as_op_id op, as_merge_states_params& merge,
                                    const Calls& calls) {
  if (calls.between != nullptr && calls.between->merging != nullptr) {
    calls.between->merging(merge);
  }
  const as_op_fn function = cpu::lane()->ops[AS_OP_MERGE_STATES];
  if (auto ok = call_op(function, &merge, calls.merge); !ok) return ok;
  if (calls.between != nullptr && calls.between->merged != nullptr) calls.between->merged(merge);
  Result<void> looked;
  watched(calls, [&](ContextWatch& w) { looked = w.merged(layer, rank, op, merge); });
  return looked;
}

// A rank's heads, of the parts of all ranks, into the outputs of the whole op.
Result<void> ContextParallel::merge_parts(int layer, int rank, const OpParams& whole,
                                          const Calls& calls) {
  const as_tensor& o = given_tensor(whole, "o");
  const as_tensor& lse = given_tensor(whole, "lse");
  const RankHeads heads = rank_heads(o.shape[1], split_.ranks, rank);
  if (heads.count() == 0) return {};
  const std::int64_t tokens = o.shape[0], own = heads.count(), size = o.shape[2];
  std::vector<int> order(static_cast<std::size_t>(split_.ranks));
  std::iota(order.begin(), order.end(), 0);
  if (calls.between != nullptr && calls.between->parts != nullptr) calls.between->parts(order);
  watched(calls, [&](ContextWatch& w) { w.merging(layer, rank, whole.op(), order); });

  // Parts as they came: bf16 is widened, so that only the sum is rounded once more.
  std::vector<std::vector<float>> values(to_size(split_.ranks)), lses(to_size(split_.ranks));
  const as_tensor came_o = received_o_.make(AS_BF16, {tokens, own, size});
  const as_tensor came_lse = received_lse_.make(AS_F32, {tokens, own});
  const std::size_t o_bytes = bytes_of(came_o).size();
  for (int from = 0; from < split_.ranks; ++from) {
    message_.resize(o_bytes + bytes_of(came_lse).size());
    if (auto ok = transport_->receive(RankMessage::kParts, from, rank, message_); !ok) return ok;
    std::memcpy(came_o.data, message_.data(), o_bytes);
    std::memcpy(came_lse.data, message_.data() + o_bytes, message_.size() - o_bytes);
    watched(calls, [&](ContextWatch& w) {
      w.received(layer, rank, from, ranks_[to_size(from)].call, heads, came_o, came_lse);
    });
    const auto* bits = at<bf16_t>(came_o);
    std::vector<float>& wide = values[to_size(from)];
    wide.resize(to_size(as_tensor_numel(&came_o)));
    std::transform(bits, bits + wide.size(), wide.begin(),
                   [](bf16_t v) { return cpu::bf16_to_float(v.bits); });
    const auto* sums = at<float>(came_lse);
    lses[to_size(from)].assign(sums, sums + tokens * own);
  }

  const std::vector<std::int64_t> shape = {tokens, own, size}, flat = {tokens, own};
  const auto as_part = [&](std::vector<float>& v, const std::vector<std::int64_t>& sizes) {
    return dense_tensor(v.data(), AS_F32, sizes);
  };
  const auto begin = to_size(order.empty() ? 0 : order.front());
  as_tensor sum = as_part(values[begin], shape), sum_lse = as_part(lses[begin], flat);
  int turn = 0;
  const auto add = [&](const as_tensor& part, const as_tensor& part_lse) -> Result<void> {
    OpParams params(AS_OP_MERGE_STATES);
    auto& merge_params = params.get<as_merge_states_params>();
    merge_params.a = sum;
    merge_params.lse_a = sum_lse;
    merge_params.b = part;
    merge_params.lse_b = part_lse;
    merge_params.out = states_[turn].make(AS_F32, shape);
    merge_params.lse = lses_[turn].make(AS_F32, flat);
    if (auto ok = merge(layer, rank, whole.op(), merge_params, calls); !ok) return ok;
    sum = merge_params.out;
    sum_lse = merge_params.lse;
    turn = 1 - turn;
    return {};
  };
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto from = to_size(order[i]);
    if (auto ok = add(as_part(values[from], shape), as_part(lses[from], flat)); !ok) return ok;
  }
  // The LSE is that without the sink. Of nothing at all merges say +inf, as sparse_attention does.
  const float nothing_lse = whole.op() == AS_OP_SPARSE_ATTENTION ? -kNoRows : kNoRows;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < own; ++h) {
      const float value = *at<float>(sum_lse, t, h);
      *at<float>(lse, t, heads.first + h) = std::isinf(value) ? nothing_lse : value;
    }
  }
  if (const as_tensor sinks = sinks_of(whole); present(sinks)) {
    const as_tensor nothing = sink_o_.make(AS_F32, shape), sink = sink_lse_.make(AS_F32, flat);
    std::ranges::fill(bytes_of(nothing), std::byte{0});
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t h = 0; h < own; ++h) {
        // One that takes all is as large as numbers are: of +inf a merge thinks that it is empty.
        *at<float>(sink, t, h) =
            std::min(*at<float>(sinks, heads.first + h), std::numeric_limits<float>::max());
      }
    }
    if (auto ok = add(nothing, sink); !ok) return ok;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < own; ++h) {
      const float* from = at<float>(sum, t, h);
      bf16_t* to = at<bf16_t>(o, t, heads.first + h);
      std::transform(from, from + size, to, [](float v) { return bf16_t{cpu::float_to_bf16(v)}; });
    }
  }
  return {};
}

Result<void> ContextParallel::attend(int layer, const OpParams& whole, const StepMetadata& step,
                                     const Calls& calls) {
  const as_op_info& info = whole.info();
  const auto caches = [&](const auto& visit) {
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      if (whole.has_cache(info.taps[i])) visit(info.taps[i], spec_of(layer, whole, info.taps[i]));
    }
  };
  const CacheSpec* spec = nullptr;
  caches([&](const as_tap_info&, const CacheSpec& of_tap) { spec = &of_tap; });
  const bool listed = reads_lists(whole.op());
  const std::vector<Seen> seen = listed ? std::vector<Seen>() : seen_rows(whole, *spec, step);
  const auto start = std::chrono::steady_clock::now();
  double attention = 0;
  watch_seconds_ = 0;
  for (Rank& rank : ranks_) rank.call = whole;
  if (auto ok = gather_queries(given_tensor(whole, "q")); !ok) return ok;
  for (int r = 0; r < split_.ranks; ++r) {
    Rank& rank = ranks_[to_size(r)];
    if (listed) {
      set_lists(layer, r, whole);
    } else {
      set_rows(r, seen, *spec, step);
    }
    caches([&](const as_tap_info& tap, const CacheSpec& of_tap) {
      rank.call.cache(tap.offset) = cache_of(r, of_tap);
    });
    const as_tensor& o = given_tensor(whole, "o");
    *tensor_of(rank.call, "o") = rank.o.make_like(o.dtype, o);
    const as_tensor& lse = given_tensor(whole, "lse");
    *tensor_of(rank.call, "lse") = rank.lse.make_like(lse.dtype, lse);
    if (calls.between != nullptr && calls.between->part != nullptr) {
      calls.between->part(whole, rank.call);
    }
    watched(calls, [&](ContextWatch& w) { w.attending(layer, r, whole, rank.call); });
    const auto began = std::chrono::steady_clock::now();
    if (auto ok = calls.op(rank.call); !ok) {
      return Error{ok.error().code, fmt::format("rank {}: {}", r, ok.error().message),
                   ok.error().hint};
    }
    attention += seconds_since(began);
    Result<void> looked;
    watched(calls, [&](ContextWatch& w) { looked = w.attended(layer, r, whole, rank.call); });
    if (!looked) return looked;
  }
  if (auto ok = send_parts(); !ok) return ok;
  for (int r = 0; r < split_.ranks; ++r) {
    if (auto ok = merge_parts(layer, r, whole, calls); !ok) return ok;
  }
  exchange_seconds_ = seconds_since(start) - attention - watch_seconds_;
  return {};
}

}  // namespace attnscope
