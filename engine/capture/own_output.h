// Whether an op of one capture is right by itself: its outputs beside those that ref.sim makes of
// the inputs that the op had there. It tells the fault of an op from what it was given.
#pragma once

#include <functional>
#include <string>

#include "engine/capture/capture.h"

namespace attnscope {

struct OwnOutput {
  enum Verdict { kUnknown, kRight, kWrong };
  Verdict verdict = kUnknown;
  std::string text;  // of a wrong one: tap and evidence; of an unknown one: why, in a few words
};

// Runs the reference on what a capture recorded of an op.
using OwnJudge = std::function<OwnOutput(const Capture&, const Place&)>;

// By the comparison that ran while the op was recorded; unknown where none did.
OwnOutput recorded_output(const OpTrace& op);

// By the recorded comparison, else by `judge`, which may be empty.
OwnOutput own_output(const Capture& capture, const OpTrace& op, const OwnJudge& judge);

}  // namespace attnscope
