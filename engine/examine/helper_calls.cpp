#include "engine/examine/helper_calls.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "engine/examine/call_maker.h"
#include "engine/examine/call_parts.h"
#include "engine/examine/clause.h"
#include "engine/examine/table_calls.h"
#include "kernels/params/op_ids.h"

namespace attnscope {
namespace {

OpCase merge(const CaseOp& op, const char* name, std::int64_t tokens, std::uint64_t seed) {
  constexpr std::int64_t kHeads = 8, kDims = 512;
  CallMaker make(op, name, seed);
  for (const char* side : {"a", "b"}) make.fill(make.add(side, AS_BF16, {tokens, kHeads, kDims}));
  for (const char* side : {"lse_a", "lse_b"})
    make.fill(make.add(side, AS_F32, {tokens, kHeads}), 4);
  make.add("out", AS_BF16, {tokens, kHeads, kDims});
  make.add("lse", AS_F32, {tokens, kHeads});
  make.call().integers["base_2"] = 0;
  return std::move(make.call());
}

OpCase workspace(const CaseOp& op, const char* name, std::int64_t tokens, std::int64_t rows,
                 std::int64_t columns, std::uint64_t seed) {
  constexpr std::int64_t kHeads = 8, kDims = 512;
  CallMaker make(op, name, seed);
  make.fill(make.add("q", AS_BF16, {tokens, kHeads, kDims}));
  make.fill(make.add("rows", AS_BF16, {rows, kDims}));
  StoredTensor& indices = make.add("indices", AS_I32, {tokens, columns});
  StoredTensor& lens = make.add("topk_length", AS_I32, {tokens});
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto len = static_cast<std::int32_t>(1 + make.below(columns));
    CallMaker::put(lens, t, len);
    for (std::int64_t k = 0; k < columns; ++k) {
      const std::int64_t row = k < len ? make.below(rows) : -1;
      CallMaker::put(indices, t * columns + k, static_cast<std::int32_t>(row));
    }
  }
  make.fill(make.add("sinks", AS_F32, {kHeads}));
  make.add("o", AS_BF16, {tokens, kHeads, kDims});
  make.add("lse", AS_F32, {tokens, kHeads});
  make.call().reals["scale"] = 1 / std::sqrt(static_cast<double>(kDims));
  return std::move(make.call());
}

// Rows that a step reads from a cache, in another order, some of them not at all.
OpCase gather(const CaseOp& op, const OpCase& of, const char* cache, std::uint64_t seed) {
  CallMaker make(op, of.origin.from.substr(of.origin.from.find(' ') + 1) + ", " + cache, seed);
  const StoredCache& rows = make.call().caches["cache"] = of.caches.at(cache);
  std::vector<std::int64_t> order(rows.slots.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[to_size(make.below(static_cast<std::int64_t>(i)))]);
  }
  const auto count = static_cast<std::int64_t>(order.size());
  StoredTensor& slots = make.add("slots", AS_I64, {count});
  for (std::int64_t n = 0; n < count; ++n) {
    CallMaker::put(slots, n, rows.slots[to_size(order[to_size(n)])]);
  }
  make.add("out", rows.record == AS_RECORD_STATE ? AS_F32 : AS_BF16, {count, rows.width});
  return std::move(make.call());
}

// Of the first cache of each record that steps read, and the op can.
std::vector<OpCase> gathers(const CaseOp& op, bool page_ends) {
  std::vector<OpCase> calls;
  std::set<std::int32_t> seen;
  std::uint64_t seed = 51;
  for (int i = 0; const as_op_info* info = as_op_at(i); ++i) {
    const CaseOp from = *find_case_op(info->id);
    for (const as_tap_info& tap : from.taps) {
      if (from.helper || tap.kind != AS_TAP_CACHE || tap.direction != AS_TAP_IN) continue;
      std::set<std::int32_t> found;
      for (const OpCase& call : ordinary_calls(info->id, page_ends)) {
        const auto cache = call.caches.find(tap.name);
        if (cache == call.caches.end() || cache->second.slots.empty()) continue;
        const std::int32_t record = cache->second.record;
        if (record < AS_RECORD_LATENT || record > AS_RECORD_STATE || seen.contains(record)) break;
        calls.push_back(gather(op, call, tap.name, seed++));
        found.insert(record);
      }
      seen.merge(found);
    }
  }
  return calls;
}

