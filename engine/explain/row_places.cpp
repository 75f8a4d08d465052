#include "engine/explain/row_places.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "engine/explain/error_places.h"
#include "engine/io/plural.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

// A head's elements that share a scale, or that have none.
struct Block {
  std::int64_t head = 0, first = 0;
  auto operator<=>(const Block&) const = default;
};

// Of a part of the format: its blocks, and those with something wrong in them.
struct Part {
  std::set<Block> blocks, codes, scales;
  std::set<double> by;  // what wrong scales of one byte are more than the right ones
};

// What a byte of a row is: of which part, of which block, its elements or their scale.
struct ByteOf {
  int part = -1;  // -1 = padding
  Block block;
  bool scale = false;
  bool exponent = false;  // a scale of one byte
};

std::vector<ByteOf> bytes_of(const as_row_layout& row) {
  std::vector<ByteOf> out(to_size(row.row));
  const auto put = [&](std::int64_t at, std::int64_t bits, const ByteOf& what) {
    const std::int64_t end = std::min(at + std::max<std::int64_t>(bits / 8, 1), row.row);
    for (std::int64_t i = std::max<std::int64_t>(at, 0); at >= 0 && i < end; ++i) {
      out[to_size(i)] = what;
    }
  };
  for (std::int64_t head = 0; head < row.heads; ++head) {
    for (std::int64_t dim = 0; dim < row.width; ++dim) {
      const as_element_place e = as_element_at(&row, 0, head, dim);
      const Block block{head, e.scale_kind != AS_CODE_NONE ? e.first : 0};
      put(e.at, as_code_bits(e.code), {e.part, block, false});
      const bool exponent = as_code_bits(e.scale_kind) == 8;
      put(e.scale, as_code_bits(e.scale_kind), {e.part, block, true, exponent});
      put(e.zero, as_code_bits(row.format->parts[e.part].zero), {e.part, block, true});
    }
  }
  return out;
}

std::string blocks_text(const std::set<Block>& some, const std::set<Block>& all, const char* one,
                        const char* many) {
  if (some.size() == all.size()) return all.size() == 1 ? one : fmt::format("all {}", many);
  if (some.size() > 1) return fmt::format("{} of {} {}", some.size(), all.size(), many);
  const auto place = std::distance(all.begin(), all.find(*some.begin()));
  return fmt::format("{} {}", one, place);
}

// The parts with wrong bytes in them.
std::string parts_text(const WrongElements& wrong, const as_row_layout& row) {
  const std::vector<ByteOf> bytes = bytes_of(row);
  std::map<int, Part> parts;
  for (const ByteOf& byte : bytes) parts[byte.part].blocks.insert(byte.block);
  bool padding = false;
  for (std::size_t i = 0; i < wrong.wrong.size(); ++i) {
    if (wrong.wrong[i] == 0) continue;
    const ByteOf& byte = bytes[i % bytes.size()];
    padding = padding || byte.part < 0;
    Part& part = parts[byte.part];
    (byte.scale ? part.scales : part.codes).insert(byte.block);
    if (byte.scale) part.by.insert(byte.exponent ? wrong.value[i] - wrong.reference[i] : 0);
  }
  std::vector<std::string> texts;
  for (const auto& [number, part] : parts) {
    if (number < 0 || (part.codes.empty() && part.scales.empty())) continue;
    const as_row_part& of = row.format->parts[number];
    const bool scaled = of.scale != AS_CODE_NONE && of.per == AS_PER_BLOCK;
    if (!scaled) {
      texts.push_back(row.format->num_parts > 1 ? fmt::format("{} dims", of.name) : of.name);
      continue;
    }
    if (!part.codes.empty()) {
      texts.push_back(
          fmt::format("codes of {}", blocks_text(part.codes, part.blocks, "block", "blocks")));
    }
    texts.push_back(part.scales.empty() ? "no scale"
                                        : blocks_text(part.scales, part.blocks, "scale", "scales"));
    if (const double by = part.by.size() == 1 ? *part.by.begin() : 0; by != 0) {
      texts.back() += fmt::format(" {} by {}", by < 0 ? "too small" : "too large", std::fabs(by));
    }
  }
  if (padding) texts.emplace_back("padding");
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

ErrorFinding row_places(const WrongElements& wrong, const as_row_layout& row,
                        std::span<const std::int64_t> slots, std::int64_t rows_per_block,
                        const PatternContext& context) {
  const std::int64_t tokens = wrong.shape[0];
  std::vector<std::int64_t> places;
  std::set<std::int64_t> in_page;
  bool unwritten = true;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto first = wrong.wrong.begin() + t * row.row;
    if (std::find(first, first + row.row, 1) == first + row.row) continue;
    places.push_back(t);
    in_page.insert(slots[to_size(t)] % rows_per_block);
    for (std::int64_t b = 0; b < row.row && unwritten; ++b) {
      unwritten = wrong.value[to_size(t * row.row + b)] == 255;
    }
  }
  PatternContext known = context;
  known.page_rows.clear();  // slots say it of the rows themselves
  std::string text = fmt::format("{} of {} bytes are wrong: {} {}{}", wrong.count, wrong.elements,
                                 agree(places.size(), "token", "tokens"),
                                 places_text(places, tokens), tokens_note(places, tokens, known));
  const std::int64_t at = in_page.size() == 1 ? *in_page.begin() : -1;
  const bool end = at == 0 || at == rows_per_block - 1;
  if (at >= 0 && rows_per_block > 1 && (places.size() > 1 || end)) {
    text += fmt::format(", at row {} of pages of {}", at, rows_per_block);
  }
  text += unwritten ? fmt::format("; every byte of {} is 255, as where nobody has written",
                                  agree(places.size(), "the row", "these rows"))
                    : "; " + parts_text(wrong, row);
  return {"place", text, 1};
}

}  // namespace attnscope
