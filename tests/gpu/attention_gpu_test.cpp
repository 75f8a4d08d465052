// AS_OP_SPARSE_ATTENTION in the manner of the public kernel tests: many pages sizes, batches, heads
// and lists; every cache row that no list names is NaN; against the CPU lane, and against ref.sim
// where that is cheap.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/gpu/device_lane.h"
#include "tests/gpu/support.h"

namespace attnscope::gpu_tests {
namespace {

using properties::below;
using properties::normal;

constexpr std::int64_t kDim = AS_HEAD_DIM;
constexpr std::int64_t kSimLimit = 150'000;  // token-head-entry triples that ref.sim may cost

enum class Fill { kNormal, kLengths, kAllInvalid, kZeroLengths, kExtraOnly, kDuplicates, kHoles };
constexpr Fill kFills[] = {Fill::kNormal,      Fill::kLengths,   Fill::kAllInvalid, Fill::kHoles,
                           Fill::kZeroLengths, Fill::kExtraOnly, Fill::kDuplicates};
constexpr const char* kFillNames[] = {"normal", "lengths", "invalid",   "holes",
                                      "zero",   "extra",   "duplicates"};

struct Case {
  std::string name;
  Way way = Way::kHost;
  std::int32_t rows = 64, extra_rows = 0;  // of a page; 0: no second cache
  std::int64_t batch = 1, queries = 1, heads = 1;
  std::int64_t width = 128, extra_width = 0;
  Fill fill = Fill::kNormal;
  float large = 1.0f;  // a row in 97 is so many times larger: beyond what fp16 holds
  double scale = std::pow(static_cast<double>(kDim), -0.55);
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Pages of a fixed number of rows, as bytes; rows are NaN until they are named.
class Pool {
 public:
  Pool(std::int32_t rows, std::int64_t count, std::int64_t gap, float large, Random& random)
      : random_(random), large_(large) {
    const std::int64_t pages = (count + rows - 1) / rows + 1;
    const std::int64_t raw = as_page_bytes_raw(AS_RECORD_LATENT, kDim, rows);
    const std::int64_t stride = as_page_bytes(AS_RECORD_LATENT, kDim, rows) + gap;
    bytes_.assign(static_cast<std::size_t>((pages - 1) * stride + raw), 0xff);
    cache_.data = make_tensor(bytes_.data(), {pages, raw});
    cache_.data.stride[0] = stride;
    cache_.record = AS_RECORD_LATENT;
    cache_.rows_per_block = rows;
    cache_.width = static_cast<std::int32_t>(kDim);
    named_.assign(static_cast<std::size_t>(pages * rows), false);
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  const as_cache& cache() const { return cache_; }
  std::int64_t size() const { return static_cast<std::int64_t>(named_.size()); }

  // A row that lists may name from now on.
  std::int32_t name(std::int64_t slot) {
    const auto i = static_cast<std::size_t>(slot);
    if (!named_[i]) {
      named_[i] = true;
      float values[kDim];
      const float times = slot % 97 == 5 ? large_ : 1.0f;
      for (float& v : values) {
        v = cpu::round_bf16(times * std::clamp(normal(random_) / 10.0f, -1.0f, 1.0f));
      }
      const as_row_address to = as_cache_row(&cache_, slot);
      cpu::quantise_row(AS_RECORD_LATENT, static_cast<int>(kDim), values, to.payload, to.scales);
    }
    return static_cast<std::int32_t>(slot);
  }

  // The same rows one after another: slot s is row s.
  as_cache logical() {
    const std::int64_t bytes = as_row_bytes(AS_RECORD_LATENT, kDim);
    logical_.assign(named_.size() * static_cast<std::size_t>(bytes), 0xff);
    for (std::int64_t slot = 0; slot < size(); ++slot) {
      const as_row_address from = as_cache_row(&cache_, slot);
      std::memcpy(logical_.data() + slot * bytes, from.payload, 576);
      std::memcpy(logical_.data() + slot * bytes + 576, from.scales, 8);
    }
    as_cache c = cache_;
    c.addressing = AS_LOGICAL;
    c.rows_per_block = 0;
    c.data = make_tensor(logical_.data(), {size(), bytes});
    return c;
  }

 private:
  Random& random_;
  const float large_;
  std::vector<unsigned char> bytes_, logical_;
  std::vector<bool> named_;
  as_cache cache_{};
};

// Lists [T,width] over a pool; what lies beyond a length names rows that do not exist.
void make_lists(Pool* pool, std::int64_t tokens, std::int64_t width, Fill fill, bool extra,
                Random& random, Memory* memory, as_tensor* slots, as_tensor* lens) {
  *slots = memory->make(AS_I32, {tokens, width}, 5);
  *lens = memory->make(AS_I32, {tokens});
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::int64_t len = width;
    if (fill == Fill::kLengths) len = below(random, width + 1);
    if (fill == Fill::kZeroLengths && below(random, 2) == 0) len = 0;
    if (fill == Fill::kExtraOnly && !extra) len = 0;
    *at<std::int32_t>(*lens, t) = static_cast<std::int32_t>(len);
    // Different rows without drawing them: steps through the pool from anywhere.
    const std::int64_t start = below(random, pool->size());
    const std::int64_t step = std::max<std::int64_t>(1, pool->size() / (width + 1));
    for (std::int64_t k = 0; k < width; ++k) {
      std::int32_t& slot = *at<std::int32_t>(*slots, t, k);
      if (k >= len) {
        slot = k % 2 == 0 ? std::numeric_limits<std::int32_t>::max() : 1 << 30;
      } else if (fill == Fill::kAllInvalid || (fill == Fill::kHoles && below(random, 3) == 0)) {
        slot = -1;
      } else if (fill == Fill::kDuplicates && below(random, 2) == 0) {
        slot = pool->name(start);
      } else {
        slot = pool->name((start + k * step) % pool->size());
      }
    }
  }
}

// The params of a case and what they point to.
struct Problem {
  Problem(const Case& c, std::uint64_t seed)
      : random(seed),
        gap(c.extra_width % 3 * 1152),
        window(c.rows, 1024, gap, 1.0f, random),
        selected(c.extra_rows > 0 ? c.extra_rows : 1, c.extra_rows > 0 ? 2048 : 1, gap, c.large,
                 random) {
    const std::int64_t tokens = c.batch * c.queries;
    auto& p = engine.init<as_sparse_attention_params>(AS_OP_SPARSE_ATTENTION);
    p.q = memory.make(AS_BF16, {tokens, c.heads, kDim}, 8);
    properties::for_each_row(p.q, [&](std::int64_t, char* row) {
      // Drawing 512 normals for every head of a large batch is slow: 64 of them, repeated with
      // other signs.
      float few[64];
      for (float& v : few) v = std::clamp(normal(random), -1.0f, 1.0f);
      const std::uint64_t signs = random();
      for (std::int64_t d = 0; d < kDim; ++d) {
        const float sign = (signs >> (d / 8) & 1) != 0 ? -1.0f : 1.0f;
        reinterpret_cast<bf16_t*>(row)[d] = properties::to_bf16(sign * few[d % 64]);
      }
    });
    make_lists(&window, tokens, c.width, c.fill, false, random, &memory, &p.indices,
               &p.topk_length);
    p.cache = window.cache();
    if (c.extra_rows > 0) {
      make_lists(&selected, tokens, c.extra_width, c.fill, true, random, &memory, &p.extra_indices,
                 &p.extra_topk_length);
      p.extra_cache = selected.cache();
    }
    p.sinks = memory.make(AS_F32, {c.heads});
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const std::int64_t kind = below(random, 10);
      const float infinity = std::numeric_limits<float>::infinity();
      *at<float>(p.sinks, h) = kind < 3 ? infinity : kind < 6 ? -infinity : normal(random);
    }
    p.o = memory.make(AS_BF16, {tokens, c.heads, kDim}, 8);
    p.lse = memory.make(AS_F32, {tokens, c.heads}, 1);
    p.scale = c.scale;
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  Random random;
  std::int64_t gap;  // between pages
  Pool window, selected;
  Memory memory;
  OpParams engine;
};

class GpuAttentionCases : public testing::TestWithParam<Case> {};

TEST_P(GpuAttentionCases, MatchesTheCpuLaneAndRefSim) {
  const Case& c = GetParam();
  Report report(properties::case_seed("gpu attention " + c.name));
  Problem problem(c, report.seed());
  Memory& memory = problem.memory;
  check_against_cpu(c.way, problem.engine, &memory, &report);
  memory.check_guards(&report);
  if (c.batch * c.queries * c.heads * (c.width + c.extra_width) <= kSimLimit) {
    OpParams logical = problem.engine;
    auto& s = logical.get<as_sparse_attention_params>();
    s.cache = problem.window.logical();
    if (c.extra_rows > 0) s.extra_cache = problem.selected.logical();
    check_against_sim(logical, &memory, &report);
  }
  EXPECT_TRUE(report.ok()) << report;
}

// A decode graph is replayed with other lengths, slots and rows.
class GpuAttentionReplay : public testing::TestWithParam<Case> {};

TEST_P(GpuAttentionReplay, TakesTheLengthsOfTheReplay) {
  Case c = GetParam();
  Report report(properties::case_seed("gpu replay " + c.name));
  c.fill = Fill::kLengths;
  const Problem captured(c, report.seed());
  c.fill = GetParam().fill;
  Problem changed(c, report.seed() + 1);
  const auto ok = replay_with(captured.engine, changed.engine);
  ASSERT_TRUE(ok) << ok.error().text();
  changed.memory.check_guards(&report);
  const OpParams own = same_outputs(changed.engine, &changed.memory);
  ASSERT_TRUE(properties::run(cpu_lane(), own, &report)) << report;
  properties::judge_all(changed.engine, own, &report);
  EXPECT_TRUE(report.ok()) << report;
}

std::vector<Case> cases() {
  const std::int64_t widths[] = {128, 64, 53, 1, 200};
  const std::int64_t extra_widths[] = {512, 64, 33, 1, 300};
  std::vector<Case> all;
  int i = 0;
  for (std::int32_t rows : {2, 53, 61, 64, 69, 256}) {
    for (std::int32_t extra_rows : {0, 2, 53, 61, 64, 69, 256}) {
      for (std::int64_t batch : {1, 4, 74, 321}) {
        for (std::int64_t queries : {1, 2, 3}) {
          for (int f = 0; f < 6; ++f) {
            Case c;
            c.rows = rows;
            c.extra_rows = extra_rows;
            c.batch = batch;
            c.queries = queries;
            const int fill = (f + i) % 7;
            c.fill = kFills[fill];
            // All heads for small batches, few for large ones: a case stays cheap.
            const std::int64_t small[] = {64, 128, 1, 8, 16, 32, 5, 100};
            const std::int64_t large[] = {1, 8, 2, 16};
            c.heads = batch <= 4 ? small[i % 8] : large[i % (batch == 74 ? 4 : 3)];
            c.width = batch <= 4 ? widths[i % 5] : widths[1 + i % 3];
            if (extra_rows > 0) {
              c.extra_width = batch <= 4 ? extra_widths[i % 5] : extra_widths[1 + i % 3];
            }
            c.way = (i / 2) % 2 == 0 ? Way::kDevice : Way::kHost;
            c.name = "p" + std::to_string(rows) + "_x" + std::to_string(extra_rows) + "_b" +
                     std::to_string(batch) + "_q" + std::to_string(queries) + "_h" +
                     std::to_string(c.heads) + "_" + kFillNames[fill] + "_" + way_name(c.way);
            all.push_back(std::move(c));
            ++i;
          }
          i += 1;  // so that fills, heads and widths meet in other ways next time
        }
      }
    }
  }
  return all;
}
// Batches whose tokens are split over clusters of blocks, of two to many; heads that the blocks of
// a cluster cannot share evenly; blocks whose values only fp32 holds beside others.
std::vector<Case> cluster_cases() {
  std::vector<Case> all;
  int i = 0;
  for (const std::int64_t batch : {3, 6, 10, 17, 24, 33, 50, 64}) {
    for (const std::int64_t heads : {1, 8, 37, 64, 100, 128}) {
      for (const std::int64_t extra_width : {300, 512, 1024}) {
        for (const float large : {1.0f, 3e4f}) {
          Case c;
          c.rows = 64;
          c.extra_rows = i % 2 == 0 ? 64 : 2;
          c.batch = batch;
          c.heads = heads;
          c.extra_width = extra_width;
          c.fill = kFills[i % 7];
          c.large = large;
          c.way = Way::kDevice;
          c.name = "b" + std::to_string(batch) + "_h" + std::to_string(heads) + "_k" +
                   std::to_string(extra_width) + "_" + kFillNames[i % 7] +
                   (large > 1.0f ? "_large" : "");
          all.push_back(std::move(c));
          ++i;
        }
      }
    }
  }
  return all;
}
// Few tokens of long lists, which more blocks share than a cluster has; and lists that blocks of a
// cluster share unevenly, down to blocks and whole heads without an entry.
std::vector<Case> list_cases() {
  std::vector<Case> all;
  int i = 0;
  for (const std::int64_t batch : {1, 2, 5}) {
    for (const std::int64_t heads : {1, 24, 64, 128}) {
      for (const std::int64_t extra_width : {1, 7, 9, 40, 1000, 2050, 4096, 8192}) {
        Case c;
        c.rows = i % 3 == 0 ? 2 : 64;
        c.extra_rows = i % 2 == 0 ? 64 : 2;
        c.batch = batch;
        c.heads = heads;
        c.width = i % 5 == 0 ? 3 : 128;
        c.extra_width = extra_width;
        c.fill = kFills[i % 7];
        c.large = i % 4 == 3 ? 3e4f : 1.0f;
        c.way = Way::kDevice;
        c.name = "b" + std::to_string(batch) + "_h" + std::to_string(heads) + "_w" +
                 std::to_string(c.width) + "_k" + std::to_string(extra_width) + "_" +
                 kFillNames[i % 7] + (c.large > 1.0f ? "_large" : "");
        all.push_back(std::move(c));
        ++i;
      }
    }
  }
  return all;
}
// Scores so far apart that the largest of a list grows a lot from tile to tile, for every way in
// which tokens are cut.
std::vector<Case> steep_cases() {
  std::vector<Case> all;
  int i = 0;
  for (const std::int64_t batch : {1, 3, 8, 16, 40, 200}) {
    for (const std::int64_t heads : {1, 16, 64, 128}) {
      for (const std::int64_t extra_width : {0, 512, 2050}) {
        if (batch * heads * extra_width > 20'000'000) continue;
        Case c;
        c.rows = 64;
        c.extra_rows = extra_width > 0 ? 64 : 0;
        c.batch = batch;
        c.heads = heads;
        c.extra_width = extra_width;
        c.fill = kFills[i % 7];
        c.way = Way::kDevice;
        c.scale = 40.0;
        c.name = "b" + std::to_string(batch) + "_h" + std::to_string(heads) + "_k" +
                 std::to_string(extra_width) + "_" + kFillNames[i % 7] + "_steep";
        all.push_back(std::move(c));
        ++i;
      }
    }
  }
  return all;
}
std::vector<Case> replay_cases() {
  std::vector<Case> some;
  const std::vector<Case> all = cases();
  for (std::size_t i = 0; i < all.size(); i += 17) some.push_back(all[i]);
  return some;
}
INSTANTIATE_TEST_SUITE_P(Grid, GpuAttentionReplay, testing::ValuesIn(replay_cases()),
                         properties::name_of<Case>);
INSTANTIATE_TEST_SUITE_P(Grid, GpuAttentionCases, testing::ValuesIn(cases()),
                         properties::name_of<Case>);
INSTANTIATE_TEST_SUITE_P(Clusters, GpuAttentionCases, testing::ValuesIn(cluster_cases()),
                         properties::name_of<Case>);
INSTANTIATE_TEST_SUITE_P(Lists, GpuAttentionCases, testing::ValuesIn(list_cases()),
                         properties::name_of<Case>);
INSTANTIATE_TEST_SUITE_P(Steep, GpuAttentionCases, testing::ValuesIn(steep_cases()),
                         properties::name_of<Case>);

}  // namespace
}  // namespace attnscope::gpu_tests
