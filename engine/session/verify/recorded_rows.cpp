#include "engine/session/verify/recorded_rows.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <utility>

#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

double as_number(bf16_t v) {
  return static_cast<double>(std::bit_cast<float>(std::uint32_t{v.bits} << 16));
}

double recorded_value(const TensorEntry& entry, std::int64_t i) {
  switch (entry.type) {
    case ElementType::kBf16:
      return as_number({entry_value<std::uint16_t>(entry, i)});
    case ElementType::kF32:
      return static_cast<double>(entry_value<float>(entry, i));
    default:
      return entry_value<double>(entry, i);
  }
}

// Whether no bf16 number lies nearer to x: half of a step away at most, the step below where x is
// at the lower end of its octave.
bool is_nearest(double held, double x) {
  if (held == x || (std::isnan(held) && std::isnan(x))) return true;
  if (!std::isfinite(held) || !std::isfinite(x)) {
    return std::isinf(held) && std::fabs(x) >= 0x1.ffp127 && std::signbit(held) == std::signbit(x);
  }
  int exponent = 0;
  std::frexp(std::fmax(std::fabs(held), std::fabs(x)), &exponent);
  const double step = std::ldexp(1.0, std::max(exponent - 8, -133));
  return std::fabs(held - x) <= step / 2;
}

}  // namespace

Result<std::unique_ptr<const RecordedRows>> RecordedRows::open(const std::string& path,
                                                               std::vector<std::string> requests,
                                                               std::vector<int> layers) {
  auto file = TensorFile::open(path);
  if (!file) return file.error();
  std::unique_ptr<RecordedRows> rows(new RecordedRows(std::move(*file)));
  rows->requests_ = std::move(requests);
  rows->layers_ = std::move(layers);
  return std::unique_ptr<const RecordedRows>(std::move(rows));
}

std::optional<TapResult> RecordedRows::differing(int layer, const as_tensor& fed,
                                                 const StepMetadata& step) const {
  const std::int64_t hidden = fed.shape[1];
  std::int64_t beyond = 0;
  std::string note;
  for (std::int64_t t = 0; t < fed.shape[0]; ++t) {
    const std::int32_t id = step.live[to_size(step.token_to_req[to_size(t)])];
    const std::int64_t position = step.positions[to_size(t)];
    const std::string name = fmt::format("layers.{}.attn_norm.y", layers_[to_size(layer)]);
    const TensorEntry* entry = file_.find(requests_[to_size(id)] + "/" + name);
    if (entry == nullptr) entry = file_.find(name);
    std::int64_t first = -1;
    for (std::int64_t i = 0; i < hidden && first < 0; ++i) {
      const std::int64_t place = position * hidden + i;
      const bool there = entry != nullptr && place < entry->elements;
      const double held = as_number(at<bf16_t>(fed, t)[i]);
      if (!there || !is_nearest(held, recorded_value(*entry, place))) first = i;
    }
    if (first < 0 || beyond++ > 0) continue;
    note = fmt::format(
        "token {} (request {}, position {}): the row that the layer is fed is not "
        "row {} of {} in {}, read a second time; the first value that differs is in "
        "column {}",
        t, id, position, position, entry != nullptr ? entry->name : name, file_.path(), first);
  }
  if (beyond == 0) return {};
  return wrong_result(AS_OP_ATTN_NORM, std::string("y") + kRecordedTap, fed.shape[0], beyond,
                      std::move(note));
}

}  // namespace attnscope
