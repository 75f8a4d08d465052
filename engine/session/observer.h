// Who watches a session: called on the session's own thread, between two ops.
#pragma once

namespace attnscope {

class Session;
struct Error;

class SessionObserver {
 public:
  virtual ~SessionObserver() = default;
  // An op ran and was compared: its params, results and the step's metadata are still in place.
  virtual void op_done(const Session& session) = 0;
  // The step's last op ran; lengths have advanced, sampled tokens are appended.
  virtual void step_done(const Session& session) = 0;
  // The session went to a rewind point: back, or forward over steps that had run before.
  virtual void went_back(const Session& session) = 0;
  // From the session's step on, everything is computed anew by other lanes.
  virtual void lanes_changed(const Session&) {}
  // Behind op_done(): the op's lane failed at it, another carried it out and does so from here on.
  virtual void lane_failed(const Session&, const Error&) {}
};

}  // namespace attnscope
