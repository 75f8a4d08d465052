// Commands that look closer: why a value came out, how attention was split, what if one thing were
// different, and how a metric goes over one parameter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/session.h"

namespace attnscope {

// How all of them get a session to its place.
struct LookAt {
  std::string scenario, place;  // place: STEP/LAYER/OP
  ModelChoice model;
  std::string profile;  // empty = the scenario's
  std::vector<std::string> lanes = {"cpu"};
  int threads = 0;
  bool json = false;
};

// A token by its request (name or id) and position; position -1 = not asked for.
struct TokenChoice {
  std::string request = "0";
  std::int64_t position = -1;
  bool asked() const { return position >= 0; }
};

struct WhyCommand {
  LookAt at;                // place: empty = the first op that is wrong for the chosen token
  std::int64_t token = -1;  // -1 = the last of the step
  TokenChoice chosen;       // in its place
  std::int64_t head = 0, dim = 0;
  std::int64_t slot = -1;   // every write to it; -1 = not asked
  std::string cache;        // empty = the first one of the model
  std::int64_t entry = -1;  // tokens pooled into it, of the chosen request; -1 = not asked
  std::int64_t rows = 24;   // contributions to print, largest first
};
Result<as_status> why_command(const WhyCommand& command);

// The plan of a step's attention (app/views/plan_view.h), for layers of the place's type.
struct PlanCommand {
  LookAt at;
  std::int64_t token = -1;  // its splits alone; -1 = those of all tokens
  std::int64_t rows = 24;   // splits to print
};
Result<as_status> plan_command(const PlanCommand& command);

struct WhatIfCommand {
  LookAt at;  // place: empty = the first op that is wrong for the chosen token
  std::vector<std::string> with = {"cpu"};  // lanes to try in its place
  std::int64_t token = -1;                  // to compute alone; -1 = the worst, or the last
  TokenChoice chosen;                       // in its place
  bool after = false;                       // everything after it too
  std::vector<std::string> changes;         // .. with these alone; empty = all that apply
  bool once = false;                        // .. with that op changed alone
  std::int64_t steps = 0;                   // .. for so many steps; 0 = to the end
};
Result<as_status> what_if_command(const WhatIfCommand& command);

struct SweepCommand {
  std::string scenario, vary;  // "prompt=126..190"
  ModelChoice model;
  std::vector<std::string> metrics;
  std::vector<std::string> lanes = {"cpu"};
  std::int64_t decode_steps = 2;
  int threads = 0;
  bool json = false;
};
Result<as_status> sweep_command(const SweepCommand& command);

struct ProfilesCommand {
  std::string scenario;
  ModelChoice model;
  std::string profile;  // to compare with; empty = the scenario's
  int threads = 0;
  bool json = false;
};
Result<as_status> profiles_command(const ProfilesCommand& command);

}  // namespace attnscope
