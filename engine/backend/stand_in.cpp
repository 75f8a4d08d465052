#include "engine/backend/stand_in.h"

#include <utility>

namespace attnscope {
namespace {

thread_local StandInWatch* watching = nullptr;

}  // namespace

StandInWatch::StandInWatch() : outer_(std::exchange(watching, this)) {}
StandInWatch::~StandInWatch() { watching = outer_; }

void note_stand_in(StandIn stand_in) {
  if (watching != nullptr) watching->seen_ = std::move(stand_in);
}

}  // namespace attnscope
