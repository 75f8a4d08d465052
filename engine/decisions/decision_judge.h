// Holds what a scheduler and its block manager decide against the plain model, which is told the
// same requests and goes through the same steps. The first decision that differs is kept; what
// comes after it follows from it, and nothing more is judged.
//
//   judge.model().add(..);  judge.planned(scheduler, scheduler.schedule());
//   judge.model().results(..);  judge.ended(scheduler);
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/decisions/plain_scheduler.h"
#include "engine/sched/block_scheduler.h"

namespace attnscope {

enum class Decision {
  kTokens,     // how many tokens of a request a step computes
  kVictim,     // who loses its blocks, and to whom
  kAdmission,  // who is admitted, in which order
  kHit,        // how much of it a newcomer finds computed, and in which blocks
  kQueue,      // the order of those who run and of those who wait
  kWindow,     // which entries of a table are out of sight
  kRoom,       // how many entries a table has
  kEviction,   // which free block is taken next
  kKeys,       // which blocks can be found by their content
  kStop,       // who is over
  kCommon,     // how many leading blocks all requests share
  kSwap,       // which rows of a preempted request lie in host memory, and where
};
inline constexpr std::size_t kDecisions = 12;
const char* decision_name(Decision decision);      // "tokens", ..
const char* decision_sentence(Decision decision);  // as above

struct WrongDecision {
  Decision decision = Decision::kTokens;
  std::int64_t step = 0;
  std::int64_t request = -1;  // whom it is about
  std::string note;           // "request 3: computes 17 tokens, must compute 16"
};

// Decisions that were compared, by kind.
using DecisionCounts = std::array<std::int64_t, kDecisions>;

class DecisionJudge {
 public:
  // serving: of the requests of a session (serving.h), who forget the keys of what is not computed.
  DecisionJudge(const SchedulerOptions& options, bool serving);

  plain::Scheduler& model() { return model_; }
  const plain::Scheduler& model() const { return model_; }
  // A request, or another one under the id of one that is over.
  void add(const plain::Request& request);
  // After the scheduler's step: lets the model go through it too, and compares.
  void planned(const BlockScheduler& scheduler, const StepPlan& plan);
  // After the results of the step went to both.
  void ended(const BlockScheduler& scheduler);
  // After an abort or a reset of both; done, must: whether each did anything.
  void aborted(const BlockScheduler& scheduler, std::int64_t request, bool done, bool must);
  void reset(const BlockScheduler& scheduler, bool done, bool must);

  const std::optional<WrongDecision>& wrong() const { return wrong_; }
  const DecisionCounts& counts() const { return counts_; }

 private:
  // Counts one decision; keeps it where it does not hold, with what note() says. Whether it holds.
  template <class Note>
  bool judge(Decision decision, std::int64_t request, bool holds, const Note& note);
  bool right(Decision decision) {
    ++counts_[static_cast<std::size_t>(decision)];
    return true;
  }
  bool running(const StepPlan& plan, const plain::Plan& must);
  bool admitted(const BlockScheduler& scheduler, const StepPlan& plan, const plain::Plan& must);
  bool moved(const std::vector<SwapMove>& is, const std::vector<plain::Moved>& must,
             const char* way);
  bool queues(const BlockScheduler& scheduler);
  bool tables(const BlockScheduler& scheduler, const plain::Planned& planned);
  // request: who to name where nobody has held the block.
  bool free_order(const BlockScheduler& scheduler, std::int64_t request);
  bool keys(const BlockScheduler& scheduler);
  bool common_prefix(const StepPlan& plan);
  // Takes down the hashes of tokens that came; false where one is another prefix's too.
  bool learn_hashes(const BlockScheduler& scheduler);
  // Whether the keys of a block, as many as there must be, stand for the prefixes they must.
  bool same_keys(const BlockScheduler& scheduler, std::int32_t block) const;
  // Whether the block has the one key, and must have the one, that same_keys() last saw: nearly all
  // blocks of nearly all steps, without a look into the maps.
  bool known_key(const PrefixMap& map, std::int32_t block) const;

  // Whatever the hashes are: which prefix each stands for.
  struct Hashes {
    using Words = std::pair<std::uint64_t, std::uint64_t>;
    struct Pair {  // a key and the one it stands for
      PrefixKey is;
      plain::Key must;
    };
    std::map<Words, std::int64_t> prefix_of;
    std::map<std::int64_t, Words> hash_of;
    std::vector<Pair> seen;  // by block, as above
  };

  plain::Scheduler model_;
  std::shared_ptr<Hashes> hashes_ = std::make_shared<Hashes>();  // never change: copies share them
  std::map<std::int64_t, std::int64_t> learnt_;  // by request: hashes of it that are in there
  std::int64_t step_ = 0;
  std::optional<WrongDecision> wrong_;
  DecisionCounts counts_{};
};

}  // namespace attnscope
