#include "engine/session/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "engine/session/deepseek_v4/paths.h"
#include "engine/session/place.h"
#include "engine/session/step/listed_attention.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr double kSinkMass = 0.1;
constexpr std::int64_t kLongRowEntries = 64;                // that kernels split
constexpr std::int64_t kFarOffset = std::int64_t{1} << 31;  // bytes: beyond 32 bits with a sign

// The first group whose rows attention reads through a window; nullptr = the model has none.
const CacheGroup* windowed(const CacheLayout& layout) {
  for (const CacheGroup& group : layout.groups) {
    const int role = layout.specs[to_size(group.specs.front())].id.role;
    if (group.forgets() && (role == AS_CACHE_KV || role == AS_CACHE_K)) return &group;
  }
  return nullptr;
}

// By Path; count and first are open. Those that only a family has are without a name.
std::vector<CoveredPath> common_paths(const ModelConfig& config) {
  std::vector<CoveredPath> all(kPaths);
  const auto add = [&all](Path path, std::string name, std::string sentence, std::string advice) {
    CoveredPath& covered = all[static_cast<std::size_t>(path)];
    covered.name = std::move(name);
    covered.sentence = std::move(sentence);
    covered.advice = std::move(advice);
  };
  const CacheLayout layout = build_cache_layout(config);
  if (const CacheGroup* group = windowed(layout)) {
    add(Path::kWindowMoved, "window_moved", "a row had left a token's window",
        fmt::format("more than {} tokens", group->window));
    if (group->window > group->block_tokens + 1) {
      add(Path::kWindowOverThreeBlocks, "window_over_three_blocks",
          "a window began in one block and ended two later",
          fmt::format("more than {} tokens", 2 * group->block_tokens));
    }
  }
  add(Path::kBlockReused, "block_reused", "a block was given back and handed out again",
      "a smaller pool, or more tokens than it has blocks for");
  add(Path::kRecomputed, "recomputed", "a request lost its blocks and computed tokens again",
      "a pool too small for all requests, where the scheduler preempts");
  add(Path::kSeveralRequests, "several_requests", "several requests in one step",
      "a second request");
  add(Path::kMixedStep, "prefill_beside_decode",
      "a step with a chunk of one request and a decode of another",
      "requests of different lengths and a token budget below their sum");
  add(Path::kLongRow, "row_of_two_tiles",
      "an attention row of more than 64 entries, which kernels split", "more than 64 tokens");
  if (has_weight(config, "sinks")) {
    add(Path::kLargeSink, "sink_above_0.1", "a sink took more than a tenth of a head's attention",
        "another seed; trained sinks do");
    add(Path::kSmallSink, "sink_below_0.1", "a sink took less than a tenth of a head's attention",
        "longer prompts");
  }
  add(Path::kLengthsMod4, "lengths_mod_4", "requests of every length modulo 4 in decode",
      "at least four decode steps");
  add(Path::kFarPage, "far_page", "a page that was read lay 2 GiB or more behind the first one",
      "first_block above 2 GiB / the bytes of a block");
  int block = 1;  // the largest: all groups have to have the tokens
  for (const CacheGroup& group : layout.groups) block = std::max(block, group.block_tokens);
  add(Path::kHit, "prefix_hit", "a request found rows that another had computed",
      block == 1 ? "prompts that begin with the same token"
                 : fmt::format("prompts that begin with the same {} tokens", block));
  add(Path::kRanks, "ranks", "the outputs of several ranks were added",
      "tensor_parallel, or --tp 2");
  add(Path::kDraftHeld, "draft_held", "a drafted token held", "serving.draft_tokens");
  add(Path::kDraftRefused, "draft_refused", "a drafted token was refused",
      "serving.draft_accept with a number below draft_tokens");
  add(Path::kSwapped, "swapped", "a request's rows came back from host memory",
      "serving.preemption \"swap\", and a pool too small for all requests");
  return all;
}

const FamilyPaths* own_paths(const ModelConfig& config) {
  for (const FamilyPaths* one : {&deepseek_v4_paths()}) {
    if (config.family == one->family) return one;
  }
  return nullptr;
}

