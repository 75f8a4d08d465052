// What a run has exercised, and what it has not: a sound run proves nothing about paths it never
// took.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "engine/session/session.h"

namespace attnscope {

struct Exercised {
  std::string name;        // "selective_indexer"
  std::string sentence;    // what it means
  std::string advice;      // how a scenario gets there
  std::int64_t count = 0;  // how often it was met; 0 = not exercised
  std::string first{};     // where first
};

class Exercise {
 public:
  explicit Exercise(const ModelConfig& config);
  // After every op of a session.
  void op_done(const Session& session);
  // Those that the model can reach.
  std::vector<Exercised> all() const;

 private:
  enum Name {
    kSelective,
    kNearTie,
    kWindowMoved,
    kWindowOverThreeBlocks,
    kBlockReused,
    kRecomputed,
    kFirstC4Window,
    kSplitC4Window,
    kC128Boundary,
    kSeveralRequests,
    kMixedStep,
    kShortPrompt,
    kLongRow,
    kLargeSink,
    kSmallSink,
    kLengthsMod4,
    kCount
  };
  void met(Name name, const Session& session, std::int64_t times = 1);
  void tokens(const Session& session);
  void blocks(const Session& session);
  void attention(const Session& session);
  void selection(const Session& session);

  std::vector<Exercised> all_;
  std::vector<bool> reachable_;
  std::vector<std::int64_t> computed_;  // by request id, the most so far
  std::set<std::int64_t> lengths_mod_4_;
};

}  // namespace attnscope
