// Lists, tables and lengths of ops that attend to nothing.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "engine/examine/call_parts.h"
#include "engine/examine/clause_makers.h"
#include "engine/model/numbers.h"
#include "kernels/params/dtype.h"

namespace attnscope {
namespace {

using Variations = std::vector<Variation>;

constexpr std::int32_t kMostInt = std::numeric_limits<std::int32_t>::max();
constexpr float kNoLse = std::numeric_limits<float>::infinity();

std::span<std::int32_t> ints(OpCase& call, const char* tap) {
  return elements<std::int32_t>(call.tensors.at(tap));
}

std::span<std::int64_t> longs(OpCase& call, const char* tap) {
  return elements<std::int64_t>(call.tensors.at(tap));
}

// Changes a copy of the call; edit says whether there was anything to change.
void try_edit(Variations& out, const OpCase& ordinary, const std::string& what,
              const std::function<bool(OpCase&)>& edit) {
  OpCase call = ordinary;
  if (edit(call)) out.push_back({what, std::move(call)});
}

// Every element of a tensor, by its place; a change says so.
template <class T>
bool each_element(std::span<T> values, const std::function<T(std::size_t, T)>& changed) {
  bool any = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T value = changed(i, values[i]);
    any = any || value != values[i];
    values[i] = value;
  }
  return any;
}

// Entries of a table within what is listed of its rows, or behind that.
bool each_entry(OpCase& call, bool behind,
                const std::function<std::int32_t(std::size_t, std::int32_t)>& changed) {
  const bool pages = call.op.id == AS_OP_PAGE_INDICES;
  StoredTensor& table = call.tensors.at("table");
  const auto lens = ints(call, pages ? "seq_lens" : "lens");
  const std::int64_t columns = table.shape[1];
  const std::int64_t size = pages ? call.integers.at("block_size") : 1;
  bool any = false;
  for (std::size_t r = 0; r < lens.size(); ++r) {
    const std::int64_t held = (lens[r] + size - 1) / size;
    for (std::int64_t c = behind ? held : 0; c < (behind ? columns : held); ++c) {
      std::int32_t& entry = elements<std::int32_t>(table)[r * to_size(columns) + to_size(c)];
      entry = changed(to_size(c), entry);
      any = true;
    }
  }
  return any;
}

bool has_table(const OpCase& call) {
  return call.op.id == AS_OP_PAGE_INDICES || call.op.id == AS_OP_COMPACT_TABLES;
}

bool set_all(std::span<std::int32_t> values, std::int32_t value) {
  return each_element<std::int32_t>(values, [&](std::size_t, std::int32_t) { return value; });
}

bool set_all(std::span<std::int64_t> values, std::int64_t value) {
  return each_element<std::int64_t>(values, [&](std::size_t, std::int64_t) { return value; });
}

// A state that holds nothing, with NaN in its values.
void empty_state(OpCase& call, const char* values, const char* lse, float empty) {
  std::ranges::fill(elements<float>(call.tensors.at(lse)), empty);
  std::ranges::fill(call.tensors.at(values).bytes, 0xff);
}

}  // namespace

