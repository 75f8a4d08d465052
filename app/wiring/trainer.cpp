#include "app/wiring/trainer.h"

#include "app/wiring/deepseek_v4/model_reference.h"
#include "app/wiring/mla/mla_reference.h"
#include "app/wiring/model_tensors.h"
#include "engine/config/scenario.h"
#include "engine/family/models.h"

namespace attnscope {

std::int64_t selected_tokens(const ModelConfig& config) {
  for (int i = 0; i < config.num_layers(); ++i) {
    if (layer_selects(config, i)) return config.ratio(i);
  }
  return 0;
}

Result<std::unique_ptr<reference::Trainer>> make_trainer(const ModelConfig& config,
                                                         std::uint64_t seed,
                                                         const std::string& checkpoint,
                                                         std::int64_t torch_threads,
                                                         const as_threads* threads) {
  Scenario scenario;
  scenario.model = config;
  scenario.seed = seed;
  scenario.checkpoint = checkpoint;
  auto tensors = model_tensors(scenario, threads, [](const std::string&) { return true; });
  if (!tensors) return tensors.error();
  const reference::TrainOptions options{.threads = static_cast<int>(torch_threads)};
  if (config.family == "mla") {
    return reference::Trainer::make(mla_numbers(config), tensors->source, options);
  }
  return reference::Trainer::make(model_numbers(config), tensors->source, options);
}

}  // namespace attnscope
