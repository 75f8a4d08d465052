#include "engine/checkpoint/hidden_states.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/io/json_object.h"
#include "engine/tensorfile/float_value.h"
#include "kernels/cpu/codec.h"

namespace attnscope {
namespace {

Result<void> check(const TensorFile& file, const TensorEntry& entry, std::int64_t hidden,
                   const HiddenStates::Need& need) {
  const auto wrong = [&](const std::string& what, std::string hint) -> Result<void> {
    return bad_input(fmt::format("{}: tensor {}: {}", file.path(), shown_name(entry.name), what),
                     std::move(hint));
  };
  if (!is_float(entry.type)) {
    return wrong(fmt::format("is {}, expected BF16, F16, F32 or F64", element_name(entry.type)),
                 "write it in one of these");
  }
  std::vector<std::int64_t> shape = entry.shape;
  if (shape.size() == 3 && shape[0] == 1) shape.erase(shape.begin());
  const std::string found = fmt::format("has shape [{}]", fmt::join(entry.shape, ", "));
  if (shape.size() != 2) {
    return wrong(fmt::format("{}, expected [rows, {}]", found, hidden),
                 "one row for each position of the request");
  }
  if (shape[1] != hidden) {
    return wrong(fmt::format("{}, expected [rows, {}]: rows are as wide as the model's hidden_size",
                             found, hidden),
                 "the file was recorded from another model");
  }
  if (shape[0] < need.rows) {
    return wrong(fmt::format("{}, but the prompt of request \"{}\" has {} tokens", found,
                             need.request, need.rows),
                 fmt::format("a prompt of at most {} tokens can be replayed", shape[0]));
  }
  for (std::int64_t i = 0; i < need.rows * hidden; ++i) {
    if (std::isfinite(float_value(entry, i))) continue;
    return wrong(fmt::format("row {} (prompt of request \"{}\") has {} at column {}", i / hidden,
                             need.request, float_value(entry, i), i % hidden),
                 "rows of positions that were not computed are NaN: record every position of the "
                 "prompt");
  }
  return {};
}

}  // namespace

std::string HiddenStates::tensor_name(int published_layer) {
  return fmt::format("layers.{}.attn_norm.y", published_layer);
}

Result<std::shared_ptr<const HiddenStates>> HiddenStates::open(const std::string& path,
                                                               const ModelConfig& config,
                                                               const std::vector<Need>& needs) {
  auto file = TensorFile::open(path);
  if (!file) return file.error();
  std::shared_ptr<HiddenStates> states(new HiddenStates(std::move(*file), config.hidden));
  for (const Need& need : needs) {
    auto& entries = states->entries_.emplace_back();
    for (const int layer : config.layers) {
      const std::string name = tensor_name(layer), own = need.request + "/" + name;
      const TensorEntry* entry = states->file_.find(own);
      if (entry == nullptr) entry = states->file_.find(name);
      if (entry == nullptr) {
        return bad_input(
            fmt::format("{}: has neither tensor {} nor {}", path, shown_name(own), name),
            fmt::format("it must hold rows [positions, {}] for every layer that runs",
                        config.hidden));
      }
      if (auto ok = check(states->file_, *entry, config.hidden, need); !ok) return ok.error();
      entries.push_back(entry);
    }
  }
  return std::shared_ptr<const HiddenStates>(std::move(states));
}

std::int64_t HiddenStates::rows(std::int32_t request) const {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const TensorEntry* entry : entries_[static_cast<std::size_t>(request)]) {
    least = std::min(least, entry->elements / hidden_);
  }
  return least;
}

void HiddenStates::row(int layer, std::int32_t request, std::int64_t position, bf16_t* out) const {
  const TensorEntry& entry =
      *entries_[static_cast<std::size_t>(request)][static_cast<std::size_t>(layer)];
  for (std::int64_t i = 0; i < hidden_; ++i) {
    out[i] = {cpu::float_to_bf16(cpu::round_bf16(float_value(entry, position * hidden_ + i)))};
  }
}

void HiddenStates::row(int layer, std::int32_t request, std::int64_t position, double* out) const {
  const TensorEntry& entry =
      *entries_[static_cast<std::size_t>(request)][static_cast<std::size_t>(layer)];
  for (std::int64_t i = 0; i < hidden_; ++i) {
    out[i] = float_value(entry, position * hidden_ + i);
  }
}

}  // namespace attnscope
