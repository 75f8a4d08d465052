// The audit of dense attention: see op_audit.h.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "app/wiring/layer_audit.h"
#include "reference/model_dense.h"

namespace attnscope {

class DenseAudit : public LayerAudit {
 public:
  // numbers: those that the model is made of.
  DenseAudit(const reference::ModelReference& model, reference::DenseNumbers numbers,
             CacheLayout layout)
      : LayerAudit(model, numbers.layers, std::move(layout), AS_OP_Q_PROJ),
        n_(std::move(numbers)) {}

 private:
  void check_numbers(const OpParams& params, int layer) override;
  void check_sources(const OpParams& params, int layer) override;
  void check_weights(const OpParams& params, int layer) override;
  // It writes rows to caches of its own.
  void check_peer(const OpParams& params, int layer) override;
  void check_sided_weights(const OpParams& params, int layer);
  void check_weight(const OpParams& params, int layer, const char* tap, const std::string& name);
  std::pair<std::int64_t, std::int64_t> first_of_rank(as_op_id op, const TensorEntry& given) const;
  void check_insertion(const OpParams& params, int layer);
  void check_attention(const OpParams& params, int layer);
  void check_shared(const OpParams& params, int layer);
  // The running layer whose rows a running layer reads.
  int rows_of(int layer) const;
  void check_local_batch(const OpParams& params);
  void check_packed(const OpParams& params, int layer);
  void check_masks(const OpParams& params, int layer, const as_tensor& mask,
                   const as_tensor& score);
  void check_places(const OpParams& params, int layer, bool cross);
  // Tokens of the chunks of a running layer, 0 = none.
  std::int64_t chunk_of(int layer) const;
  void check_cache(const OpParams& params, int layer, const char* tap);
  // First tokens of a running layer that have rows of 16 bits too.
  std::int64_t first_tokens_of(int layer) const;
  void check_wide(const OpParams& params, int layer, const char* rows, const as_tensor& all);

  const reference::DenseNumbers n_;
  as_tensor local_tables_{};  // of groups with chunks, of this step
  // Where this step's insertions wrote, by layer, rank and tap.
  std::map<std::tuple<int, int, std::string>, const void*> row_outputs_;
};

}  // namespace attnscope
