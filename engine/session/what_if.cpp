#include "engine/session/what_if.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/session/forced_copy.h"
#include "engine/session/rows_as_read.h"
#include "engine/trace/compare.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr float kNoSink = -std::numeric_limits<float>::infinity();

// Memory behind changed inputs.
struct Changed {
  std::vector<float> floats;
  std::vector<std::int32_t> integers;
  std::vector<std::int64_t> longs;
  std::vector<bf16_t> halves;
};

struct Change {
  const char* name;
  const char* sentence;
  // False where it does not apply.
  bool (*apply)(OpParams& params, Changed& memory);
};

bool as_it_ran(OpParams&, Changed&) { return true; }

bool no_sink(OpParams& params, Changed& memory) {
  auto& p = params.get<as_sparse_attention_params>();
  memory.floats.assign(static_cast<std::size_t>(p.sinks.shape[0]), kNoSink);
  p.sinks = make_tensor(memory.floats.data(), {p.sinks.shape[0]});
  return true;
}

bool window_alone(OpParams& params, Changed& memory) {
  auto& p = params.get<as_sparse_attention_params>();
  if (!present(p.extra_lens)) return false;
  memory.integers.assign(static_cast<std::size_t>(p.extra_lens.shape[0]), 0);
  p.extra_lens = make_tensor(memory.integers.data(), {p.extra_lens.shape[0]});
  return true;
}

bool entries_alone(OpParams& params, Changed& memory) {
  auto& p = params.get<as_sparse_attention_params>();
  if (!present(p.extra_lens)) return false;
  memory.integers.assign(static_cast<std::size_t>(p.lens.shape[0]), 0);
  p.lens = make_tensor(memory.integers.data(), {p.lens.shape[0]});
  return true;
}

// The newest row of each window: the token's own.
bool own_row_alone(OpParams& params, Changed& memory) {
  auto& p = params.get<as_sparse_attention_params>();
  const std::int64_t tokens = p.lens.shape[0];
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int32_t len = *at<std::int32_t>(p.lens, t);
    memory.integers.push_back(len > 0 ? *at<std::int32_t>(p.indices, t, len - 1) : -1);
  }
  p.indices = make_tensor(memory.integers.data(), {tokens, 1});
  memory.longs.resize(static_cast<std::size_t>(tokens));
  auto* ones = reinterpret_cast<std::int32_t*>(memory.longs.data());
  std::fill_n(ones, tokens, 1);
  p.lens = make_tensor(ones, {tokens});
  if (present(p.extra_lens)) {
    p.extra_cache = as_cache{};
    p.extra_indices = no_tensor();
    p.extra_lens = no_tensor();
  }
  return true;
}

// Position 0 for every token rotates nothing.
template <class Params>
bool no_rotation(OpParams& params, Changed& memory) {
  auto& p = params.get<Params>();
  memory.floats.assign(static_cast<std::size_t>(p.rope.table.shape[0] * AS_ROPE_DIM), 0.0f);
  for (std::int64_t t = 0; t < p.rope.table.shape[0]; ++t) {
    std::fill_n(memory.floats.data() + t * AS_ROPE_DIM, AS_ROPE_DIM / 2, 1.0f);
  }
  memory.longs.assign(static_cast<std::size_t>(p.positions.shape[0]), 0);
  p.positions = make_tensor(memory.longs.data(), {p.positions.shape[0]});
  p.rope.table = make_tensor(memory.floats.data(), {p.rope.table.shape[0], AS_ROPE_DIM});
  return true;
}

bool hadamard_turned(OpParams& params, Changed&) {
  if (params.op() == AS_OP_INDEXER_Q) {
    auto& p = params.get<as_indexer_q_params>();
    p.hadamard = p.hadamard != 0 ? 0 : 1;
  } else {
    auto& p = params.get<as_compress_insert_params>();
    p.hadamard = p.hadamard != 0 ? 0 : 1;
  }
  return true;
}

bool pooling_rounded(OpParams& params, Changed&) {
  auto& p = params.get<as_compress_insert_params>();
  p.round_pooled = p.round_pooled != 0 ? 0 : 1;
  return true;
}

template <class Params>
bool unit_weights(OpParams& params, Changed& memory) {
  auto& p = params.get<Params>();
  memory.halves.assign(static_cast<std::size_t>(p.weight.shape[0]), bf16_t{0x3f80});
  p.weight = make_tensor(memory.halves.data(), {p.weight.shape[0]});
  return true;
}

bool no_position_bias(OpParams& params, Changed& memory) {
  auto& p = params.get<as_compressor_state_params>();
  memory.floats.assign(static_cast<std::size_t>(p.ape.shape[0] * p.ape.shape[1]), 0.0f);
  p.ape = make_tensor(memory.floats.data(), {p.ape.shape[0], p.ape.shape[1]});
  return true;
}

