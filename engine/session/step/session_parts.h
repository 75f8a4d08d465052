// What a session is built on: configuration, weights, layout of the caches, lanes of references.
#pragma once

#include <memory>
#include <vector>

#include "engine/cache/cache_layout.h"
#include "engine/cache/context_split.h"
#include "engine/family/op_graph.h"
#include "engine/model/model_config.h"
#include "engine/model/weights.h"
#include "engine/offload/overlap_choice.h"
#include "engine/trace/tolerances.h"
#include "kernels/params/lane_table.h"

namespace attnscope {

class HiddenStates;
class RecordedRows;
struct TensorUse;

enum class References { kNone, kSim, kBoth };

// Shared by the parts of a session, outlives them.
struct SessionParts {
  std::shared_ptr<const ModelGraph> graph;            // of the config
  ModelConfig config;                                 // of one rank
  std::shared_ptr<const Weights> weights;             // outlived by copies that traces hold on to
  std::vector<std::shared_ptr<const Weights>> ranks;  // by rank, the own one included
  std::shared_ptr<const std::vector<TensorUse>> weights_read;  // null: the weights are synthetic
  std::shared_ptr<const HiddenStates> inputs;                  // of the layers; null: computed
  std::shared_ptr<const RecordedRows> recorded;                // the same, read a second time
  std::vector<as_rope> ropes;                                  // by running layer, tables set
  CacheLayout layout;    // with the caches of peers, where they have their own
  ContextSplit context;  // how rows of a request are dealt out over ranks
  OverlapChoice attend;  // how layers hide rows that come from host memory
  Tolerances tolerances;
  bool adversarial_lists = false;  // lanes get adversarial_lists.h
  const Lane* sim = nullptr;       // references; nullptr = none
  const Lane* exact = nullptr;
  const as_threads* threads = nullptr;
};

}  // namespace attnscope
