// Training on the machine at hand: the model by text, then its indexer (reference/trainer.h), in
// intervals, at whose ends held-out text is measured and everything is saved.
//
//   auto run = TrainRun::open(plan, false, threads);
//   while (!(*run)->done()) (*run)->step();
//   (*run)->finish();  // the checkpoint
//
// A folder holds what both trainings leave:
//   model.state, indexer.state   what a later call goes on from: safetensors, with the rows below
//   model.csv, indexer.csv       a row for each layer and interval
//   model/, indexer/             checkpoints with published names
// Each file appears as a whole or not at all. A call that goes on gives the bytes of one that was
// never stopped: what is learnt from in a step follows from seed and step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/reports/train_text.h"
#include "engine/model/model_config.h"
#include "kernels/params/lane.h"
#include "kernels/params/result.h"
#include "reference/trainer.h"

namespace attnscope {

struct TrainPlan {
  std::string what = "model";  // or "indexer"
  std::string model = "tiny-v3.2";
  std::string folder;  // empty = train_folder()
  std::vector<std::string> text;
  std::int64_t seed = 1, steps = 0, sparse_steps = 0, interval = 0;
  std::int64_t sequences = 1, length = 0, threads = 1;
  std::int64_t held = 2;  // sequences measured at the end of an interval
  double rate = 0, sparse_rate = 0;
};

// The schedule of a training ("model", "indexer") where nothing else is asked for. Models whose
// entries hold more tokens have longer sequences, which some tokens see enough entries of, and
// fewer of them.
TrainPlan default_plan(const std::string& what, const ModelConfig& config);
// Of trained models, MODEL of seed 1 and MODEL-seed-N of others.
Result<std::string> train_folder(const TrainPlan& plan);

// What one interval and layer came to.
struct TrainRow {
  std::int64_t step = 0;                  // made so far
  std::string stage;                      // "model", "warm-up", "sparse"
  double rate = 0;                        // of the last step
  double loss = 0, kl = 0;                // of what was learnt from, mean of the interval
  double held_loss = 0, held_sparse = 0;  // held-out text: attending to all, to what is selected
  int layer = 0;                          // published
  double layer_kl = 0, recall = 0, mass = 0, overlap = 0;
  double changed = 0;  // share of the selection that the interval before did not have
};
std::string train_csv(const std::vector<TrainRow>& rows);

class TrainRun {
 public:
  // Goes on from what is saved in the folder, unless `again`, which removes it. AS_BAD_INPUT where
  // the plan is another one than was begun with, and where the indexer lacks a trained model.
  static Result<std::unique_ptr<TrainRun>> open(TrainPlan plan, bool again,
                                                const as_threads* threads);

  std::int64_t steps_made() const { return made_; }
  std::int64_t steps_in_all() const { return plan_.steps + plan_.sparse_steps; }
  bool done() const { return made_ == steps_in_all(); }
  bool finished() const;  // the checkpoint is there
  // One gradient; at the end of an interval measures and saves. True: it was such an end.
  Result<bool> step();
  Result<void> save() const;
  Result<void> finish();

  const TrainPlan& plan() const { return plan_; }
  const TrainText& text() const { return text_; }
  const std::vector<TrainRow>& rows() const { return rows_; }
  std::string checkpoint() const { return plan_.folder + "/" + plan_.what; }

 private:
  TrainRun() = default;
  Result<void> begin(bool again);
  Result<void> go_on(const std::string& path);
  Result<void> end_interval();
  std::string path_of(const char* ending) const { return plan_.folder + "/" + plan_.what + ending; }
  std::string stage_name() const;
  reference::TrainStage stage() const;
  double rate() const;

  TrainPlan plan_;
  ModelConfig config_;
  TrainText text_;
  const as_threads* threads_ = nullptr;
  std::unique_ptr<reference::Trainer> trainer_;
  std::vector<std::int32_t> held_;
  std::int64_t made_ = 0, summed_ = 0;
  double loss_ = 0, kl_ = 0;            // sums of the interval
  std::vector<std::int32_t> selected_;  // at the end of the interval before
  std::vector<TrainRow> rows_;
};

// Entries that a token must see for its selection to be in the figures: 8 times as many as it
// selects. An error where no token of a sequence sees so many.
Result<std::int64_t> far_entries(const ModelConfig& config, std::int64_t length);
// The preset, which must have an indexer, as it is trained: it selects 64 entries at most, so that
// sequences of minutes leave some out.
Result<ModelConfig> trainable_model(const std::string& name);

}  // namespace attnscope
