// What a run has exercised, and what it has not: a sound run proves nothing about paths it never
// took.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/session/session.h"
#include "engine/session/step/step_exercise.h"

namespace attnscope {

struct Exercised {
  std::string name;        // "selective_indexer"
  std::string sentence;    // what it means
  std::string advice;      // how a scenario gets there
  std::int64_t count = 0;  // how often it was met; 0 = not exercised
  std::int64_t first_step = -1;
};

// Adds what the op that ran last met.
void note_exercise(const Session& session, StepExercise* step);

// Those that the model can reach, over all steps, by step number.
std::vector<Exercised> exercised(const ModelConfig& config,
                                 const std::map<std::int64_t, StepExercise>& steps);

// Of a whole run.
class Exercise {
 public:
  explicit Exercise(const ModelConfig& config) : config_(config) {}
  // After every op of a session.
  void op_done(const Session& session);
  std::vector<Exercised> all() const { return exercised(config_, steps_); }

 private:
  ModelConfig config_;
  std::map<std::int64_t, StepExercise> steps_;
};

}  // namespace attnscope
