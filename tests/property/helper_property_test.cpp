// The helper ops over odd shapes, empty states and rows, holes, poison.
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/kv_codes.h"
#include "kernels/mutants/mutants.h"
#include "kernels/params/row_format.h"
#include "tests/property/helper_checks.h"

namespace attnscope::properties {
namespace {

// By a class of the tolerance file.
void judge_by(const char* tap, const char* rule, const as_tensor& value, const as_tensor& expected,
              Report* report) {
  static const auto kTolerances = Tolerances::load(ATTNSCOPE_SOURCE_DIR "/assets/tolerances.json");
  if (!kTolerances) return report->fail(tap, kTolerances.error().text());
  const Comparison result = compare(value, expected, {}, kTolerances->classes().at(rule));
  if (result.within) return;
  report->fail(tap, std::to_string(result.budget_used) + " of its bound " + rule + ", " +
                        std::to_string(result.worst.value) + " against " +
                        std::to_string(result.worst.reference) + ". " + result.note);
}

as_tensor bytes(std::vector<std::int64_t> shape, std::int64_t pad, Random& random, Memory* memory) {
  as_tensor t = memory->make(AS_U8, std::move(shape), pad);
  for_each_row(t, [&](std::int64_t, char* row) {
    for (std::int64_t i = 0; i < t.shape[t.rank - 1]; ++i) row[i] = static_cast<char>(random());
  });
  return t;
}

// The same elements in memory of its own.
as_tensor copy_of(const as_tensor& t, Memory* memory) {
  as_tensor copy = memory->make(t.dtype, std::vector<std::int64_t>(t.shape, t.shape + t.rank));
  const auto size = static_cast<std::size_t>(t.shape[t.rank - 1] * as_dtype_size(t.dtype));
  std::vector<char*> rows;
  for_each_row(copy, [&](std::int64_t, char* row) { rows.push_back(row); });
  for_each_row(t, [&](std::int64_t i, char* row) {
    std::memcpy(rows[static_cast<std::size_t>(i)], row, size);
  });
  return copy;
}

as_tensor codes(std::vector<std::int64_t> shape, std::int64_t pad, Random& random, Memory* memory) {
  as_tensor t = bytes(std::move(shape), pad, random, memory);
  for_each_row(t, [&](std::int64_t, char* row) {
    for (std::int64_t i = 0; i < t.shape[1]; ++i) {
      if ((row[i] & 0x7f) == 0x7f) row[i] = 0x38;  // no NaN
    }
  });
  return t;
}

}  // namespace

Report check_merge(const Lane& lane, const MergeCase& c) {
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  auto p = helper_params<as_merge_states_params>();
  const std::vector<std::int64_t> shape = {c.tokens, c.heads, c.dim};
  p.a = memory.normals(c.dtype, shape, random, 1.0f, 3);
  p.b = memory.normals(c.dtype, shape, random, 1.0f, 8);
  p.lse_a = memory.normals(AS_F32, {c.tokens, c.heads}, random, 20.0f, 1);
  p.lse_b = memory.normals(AS_F32, {c.tokens, c.heads}, random, 20.0f);
  p.base_2 = c.base_2 ? 1 : 0;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      // Every way to be empty, with values that must not be looked at; ties; far apart.
      float& a = *at<float>(p.lse_a, t, h);
      float& b = *at<float>(p.lse_b, t, h);
      const auto poison = [&](const as_tensor& values) {
        std::memset(at<char>(values) +
                        (t * values.stride[0] + h * values.stride[1]) * as_dtype_size(c.dtype),
                    0xff, static_cast<std::size_t>(c.dim * as_dtype_size(c.dtype)));
      };
      switch ((t * c.heads + h) % 9) {
        case 1:
          a = kInfinity;
          poison(p.a);
          break;
        case 2:
          b = -kInfinity;
          poison(p.b);
          break;
        case 3:
          a = -kInfinity;
          b = kInfinity;
          poison(p.a);
          poison(p.b);
          break;
        case 4:
          b = a;
          break;
        case 5:
          b = a + 300.0f;
          break;
        default:
          b = a + 0.1f * b;
          break;
      }
    }
  }
  auto sim = p;
  sim.out = memory.make(AS_F64, shape);
  sim.lse = memory.make(AS_F64, {c.tokens, c.heads});
  if (!run_helper(*reference::sim_lane(), AS_OP_MERGE_STATES, sim, &report)) return report;
  p.out = c.in_place ? p.a : memory.make(c.dtype, shape, 5);
  p.lse = c.in_place ? p.lse_b : memory.make(AS_F32, {c.tokens, c.heads}, 2);
  if (!run_helper(lane, AS_OP_MERGE_STATES, p, &report)) return report;
  judge_by("out", "row", p.out, sim.out, &report);
  judge_by("lse", "lse", p.lse, sim.lse, &report);
  memory.check_guards(&report);
  return report;
}

