// Profiles: sets of the switches on which published implementations disagree, and each switch by
// name.
//
//   profile_switches("deepseek,q_norm=fp32")   // a profile, then single switches set otherwise
//
// The text of a profile says all: what is set afterwards is appended to it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model_config.h"

namespace attnscope {

struct SwitchInfo {
  const char* name;
  const char* sentence;             // what it is about
  std::vector<const char*> values;  // by the number that is stored
  int (*get)(const ProfileSwitches&);
  void (*set)(ProfileSwitches&, int);
};
std::span<const SwitchInfo> all_switches();
// "hadamard (off, on), ..": names with their values, of all or of these.
std::string switch_list();
std::string switch_list(std::span<const char* const> names);

// Sets one switch and tells the profile's text of it. An unknown name or value is refused with
// those there are.
Result<void> set_switch(ProfileSwitches& switches, std::string_view name, std::string_view value);

// The value that a switch has, by its name: "bf16".
const char* switch_value(const ProfileSwitches& switches, std::string_view name);

}  // namespace attnscope