// |w|: then every head adds, and a missing ReLU still shows while a sign does not.
bool positive_scores(OpParams& params, Changed& memory) {
  auto& p = params.get<as_indexer_topk_params>();
  const std::int64_t tokens = p.logits.shape[0], width = p.logits.shape[1];
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t c = 0; c < width; ++c) {
      memory.floats.push_back(std::fabs(*at<float>(p.logits, t, c)));
    }
  }
  p.logits = make_tensor(memory.floats.data(), {tokens, width});
  return true;
}

std::vector<Change> changes_of(as_op_id op) {
  const Change none = {"as it ran", "nothing changed", as_it_ran};
  switch (op) {
    case AS_OP_SPARSE_ATTENTION:
      return {none,
              {"no sink", "every sink is -inf", no_sink},
              {"window alone", "no compressed entries", window_alone},
              {"entries alone", "no window rows", entries_alone},
              {"own row alone", "each token attends its own row only", own_row_alone}};
    case AS_OP_Q_ROPE_KV_INSERT:
      return {none, {"no rotation", "RoPE turns by 0", no_rotation<as_q_rope_kv_insert_params>}};
    case AS_OP_INVERSE_ROPE:
      return {none, {"no rotation", "RoPE turns by 0", no_rotation<as_inverse_rope_params>}};
    case AS_OP_INDEXER_Q:
      return {
          none,
          {"no rotation", "RoPE turns by 0", no_rotation<as_indexer_q_params>},
          {"Hadamard turned over", "on where it was off, off where it was on", hadamard_turned}};
    case AS_OP_COMPRESS_INSERT:
      return {none,
              {"unit norm weights", "the norm's weights are 1",
               unit_weights<as_compress_insert_params>},
              {"pooling rounding turned over", "pooled values rounded to bf16, or not",
               pooling_rounded}};
    case AS_OP_INDEXER_COMPRESS_INSERT:
      return {none,
              {"unit norm weights", "the norm's weights are 1",
               unit_weights<as_compress_insert_params>},
              {"Hadamard turned over", "on where it was off, off where it was on", hadamard_turned},
              {"pooling rounding turned over", "pooled values rounded to bf16, or not",
               pooling_rounded}};
    case AS_OP_COMPRESSOR_STATE:
    case AS_OP_INDEXER_COMPRESSOR_STATE:
      return {none, {"no position bias", "ape is 0", no_position_bias}};
    case AS_OP_ATTN_NORM:
    case AS_OP_FINAL_NORM:
      return {none,
              {"unit norm weights", "the norm's weights are 1", unit_weights<as_rms_norm_params>}};
    case AS_OP_INDEXER_TOPK:
      return {none, {"positive scores", "the magnitudes of the scores", positive_scores}};
    default:
      return {none};
  }
}

Result<void> call(as_op_fn function, const OpParams& params, const as_threads* threads) {
  as_error error{};
  as_call context{};
  context.struct_size = sizeof(context);
  context.threads = threads;
  const std::int32_t status = function(params.data(), &context, &error);
  if (status == AS_OK) return {};
  return Error{static_cast<as_status>(status), error.message, {}};
}

class Trial {
 public:
  Trial(const Session& session, as_op_fn function) : session_(session), function_(function) {}

  WhatIf run(const Change& change) {
    WhatIf out;
    out.change = change.name;
    out.sentence = change.sentence;
    OpParams lane = session_.last_params();
    Changed memory;
    if (!change.apply(lane, memory)) {
      out.error = "does not apply";
      return out;
    }
    // Rows of a cache go to rows of their own, one a token.
    std::vector<std::int64_t> slots;
    OpParams reference = lane;
    make_outputs(lane, false, slots, lane_outputs_);
    make_outputs(reference, true, slots, reference_outputs_);
    RowsAsRead rows;
    rows.replace(lane, reference);
    auto ran = call(function_, lane, session_.parts().threads);
    if (ran) ran = call(session_.parts().sim->ops[lane.op()], reference, session_.parts().threads);
    if (!ran) {
      out.error = ran.error().message;
      return out;
    }
    compare_all(lane, reference, out);
    return out;
  }

 private:
  using Outputs = std::array<Scratch, 16>;