std::vector<MergeCase> merge_cases() {
  std::vector<MergeCase> cases = {{"no_tokens", 0, 8}, {"no_heads", 3, 0}};
  for (std::int64_t tokens : {1, 4, 74}) {
    for (std::int64_t heads : {1, 8, 17}) {
      for (std::int64_t dim : {1, 64, 512}) {
        const auto i = static_cast<std::int64_t>(cases.size());
        MergeCase c{"t" + std::to_string(tokens) + "_h" + std::to_string(heads) + "_d" +
                        std::to_string(dim),
                    tokens,
                    heads,
                    dim,
                    i % 3 == 0 ? AS_F32 : AS_BF16,
                    i % 2 == 0,
                    i % 4 == 3};
        cases.push_back(c);
      }
    }
  }
  return cases;
}

Report check_gather(const Lane& lane, const GatherCase& c) {
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  TwinCache cache(c.record, c.width, c.lengths, c.pages, random);
  cache.put_all(random, 3.0f);
  std::vector<std::int64_t> slots, rows;
  for (std::size_t r = 0; r < c.lengths.size(); ++r) {
    for (std::int64_t i = 0; i < c.lengths[r]; i += 1 + below(random, 3)) {
      const bool none = below(random, 5) == 0;
      const auto request = static_cast<std::int64_t>(r);
      slots.push_back(none ? -1 : cache.slot(request, i));
      rows.push_back(none ? -1 : cache.row(request, i));
    }
  }
  auto p = helper_params<as_gather_rows_params>();
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(slots.size()), c.width};
  p.cache = cache.paged();
  p.slots = memory.ints64(slots);
  p.out = memory.make(c.dtype, shape, 3);
  const std::vector<unsigned char> before = cache.slab();
  if (!run_helper(lane, AS_OP_GATHER_ROWS, p, &report)) return report;
  auto sim = p;
  sim.cache = cache.logical();
  sim.slots = memory.ints64(rows);
  sim.out = memory.make(c.dtype, shape);
  if (!run_helper(*reference::sim_lane(), AS_OP_GATHER_ROWS, sim, &report)) return report;
  judge_equal("out", p.out, sim.out, &report);
  if (cache.slab() != before) report.fail("cache", "was written to");
  memory.check_guards(&report);
  return report;
}

