#include "engine/checkpoint/second_reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/checkpoint/plain_reading.h"
#include "engine/family/family.h"
#include "engine/family/second_targets.h"

namespace attnscope {
namespace {

using plain::bf16_number, plain::from_e4m3, plain::nearest_bf16, plain::FileValues, plain::Stored;

constexpr std::int64_t kSide = 128;  // of a block with a scale of its own

// Every e4m3 number that is not negative, by its code.
const std::array<double, 127>& e4m3_numbers() {
  static const std::array<double, 127> kAllNumbers = [] {
    std::array<double, 127> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = from_e4m3(static_cast<std::uint8_t>(i));
    return all;
  }();
  return kAllNumbers;
}

double nearest_e4m3(double value) {
  const auto& all = e4m3_numbers();
  const double size = std::fabs(value);
  if (std::isnan(value)) return value;
  const auto above = std::ranges::lower_bound(all, size);
  if (above == all.end()) return std::copysign(all.back(), value);
  const auto code = above - all.begin();
  if (*above == size || code == 0) return std::copysign(*above, value);
  const double below = all[static_cast<std::size_t>(code - 1)];
  const bool up = size - below != *above - size ? size - below > *above - size : code % 2 == 0;
  return std::copysign(up ? *above : below, value);
}

// Of a block whose largest value this is: the smallest power of two that takes it to 448 at most.
double block_scale(double largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 1;
  int exponent = std::ilogb(largest / 448);
  if (std::ldexp(448.0, exponent) < largest) ++exponent;
  return std::ldexp(1.0, std::max(exponent, -110));
}

class ReadingComparer {
 public:
  // exported: the file was made of the weights, and may hold fewer bits than they do.
  ReadingComparer(plain::Files& files, const std::vector<TensorUse>& used, bool exported = false)
      : files_(files), used_(used), exported_(exported) {}

  Result<std::optional<TapResult>> compare(const SecondTarget& target) {
    auto stored = stored_of(target.names, target.published);
    if (!stored) return stored.error();
    const Stored& t = **stored;
    const Stored* scale = nullptr;
    if (t.dtype == "F8_E4M3") {
      std::string role = target.published;
      role.replace(role.rfind(".weight"), 7, ".scale");
      auto found = stored_of(target.scale_names, role);
      if (!found) return found.error();
      scale = *found;
    }
    beyond_ = 0;
    note_.clear();
    for (std::int64_t first = 0; first < target.rows; first += kSide) {
      const std::int64_t rows = std::min(kSide, target.rows - first);
      auto values = files_.read(t, first, rows);
      if (!values) return values.error();
      FileValues scales;
      if (scale != nullptr) {
        auto read = files_.read(*scale, first / kSide, 1);
        if (!read) return read.error();
        scales = std::move(*read);
      }
      band(target, first, rows, *values, scales);
    }
    if (beyond_ == 0) return std::optional<TapResult>();
    return std::optional<TapResult>(result(target, t));
  }

 private:
  // names of this reading; else the one that the loader found.
  Result<const Stored*> stored_of(const std::vector<std::string>& names, const std::string& role) {
    for (const std::string& name : names) {
      if (files_.has(name)) return files_.find(name);
    }
    const auto use = std::ranges::find(used_, role, &TensorUse::role);
    return files_.find(use != used_.end() ? use->name : role);
  }

  // Rows of one row of blocks. values: [rows, columns] as stored; scales: of its blocks.
  void band(const SecondTarget& target, std::int64_t first, std::int64_t rows,
            const FileValues& values, const FileValues& scales) {
    const std::int64_t columns = target.columns;
    if (exported_ && !scales.empty() && target.pieces.front().bf16 != nullptr) {
      return encoded_band(target, first, rows, values, scales);
    }
    FileValues codes, own_scales = scales;
    if (target.fp8 && scales.empty() && !exported_) {
      quantise(values, rows, columns, codes, own_scales);
    }
    const FileValues& stored = codes.empty() ? values : codes;
    for (const HeldPart& piece : target.pieces) {
      const std::int64_t begin = std::max(first, piece.row);
      const std::int64_t end = std::min(first + rows, piece.row + piece.rows);
      for (std::int64_t r = begin; r < end; ++r) {
        for (std::int64_t c = piece.column; c < piece.column + piece.columns; ++c) {
          const double value = stored[static_cast<std::size_t>((r - first) * columns + c)];
          const double scale =
              own_scales.empty() ? 1 : own_scales[static_cast<std::size_t>(c / kSide)];
          element(target, piece, r, c, value, scale);
        }
      }
    }
  }

  // Of a matrix that was encoded when it was exported.
  void encoded_band(const SecondTarget& target, std::int64_t first, std::int64_t rows,
                    const FileValues& values, const FileValues& scales) {
    const HeldPart& piece = target.pieces.front();
    FileValues held(values.size()), codes, own_scales;
    for (std::size_t i = 0; i < held.size(); ++i) {
      held[i] = bf16_number(piece.bf16[first * target.columns + static_cast<std::int64_t>(i)].bits);
    }
    quantise(held, rows, target.columns, codes, own_scales);
    for (std::size_t i = 0; i < held.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i), column = at % target.columns;
      const auto block = static_cast<std::size_t>(column / kSide);
      if (same(codes[i], values[i]) && same(own_scales[block], scales[block])) continue;
      differs(
          target, piece, first + at / target.columns, column,
          fmt::format("{:.9g} with scale {:.9g}, which the file has as {:.9g} with scale {:.9g}",
                      codes[i], own_scales[block], values[i], scales[block]));
    }
  }