  void make_outputs(OpParams& params, bool sim, std::vector<std::int64_t>& slots, Outputs& to) {
    const as_op_info& info = params.info();
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      if (tap.direction != AS_TAP_OUT) continue;
      if (tap.kind == AS_TAP_CACHE) {
        as_tensor& told = params.tensor(tap.mask_offset);
        const std::int64_t tokens = told.shape[0];
        if (slots.empty()) {
          for (std::int64_t t = 0; t < tokens; ++t) {
            slots.push_back(*at<std::int64_t>(told, t) >= 0 ? t : -1);
          }
        }
        told = make_tensor(slots.data(), {tokens});
        as_cache& cache = params.cache(tap.offset);
        const bool state = cache.record == AS_RECORD_STATE;
        cache.addressing = AS_LOGICAL;
        cache.rows_per_block = 0;
        cache.data = state ? to[i].make(sim ? AS_F64 : AS_F32, {tokens, cache.width})
                           : to[i].make(AS_U8, {tokens, as_row_bytes(cache.record, cache.width)});
        poison(cache.data);
        continue;
      }
      as_tensor& tensor = params.tensor(tap.offset);
      if (!present(tensor)) continue;
      tensor = to[i].make_like(sim && is_float(tensor.dtype) ? AS_F64 : tensor.dtype, tensor);
      poison(tensor);
    }
  }

  static void poison(const as_tensor& t) {
    std::memset(t.data, 0xFF,
                static_cast<std::size_t>(as_tensor_numel(&t) * as_dtype_size(t.dtype)));
  }

  void compare_all(const OpParams& lane, const OpParams& reference, WhatIf& out) const {
    const as_op_info& info = lane.info();
    // Codes follow from rows that may differ by a rounding: rows are what is compared then.
    const bool has_row = std::any_of(info.taps, info.taps + info.num_taps, [&](const auto& tap) {
      return std::string_view(tap.rule) == "row" && tap.kind == AS_TAP_TENSOR &&
             present(lane.tensor(tap.offset));
    });
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      if (tap.direction != AS_TAP_OUT) continue;
      const bool cache = tap.kind == AS_TAP_CACHE;
      const as_tensor value = cache ? lane.cache(tap.offset).data : lane.tensor(tap.offset);
      const as_tensor other =
          cache ? reference.cache(tap.offset).data : reference.tensor(tap.offset);
      if (!present(value) || (has_row && value.dtype == AS_U8)) continue;
      if (has_row && std::string_view(tap.rule) == "weights") continue;
      const auto rule = session_.parts().tolerances.find(lane.op(), tap.name, "", tap.rule,
                                                         as_dtype_name(value.dtype));
      if (!rule) continue;
      TapMask mask;
      if (tap.mask == AS_MASK_SLOTS) mask.slots = at<std::int64_t>(lane.tensor(tap.mask_offset));
      if (tap.mask == AS_MASK_LENS) mask.lens = at<std::int32_t>(lane.tensor(tap.mask_offset));
      Comparison c;
      if (rule->top_k) {
        const auto& p = lane.get<as_indexer_topk_params>();
        c = compare_top_k(value, other, p.logits, at<std::int32_t>(p.lens), *rule);
      } else {
        c = compare(value, other, mask, *rule);
      }
      out.elements += c.elements;
      out.beyond += c.figures.beyond;
      if (c.budget_used >= out.budget_used) {
        out.budget_used = c.budget_used;
        out.worst_tap = tap.name;
      }
    }
  }

  const Session& session_;
  as_op_fn function_;
  Outputs lane_outputs_, reference_outputs_;
};

}  // namespace

Result<std::vector<WhatIf>> what_if(const Session& session, const LaneRegistry& registry,
                                    const std::vector<std::string>& lanes) {
  if (!session.ran_any() || session.last_params().info().phase == AS_PHASE_BEFORE) {
    return bad_input("tables and lists are integers: there is nothing to change in them",
                     "name an op of a layer, or of the head");
  }
  if (session.parts().sim == nullptr) {
    return usage_error("what-if needs a reference", "run with --references sim or both");
  }
  const as_op_id op = session.last_params().op();
  std::vector<WhatIf> results;
  Trial as_chosen(session, session.lanes().function(op));
  for (const Change& change : changes_of(op)) {
    WhatIf result = as_chosen.run(change);
    if (result.error != "does not apply") results.push_back(std::move(result));
  }
  for (const std::string& name : lanes) {
    const as_lane* lane = registry.find(name);
    if (lane == nullptr || lane->ops[op] == nullptr || name == session.lanes().lane(op)) continue;
    WhatIf result = Trial(session, lane->ops[op]).run({"", "nothing else changed", as_it_ran});
    result.change = "lane " + name;
    results.push_back(std::move(result));
  }
  return results;
}

std::string what_if_sentence(const std::vector<WhatIf>& results) {
  if (results.empty()) return "Nothing was run.";
  if (results[0].right()) return "The op is right as it ran: there is no error to remove.";
  std::vector<std::string> cures;
  for (std::size_t i = 1; i < results.size(); ++i) {
    if (results[i].right()) cures.push_back(results[i].change);
  }
  if (cures.empty()) return "No single change removes the error.";
  return fmt::format("The error goes away with: {}.", fmt::join(cures, "; "));
}

}  // namespace attnscope
