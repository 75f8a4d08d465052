// What inputs of ops are made of, whichever op they are for: values by a seed, memory for tensors,
// block tables, caches with rows in them, and the tokens of a few requests.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <list>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/golden/golden_spec.h"
#include "engine/model/numbers.h"
#include "engine/model/synthetic_fill.h"
#include "engine/session/step/op_params.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/layout/records.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

// The small model that shapes follow from.
struct InputModel {
  static constexpr std::int64_t kHidden = 512, kHeads = 8, kVocab = 256, kWindow = 128;
  static constexpr double kEps = 1e-6;
};

inline bf16_t rounded_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}

// Integers alone until the last, exact step: the same everywhere.
class InputRandom {
 public:
  explicit InputRandom(std::uint64_t seed)
      : state_(seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u) {}

  std::uint64_t next() { return mix64(state_ += 0x9e3779b97f4a7c15u); }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(next() >> 33) % n; }
  // Mean 0, deviation about 1: the sum of four of 16 bits, centred, a multiple of 2^-15.
  float normal() {
    const std::uint64_t bits = next();
    std::int64_t sum = -131070;
    for (int shift = 0; shift < 64; shift += 16) sum += static_cast<int>(bits >> shift & 0xffff);
    return static_cast<float>(sum) * 0x1p-15f;
  }

 private:
  std::uint64_t state_;
};

// One request's blocks in one group, and its row of the table.
struct InputTable {
  std::vector<std::int32_t> ids;  // [R,C]
  std::int64_t columns = 1, blocks = 1;

  std::int64_t slot(std::int64_t request, std::int64_t row, std::int64_t rows_per_block) const {
    const std::int64_t block = ids[to_size(request * columns + row / rows_per_block)];
    return block * rows_per_block + row % rows_per_block;
  }
};

// One call of an op on the tokens of a few requests.
struct InputMaker : InputModel {
  InputMaker(as_op_id an_op, const GoldenCase& a_shape)
      : op(an_op), shape(a_shape), random(a_shape.seed) {
    for (std::size_t r = 0; r < shape.lengths.size(); ++r) {
      const std::int64_t length = shape.lengths[r];
      starts.push_back(static_cast<std::int32_t>(positions.size()));
      for (std::int64_t p = std::max<std::int64_t>(0, length - shape.new_tokens); p < length; ++p) {
        positions.push_back(p);
        token_to_req.push_back(static_cast<std::int32_t>(r));
      }
      seq_lens.push_back(static_cast<std::int32_t>(length));
      longest = std::max(longest, length);
    }
    starts.push_back(static_cast<std::int32_t>(positions.size()));
    tokens = static_cast<std::int64_t>(positions.size());
    requests = static_cast<std::int64_t>(shape.lengths.size());
  }

  virtual ~InputMaker() = default;

  // ---- memory

  as_tensor make(std::int32_t dtype, std::initializer_list<std::int64_t> extents) {
    std::int64_t n = 1;
    for (const std::int64_t e : extents) n *= e;
    auto& bytes = memory.emplace_back(to_size(n * as_dtype_size(dtype)), std::uint8_t{0xff});
    return make_tensor(static_cast<void*>(bytes.data()), dtype, extents);
  }
  template <class T>
  as_tensor keep(const std::vector<T>& values, std::initializer_list<std::int64_t> extents) {
    const as_tensor t = make(kDtypeOf<T>, extents);
    std::memcpy(t.data, values.data(), values.size() * sizeof(T));
    return t;
  }
  as_tensor normals(std::int32_t dtype, std::initializer_list<std::int64_t> extents,
                    float scale = 1, float mean = 0) {
    const as_tensor t = make(dtype, extents);
    for (std::int64_t i = 0; i < as_tensor_numel(&t); ++i) {
      const float v = mean + scale * random.normal();
      if (dtype == AS_F32) {
        static_cast<float*>(t.data)[i] = v;
      } else {
        static_cast<bf16_t*>(t.data)[i] = rounded_to_bf16(v);
      }
    }
    return t;
  }

  // ---- tables and caches

  // rows: of each request.
  InputTable make_table(const std::vector<std::int64_t>& rows, std::int64_t rows_per_block) {
    InputTable table;
    std::int64_t used = 0;
    for (const std::int64_t n : rows) {
      used += ceil_div(n, rows_per_block);
      table.columns = std::max(table.columns, ceil_div(n, rows_per_block));
    }
    table.blocks = used + 1;  // and the null block
    std::vector<std::int32_t> ids(to_size(used));
    std::iota(ids.begin(), ids.end(), 1);
    for (std::int64_t i = used - 1; i > 0; --i) {
      std::swap(ids[to_size(i)], ids[to_size(random.below(i + 1))]);
    }
    for (const std::int64_t n : rows) {
      for (std::int64_t c = 0; c < table.columns; ++c) {
        const bool mine = c < ceil_div(n, rows_per_block);
        table.ids.push_back(mine ? ids.back() : 0);
        if (mine) ids.pop_back();
      }
    }
    return table;
  }
  std::vector<std::int64_t> rows_at(std::int64_t ratio) const {
    std::vector<std::int64_t> rows;
    rows.reserve(shape.lengths.size());
    for (const std::int64_t length : shape.lengths) rows.push_back(length / ratio);
    return rows;
  }
  as_tensor table_tensor(const InputTable& table) {
    return keep(table.ids, {requests, table.columns});
  }

