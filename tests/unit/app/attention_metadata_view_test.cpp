// The metadata of a session's steps in each form, held against the slots that its ops use.
#include "app/views/attention_metadata_view.h"

#include "app/views/batch_view.h"
#include "engine/backend/attention_metadata.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace attention_metadata_view_test {

std::string line(const AttentionMetadataView& view, const std::string& name) {
  for (const MetadataLine& one : view.lines) {
    if (one.name == name) return one.values;
  }
  return "no line";
}

TEST(AttentionMetadataView, SaysWhatEveryStepHandsOver) {
  auto session = small_session(References::kNone, small_scenario(150, 6));
  TraceRecorder recorder;
  session->set_observer(&recorder);
  while (!session->finished()) ASSERT_TRUE(session->step());
  const auto info = session_info(*session);
  std::int64_t decodes = 0;
  for (const auto& step : recorder.traces()) {
    SCOPED_TRACE(step->step);
    const auto tables = attention_metadata_view(*info, *step, -1, MetadataForm::kBlockTables);
    ASSERT_EQ(tables.why_empty, "");
    EXPECT_NE(tables.sentence.find("as block tables: "), std::string::npos) << tables.sentence;
    EXPECT_EQ(line(tables, "query_start_loc").front(), '0');
    EXPECT_EQ(line(tables, "block_table").front(), '[');
    const auto pages = attention_metadata_view(*info, *step, -1, MetadataForm::kPagedIndices);
    EXPECT_EQ(line(pages, "slot_mapping"), line(tables, "slot_mapping"));
    EXPECT_EQ(line(pages, "paged_kv_indptr").front(), '0');
    EXPECT_EQ(line(pages, "block_table"), "no line");
    decodes += tables.sentence.find("no graph") == std::string::npos ? 1 : 0;
    const auto alone = attention_metadata_view(*info, *step, -1, MetadataForm::kPrefillOnly);
    EXPECT_EQ(alone.why_empty.empty(), step->metadata.num_computed[0] == 0) << alone.why_empty;
  }
  EXPECT_GT(decodes, 0);
  const StepTrace& last = *recorder.traces().back();
  EXPECT_NE(attention_metadata_view(*info, last, -1, MetadataForm::kStateIndices)
                .why_empty.find("layers with a state"),
            std::string::npos);
  StepTrace bare = last;
  bare.metadata.tables.clear();
  EXPECT_NE(attention_metadata_view(*info, bare, -1, MetadataForm::kBlockTables)
                .why_empty.find("not kept"),
            std::string::npos);
}

// Of every group of caches: a token writes where the manager's table says, whoever stands first.
TEST(AttentionMetadataView, EveryGroupHasTheSlotsOfItsTables) {
  auto session = small_session(References::kNone, small_scenario(150, 6));
  TraceRecorder recorder;
  session->set_observer(&recorder);
  while (!session->finished()) ASSERT_TRUE(session->step());
  const auto info = session_info(*session);
  auto builder = MetadataBuilder::make(MetadataForm::kBlockTables,
                                       {.requests = 16, .tokens = 512, .columns = 512});
  ASSERT_TRUE(builder);
  for (const auto& step : recorder.traces()) {
    for (std::size_t g = 0; g < info->layout.groups.size(); ++g) {
      const auto built = builder->build(step->metadata, static_cast<int>(g), batch_rules(*info));
      ASSERT_TRUE(built) << built.error().text();
      const auto& form = std::get<BlockTables>(built->form);
      const std::int64_t block = info->layout.groups[g].block_tokens;
      for (std::size_t t = 0; t < static_cast<std::size_t>(built->common.tokens); ++t) {
        const std::int64_t p = built->common.positions[t];
        const auto of = built->common.token_to_req[t];
        const std::int64_t id =
            form.tables[static_cast<std::size_t>(of * form.columns + p / block)];
        EXPECT_EQ(built->common.slots[t], id * block + p % block) << step->step << ", group " << g;
      }
    }
  }
}

}  // namespace attention_metadata_view_test
}  // namespace attnscope
