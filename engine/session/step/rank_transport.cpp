#include "engine/session/step/rank_transport.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {

ExchangeCounts planned_exchange(int ranks, std::int64_t heads, std::int64_t query_dim,
                                std::int64_t value_dim, std::int64_t tokens) {
  ExchangeCounts counts{};
  const std::int64_t others = ranks - 1;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t own = rank_heads(heads, ranks, rank).count();
    if (own == 0) continue;
    counts[0] += {others, others * tokens * own * query_dim * 2};
    counts[1] += {others, others * tokens * own * (value_dim * 2 + 4)};
  }
  return counts;
}

Result<void> RankTransport::send(RankMessage what, int from, int to,
                                 std::span<const std::byte> bytes) {
  auto ok = do_send(what, from, to, bytes);
  if (ok && from != to) {
    counts_[static_cast<std::size_t>(what)] += {1, static_cast<std::int64_t>(bytes.size())};
  }
  return ok;
}

Result<void> RankTransport::receive(RankMessage what, int from, int to, std::span<std::byte> into) {
  return do_receive(what, from, to, into);
}

Result<void> SimulatedTransport::do_send(RankMessage what, int from, int to,
                                         std::span<const std::byte> bytes) {
  Box& to_fill = box(what, from, to);
  to_fill.bytes.assign(bytes.begin(), bytes.end());
  to_fill.full = true;
  return {};
}

Result<void> SimulatedTransport::do_receive(RankMessage what, int from, int to,
                                            std::span<std::byte> into) {
  Box& filled = box(what, from, to);
  if (!filled.full || filled.bytes.size() != into.size()) {
    return internal_error(fmt::format("rank {} waits for {} bytes of rank {}, which has sent {}",
                                      to, into.size(), from,
                                      filled.full ? filled.bytes.size() : 0));
  }
  std::ranges::copy(filled.bytes, into.begin());
  filled.full = false;
  return {};
}

}  // namespace attnscope