void blocks(const Session& session, StepCoverage* step) {
  const StepMetadata& m = session.metadata();
  const std::vector<BlockOwner>& replaced = session.serving().step().replaced;
  step->of(Path::kBlockReused) +=
      std::count_if(replaced.begin(), replaced.end(),
                    [](const BlockOwner& before) { return before.writer >= 0; });
  for (std::size_t r = 0; r < m.live.size(); ++r) {
    const Request& request = session.serving().requests()[to_size(m.live[r])];
    if (m.joins[r] == 2) ++step->of(Path::kSwapped);
    if (m.joins[r] != 1) continue;
    if (request.preemptions > 0) ++step->of(Path::kRecomputed);
    if (m.num_computed[r] > 0) ++step->of(Path::kHit);
  }
}

void tokens(const Session& session, StepCoverage* step) {
  const StepMetadata& m = session.metadata();
  const CacheGroup* group = windowed(session.parts().layout);
  const std::int64_t window =
      group == nullptr ? std::numeric_limits<std::int64_t>::max() : std::int64_t{group->window};
  const std::int64_t block = group == nullptr ? 1 : group->block_tokens;
  std::int64_t chunks = 0, decodes = 0, rows = 0;
  for (std::size_t r = 0; r < m.live.size(); ++r) {
    if (m.num_scheduled_tokens[r] == 0) continue;
    ++rows;
    const Request& request = session.serving().requests()[to_size(m.live[r])];
    const std::int64_t end = m.num_computed[r] + m.num_scheduled_tokens[r];
    const bool decode = m.num_computed[r] >= request.prompt_tokens;
    (decode ? decodes : chunks) += 1;
    if (decode) step->lengths_mod_4 |= static_cast<std::uint8_t>(1 << end % 4);
    const std::int64_t start = m.num_computed[r];
    for (std::int64_t p = std::max(start, window); p < end; ++p) {
      ++step->of(Path::kWindowMoved);
      const std::int64_t first = p - window + 1;
      if (p / block - first / block >= 2) ++step->of(Path::kWindowOverThreeBlocks);
    }
  }
  if (rows > 1) ++step->of(Path::kSeveralRequests);
  if (chunks > 0 && decodes > 0) ++step->of(Path::kMixedStep);
}

// Rows that the op reads in far pages.
std::int64_t far_rows(const OpParams& params) {
  std::int64_t far = 0;
  for (const as_cache_access& access : RowAccess::of(params.op())) {
    const as_cache& cache = params.cache(access.cache);
    const std::int64_t stride = cache.data.stride[0];
    if (cache.data.shape[0] * stride <= kFarOffset) continue;
    RowAccess::for_each(params.data(), access, [&](const RowVisit& v) {
      far += v.slot / cache.rows_per_block * stride >= kFarOffset ? 1 : 0;
    });
  }
  return far;
}

// A sampled row with the next row of its request beside it is the verification of a draft.
void drafts(const Session& session, StepCoverage* step) {
  const StepMetadata& m = session.metadata();
  const auto& p = session.last_params().get<as_sample_params>();
  bool holds = true;
  for (std::size_t i = 0; i + 1 < m.sample_rows.size(); ++i) {
    const auto row = to_size(m.sample_rows[i]), next = to_size(m.sample_rows[i + 1]);
    if (next != row + 1 || m.token_to_req[next] != m.token_to_req[row]) {
      holds = true;
      continue;
    }
    // Behind one that is refused the others mean nothing.
    const bool before = holds;
    holds = holds && *at<std::int32_t>(p.tokens, static_cast<std::int64_t>(i)) == m.tokens[next];
    if (before) ++step->of(holds ? Path::kDraftHeld : Path::kDraftRefused);
  }
}

