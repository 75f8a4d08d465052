// Trains a model with an indexer, as it is published: the model by the loss of the next byte, the
// indexer by how far its distribution is from that of attention. Absorbed MLA (DeepSeek-V3.2),
// whose indexer selects tokens, and DeepSeek-V4, whose indexer selects entries of 4 tokens; an
// entry is a token or those 4 below. float32, or float64 for checks, by libtorch's autograd, on the
// device of use_device() (torch_module.h).
//
//   stage    attention over           the model learns           the indexer learns
//   kModel   all entries              the next byte              nothing
//   kWarmUp  all entries              nothing                    KL(p || softmax(I)), all entries
//   kSparse  what the indexer chose   the next byte              the same over the chosen entries
//
// Windows, sinks and entries that no indexer selects have their part of attention in each stage. p
// is attention to the entries, summed over the heads and divided by its sum, and is no function of
// anything that learns; what the indexer is given is cut off from the model, so that neither loss
// reaches what the other one trains. A step is one gradient by Adam; on the host, the same calls
// give the same bytes with the same number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/params/result.h"
#include "reference/model_mla.h"

namespace attnscope::reference {

enum class TrainStage { kModel, kWarmUp, kSparse };

// Token ids [sequences, length + 1]: each is asked for what follows it, the last one for nothing.
struct TrainBatch {
  std::span<const std::int32_t> tokens;
  std::int64_t sequences = 0, length = 0;
};

struct TrainLoss {
  double language = 0;  // nats a byte
  double kl = 0;        // nats a token, of the layers that select, on average
};

// What one layer selects, on average over the tokens that see at least so many entries as
// were asked for.
struct SelectionMeasure {
  double kl = 0;                              // over all entries
  double recall = 0;                          // of the k entries with most attention
  double mass = 0;                            // share of the attention to entries
  double last_recall = 0, last_mass = 0;      // the same of the last k entries
  double random_recall = 0, random_mass = 0;  // expected of k entries by chance
  double best_mass = 0;                       // of the k entries with most attention
  double overlap = 0;  // share of the k that the token before had selected too
};

struct TrainMeasure {
  TrainLoss dense;                       // over all positions; kl: over all entries
  double sparse = 0;                     // language loss where layers attend to what they select
  double dense_far = 0, sparse_far = 0;  // the same of tokens that see enough
  std::vector<SelectionMeasure> layers;  // those that select
  // [sequences, tokens that see enough, layers that select, k] of attention to all, ascending.
  std::vector<std::int32_t> selected;
};

// One tensor with what Adam keeps of it.
struct TrainedTensor {
  std::string name;  // published
  std::vector<std::int64_t> shape;
  std::vector<float> value, first, second;
};

struct TrainOptions {
  bool float64 = false;
  int threads = 1;  // of libtorch
};

class Trainer {
 public:
  // AS_NO_ENVIRONMENT: libtorch does not load. AS_BAD_INPUT names a tensor that is missing or has
  // another shape than the model's. Weights are copied.
  static Result<std::unique_ptr<Trainer>> make(const MlaNumbers& numbers,
                                               const TensorSource& source,
                                               const TrainOptions& options);
  static Result<std::unique_ptr<Trainer>> make(const ModelNumbers& numbers,
                                               const TensorSource& source,
                                               const TrainOptions& options);
  virtual ~Trainer() = default;

  // What was lost before the step. An error where it is no number: nothing has changed then.
  virtual Result<TrainLoss> step(TrainStage stage, const TrainBatch& batch, double rate) = 0;
  // far: entries that a token must see to be looked at.
  virtual Result<TrainMeasure> measure(const TrainBatch& batch, std::int64_t far) const = 0;

  // Of both losses together, by the weight of this name; empty where nothing of it was learnt.
  virtual Result<std::vector<double>> gradient(TrainStage stage, const TrainBatch& batch,
                                               const std::string& name) = 0;
  virtual Result<TrainLoss> loss(TrainStage stage, const TrainBatch& batch) = 0;
  virtual Result<void> nudge(const std::string& name, std::int64_t element, double by) = 0;
  // Of the dense model: logits [sequences, length, 256].
  virtual Result<std::vector<double>> logits(const TrainBatch& batch, bool sparse) const = 0;

  // Everything that later steps depend on, in the order of names.
  virtual std::vector<TrainedTensor> tensors() const = 0;
  // As tensors() gave them. steps: that Adam has made.
  virtual Result<void> restore(const std::vector<TrainedTensor>& tensors, std::int64_t steps) = 0;
  virtual std::int64_t steps() const = 0;
};

}  // namespace attnscope::reference