  static void quantise(const FileValues& values, std::int64_t rows, std::int64_t columns,
                       FileValues& codes, FileValues& scales) {
    codes.resize(values.size());
    for (std::int64_t left = 0; left < columns; left += kSide) {
      const std::int64_t right = std::min(columns, left + kSide);
      const auto each = [&](const auto& f) {
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = left; c < right; ++c) f(static_cast<std::size_t>(r * columns + c));
        }
      };
      double largest = 0;
      each([&](std::size_t i) { largest = std::max(largest, std::fabs(nearest_bf16(values[i]))); });
      scales.push_back(block_scale(largest));
      each(
          [&](std::size_t i) { codes[i] = nearest_e4m3(nearest_bf16(values[i]) / scales.back()); });
    }
  }

  void element(const SecondTarget& target, const HeldPart& piece, std::int64_t row,
               std::int64_t column, double value, double scale) {
    const std::int64_t r = row - piece.row, c = column - piece.column;
    const auto at = r * piece.pitch + c;
    if (piece.codes != nullptr) {
      const double block =
          static_cast<double>(piece.scales[r / kSide * piece.scale_pitch + c / kSide]);
      double held = from_e4m3(piece.codes[at]);
      if (exported_ && scale == 1 && block != 1) {  // written as values
        held = nearest_bf16(held * block);
        if (same(held, value)) return;
      }
      if (same(held, value) && (same(block, scale))) return;
      return differs(target, piece, row, column,
                     same(block, scale)
                         ? fmt::format("code {:.9g}, which the file has as {:.9g}", held, value)
                         : fmt::format("scale {:.9g} of its block, which the file "
                                       "has as {:.9g}",
                                       block, scale));
    }
    double must = value * scale;
    double held = 0;
    if (piece.bf16 != nullptr) {
      must = nearest_bf16(must);
      held = bf16_number(piece.bf16[at].bits);
    } else {
      const float shifted = static_cast<float>(must) + static_cast<float>(target.shift);
      must = static_cast<double>(target.shift != 0 ? shifted : static_cast<float>(must));
      const auto other = target.instead.find(row);
      if (other != target.instead.end()) must = static_cast<double>(other->second);
      held = static_cast<double>(piece.f32[at]);
    }
    if (same(held, must)) return;
    differs(target, piece, row, column,
            fmt::format("{:.9g}, which the file has as {:.9g}", held, must));
  }

  static bool same(double a, double b) {
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
  }

  void differs(const SecondTarget& target, const HeldPart& piece, std::int64_t row,
               std::int64_t column, const std::string& what) {
    if (beyond_++ > 0) return;
    const std::string place =
        target.columns > 1 ? fmt::format("row {}, column {}", row, column) : fmt::format("{}", row);
    const bool one = std::ranges::all_of(
        target.pieces, [&](const HeldPart& p) { return p.rank == target.pieces.front().rank; });
    note_ = fmt::format("element {}{}: {}", place,
                        one ? "" : fmt::format(", of rank {}", piece.rank), what);
  }

  TapResult result(const SecondTarget& target, const Stored& stored) const {
    const std::int64_t elements = target.rows * target.columns;
    TapResult out = wrong_result(
        target.op, std::string(target.tap) + kLoadTap, elements, beyond_,
        fmt::format("{} is not what {} has, read a second time: {}; {} of {} differ",
                    target.published, stored.file.filename().string(), note_, beyond_, elements));
    out.layer = target.layer;
    out.shape = stored.shape;
    out.dtype = stored.dtype;
    return out;
  }

  plain::Files& files_;
  const std::vector<TensorUse>& used_;
  bool exported_;
  std::int64_t beyond_ = 0;
  std::string note_;
};

}  // namespace

Result<std::vector<TapResult>> check_loaded(
    const std::string& folder, const ModelConfig& whole, const TensorParallel& parallel,
    const std::vector<TensorUse>& used, const std::vector<std::shared_ptr<const Weights>>& ranks) {
  try {
    plain::Files files;
    if (auto ok = files.open_checkpoint(folder); !ok) return ok.error();
    ReadingComparer comparer(files, used);
    std::vector<TapResult> found;
    for (const SecondTarget& target : family_of(whole).second_targets(whole, parallel, ranks)) {
      auto result = comparer.compare(target);
      if (!result) return result.error();
      if (*result) found.push_back(std::move(**result));
    }
    return found;
  } catch (const nlohmann::json::exception& e) {
    return plain::unreadable(folder, e.what());
  }
}

Result<void> check_exported(const std::string& folder, const ModelConfig& config,
                            const Weights& weights) {
  ModelConfig plain_config = config;
  plain_config.sink_shift = 0;  // what is written is what is held
  plain_config.sinks.clear();
  const std::vector<TensorUse> none;
  const std::vector<std::shared_ptr<const Weights>> one = {{std::shared_ptr<void>(), &weights}};
  try {
    plain::Files files;
    if (auto ok = files.open_checkpoint(folder); !ok) return ok.error();
    ReadingComparer comparer(files, none, true);
    std::vector<SecondTarget> targets =
        family_of(plain_config).second_targets(plain_config, {}, one);
    if (const char* copy = family_of(plain_config).head_copy) {
      SecondTarget head = targets.front();  // the embedding, which files have twice
      head.published = copy;
      head.names = {head.published};
      targets.push_back(std::move(head));
    }
    for (const SecondTarget& target : targets) {
      auto result = comparer.compare(target);
      if (!result) return result.error();
      if (*result) return internal_error("the export is not what was exported: " + (*result)->note);
    }
  } catch (const nlohmann::json::exception& e) {
    return plain::unreadable(folder, e.what());
  }
  return {};
}

}  // namespace attnscope