void count_sinks(const as_tensor& lse, const as_tensor& sink, StepCoverage* step) {
  if (!present(sink)) return;
  for (std::int64_t t = 0; t < lse.shape[0]; ++t) {
    for (std::int64_t h = 0; h < lse.shape[1]; ++h) {
      const double mass = 1 / (1 + std::exp(static_cast<double>(*at<float>(lse, t, h)) -
                                            static_cast<double>(*at<float>(sink, h))));
      step->of(Path::kLargeSink) += mass > kSinkMass ? 1 : 0;
      step->of(Path::kSmallSink) += mass < kSinkMass ? 1 : 0;
    }
  }
}

void attention(const Session& session, StepCoverage* step) {
  std::vector<std::int32_t> all(to_size(session.metadata().num_tokens_in_step()));
  std::iota(all.begin(), all.end(), 0);
  const ListedAttention listed(session.last_params(), all);
  const as_sparse_attention_params& p = listed.params();
  std::int64_t long_rows = 0;
  for (std::int64_t t = 0; t < p.lse.shape[0]; ++t) {
    const std::int64_t extra =
        present(p.extra_topk_length) ? *at<std::int32_t>(p.extra_topk_length, t) : 0;
    long_rows += *at<std::int32_t>(p.topk_length, t) + extra > kLongRowEntries ? 1 : 0;
  }
  if (present(p.sinks)) count_sinks(p.lse, p.sinks, step);
  step->of(Path::kLongRow) += long_rows;
  step->of(Path::kFarPage) += far_rows(session.last_params());
}

// The same where rows are found by position.
void attention_by_position(const Session& session, StepCoverage* step) {
  const auto& p = session.last_params().get<as_paged_attention_params>();
  std::int64_t long_rows = 0;
  for (std::int64_t t = 0; t < p.lse.shape[0]; ++t) {
    const std::int64_t before = *at<std::int64_t>(p.positions, t) + 1;
    const std::int64_t seen = p.window > 0 ? std::min<std::int64_t>(before, p.window) : before;
    long_rows += seen > kLongRowEntries ? 1 : 0;
  }
  count_sinks(p.lse, p.sinks, step);
  step->of(Path::kLongRow) += long_rows;
  step->of(Path::kFarPage) += far_rows(session.last_params());
}

}  // namespace

void note_coverage(const Session& session, StepCoverage* step) {
  if (const FamilyPaths* own = own_paths(session.parts().config)) own->op_done(session, step);
  switch (session.last_params().op()) {
    case AS_OP_BLOCK_TABLES:
      return blocks(session, step);
    case AS_OP_SLOT_MAPPING:
      return tokens(session, step);
    case AS_OP_SPARSE_ATTENTION:
    case AS_OP_MLA_ATTENTION:
    case AS_OP_SPARSE_MLA_ATTENTION:
      return attention(session, step);
    case AS_OP_PAGED_ATTENTION:
      return attention_by_position(session, step);
    case AS_OP_RESIDUAL:
      if (session.parts().ranks.size() > 1) ++step->of(Path::kRanks);
      return;
    case AS_OP_SAMPLE:
      if (session.cursor().layer < 0)
        drafts(session, step);  // of a draft layer nothing is verified
      return;
    default:
      return;
  }
}

std::vector<CoveredPath> exercised(const ModelConfig& config,
                                   const std::map<std::int64_t, StepCoverage>& steps) {
  std::vector<CoveredPath> all = common_paths(config), out;
  if (const FamilyPaths* own = own_paths(config)) own->name(config, all);
  const auto met = [](CoveredPath& item, std::int64_t step, std::int64_t times) {
    if (times > 0 && item.count == 0) item.first_step = step;
    item.count += times;
  };
  std::uint8_t lengths = 0;
  for (const auto& [number, step] : steps) {
    for (std::size_t i = 0; i < kPaths; ++i) met(all[i], number, step.counts[i]);
    const auto before = lengths;
    lengths |= step.lengths_mod_4;
    if (lengths == 15 && before != 15)
      met(all[static_cast<std::size_t>(Path::kLengthsMod4)], number, 1);
  }
  for (CoveredPath& path : all) {
    if (!path.name.empty()) out.push_back(std::move(path));
  }
  return out;
}

void Coverage::op_done(const Session& session) {
  note_coverage(session, &steps_[last_place(session).step]);
}

}  // namespace attnscope