std::vector<GatherCase> gather_cases() {
  struct Kind {
    std::int32_t record, width;
  };
  std::vector<GatherCase> cases;
  for (const Kind& kind : {Kind{AS_RECORD_LATENT, 512}, Kind{AS_RECORD_INDEX_FP8, 128},
                           Kind{AS_RECORD_INDEX_MXFP4, 128}, Kind{AS_RECORD_STATE, 1024}}) {
    for (std::int32_t rows : {1, 2, 53, 64, 256}) {
      for (std::int32_t dtype : {AS_BF16, AS_F32}) {
        if (kind.record == AS_RECORD_STATE && dtype == AS_BF16) continue;
        GatherCase c;
        c.name = "record" + std::to_string(kind.record) + "_rows" + std::to_string(rows) +
                 (dtype == AS_BF16 ? "_bf16" : "_f32");
        c.record = kind.record;
        c.width = kind.width;
        c.lengths = {rows + 3, 0, 129};
        c.pages = {rows, rows % 3 * 16};
        c.dtype = dtype;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

namespace {

// Pages of keys in a record, with the scales that it has beside them.
struct ConvertPages {
  ConvertPages(std::int32_t record, const ConvertCase& c, std::int64_t rows, Random& random) {
    const as_row_layout l = as_row_layout_of(record, c.heads * c.size, c.heads, rows);
    const std::int64_t pages = (c.pages * c.rows + rows - 1) / rows, stride = l.page + 8;
    bytes.assign(static_cast<std::size_t>(pages * stride), 0xa5);
    cache.data = make_tensor(bytes.data(), {pages, l.page});
    cache.data.stride[0] = stride;
    cache.data.reserved = static_cast<std::int32_t>(c.heads);
    cache.record = record;
    cache.rows_per_block = static_cast<std::int32_t>(rows);
    cache.width = static_cast<std::int32_t>(c.heads * c.size);
    const std::int32_t per = l.format->parts[0].per;
    if (l.format->parts[0].scale == AS_CODE_NONE || per == AS_PER_BLOCK) return;
    for (std::int64_t h = 0; h < (per == AS_PER_HEAD ? c.heads : 1); ++h) {
      scales.push_back(std::ldexp(1.0f + static_cast<float>(below(random, 9)) / 8, -7));
    }
  }
  as_tensor scale() {
    return scales.empty() ? no_tensor()
                          : make_tensor(scales.data(), {static_cast<std::int64_t>(scales.size())});
  }

  std::vector<unsigned char> bytes;
  std::vector<float> scales;
  as_cache cache{};
};

}  // namespace

// Rows of normals, of zeros, with NaN and infinities, as the CPU lane stores them; slots in no
// order, some of them none. What no slot names keeps its bytes.
Report check_convert(const Lane& lane, const ConvertCase& c) {
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  ConvertPages from(c.from, c, c.rows, random), to(c.to, c, c.to_rows, random);
  const cpu::KvRows writer(from.cache, from.scale());
  std::vector<std::uint16_t> head(static_cast<std::size_t>(c.size));
  std::vector<std::int64_t> slots;
  for (std::int64_t slot = 0; slot < c.pages * c.rows; ++slot) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::uint16_t& x : head) {
        x = slot % 11 == 3 ? std::uint16_t{0} : cpu::float_to_bf16(normal(random));
      }
      if (slot % 7 == 2)
        head.front() = cpu::float_to_bf16(slot % 2 == 0 ? kInfinity : std::nanf(""));
      writer.put(slot, h, head.data(), c.size);
    }
    if (slot % 5 != 4) slots.push_back(slot % 9 == 8 ? -1 : slot);
  }
  std::shuffle(slots.begin(), slots.end(), random);
  auto p = helper_params<as_convert_rows_params>();
  p.from = from.cache;
  p.to = to.cache;
  p.slots = memory.ints64(slots);
  p.from_scale = from.scale();
  p.to_scale = to.scale();

  const auto count = static_cast<std::int64_t>(slots.size());
  const std::int64_t from_bytes = as_cache_row_bytes(&p.from), to_bytes = as_cache_row_bytes(&p.to);
  std::vector<unsigned char> read(static_cast<std::size_t>(count * from_bytes));
  std::vector<unsigned char> made(static_cast<std::size_t>(count * to_bytes));
  std::vector<std::int64_t> rows;
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int64_t slot = slots[static_cast<std::size_t>(n)];
    rows.push_back(slot < 0 ? -1 : n);
    if (slot >= 0) as_row_get(&p.from, slot, read.data() + n * from_bytes);
  }
  auto sim = p;
  const auto logical = [&](as_cache& cache, std::vector<unsigned char>& bytes, std::int64_t size) {
    cache.addressing = AS_LOGICAL;
    cache.rows_per_block = 0;
    cache.data = make_tensor(bytes.data(), {count, size});
    cache.data.reserved = static_cast<std::int32_t>(c.heads);
  };
  logical(sim.from, read, from_bytes);
  logical(sim.to, made, to_bytes);
  sim.slots = memory.ints64(rows);
  if (!run_helper(*reference::sim_lane(), AS_OP_CONVERT_ROWS, sim, &report)) return report;

  const std::vector<unsigned char> before = from.bytes;
  std::vector<unsigned char> expected = to.bytes;
  as_cache into = p.to;
  into.data.data = expected.data();
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int64_t slot = slots[static_cast<std::size_t>(n)];
    if (slot >= 0) as_row_put(&into, slot, made.data() + n * to_bytes);
  }
  if (!run_helper(lane, AS_OP_CONVERT_ROWS, p, &report)) return report;
  if (from.bytes != before) report.fail("from", "was written to");
  if (to.bytes != expected) {
    const auto [mine, theirs] = std::ranges::mismatch(to.bytes, expected);
    report.fail("to", "byte " + std::to_string(mine - to.bytes.begin()) + " is " +
                          std::to_string(*mine) + ", ref.sim has " + std::to_string(*theirs));
  }
  memory.check_guards(&report);
  return report;
}

