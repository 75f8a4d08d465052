#include "engine/session/verify/sum_watch.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "engine/model/numbers.h"
#include "engine/session/verify/verifier.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

double part_value(bf16_t v) {
  return static_cast<double>(std::bit_cast<float>(std::uint32_t{v.bits} << 16));
}

TapResult sum_result(as_op_id op, const as_tensor& total, std::int64_t beyond, std::string note) {
  TapResult result = wrong_result(op, std::string("y") + kSumTap, as_tensor_numel(&total), beyond,
                                  std::move(note));
  result.shape.assign(total.shape, total.shape + total.rank);
  result.dtype = as_dtype_name(total.dtype);
  return result;
}

}  // namespace

void SumWatch::part(int layer, const as_linear_params& params) {
  of_ranks_.resize(parts_.ranks.size());
  const std::string_view weight =
      parts_.graph->node(layer, parts_.graph->sum.made_by).find("weight")->weight;
  for (std::size_t rank = 0; rank < of_ranks_.size(); ++rank) {
    if (params.weight.data != parts_.ranks[rank]->find(layer, weight).tensor().data) continue;
    Part& part = of_ranks_[rank];
    ++part.times;
    const auto* y = at<bf16_t>(params.y);
    part.values.resize(to_size(as_tensor_numel(&params.y)));
    for (std::size_t i = 0; i < part.values.size(); ++i) part.values[i] = part_value(y[i]);
    return;
  }
  foreign_ = true;
}

std::optional<TapResult> SumWatch::summed(int layer, const as_tensor& total) {
  const std::vector<Part> parts = std::move(of_ranks_);
  const bool foreign = foreign_;
  of_ranks_.clear();
  foreign_ = false;
  const int published = parts_.config.layers[to_size(layer)];
  const std::size_t elements = to_size(as_tensor_numel(&total));
  for (std::size_t rank = 0; rank < parts_.ranks.size(); ++rank) {
    const int times = rank < parts.size() ? parts[rank].times : 0;
    if (times == 1 && parts[rank].values.size() == elements) continue;
    return sum_result(
        parts_.graph->sum.made_by, total, to_count(elements),
        fmt::format("rank {} gave {} parts of the sum of layer {} in place of one{}", rank, times,
                    published,
                    foreign ? fmt::format("; {} ran with a weight that is no rank's there",
                                          as_op_find(parts_.graph->sum.made_by)->name)
                            : ""));
  }
  std::int64_t beyond = 0;
  std::size_t first = 0;
  double is = 0, must = 0;
  const auto ranks = static_cast<double>(parts.size());
  for (std::size_t i = 0; i < elements; ++i) {
    double sum = 0, magnitude = 0;
    for (const Part& part : parts) {
      sum += part.values[i];
      magnitude += std::fabs(part.values[i]);
    }
    const double value = part_value(at<bf16_t>(total)[i]);
    if (!std::isfinite(magnitude) || magnitude > 0x1p127) continue;
    const double bound = 0x1p-8 * std::fabs(sum) + ranks * 0x1p-23 * magnitude + 0x1p-133;
    if (std::fabs(value - sum) <= bound) continue;
    if (beyond++ > 0) continue;
    first = i;
    is = value;
    must = sum;
  }
  if (beyond == 0) return {};
  const std::size_t columns = to_size(total.shape[1]);
  return sum_result(
      parts_.graph->sum.made_by, total, beyond,
      fmt::format("token {}, column {}: {:.6g}, where the parts of {} ranks add up to "
                  "{:.6g}; {} of {} elements are off",
                  first / columns, first % columns, is, parts.size(), must, beyond, elements));
}

}  // namespace attnscope
