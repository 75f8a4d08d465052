// The audit of absorbed MLA: see op_audit.h.
#pragma once

#include <string>
#include <utility>

#include "app/wiring/exchange_audit.h"
#include "app/wiring/layer_audit.h"
#include "reference/model_mla.h"

namespace attnscope {

class MlaAudit : public LayerAudit {
 public:
  // numbers: those that the model is made of; config: of the whole model.
  MlaAudit(const reference::ModelReference& model, reference::MlaNumbers numbers,
           const ModelConfig& config, CacheLayout layout)
      : LayerAudit(model, numbers.layers, std::move(layout), AS_OP_Q_B_PROJ),
        n_(std::move(numbers)),
        mla_(config.mla),
        scores_(config.switches.index_scores),
        host_rows_(config.host_rows) {}

 private:
  void check_numbers(const OpParams& params, int layer) override;
  void check_sources(const OpParams& params, int layer) override;
  void check_weights(const OpParams& params, int layer) override;
  // from: the row of the published weight that the op's tensor begins with.
  void check_weight(const OpParams& params, int layer, const char* tap, const std::string& name,
                    std::int64_t first = 0, std::int64_t rows = -1, std::int64_t from = 0,
                    std::int64_t column = 0);
  void check_cache(const OpParams& params, int layer, const char* tap);

  const reference::MlaNumbers n_;
  const MlaAttention mla_;
  const std::int32_t scores_;
  const bool host_rows_;
  ExchangeAudit exchange_;
};

}  // namespace attnscope
