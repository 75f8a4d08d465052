// Masks and score functions where a call numbers tokens and rows otherwise than they mean them:
// random expressions over the batch of chunks, across from a decoder to its source, and in a
// decoder behind its source, against a loop over pairs that knows neither pages nor batches, and
// block masks against a count of pairs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/backend/block_mask.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/row_format.h"
#include "tests/property/checks.h"

namespace attnscope::properties {
namespace mask_places_property_test {

using I64 = std::int64_t;

constexpr I64 kHeads = 4, kKvHeads = 2, kSize = 32;

std::size_t index_of(I64 n) { return static_cast<std::size_t>(n); }

// What an expression is asked about.
struct Asked {
  double q = 0, k = 0, head = 0, score = 0;
};

// An expression as text and as a function of its own: the text is parsed, the function is not.
struct Expression {
  std::string text;
  std::function<double(const Asked&)> value;
};

double modulo(double a, double b) { return a - b * std::floor(a / b); }

Expression condition(Random& random, int depth) {
  const auto n = static_cast<double>(2 + below(random, 9));
  const auto m = static_cast<double>(below(random, 3));
  if (depth > 0) {
    const Expression a = condition(random, depth - 1), b = condition(random, depth - 1);
    switch (below(random, 4)) {
      case 0:
        return {fmt::format("({}) && ({})", a.text, b.text),
                [=](const Asked& x) { return a.value(x) != 0 && b.value(x) != 0 ? 1.0 : 0.0; }};
      case 1:
        return {fmt::format("({}) || ({})", a.text, b.text),
                [=](const Asked& x) { return a.value(x) != 0 || b.value(x) != 0 ? 1.0 : 0.0; }};
      case 2:
        return {fmt::format("!({})", a.text),
                [=](const Asked& x) { return a.value(x) != 0 ? 0.0 : 1.0; }};
      default:
        return {fmt::format("head % 2 == 0 ? ({}) : ({})", a.text, b.text),
                [=](const Asked& x) { return modulo(x.head, 2) == 0 ? a.value(x) : b.value(x); }};
    }
  }
  switch (below(random, 5)) {
    case 0:
      return {fmt::format("kv_idx % {} != {}", n, m),
              [=](const Asked& x) { return modulo(x.k, n) != m ? 1.0 : 0.0; }};
    case 1:
      return {fmt::format("(q_idx + kv_idx) % {} == {}", n, m),
              [=](const Asked& x) { return modulo(x.q + x.k, n) == m ? 1.0 : 0.0; }};
    case 2:
      return {fmt::format("kv_idx <= q_idx + {}", m),
              [=](const Asked& x) { return x.k <= x.q + m ? 1.0 : 0.0; }};
    case 3:
      return {fmt::format("abs(q_idx - kv_idx) < {}", 4 * n),
              [=](const Asked& x) { return std::fabs(x.q - x.k) < 4 * n ? 1.0 : 0.0; }};
    default:
      return {fmt::format("kv_idx >= {} || q_idx // {} == kv_idx // {}", 5 * n, n, n),
              [=](const Asked& x) {
                const bool alike = std::floor(x.q / n) == std::floor(x.k / n);
                return x.k >= 5 * n || alike ? 1.0 : 0.0;
              }};
  }
}

Expression score_of(Random& random) {
  const auto n = static_cast<double>(3 + below(random, 9));
  return {fmt::format("score * 0.5 + 0.125 * (kv_idx % {}) - 0.0625 * (q_idx % {}) - head / 8", n,
                      n + 1),
          [=](const Asked& x) {
            return x.score * 0.5 + 0.125 * modulo(x.k, n) - 0.0625 * modulo(x.q, n + 1) -
                   x.head / 8;
          }};
}

enum class Kind { kChunks, kAcross, kBehindSource };

// Keys and values of requests by position, in pages and one behind the other.
struct Rows {
  Rows(const std::vector<I64>& lengths, I64 rows, Random& random) {
    I64 pages = 1, all = 0;
    for (const I64 n : lengths) {
      first.push_back(static_cast<std::int32_t>(all));
      all += n;
      columns = std::max(columns, ceil_div(n, rows) + 1);
      pages += ceil_div(n, rows);
    }
    std::vector<std::int32_t> ids(index_of(pages - 1));
    std::iota(ids.begin(), ids.end(), 1);
    std::shuffle(ids.begin(), ids.end(), random);
    for (const I64 n : lengths) {
      for (I64 c = 0; c < columns; ++c) {
        const bool held = c * rows < n;
        table.push_back(held ? ids.back() : -1);
        if (held) ids.pop_back();
      }
    }
    for (int which = 0; which < 2; ++which) {
      const as_row_layout l =
          as_row_layout_of(AS_RECORD_BF16, kKvHeads * kSize, kKvHeads, static_cast<int>(rows));
      slabs[which].assign(index_of(pages * l.page), 0xff);
      logical_bytes[which].assign(index_of(all * l.row), 0xff);
      as_cache& c = paged[which];
      c.data = make_tensor(slabs[which].data(), {pages, l.page});
      c.data.reserved = static_cast<std::int32_t>(kKvHeads);
      c.record = AS_RECORD_BF16;
      c.rows_per_block = static_cast<std::int32_t>(rows);
      c.width = static_cast<std::int32_t>(kKvHeads * kSize);
      logical[which] = c;
      logical[which].addressing = AS_LOGICAL;
      logical[which].rows_per_block = 0;
      logical[which].data = make_tensor(logical_bytes[which].data(), {all, l.row});
      logical[which].data.reserved = c.data.reserved;
      for (std::size_t r = 0; r < lengths.size(); ++r) {
        for (I64 p = 0; p < lengths[r]; ++p) {
          std::vector<bf16_t> row(index_of(kKvHeads * kSize));
          for (bf16_t& v : row) v = to_bf16(normal(random));
          for (const bf16_t v : row) values[which].push_back(static_cast<double>(to_float(v)));
          const I64 page = table[r * index_of(columns) + index_of(p / rows)];
          as_row_put(&c, page * rows + p % rows, row.data());
          as_row_put(&logical[which], first[r] + p, row.data());
        }
      }
    }
  }
  const double* at_row(int which, std::size_t request, I64 position, I64 head) const {
    return values[which].data() + ((first[request] + position) * kKvHeads + head) * kSize;
  }