Variations plain_holes(const OpCase& ordinary) {
  Variations out;
  switch (ordinary.op.id) {
    case AS_OP_GATHER_ROWS:
      try_edit(out, ordinary, "every third slot -1", [](OpCase& call) {
        return each_element<std::int64_t>(longs(call, "slots"), [](std::size_t i, std::int64_t s) {
          return i % 3 == 1 ? -1 : s;
        });
      });
      break;
    case AS_OP_SWAP_OUT:
      try_edit(out, ordinary, "every third id -1", [](OpCase& call) {
        return each_element<std::int64_t>(longs(call, "from"), [](std::size_t i, std::int64_t id) {
          return i % 3 == 1 ? -1 : id;
        });
      });
      break;
    case AS_OP_COPY_BLOCKS:
      for (const std::size_t side : {0, 1}) {
        try_edit(out, ordinary,
                 fmt::format("{} of every second pair negative", side == 0 ? "source" : "target"),
                 [&](OpCase& call) {
                   return each_element<std::int64_t>(
                       longs(call, "pairs"), [&](std::size_t i, std::int64_t id) {
                         return i % 4 == side ? -1 - static_cast<std::int64_t>(side) : id;
                       });
                 });
      }
      break;
    case AS_OP_PAGE_INDICES:
      try_edit(out, ordinary, "every second entry -1, copied as it is", [](OpCase& call) {
        return each_entry(call, false,
                          [](std::size_t c, std::int32_t id) { return c % 2 == 0 ? -1 : id; });
      });
      break;
    case AS_OP_COMPACT_TABLES:
      for (const std::int32_t null : {0, 7, -5}) {
        try_edit(out, ordinary, fmt::format("null block {}, entries of it, of 0 and -2", null),
                 [&](OpCase& call) {
                   call.integers["null_block"] = null;
                   return each_entry(call, false, [&](std::size_t c, std::int32_t id) {
                     const std::int32_t cycle[] = {null, id, 0, -2, id};
                     return cycle[c % 5];
                   });
                 });
      }
      break;
    case AS_OP_CROSS_BATCH:
      try_edit(out, ordinary, "every third token padding", [](OpCase& call) {
        return each_element<std::int32_t>(
            ints(call, "token_to_req"),
            [](std::size_t i, std::int32_t r) { return i % 3 == 0 ? -1 : r; });
      });
      break;
    default:
      break;
  }
  return out;
}

Variations garbage_behind(const OpCase& ordinary) {
  Variations out;
  if (has_table(ordinary)) {
    for (const bool shorter : {false, true}) {
      try_edit(out, ordinary, shorter ? "lengths short of entries" : "ids behind what is listed",
               [&](OpCase& call) {
                 if (!shorter) {
                   return each_entry(call, true, [](std::size_t, std::int32_t) { return 12345; });
                 }
                 const char* lens = call.tensors.contains("lens") ? "lens" : "seq_lens";
                 return each_element<std::int32_t>(
                     ints(call, lens), [](std::size_t, std::int32_t n) { return n / 2; });
               });
    }
  } else if (ordinary.op.id == AS_OP_PAD_ROWS) {
    try_edit(out, ordinary, "values behind the last row", [](OpCase& call) {
      const auto starts = ints(call, "starts");
      std::int32_t& last = starts.back();
      const std::int32_t before = starts.size() > 1 ? starts[starts.size() - 2] : last;
      if (last == before) return false;
      last = before;
      return true;
    });
  } else if (ordinary.op.id == AS_OP_CROSS_BATCH) {
    try_edit(out, ordinary, "slots of another group", [](OpCase& call) {
      StoredTensor& slots = call.tensors.at("slots");
      if (slots.shape[0] != 1) return false;
      const std::vector<std::uint8_t> own = slots.bytes;
      slots.bytes.assign(own.size(), 0x11);
      slots.bytes.insert(slots.bytes.end(), own.begin(), own.end());
      slots.shape[0] = 2;
      call.integers["group"] = 1;
      return true;
    });
  }
  return out;
}

