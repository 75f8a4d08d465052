// What Window says of attention in two passes is what the op did: the cut that the view finds from
// requests and tables is that of the call's own tensors, in every step of the scenarios.
#include <gtest/gtest.h>

#include <set>

#include "app/views/attention_form.h"
#include "app/views/window_view.h"
#include "engine/model/numbers.h"
#include "engine/session/snapshot.h"
#include "kernels/cpu/paged_forms.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace form_views_test {

struct Seen {
  std::set<std::string> sentences;
  std::int64_t cuts = 0, together = 0;
};

Seen views_of(const char* name) {
  Seen seen;
  const auto scenario = load_scenario(name);
  EXPECT_TRUE(scenario) << scenario.error().text();
  auto session = small_session(References::kNone, *scenario);
  TraceRecorder recorder;
  session->set_observer(&recorder);
  const auto info = session_info(*session);
  std::map<int, cpu::ContextCuts> by_layer;  // of the step
  while (!session->finished()) {
    const std::size_t before = session->history().size();
    const auto ok = session->op();
    EXPECT_TRUE(ok) << ok.error().text();
    const OpParams& params = session->last_params();
    if (params.op() == AS_OP_PAGED_ATTENTION) {
      const auto& p = params.get<as_paged_attention_params>();
      by_layer[static_cast<int>(by_layer.size())] = cpu::context_cuts(p);
    }
    if (session->history().size() == before) continue;
    const auto snapshot = take_snapshot(*session, recorder, info, 1);
    const StepTrace& step = *snapshot->traces.back();
    for (const auto& [layer, cuts] : by_layer) {
      const CacheSpec& keys = info->layout.specs[to_size(layer * 2)];
      const bool whole = keys.retention.window == 0;
      for (std::size_t t = 0; t < step.metadata.positions.size(); ++t) {
        const std::int32_t row = step.metadata.token_to_req[t];
        const AttentionCut cut = attention_cut(*info, step, keys.group, row, whole);
        EXPECT_EQ(cut.rows, cuts.rows[to_size(row)]) << step.step << " layer " << layer;
        EXPECT_EQ(cut.requests > 1, cuts.shared >= 0);
        if (cut.rows > 0) ++seen.cuts;
        if (cut.requests > 1) ++seen.together;
        const WindowView view = window_view(*info, step, info->config.layers[to_size(layer)],
                                            static_cast<std::int64_t>(t), -1);
        const std::string text =
            cut_sentence(cut, keys.retention.first_seen(step.metadata.positions[t]));
        EXPECT_NE(view.sentence.find(text), std::string::npos) << view.sentence;
        EXPECT_EQ(view.sentence.find("merged by LSE") != std::string::npos, !text.empty());
        seen.sentences.insert(text);
      }
    }
    by_layer.clear();
  }
  return seen;
}

TEST(FormViews, ACascadeIsToldAsItIsAttended) {
  const Seen seen = views_of("cascade");
  EXPECT_GT(seen.together, 20);
  EXPECT_EQ(seen.cuts, seen.together);
  EXPECT_TRUE(seen.sentences.contains(
      " Rows 0-95, which 4 requests have in common, are attended once for all and merged by LSE."));
  EXPECT_TRUE(seen.sentences.contains(""));
}

TEST(FormViews, AWindowCutsOffRowsBeforeIt) {
  const AttentionCut cut{96, 1};
  EXPECT_EQ(cut_sentence(cut, 90),
            " Rows 90-95, of earlier steps, are attended on their own and merged by LSE.");
  EXPECT_EQ(cut_sentence(cut, 95),
            " Row 95, of earlier steps, is attended on its own and merged by LSE.");
  EXPECT_EQ(cut_sentence(cut, 96), "");
}

TEST(FormViews, MergedPassesAreToldAsTheyAreAttended) {
  const Seen seen = views_of("merged");
  EXPECT_GT(seen.cuts, 100);
  EXPECT_EQ(seen.together, 0);
  EXPECT_TRUE(seen.sentences.contains(
      " Rows 0-47, of earlier steps, are attended on their own and merged by LSE."));
}

}  // namespace form_views_test
}  // namespace attnscope
