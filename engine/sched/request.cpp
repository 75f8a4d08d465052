#include "engine/sched/request.h"

namespace attnscope {

const char* request_state_name(RequestState state) {
  switch (state) {
    case RequestState::kWaiting:
      return "waiting";
    case RequestState::kRunning:
      return "running";
    case RequestState::kFinished:
      return "finished";
    case RequestState::kExpected:
      return "expected";
    case RequestState::kPreempted:
      return "preempted";
    case RequestState::kAborted:
      return "aborted";
  }
  return "?";
}

}  // namespace attnscope