std::vector<ConvertCase> convert_cases() {
  constexpr std::int32_t kRecords[] = {AS_RECORD_BF16,
                                       AS_RECORD_F16,
                                       AS_RECORD_FP8_TENSOR,
                                       AS_RECORD_FP8_HEAD,
                                       AS_RECORD_FP8_TOKEN_HEAD,
                                       AS_RECORD_E5M2_TENSOR,
                                       AS_RECORD_E5M2_TOKEN_HEAD,
                                       AS_RECORD_INT8_TOKEN_HEAD};
  std::vector<ConvertCase> cases;
  for (const std::int32_t from : kRecords) {
    for (const std::int32_t to : kRecords) {
      const auto i = static_cast<std::int64_t>(cases.size());
      ConvertCase c{std::string(as_row_format_of(from)->name) + "_to_" +
                    as_row_format_of(to)->name};
      c.from = i % 3 == 1 ? from | AS_RECORD_HND : from;
      c.to = i % 4 == 2 ? to | AS_RECORD_HND : to;
      c.heads = 1 + i % 3;
      c.size = i % 2 == 0 ? 64 : 100;
      c.rows = i % 5 == 3 ? 5 : 16;
      c.to_rows = i % 5 == 1 ? 8 : c.rows;
      cases.push_back(c);
    }
  }
  cases.push_back({"odd_size", AS_RECORD_F16, AS_RECORD_BF16, 2, 33, 4, 16, 3});
  return cases;
}

Report check_copy(const Lane& lane, const CopyCase& c) {
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  auto p = helper_params<as_copy_blocks_params>();
  p.from = bytes({c.blocks, c.bytes}, c.pad, random, &memory);
  p.to = c.one_pool ? p.from : bytes({c.blocks, c.bytes}, 2 * c.pad, random, &memory);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(c.blocks));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  p.pairs = memory.make(AS_I64, {c.pairs, 2});
  for (std::int64_t n = 0; n < c.pairs; ++n) {
    // In one pool sources and targets are apart.
    const std::int64_t source = c.one_pool ? 2 * n : n,
                       target = c.one_pool ? 2 * n + 1 : c.pairs - n;
    const bool none = n % 5 == 3;
    *at<std::int64_t>(p.pairs, n, 0) =
        none && n % 2 == 0 ? -1 : ids[static_cast<std::size_t>(source)];
    *at<std::int64_t>(p.pairs, n, 1) =
        none && n % 2 == 1 ? -7 : ids[static_cast<std::size_t>(target)];
  }
  p.exchange = c.exchange ? 1 : 0;
  auto sim = p;
  sim.from = copy_of(p.from, &memory);
  sim.to = c.one_pool ? sim.from : copy_of(p.to, &memory);
  if (!run_helper(*reference::sim_lane(), AS_OP_COPY_BLOCKS, sim, &report)) return report;
  if (!run_helper(lane, AS_OP_COPY_BLOCKS, p, &report)) return report;
  judge_equal("from", p.from, sim.from, &report);
  judge_equal("to", p.to, sim.to, &report);
  memory.check_guards(&report);
  return report;
}

std::vector<CopyCase> copy_cases() {
  std::vector<CopyCase> cases;
  for (std::int64_t size : {1, 64, 1728, 37440}) {
    for (std::int64_t pairs : {0, 1, 12}) {
      for (bool exchange : {false, true}) {
        CopyCase c;
        c.name = "bytes" + std::to_string(size) + "_pairs" + std::to_string(pairs) +
                 (exchange ? "_exchange" : "");
        c.blocks = 2 * pairs + 3;
        c.bytes = size;
        c.pad = size % 2 == 1 ? 3 : 16;
        c.pairs = pairs;
        c.exchange = exchange;
        cases.push_back(c);
      }
    }
  }
  cases.push_back({"one_pool", 40, 576, 0, 12, false, true});
  cases.push_back({"one_pool_exchange", 40, 576, 32, 12, true, true});
  return cases;
}

