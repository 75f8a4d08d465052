#include "engine/session/step/tensor_parallel_sum.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/family/rank_split.h"
#include "engine/session/step/session_parts.h"
#include "kernels/cpu/codec.h"
#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

float to_float(bf16_t v) { return cpu::bf16_to_float(v.bits); }

// sums += values, as numbers.
template <class Sum, class T>
void add(std::vector<Sum>& sums, const T* values) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if constexpr (std::is_same_v<T, bf16_t>) {
      sums[i] += to_float(values[i]);
    } else {
      sums[i] += values[i];
    }
  }
}

}  // namespace

Result<void> TensorParallelSum::run(int layer, int rank, const OpContext& context, const Frame& own,
                                    const CacheSource& source, const Runner& runner) {
  const RankSplit split = rank_split(*parts_.graph, parts_.graph->layer(layer));
  for (const ValueId value : split.shared) frame_.borrow(value, own);
  for (const as_op_id op : split.ops) {
    OpParams params = layer_op_params(op, layer, context, frame_, source);
    for (const as_cache_access& access : RowAccess::of(op)) {
      if (access.direction != AS_TAP_OUT) continue;
      const CacheSpec* spec = parts_.layout.of_tap(layer, op, access.cache, rank);
      if (spec == nullptr || spec->peer == rank) continue;
      params.tensor(access.rows) =
          make_tensor(no_slots_.data(), {static_cast<std::int64_t>(no_slots_.size())});
    }
    if (auto ok = runner.op(layer, rank, params); !ok) return ok;
  }
  return runner.fetch(frame_.get(parts_.graph->sum.part));
}

Result<void> TensorParallelSum::sum(int layer, const OpContext& context, Frame& own,
                                    const CacheSource& source, const Runner& runner) {
  if (parts_.ranks.size() < 2) return {};
  const as_tensor mine = own.get(parts_.graph->sum.part);
  const std::int64_t tokens = mine.shape[0], hidden = mine.shape[1];
  no_slots_.assign(static_cast<std::size_t>(tokens), -1);
  const as_tensor total = own.make(parts_.graph->sum.total, AS_BF16, {tokens, hidden});
  if (auto ok = runner.fetch(mine); !ok) return ok;
  const auto count = static_cast<std::size_t>(tokens * hidden);
  // The engine adds in fp32, the references in float64.
  if (own.kind() == Frame::Kind::kEngine) {
    sum_.assign(count, 0.0f);
  } else {
    wide_sum_.assign(count, 0.0);
  }
  for (std::size_t rank = 0; rank < parts_.ranks.size(); ++rank) {
    as_tensor part = mine;
    if (static_cast<int>(rank) != parts_.config.parallel.rank) {
      OpContext peer = context;
      peer.weights = parts_.ranks[rank].get();
      peer.peer = static_cast<int>(rank);
      if (auto ok = run(layer, static_cast<int>(rank), peer, own, source, runner); !ok) {
        return Error{ok.error().code, fmt::format("rank {}: {}", rank, ok.error().message),
                     ok.error().hint};
      }
      part = frame_.get(parts_.graph->sum.part);
    }
    switch (own.kind()) {
      case Frame::Kind::kEngine:
        add(sum_, at<bf16_t>(part));
        break;
      case Frame::Kind::kSim:
        add(wide_sum_, at<bf16_t>(part));
        break;
      case Frame::Kind::kExact:
        add(wide_sum_, at<double>(part));
    }
  }
  const auto to_bf16 = [](auto v) { return bf16_t{cpu::float_to_bf16(static_cast<float>(v))}; };
  switch (own.kind()) {
    case Frame::Kind::kEngine:
      std::ranges::transform(sum_, at<bf16_t>(total), to_bf16);
      break;
    case Frame::Kind::kSim:
      std::ranges::transform(wide_sum_, at<bf16_t>(total), to_bf16);
      break;
    case Frame::Kind::kExact:
      std::ranges::copy(wide_sum_, at<double>(total));
  }
  runner.wrote(total);
  return {};
}

}  // namespace attnscope
