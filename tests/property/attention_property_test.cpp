// AS_OP_SPARSE_ATTENTION over odd lengths, lists, pages and sinks.
#include <algorithm>
#include <climits>
#include <cmath>

#include "tests/property/checks.h"

namespace attnscope::properties {
namespace {

constexpr float kSinks[] = {0.0f, -kInfinity, 80.0f, kInfinity, -80.0f, 1e4f, -1e4f, 1.5f};

// What lies in a list beyond its length must never be read.
constexpr std::int32_t kGarbage[] = {INT_MAX, 1 << 30, 0, INT_MIN, 1};

// Slots [T,columns] and lens [T] in pages, and the same by logical row.
struct List {
  as_tensor slots, rows, lens;
};

List make_list(const std::vector<std::vector<std::int64_t>>& wanted, std::int64_t columns,
               const Tokens& tokens, const TwinCache& cache, Lists kind, Random& random,
               Memory* memory) {
  List list;
  list.slots = memory->make(AS_I32, {tokens.size(), columns}, 3);
  list.rows = memory->make(AS_I32, {tokens.size(), columns});
  list.lens = memory->make(AS_I32, {tokens.size()});
  for (std::int64_t t = 0; t < tokens.size(); ++t) {
    const std::vector<std::int64_t>& positions = wanted[static_cast<std::size_t>(t)];
    const auto count = static_cast<std::int64_t>(positions.size());
    const std::int64_t r = tokens.token_to_req[static_cast<std::size_t>(t)];
    for (std::int64_t k = 0; k < columns; ++k) {
      std::int32_t& slot = *at<std::int32_t>(list.slots, t, k);
      std::int32_t& row = *at<std::int32_t>(list.rows, t, k);
      if (k >= count) {
        slot = kGarbage[(t + k) % 5];
        row = kGarbage[(t + k + 1) % 5];
        continue;
      }
      std::int64_t position = positions[static_cast<std::size_t>(k)];
      if (kind == Lists::kDuplicates && below(random, 3) == 0) position = positions[0];
      slot = static_cast<std::int32_t>(cache.slot(r, position));
      row = static_cast<std::int32_t>(cache.row(r, position));
      if (kind == Lists::kHoles && below(random, 3) == 0) {
        slot = k % 2 == 0 ? -1 : INT_MIN;
        row = -1;
      }
    }
    const bool empty = kind == Lists::kSomeEmpty && t % 2 == 0;
    *at<std::int32_t>(list.lens, t) = empty ? 0 : static_cast<std::int32_t>(count);
  }
  return list;
}

// By how much quantisation alone can move the output: the scores of every entry are known to move
// by at most delta, so every weight by a factor of at most e^(2 delta); the values move too.
struct Movement {
  double delta = 0;
  std::vector<double> largest = std::vector<double>(AS_HEAD_DIM);  // |value| by channel
  std::vector<double> moved = std::vector<double>(AS_HEAD_DIM);    // |change of value| by channel
};

void add_movement(const as_tensor& rows, const as_tensor& lens, const TwinCache& cache,
                  std::int64_t t, const std::vector<double>& q, double scale, Movement* m) {
  const as_cache exact = cache.values();
  const as_cache stored = cache.logical();
  std::vector<float> read(AS_HEAD_DIM);
  for (std::int64_t k = 0; k < *at<std::int32_t>(lens, t); ++k) {
    const std::int64_t row = *at<std::int32_t>(rows, t, k);
    if (row < 0) continue;
    const as_row_address from = as_cache_row(&stored, row);
    cpu::decode_row(AS_RECORD_LATENT, AS_HEAD_DIM, from.payload, from.scales, read.data());
    const double* value = at<double>(exact.data, row);
    double score = 0;
    for (std::size_t i = 0; i < read.size(); ++i) {
      const double change = static_cast<double>(read[i]) - value[i];
      score += q[i] * change;
      m->largest[i] = std::max(m->largest[i], std::fabs(value[i]));
      m->moved[i] = std::max(m->moved[i], std::fabs(change));
    }
    m->delta = std::max(m->delta, std::fabs(score * scale));
  }
}

std::vector<std::vector<std::int64_t>> windows(const Tokens& tokens) {
  std::vector<std::vector<std::int64_t>> lists;
  for (std::int64_t position : tokens.positions) {
    std::vector<std::int64_t>& list = lists.emplace_back();
    for (std::int64_t p = std::max<std::int64_t>(position - kWindow + 1, 0); p <= position; ++p) {
      list.push_back(p);
    }
  }
  return lists;
}

// Up to `columns` of the (position + 1) / 4 entries that a token sees, ascending.
std::vector<std::vector<std::int64_t>> selections(const Tokens& tokens, std::int64_t columns,
                                                  Random& random) {
  std::vector<std::vector<std::int64_t>> lists;
  for (std::int64_t position : tokens.positions) {
    std::vector<std::int64_t>& list = lists.emplace_back();
    std::int64_t left = (position + 1) / 4;
    for (std::int64_t entry = 0; entry < (position + 1) / 4; ++entry, --left) {
      const std::int64_t wanted = columns - static_cast<std::int64_t>(list.size());
      if (below(random, left) < wanted) list.push_back(entry);
    }
  }
  return lists;
}

// The chunk and the part of each token: request 0 of those that prefill is part 0 of chunk 0.
as_tensor parts(const Tokens& tokens, std::int64_t first, Memory* memory) {
  std::vector<std::int32_t> numbers;
  for (const std::int32_t request : tokens.token_to_req) {
    const auto place = static_cast<std::int32_t>(request - first);
    numbers.push_back(place < 0 ? -1 : place / 2);
    numbers.push_back(place < 0 ? -1 : place % 2);
  }
  return memory->ints(numbers, {tokens.size(), 2});
}

// The same call with outputs of its own in the kernels' dtypes.
OpParams with_outputs_alike(const OpParams& params, Memory* memory) {
  OpParams out = params;
  auto& p = out.get<as_sparse_attention_params>();
  p.o = memory->make(AS_BF16, {p.o.shape[0], p.o.shape[1], p.o.shape[2]});
  p.lse = memory->make(AS_F32, {p.lse.shape[0], p.lse.shape[1]});
  return out;
}

// The plan of a call, made by the CPU lane: of a C4A layer where it has a second list, else SWA.
void add_plan(const AttentionCase& c, Memory* memory, as_sparse_attention_params* p) {
  const auto lens = [](const as_tensor& t) {
    const auto* first = at<std::int32_t>(t);
    return std::vector<std::int32_t>(first, first + t.shape[0]);
  };
  PlanCase plan{c.name, lens(p->topk_length)};
  if (c.extra > 0) plan.c4 = lens(p->extra_topk_length);
  plan.rule = c.plan;
  plan.multiprocessors = c.multiprocessors;
  plan.heads = static_cast<std::int32_t>(c.heads);
  plan.top_k = static_cast<std::int32_t>(c.extra);
  OpParams params;
  auto& made = params.init<as_attention_plan_params>(AS_OP_ATTENTION_PLAN);
  fill_plan(plan, memory, &made);
  as_error error{};
  ASSERT_EQ(cpu::lane()->ops[AS_OP_ATTENTION_PLAN](params.data(), nullptr, &error), AS_OK);
  const std::int64_t type = c.extra > 0 ? 1 : 0, splits = made.splits.shape[1];
  p->plan_rows = make_tensor(at<std::int32_t>(made.rows, type), {p->q.shape[0], 2});
  p->plan_splits = make_tensor(at<std::int32_t>(made.splits, type), {splits, AS_PLAN_COLUMNS});
}

std::vector<std::int64_t> entries_of(std::vector<std::int64_t> lengths) {
  for (std::int64_t& n : lengths) n /= 4;
  return lengths;
}

}  // namespace

Report check_attention(const Lane& lane, const AttentionCase& c) {
  Report report(case_seed("attention " + c.name));
  Random random(report.seed());
  Memory memory;
  const Tokens tokens = last_tokens(c.lengths, c.queries);
  TwinCache window(AS_RECORD_LATENT, AS_HEAD_DIM, c.lengths, c.pages, random);
  TwinCache extra(AS_RECORD_LATENT, AS_HEAD_DIM, entries_of(c.lengths), c.extra_pages, random);
  // Rows that left every window stay poisoned.
  std::vector<float> values(AS_HEAD_DIM);
  for (std::size_t r = 0; r < c.lengths.size(); ++r) {
    const std::int64_t first = c.lengths[r] - c.queries - kWindow + 1;
    for (std::int64_t p = std::max<std::int64_t>(first, 0); p < c.lengths[r]; ++p) {
      for (float& v : values) v = cpu::round_bf16(normal(random));
      window.put(static_cast<std::int64_t>(r), p, values.data());
    }
  }
  extra.put_all(random);

  OpParams engine;
  auto& p = engine.init<as_sparse_attention_params>(AS_OP_SPARSE_ATTENTION);
  p.q = memory.normals(AS_BF16, {tokens.size(), c.heads, AS_HEAD_DIM}, random, c.q_scale, 8);
  const List list = make_list(windows(tokens), kWindow, tokens, window, c.lists, random, &memory);
  List more;
  p.cache = window.paged();
  p.indices = list.slots;
  p.topk_length = list.lens;
  if (c.extra > 0) {
    more = make_list(selections(tokens, c.extra, random), c.extra, tokens, extra, c.lists, random,
                     &memory);
    p.extra_cache = extra.paged();
    p.extra_indices = more.slots;
    p.extra_topk_length = more.lens;
  }
  p.sinks = memory.make(AS_F32, {c.heads});
  for (std::int64_t h = 0; h < c.heads; ++h) {
    *at<float>(p.sinks, h) = kSinks[(c.first_sink + static_cast<std::size_t>(h)) % 8];
  }
  p.o = memory.make(AS_BF16, {tokens.size(), c.heads, AS_HEAD_DIM}, 5);
  p.lse = memory.make(AS_F32, {tokens.size(), c.heads}, 1);
  p.scale = 1 / std::sqrt(double{AS_HEAD_DIM});
  if (c.plan != AS_PLAN_NONE) add_plan(c, &memory, &p);
  if (c.gathered >= 0) {
    const OpParams direct = with_outputs_alike(engine, &memory);
    if (!run(lane, direct, &report)) return report;
    p.prefill = parts(tokens, c.gathered, &memory);
    if (!run(lane, engine, &report)) return report;
    judge_all(engine, direct, &report);
  } else if (!run(lane, engine, &report)) {
    return report;
  }
  memory.check_guards(&report);

  OpParams sim = with_own_outputs(engine, &memory);
  auto& s = sim.get<as_sparse_attention_params>();
  s.cache = window.logical();
  s.indices = list.rows;
  if (c.extra > 0) {
    s.extra_cache = extra.logical();
    s.extra_indices = more.rows;
  }
  if (!run(*reference::sim_lane(), sim, &report)) return report;
  judge_all(engine, sim, &report);

  OpParams exact = with_own_outputs(sim, &memory);
  auto& e = exact.get<as_sparse_attention_params>();
  e.cache = window.values();
  if (c.extra > 0) e.extra_cache = extra.values();
  if (!run(*reference::exact_lane(), exact, &report)) return report;
  std::vector<Movement> movement;
  std::vector<double> q(AS_HEAD_DIM);
  for (std::int64_t i = 0; i < tokens.size() * c.heads; ++i) {
    for (std::size_t d = 0; d < q.size(); ++d) {
      q[d] = element(p.q, i, static_cast<std::int64_t>(d));
    }
    Movement& m = movement.emplace_back();
    add_movement(list.rows, list.lens, window, i / c.heads, q, p.scale, &m);
    if (c.extra > 0) add_movement(more.rows, more.lens, extra, i / c.heads, q, p.scale, &m);
  }
  judge_bound(
      "o against ref.exact", p.o, e.o, nullptr,
      [&](std::int64_t row, std::int64_t column, double value) {
        const Movement& m = movement[static_cast<std::size_t>(row)];
        const auto d = static_cast<std::size_t>(column);
        // Twice half a bf16 step: fp32 may fall on the other side of a rounding boundary.
        return m.largest[d] * (std::expm1(2 * m.delta) + 1e-4) + m.moved[d] +
               2 * kBf16Half * std::fabs(value);
      },
      &report);
  judge_bound(
      "lse against ref.exact", p.lse, e.lse, nullptr,
      [&](std::int64_t row, std::int64_t head, double value) {
        return movement[static_cast<std::size_t>(row * c.heads + head)].delta + 1e-5 +
               1e-5 * std::fabs(value);
      },
      &report);
  return report;
}

namespace {

class SparseAttentionProperty : public testing::TestWithParam<AttentionCase> {};

TEST_P(SparseAttentionProperty, MatchesBothReferences) {
  const Report report = check_attention(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}

const AttentionCase kAttentionCases[] = {
    {"no_tokens", {0, 0}, 1, 8, {64, 0}},
    {"one_token", {1}, 1, 1, {64, 0}, 0, {}, Lists::kPlain, 1.0f, 7},
    {"first_tokens", {1, 3, 0, 4}, 5, 8, {1, 0}, 5, {1, 7}},
    {"window_edges", {127, 128, 129}, 1, 64, {64, 1152}, 512, {64, 0}},
    {"window_edges_of_three", {127, 0, 128, 129, 255}, 2, 8, {3, 100}, 16, {2, 64}},
    {"verify_five", {256, 129, 4}, 5, 8, {53, 1}, 64, {61, 13}},
    {"long_selection", {2050, 2051}, 2, 8, {64, 0}, 512, {64, 576}},
    {"long_all_visible", {2051}, 1, 64, {61, 33}, 513, {53, 1}},
    {"holes", {129, 255}, 2, 8, {2, 11}, 40, {3, 0}, Lists::kHoles},
    {"duplicates", {128, 3, 256}, 2, 8, {53, 0}, 64, {2, 5}, Lists::kDuplicates},
    {"some_empty", {127, 129, 1, 255}, 2, 8, {64, 64}, 7, {64, 64}, Lists::kSomeEmpty},
    {"all_scores_equal", {200}, 2, 8, {61, 0}, 50, {64, 0}, Lists::kPlain, 0.0f},
    {"scores_far_apart", {129, 130}, 1, 8, {64, 0}, 32, {64, 0}, Lists::kPlain, 30.0f, 1},
    {"earlier_scores_vanish", {129, 700}, 1, 8, {64, 0}, 32, {64, 0}, Lists::kPlain, 3000.0f, 1},
    {"scores_beyond_sinks", {255}, 1, 64, {3, 2}, 0, {}, Lists::kPlain, 200.0f},
    {"window_only_64_heads", {127, 1}, 1, 64, {64, 0}},
    {"sink_minus_infinity", {128}, 1, 1, {64, 0}, 8, {64, 0}, Lists::kPlain, 1.0f, 1},
    {"sink_large", {128}, 1, 1, {1, 3}, 8, {1, 0}, Lists::kPlain, 1.0f, 2},
    {"sink_plus_infinity", {4}, 2, 1, {64, 0}, 8, {64, 0}, Lists::kPlain, 1.0f, 3},
    {"sink_huge", {3}, 1, 1, {2, 0}, 0, {}, Lists::kPlain, 1.0f, 5},
    {"gathered", {300, 129, 40}, 33, 4, {53, 1}, 24, {61, 13}, Lists::kPlain, 1.0f, 0, 0},
    {"gathered_beside_decodes",
     {70, 131, 9, 260},
     5,
     8,
     {64, 0},
     64,
     {64, 0},
     Lists::kPlain,
     1.0f,
     0,
     2},
    {"gathered_by_nobody", {70, 131}, 2, 8, {64, 0}, 8, {64, 0}, Lists::kPlain, 1.0f, 0, 2},
    {"gathered_windows", {300, 129}, 17, 2, {3, 2}, 0, {}, Lists::kPlain, 1.0f, 3, 0},
    {"gathered_holes", {129, 255, 30}, 9, 8, {2, 11}, 40, {3, 0}, Lists::kHoles, 1.0f, 0, 0},
    {"gathered_duplicates",
     {128, 3, 256},
     8,
     8,
     {53, 0},
     64,
     {2, 5},
     Lists::kDuplicates,
     1.0f,
     0,
     0},
    {"gathered_some_empty",
     {127, 129, 1, 255},
     6,
     8,
     {64, 64},
     7,
     {64, 64},
     Lists::kSomeEmpty,
     1.0f,
     0,
     1},
};
INSTANTIATE_TEST_SUITE_P(Shapes, SparseAttentionProperty, testing::ValuesIn(kAttentionCases),
                         name_of<AttentionCase>);

// Numbers that would have parts overlap are refused.
TEST(GatheredAttention, NamesWhatIsWrongWithItsParts) {
  Memory memory;
  OpParams params;
  auto& p = params.init<as_sparse_attention_params>(AS_OP_SPARSE_ATTENTION);
  Random random(1);
  const TwinCache cache(AS_RECORD_LATENT, AS_HEAD_DIM, {3}, {64, 0}, random);
  p.cache = cache.paged();
  p.q = memory.make(AS_BF16, {3, 1, AS_HEAD_DIM});
  p.indices = memory.make(AS_I32, {3, 4});
  p.topk_length = memory.ints({0, 0, 0}, {3});
  p.sinks = memory.make(AS_F32, {1});
  p.o = memory.make(AS_BF16, {3, 1, AS_HEAD_DIM});
  p.lse = memory.make(AS_F32, {3, 1});
  const auto says = [&](const std::vector<std::int32_t>& numbers) {
    p.prefill = memory.ints(numbers, {3, 2});
    as_error error{};
    const std::int32_t status = cpu::lane()->ops[AS_OP_SPARSE_ATTENTION](&p, nullptr, &error);
    return status == AS_OK ? std::string() : std::string(error.message);
  };
  EXPECT_EQ(says({0, 0, 0, 0, 0, 1}), "");
  EXPECT_EQ(says({-1, -1, 0, 0, 1, 0}), "");
  EXPECT_EQ(says({0, 0, 0, 1, 0, 0}),
            "sparse_attention: prefill[2] is part 0 of chunk 0, which other tokens have ended; "
            "tokens of a part stand side by side");
  p.plan_rows = memory.ints({0, 0, 0, 0, 0, 0}, {3, 2});
  p.plan_splits = memory.ints({-1, 0, 0, 0, -1}, {1, 5});
  EXPECT_NE(says({0, 0, 0, 0, 0, 1}).find("there is a plan and prefill"), std::string::npos);
  p.plan_rows = p.plan_splits = {};
  EXPECT_EQ(says({0, 0, 0, 7, 0, 8}),
            "sparse_attention: prefill[1] is part 7 of chunk 0; parts are 0 to 2");
}

// The same calls by plans: many splits of a tile, few of several, and none that is one.
std::vector<AttentionCase> planned_cases() {
  std::vector<AttentionCase> cases;
  for (const AttentionCase& c : kAttentionCases) {
    if (c.gathered >= 0) continue;
    for (const std::int32_t rule : {AS_PLAN_OWN, AS_PLAN_FLASHMLA}) {
      for (const std::int32_t multiprocessors : {1, 7, 132}) {
        AttentionCase planned = c;
        planned.name +=
            (rule == AS_PLAN_OWN ? "_own_" : "_flashmla_") + std::to_string(multiprocessors);
        planned.plan = rule;
        planned.multiprocessors = multiprocessors;
        cases.push_back(std::move(planned));
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Planned, SparseAttentionProperty, testing::ValuesIn(planned_cases()),
                         name_of<AttentionCase>);

}  // namespace
}  // namespace attnscope::properties
