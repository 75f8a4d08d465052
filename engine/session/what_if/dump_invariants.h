// What must hold of every step whatever the kernels: each invariant has a name, is checked wherever
// it applies and counts. They need no reference, so that a dump of another engine's step can be
// held against them too.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/session.h"

namespace attnscope {

struct Invariant {
  std::string name;      // "window_rows"
  std::string sentence;  // what must hold
  std::int64_t checked = 0, broken = 0;
  std::string first{};  // the first case that broke it: where and how
};

class DumpInvariants {
 public:
  DumpInvariants();
  // After every op of a session.
  void op_done(const Session& session);
  const std::vector<Invariant>& all() const { return all_; }
  // A wrong tap (engine/trace/judged_taps.h) of every op after which one did not hold.
  const std::vector<TapResult>& broken() const { return broken_; }

 private:
  enum Name {
    kPositions,
    kWindowRows,
    kOwnBlocks,
    kSelectedEntries,
    kC128Entries,
    kEntriesWritten,
    kQuantisedBytes,
    kStateRows,
    kAttentionMass,
    kRowAlone,
    kFiniteScores,
    kCount
  };
  void check(Name name, bool holds, const std::string& how);
  void check_op(const Session& session);
  void positions(const Session& session);
  void window_rows(const Session& session);
  void own_blocks(const Session& session, const as_tensor& list, int group, int rows_per_block);
  void selected_entries(const Session& session);
  void c128_entries(const Session& session);
  void attention(const Session& session);
  void latent_rows(const as_cache& cache, const as_tensor& slots, std::int32_t scale_floor);
  void state_rows(const Session& session);
  void scores(const Session& session);
  void row_alone(const Session& session);

  // Of the op being looked at.
  struct Here {
    std::int64_t checked = 0, broken = 0;
    std::string first;
  };
  std::vector<Invariant> all_;
  std::array<Here, kCount> here_;
  std::vector<TapResult> broken_;
};

}  // namespace attnscope
