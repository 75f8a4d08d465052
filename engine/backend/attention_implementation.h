// What computes a layer with the backend that it got: which ops, of which lane. It is made when the
// layer first runs, and not where a model is only looked at: a lane may need a GPU.
//
//   LayerBackend layer(backend, attention_layer(config, 0));
//   Result<const AttentionImplementation*> made = layer.implementation(lanes, "cuda");
//   (*made)->function(AS_OP_PAGED_ATTENTION)(&params, &call, &error);
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/backend/attention_layer.h"
#include "engine/backend/registry.h"

namespace attnscope {

// Ops of this program that compute what the backend does in such a layer, in the order in which a
// step runs them: what cuts the batch, what writes rows, attention. Empty: it does not run here.
std::vector<as_op_id> serving_ops(const AttentionBackend& backend, const AttentionLayer& layer);

struct AttentionImplementation {
  std::string lane;
  std::vector<std::pair<as_op_id, as_op_fn>> ops;

  as_op_fn function(as_op_id op) const;  // nullptr = it has none
};

class LayerBackend {
 public:
  // The backend must outlive it: rows of a registry do.
  LayerBackend(const AttentionBackend& backend, AttentionLayer layer)
      : backend_(&backend), layer_(std::move(layer)) {}

  const AttentionBackend& backend() const { return *backend_; }
  const AttentionLayer& layer() const { return layer_; }
  bool made() const { return made_.has_value(); }

  // Made by the first call that succeeds, kept from then on. AS_NO_ENVIRONMENT: the backend, or the
  // lane, does not run here, and why; AS_USAGE: a lane that nobody knows, or without one of the
  // ops, or another one than it was made of.
  Result<const AttentionImplementation*> implementation(const LaneRegistry& lanes,
                                                        std::string_view lane);

 private:
  const AttentionBackend* backend_;
  AttentionLayer layer_;
  std::optional<AttentionImplementation> made_;
};

}  // namespace attnscope
