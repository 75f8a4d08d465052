#include <iterator>
#include <utility>

#include "engine/offload/selection_trace.h"

namespace attnscope {

void WarmWindows::add(std::int32_t request, std::vector<std::int32_t> entries) {
  if (windows_ == 0) return;
  auto& kept = kept_[request];
  if (kept.size() == windows_) kept.pop_front();
  kept.push_back(std::move(entries));
}

std::vector<std::vector<std::int32_t>> WarmWindows::take(std::int32_t request) {
  const auto kept = kept_.extract(request);
  if (kept.empty()) return {};
  return {std::make_move_iterator(kept.mapped().begin()),
          std::make_move_iterator(kept.mapped().end())};
}

}  // namespace attnscope
