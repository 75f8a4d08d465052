#include "app/wiring/lane_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace attnscope {

std::string base_lane(const std::vector<std::string>& lanes) {
  std::string base = "cpu";
  for (const std::string& lane : lanes) {
    if (lane.find('=') == std::string::npos) base = lane;
  }
  return base;
}

std::string lane_of(const std::vector<std::string>& lanes, as_op_id op) {
  const std::string prefix = std::string(as_op_find(op)->name) + "=";
  std::string own;
  for (const std::string& lane : lanes) {
    if (lane.find('=') == std::string::npos) own.clear();  // a later lane for all ops wins
    if (lane.starts_with(prefix)) own = lane.substr(prefix.size());
  }
  return own;
}

void set_base_lane(std::vector<std::string>& lanes, const std::string& lane) {
  std::vector<std::string> next = {lane};
  for (int op = 0; op < AS_OP_COUNT; ++op) {
    const std::string own = lane_of(lanes, static_cast<as_op_id>(op));
    if (!own.empty()) next.push_back(fmt::format("{}={}", as_op_find(op)->name, own));
  }
  lanes = std::move(next);
}

void set_lane(std::vector<std::string>& lanes, as_op_id op, const std::string& lane) {
  const std::string prefix = std::string(as_op_find(op)->name) + "=";
  std::erase_if(lanes, [&](const std::string& item) { return item.starts_with(prefix); });
  if (!lane.empty()) lanes.push_back(prefix + lane);
  set_base_lane(lanes, base_lane(lanes));
}

std::vector<std::string> lanes_of_description(const std::string& description) {
  std::vector<std::string> lanes;
  constexpr std::string_view kBetween = ", ";
  for (std::size_t at = 0; at < description.size();) {
    const std::size_t end = std::min(description.find(kBetween, at), description.size());
    lanes.push_back(description.substr(at, end - at));
    at = end + kBetween.size();
  }
  return lanes;
}

}  // namespace attnscope
