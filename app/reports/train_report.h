// What training changed, measured on held-out text: trained models, each beside itself before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/params/lane.h"
#include "kernels/params/result.h"
#include "reference/trainer.h"

namespace attnscope {

struct TrainReportOptions {
  std::vector<std::string> text;            // empty = the program's own
  std::int64_t length = 0, sequences = 16;  // length: 0 = that of the model's training
};

// One folder of a training.
struct TrainedSeed {
  std::string folder;
  reference::TrainMeasure before;   // the trained model with the indexer that it began with
  reference::TrainMeasure trained;  // with both stages of the indexer behind it
};

struct TrainReport {
  std::string model;
  std::int64_t topk = 0, sequences = 0, length = 0, held = 0;
  std::int64_t far = 0;     // entries that a token must see to be in figures of selections
  std::int64_t entry = 1;   // tokens of an entry
  double untrained = 0;     // language loss of the preset's own weights
  std::vector<int> layers;  // published numbers of those that select
  std::vector<TrainedSeed> seeds;

  std::string entry_name() const {
    return entry == 1 ? "tokens" : "entries of " + std::to_string(entry) + " tokens";
  }

  // recall and mass are above those of chance and of the last tokens, in every layer and seed.
  bool beats_chance() const;
  bool beats_last() const;
  // Language loss over what is selected by that over all tokens, both of the weights that the
  // indexer's training left: its sparse stage goes on training the model.
  double worst_cost() const;
  bool holds() const { return beats_chance() && beats_last() && worst_cost() <= kMostCost; }
  static constexpr double kMostCost = 1.02;
};

// Folders of trainings of a preset where they are put without -o. An error where there is none.
Result<std::vector<std::string>> trained_seeds(const std::string& model);
Result<TrainReport> train_report(const std::string& model, const std::vector<std::string>& folders,
                                 const TrainReportOptions& options, const as_threads* threads);
std::string train_report_text(const TrainReport& report);
std::string train_report_csv(const TrainReport& report);

}  // namespace attnscope
