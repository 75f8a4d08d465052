#include "engine/session/verify/context_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "engine/backend/call_op.h"
#include "engine/model/numbers.h"
#include "engine/session/verify/evidence.h"
#include "engine/session/verify/reference_call.h"
#include "kernels/params/op_table.h"
#include "kernels/params/row_access.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

const as_tap_info& tap_named(const as_op_info& info, std::string_view name) {
  const as_tap_info* tap = info.taps;
  while (name != tap->name) ++tap;
  return *tap;
}

const as_tap_info& tap_at(const as_op_info& info, std::size_t offset) {
  const as_tap_info* tap = info.taps;
  while (offset != tap->offset) ++tap;
  return *tap;
}

const as_tensor& tensor_of_tap(const OpParams& params, std::string_view name) {
  return params.tensor(tap_named(params.info(), name).offset);
}

std::string of_rank(const char* tap, int rank) {
  return fmt::format("{}{}{}", tap, kRankTap, rank);
}

std::vector<std::uint8_t> row_bytes(const as_cache& cache, std::int64_t slot) {
  std::vector<std::uint8_t> row(to_size(as_cache_row_bytes(&cache)));
  as_row_get(&cache, slot, row.data());
  return row;
}

}  // namespace

void ContextChecks::begin_op(const StepMetadata& step, const std::string& lane) {
  step_ = &step;
  lane_ = lane;
  said_.clear();
  left_out_.assign(step.positions.size(), false);
  std::int64_t longest = 0;
  for (const std::int32_t length : step.seq_lens) longest = std::max<std::int64_t>(longest, length);
  for (const CacheGroup& group : parts_.layout.groups) {
    longest = std::max<std::int64_t>(longest, group.block_tokens);
  }
  deal(longest);
}

void ContextChecks::deal(std::int64_t tokens) {
  const ContextSplit& split = ranks_.split();
  positions_.resize(to_size(split.ranks));
  int rank = 0, left = split.interleave;
  if (!owner_.empty()) {
    // Whoever got the last one gets the next, until its run is full.
    rank = owner_.back();
    const auto run = std::ranges::find_if(owner_.rbegin(), owner_.rend(),
                                          [&](int owner) { return owner != rank; });
    left = split.interleave - static_cast<int>((run - owner_.rbegin()) % split.interleave);
    if (left == split.interleave) rank = (rank + 1) % split.ranks;
  }
  while (to_count(owner_.size()) < tokens) {
    positions_[to_size(rank)].push_back(to_count(owner_.size()));
    owner_.push_back(rank);
    if (--left > 0) continue;
    left = split.interleave;
    rank = (rank + 1) % split.ranks;
  }
}

std::int64_t ContextChecks::rows_before(int rank, std::int64_t position) const {
  const std::vector<std::int64_t>& own = positions_[to_size(rank)];
  return std::ranges::lower_bound(own, position) - own.begin();
}

std::string ContextChecks::token_words(std::size_t token) const {
  const auto request = to_size(step_->token_to_req[token]);
  return fmt::format("position {} of request {}", step_->positions[token], step_->live[request]);
}

void ContextChecks::wrong(int layer, as_op_id op, std::string tap, std::int64_t beyond,
                          std::string note) {
  if (!said_.insert(tap).second) return;
  TapResult result = wrong_result(op, std::move(tap), beyond, beyond, std::move(note));
  result.layer = parts_.config.layers[to_size(layer)];
  result.lane = lane_;
  verifier_.found(std::move(result));
}

