#include "engine/backend/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "engine/backend/host_ops.h"
#include "engine/io/nearest.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

// Lanes of a few ops: the others stay with cpu.
bool is_partial(std::string_view name) {
  return name.starts_with("mutant:") || name.starts_with("plugin:");
}

// A reference works on logical histories and float64; it cannot stand in for a kernel.
bool is_reference(std::string_view name) { return name.starts_with("ref."); }

bool is_host_op(int op) { return as_op_has(op, AS_BY_ENGINE) != 0; }

// A lane without any op is known but cannot run here; its description says why.
bool is_usable(const Lane& lane) { return lane.ops.count() > 0; }

// The helper ops of a lane that has no op of a step; empty where it has one.
std::vector<std::string> only_helper_ops(const Lane& lane) {
  for (int op = 0; op < AS_OP_COUNT; ++op) {
    if (lane.ops[op] != nullptr) return {};
  }
  std::vector<std::string> names;
  for (int op = AS_FIRST_HELPER; op < AS_END_OF_HELPERS; ++op) {
    if (lane.ops[op] != nullptr) names.emplace_back(as_op_find(op)->name);
  }
  return names;
}

// What to name instead: all of them would be a page.
std::string lane_hint(const std::string& wanted, const std::vector<std::string>& allowed) {
  if (wanted.starts_with("plugin:")) {
    std::vector<std::string> loaded = allowed;
    std::erase_if(loaded, [](const std::string& n) { return !n.starts_with("plugin:"); });
    return fmt::format("load it with --plugin LIBRARY; loaded: {}",
                       loaded.empty() ? "none" : fmt::format("{}", fmt::join(loaded, ", ")));
  }
  const std::vector<std::string> nearest = nearest_names(wanted, allowed, 5);
  if (!nearest.empty()) {
    return fmt::format("did you mean {}; 'attnscope lanes' lists all", fmt::join(nearest, ", "));
  }
  std::vector<std::string> whole = allowed;
  std::erase_if(whole, [](const std::string& n) { return n.starts_with("mutant:"); });
  return fmt::format("lanes: {}, and planted bugs; 'attnscope lanes' lists all",
                     fmt::join(whole, ", "));
}

// What chose an op's lane so far, and how much it was meant: 0 by default, 1 of all ops, 2 of all
// ops of a partial lane, 3 of this op.
struct Chooser {
  int rank = 0;
  std::string choice;
};

Error chosen_twice(const Chooser& first, const std::string& choice, int op, int rank) {
  return usage_error(fmt::format("--lane {} and --lane {} both choose the lane of {}", first.choice,
                                 choice, as_op_find(op)->name),
                     rank < first.rank ? fmt::format("name {} first, or leave it out", choice)
                                       : "leave one of them out");
}

}  // namespace

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  names.reserve(AS_OP_COUNT);
  for (int i = 0; i < AS_OP_COUNT; ++i) names.emplace_back(as_op_find(i)->name);
  return names;
}

void LaneRegistry::add(const Lane& lane, const BetweenOps* between) {
  Lane copy = lane;
  if (std::string_view(lane.name) == "cpu") {
    copy.ops[AS_OP_SCHEDULE] = host_schedule;
    copy.ops[AS_OP_BLOCK_TABLES] = host_block_tables;
  }
  lanes_.push_back(copy);
  between_.push_back(between);
}

const BetweenOps* LaneRegistry::between(const Lane& lane) const {
  return between_[static_cast<std::size_t>(&lane - lanes_.data())];
}

const Lane* LaneRegistry::find(std::string_view name) const {
  auto it = std::find_if(lanes_.begin(), lanes_.end(),
                         [&](const Lane& lane) { return name == lane.name; });
  return it == lanes_.end() ? nullptr : &*it;
}

std::vector<std::string> LaneRegistry::names() const {
  std::vector<std::string> names;
  names.reserve(lanes_.size());
  for (const Lane& lane : lanes_) {
    if (is_usable(lane)) names.emplace_back(lane.name);
  }
  return names;
}

std::vector<std::string> LaneRegistry::lanes_of(as_op_id op) const {
  std::vector<std::string> names;
  for (const Lane& lane : lanes_) {
    if (lane.ops[op] != nullptr) names.emplace_back(lane.name);
  }
  return names;
}

