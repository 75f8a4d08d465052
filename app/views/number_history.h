// A number of the screen from step to step: an element of a tap, a share of attention, what an op
// took, what happens to a row of the cache. Numbers of tokens are those of the request's newest row
// in each step.
//
//   FollowedNumber number = *followed_number(NumberKind::kSink, at);
//   if (auto now = number_in(info, trace, number)) plot(trace.step, now->value);
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "app/views/selection.h"
#include "app/views/tensor_view.h"
#include "engine/session/snapshot.h"

namespace attnscope {

enum class NumberKind {
  kElement,    // of a tap
  kSink,       // share of the attention that the sink takes
  kLse,        // of attention, natural logarithm
  kMargin,     // of a selection
  kThreshold,  // the lowest score that was selected
  kSlot,       // reads and writes of a row of the cache
  kOwner,      // request that holds a block
  kTime,       // of an op
  kBudget,     // how much of its tolerance an op used
  kError       // largest difference that an op introduced
};
inline constexpr int kNumberKinds = 10;

// What is said of a kind wherever it is offered.
struct NumberWords {
  const char* id;      // "sink": command history.sink
  const char* title;   // "sink mass"
  const char* value;   // the curve: "engine"
  const char* beside;  // the other curve; nullptr = there is none
  const char* help;
  bool of_op;      // summaries of steps have it, however long ago they ran
  bool reference;  // needs what ref.sim gave
};
const NumberWords& number_words(NumberKind kind);

// A number that is followed through the steps.
struct FollowedNumber {
  NumberKind kind = NumberKind::kElement;
  Place place;  // layer and op; its step does not count
  std::string tap;
  std::int32_t request = -1;
  TapIndex index;  // along the tap's axes; the place along token_axis does not count
  int token_axis = -1;
  int head = 0;
  std::int32_t block = -1, row = -1, group = -1;
  std::string whose;  // name of the request, or of the group of the row
  std::string words;  // "sink mass of head 5, layer 2, of manual"
  // The same number, whatever does not count.
  bool same_as(const FollowedNumber& other) const;
};

// Where one looks when a number is to be followed.
struct NumberAt {
  const SessionInfo& info;
  const StepTrace* step = nullptr;  // the cursor's; null: its tensors are not kept
  Place cursor;
  const Selection& selection;
  std::int64_t row = -1;         // token row that is selected
  const TapCopy* tap = nullptr;  // that is selected, of the op under the cursor
};
// Errors: what has to be picked first.
Result<FollowedNumber> followed_number(NumberKind kind, const NumberAt& at);

// Why what is open has no such number, whatever step is looked at; empty = it has.
std::string not_here(const SessionInfo& info, const FollowedNumber& number);

// The number in one step.
struct NumberValue {
  double value = 0;
  double beside;     // NaN = none
  std::string what;  // in words, where the value says too little; may be empty
};
// Nothing where the step does not hold it, or its trace does not tell.
std::optional<NumberValue> number_in(const SessionInfo& info, const StepTrace& step,
                                     const FollowedNumber& number);
// The same of numbers that summaries have.
std::optional<NumberValue> number_in(const StepSummary& step, const FollowedNumber& number);

// By step; steps in which there is no such number are left out.
using NumberHistory = std::map<std::int64_t, NumberValue>;

// "o of head 5, dim 17, request 0: 0.25 in step 9, from -0.5 to 0.75 over 12 kept steps."
// which: the steps that were looked at, "kept" or "recorded".
std::string history_sentence(const NumberHistory& history, const FollowedNumber& number,
                             std::int64_t step, const char* which);

}  // namespace attnscope