void ContextChecks::dealt(int layer, as_op_id op, const CacheSpec& spec, const RankSlots& slots) {
  const std::int64_t rows = spec.rows_per_block / ranks_.split().ranks;
  const as_tensor table = step_->group_table(spec.group);
  for (std::size_t t = 0; t < step_->positions.size(); ++t) {
    const std::int32_t request = step_->token_to_req[t];
    const std::int64_t position = step_->positions[t];
    if (request < 0 || position >= to_count(owner_.size())) continue;
    // Of entries the one that the token completes, if any.
    const bool entries = spec.tokens_per_row > 1;
    const bool completes = (position + 1) % spec.tokens_per_row == 0;
    const std::int64_t dealt = position / spec.tokens_per_row;
    const int owner = completes ? owner_[to_size(dealt)] : -1;
    const std::int64_t row = completes ? rows_before(owner, dealt) : -1;
    const std::int64_t block = *at<std::int32_t>(table, request, position / spec.block_size());
    const std::int64_t slot = completes && block > AS_NULL_BLOCK ? block * rows + row % rows : -1;
    for (std::size_t rank = 0; rank < slots.size(); ++rank) {
      const std::int64_t expected = static_cast<int>(rank) == owner ? slot : -1;
      if (slots[rank][t] == expected) continue;
      const std::string what = entries ? fmt::format("entry {} at ", dealt) : std::string();
      wrong(layer, op, of_rank("slots", static_cast<int>(rank)), 1,
            fmt::format("{}{} is of rank {}, in slot {} there; rank {} keeps it in slot {}", what,
                        token_words(t), owner, slot, rank, slots[rank][t]));
    }
  }
}

void ContextChecks::inserted(int layer, as_op_id op, const as_tap_info& tap, int rank,
                             const as_cache& whole, const std::vector<std::int64_t>& slots,
                             const as_cache& of_rank_rows,
                             const std::vector<std::int64_t>& rank_slots) {
  std::int64_t bad = 0;
  std::size_t first = 0;
  for (std::size_t t = 0; t < rank_slots.size(); ++t) {
    if (rank_slots[t] < 0 || slots[t] < 0) continue;
    if (row_bytes(whole, slots[t]) == row_bytes(of_rank_rows, rank_slots[t])) continue;
    if (bad++ == 0) first = t;
  }
  if (bad == 0) return;
  wrong(layer, op, of_rank(tap.name, rank), bad,
        fmt::format("rank {}: the row of {} is not the one that the whole cache got", rank,
                    token_words(first)));
}

void ContextChecks::attending_lists(int layer, int rank, const OpParams& call) {
  const Shadow& shadow = verifier_.shadow();
  for (const as_cache_access& access : RowAccess::of(call.op())) {
    const as_tap_info& tap = tap_at(call.info(), access.cache);
    if (!call.has_cache(tap) || !present(call.tensor(access.rows))) continue;
    const CacheSpec& spec = *parts_.layout.of_tap(layer, call.op(), access.cache);
    const as_cache& cache = call.cache(access.cache);
    const as_cache history = shadow.cache(spec);
    const std::int64_t rows = cache.rows_per_block;
    std::int64_t bad = 0;
    std::string note;
    RowAccess::for_each(call.data(), access, [&](const RowVisit& v) {
      const auto token = to_size(v.token);
      if (step_->token_to_req[token] < 0) return;
      const std::int32_t request = step_->live[to_size(step_->token_to_req[token])];
      const std::int64_t whole =
          v.slot / rows * spec.rows_per_block + positions_[to_size(rank)][to_size(v.slot % rows)];
      const std::int64_t row = shadow.row_of(spec, whole, request);
      if (row >= 0 && row_bytes(history, row) == row_bytes(cache, v.slot)) return;
      if (bad++ == 0) {
        note =
            fmt::format("rank {}: slot {}, which {} lists, does not hold the row that was written",
                        rank, v.slot, token_words(token));
      }
      left_out_[token] = true;
    });
    if (bad == 0) continue;
    wrong(layer, call.op(), of_rank(tap.name, rank) + ".read", bad, std::move(note));
    verifier_.leave_out(left_out_);
  }
}

