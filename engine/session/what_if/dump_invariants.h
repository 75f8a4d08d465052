// What must hold of every step whatever the kernels: each invariant has a name, is checked wherever
// it applies and counts. They need no reference, so that a dump of another engine's step can be
// held against them too. A family of models says which there are; one without has none.
#pragma once

#include <cstdint>
#include <span>
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

class DumpInvariants;
struct AttentionCopy;

struct InvariantText {
  const char *name, *sentence;
};

// Those of a family, entered in dump_invariants.cpp.
struct FamilyInvariants {
  const char* family;
  std::span<const InvariantText> texts;
  // Checks what the op that ran last shows, by DumpInvariants::check().
  void (*op_done)(const Session& session, DumpInvariants& to);
};

// Those that families share. number: of the family's texts.
// A token's position is seq_len - query_len + its place in its request; after slot_mapping.
void check_positions(const Session& session, DumpInvariants& to, int number);
// The last token alone, by the lane that ran the op, is as in its batch (row_alone.h).
void check_last_row_alone(const Session& session, DumpInvariants& to, int number);
// Weights recomputed from rows of an attention op (attention_copy.h): they sum to 1 with the sink,
// and the op's LSE is theirs, as far as its lane may be from it. rows: tokens of the copy.
void check_masses(const Session& session, const AttentionCopy& copy,
                  const std::vector<std::int32_t>& rows, DumpInvariants& to, int number);
// The last token of each request that has one in the step.
std::vector<std::int32_t> last_rows(const StepMetadata& step);

class DumpInvariants {
 public:
  explicit DumpInvariants(const ModelConfig& config);
  // After every op of a session of this model.
  void op_done(const Session& session);
  // number: of the family's texts. how: what was found, for people.
  void check(int number, bool holds, const std::string& how);
  const std::vector<Invariant>& all() const { return all_; }
  // A wrong tap (engine/trace/judged_taps.h) of every op after which one did not hold.
  const std::vector<TapResult>& broken() const { return broken_; }

 private:
  // Of the op being looked at.
  struct Here {
    std::int64_t checked = 0, broken = 0;
    std::string first;
  };
  const FamilyInvariants* family_ = nullptr;
  int exchanged_ = -1;  // number of what must hold of rows in host memory; -1 = none are there
  std::vector<Invariant> all_;
  std::vector<Here> here_;
  std::vector<TapResult> broken_;
};

}  // namespace attnscope