// `copied` of the blocks of `to`, in no order; the others keep what they hold.
OpCase copy(const CaseOp& op, const char* name, std::int64_t blocks, std::int64_t copied,
            std::int64_t bytes, std::uint64_t seed) {
  CallMaker make(op, name, seed);
  for (std::uint8_t& byte : make.add("from", AS_U8, {blocks + 3, bytes}).bytes) {
    byte = static_cast<std::uint8_t>(make.below(255));
  }
  make.add("to", AS_U8, {blocks, bytes});
  StoredTensor& pairs = make.add("pairs", AS_I64, {copied, 2});
  for (std::int64_t n = 0; n < copied; ++n) {
    CallMaker::put(pairs, 2 * n, (7 * n + 3) % (blocks + 3));  // each once
    CallMaker::put(pairs, 2 * n + 1, blocks - 1 - n);
  }
  make.call().integers["exchange"] = 0;
  return std::move(make.call());
}

// What a step turns back, quantised.
std::vector<OpCase> turns(const CaseOp& op) {
  std::vector<OpCase> calls;
  for (OpCase& call : ordinary_calls(AS_OP_INVERSE_ROPE, false)) {
    CallMaker make(op, call.origin.from.substr(call.origin.from.find(' ') + 1), 61);
    for (const char* name : {"o", "positions"}) {
      make.call().tensors[name] = std::move(call.tensors.at(name));
    }
    make.call().ropes = std::move(call.ropes);
    std::vector<std::int64_t> shape = make.call().tensors["o"].shape;
    make.add("codes", AS_U8, shape);
    shape.back() /= 128;
    make.add("scales", AS_F32, shape);
    calls.push_back(std::move(make.call()));
  }
  return calls;
}

// Codes from 2^-3 to 7.5 of both signs, scales about 2^-6.
OpCase fp8(const CaseOp& op, const char* name, std::int64_t tokens, std::int64_t in,
           std::int64_t out, std::int32_t dtype, std::uint64_t seed) {
  CallMaker make(op, name, seed);
  const auto codes = [&](StoredTensor& t) {
    for (std::uint8_t& code : t.bytes) {
      code = static_cast<std::uint8_t>(32 + make.below(48) + 128 * make.below(2));
    }
  };
  codes(make.add("x", AS_U8, {tokens, in}));
  make.fill(make.add("x_scale", AS_F32, {tokens, in / 128}), 0x1p-6, 0x1p-9);
  codes(make.add("weight", AS_U8, {out, in}));
  make.fill(make.add("weight_scale", AS_F32, {(out + 127) / 128, in / 128}), 0x1p-6, 0x1p-9);
  make.add("y", dtype, {tokens, out});
  return std::move(make.call());
}

}  // namespace

std::vector<OpCase> helper_calls(const CaseOp& op, bool page_ends) {
  if (has_table_calls(op)) return table_calls(op, page_ends);
  if (op.id == AS_OP_GATHER_ROWS) return gathers(op, page_ends);
  if (page_ends) return {};
  switch (op.id) {
    case AS_OP_MERGE_STATES:
      return {merge(op, "one token", 1, 31), merge(op, "37 tokens", 37, 32)};
    case AS_OP_COPY_BLOCKS:
      return {copy(op, "one block", 1, 1, 64, 71), copy(op, "all of 9 blocks", 9, 9, 1003, 72),
              copy(op, "11 of 20 blocks", 20, 11, 4096, 73)};
    case AS_OP_WORKSPACE_ATTENTION:
      return {workspace(op, "one token", 1, 9, 64, 41),
              workspace(op, "19 tokens", 19, 300, 192, 42)};
    case AS_OP_INVERSE_ROPE_QUANTISE:
      return turns(op);
    case AS_OP_FP8_LINEAR:
      return {fp8(op, "one token", 1, 128, 5, AS_BF16, 81),
              fp8(op, "13 tokens", 13, 384, 260, AS_BF16, 82),
              fp8(op, "7 tokens, f32", 7, 256, 129, AS_F32, 83)};
    default:
      return {};
  }
}

}  // namespace attnscope