// Slots of the whole caches as the rows that they hold, where they are the rank's.
void ContextChecks::list_rows(int layer, int rank, const OpParams& whole, OpParams& reference) {
  const auto accesses = RowAccess::of(whole.op());
  lists_.resize(std::max(lists_.size(), accesses.size()));
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const as_cache_access& access = accesses[i];
    const as_tensor& list = whole.tensor(access.rows);
    if (!present(list)) continue;
    const CacheSpec& spec = *parts_.layout.of_tap(layer, whole.op(), access.cache);
    std::vector<std::int32_t>& rows = lists_[i];
    rows.assign(to_size(as_tensor_numel(&list)), -1);
    RowAccess::for_each(whole.data(), access, [&](const RowVisit& v) {
      const std::int32_t r = step_->token_to_req[to_size(v.token)];
      if (r < 0 || owner_[to_size(v.slot % spec.rows_per_block)] != rank) return;
      rows[to_size(v.token * list.shape[1] + v.place)] = static_cast<std::int32_t>(
          verifier_.shadow().row_of(spec, v.slot, step_->live[to_size(r)]));
    });
    reference.cache(access.cache) = verifier_.shadow().cache(spec);
    reference.tensor(access.rows) = make_tensor(rows.data(), {list.shape[0], list.shape[1]});
  }
  if (const as_tensor sinks = ContextParallel::sinks_of(whole); present(sinks)) {
    no_sinks_.assign(to_size(sinks.shape[0]), -std::numeric_limits<float>::infinity());
    reference.tensor_named("sinks") = make_tensor(no_sinks_.data(), {sinks.shape[0]});
  }
}

void ContextChecks::attending(int layer, int rank, const OpParams& whole, const OpParams& call) {
  if (ContextParallel::reads_lists(call.op())) {
    attending_lists(layer, rank, call);
    return;
  }
  const as_tensor& requests = tensor_of_tap(call, "token_to_req");
  const as_tensor& positions = tensor_of_tap(call, "positions");
  const as_tensor& lengths = tensor_of_tap(call, "seq_lens");
  const as_tensor& table = tensor_of_tap(call, "table");
  const bool paged = call.op() == AS_OP_PAGED_ATTENTION;
  const as_tensor firsts = paged ? call.get<as_paged_attention_params>().first_rows : no_tensor();
  // Rows that the rank will read, by request.
  struct Range {
    std::int64_t first = 0, end = 0;
    std::int32_t table_row = 0;
  };
  std::vector<Range> ranges(step_->live.size());
  for (std::int64_t t = 0; t < requests.shape[0]; ++t) {
    const std::int32_t r = *at<std::int32_t>(requests, t);
    if (r < 0) continue;
    const std::int64_t end =
        std::min<std::int64_t>(*at<std::int64_t>(positions, t) + 1, *at<std::int32_t>(lengths, r));
    const std::int64_t first = present(firsts) ? *at<std::int32_t>(firsts, r) : 0;
    Range& range = ranges[to_size(step_->token_to_req[to_size(t)])];
    if (range.end == 0) range = {first, end, r};
    range.first = std::min(range.first, first);
    if (end > range.end) range = {range.first, end, r};
  }
  const Shadow& shadow = verifier_.shadow();
  const as_op_info& info = call.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (!call.has_cache(tap)) continue;
    const CacheSpec& spec = *parts_.layout.of_tap(layer, whole.op(), tap.offset);
    const as_cache& cache = call.cache(tap.offset);
    const as_cache history = shadow.cache(spec);
    std::int64_t bad = 0;
    std::string note;
    for (std::size_t r = 0; r < ranges.size(); ++r) {
      const std::int32_t request = step_->live[r];
      const std::int64_t base = verifier_.space().base(request, 1);
      for (std::int64_t row = ranges[r].first; row < ranges[r].end; ++row) {
        const std::int64_t rows = cache.rows_per_block;
        const std::int32_t block = *at<std::int32_t>(table, ranges[r].table_row, row / rows);
        const std::int64_t position = positions_[to_size(rank)][to_size(row)];
        const bool known = shadow.written(spec, base + position) >= 0;
        if (known && block > AS_NULL_BLOCK &&
            row_bytes(history, base + position) ==
                row_bytes(cache, std::int64_t{block} * rows + row % rows)) {
          continue;
        }
        if (bad++ == 0) {
          note = fmt::format(
              "rank {}: row {} of request {}, position {}, is not the one that was written", rank,
              row, request, position);
        }
        for (std::size_t t = 0; t < left_out_.size(); ++t) {
          if (step_->token_to_req[t] == static_cast<std::int32_t>(r)) left_out_[t] = true;
        }
      }
    }
    if (bad > 0) wrong(layer, whole.op(), of_rank(tap.name, rank) + ".read", bad, std::move(note));
  }
  if (std::ranges::find(left_out_, true) != left_out_.end()) verifier_.leave_out(left_out_);
}

