#include "engine/model/fp8_blocks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "kernels/cpu/codec.h"

namespace attnscope {
namespace {

// Calls f(row of blocks) for all of them, on the threads there are.
template <class F>
void each_block_row(std::int64_t rows, const as_threads* threads, const F& f) {
  const auto body = [](void* ctx, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) (*static_cast<const F*>(ctx))(i);
  };
  void* ctx = const_cast<F*>(&f);
  if (threads != nullptr && threads->parallel_for != nullptr) {
    threads->parallel_for(threads->pool, scale_blocks(rows), 1, body, ctx);
  } else {
    body(ctx, 0, scale_blocks(rows));
  }
}

struct Block {
  std::int64_t first_row, last_row, first_column, last_column;
};

// Calls f(block number, block) for the blocks of one row of them.
template <class F>
void each_block(std::int64_t block_row, std::int64_t rows, std::int64_t columns, const F& f) {
  const std::int64_t across = scale_blocks(columns);
  for (std::int64_t b = 0; b < across; ++b) {
    f(block_row * across + b,
      Block{block_row * kScaleBlock, std::min(rows, (block_row + 1) * kScaleBlock), b * kScaleBlock,
            std::min(columns, (b + 1) * kScaleBlock)});
  }
}

// ceil(log2(amax / 448)) without rounding, where the decoded values are normal bf16 numbers.
int block_exponent(float amax) {
  constexpr int kLeast = -110;
  if (!(amax > 0) || !std::isfinite(amax)) return 0;
  int exponent = 0;
  const float mantissa = std::frexp(amax, &exponent);  // 448 = 0.875 * 2^9
  return std::max(kLeast, exponent - 9 + (mantissa > 0.875f ? 1 : 0));
}

}  // namespace

std::int64_t decode_fp8_blocks(const std::uint8_t* codes, const std::vector<double>& scales,
                               std::int64_t rows, std::int64_t columns, bf16_t* out,
                               const as_threads* threads) {
  std::atomic<std::int64_t> rounded{0};
  each_block_row(rows, threads, [&](std::int64_t block_row) {
    std::int64_t own = 0;
    each_block(block_row, rows, columns, [&](std::int64_t number, const Block& block) {
      std::array<bf16_t, 256> values;
      std::array<bool, 256> inexact;
      for (std::size_t code = 0; code < values.size(); ++code) {
        const double exact = cpu::e4m3_to_float(static_cast<std::uint8_t>(code)) *
                             scales[static_cast<std::size_t>(number)];
        const float value = cpu::round_bf16(exact);
        values[code] = {cpu::float_to_bf16(value)};
        inexact[code] = static_cast<double>(value) != exact && !std::isnan(exact);
      }
      for (std::int64_t r = block.first_row; r < block.last_row; ++r) {
        for (std::int64_t c = block.first_column; c < block.last_column; ++c) {
          const std::uint8_t code = codes[r * columns + c];
          out[r * columns + c] = values[code];
          own += inexact[code] ? 1 : 0;
        }
      }
    });
    rounded += own;
  });
  return rounded;
}

Fp8Blocks encode_fp8_blocks(const bf16_t* values, std::int64_t rows, std::int64_t columns,
                            const as_threads* threads) {
  Fp8Blocks out;
  out.codes.resize(static_cast<std::size_t>(rows * columns));
  out.scales.resize(static_cast<std::size_t>(scale_blocks(rows) * scale_blocks(columns)));
  std::atomic<std::int64_t> changed{0};
  each_block_row(rows, threads, [&](std::int64_t block_row) {
    std::int64_t own = 0;
    each_block(block_row, rows, columns, [&](std::int64_t number, const Block& block) {
      const auto value_at = [&](std::int64_t r, std::int64_t c) {
        return cpu::bf16_to_float(values[r * columns + c].bits);
      };
      float amax = 0;
      for (std::int64_t r = block.first_row; r < block.last_row; ++r) {
        for (std::int64_t c = block.first_column; c < block.last_column; ++c) {
          amax = std::max(amax, std::fabs(value_at(r, c)));
        }
      }
      const int exponent = block_exponent(amax);
      out.scales[static_cast<std::size_t>(number)] = cpu::exponent_to_ue8m0(exponent);
      for (std::int64_t r = block.first_row; r < block.last_row; ++r) {
        for (std::int64_t c = block.first_column; c < block.last_column; ++c) {
          const float value = value_at(r, c);
          unsigned char code = 0;
          cpu::encode_e4m3(&value, 1, exponent, &code);
          out.codes[static_cast<std::size_t>(r * columns + c)] = code;
          own += cpu::e4m3_to_float(code) * cpu::exp2i(exponent) != value ? 1 : 0;
        }
      }
    });
    changed += own;
  });
  out.changed = changed;
  return out;
}

}  // namespace attnscope