  I64 columns = 1;
  std::vector<std::int32_t> first, table;
  std::vector<unsigned char> slabs[2], logical_bytes[2];
  std::vector<double> values[2];  // keys, values
  as_cache paged[2] = {}, logical[2] = {};
};

// A batch and what it asks; the call of the op, and what a loop gives.
class Trial {
 public:
  Trial(const Lane& lane, Kind kind, std::uint64_t seed)
      : lane_(lane), kind_(kind), random_(seed), report_(seed) {
    constexpr I64 kPages[] = {1, 4, 8, 16};
    rows_ = kPages[below(random_, 4)];
    chunk_ = kind == Kind::kChunks ? rows_ * (1 + below(random_, 4)) : 0;
    for (I64 r = 0; r < 1 + below(random_, 3); ++r) {
      lengths_.push_back(3 + below(random_, 110));
      sources_.push_back(kind == Kind::kChunks ? 0 : 1 + below(random_, lengths_.back() - 1));
    }
    mask_ = condition(random_, static_cast<int>(below(random_, 3)));
    score_ = score_of(random_);
    if (below(random_, 4) == 0) score_.text.clear();
    if (below(random_, 5) == 0 && !score_.text.empty()) mask_.text.clear();
    // Some tokens at the end of each request, of a decoder some of its own.
    for (std::size_t r = 0; r < lengths_.size(); ++r) {
      const I64 own = lengths_[r] - sources_[r];
      for (I64 p = lengths_[r] - 1 - below(random_, own); p < lengths_[r]; ++p) {
        tokens_.token_to_req.push_back(static_cast<std::int32_t>(r));
        tokens_.positions.push_back(p);
      }
    }
  }

  std::string words() const {
    return fmt::format(
        "kind {}, pages of {}, chunk {}, {} tokens of {} requests, mask {}, score {}",
        static_cast<int>(kind_), rows_, chunk_, tokens_.size(), lengths_.size(), mask_.text,
        score_.text);
  }