Result<void> ContextChecks::attended(int layer, int rank, const OpParams& whole,
                                     const OpParams& call) {
  OpParams reference = whole;
  const as_op_info& info = whole.info();
  if (ContextParallel::reads_lists(whole.op())) {
    list_rows(layer, rank, whole, reference);
    return hold_part(layer, rank, call, reference);
  }
  const bool paged = whole.op() == AS_OP_PAGED_ATTENTION;
  const std::size_t tokens = step_->positions.size();
  std::vector<std::int32_t> first_of(step_->live.size()), table(tokens), requests(tokens, -1);
  std::vector<std::int32_t> lengths(tokens), firsts(tokens);
  std::vector<std::int64_t> places(tokens);
  std::int64_t rows = 0;
  for (std::size_t r = 0; r < first_of.size(); ++r) {
    first_of[r] = static_cast<std::int32_t>(rows);
    rows += rows_before(rank, step_->seq_lens[r]);
  }
  int memory = 0;
  std::int64_t chunk = 0;
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (!whole.has_cache(tap)) continue;
    const CacheSpec& spec = *parts_.layout.of_tap(layer, whole.op(), tap.offset);
    if (spec.retention.kind == GroupKind::kChunked) chunk = spec.retention.window;
    const as_cache history = verifier_.shadow().cache(spec);
    as_cache& own = reference.cache(tap.offset);
    own = history;
    const std::int64_t bytes = as_cache_row_bytes(&history);
    own.data = rows_[memory++].make(AS_U8, {std::max<std::int64_t>(rows, 1), bytes});
    own.data.reserved = history.data.reserved;
    for (std::size_t r = 0; r < first_of.size(); ++r) {
      const std::int64_t base = verifier_.space().base(step_->live[r], 1);
      const std::int64_t count = rows_before(rank, step_->seq_lens[r]);
      for (std::int64_t row = 0; row < count; ++row) {
        as_row_get(&history, base + positions_[to_size(rank)][to_size(row)],
                   at<std::uint8_t>(own.data, first_of[r] + row));
      }
    }
  }
  const std::int64_t window = paged ? whole.get<as_paged_attention_params>().window : 0;
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::int32_t r = step_->token_to_req[t];
    if (r < 0) continue;
    const std::int64_t position = step_->positions[t];
    std::int64_t first = window > 0 ? position - window + 1 : 0;
    if (chunk > 0) first = std::max(first, position - position % chunk);
    const std::int64_t end = rows_before(rank, position + 1);
    table[t] = first_of[to_size(r)];
    firsts[t] = static_cast<std::int32_t>(rows_before(rank, std::max<std::int64_t>(first, 0)));
    lengths[t] = static_cast<std::int32_t>(end);
    places[t] = std::max<std::int64_t>(end - 1, 0);
    if (firsts[t] < end) requests[t] = static_cast<std::int32_t>(t);
  }
  const auto count = to_count(tokens);
  reference.tensor_named("table") = make_tensor(table.data(), {count, 1});
  reference.tensor_named("token_to_req") = make_tensor(requests.data(), {count});
  reference.tensor_named("positions") = make_tensor(places.data(), {count});
  reference.tensor_named("seq_lens") = make_tensor(lengths.data(), {count});
  if (paged) {
    auto& p = reference.get<as_paged_attention_params>();
    p.causal = p.window = p.chunk = 0;
    p.first_rows = make_tensor(firsts.data(), {count});
    p.sinks = no_tensor();
  }
  return hold_part(layer, rank, call, reference);
}

