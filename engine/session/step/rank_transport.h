// How ranks of a context-parallel session hand each other what they have: queries of their heads,
// then partial outputs with their LSE. One interface, whether ranks are simulated in this process
// or are processes of their own: each rank says what it has for each other one (send), then takes
// what the others have for it (receive). A collective of all ranks is these, once for each pair:
//
//   all-gather   every rank sends the same bytes to each other one
//   all-to-all   every rank sends each other one its own piece
//
// A transport between processes starts its sends in do_send() and waits in do_receive().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "kernels/params/result.h"

namespace attnscope {

enum class RankMessage { kQueries, kParts };
inline constexpr int kRankMessages = 2;

// Between different ranks.
struct ExchangeCount {
  std::int64_t messages = 0, bytes = 0;
  ExchangeCount& operator+=(const ExchangeCount& other) {
    messages += other.messages;
    bytes += other.bytes;
    return *this;
  }
  friend bool operator==(const ExchangeCount&, const ExchangeCount&) = default;
};
// By RankMessage.
using ExchangeCounts = std::array<ExchangeCount, kRankMessages>;

// Heads of a model that a rank has queries of: [first, end).
struct RankHeads {
  std::int64_t first = 0, end = 0;
  std::int64_t count() const { return end - first; }
};
inline RankHeads rank_heads(std::int64_t heads, int ranks, int rank) {
  return {heads * rank / ranks, heads * (rank + 1) / ranks};
}

// What a layer's attention over `tokens` sends: queries (bf16, query_dim a head) of each rank to
// all others, then from each to each other one the partial outputs (bf16, value_dim) of its heads
// with their LSE (fp32).
ExchangeCounts planned_exchange(int ranks, std::int64_t heads, std::int64_t query_dim,
                                std::int64_t value_dim, std::int64_t tokens);

class RankTransport {
 public:
  virtual ~RankTransport() = default;

  // Bytes of rank `from` for rank `to`, which may be itself: what stays is handed on, and not
  // counted. They may be changed when it returns.
  Result<void> send(RankMessage what, int from, int to, std::span<const std::byte> bytes);
  // What `from` has sent to `to`, as many bytes as `into` has; each message once.
  Result<void> receive(RankMessage what, int from, int to, std::span<std::byte> into);

  const ExchangeCounts& counts() const { return counts_; }
  void forget_counts() { counts_ = {}; }

 private:
  virtual Result<void> do_send(RankMessage what, int from, int to,
                               std::span<const std::byte> bytes) = 0;
  virtual Result<void> do_receive(RankMessage what, int from, int to,
                                  std::span<std::byte> into) = 0;
  ExchangeCounts counts_{};
};

// Ranks of one process, one after the other.
class SimulatedTransport : public RankTransport {
 private:
  Result<void> do_send(RankMessage what, int from, int to,
                       std::span<const std::byte> bytes) override;
  Result<void> do_receive(RankMessage what, int from, int to, std::span<std::byte> into) override;

  struct Box {
    std::vector<std::byte> bytes;
    bool full = false;
  };
  Box& box(RankMessage what, int from, int to) { return boxes_[{what, from, to}]; }
  struct Route {
    RankMessage what;
    int from, to;
    friend auto operator<=>(const Route&, const Route&) = default;
  };
  std::map<Route, Box> boxes_;
};

}  // namespace attnscope
