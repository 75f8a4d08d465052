// Codes of e4m3 in plain tensors: those that an op reads, and those that it makes.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <functional>

#include "engine/examine/call_parts.h"
#include "engine/examine/clause_makers.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

using Variations = std::vector<Variation>;

constexpr std::size_t kBlockOfCodes = 128, kLargestCode = 0x7e;

double code_value(std::size_t code) {
  const auto mantissa = static_cast<double>(code % 8);
  const auto exponent = static_cast<int>(code / 8 % 16);
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}

// Values of o in each block of codes, by token, block and place; those that the rotation leaves
// as they are keep the bits that they are given. All of them bf16.
Variations blocks_of_o(const OpCase& ordinary, const char* what,
                       const std::function<double(std::size_t, std::size_t, std::size_t)>& value) {
  if (ordinary.op.id != AS_OP_INVERSE_ROPE_QUANTISE) return {};
  OpCase call = ordinary;
  StoredTensor& o = call.tensors.at("o");
  const auto values = elements<std::uint16_t>(o);
  const std::size_t blocks = to_size(o.shape[2]) / kBlockOfCodes;
  const std::size_t of_token = to_size(o.shape[1]) * blocks;
  // The last block of a head is rotated.
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t block = i / kBlockOfCodes % blocks;
    if (block + 1 == blocks) continue;
    const auto number =
        static_cast<float>(value(i / kBlockOfCodes / of_token, block, i % kBlockOfCodes));
    values[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(number) >> 16);
  }
  return {{what, std::move(call)}};
}

// Tensors of codes that the op reads.
Variations each_code_tensor(const OpCase& ordinary, const char* what,
                            const std::function<std::uint8_t(std::size_t)>& code) {
  Variations out;
  if (ordinary.op.id != AS_OP_FP8_LINEAR) return out;
  for (const char* tap : {"x", "weight"}) {
    OpCase call = ordinary;
    std::size_t i = 0;
    for (std::uint8_t& byte : call.tensors.at(tap).bytes) byte = code(i++);
    out.push_back({fmt::format("{}, {}", tap, what), std::move(call)});
  }
  return out;
}

}  // namespace

Variations plain_codes(const OpCase& ordinary) {
  Variations out = each_code_tensor(ordinary, "all numbers of e4m3 in turn", [](std::size_t i) {
    return static_cast<std::uint8_t>(i % (kLargestCode + 1) + i / (kLargestCode + 1) % 2 * 128);
  });
  Variations made =
      blocks_of_o(ordinary, "values that all numbers of e4m3 come of",
                  [](std::size_t, std::size_t block, std::size_t i) {
                    const double one = code_value(std::min(i, kLargestCode));
                    return std::ldexp(block == 1 ? -one : one, -5 * static_cast<int>(block));
                  });
  out.insert(out.end(), made.begin(), made.end());
  return out;
}

Variations plain_subnormals(const OpCase& ordinary) {
  Variations out = each_code_tensor(ordinary, "subnormal codes alone", [](std::size_t i) {
    return static_cast<std::uint8_t>(i % 7 + 1 + i / 7 % 2 * 128);
  });
  // Half steps between them, which go to the even one.
  Variations made = blocks_of_o(ordinary, "values at and between subnormal codes",
                                [](std::size_t, std::size_t block, std::size_t i) {
                                  if (i == 0) return 448.0;
                                  const double step = std::ldexp(static_cast<double>(i % 18), -10);
                                  return (i + block) % 2 == 0 ? step : -step;
                                });
  out.insert(out.end(), made.begin(), made.end());
  return out;
}

Variations plain_scales(const OpCase& ordinary) {
  Variations out;
  if (ordinary.op.id == AS_OP_FP8_LINEAR) {
    OpCase call = ordinary;
    for (float& scale : elements<float>(call.tensors.at("x_scale"))) scale = 0x1p-127f;
    for (float& scale : elements<float>(call.tensors.at("weight_scale"))) scale = 0x1p112f;
    out.push_back({"scales of 2^-127 and of 2^112", std::move(call)});
  }
  // Nothing, less than the least, and largest values around 448 times a power of two.
  Variations made = blocks_of_o(
      ordinary, "blocks of zeros, of tiny values, and with 448 and 450 times 2^-18",
      [](std::size_t token, std::size_t block, std::size_t i) {
        if (block == 0) return i % 2 == 0 ? 0.0 : -0.0;
        if (block == 1) return std::ldexp(static_cast<double>(i % 8) - 4, -20);
        return std::ldexp(i == 5 ? (token % 2 == 0 ? 448.0 : 450.0) : static_cast<double>(i), -18);
      });
  out.insert(out.end(), made.begin(), made.end());
  return out;
}

}  // namespace attnscope
