// What a run has exercised, and what it has not: a sound run proves nothing about paths it never
// took.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/session/session.h"
#include "engine/session/step/step_coverage.h"

namespace attnscope {

struct CoveredPath {
  std::string name;        // "selective_indexer"
  std::string sentence;    // what it means
  std::string advice;      // how a scenario gets there
  std::int64_t count = 0;  // how often it was met; 0 = not exercised
  std::int64_t first_step = -1;
};

// Paths that only a family has, entered in coverage.cpp; a path without a name is none of the
// model's.
struct FamilyPaths {
  const char* family;
  // Names those that the model can reach; all: by Path.
  void (*name)(const ModelConfig& config, std::vector<CoveredPath>& all);
  // As note_coverage(), of these.
  void (*op_done)(const Session& session, StepCoverage* step);
};

// Adds what the op that ran last met.
void note_coverage(const Session& session, StepCoverage* step);

// Those that the model can reach, over all steps, by step number.
std::vector<CoveredPath> exercised(const ModelConfig& config,
                                   const std::map<std::int64_t, StepCoverage>& steps);

// Of a whole run.
class Coverage {
 public:
  explicit Coverage(const ModelConfig& config) : config_(config) {}
  // After every op of a session.
  void op_done(const Session& session);
  std::vector<CoveredPath> all() const { return exercised(config_, steps_); }

 private:
  ModelConfig config_;
  std::map<std::int64_t, StepCoverage> steps_;
};

}  // namespace attnscope
