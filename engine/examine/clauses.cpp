#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/examine/call_parts.h"
#include "engine/examine/clause.h"
#include "engine/examine/clause_makers.h"
#include "engine/model/numbers.h"
#include "kernels/params/dtype.h"
#include "kernels/params/op_table.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

using Variations = std::vector<Variation>;

Variations as_it_is(const OpCase& ordinary) { return {{ordinary.origin.from, ordinary}}; }

Variations joined(Variations first, Variations second) {
  first.insert(first.end(), std::make_move_iterator(second.begin()),
               std::make_move_iterator(second.end()));
  return first;
}

// A clause that has calls of two kinds.
template <auto First, auto Second>
Variations either(const OpCase& ordinary) {
  return joined(First(ordinary), Second(ordinary));
}

// ---- lists of rows

// For each list of the call a copy with it changed; edit says whether there was anything to change.
template <class Edit>
Variations each_list(const OpCase& ordinary, const char* what, const Edit& edit) {
  Variations out;
  OpCase look = ordinary;
  const std::size_t lists = listed_rows(look).size();
  for (std::size_t i = 0; i < lists; ++i) {
    OpCase call = ordinary;
    const ListedRows rows = listed_rows(call)[i];
    if (!edit(rows)) continue;
    out.push_back({fmt::format("{}, {}", rows.name, what), std::move(call)});
  }
  return out;
}

Variations holes(const OpCase& ordinary) {
  return each_list(ordinary, "every third entry -1", [](const ListedRows& rows) {
    bool changed = false;
    for (std::int64_t t = 0; t < rows.tokens(); ++t) {
      for (std::int64_t k = 1; k < rows.length(t); k += 3) {
        rows.of(t)[to_size(k)] = -1;
        changed = true;
      }
    }
    return changed;
  });
}

Variations behind_lens(const OpCase& ordinary) {
  Variations out = each_list(ordinary, "lengths short of entries", [](const ListedRows& rows) {
    bool changed = false;
    for (std::int64_t t = 0; t < rows.tokens(); ++t) {
      if (rows.length(t) < 2) continue;
      rows.length(t) /= 2;
      changed = true;
    }
    return changed;
  });
  // Slot 0 is a row of the null block, which holds NaN.
  Variations poisoned = each_list(ordinary, "slots of NaN rows behind", [](const ListedRows& rows) {
    bool changed = false;
    for (std::int64_t t = 0; t < rows.tokens(); ++t) {
      for (std::int64_t k = std::max(0, rows.length(t)); k < rows.width(); ++k) {
        rows.of(t)[to_size(k)] = 0;
        changed = true;
      }
    }
    return changed;
  });
  return joined(std::move(out), std::move(poisoned));
}

Variations duplicates(const OpCase& ordinary) {
  return each_list(ordinary, "its first row three times", [](const ListedRows& rows) {
    bool changed = false;
    for (std::int64_t t = 0; t < rows.tokens(); ++t) {
      for (std::int64_t k = 1; k < std::min(3, rows.length(t)); ++k) {
        rows.of(t)[to_size(k)] = rows.of(t)[0];
        changed = true;
      }
    }
    return changed;
  });
}

Variations nothing_listed(const OpCase& ordinary) {
  Variations out = each_list(ordinary, "length 0 of token 0", [](const ListedRows& rows) {
    rows.length(0) = 0;
    return true;
  });
  OpCase all = ordinary, holes = ordinary;
  for (const ListedRows& rows : listed_rows(all)) {
    for (std::int64_t t = 0; t < rows.tokens(); ++t) rows.length(t) = 0;
  }
  const auto lists = listed_rows(holes);
  for (const ListedRows& rows : lists) {
    for (std::int32_t& entry : elements<std::int32_t>(*rows.list)) entry = -1;
  }
  if (lists.empty()) return out;
  out.push_back({"length 0 in every list", std::move(all)});
  out.push_back({"nothing but -1 in every list", std::move(holes)});
  return out;
}