Result<void> ContextChecks::hold_part(int layer, int rank, const OpParams& call,
                                      OpParams& reference) {
  const as_tensor& o = tensor_of_tap(call, "o");
  const as_tensor& lse = tensor_of_tap(call, "lse");
  reference.tensor_named("o") = o_.make_like(o.dtype, o);
  reference.tensor_named("lse") = lse_.make_like(lse.dtype, lse);
  auto ok = call_reference(parts_.sim, reference, host_call(parts_.threads));
  if (!ok) return ok;
  const std::string where = fmt::format("rank {}, over its rows alone and without sinks: ", rank);
  for (const char* tap : {"lse", "o"}) {
    ok = hold(layer, call.op(), call, tap, tensor_of_tap(call, tap), reference.tensor_named(tap),
              of_rank(tap, rank), where);
    if (!ok) return ok;
  }
  return {};
}

Result<void> ContextChecks::hold(int layer, as_op_id op, const OpParams& params, const char* tap,
                                 const as_tensor& value, const as_tensor& reference,
                                 std::string name, const std::string& where) {
  const as_tap_info& info = tap_named(params.info(), tap);
  const auto rule = parts_.tolerances.find(params.op(), tap, lane_, tolerance_class(params, info),
                                           as_dtype_name(value.dtype));
  if (!rule) return rule.error();
  TapMask mask;
  if (to_count(left_out_.size()) == value.shape[0]) mask.left_out = &left_out_;
  const Comparison comparison = compare(value, reference, mask, *rule, parts_.threads);
  if (comparison.within) return {};
  wrong(layer, op, std::move(name), comparison.figures.beyond,
        where + evidence(comparison, params, info, value, step_));
  return {};
}

void ContextChecks::merging(int layer, int rank, as_op_id op, const std::vector<int>& parts) {
  for (int from = 0; from < ranks_.split().ranks; ++from) {
    const auto times = std::ranges::count(parts, from);
    if (times == 1) continue;
    wrong(layer, op, of_rank("parts", rank), 1,
          fmt::format("rank {} merges the part of rank {} {} times", rank, from, times));
  }
}

void ContextChecks::received(int layer, int rank, int from, const OpParams& call, RankHeads heads,
                             const as_tensor& o, const as_tensor& lse) {
  const as_tensor& sent_o = tensor_of_tap(call, "o");
  const as_tensor& sent_lse = tensor_of_tap(call, "lse");
  const auto differs = [&](const as_tensor& sent, const as_tensor& came, std::int64_t t,
                           std::int64_t h) {
    const std::int64_t bytes =
        as_tensor_numel(&came) / (came.shape[0] * came.shape[1]) * as_dtype_size(came.dtype);
    const auto* a =
        static_cast<const char*>(sent.data) + (t * sent.shape[1] + heads.first + h) * bytes;
    const auto* b = static_cast<const char*>(came.data) + (t * came.shape[1] + h) * bytes;
    return std::memcmp(a, b, to_size(bytes)) != 0;
  };
  for (std::int64_t t = 0; t < o.shape[0]; ++t) {
    for (std::int64_t h = 0; h < o.shape[1]; ++h) {
      if (!differs(sent_o, o, t, h) && !differs(sent_lse, lse, t, h)) continue;
      wrong(layer, call.op(), of_rank("parts", rank), 1,
            fmt::format("what rank {} has sent to rank {} did not come: {}, head {}", from, rank,
                        token_words(to_size(t)), heads.first + h));
      return;
    }
  }
}

Result<void> ContextChecks::merged(int layer, int rank, as_op_id op,
                                   const as_merge_states_params& merge) {
  const OpParams params = OpParams::of(AS_OP_MERGE_STATES, &merge);
  OpParams reference = params;
  auto& expected = reference.get<as_merge_states_params>();
  expected.base_2 = 0;
  expected.out = o_.make_like(merge.out.dtype, merge.out);
  expected.lse = lse_.make_like(merge.lse.dtype, merge.lse);
  auto ok = call_reference(parts_.sim, reference, host_call(parts_.threads));
  if (!ok) return ok;
  const std::string where = fmt::format("merge_states on rank {}: ", rank);
  for (const auto& [tap, value, of_reference] :
       {std::tuple{"lse", merge.lse, expected.lse}, std::tuple{"out", merge.out, expected.out}}) {
    ok = hold(layer, op, params, tap, value, of_reference, of_rank("merge", rank), where);
    if (!ok) return ok;
  }
  return {};
}

}  // namespace attnscope
