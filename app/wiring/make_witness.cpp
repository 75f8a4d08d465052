// The witness of a session's model: ref.model of its family, and what its ops must be given.
#include <utility>

#include "app/wiring/deepseek_v4/model_reference.h"
#include "app/wiring/deepseek_v4/wiring_audit.h"
#include "app/wiring/dense/dense_audit.h"
#include "app/wiring/dense/dense_reference.h"
#include "app/wiring/mla/mla_audit.h"
#include "app/wiring/mla/mla_reference.h"
#include "app/wiring/model_witness.h"
#include "engine/family/models.h"
#include "engine/family/tensor_parallel.h"

namespace attnscope {

Result<std::unique_ptr<SessionWitness>> make_model_witness(const Scenario& scenario,
                                                           const as_threads* threads) {
  const ModelConfig& config = scenario.model;
  const bool dense = config.family == "dense", mla = config.family == "mla";
  auto model = dense ? dense_reference(scenario, threads)
               : mla ? mla_reference(scenario, threads)
                     : model_reference(scenario, threads);
  if (!model) return model.error();
  std::unique_ptr<OpAudit> audit;
  if (dense) {
    audit = std::make_unique<DenseAudit>(
        **model, dense_numbers(config), build_cache_layout(rank_config(config, scenario.parallel)));
  } else if (mla) {
    audit = std::make_unique<MlaAudit>(**model, mla_numbers(config), config,
                                       build_cache_layout(rank_config(config, scenario.parallel)));
  } else {
    audit = std::make_unique<WiringAudit>(**model, config);
  }
  std::unique_ptr<SessionWitness> witness =
      std::make_unique<ModelWitness>(std::move(*model), std::move(audit), scenario);
  return witness;
}

}  // namespace attnscope
