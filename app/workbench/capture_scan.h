// All steps of a capture, read in slices of time so that no frame waits: for what speaks of every
// step and not only of those at hand around the cursor.
//
//   scan.restart();                                                   // what is asked has changed
//   scan.read_on(capture, [&](const StepTrace& step) { take(step); });  // once a frame
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "engine/capture/capture.h"

namespace attnscope {

class CaptureScan {
 public:
  // The next call begins with the first step.
  void restart();
  // The traces of further steps up to `last`, ascending; those without a trace are passed over.
  void read_on(const Capture& capture, const std::function<void(const StepTrace&)>& see,
               std::int64_t last = std::numeric_limits<std::int64_t>::max());
  bool reading() const { return next_ < all_; }  // there are more, for the next call
  std::int64_t seen() const { return seen_; }    // steps whose trace was read
  // "the 26 recorded steps", "4 of 26 recorded steps": of which steps what was seen speaks.
  std::string steps() const;
  // How far it is, or the first step that could not be read; empty when there is nothing to say.
  std::string rest() const;

 private:
  std::size_t next_ = 0, all_ = 0;
  std::int64_t seen_ = 0;
  std::string problem_;
};

}  // namespace attnscope