  Report run_all() {
    const Rows rows(lengths_, rows_, random_);
    fill(rows);
    if (!run(lane_, engine_, &report_)) return report_;
    memory_.check_guards(&report_);
    compare(rows, engine_, lane_.name, 1.0 / 128, 2e-4);
    // References see whole requests.
    OpParams whole = engine_;
    auto& w = whole.get<as_paged_attention_params>();
    w.k_cache = rows.logical[0];
    w.v_cache = rows.logical[1];
    w.table = memory_.ints(rows.first, {std::ssize(rows.first)});
    w.table.rank = 2;
    w.table.shape[1] = w.table.stride[1] = 1;
    w.token_to_req = memory_.ints(tokens_.token_to_req, {tokens_.size()});
    w.positions = memory_.ints64(tokens_.positions);
    w.seq_lens = memory_.ints(lens(), {std::ssize(lengths_)});
    w.chunk = static_cast<std::int32_t>(chunk_);
    OpParams sim = with_own_outputs(whole, &memory_);
    if (!run(*reference::sim_lane(), sim, &report_)) return report_;
    compare(rows, sim, "ref.sim", 1.0 / 128, 2e-4);
    OpParams exact = with_own_outputs(whole, &memory_);
    if (!run(*reference::exact_lane(), exact, &report_)) return report_;
    compare(rows, exact, "ref.exact", 1e-9, 1e-9);
    return report_;
  }

 private:
  std::vector<std::int32_t> lens() const {
    const std::vector<I64>& all = kind_ == Kind::kAcross ? sources_ : lengths_;
    return {all.begin(), all.end()};
  }

  void fill(const Rows& rows) {
    const I64 n = tokens_.size(), requests = std::ssize(lengths_);
    auto& p = engine_.init<as_paged_attention_params>(AS_OP_PAGED_ATTENTION);
    p.q = memory_.normals(AS_BF16, {n, kHeads, kSize}, random_);
    p.k_cache = rows.paged[0];
    p.v_cache = rows.paged[1];
    p.table = memory_.ints(rows.table, {requests, rows.columns});
    p.token_to_req = memory_.ints(tokens_.token_to_req, {n});
    p.positions = memory_.ints64(tokens_.positions);
    p.seq_lens = memory_.ints(lens(), {requests});
    p.o = memory_.make(AS_BF16, {n, kHeads, kSize}, 5);
    p.lse = memory_.make(AS_F32, {n, kHeads}, 1);
    p.scale = 0.25;
    p.causal = kind_ == Kind::kAcross ? 0 : 1;
    p.num_splits = static_cast<std::int32_t>(below(random_, 3));
    if (!mask_.text.empty()) mask_code_ = *parse_mask(mask_.text);
    if (!score_.text.empty()) score_code_ = *parse_score(score_.text);
    p.mask_code = mask_code_.tensor();
    p.score_code = score_code_.tensor();
    const std::vector<std::int32_t> sources(sources_.begin(), sources_.end());
    if (kind_ != Kind::kChunks) p.query_starts = memory_.ints(sources, {requests});
    if (kind_ == Kind::kBehindSource) p.row_starts = p.first_rows = p.query_starts;
    if (kind_ == Kind::kChunks) cut(rows, p);
  }

  // By the op that a step has.
  void cut(const Rows& rows, as_paged_attention_params& p) {
    const I64 n = tokens_.size(), requests = std::ssize(lengths_);
    std::vector<std::int32_t> starts(index_of(requests + 1), 0);
    for (const std::int32_t r : tokens_.token_to_req) ++starts[index_of(r + 1)];
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    OpParams batch;
    auto& b = batch.init<as_local_batch_params>(AS_OP_LOCAL_BATCH);
    b.tables = memory_.ints(rows.table, {1, requests, rows.columns});
    b.query_start_loc = memory_.ints(starts, {requests + 1});
    b.seq_lens = p.seq_lens;
    b.token_to_req = p.token_to_req;
    b.token_to_seq = memory_.make(AS_I32, {n});
    b.local_positions = memory_.make(AS_I64, {n});
    b.local_query_start_loc = memory_.make(AS_I32, {n + 1});
    b.local_seq_lens = memory_.make(AS_I32, {n});
    b.local_tables = memory_.make(AS_I32, {1, n, chunk_ / rows_});
    b.chunk = static_cast<std::int32_t>(chunk_);
    b.block_size = static_cast<std::int32_t>(rows_);
    if (!run(*cpu::lane(), batch, &report_)) return;
    p.table = b.local_tables;
    p.table.rank = 2;
    for (int d = 0; d < 2; ++d) {
      p.table.shape[d] = b.local_tables.shape[d + 1];
      p.table.stride[d] = b.local_tables.stride[d + 1];
    }
    p.token_to_req = b.token_to_seq;
    p.places = p.positions;
    p.positions = b.local_positions;
    p.seq_lens = b.local_seq_lens;
  }