Variations plain_duplicates(const OpCase& ordinary) {
  Variations out;
  if (ordinary.op.id == AS_OP_GATHER_ROWS) {
    try_edit(out, ordinary, "every row the first one",
             [](OpCase& call) { return set_all(longs(call, "slots"), longs(call, "slots")[0]); });
  } else if (ordinary.op.id == AS_OP_SWAP_OUT) {
    try_edit(out, ordinary, "every block the first one",
             [](OpCase& call) { return set_all(longs(call, "from"), longs(call, "from")[0]); });
  } else if (ordinary.op.id == AS_OP_COPY_BLOCKS) {
    try_edit(out, ordinary, "block 0 to all targets", [](OpCase& call) {
      return each_element<std::int64_t>(longs(call, "pairs"), [](std::size_t i, std::int64_t id) {
        return i % 2 == 0 ? std::int64_t{0} : id;
      });
    });
  } else if (has_table(ordinary)) {
    try_edit(out, ordinary, "one block in all places", [](OpCase& call) {
      return each_entry(call, false, [](std::size_t, std::int32_t) { return 5; });
    });
  } else if (ordinary.op.id == AS_OP_EXCHANGE_ROWS) {
    try_edit(out, ordinary, "one row missed again and again", [](OpCase& call) {
      std::int64_t first = -1;
      return each_element<std::int64_t>(longs(call, "missed_from"),
                                        [&](std::size_t, std::int64_t slot) {
                                          if (first < 0) first = slot;
                                          return slot < 0 ? slot : first;
                                        });
    });
  }
  return out;
}

Variations nothing_in_lists(const OpCase& ordinary) {
  Variations out;
  const auto all = [&](const char* what, const char* tap, std::int32_t value) {
    try_edit(out, ordinary, what, [&](OpCase& call) { return set_all(ints(call, tap), value); });
  };
  const auto first = [&](const char* what, const char* tap) {
    try_edit(out, ordinary, what, [&](OpCase& call) {
      return each_element<std::int32_t>(
          ints(call, tap), [](std::size_t i, std::int32_t n) { return i == 0 ? 0 : n; });
    });
  };
  switch (ordinary.op.id) {
    case AS_OP_MERGE_STATES:
      for (const float empty : {kNoLse, -kNoLse}) {
        for (const bool both : {false, true}) {
          try_edit(out, ordinary, fmt::format("LSE {:+} of {}", empty, both ? "both" : "a"),
                   [&](OpCase& call) {
                     empty_state(call, "a", "lse_a", empty);
                     if (both) empty_state(call, "b", "lse_b", empty);
                     return true;
                   });
        }
      }
      break;
    case AS_OP_GATHER_ROWS:
      try_edit(out, ordinary, "every slot -1",
               [](OpCase& call) { return set_all(longs(call, "slots"), std::int64_t{-1}); });
      break;
    case AS_OP_SWAP_OUT:
      try_edit(out, ordinary, "every id -1",
               [](OpCase& call) { return set_all(longs(call, "from"), std::int64_t{-1}); });
      break;
    case AS_OP_COPY_BLOCKS:
      try_edit(out, ordinary, "every id -1",
               [](OpCase& call) { return set_all(longs(call, "pairs"), std::int64_t{-1}); });
      break;
    case AS_OP_SEQUENCE_TABLE:
      first("no token of sequence 0", "query_lens");
      all("no token at all", "query_lens", 0);
      try_edit(out, ordinary, "no token and none before", [](OpCase& call) {
        const bool first_changed = set_all(ints(call, "query_lens"), 0);
        return set_all(ints(call, "computed"), 0) || first_changed;
      });
      break;
    case AS_OP_PAGE_INDICES:
      first("no row of sequence 0", "seq_lens");
      all("no row at all", "seq_lens", 0);
      break;
    case AS_OP_COMPACT_TABLES:
      first("length 0 of row 0", "lens");
      all("length 0 of every row", "lens", 0);
      all("null blocks alone", "table", 0);
      break;
    case AS_OP_PAD_ROWS:
      all("no value in any row", "starts", 0);
      break;
    case AS_OP_EXCHANGE_ROWS:
      all("no row in the pool", "places", -1);
      try_edit(out, ordinary, "nothing selected", [](OpCase& call) {
        const bool first_changed = set_all(ints(call, "places"), -1);
        return set_all(ints(call, "selected"), -1) || first_changed;
      });
      break;
    case AS_OP_CROSS_BATCH:
      all("no source", "source_lens", 0);
      all("nothing but source", "source_lens", kMostInt);
      break;
    default:
      break;
  }
  return out;
}

