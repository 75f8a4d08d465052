#include "engine/checkpoint/second_reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/checkpoint/plain_reading.h"

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

// Where a published tensor may be found: the names that files give it.

struct Alias {
  const char *published, *others;  // others: separated by blanks
};

constexpr Alias kLeaves[] = {
    {"wq_a", "wq_a q_a_proj"}, {"q_norm", "q_norm q_a_norm"},    {"wq_b", "wq_b q_b_proj"},
    {"wkv", "wkv kv_proj"},    {"kv_norm", "kv_norm norm"},      {"wo_a", "wo_a o_a_proj"},
    {"wo_b", "wo_b o_b_proj"}, {"attn_sink", "attn_sink sinks"}, {"wgate", "wgate gate_proj"},
    {"norm", "norm kv_norm"},  {"ape", "ape position_bias"},     {"weights_proj", "weights_proj"},
};

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == ' ') {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

// path: "", "compressor.", "indexer." or "indexer.compressor."; leaf: "wq_a"; ends: what may
// follow.
std::vector<std::string> names_in_attention(int layer, const std::string& path,
                                            const std::string& leaf,
                                            const std::vector<std::string>& ends) {
  std::vector<std::string> paths = {path};
  if (path == "indexer.")
    paths = split_words(
        "indexer. compressor.indexer. indexer.scorer. "
        "compressor.indexer.scorer.");
  if (path == "indexer.compressor.") paths = split_words("indexer.compressor. compressor.indexer.");
  const auto alias =
      std::ranges::find_if(kLeaves, [&](const Alias& a) { return leaf == a.published; });
  std::vector<std::string> names;
  for (const char* model : {"", "model."}) {
    for (const char* attention : {"attn.", "self_attn."}) {
      for (const std::string& inner : paths) {
        for (const std::string& other : split_words(alias->others)) {
          for (const std::string& end : ends) {
            names.push_back(
                fmt::format("{}layers.{}.{}{}{}{}", model, layer, attention, inner, other, end));
          }
        }
      }
    }
  }
  return names;
}

// A part of a tensor in memory: rows and columns of it that some rank has. Exactly one of bf16, f32
// and codes is set.
struct RankPiece {
  int rank = 0;
  std::int64_t row = 0, rows = 0, column = 0, columns = 0;
  std::int64_t pitch = 0;  // elements from row to row
  const bf16_t* bf16 = nullptr;
  const float* f32 = nullptr;
  const std::uint8_t* codes = nullptr;
  const float* scales = nullptr;
  std::int64_t scale_pitch = 0;
};

// What a tensor is for, and where it went.
struct Target {
  std::string published;
  std::vector<std::string> names, scale_names;
  as_op_id op = AS_OP_COUNT;
  const char* tap = "weight";
  int layer = -1;  // published
  std::int64_t rows = 0, columns = 1;
  double shift = 0;  // added to every value, in fp32
  bool fp8 = false;  // held as codes and scales by the switch
  std::vector<RankPiece> pieces;
};

class ReadingComparer {
 public:
  // exported: the file was made of the weights, and may hold fewer bits than they do.
  ReadingComparer(plain::Files& files, const std::vector<TensorUse>& used, bool exported = false)
      : files_(files), used_(used), exported_(exported) {}

  Result<std::optional<TapResult>> compare(const Target& target) {
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
  void band(const Target& target, std::int64_t first, std::int64_t rows, const FileValues& values,
            const FileValues& scales) {
    const std::int64_t columns = target.columns;
    if (exported_ && !scales.empty() && target.pieces.front().bf16 != nullptr) {
      return encoded_band(target, first, rows, values, scales);
    }
    FileValues codes, own_scales = scales;
    if (target.fp8 && scales.empty() && !exported_) {
      quantise(values, rows, columns, codes, own_scales);
    }
    const FileValues& stored = codes.empty() ? values : codes;
    for (const RankPiece& piece : target.pieces) {
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
  void encoded_band(const Target& target, std::int64_t first, std::int64_t rows,
                    const FileValues& values, const FileValues& scales) {
    const RankPiece& piece = target.pieces.front();
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

  void element(const Target& target, const RankPiece& piece, std::int64_t row, std::int64_t column,
               double value, double scale) {
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
      held = static_cast<double>(piece.f32[at]);
    }
    if (same(held, must)) return;
    differs(target, piece, row, column,
            fmt::format("{:.9g}, which the file has as {:.9g}", held, must));
  }

  static bool same(double a, double b) {
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
  }

  void differs(const Target& target, const RankPiece& piece, std::int64_t row, std::int64_t column,
               const std::string& what) {
    if (beyond_++ > 0) return;
    const std::string place =
        target.columns > 1 ? fmt::format("row {}, column {}", row, column) : fmt::format("{}", row);
    const bool one = target.pieces.size() == 1;
    note_ = fmt::format("element {}{}: {}", place,
                        one ? "" : fmt::format(", of rank {}", piece.rank), what);
  }

  TapResult result(const Target& target, const Stored& stored) const {
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

// All tensors of the layers that run.
class TargetList {
 public:
  TargetList(const ModelConfig& whole, const TensorParallel& parallel,
             const std::vector<std::shared_ptr<const Weights>>& ranks)
      : c_(whole), parallel_(parallel), ranks_(ranks) {}

  std::vector<Target> list() {
    const Weights& own = mine();
    layer_ = -1;
    plain(
        "embed.weight", AS_OP_LM_HEAD,
        {"embed.weight", "model.embed.weight", "embed_tokens.weight", "model.embed_tokens.weight"},
        own.embedding.data(), kVocabulary, c_.hidden);
    plain("norm.weight", AS_OP_FINAL_NORM, {"norm.weight", "model.norm.weight"},
          own.final_norm.data(), c_.hidden, 1);
    for (std::size_t i = 0; i < own.layers.size(); ++i) layer(i);
    return std::move(targets_);
  }

 private:
  const Weights& mine() const { return *ranks_[static_cast<std::size_t>(parallel_.rank)]; }

  Target& add(const std::string& published, as_op_id op, std::vector<std::string> names,
              std::int64_t rows, std::int64_t columns) {
    Target& t = targets_.emplace_back();
    t.published = published;
    t.names = std::move(names);
    t.op = op;
    t.layer = layer_;
    t.rows = rows;
    t.columns = columns;
    return t;
  }

  template <class T>
  Target& plain(const std::string& published, as_op_id op, std::vector<std::string> names,
                const T* data, std::int64_t rows, std::int64_t columns) {
    Target& t = add(published, op, std::move(names), rows, columns);
    RankPiece piece{parallel_.rank, 0, rows, 0, columns, columns};
    put(piece, data);
    t.pieces.push_back(piece);
    return t;
  }
  static void put(RankPiece& piece, const bf16_t* data) { piece.bf16 = data; }
  static void put(RankPiece& piece, const float* data) { piece.f32 = data; }

  // Of attention in this layer; leaf as published.
  Target& attention(const std::string& path, const std::string& leaf, as_op_id op,
                    std::int64_t rows, std::int64_t columns) {
    const bool ends = leaf != "attn_sink" && leaf != "ape";
    Target& t =
        add(fmt::format("layers.{}.attn.{}{}{}", layer_, path, leaf, ends ? ".weight" : ""), op,
            names_in_attention(layer_, path, leaf, {ends ? ".weight" : ""}), rows, columns);
    if (ends) {
      t.scale_names = names_in_attention(
          layer_, path, leaf, {".scale", ".weight_scale_inv", ".weight_scale", ".scale_inv"});
    }
    return t;
  }

  // Rows [first, first + rows) of a matrix in bf16 or FP8 are rows [row, ..) and columns
  // [column, ..) of the tensor.
  static void part(Target& t, int rank, const Buffer<bf16_t>& bf16, const Fp8Matrix& fp8,
                   std::int64_t first, std::int64_t row, std::int64_t rows, std::int64_t column,
                   std::int64_t columns) {
    RankPiece piece{rank, row, rows, column, columns, columns};
    if (fp8.codes.size() > 0) {
      const std::int64_t across = (columns + kSide - 1) / kSide;
      piece.codes = fp8.codes.data() + first * columns;
      piece.scales = fp8.scales.data() + first / kSide * across;
      piece.scale_pitch = across;
    } else {
      piece.bf16 = bf16.data() + first * columns;
    }
    t.pieces.push_back(piece);
  }

  // Whether the switch has this projection in FP8, as a whole.
  bool in_fp8(std::int64_t rows, std::int64_t columns) const {
    return c_.switches.fp8_projections && rows % kSide == 0 && columns % kSide == 0;
  }

  void compressor(const std::string& path, const CompressorWeights& w, int ratio, std::int64_t dim,
                  as_op_id proj, as_op_id state, as_op_id insert) {
    const std::int64_t width = (ratio == 4 ? 2 : 1) * dim;
    for (const char* leaf : {"wkv", "wgate"}) {
      Target& t = attention(path, leaf, proj, width, c_.hidden);
      RankPiece piece{parallel_.rank, 0, width, 0, c_.hidden, c_.hidden};
      piece.bf16 = w.kv_gate.data() + (leaf[1] == 'g' ? width * c_.hidden : 0);
      t.pieces.push_back(piece);
    }
    Target& ape = attention(path, "ape", state, ratio, width);
    ape.tap = "ape";
    ape.pieces.push_back({parallel_.rank, 0, ratio, 0, width, width, nullptr, w.ape.data()});
    Target& norm = attention(path, "norm", insert, dim, 1);
    norm.pieces.push_back({parallel_.rank, 0, dim, 0, 1, 1, w.norm.data()});
  }

  void layer(std::size_t i) {
    const LayerWeights& w = mine().layers[i];
    layer_ = c_.layers[i];
    const std::int64_t hidden = c_.hidden, q_lora = c_.q_lora, size = parallel_.size;
    const std::int64_t group_in = std::int64_t{c_.heads_per_group()} * c_.head_dim;
    const std::int64_t out = std::int64_t{c_.o_groups} * c_.o_lora;
    std::vector<std::string> names;
    for (const char* model : {"", "model."}) {
      for (const char* leaf : {"attn_norm", "input_layernorm"}) {
        names.push_back(fmt::format("{}layers.{}.{}.weight", model, layer_, leaf));
      }
    }
    plain(fmt::format("layers.{}.attn_norm.weight", layer_), AS_OP_ATTN_NORM, names,
          w.attn_norm.data(), hidden, 1);
    const bool a_in_fp8 = in_fp8(q_lora + c_.head_dim, hidden);
    Target& wq_a = attention("", "wq_a", AS_OP_Q_KV_A_PROJ, q_lora, hidden);
    wq_a.fp8 = a_in_fp8;
    part(wq_a, parallel_.rank, w.wq_kv_a, w.fp8.wq_kv_a, 0, 0, q_lora, 0, hidden);
    Target& wkv = attention("", "wkv", AS_OP_Q_KV_A_PROJ, c_.head_dim, hidden);
    wkv.fp8 = a_in_fp8;
    part(wkv, parallel_.rank, w.wq_kv_a, w.fp8.wq_kv_a, q_lora, 0, c_.head_dim, 0, hidden);
    for (const auto& [leaf, data, n] :
         {std::tuple("q_norm", w.q_norm.data(), q_lora),
          std::tuple("kv_norm", w.kv_norm.data(), std::int64_t{c_.head_dim})}) {
      Target& t = attention("", leaf, AS_OP_Q_KV_NORM, n, 1);
      t.tap = leaf[0] == 'q' ? "q_weight" : "kv_weight";
      t.pieces.push_back({parallel_.rank, 0, n, 0, 1, 1, data});
    }
    const std::int64_t q_rows = std::int64_t{c_.heads} * c_.head_dim;
    Target& wq_b = attention("", "wq_b", AS_OP_Q_B_PROJ, q_rows, q_lora);
    wq_b.fp8 = in_fp8(q_rows, q_lora);
    each_rank(i, [&](int rank, const LayerWeights& l) {
      part(wq_b, rank, l.wq_b, l.fp8.wq_b, 0, rank * q_rows / size, q_rows / size, 0, q_lora);
    });
    Target& sinks = attention("", "attn_sink", AS_OP_SPARSE_ATTENTION, c_.heads, 1);
    sinks.tap = "sinks";
    sinks.shift = c_.sink_shift;
    each_rank(i, [&](int rank, const LayerWeights& l) {
      const std::int64_t heads = c_.heads / size;
      sinks.pieces.push_back({rank, rank * heads, heads, 0, 1, 1, nullptr, l.sinks.data()});
    });
    Target& wo_a = attention("", "wo_a", AS_OP_WO_A, out, group_in);
    each_rank(i, [&](int rank, const LayerWeights& l) {
      part(wo_a, rank, l.wo_a, {}, 0, rank * out / size, out / size, 0, group_in);
    });
    Target& wo_b = attention("", "wo_b", AS_OP_WO_B, hidden, out);
    wo_b.fp8 = in_fp8(hidden, out);
    each_rank(i, [&](int rank, const LayerWeights& l) {
      part(wo_b, rank, l.wo_b, l.fp8.wo_b, 0, 0, hidden, rank * out / size, out / size);
    });
    const int ratio = c_.ratio(static_cast<int>(i));
    if (ratio == 0) return;
    compressor("compressor.", w.compressor, ratio, c_.head_dim, AS_OP_COMPRESSOR_PROJ,
               AS_OP_COMPRESSOR_STATE, AS_OP_COMPRESS_INSERT);
    if (ratio != 4) return;
    compressor("indexer.compressor.", w.indexer_compressor, ratio, c_.index_dim,
               AS_OP_INDEXER_COMPRESSOR_PROJ, AS_OP_INDEXER_COMPRESSOR_STATE,
               AS_OP_INDEXER_COMPRESS_INSERT);
    const std::int64_t index_rows = std::int64_t{c_.index_heads} * c_.index_dim;
    Target& index_q = attention("indexer.", "wq_b", AS_OP_INDEXER_Q_PROJ, index_rows, q_lora);
    index_q.fp8 = in_fp8(index_rows, q_lora);
    part(index_q, parallel_.rank, w.indexer_wq_b, w.fp8.indexer_wq_b, 0, 0, index_rows, 0, q_lora);
    Target& weights =
        attention("indexer.", "weights_proj", AS_OP_INDEXER_WEIGHTS_PROJ, c_.index_heads, hidden);
    weights.pieces.push_back(
        {parallel_.rank, 0, c_.index_heads, 0, hidden, hidden, w.indexer_weights_proj.data()});
  }

  template <class F>
  void each_rank(std::size_t layer, const F& f) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      f(static_cast<int>(rank), ranks_[rank]->layers[layer]);
    }
  }

  const ModelConfig& c_;
  const TensorParallel& parallel_;
  const std::vector<std::shared_ptr<const Weights>>& ranks_;
  int layer_ = -1;
  std::vector<Target> targets_;
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
    for (const Target& target : TargetList(whole, parallel, ranks).list()) {
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
  const std::vector<TensorUse> none;
  const std::vector<std::shared_ptr<const Weights>> one = {{std::shared_ptr<void>(), &weights}};
  try {
    plain::Files files;
    if (auto ok = files.open_checkpoint(folder); !ok) return ok.error();
    ReadingComparer comparer(files, none, true);
    std::vector<Target> targets = TargetList(plain_config, {}, one).list();
    Target head = targets.front();  // the embedding, which files have twice
    head.published = "head.weight";
    head.names = {head.published};
    targets.push_back(std::move(head));
    for (const Target& target : targets) {
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
