// Which attention backend vLLM takes for a model's layers, and why not another: the tree of rules,
// a line a backend and a line a rule that it breaks.
#pragma once

#include <string>
#include <vector>

#include "app/views/backends_ask.h"
#include "engine/backend/attention_selector.h"
#include "engine/model/model_config.h"

namespace attnscope {

enum class BackendState {
  kTaken,
  kWouldDo,       // accepted, and tried later
  kLayerRefuses,  // accepted, and its class refuses to make the layer
  kRefused,
};

struct BackendLine {
  int order = 0;  // in which it is tried, from 1; 0 = only where it is named, or elsewhere
  std::string name;
  std::string version;  // of its library, by GPU and head size; may be empty
  BackendState state = BackendState::kRefused;
  bool taken = false;  // the choice fell on it, whether it makes the layer or not
  std::string word;    // "taken"
  std::string graph;   // of which batches a full CUDA graph is recorded
  std::string here;    // lanes of this program that compute it, or why there are none
  std::string what;    // what it is
  std::string source;  // where its rules were read
  std::vector<BrokenRule> broken;
};

struct BackendsView {
  std::string sentence;
  std::string asked;  // what the layers ask for, in a line
  std::string given;  // what the choice gives: block size, layout; empty = none is taken
  std::vector<BackendLine> lines;  // those that are tried, in order; then the others
  std::vector<std::string> notes;
};

BackendsView backends_view(const BackendSelection& selection);

// Layers of a model that ask the same of a backend, and which one they get.
struct BackendLayers {
  std::string name;          // "window 32"
  std::string layers;        // "layers 0-4"
  std::vector<int> numbers;  // of those, published
  std::string taken;         // "FLASH_ATTN (FA3)"; empty = none
};

struct ModelBackends {
  std::vector<BackendLayers> layers;  // in the order of their first ones
  std::size_t shown = 0;              // the one that `view` is of
  BackendsView view;
  std::string computed;  // what its backend computes that no rule looks at, and by which ops
  MetadataForm form = MetadataForm::kBlockTables;  // of the one that is taken
};

// Of the layers of a model that run. layer: the tree is of those that ask the same as this
// published one; -1 = as the first. AS_USAGE or AS_BAD_INPUT where no backend could have what is
// asked.
Result<ModelBackends> model_backends(const AttentionRegistry& registry, const ModelConfig& config,
                                     const BackendsAsk& ask, int layer);
// "heads 32, KV heads 8, head size 128, bfloat16, cache auto, decoder, window 32 in 5 of 6 layers"
std::string asked_of_backends(const AttentionRequest& request);
// "head size: asked 32, allowed 64, 128, 256; .."; what it would do where it breaks none.
std::string rules_of(const BackendLine& line);
// "cpu, cuda", or why no lane computes it.
std::string backend_here(const AttentionBackend& backend);

}  // namespace attnscope