Report check_workspace(const Lane& lane, const WorkspaceCase& c) {
  constexpr std::int32_t kBehind[] = {INT_MAX, 1 << 30, 0, INT_MIN, 1};
  constexpr float kSinkLogits[] = {0.0f, -kInfinity, 3.0f, kInfinity, -80.0f};
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  auto p = helper_params<as_workspace_attention_params>();
  p.q = memory.normals(AS_BF16, {c.tokens, c.heads, AS_HEAD_DIM}, random, 1.0f, 8 * c.pad);
  p.rows = memory.make(AS_BF16, {c.rows, AS_HEAD_DIM}, 8 * c.pad);  // NaN
  p.indices = memory.make(AS_I32, {c.tokens, c.columns}, c.pad);
  p.topk_length = memory.make(AS_I32, {c.tokens});
  p.sinks = memory.make(AS_F32, {c.heads});
  for (std::int64_t h = 0; h < c.heads; ++h) *at<float>(p.sinks, h) = kSinkLogits[h % 5];
  std::vector<bool> used(static_cast<std::size_t>(c.rows));
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    std::int64_t len = c.columns == 0 ? 0 : 1 + below(random, c.columns);
    if (c.lists == Lists::kSomeEmpty && t % 2 == 0) len = 0;
    *at<std::int32_t>(p.topk_length, t) = static_cast<std::int32_t>(len);
    for (std::int64_t k = 0; k < c.columns; ++k) {
      std::int32_t& row = *at<std::int32_t>(p.indices, t, k);
      row = kBehind[(t + k) % 5];
      if (k >= len) continue;
      row = static_cast<std::int32_t>(below(random, c.lists == Lists::kDuplicates ? 3 : c.rows));
      row = std::min(row, static_cast<std::int32_t>(c.rows - 1));
      if (c.lists == Lists::kHoles && below(random, 3) == 0) row = k % 2 == 0 ? -1 : INT_MIN;
      if (row >= 0) used[static_cast<std::size_t>(row)] = true;
    }
  }
  for (std::int64_t row = 0; row < c.rows; ++row) {
    if (!used[static_cast<std::size_t>(row)]) continue;
    for (std::int64_t d = 0; d < AS_HEAD_DIM; ++d) {
      *at<bf16_t>(p.rows, row, d) = to_bf16(normal(random));
    }
  }
  p.scale = 0.04419417382415922;  // 512^-0.5
  p.o = memory.make(AS_BF16, {c.tokens, c.heads, AS_HEAD_DIM}, 8 * c.pad);
  p.lse = memory.make(AS_F32, {c.tokens, c.heads}, c.pad);
  if (!run_helper(lane, AS_OP_WORKSPACE_ATTENTION, p, &report)) return report;
  auto sim = p;
  sim.o = memory.make(AS_F64, {c.tokens, c.heads, AS_HEAD_DIM});
  sim.lse = memory.make(AS_F64, {c.tokens, c.heads});
  if (!run_helper(*reference::sim_lane(), AS_OP_WORKSPACE_ATTENTION, sim, &report)) {
    return report;
  }
  judge_by("o", "attention", p.o, sim.o, &report);
  judge_by("lse", "lse", p.lse, sim.lse, &report);
  memory.check_guards(&report);
  return report;
}

std::vector<WorkspaceCase> workspace_cases() {
  std::vector<WorkspaceCase> cases = {{"no_tokens", 0, 8, 4, 4}, {"no_rows", 2, 8, 0, 0}};
  cases.back().lists = Lists::kSomeEmpty;
  cases.back().tokens = 1;
  const Lists kinds[] = {Lists::kPlain, Lists::kHoles, Lists::kDuplicates, Lists::kSomeEmpty};
  for (std::int64_t tokens : {1, 5, 74}) {
    for (std::int64_t heads : {1, 8, 17, 64, 128}) {
      for (std::int64_t columns : {1, 64, 200}) {
        if (tokens == 74 && heads > 17) continue;
        const std::size_t i = cases.size();
        cases.push_back({"t" + std::to_string(tokens) + "_h" + std::to_string(heads) + "_k" +
                             std::to_string(columns),
                         tokens, heads, 3 + 2 * columns, columns, kinds[i % 4],
                         static_cast<std::int64_t>(i % 3)});
      }
    }
  }
  return cases;
}