Result<LaneSelector> LaneSelector::make(const LaneRegistry& registry,
                                        std::span<const std::string> choices) {
  LaneSelector selector;
  const Lane* cpu = registry.find("cpu");
  if (cpu == nullptr) return internal_error("no lane named cpu is registered");
  for (int op = 0; op < AS_OP_COUNT; ++op) {
    selector.functions_[static_cast<std::size_t>(op)] = cpu->ops[op];
    selector.names_[static_cast<std::size_t>(op)] = cpu->name;
  }
  selector.merge_ = cpu->ops[AS_OP_MERGE_STATES];
  selector.merge_lane_ = cpu->name;
  std::array<Chooser, AS_OP_COUNT> by;
  for (const std::string& choice : choices) {
    const std::size_t equals = choice.find('=');
    const bool single = equals != std::string::npos;
    const std::string name = single ? choice.substr(equals + 1) : choice;
    const Lane* lane = registry.find(name);
    if (lane == nullptr || is_reference(name)) {
      std::vector<std::string> allowed = registry.names();
      const std::vector<std::string> near = nearest_names(name, allowed, 1);
      const bool reference = is_reference(name) || (!near.empty() && is_reference(near.front()));
      std::erase_if(allowed, is_reference);
      return usage_error(
          fmt::format("--lane {}: {} lane \"{}\"", choice, lane ? "not a kernel" : "unknown", name),
          reference ? fmt::format("{}references run beside kernel lanes, with --references; 'case "
                                  "run' and 'tap-export' take one as --lane",
                                  near.empty() || near.front() == name
                                      ? ""
                                      : fmt::format("did you mean {}? ", near.front()))
                    : lane_hint(name, allowed));
    }
    if (!is_usable(*lane)) {
      return Error{AS_NO_ENVIRONMENT, fmt::format("--lane {}: {}", choice, lane->description),
                   "use --lane cpu"};
    }
    if (const auto helpers = only_helper_ops(*lane); !helpers.empty()) {
      return usage_error(fmt::format("--lane {}: {} has helper ops alone, which have no place in a "
                                     "step: {}",
                                     choice, name, fmt::join(helpers, ", ")),
                         "'case run' takes it as --lane");
    }
    if (!single && lane->ops[AS_OP_MERGE_STATES] != nullptr) {
      selector.merge_ = lane->ops[AS_OP_MERGE_STATES];
      selector.merge_lane_ = lane->name;
    }
    int only = -1;
    if (single) {
      only = as_step_op_by_name(choice.substr(0, equals).c_str());
      if (only < 0) {
        return usage_error(
            fmt::format("--lane {}: unknown op \"{}\"", choice, choice.substr(0, equals)),
            fmt::format("{}ops: {}", did_you_mean(choice.substr(0, equals), op_names()),
                        fmt::join(op_names(), ", ")));
      }
    }
    const int rank = single ? 3 : is_partial(name) ? 2 : 1;
    for (int op = 0; op < AS_OP_COUNT; ++op) {
      if (only >= 0 && op != only) continue;
      const auto i = static_cast<std::size_t>(op);
      if (lane->ops[op] != nullptr) {
        if (rank <= by[i].rank && selector.names_[i] != lane->name) {
          return chosen_twice(by[i], choice, op, rank);
        }
        if (rank >= by[i].rank) by[i] = {rank, choice};
        selector.functions_[i] = lane->ops[op];
        selector.names_[i] = lane->name;
        if (op == AS_OP_SCHEDULE) selector.between_ = registry.between(*lane);
      } else if (single || !(is_partial(name) || is_host_op(op))) {
        return usage_error(
            fmt::format("--lane {}: lane {} has no op {}", choice, name, as_op_find(op)->name),
            fmt::format("lanes with it: {}",
                        fmt::join(registry.lanes_of(static_cast<as_op_id>(op)), ", ")));
      }
    }
  }
  return selector;
}

LaneSelector LaneSelector::without(std::string_view lane, const LaneSelector& other) const {
  LaneSelector selector = *this;
  for (std::size_t i = 0; i < AS_OP_COUNT; ++i) {
    if (names_[i] != lane) continue;
    selector.functions_[i] = other.functions_[i];
    selector.names_[i] = other.names_[i];
    if (i == AS_OP_SCHEDULE) selector.between_ = other.between_;
  }
  if (merge_lane_ == lane) {
    selector.merge_ = other.merge_;
    selector.merge_lane_ = other.merge_lane_;
  }
  return selector;
}

LaneSelector LaneSelector::with(as_op_id op, const Lane& lane) const {
  LaneSelector selector = *this;
  if (op >= AS_OP_COUNT) return selector;
  selector.functions_[op] = lane.ops[op];
  selector.names_[op] = lane.name;
  if (op == AS_OP_SCHEDULE) selector.between_ = nullptr;
  return selector;
}

std::string describe_lanes(std::span<const std::string> by_op) {
  std::map<std::string, int> counts;
  for (const std::string& name : by_op) {
    if (!name.empty()) ++counts[name];
  }
  if (counts.empty()) return {};
  auto most = std::max_element(counts.begin(), counts.end(),
                               [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string text = most->first;
  for (int op = 0; op < AS_OP_COUNT; ++op) {
    const std::string& name = by_op[static_cast<std::size_t>(op)];
    if (!name.empty() && name != most->first)
      text += fmt::format(", {}={}", as_op_find(op)->name, name);
  }
  return text;
}

}  // namespace attnscope