// ---- numbers

bool attends(const OpCase& call) {
  const as_op_info* op = as_op_find(static_cast<as_op_id>(call.op.id));
  return op != nullptr && op->role == AS_ROLE_ATTENTION;
}

// Logits of hundreds: e^x of one of them alone overflows, or is 0.
Variations large_logits(const OpCase& ordinary) {
  Variations out;
  const auto scale = ordinary.reals.find("scale");
  if (!attends(ordinary) || scale == ordinary.reals.end()) return out;
  for (const double factor : {256.0, -256.0}) {
    OpCase call = ordinary;
    call.reals["scale"] = scale->second * factor;
    out.push_back({fmt::format("scale times {:g}", factor), std::move(call)});
  }
  return out;
}

Variations sinks(const OpCase& ordinary) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Variations out;
  if (!ordinary.tensors.contains("sinks")) return out;
  const auto put = [&](const char* what, std::array<float, 2> values) {
    OpCase call = ordinary;
    std::size_t head = 0;
    for (float& sink : elements<float>(call.tensors["sinks"])) sink = values[head++ % 2];
    out.push_back({what, std::move(call)});
  };
  put("-inf in every head", {-kInf, -kInf});
  put("+inf in every other head", {kInf, 0.5f});
  put("900 and -900 in turn", {900, -900});
  return out;
}

// Codes of rows: all 254 numbers of e4m3 in turn, scales from the smallest up.
void put_codes(StoredCache& cache) {
  const as_row_layout one = single_row(cache);
  std::uint8_t code = 0;
  for (std::size_t r = 0; r < cache.slots.size(); ++r) {
    std::uint8_t* row = cache.rows.data() + r * to_size(cache.row_bytes());
    each_e4m3_code(one, row, [&code](std::uint8_t& at, std::int64_t) {
      while ((++code & 0x7f) == 0x7f) {
      }
      at = code;
    });
  }
}

bool has_codes(const StoredCache& cache) {
  if (cache.slots.empty()) return false;
  const as_row_layout one = single_row(cache);
  return as_element_at(&one, 0, 0, 0).code == AS_CODE_E4M3;
}

template <class Edit>
Variations each_read_cache(const OpCase& ordinary, const char* what, const Edit& edit) {
  Variations out;
  for (const as_tap_info& tap : ordinary.op.taps) {
    if (tap.kind != AS_TAP_CACHE || tap.direction != AS_TAP_IN) continue;
    const auto it = ordinary.caches.find(tap.name);
    if (it == ordinary.caches.end() || !has_codes(it->second)) continue;
    OpCase call = ordinary;
    if (!edit(call.caches[tap.name])) continue;
    out.push_back({fmt::format("{}, {}", tap.name, what), std::move(call)});
  }
  return out;
}

Variations every_code(const OpCase& ordinary) {
  return each_read_cache(ordinary, "all numbers of e4m3 in turn", [](StoredCache& cache) {
    put_codes(cache);
    return true;
  });
}

// A scale byte of 0 is 2^-127, which is subnormal in fp32.
Variations small_scales(const OpCase& ordinary) {
  return each_read_cache(ordinary, "scales of 2^-127 to 2^-120", [](StoredCache& cache) {
    const as_row_layout one = single_row(cache);
    bool changed = false;
    for (std::int32_t i = 0; i < one.format->num_parts; ++i) {
      if (one.format->parts[i].scale != AS_CODE_UE8M0) continue;
      const as_part_span part = as_part_in_row(&one, 0, i);
      for (std::size_t r = 0; r < cache.slots.size(); ++r) {
        std::uint8_t* row = cache.rows.data() + r * to_size(cache.row_bytes());
        for (std::int64_t k = 0; k < part.num_scales; ++k) {
          row[part.scales + k] = static_cast<std::uint8_t>((r + to_size(k)) % 8);
          changed = true;
        }
      }
    }
    return changed;
  });
}

