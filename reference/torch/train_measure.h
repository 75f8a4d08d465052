// What a model and its indexer do to text that they did not learn from.
#pragma once

#include "reference/torch/train_model.h"
#include "reference/trainer.h"

namespace attnscope::reference {

// ids [B, T + 1]. far: entries that a token must see to be looked at.
TrainMeasure measure_selections(const TrainModel& model, const at::Tensor& ids, std::int64_t far);

}  // namespace attnscope::reference
