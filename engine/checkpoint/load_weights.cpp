#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/tensor_names.h"
#include "engine/checkpoint/weight_slots.h"
#include "engine/family/model_weights.h"
#include "engine/io/json_object.h"
#include "engine/model/fp8_projections.h"
#include "engine/tensorfile/float_value.h"
#include "kernels/cpu/codec.h"

namespace attnscope {
namespace {

Error wrong(const Checkpoint::Found& found, const std::string& what, std::string hint = {}) {
  return bad_input(
      fmt::format("{}: tensor {}: {}", found.file->path(), shown_name(found.entry->name), what),
      std::move(hint));
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// The embedding may have more rows than there are bytes; one number may have no axis.
bool shape_fits(const WeightSlot& slot, const std::vector<std::int64_t>& shape) {
  if (shape == slot.shape || (shape.empty() && slot.shape == std::vector<std::int64_t>{1})) {
    return true;
  }
  return slot.layer < 0 && slot.shape.size() == 2 && shape.size() == 2 &&
         shape[1] == slot.shape[1] && shape[0] > slot.shape[0];
}

class Loader {
 public:
  Loader(Checkpoint& checkpoint, const as_threads* threads)
      : checkpoint_(checkpoint), threads_(threads) {}

  Result<TensorUse> load(const WeightSlot& slot) {
    auto found = checkpoint_.get(slot.name);
    if (!found) return found.error();
    const TensorEntry& entry = *found->entry;
    if (!shape_fits(slot, entry.shape)) {
      const bool head = slot.layer < 0 && slot.shape.size() == 2;
      return wrong(*found,
                   fmt::format("has shape {}, expected {}{}", shape_text(entry.shape),
                               shape_text(slot.shape), head ? " or more rows" : ""),
                   "config.json and the tensors are of different models");
    }
    TensorUse use;
    use.name = entry.name;
    use.role = slot.name;
    use.shard = found->shard;
    use.dtype = element_name(entry.type);
    use.shape = entry.shape;
    use.bytes = static_cast<std::uint64_t>(slot.size()) * element_bits(entry.type) / 8;
    Result<void> read;
    const bool matrix = slot.codes != nullptr || (slot.bf16 != nullptr && slot.shape.size() == 2);
    if (entry.type == ElementType::kF8E4m3 && matrix) {
      read = quantised(slot, *found, use);
    } else if (checkpoint_.has(scale_name(slot.name)) && slot.name.ends_with(".weight")) {
      read = wrong(*found, fmt::format("is {}, expected F8_E4M3, as it has scales", use.dtype));
    } else if (slot.codes != nullptr) {
      read = encoded(slot, *found, use);
    } else {
      read = plain(slot, *found, use);
    }
    if (!read) return read.error();
    if (entry.type == ElementType::kBf16 && slot.name.ends_with("attn_sink")) {
      use.warning =
          "attn_sink is stored as bf16, published ones are F32: 16 bits of each were lost "
          "when it was written";
    }
    return use;
  }

 private:
  Result<void> plain(const WeightSlot& slot, const Checkpoint::Found& found, TensorUse& use) {
    const TensorEntry& entry = *found.entry;
    const std::int64_t n = slot.size();
    const std::size_t bytes = static_cast<std::size_t>(n);
    if (entry.type == ElementType::kBf16 && slot.bf16 != nullptr) {
      std::memcpy(slot.bf16, entry.data, bytes * sizeof(bf16_t));
    } else if (entry.type == ElementType::kF32 && slot.f32 != nullptr) {
      std::memcpy(slot.f32, entry.data, bytes * sizeof(float));
    } else if (entry.type == ElementType::kBf16) {
      for (std::int64_t i = 0; i < n; ++i) {
        slot.f32[i] = cpu::bf16_to_float(entry_value<std::uint16_t>(entry, i));
      }
    } else if (entry.type == ElementType::kF32) {
      for (std::int64_t i = 0; i < n; ++i) {
        const auto value = entry_value<float>(entry, i);
        slot.bf16[i] = {cpu::float_to_bf16(value)};
        const float kept = cpu::bf16_to_float(slot.bf16[i].bits);
        use.rounded += kept != value && !std::isnan(value) ? 1 : 0;
      }
    } else if (is_float(entry.type)) {
      rounded_once(slot, entry, use);
    } else {
      return wrong(found, fmt::format("is {}, expected {}", use.dtype,
                                      slot.in_blocks ? "F8_E4M3 with scales, BF16, F32, F16 or F64"
                                                     : "BF16, F32, F16 or F64"));
    }
    return {};
  }

  // F64 and F16: what somebody else saved; published tensors are bf16 or F32.
  static void rounded_once(const WeightSlot& slot, const TensorEntry& entry, TensorUse& use) {
    const std::int64_t n = slot.size();
    for (std::int64_t i = 0; i < n; ++i) {
      const double value = float_value(entry, i);
      float kept = 0;
      if (slot.f32 != nullptr) {
        kept = slot.f32[i] = static_cast<float>(value);
      } else {
        kept = cpu::round_bf16(value);
        slot.bf16[i] = {cpu::float_to_bf16(kept)};
      }
      use.rounded += static_cast<double>(kept) != value && !std::isnan(value) ? 1 : 0;
    }
    use.warning = fmt::format(
        "stored as {}, published in bf16 or F32: values were rounded once to that", use.dtype);
  }

  // A matrix that was not published in FP8: read as bf16, then quantised.
  Result<void> encoded(const WeightSlot& slot, const Checkpoint::Found& found, TensorUse& use) {
    Buffer<bf16_t> values(slot.shape);
    WeightSlot wide = slot;
    wide.bf16 = values.data();
    wide.codes = nullptr;
    auto read = plain(wide, found, use);
    if (!read) return read;
    const Fp8Blocks blocks =
        encode_fp8_blocks(values.data(), slot.shape[0], slot.shape[1], threads_);
    std::ranges::copy(blocks.codes, slot.codes);
    hold_scales(scale_values(blocks), slot.shape[0], slot.shape[1], slot.scale_span, slot.scales);
    return {};
  }

  Result<void> quantised(const WeightSlot& slot, const Checkpoint::Found& found, TensorUse& use) {
    const std::string name = scale_name(slot.name);
    if (!checkpoint_.has(name)) {
      return wrong(found, fmt::format("is F8_E4M3, but {} has no scales {} for it",
                                      checkpoint_.index(), name));
    }
    auto scale = checkpoint_.get(name);
    if (!scale) return scale.error();
    const TensorEntry& entry = *scale->entry;
    const std::int64_t rows = slot.shape[0], columns = slot.shape[1];
    const std::vector<std::int64_t> expected = {scale_blocks(rows), scale_blocks(columns)};
    if (entry.shape != expected) {
      return wrong(*scale,
                   fmt::format("has shape {}, expected {}: one scale per 128 x 128 of {} {}",
                               shape_text(entry.shape), shape_text(expected), slot.name,
                               shape_text(slot.shape)));
    }
    std::vector<double> scales(static_cast<std::size_t>(entry.elements));
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      if (entry.type == ElementType::kF8E8m0) {
        scales[i] = cpu::ue8m0_to_float(entry.data[i]);
      } else if (entry.type == ElementType::kF32) {
        scales[i] = entry_value<float>(entry, at);
      } else {
        return wrong(*scale,
                     fmt::format("is {}, expected F8_E8M0 or F32", element_name(entry.type)));
      }
      if (!std::isfinite(scales[i])) {
        return wrong(*scale, fmt::format("the scale of block [{}, {}] is not finite",
                                         at / expected[1], at % expected[1]));
      }
    }
    use.scales = element_name(entry.type);
    use.bytes += entry.bytes;
    if (slot.codes != nullptr) {
      std::memcpy(slot.codes, found.entry->data, static_cast<std::size_t>(slot.size()));
      const std::vector<float> values(scales.begin(), scales.end());
      hold_scales(values, rows, columns, slot.scale_span, slot.scales);
      return {};
    }
    use.rounded = decode_fp8_blocks(found.entry->data, scales, rows, columns, slot.bf16, threads_);
    return {};
  }

  Checkpoint& checkpoint_;
  const as_threads* threads_;
};

}  // namespace

Result<LoadedWeights> load_weights(Checkpoint& checkpoint, const ModelConfig& config,
                                   const as_threads* threads) {
  LoadedWeights loaded;
  loaded.weights = allocate_weights(config);
  Loader loader(checkpoint, threads);
  std::int64_t read = 0;
  for (const WeightSlot& slot : weight_slots(config, loaded.weights)) {
    auto use = loader.load(slot);
    if (!use) return use.error();
    read += use->scales.empty() ? 1 : 2;
    loaded.used.push_back(std::move(*use));
  }
  shift_sinks(config, loaded.weights);
  loaded.unused = static_cast<std::int64_t>(checkpoint.size()) - read;
  return loaded;
}

}  // namespace attnscope
