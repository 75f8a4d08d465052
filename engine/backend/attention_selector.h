// Which backend vLLM takes for a layer, with the whole reasoning: every backend, in the order in
// which it is tried, accepted or refused and by which rules.
//
//   AttentionRegistry backends;
//   Result<BackendSelection> s = explain_backends(backends, request);
//   Result<const BackendVerdict*> taken = chosen_backend(*s);   // or an error with the reasons
//
// Rules are those of vllm/v1/attention/backend.py (validate_configuration) at 0014ca6b, orders
// those of vllm/platforms/cuda.py at 002db495 and of docs/design/attention_backends.md at 00139433;
// of rocm.py and xpu.py as descriptions of them have it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/attention_registry.h"

namespace attnscope {

// When a rule is asked.
enum class RuleStage {
  kSelector,  // while backends are compared: the next one is tried
  kLayer,     // when the layer is made: by then the choice has fallen, and vLLM ends
};

struct BackendRule {
  const char* name;
  RuleStage stage;
  const char* what;  // a sentence without its full stop
};
// All of them, in the order in which they are asked.
std::span<const BackendRule> backend_rules();

struct BrokenRule {
  std::string rule;  // BackendRule::name
  RuleStage stage = RuleStage::kSelector;
  std::string asked, allowed;
};

struct BackendVerdict {
  const AttentionBackend* backend = nullptr;  // of the registry
  std::string variant;                        // "FA3"; empty = it has none
  GraphSupport graph = GraphSupport::kNotLookedUp;
  int order = -1;  // in which it is tried, from 0; -1 = only where it is named
  std::vector<BrokenRule> broken;

  bool accepted() const;     // by the selector
  bool makes_layer() const;  // and by its own class
  bool tried() const { return order >= 0; }
};

struct BackendSelection {
  AttentionRequest request;
  std::vector<BackendVerdict> verdicts;  // those that are tried, in order; then the others
  int chosen = -1;                       // index into verdicts, -1 = none
  int block_size = 0;                    // tokens, of the chosen one
  std::string layout;                    // "NHD" or "HND", likewise
  std::vector<std::string> notes;        // what else is to be known; sentences
};

// AS_USAGE or AS_BAD_INPUT: a backend that nobody knows, a value that no backend could have.
Result<BackendSelection> explain_backends(const AttentionRegistry& registry,
                                          const AttentionRequest& request);
// The one that is taken. AS_BAD_INPUT with all reasons where none is, where the one that was named
// is refused, and where its layer cannot be made.
Result<const BackendVerdict*> chosen_backend(const BackendSelection& selection);

// How its pages lie in memory, "NHD" or "HND": as the backend takes them alone, or the variant,
// else as the axes of its cache stand.
std::string page_layout(const BackendVerdict& verdict);

// Names in the order in which vLLM tries them for this layer on this platform.
std::vector<std::string> backend_order(const AttentionRequest& request);

// "tiny-gemma on sm_90: FLASH_ATTN (FA3), first of 5 that are tried; 4 of them would do."
std::string describe(const BackendSelection& selection);
// "soft cap: asked 20, allowed none"
std::string describe(const BrokenRule& broken);
// The same of several, with "; " between them.
std::string describe(std::span<const BrokenRule> broken);
// "FLASH_ATTN (FA3)"; without a version the name alone.
std::string name_and_version(std::string_view name, std::string_view version);

}  // namespace attnscope