Variations no_row_moved(const OpCase& ordinary) {
  Variations out;
  if (ordinary.op.id != AS_OP_EXCHANGE_ROWS) return out;
  for (const char* tap : {"fresh_from", "pages_to", "missed_from", "pool_to"}) {
    try_edit(out, ordinary, fmt::format("{} -1 of all", tap),
             [&](OpCase& call) { return set_all(longs(call, tap), std::int64_t{-1}); });
  }
  return out;
}

Variations large_numbers(const OpCase& ordinary) {
  Variations out;
  constexpr std::int32_t kHugeBlock = std::int32_t{1} << 30;
  const auto widened = [](OpCase& call, const char* table) {
    call.integers["block_size"] = kHugeBlock;
    return call.tensors.at(table).shape[1] >= 2;
  };
  if (has_table(ordinary)) {
    try_edit(out, ordinary, "block ids up to 2^31 - 1", [](OpCase& call) {
      return each_entry(call, false,
                        [](std::size_t, std::int32_t id) { return id > 0 ? kMostInt - id : id; });
    });
  }
  switch (ordinary.op.id) {
    case AS_OP_PAGE_INDICES:
      try_edit(out, ordinary, "a sequence of 2^31 - 1 rows", [&](OpCase& call) {
        ints(call, "seq_lens")[0] = kMostInt;
        const std::size_t blocks = ints(call, "seq_lens").size() + 1;
        return widened(call, "table") && ints(call, "indices").size() >= blocks;
      });
      break;
    case AS_OP_SEQUENCE_TABLE:
      try_edit(out, ordinary, "a sequence of 2^31 - 1 rows", [&](OpCase& call) {
        ints(call, "computed")[0] = kMostInt - ints(call, "query_lens")[0];
        return widened(call, "blocks");
      });
      break;
    case AS_OP_PAD_ROWS:
      try_edit(out, ordinary, "values of 31 bits", [](OpCase& call) {
        call.integers["pad"] = std::numeric_limits<std::int32_t>::min();
        return each_element<std::int32_t>(ints(call, "values"), [](std::size_t i, std::int32_t v) {
          return i % 2 == 0 ? kMostInt - v : -kMostInt + v;
        });
      });
      break;
    case AS_OP_CROSS_BATCH:
      try_edit(out, ordinary, "slots behind 2^40", [](OpCase& call) {
        return each_element<std::int64_t>(longs(call, "slots"), [](std::size_t, std::int64_t s) {
          return s < 0 ? s : s + (std::int64_t{1} << 40);
        });
      });
      break;
    case AS_OP_EXCHANGE_ROWS:
      try_edit(out, ordinary, "selected slots up to 2^31 - 1", [](OpCase& call) {
        return each_element<std::int32_t>(ints(call, "selected"), [](std::size_t, std::int32_t s) {
          return s < 0 ? s : kMostInt - s;
        });
      });
      break;
    default:
      break;
  }
  return out;
}

Variations no_rows(const OpCase& ordinary) {
  Variations out;
  if (!ordinary.op.helper) return out;
  OpCase call = ordinary;
  for (const as_tap_info& tap : call.op.taps) {
    StoredTensor* t = tensor_of(call, tap);
    if (t == nullptr) continue;
    const bool ends = std::string_view(tap.axes) == "sequences+1";
    if (!ends && !by_row(call.op, tap)) continue;
    t->shape[0] = ends ? 1 : 0;
    t->bytes.resize(ends ? to_size(as_dtype_size(t->dtype)) : 0);
  }
  out.push_back({fmt::format("no {}", row_axis(call.op) == "sequences" ? "sequences" : "rows"),
                 std::move(call)});
  return out;
}

Variations all_written(const OpCase& ordinary) {
  if (ordinary.op.id == AS_OP_COPY_BLOCKS &&
      ordinary.tensors.at("pairs").shape[0] < ordinary.tensors.at("to").shape[0]) {
    return {};
  }
  return {{ordinary.origin.from, ordinary}};
}

}  // namespace attnscope