Report check_turn(const Lane& lane, const TurnCase& c) {
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  auto p = helper_params<as_inverse_rope_quantise_params>();
  p.o = memory.normals(AS_BF16, {c.tokens, c.heads, c.dim}, random, c.scale, c.pad);
  std::vector<std::int64_t> positions;
  for (std::int64_t t = 0; t < c.tokens; ++t) positions.push_back(below(random, 4096));
  p.positions = memory.ints64(positions);
  p.rope = compressed_rope();
  p.codes = memory.make(AS_U8, {c.tokens, c.heads, c.dim}, c.pad);
  p.scales = memory.make(AS_F32, {c.tokens, c.heads, c.dim / 128}, c.pad);
  if (!run_helper(lane, AS_OP_INVERSE_ROPE_QUANTISE, p, &report)) return report;
  auto sim = p;
  sim.codes = memory.make(AS_F64, {c.tokens, c.heads, c.dim});
  sim.scales = memory.make(AS_F64, {c.tokens, c.heads, c.dim / 128});
  if (!run_helper(*reference::sim_lane(), AS_OP_INVERSE_ROPE_QUANTISE, sim, &report)) {
    return report;
  }
  // The row before quantisation may be one step of bf16 off, a code then one step of e4m3; where
  // that happens to a block's largest value its scale may be the next one.
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t d = 0; d < c.dim; ++d) {
        const double scale = static_cast<double>(*at<float>(p.scales, t, h, d / 128));
        const double expected_scale = *at<double>(sim.scales, t, h, d / 128);
        if (scale != expected_scale && scale != 2 * expected_scale && 2 * scale != expected_scale) {
          report.fail("scales", "another power of two");
          return report;
        }
        const double expected = *at<double>(sim.codes, t, h, d);
        const double value =
            scale * static_cast<double>(cpu::e4m3_to_float(*at<unsigned char>(p.codes, t, h, d)));
        const double step = std::max(0.125 * std::fabs(expected), expected_scale * 0x1p-9);
        if (std::fabs(value - expected) > 2 * step) {
          report.fail("codes", std::to_string(value) + " against " + std::to_string(expected));
          return report;
        }
      }
    }
  }
  if (&lane != cpu::lane()) {
    auto own = p;
    own.codes = memory.make(AS_U8, {c.tokens, c.heads, c.dim});
    own.scales = memory.make(AS_F32, {c.tokens, c.heads, c.dim / 128});
    if (!run_helper(*cpu::lane(), AS_OP_INVERSE_ROPE_QUANTISE, own, &report)) {
      return report;
    }
    judge_equal("codes", p.codes, own.codes, &report);
    judge_equal("scales", p.scales, own.scales, &report);
  }
  memory.check_guards(&report);
  return report;
}

std::vector<TurnCase> turn_cases() {
  std::vector<TurnCase> cases = {{"no_tokens", 0, 8},
                                 {"zeros", 3, 8, 512, 0.0f},
                                 {"tiny", 3, 2, 512, 1e-6f},
                                 {"huge", 3, 2, 256, 1e30f}};
  for (std::int64_t tokens : {1, 4, 74}) {
    for (std::int64_t heads : {1, 17, 64}) {
      for (std::int64_t dim : {128, 512}) {
        cases.push_back({"t" + std::to_string(tokens) + "_h" + std::to_string(heads) + "_d" +
                             std::to_string(dim),
                         tokens, heads, dim, 1.0f, static_cast<std::int64_t>(cases.size() % 3)});
      }
    }
  }
  return cases;
}

Report check_fp8(const Lane& lane, const Fp8Case& c) {
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  auto p = helper_params<as_fp8_linear_params>();
  p.x = codes({c.tokens, c.in}, c.pad, random, &memory);
  p.weight = codes({c.out, c.in}, 2 * c.pad, random, &memory);
  const auto scales = [&](std::int64_t rows) {
    as_tensor t = memory.make(AS_F32, {rows, c.in / 128}, c.pad);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t b = 0; b < c.in / 128; ++b) {
        const float power = std::ldexp(1.0f, static_cast<int>(below(random, 6)) - 9);
        *at<float>(t, i, b) = c.odd_scales ? power * (1.0f + 0.1f * normal(random)) : power;
      }
    }
    return t;
  };
  p.x_scale = scales(c.tokens);
  p.weight_scale = scales((c.out + 127) / 128);
  p.y = memory.make(c.dtype, {c.tokens, c.out}, c.pad);
  if (!run_helper(lane, AS_OP_FP8_LINEAR, p, &report)) return report;
  auto sim = p;
  sim.y = memory.make(AS_F64, {c.tokens, c.out});
  if (!run_helper(*reference::sim_lane(), AS_OP_FP8_LINEAR, sim, &report)) return report;
  judge_by("y", "dense", p.y, sim.y, &report);
  memory.check_guards(&report);
  return report;
}

