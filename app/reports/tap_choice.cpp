#include "app/reports/tap_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "engine/io/nearest.h"
#include "engine/io/old_names.h"

namespace attnscope {
namespace {

bool free_running(as_op_id op) {
  return as_op_find(op)->phase != AS_PHASE_BEFORE && op != AS_OP_SAMPLE;
}

bool is_output(const as_tap_info& tap) { return tap.direction == AS_TAP_OUT; }

Error unknown(const std::string& name, const std::string& part,
              const std::vector<std::string>& names) {
  const auto near = nearest_names(part, names);
  if (part.empty()) {
    return usage_error(fmt::format("--taps '{}': a name is missing", name),
                       "write OP.TAP, OP for all its outputs, or all");
  }
  return usage_error(fmt::format("--taps {}: there is no {}", name, part),
                     fmt::format("{}{}", near.empty() ? "there are: " : "did you mean ",
                                 fmt::join(near.empty() ? names : near, ", ")));
}

}  // namespace

Result<TapChoice> TapChoice::parse(const std::vector<std::string>& names, bool reference) {
  TapChoice choice;
  std::vector<std::string> ops;
  ops.reserve(AS_OP_COUNT);
  for (int op = 0; op < AS_OP_COUNT; ++op) ops.emplace_back(as_op_find(op)->name);
  for (const std::string& name : names) {
    if (name == "all") {
      for (int i = 0; i < AS_OP_COUNT; ++i) {
        const auto op = static_cast<as_op_id>(i);
        if (reference && !free_running(op)) continue;
        const as_op_info& info = *as_op_find(op);
        for (std::uint32_t t = 0; t < info.num_taps; ++t) {
          if (is_output(info.taps[t])) choice.wishes_.push_back({op, &info.taps[t], name});
        }
      }
      continue;
    }
    const std::size_t dot = name.find('.');
    const std::string op_name = name.substr(0, dot);
    const std::int32_t id = as_step_op_by_name(op_name.c_str());
    if (id < 0) return unknown(name, op_name, ops);
    const auto op = static_cast<as_op_id>(id);
    if (reference && !free_running(op)) {
      return usage_error(fmt::format("--taps {}: references do not run this op on their own", name),
                         "name ops of the layers, final_norm or lm_head, or another --lane");
    }
    const as_op_info& info = *as_op_find(op);
    std::vector<std::string> taps;
    bool found = false;
    const std::string_view tap_name =
        dot == std::string::npos ? std::string_view()
                                 : tap_name_now(op, std::string_view(name).substr(dot + 1));
    for (std::uint32_t t = 0; t < info.num_taps; ++t) {
      const as_tap_info& tap = info.taps[t];
      if (tap.kind == AS_TAP_CACHE && !is_output(tap)) continue;
      taps.emplace_back(tap.name);
      const bool wanted = dot == std::string::npos ? is_output(tap) : tap_name == tap.name;
      if (wanted) choice.wishes_.push_back({op, &tap, name});
      found = found || wanted;
    }
    if (!found) return unknown(name, name.substr(dot + 1), taps);
  }
  return choice;
}

std::vector<std::string> TapChoice::absent(
    const std::function<bool(as_op_id, const as_tap_info&)>& there) const {
  std::map<std::string, bool> found;
  for (const Wish& wish : wishes_) {
    if (wish.name != "all") found[wish.name] |= there(wish.op, *wish.tap);
  }
  std::vector<std::string> names;
  for (const auto& [name, any] : found) {
    if (!any) names.push_back(name);
  }
  return names;
}

bool TapChoice::wants(as_op_id op, const as_tap_info& tap) const {
  return std::any_of(wishes_.begin(), wishes_.end(),
                     [&](const Wish& w) { return w.op == op && w.tap == &tap; });
}

}  // namespace attnscope
