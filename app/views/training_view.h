// What a training has come to, from the tables that it writes interval by interval (attnscope
// train, assets/training.md): curves over its steps.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/params/result.h"

namespace attnscope {

struct TrainingTable {
  std::string name;  // "tiny-v3.2-seed-2 indexer"
  std::string path;
  friend bool operator==(const TrainingTable&, const TrainingTable&) = default;
};

// Those below a folder of trained models, by name.
std::vector<TrainingTable> training_tables(const std::string& folder);

struct TrainingCurve {
  std::string name;  // "held out", "layer 1"
  std::vector<double> steps, values;
};

struct TrainingPlot {
  std::string title;
  std::string about;   // what is measured, in a sentence
  bool share = false;  // values are shares of 1
  std::vector<TrainingCurve> curves;
};

struct TrainingView {
  std::string sentence;
  std::int64_t steps = 0;  // made so far
  std::vector<TrainingPlot> plots;
  // Where a stage begins that is not the first: the last step of the one before, the new one's
  // name.
  std::vector<std::pair<double, std::string>> stages;
};

// AS_BAD_INPUT names the line of a table that is none.
Result<TrainingView> training_view(const std::string& csv, const std::string& path);

}  // namespace attnscope
