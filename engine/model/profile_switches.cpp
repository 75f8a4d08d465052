#include "engine/model/profile_switches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/io/json_object.h"

namespace attnscope {
namespace {

using Switches = ProfileSwitches;

// In the order of the switch's values.
constexpr std::int32_t kMultiprocessors[] = {132, 8, 16, 78, 108, 114, 148};

const SwitchInfo kSwitches[] = {
    {"hadamard",
     "Hadamard transform of index queries and keys",
     {"off", "on"},
     [](const Switches& s) { return s.hadamard ? 1 : 0; },
     [](Switches& s, int v) { s.hadamard = v != 0; }},
    {"round_rotated",
     "index queries and keys rounded to bf16 after RoPE, before the Hadamard transform",
     {"off", "on"},
     [](const Switches& s) { return s.round_rotated ? 1 : 0; },
     [](Switches& s, int v) { s.round_rotated = v != 0; }},
    {"index_scores",
     "index scores: in fp32; weights, dot products, products and sum rounded to bf16; or held "
     "against what tensor cores of Hopper lose of sums of e4m3 products, for lanes that have them",
     {"fp32", "bf16", "e4m3"},
     [](const Switches& s) { return static_cast<int>(s.index_scores); },
     [](Switches& s, int v) { s.index_scores = v; }},
    {"index_format",
     "format of index queries and keys",
     {"fp8", "mxfp4"},
     [](const Switches& s) { return s.index_format == AS_RECORD_INDEX_MXFP4 ? 1 : 0; },
     [](Switches& s, int v) {
       s.index_format = v != 0 ? AS_RECORD_INDEX_MXFP4 : AS_RECORD_INDEX_FP8;
     }},
    {"ratio0_yarn",
     "YaRN in window-only layers",
     {"off", "on"},
     [](const Switches& s) { return s.ratio0_yarn ? 1 : 0; },
     [](Switches& s, int v) { s.ratio0_yarn = v != 0; }},
    {"round_pooled",
     "pooled entry rounded to bf16 before its norm",
     {"off", "on"},
     [](const Switches& s) { return s.round_pooled ? 1 : 0; },
     [](Switches& s, int v) { s.round_pooled = v != 0; }},
    {"scale_floor",
     "floor of the largest magnitude of an FP8 block",
     {"1e-4", "1e-8"},
     [](const Switches& s) { return static_cast<int>(s.scale_floor); },
     [](Switches& s, int v) { s.scale_floor = v; }},
    {"fp4_rule",
     "floor and ties of MXFP4: 6*2^-126 and to even, or 6e-4 and down",
     {"even", "down"},
     [](const Switches& s) { return static_cast<int>(s.fp4_rule); },
     [](Switches& s, int v) { s.fp4_rule = v; }},
    {"q_norm",
     "norm of a query's heads: in fp32, every step or its factor rounded to bf16",
     {"fp32", "bf16", "bf16_factor"},
     [](const Switches& s) { return static_cast<int>(s.q_norm); },
     [](Switches& s, int v) { s.q_norm = v; }},
    {"rope_frequencies",
     "arithmetic of the rotary frequencies: every step in float64, or rounded to fp32 as served",
     {"fp64", "fp32"},
     [](const Switches& s) { return static_cast<int>(s.rope_frequencies); },
     [](Switches& s, int v) { s.rope_frequencies = v; }},
    {"projections",
     "the large projections: in bf16, or e4m3 codes with a scale for each block of 128, with or "
     "without the first of attention's output",
     {"bf16", "fp8", "fp8_but_wo_a"},
     [](const Switches& s) { return !s.fp8_projections ? 0
                                    : s.bf16_wo_a      ? 2
                                                       : 1; },
     [](Switches& s, int v) {
       s.fp8_projections = v != 0;
       s.bf16_wo_a = v == 2;
     }},
    {"prefill",
     "attention of tokens that prefill: over rows of the caches, or of a workspace gathered before",
     {"direct", "gathered"},
     [](const Switches& s) { return s.gathered_prefill ? 1 : 0; },
     [](Switches& s, int v) { s.gathered_prefill = v != 0; }},
    {"attention_plan",
     "splits of attention: as its lane likes, or planned once a step by the own rule or FlashMLA's",
     {"none", "own", "flashmla"},
     [](const Switches& s) { return static_cast<int>(s.attention_plan); },
     [](Switches& s, int v) { s.attention_plan = v; }},
    {"multiprocessors",
     "of the GPU that the plan is made for: H100 and H200 have 132, A100 108, B200 148",
     {"132", "8", "16", "78", "108", "114", "148"},
     [](const Switches& s) {
       return static_cast<int>(std::ranges::find(kMultiprocessors, s.multiprocessors) -
                               std::begin(kMultiprocessors));
     },
     [](Switches& s, int v) { s.multiprocessors = kMultiprocessors[v]; }},
    {"attention_form",
     "passes of dense attention: one over all rows, rows of earlier steps apart from new ones and "
     "merged, or a common prefix once for all requests and merged",
     {"one_pass", "merged", "cascade"},
     [](const Switches& s) { return static_cast<int>(s.attention_form); },
     [](Switches& s, int v) { s.attention_form = v; }},
};

bool named_profile(std::string_view name, Switches* s) {
  *s = {};
  if (name != "vllm" && name != "deepseek") return false;
  s->profile = std::string(name);
  if (name == "vllm") return true;
  s->index_format = AS_RECORD_INDEX_MXFP4;
  s->hadamard = true;
  s->round_rotated = true;
  s->round_pooled = true;
  s->q_norm = AS_Q_NORM_BF16;
  return true;
}

// What a profile set before it had this version.
struct FormerValue {
  int version;
  const char *name, *value;
};
constexpr FormerValue kFormer[] = {{2, "rope_frequencies", "fp64"}, {2, "round_rotated", "off"}};

}  // namespace

std::span<const SwitchInfo> all_switches() { return kSwitches; }

std::string switch_list() {
  std::vector<const char*> names;
  for (const SwitchInfo& s : kSwitches) names.push_back(s.name);
  return switch_list(names);
}

std::string switch_list(std::span<const char* const> names) {
  std::vector<std::string> all;
  for (const SwitchInfo& s : kSwitches) {
    if (std::ranges::find(names, std::string_view(s.name)) == names.end()) continue;
    all.push_back(fmt::format("{} ({})", s.name, fmt::join(s.values, ", ")));
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

Result<void> set_switch(ProfileSwitches& switches, std::string_view name, std::string_view value) {
  const auto found =
      std::find_if(std::begin(kSwitches), std::end(kSwitches),
                   [&](const SwitchInfo& s) { return name == std::string_view(s.name); });
  if (found == std::end(kSwitches)) {
    return bad_input("no switch is called " + shown_name(name), "switches: " + switch_list());
  }
  for (std::size_t i = 0; i < found->values.size(); ++i) {
    if (value != std::string_view(found->values[i])) continue;
    found->set(switches, static_cast<int>(i));
    if (switches.gathered_prefill && switches.attention_plan != AS_PLAN_NONE) {
      return bad_input(fmt::format("switch {} cannot be {} here: plans are of lists in the caches, "
                                   "not of gathered rows",
                                   found->name, value),
                       "set prefill=direct, or attention_plan=none");
    }
    // The text keeps the last word on a switch only.
    const std::string key = fmt::format(",{}=", name);
    if (const std::size_t at = switches.profile.find(key); at != std::string::npos) {
      const std::size_t end = switches.profile.find(',', at + 1);
      switches.profile.erase(at, std::min(end, switches.profile.size()) - at);
    }
    Switches plain;
    named_profile(std::string_view(switches.profile).substr(0, switches.profile.find(',')), &plain);
    if (found->get(plain) != static_cast<int>(i)) {
      switches.profile += fmt::format("{}{}", key, value);
    }
    return {};
  }
  return bad_input(fmt::format("switch {} cannot be {}", found->name, shown_name(value)),
                   fmt::format("allowed: {}", fmt::join(found->values, ", ")));
}

const char* switch_value(const ProfileSwitches& switches, std::string_view name) {
  const SwitchInfo& found =
      *std::find_if(std::begin(kSwitches), std::end(kSwitches),
                    [&](const SwitchInfo& s) { return name == std::string_view(s.name); });
  return found.values[static_cast<std::size_t>(found.get(switches))];
}

Result<ProfileSwitches> profile_switches(std::string_view text) {
  ProfileSwitches switches;
  std::size_t end = std::min(text.find(','), text.size());
  if (!named_profile(text.substr(0, end), &switches)) {
    return bad_input("unknown profile " + shown_name(text.substr(0, end)),
                     "allowed: vllm, deepseek; single switches behind it, "
                     "as in vllm,hadamard=on,q_norm=bf16");
  }
  while (end < text.size()) {
    const std::size_t begin = end + 1;
    end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      return bad_input(
          fmt::format("profile {}: {} sets nothing", shown_name(text), shown_name(part)),
          "write SWITCH=VALUE; switches: " + switch_list());
    }
    auto set = set_switch(switches, part.substr(0, equals), part.substr(equals + 1));
    if (!set) return set.error();
  }
  return switches;
}

ProfileSwitches switches_of_version(ProfileSwitches switches, int version) {
  for (const FormerValue& former : kFormer) {
    const bool named = switches.profile.find(fmt::format(",{}=", former.name)) != std::string::npos;
    if (version >= former.version || named) continue;
    (void)set_switch(switches, former.name, former.value);
  }
  if (version < 3 && switches.fp8_projections) {
    (void)set_switch(switches, "projections", "fp8_but_wo_a");
  }
  return switches;
}

}  // namespace attnscope
