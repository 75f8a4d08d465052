#include "engine/family/fp8_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/model/fp8_blocks.h"

namespace attnscope {

void check_fp8_config(JsonObject& root) {
  if (!root.has("quantization_config")) return;
  JsonObject quantised = root.object("quantization_config");
  quantised.choice("quant_method", {"fp8"}, "fp8");
  quantised.choice("fmt", {"e4m3"}, "e4m3");
  if (!quantised.has("weight_block_size")) return;
  constexpr std::int64_t kMost = 1 << 20;
  const auto block = quantised.integers("weight_block_size", 1, kMost);
  if (block != std::vector<std::int64_t>{kScaleBlock, kScaleBlock}) {
    quantised.fail("weight_block_size",
                   fmt::format("[{}] is not supported", fmt::join(block, ", ")),
                   "allowed: [128, 128]");
  }
}

nlohmann::ordered_json fp8_config() {
  return {{"activation_scheme", "dynamic"},
          {"fmt", "e4m3"},
          {"quant_method", "fp8"},
          {"scale_fmt", "ue8m0"},
          {"weight_block_size", {kScaleBlock, kScaleBlock}}};
}

}  // namespace attnscope
