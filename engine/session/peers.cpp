#include "engine/session/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/session/verifier.h"
#include "kernels/cpu/codec.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Those of a layer that have heads or output groups.
constexpr std::array kOpsOfHeads = {
    AS_OP_Q_B_PROJ, AS_OP_Q_ROPE_KV_INSERT, AS_OP_SPARSE_ATTENTION, AS_OP_INVERSE_ROPE, AS_OP_WO_A,
    AS_OP_WO_B};

// What these read that is the same on every rank.
constexpr std::array kShared = {Act::kQr, Act::kKv, Act::kTopKSlots, Act::kTopKLens};

float to_float(bf16_t v) { return cpu::bf16_to_float(v.bits); }
double through_bf16(double v) {
  return cpu::bf16_to_float(cpu::float_to_bf16(static_cast<float>(v)));
}

}  // namespace

Result<void> Peers::run(int layer, int rank, const OpContext& context, const Frame& own,
                        const CacheSource& source, const Runner& runner) {
  for (const Act act : kShared) frame_.borrow(act, own);
  for (const as_op_id op : kOpsOfHeads) {
    OpParams params = layer_op_params(op, layer, context, frame_, source);
    if (op == AS_OP_Q_ROPE_KV_INSERT) {
      params.get<as_q_rope_kv_insert_params>().slots =
          make_tensor(no_slots_.data(), {static_cast<std::int64_t>(no_slots_.size())});
    }
    if (auto ok = runner.op(layer, rank, params); !ok) return ok;
  }
  return runner.fetch(frame_.get(Act::kY));
}

Result<void> Peers::sum(int layer, const OpContext& context, Frame& own, const CacheSource& source,
                        const Runner& runner) {
  if (parts_.ranks.size() < 2) return {};
  const as_tensor mine = own.get(Act::kY);
  const std::int64_t tokens = mine.shape[0], hidden = mine.shape[1];
  no_slots_.assign(static_cast<std::size_t>(tokens), -1);
  const as_tensor total = own.make(Act::kYSum, AS_BF16, {tokens, hidden});
  const bool is_engine = own.kind() == Frame::Kind::kEngine;
  if (auto ok = runner.fetch(mine); !ok) return ok;
  // A reference's parts are added where they end up.
  if (is_engine) {
    sum_.assign(static_cast<std::size_t>(tokens * hidden), 0.0f);
  } else {
    std::fill_n(at<double>(total), tokens * hidden, 0.0);
  }
  for (std::size_t rank = 0; rank < parts_.ranks.size(); ++rank) {
    as_tensor part = mine;
    if (static_cast<int>(rank) != parts_.config.parallel.rank) {
      OpContext peer = context;
      peer.weights = parts_.ranks[rank].get();
      if (auto ok = run(layer, static_cast<int>(rank), peer, own, source, runner); !ok) {
        return Error{ok.error().code, fmt::format("rank {}: {}", rank, ok.error().message),
                     ok.error().hint};
      }
      part = frame_.get(Act::kY);
    }
    if (is_engine) {
      const auto* values = at<bf16_t>(part);
      for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += to_float(values[i]);
    } else {
      const auto* values = at<double>(part);
      auto* out = at<double>(total);
      for (std::int64_t i = 0; i < tokens * hidden; ++i) out[i] += values[i];
    }
  }
  if (is_engine) {
    std::ranges::transform(sum_, at<bf16_t>(total),
                           [](float v) { return bf16_t{cpu::float_to_bf16(v)}; });
  } else if (own.kind() == Frame::Kind::kSim) {
    std::transform(at<double>(total), at<double>(total) + tokens * hidden, at<double>(total),
                   through_bf16);
  }
  runner.wrote(total);
  return {};
}

}  // namespace attnscope