std::vector<Fp8Case> fp8_cases() {
  std::vector<Fp8Case> cases = {{"no_tokens", 0, 128, 4}, {"no_outputs", 3, 128, 0}};
  for (std::int64_t tokens : {1, 4, 74}) {
    for (std::int64_t in : {128, 384, 1024}) {
      for (std::int64_t out : {1, 64, 130, 300}) {
        const std::size_t i = cases.size();
        cases.push_back({"t" + std::to_string(tokens) + "_in" + std::to_string(in) + "_out" +
                             std::to_string(out),
                         tokens, in, out, i % 2 == 0 ? AS_BF16 : AS_F32, i % 3 == 0,
                         static_cast<std::int64_t>(i % 4 == 1   ? 5
                                                   : i % 4 == 2 ? 16
                                                                : 0)});
      }
    }
  }
  return cases;
}

namespace {

void expect_right(const Report& report) { EXPECT_TRUE(report.ok()) << report; }

class MergeStates : public testing::TestWithParam<MergeCase> {};
TEST_P(MergeStates, MatchesTheReference) { expect_right(check_merge(*cpu::lane(), GetParam())); }
INSTANTIATE_TEST_SUITE_P(Shapes, MergeStates, testing::ValuesIn(merge_cases()), name_of<MergeCase>);

class ConvertRows : public testing::TestWithParam<ConvertCase> {};
TEST_P(ConvertRows, MatchesTheReference) { expect_right(check_convert(*cpu::lane(), GetParam())); }
INSTANTIATE_TEST_SUITE_P(Shapes, ConvertRows, testing::ValuesIn(convert_cases()),
                         name_of<ConvertCase>);

// Each planted bug is wrong where it can be, and the lanes of others' ops are not.
TEST(ConvertBugs, AreFoundByTheReference) {
  int planted = 0;
  for (const Lane& mutant : mutants::helpers()) {
    if (mutant.ops[AS_OP_CONVERT_ROWS] == nullptr) continue;
    ++planted;
    EXPECT_TRUE(std::ranges::any_of(convert_cases(), [&](const ConvertCase& c) {
      return !check_convert(mutant, c).ok();
    })) << mutant.name;
  }
  EXPECT_EQ(planted, 4);
}

TEST(ConvertRows, RefusesWhatItCannotConvert) {
  Report report(1);
  Random random(1);
  const ConvertCase c{"refused", AS_RECORD_BF16, AS_RECORD_INT8_TOKEN_HEAD, 2, 64, 4, 4, 3};
  ConvertPages from(c.from, c, c.rows, random), to(c.to, c, c.to_rows, random);
  std::vector<std::int64_t> slots = {0, 11, -1};
  auto p = helper_params<as_convert_rows_params>();
  p.from = from.cache;
  p.to = to.cache;
  p.slots = make_tensor(slots.data(), {std::int64_t{3}});
  const auto refusal = [&](const as_convert_rows_params& params) {
    as_error error{};
    const auto status = cpu::lane()->ops[AS_OP_CONVERT_ROWS](&params, nullptr, &error);
    return status == AS_OK ? std::string() : std::string(error.message);
  };
  EXPECT_EQ(refusal(p), "");
  slots[1] = 12;
  EXPECT_NE(refusal(p).find("slots[1]"), std::string::npos) << refusal(p);
  slots[1] = 0;
  EXPECT_EQ(refusal(p), "convert_rows: slots[0] and slots[1] are both 0; a row is converted once");
  slots[1] = 1;
  auto wrong = p;
  wrong.to = p.from;
  EXPECT_NE(refusal(wrong).find("share memory"), std::string::npos) << refusal(wrong);
  // Pages that lie between each other's share nothing, unless they reach into one another.
  wrong = p;
  const std::int64_t from_page = p.from.data.shape[1], to_page = p.to.data.shape[1];
  std::vector<unsigned char> pool(static_cast<std::size_t>((from_page + to_page) * 3));
  wrong.from.data = make_tensor(pool.data(), {p.from.data.shape[0], from_page});
  wrong.to.data = make_tensor(pool.data() + from_page, {p.to.data.shape[0], to_page});
  wrong.from.data.stride[0] = wrong.to.data.stride[0] = from_page + to_page;
  EXPECT_EQ(refusal(wrong), "");
  wrong.to.data.data = pool.data() + from_page - 16;
  EXPECT_NE(refusal(wrong).find("share memory"), std::string::npos) << refusal(wrong);
  wrong = p;
  wrong.to.record = AS_RECORD_FP8_HEAD;
  EXPECT_NE(refusal(wrong).find("to_scale"), std::string::npos) << refusal(wrong);
  wrong = p;
  wrong.to.width = 64;
  EXPECT_NE(refusal(wrong).find("to has rows of"), std::string::npos) << refusal(wrong);
  wrong = p;
  wrong.from.record = AS_RECORD_STATE;
  EXPECT_NE(refusal(wrong).find("from holds record state"), std::string::npos) << refusal(wrong);
}

class GatherRows : public testing::TestWithParam<GatherCase> {};
TEST_P(GatherRows, MatchesTheReference) { expect_right(check_gather(*cpu::lane(), GetParam())); }
INSTANTIATE_TEST_SUITE_P(Shapes, GatherRows, testing::ValuesIn(gather_cases()),
                         name_of<GatherCase>);

class CopyBlocks : public testing::TestWithParam<CopyCase> {};
TEST_P(CopyBlocks, MatchesTheReference) { expect_right(check_copy(*cpu::lane(), GetParam())); }
INSTANTIATE_TEST_SUITE_P(Shapes, CopyBlocks, testing::ValuesIn(copy_cases()), name_of<CopyCase>);

TEST(CopyBlocks, RefusesPairsThatMeet) {
  Memory memory;
  std::vector<unsigned char> pool(64);
  auto p = helper_params<as_copy_blocks_params>();
  p.from = p.to = make_tensor(pool.data(), {4, 16});
  const auto refusal = [&](std::vector<std::int64_t> ids, bool exchange) {
    p.pairs = make_tensor(ids.data(), {static_cast<std::int64_t>(ids.size()) / 2, 2});
    p.exchange = exchange ? 1 : 0;
    as_error error{};
    const as_op_fn copy = cpu::lane()->ops[AS_OP_COPY_BLOCKS];
    return copy(&p, nullptr, &error) == AS_OK ? std::string() : std::string(error.message);
  };
  EXPECT_EQ(refusal({0, 1, 2, 3}, false), "");
  EXPECT_EQ(refusal({0, 1, 0, 2}, false), "");  // read twice
  EXPECT_NE(refusal({0, 1, 0, 2}, true).find("pairs[0] and pairs[1] meet at block 0"),
            std::string::npos);
  EXPECT_NE(refusal({0, 1, 2, 1}, false).find("meet at block 1"), std::string::npos);
  EXPECT_NE(refusal({0, 1, 1, 2}, false).find("meet at block 1"), std::string::npos);
  EXPECT_NE(refusal({0, 4}, false).find("block 4 of to, which has blocks 0 to 3"),
            std::string::npos);
}

class WorkspaceAttention : public testing::TestWithParam<WorkspaceCase> {};
TEST_P(WorkspaceAttention, MatchesTheReference) {
  expect_right(check_workspace(*cpu::lane(), GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Shapes, WorkspaceAttention, testing::ValuesIn(workspace_cases()),
                         name_of<WorkspaceCase>);

class InverseRopeQuantise : public testing::TestWithParam<TurnCase> {};
TEST_P(InverseRopeQuantise, MatchesTheReference) {
  expect_right(check_turn(*cpu::lane(), GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Shapes, InverseRopeQuantise, testing::ValuesIn(turn_cases()),
                         name_of<TurnCase>);

class Fp8Linear : public testing::TestWithParam<Fp8Case> {};
TEST_P(Fp8Linear, MatchesTheReference) { expect_right(check_fp8(*cpu::lane(), GetParam())); }
INSTANTIATE_TEST_SUITE_P(Shapes, Fp8Linear, testing::ValuesIn(fp8_cases()), name_of<Fp8Case>);

TEST(HelperLane, NamesWhatIsWrong) {
  as_error error{};
  auto p = helper_params<as_fp8_linear_params>();
  std::vector<unsigned char> x(100);
  p.x = make_tensor(x.data(), {1, 100});
  p.y = make_tensor(static_cast<float*>(nullptr), {1, 0});
  const as_op_fn linear = cpu::lane()->ops[AS_OP_FP8_LINEAR];
  EXPECT_EQ(linear(&p, nullptr, &error), AS_BAD_INPUT);
  EXPECT_STREQ(error.message, "fp8_linear: x has 100 inputs; allowed: multiples of 128");
  p.head.struct_size = 3;
  EXPECT_EQ(linear(&p, nullptr, &error), AS_BAD_INPUT);
  for (int id = AS_FIRST_HELPER; id < AS_END_OF_HELPERS; ++id) {
    EXPECT_NE(reference::sim_lane()->ops[id], nullptr);
    EXPECT_NE(cpu::lane()->ops[id], nullptr);
  }
}

}  // namespace
}  // namespace attnscope::properties
