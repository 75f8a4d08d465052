#include "engine/session/deepseek_v4/paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "engine/model/numbers.h"
#include "engine/session/session.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr std::int32_t kManyKeys = 1024;  // entries scored for a token

void name_paths(const ModelConfig& config, std::vector<CoveredPath>& all) {
  const auto add = [&all](int path, std::string name, std::string sentence, std::string advice) {
    CoveredPath& covered = all[to_size(path)];
    covered.name = std::move(name);
    covered.sentence = std::move(sentence);
    covered.advice = std::move(advice);
  };
  const auto at = [](Path path) { return static_cast<int>(path); };
  if (has_type(config, LayerType::kC128A)) {
    add(at(Path::kLongEntry), "c128_boundary", "a C128A entry was completed",
        "more than 127 tokens");
  }
  if (!has_type(config, LayerType::kC4A)) return;
  add(at(Path::kSelective), "selective_indexer",
      "a token saw more entries than the indexer may select",
      fmt::format("a prompt of more than {} tokens",
                  4 * static_cast<std::int64_t>(config.index_topk) + 2));
  add(at(Path::kNearTie), "near_tie",
      "two entries at the limit of the selection had all but equal scores",
      "many entries, or repeated text");
  add(at(Path::kFirstEntry), "first_c4_window",
      "the first C4A entry of a request, which has no window before it", "a prompt of 4 tokens");
  add(at(Path::kSplitEntry), "split_c4_window", "a chunk of a prompt ended inside a C4A window",
      "a token budget that is no multiple of 4, below the prompt");
  add(at(Path::kShortPrompt), "short_prompt", "a prompt shorter than one C4A window",
      "a prompt of 1 to 3 tokens");
  for (int rest = 0; rest < 4; ++rest) {
    add(at(Path::kChunkAt0Mod4) + rest, fmt::format("chunk_at_{}_mod_4", rest),
        fmt::format("a later chunk of a prompt began at a position of {} modulo 4", rest),
        "a token budget that is odd, and a prompt of several times as many tokens");
  }
  add(at(Path::kManyKeys), "many_keys",
      fmt::format("a token's indexer scored more than {} entries", kManyKeys),
      fmt::format("a prompt of more than {} tokens", 4 * kManyKeys + 4));
}

void chunks(const Session& session, StepCoverage* step) {
  const StepMetadata& m = session.metadata();
  for (std::size_t r = 0; r < m.live.size(); ++r) {
    if (m.num_scheduled_tokens[r] == 0) continue;
    const Request& request = session.serving().requests()[to_size(m.live[r])];
    const std::int64_t start = m.num_computed[r], end = start + m.num_scheduled_tokens[r];
    const bool decode = start >= request.prompt_tokens;
    if (start < 4 && end >= 4) ++step->of(Path::kFirstEntry);
    if (end % 4 != 0 && end < request.prompt_tokens) ++step->of(Path::kSplitEntry);
    step->of(Path::kLongEntry) += end / 128 - start / 128;
    if (start == 0 && request.prompt_tokens < 4) ++step->of(Path::kShortPrompt);
    if (!decode && start > 0 && m.num_scheduled_tokens[r] > 1) {
      ++step->of(static_cast<Path>(static_cast<int>(Path::kChunkAt0Mod4) + start % 4));
    }
  }
}

void selected(const Session& session, StepCoverage* step) {
  const auto& p = session.last_params().get<as_indexer_topk_params>();
  const std::int64_t width = p.indices.shape[1];
  std::int64_t selective = 0, ties = 0, many = 0;
  for (std::int64_t t = 0; t < p.lens.shape[0]; ++t) {
    const std::int32_t len = *at<std::int32_t>(p.lens, t);
    many += len > kManyKeys ? 1 : 0;
    if (len <= width) continue;
    ++selective;
    std::vector<float> scores(at<float>(p.logits, t), at<float>(p.logits, t) + len);
    std::nth_element(scores.begin(), scores.begin() + width, scores.end(), std::greater<>());
    const float left_out = scores[to_size(width)];
    const float taken = *std::min_element(scores.begin(), scores.begin() + width);
    ties += taken - left_out <= 1e-5f * std::fabs(taken) ? 1 : 0;
  }
  step->of(Path::kSelective) += selective;
  step->of(Path::kNearTie) += ties;
  step->of(Path::kManyKeys) += many;
}

void note_paths(const Session& session, StepCoverage* step) {
  switch (session.last_params().op()) {
    case AS_OP_SLOT_MAPPING:
      return chunks(session, step);
    case AS_OP_INDEXER_TOPK:
      return selected(session, step);
    default:
      return;
  }
}

}  // namespace

const FamilyPaths& deepseek_v4_paths() {
  static constexpr FamilyPaths kPathsOfV4 = {"deepseek_v4", name_paths, note_paths};
  return kPathsOfV4;
}

}  // namespace attnscope