// ---- selections

StoredTensor* scores_of(OpCase& call) {
  const as_op_info* op = as_op_find(static_cast<as_op_id>(call.op.id));
  if (op == nullptr || (op->role != AS_ROLE_SELECT && op->role != AS_ROLE_SAMPLE)) return nullptr;
  const auto it = call.tensors.find("logits");
  return it == call.tensors.end() || it->second.dtype != AS_F32 ? nullptr : &it->second;
}

Variations ties(const OpCase& ordinary) {
  Variations out;
  const auto put = [&](const char* what, const auto& value) {
    OpCase call = ordinary;
    StoredTensor* scores = scores_of(call);
    if (scores == nullptr) return;
    std::size_t i = 0;
    for (float& score : elements<float>(*scores)) score = value(i++, score);
    out.push_back({what, std::move(call)});
  };
  put("all scores the same", [](std::size_t, float) { return 1.0f; });
  put("0 and -0 in turn", [](std::size_t i, float) { return i % 2 == 0 ? 0.0f : -0.0f; });
  put("three values alone", [](std::size_t i, float) { return static_cast<float>(i * 7 % 3); });
  return out;
}

Variations scores_behind(const OpCase& ordinary) {
  Variations out;
  OpCase call = ordinary;
  StoredTensor* scores = scores_of(call);
  const auto lens = call.tensors.find("lens");
  if (scores == nullptr || lens == call.tensors.end()) return out;
  for (const float garbage : {1e30f, std::numeric_limits<float>::quiet_NaN()}) {
    const std::int64_t width = scores->shape[1];
    bool changed = false;
    for (std::int64_t t = 0; t < scores->shape[0]; ++t) {
      std::int32_t& len = elements<std::int32_t>(lens->second)[to_size(t)];
      if (garbage > 0 && len > 1) len /= 2;
      for (std::int64_t c = len; c < width; ++c) {
        elements<float>(*scores)[to_size(t * width + c)] = garbage;
        changed = true;
      }
    }
    if (changed) out.push_back({fmt::format("{:g} behind lens", garbage), call});
  }
  return out;
}

// ---- memory

bool by_rows(const StoredTensor& t) { return !t.shape.empty() && t.bytes.size() > 0; }

Variations strides(const OpCase& ordinary) {
  Variations out;
  for (const as_tap_direction side : {AS_TAP_IN, AS_TAP_OUT}) {
    OpCase call = ordinary;
    bool changed = false;
    for (const as_tap_info& tap : call.op.taps) {
      StoredTensor* t = tensor_of(call, tap);
      if (t == nullptr || tap.direction != side || t->shape.size() < 2 || !by_rows(*t)) continue;
      t->stride.assign(t->shape.size(), 1);
      // Rows a vector of 16 bytes apart, so that alignment stays what it was.
      std::int64_t stride = 1;
      for (std::size_t i = t->shape.size(); i-- > 0;) {
        t->stride[i] = stride;
        stride = stride * std::max<std::int64_t>(1, t->shape[i]);
        if (i == 1) stride += 16 / as_dtype_size(t->dtype) * 4;
      }
      changed = true;
    }
    const char* what = side == AS_TAP_IN ? "rows of inputs apart" : "rows of outputs apart";
    if (changed) out.push_back({what, std::move(call)});
  }
  return out;
}

Variations nothing_written(const OpCase& ordinary) {
  Variations out;
  if (ordinary.op.helper) return out;  // none of them writes by slots
  for (const as_tap_info& tap : ordinary.op.taps) {
    if (tap.direction != AS_TAP_IN || std::string_view(tap.name) != "slots") continue;
    OpCase call = ordinary;
    StoredTensor* slots = tensor_of(call, tap);
    if (slots == nullptr || slots->dtype != AS_I64 || slots->bytes.empty()) continue;
    elements<std::int64_t>(*slots)[0] = -1;
    out.push_back({"slot -1 of token 0", std::move(call)});
  }
  return out;
}