  // Keys that a layer of this kind sees of its request, mask apart.
  std::pair<I64, I64> allowed(std::size_t request, I64 position) const {
    if (kind_ == Kind::kAcross) return {0, sources_[request]};
    if (kind_ == Kind::kBehindSource) return {sources_[request], position + 1};
    return {position - position % chunk_, position + 1};
  }

  void compare(const Rows& rows, const OpParams& given, const char* who, double relative,
               double absolute) {
    const auto& p = given.get<as_paged_attention_params>();
    for (I64 t = 0; t < tokens_.size(); ++t) {
      const auto r = index_of(tokens_.token_to_req[index_of(t)]);
      const I64 position = tokens_.positions[index_of(t)];
      const auto [first, end] = allowed(r, position);
      const I64 behind = kind_ == Kind::kBehindSource ? sources_[r] : 0;
      for (I64 h = 0; h < kHeads; ++h) {
        double sum = 0, out[kSize] = {};
        for (I64 k = first; k < end; ++k) {
          Asked place{static_cast<double>(position - sources_[r]), static_cast<double>(k - behind),
                      static_cast<double>(h), 0};
          if (!mask_.text.empty() && mask_.value(place) == 0) continue;
          const double* key = rows.at_row(0, r, k, h / (kHeads / kKvHeads));
          const double* value = rows.at_row(1, r, k, h / (kHeads / kKvHeads));
          for (I64 d = 0; d < kSize; ++d) {
            place.score +=
                p.scale * static_cast<double>(to_float(*at<bf16_t>(p.q, t, h, d))) * key[d];
          }
          const double weight = std::exp(score_.text.empty() ? place.score : score_.value(place));
          sum += weight;
          for (I64 d = 0; d < kSize; ++d) out[d] += weight * value[d];
        }
        const auto hold = [&](const char* tap, double is, double due) {
          if (is == due || std::fabs(is - due) <= absolute + relative * std::fabs(due)) return;
          report_.fail(fmt::format("{} of {}", tap, who),
                       fmt::format("position {} of request {}, head {}: {} and not {}", position, r,
                                   h, is, due));
        };
        hold("lse", number(p.lse, t, h, 0), sum > 0 ? std::log(sum) : -kInfinity);
        for (I64 d = 0; d < kSize; ++d) {
          hold("o", number(p.o, t, h, d), sum > 0 ? out[d] / sum : 0);
        }
      }
    }
  }

  static double number(const as_tensor& t, I64 i, I64 j, I64 k) {
    if (t.dtype == AS_F64) return t.rank == 2 ? *at<double>(t, i, j) : *at<double>(t, i, j, k);
    if (t.dtype == AS_F32) return static_cast<double>(*at<float>(t, i, j));
    return static_cast<double>(to_float(*at<bf16_t>(t, i, j, k)));
  }