  // Every row that a request has holds values; the null block and what lies behind holds NaN.
  as_cache make_cache(const InputTable& table, std::int32_t record, std::int64_t width,
                      std::int64_t rows_per_block, bool filled) {
    const std::int64_t page = as_row_layout_of(record, width, 1, rows_per_block).page;
    as_cache cache{};
    cache.data = make(AS_U8, {table.blocks, page});
    cache.record = record;
    cache.addressing = AS_PAGED;
    cache.rows_per_block = static_cast<std::int32_t>(rows_per_block);
    cache.width = static_cast<std::int32_t>(width);
    const as_row_layout one = as_row_layout_of(record, width, 1, 1);
    std::vector<std::uint8_t> row(static_cast<std::size_t>(one.row), 0);
    for (std::int64_t s = rows_per_block; filled && s < table.blocks * rows_per_block; ++s) {
      fill_row(one, row.data());
      as_row_put(&cache, s, row.data());
    }
    return cache;
  }
  // Padding stays as it is. Elements of all parts, then scales.
  void fill_row(const as_row_layout& l, std::uint8_t* row) {
    const auto code = [&] {  // e4m3, all but its two NaN
      const auto byte = static_cast<std::uint8_t>(random.next() >> 40);
      return (byte & 0x7f) == 0x7f ? std::uint8_t{0x7e} : byte;
    };
    const auto exponent = [&] { return static_cast<std::uint8_t>(119 + random.below(3)); };
    const auto put = [](std::uint8_t* at, const auto& value) {
      std::memcpy(at, &value, sizeof(value));
    };
    for (std::int64_t i = 0; i < l.width; ++i) {
      const as_element_place e = as_element_at(&l, 0, 0, i);
      if (e.code == AS_CODE_E4M3) {
        put(row + e.at, code());
      } else if (e.code == AS_CODE_BF16) {
        put(row + e.at, rounded_to_bf16(random.normal()));
      } else {
        put(row + e.at, random.normal());
      }
    }
    for (std::int32_t i = 0; i < l.format->num_parts; ++i) {
      const as_part_span part = as_part_in_row(&l, 0, i);
      for (std::int64_t k = 0; k < part.num_scales; ++k) {
        if (l.format->parts[i].scale == AS_CODE_UE8M0) {
          put(row + part.scales + k, exponent());
        } else {
          const float scale = std::bit_cast<float>(std::uint32_t{exponent()} << 23);
          put(row + part.scales + 4 * k, scale);
        }
      }
    }
  }

  as_rope make_rope() {
    as_rope rope{};
    rope.base = 160000;
    rope.factor = 1;
    rope.original_max_pos = 65536;
    rope.beta_fast = 32;
    rope.beta_slow = 1;
    rope.table = make(AS_F32, {longest, AS_ROPE_DIM});
    cpu::build_rope_table(rope, longest, static_cast<float*>(rope.table.data), nullptr);
    return rope;
  }

  // ---- by token

  as_tensor positions_tensor() { return keep(positions, {tokens}); }
  as_tensor request_tensor() { return keep(token_to_req, {tokens}); }
  // Slot of each token's row; of its entry, where it ends one of so many.
  as_tensor slots_of(const InputTable& table, std::int64_t rows_per_block,
                     std::int64_t tokens_per_row = 1) {
    std::vector<std::int64_t> slots;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t p = positions[to_size(t)];
      const bool ends = (p + 1) % tokens_per_row == 0;
      slots.push_back(
          ends ? table.slot(token_to_req[to_size(t)], p / tokens_per_row, rows_per_block) : -1);
    }
    return keep(slots, {tokens});
  }
  std::vector<std::int32_t> visible(std::int64_t ratio) const {
    std::vector<std::int32_t> lens;
    lens.reserve(positions.size());
    for (const std::int64_t p : positions)
      lens.push_back(static_cast<std::int32_t>((p + 1) / ratio));
    return lens;
  }

  template <class S>
  S& init() {
    return params.init<S>(op);
  }
  void linear(std::int64_t in, std::int64_t out, std::int32_t dtype = AS_BF16) {
    auto& p = init<as_linear_params>();
    p.x = normals(AS_BF16, {tokens, in});
    p.weight = normals(AS_BF16, {out, in}, in >= 512 ? 0x1p-4f : 0x1p-3f);
    p.y = make(dtype, {tokens, out});
  }

  as_op_id op;
  GoldenCase shape;
  InputRandom random;
  std::vector<std::int64_t> positions;
  std::vector<std::int32_t> token_to_req, starts, seq_lens;
  std::int64_t tokens = 0, requests = 0, longest = 1;
  std::list<std::vector<std::uint8_t>> memory;
  OpParams params;
};

// Inputs of an op, its params filled in; nullptr where it is none of theirs.
using MakeInputs = std::unique_ptr<InputMaker> (*)(as_op_id op, const GoldenCase& shape);

}  // namespace attnscope