// ---- neighbours

Variations nan_neighbours(const OpCase& ordinary) {
  Variations out;
  if (tokens_apart(ordinary) < 2) return out;
  OpCase call = ordinary;
  bool changed = false;
  for (const as_tap_info& tap : call.op.taps) {
    StoredTensor* t = tensor_of(call, tap);
    if (t == nullptr || tap.direction != AS_TAP_IN || !by_row(call.op, tap)) continue;
    if (t->dtype != AS_BF16 && t->dtype != AS_F32) continue;
    // All bits of a float set are a NaN.
    const std::size_t row = t->bytes.size() / to_size(t->shape[0]);
    std::fill(t->bytes.begin() + static_cast<std::ptrdiff_t>(row), t->bytes.end(), 0xff);
    changed = true;
  }
  if (changed) out.push_back({"NaN in all tokens but token 0", std::move(call)});
  return out;
}

constexpr Clause kClauses[] = {
    {"ordinary", "numbers as the references have them", ClauseTest::kValues, as_it_is},
    {"page_ends", "requests that end at, before and behind the end of a page", ClauseTest::kValues,
     as_it_is},
    {"holes", "-1 inside a list is no entry", ClauseTest::kValues, either<holes, plain_holes>},
    {"behind_lens", "what stands behind a list's length is not read", ClauseTest::kValues,
     either<behind_lens, garbage_behind>},
    {"unlisted_nan", "rows that no list names are not read", ClauseTest::kValues, unlisted_nan},
    {"unread_pages", "blocks of a table that no row is read from are not read", ClauseTest::kValues,
     unread_pages},
    {"high_blocks", "byte offsets of pages take 64 bits", ClauseTest::kValues, high_blocks},
    {"duplicates", "a row that is listed twice counts twice", ClauseTest::kValues,
     either<duplicates, plain_duplicates>},
    {"nothing_listed", "a token without an entry has the result that the contract names",
     ClauseTest::kValues, either<nothing_listed, nothing_in_lists>},
    {"large_logits", "logits of hundreds neither overflow nor vanish", ClauseTest::kValues,
     large_logits},
    {"far_lse", "LSE of 900 and of -900 are as good as others", ClauseTest::kValues, far_lse},
    {"sinks", "sinks of any size: -inf is none, +inf takes all", ClauseTest::kValues, sinks},
    {"every_code", "every number of the format is decoded", ClauseTest::kValues,
     either<every_code, plain_codes>},
    {"subnormals", "subnormal codes are not 0", ClauseTest::kValues,
     either<subnormal_codes, plain_subnormals>},
    {"small_scales", "scales down to the smallest", ClauseTest::kValues,
     either<small_scales, plain_scales>},
    {"ties", "of equal scores the lowest entry wins, and 0 equals -0", ClauseTest::kExact, ties},
    {"scores_behind", "scores behind lens are not looked at", ClauseTest::kValues, scores_behind},
    {"nothing_written", "slot -1 writes nothing", ClauseTest::kValues,
     either<nothing_written, no_row_moved>},
    {"large_numbers", "ids, slots and lengths up to the largest are as good as others",
     ClauseTest::kValues, large_numbers},
    {"no_rows", "a call of no rows at all is a call as others", ClauseTest::kValues, no_rows},
    {"strides", "rows lie as far apart as strides say", ClauseTest::kValues, strides},
    {"nan_neighbours", "NaN of one token stays with it", ClauseTest::kValues, nan_neighbours},
    {"alone", "a token has the same result alone", ClauseTest::kAlone, as_it_is},
    {"poison", "outputs are written, and not read before", ClauseTest::kPoison, all_written},
    {"twice", "the same bytes when called again", ClauseTest::kTwice, as_it_is},
};

}  // namespace

std::span<const Clause> clauses() { return kClauses; }

}  // namespace attnscope