  const Lane& lane_;
  const Kind kind_;
  Random random_;
  Report report_;
  Memory memory_;
  OpParams engine_;
  I64 rows_ = 1, chunk_ = 0;
  std::vector<I64> lengths_, sources_;
  Tokens tokens_;
  Expression mask_, score_;
  MaskCode mask_code_, score_code_;
};

}  // namespace mask_places_property_test

Report check_mask_places(const Lane& lane, int kind, std::uint64_t seed) {
  mask_places_property_test::Trial trial(lane, static_cast<mask_places_property_test::Kind>(kind),
                                         seed);
  const std::string words = trial.words();
  Report report = trial.run_all();
  if (!report.ok()) report.fail("trial", words);
  return report;
}

namespace mask_places_property_test {

void expect_loops_agree(const char* name, Kind kind, int trials) {
  for (int i = 0; i < trials; ++i) {
    const std::uint64_t seed = case_seed(fmt::format("{} {}", name, i));
    const Report report = check_mask_places(*cpu::lane(), static_cast<int>(kind), seed);
    ASSERT_TRUE(report.ok()) << report;
  }
}

TEST(MaskPlaces, OverChunksALoopOverPairsAgrees) {
  expect_loops_agree("over chunks", Kind::kChunks, 120);
}
TEST(MaskPlaces, AcrossALoopOverPairsAgrees) { expect_loops_agree("across", Kind::kAcross, 80); }
TEST(MaskPlaces, BehindASourceALoopOverPairsAgrees) {
  expect_loops_agree("behind a source", Kind::kBehindSource, 80);
}

// Each tile says of its pairs what asking all of them says.
void expect_tiles(const Expression& mask, const std::string& text, const MaskedSequence& sequence,
                  I64 first_place, I64 chunk) {
  const auto code = parse_mask(text);
  ASSERT_TRUE(code) << code.error().text();
  const BlockMask tiles(*code, {&sequence, 1}, kHeads);
  I64 all = 0;
  for (I64 map = 0; map < tiles.maps(); ++map) {
    for (I64 b = 0; b < tiles.blocks(); ++b) {
      for (I64 a = 0; a < tiles.across(); ++a) {
        I64 seen = 0, pairs = 0;
        for (I64 i = b * AS_MASK_QUERIES; i < std::min((b + 1) * AS_MASK_QUERIES, sequence.queries);
             ++i) {
          for (I64 k = a * AS_MASK_KEYS; k < std::min((a + 1) * AS_MASK_KEYS, sequence.keys); ++k) {
            const I64 q = first_place + i;
            const bool own = chunk == 0 || (k <= q && k / chunk == q / chunk);
            const Asked place{static_cast<double>(q), static_cast<double>(k),
                              static_cast<double>(map), 0};
            seen += own && mask.value(place) != 0 ? 1 : 0;
            ++pairs;
          }
        }
        all += seen;
        EXPECT_EQ(tiles.tile(0, map, b, a), seen == 0       ? AS_TILE_EMPTY
                                            : seen == pairs ? AS_TILE_FULL
                                                            : AS_TILE_PARTIAL)
            << text << ", map " << map << ", block " << b << ", tile " << a;
      }
    }
  }
  EXPECT_EQ(tiles.counts().seen, all) << text;
}

TEST(MaskPlaces, TilesOverChunksAndAcrossAreWhatPairsSay) {
  Random random(case_seed("tiles"));
  for (int i = 0; i < 40; ++i) {
    const Expression mask = condition(random, static_cast<int>(below(random, 3)));
    const I64 chunk = 4 * (1 + below(random, 40)), tokens = 1 + below(random, 200);
    const std::string text =
        fmt::format("causal && q_idx // {0} == kv_idx // {0} && ({1})", chunk, mask.text);
    expect_tiles(mask, text, {tokens, tokens}, 0, chunk);
    // A rectangle: queries from place 0 on over keys of their own.
    const I64 keys = 1 + below(random, 200);
    expect_tiles(mask, mask.text, {tokens, keys, 0}, 0, 0);
    // Without a place the last query stands beside the last key.
    expect_tiles(mask, mask.text, {tokens, keys}, keys - tokens, 0);
  }
}

TEST(MaskPlaces, OfOtherShapesAreRefused) {
  const auto refused = [](as_tensor as_paged_attention_params::*tap,
                          const std::vector<std::int32_t>& given) {
    Random random(1);
    Memory memory;
    const Rows rows({20}, 4, random);
    OpParams engine;
    auto& p = engine.init<as_paged_attention_params>(AS_OP_PAGED_ATTENTION);
    p.q = memory.normals(AS_BF16, {2, kHeads, kSize}, random);
    p.k_cache = rows.paged[0];
    p.v_cache = rows.paged[1];
    p.table = memory.ints(rows.table, {1, rows.columns});
    p.token_to_req = memory.ints({0, 0}, {2});
    p.positions = memory.ints64({18, 19});
    p.seq_lens = memory.ints({20}, {1});
    p.o = memory.make(AS_BF16, {2, kHeads, kSize});
    p.lse = memory.make(AS_F32, {2, kHeads});
    p.scale = 1;
    p.causal = 1;
    p.*tap = memory.ints(given, {std::ssize(given)});
    as_error error{};
    return cpu::lane()->ops[AS_OP_PAGED_ATTENTION](engine.data(), nullptr, &error) != AS_OK
               ? std::string(error.message)
               : std::string();
  };
  using P = as_paged_attention_params;
  EXPECT_EQ(refused(&P::query_starts, {3}), "");
  EXPECT_NE(refused(&P::query_starts, {3, 4}).find("query_starts"), std::string::npos);
  EXPECT_NE(refused(&P::row_starts, {3, 4}).find("row_starts"), std::string::npos);
  EXPECT_NE(refused(&P::places, {18, 19}).find("places"), std::string::npos);  // i32
}

}  // namespace mask_places_property_test
}  // namespace attnscope::properties
