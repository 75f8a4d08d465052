// Linked reading: what is clicked in one panel is selected everywhere, and the sentences of the
// other panels follow.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "app/views/block_tables_view.h"
#include "app/views/cache_view.h"
#include "app/views/events_view.h"
#include "app/views/sink_view.h"
#include "app/views/window_view.h"
#include "engine/trace/tolerances.h"
#include "tests/ui/driven_app.h"

namespace attnscope::gui {
namespace driven_links_test {

bool shows(const std::string& screen, const std::string& text) {
  return screen.find(text) != std::string::npos;
}

// The cursor line and the sentences of block tables, window and sink, computed again from what is
// selected, are on the screen.
void expect_linked(DrivenApp& app, User& user) {
  const Workbench& bench = app.bench();
  const SessionInfo& info = *bench.snapshot()->info;
  const StepTrace& step = *bench.step();
  const Selection selection = bench.selection();
  const int layer = bench.cursor().layer;
  const std::string screen = user.screen();
  const std::int32_t request = bench.selected_request();
  EXPECT_TRUE(shows(screen, fmt::format("request {} \"{}\"  ·  token {}", request,
                                        info.request_names[static_cast<std::size_t>(request)],
                                        bench.selected_position())));
  const auto tables = block_tables_view({info, step, layer, selection.request, selection.position});
  EXPECT_TRUE(shows(screen, tables.sentence)) << tables.sentence;
  const WindowView window = window_view(info, step, layer, bench.selected_row(), selection.head);
  EXPECT_TRUE(shows(screen, window.sentence)) << window.sentence;
  const auto tolerances = Tolerances::load();
  ASSERT_TRUE(tolerances);
  const auto lse = tolerances->find(AS_OP_SPARSE_ATTENTION, "lse", "cpu", "lse");
  ASSERT_TRUE(lse);
  const SinkView sink = sink_view({info, step, layer, bench.selected_row(), *lse});
  const std::string words = sink_sentence(sink, selection.head);
  EXPECT_TRUE(shows(screen, words)) << words;
}

// Prefill: one step with many rows of three requests.
void go_to_prefill(DrivenApp& app, User& user) {
  ASSERT_TRUE(app->commands().run("cursor.goto=2/3/sparse_attention"));
  user.settle();
  ASSERT_NE(app.bench().step(), nullptr);
  user.show("window");
}

TEST(Links, ABlockOfATableSelectsItsOwnerGroupAndFirstToken) {
  DrivenApp app;
  app.drive([&](User& user) {
    go_to_prefill(app, user);
    user.look_at("block_tables");
    const auto groups = static_cast<int>(app.bench().snapshot()->info->layout.groups.size());
    ASSERT_GE(groups, 3);
    const std::size_t request = 0;
    for (int group = 0; group < groups; ++group) {
      SCOPED_TRACE(group);
      const std::string strip = fmt::format("$${}/$${}/##strip", request, group);
      user.ctx->ScrollToItemY(strip.c_str());
      user.wait(4);
      const ImRect at = user.rect(strip);
      const auto& table =
          app.bench().step()->requests[request].tables[static_cast<std::size_t>(group)];
      std::set<std::int32_t> clicked = {app.selection().block};
      std::erase_if(clicked, [&](std::int32_t block) {
        return std::find(table.begin(), table.end(), block) == table.end();
      });
      const int clicks = static_cast<int>(std::ceil((at.GetWidth() - 12) / 16));
      for (int i = 0; i < clicks; ++i) {
        const float x = at.Min.x + 8 + 16 * static_cast<float>(i);
        const Selection before = app.selection();
        // A longer sentence moves the strips down.
        user.click(ImVec2(x, user.rect(strip).Min.y + 8));
        const Selection now = app.selection();
        if (now == before) continue;  // a gap, a null entry, or the same block
        EXPECT_EQ(now.request, static_cast<std::int32_t>(request));
        EXPECT_EQ(now.group, group);
        EXPECT_NE(std::find(table.begin(), table.end(), now.block), table.end()) << now.block;
        EXPECT_GT(now.block, 0);
        EXPECT_GE(now.position, 0);
        clicked.insert(now.block);
      }
      const std::set<std::int32_t> blocks(table.begin(), table.end());
      const std::size_t real = blocks.size() - blocks.count(0);
      EXPECT_GE(clicked.size(), std::min<std::size_t>(real, 2)) << "of " << real << " blocks";
    }
    expect_linked(app, user);
  });
}

TEST(Links, ABlockOfThePoolMapSelectsWhatItHolds) {
  DrivenApp app;
  app.drive([&](User& user) {
    go_to_prefill(app, user);
    user.look_at("pool");
    const ImRect at = user.rect("##pool map");
    const StepTrace& step = *app.bench().step();
    std::set<std::int32_t> requests, blocks;
    for (const float y : {4.0f, 15.0f, 26.0f}) {
      std::int32_t last = 0;
      const int clicks = static_cast<int>(std::ceil((at.GetWidth() - 28) / 32));
      for (int i = 0; i < clicks; ++i) {
        const float x = at.Min.x + 24 + 32 * static_cast<float>(i);
        user.click(ImVec2(x, at.Min.y + y));
        const Selection now = app.selection();
        EXPECT_GE(now.block, last) << "blocks lie in the order of their ids";
        last = now.block;
        if (now.block <= 0) continue;
        blocks.insert(now.block);
        const BlockOwner owner = step.owners[static_cast<std::size_t>(now.block)];
        if (owner.request < 0) continue;
        EXPECT_EQ(now.request, owner.request) << "block " << now.block;
        EXPECT_EQ(now.group, owner.group);
        if (requests.insert(owner.request).second) expect_linked(app, user);
      }
    }
    EXPECT_GE(requests.size(), 2u);
    EXPECT_GT(blocks.size(), 20u);
  });
}

TEST(Links, ARequestIsSelectedByItsLineInTheTables) {
  DrivenApp app;
  app.drive([&](User& user) {
    go_to_prefill(app, user);
    user.look_at("block_tables");
    for (const std::int32_t request : {2, 1, 0}) {
      user.ctx->ItemClick(fmt::format("$${}/##request", request).c_str());
      user.wait(3);
      EXPECT_EQ(app.selection().request, request);
      EXPECT_EQ(app.bench().selected_request(), request);
      expect_linked(app, user);
    }
  });
}

// A request that is over has tables to be spoken of and no token to show: the line at the foot
// names it all the same, and whose token stands in its place.
TEST(Links, ARequestWithoutATokenIsNamedBelowToo) {
  DrivenApp app;
  app.drive([&](User& user) {
    app.bench().run_until("to the end", [](const Session&) { return false; });
    user.settle();
    const auto now = app.bench().shared_snapshot();
    std::int32_t over = -1;
    std::int64_t step = -1;
    for (const auto& trace : now->traces) {
      const std::int64_t tokens = trace->metadata.num_tokens_in_step();
      for (const RequestView& r : trace->requests) {
        bool computes = tokens == 0;
        for (std::int64_t row = 0; row < tokens; ++row) {
          computes = computes || trace->request_of(row) == r.request.id;
        }
        if (computes) continue;
        over = r.request.id;
        step = trace->step;
      }
    }
    ASSERT_GE(over, 0) << "every step computes tokens of every request";
    ASSERT_TRUE(app->commands().run(fmt::format("cursor.goto={}/1/sparse_attention", step)));
    user.settle();
    user.show("block_tables");
    user.look_at("block_tables");
    user.ctx->ItemClick(fmt::format("$${}/##request", over).c_str());
    user.wait(3);
    EXPECT_EQ(app.selection().request, over);
    EXPECT_NE(app.bench().selected_request(), over);
    const std::string named =
        fmt::format("request {} \"{}\", no token in this step; in its place", over,
                    now->info->request_names[static_cast<std::size_t>(over)]);
    EXPECT_TRUE(shows(user.screen(), named)) << named;
    const auto tables =
        block_tables_view({*now->info, *app.bench().step(), app.bench().cursor().layer, over, -1});
    EXPECT_TRUE(shows(user.screen(), tables.sentence)) << tables.sentence;
  });
}

TEST(Links, ASlotOfTheWindowSelectsItsBlockAndRow) {
  DrivenApp app;
  app.drive([&](User& user) {
    go_to_prefill(app, user);
    const Workbench& bench = app.bench();
    const WindowView view = window_view(*bench.snapshot()->info, *bench.step(),
                                        bench.cursor().layer, bench.selected_row(), 0);
    ASSERT_GT(view.slots.size(), 100u);
    const ImRect strip = user.rect("##slots");
    std::set<std::int32_t> rows;
    for (const float x : {0.2f, 0.4f, 0.6f, 0.8f}) {
      user.click(ImVec2(strip.Min.x + x * strip.GetWidth(), strip.Min.y + 10));
      const Selection now = app.selection();
      const bool known = std::any_of(
          view.slots.begin(), view.slots.end(),
          [&](const WindowSlot& slot) { return slot.block == now.block && slot.row == now.row; });
      EXPECT_TRUE(known) << now.block << ":" << now.row;
      EXPECT_EQ(now.group, view.group);
      rows.insert(now.row);
    }
    EXPECT_GE(rows.size(), 3u) << "different places are different slots";
    // The table behind it.

    const auto positions = user.numbers("##row ");
    ASSERT_GE(positions.size(), 2u);
    const auto slot = std::find_if(view.slots.begin(), view.slots.end(),
                                   [&](const WindowSlot& s) { return s.position == positions[1]; });
    ASSERT_NE(slot, view.slots.end());
    const WindowSlot second = *slot;
    user.click(fmt::format("**/##row {}", second.position), 0.05f, 0.5f);
    EXPECT_EQ(app.selection().block, second.block);
    EXPECT_EQ(app.selection().row, second.row);
    expect_linked(app, user);
    user.show("bytes");
    user.ctx->ItemClick("**/selected block");
    user.settle();
    const std::string screen = user.screen();
    EXPECT_TRUE(shows(screen, fmt::format("Block {} (", second.block)));
    EXPECT_TRUE(shows(screen, fmt::format("row {}, latent row", second.row)));
  });
}

TEST(Links, AnEntryOfTopKSelectsTheSlotItLivesIn) {
  DrivenApp app;
  app.drive([&](User& user) {
    user.show("top_k");
    user.click("**/##row 1", 0.05f, 0.5f);
    const Selection first = app.selection();
    EXPECT_EQ(first.entry, 1);
    EXPECT_GT(first.block, 0);
    EXPECT_EQ(first.row, 1);
    EXPECT_TRUE(shows(user.screen(), "entry 1: tokens 0-7"));
    // A click on its bar; the plot has entries from left to right.
    const ImRect plot = user.rect("##scores");
    user.click(ImVec2(plot.Min.x + 0.9f * plot.GetWidth(), plot.Min.y + 0.4f * plot.GetHeight()));
    const Selection second = app.selection();
    EXPECT_GT(second.entry, 25);
    EXPECT_EQ(second.row, static_cast<std::int32_t>(second.entry)) << "64 entries a block";
    EXPECT_EQ(second.block, first.block);
    EXPECT_TRUE(shows(user.screen(), fmt::format("entry {}: tokens", second.entry)));
    user.keys(ImGuiKey_E);
    EXPECT_EQ(app.selection().entry, second.entry + 1);
    user.ctx->ItemClick("**/By rank");
    user.wait(3);
    user.click(ImVec2(plot.Min.x + 0.12f * plot.GetWidth(), plot.Min.y + 0.4f * plot.GetHeight()));
    EXPECT_NE(app.selection().entry, second.entry + 1);
  });
}

TEST(Links, ARowOfTheErrorPanelLeadsToTheWorstElement) {
  DrivenApp app;
  app.drive([&](User& user) {
    user.look_at("error");
    const Place start = app.bench().cursor();
    user.ctx->ItemClick("**/wo_a##19");
    user.settle();
    EXPECT_EQ(app.bench().cursor(), (Place{start.step, start.layer, AS_OP_WO_A}));
    user.ctx->ItemClick("**/sparse_attention##17");
    user.settle();
    ASSERT_EQ(app.bench().cursor(), start);
    const OpTrace& op = *app.bench().op();
    // Which of both outputs has an element that differs by rounding is up to the numbers.
    const char* tap = op.result("lse")->worst ? "lse" : "o";
    const auto row = static_cast<std::size_t>(op.result(tap) - op.results.data());
    ASSERT_TRUE(op.results[row].worst.has_value()) << "some element differs by rounding";
    user.click(fmt::format("**/##row {}", row), 0.05f, 0.5f);
    EXPECT_EQ(app.selection().tap, tap);
    ASSERT_NE(app.bench().selected_tap(), nullptr);
    EXPECT_EQ(app.bench().selected_tap()->name, tap);
    user.ctx->ItemClick("Show the difference##error.show_difference");
    user.settle();
    const auto& worst = op.results[row].worst->index;  // token row, head
    EXPECT_EQ(app.selection().element, worst);
    EXPECT_EQ(app.selection().head, static_cast<int>(worst[1]));
    EXPECT_EQ(app.selection().request, app.bench().step()->request_of(worst[0]));
    EXPECT_TRUE(shows(user.screen(), fmt::format("{} [T", tap)));
  });
}

TEST(Links, ACellOfTheHeatMapSelectsTokenHeadAndDim) {
  DrivenApp app;
  app.drive([&](User& user) {
    user.show("tensor");
    const ImRect cells = user.rect("**/##cells");
    user.click(
        ImVec2(cells.Min.x + 0.5f * cells.GetWidth(), cells.Min.y + 0.9f * cells.GetHeight()));
    const Selection one = app.selection();
    ASSERT_EQ(one.element.size(), 3u);  // o: token, head, dim
    EXPECT_EQ(one.tap, "o");
    EXPECT_EQ(one.head, 3);
    EXPECT_EQ(one.head, static_cast<int>(one.element[1]));
    EXPECT_EQ(one.dim, one.element[2]);
    EXPECT_NEAR(static_cast<double>(one.dim), 256, 16);
    EXPECT_TRUE(shows(user.screen(), "head 3"));
    user.click(ImVec2(cells.Min.x + 0.25f * cells.GetWidth(), cells.Min.y + 2));
    EXPECT_EQ(app.selection().head, 0);
    EXPECT_NEAR(static_cast<double>(app.selection().dim), 128, 16);
    user.ctx->ItemClick("indices##tap_indices");
    user.settle();
    EXPECT_EQ(app.selection().tap, "indices");
    EXPECT_TRUE(shows(user.screen(), "indices [T"));
    user.ctx->ItemClick("**/numbers");
    user.wait(3);
    user.ctx->ItemClick("**/histogram");
    user.wait(3);
    EXPECT_EQ(app.selection().tap, "indices");
  });
}

TEST(Links, AHeadOfTheSinkPanelIsTheHeadOfEveryPanel) {
  DrivenApp app;
  app.drive([&](User& user) {
    user.show("window");
    for (const int head : {3, 2, 1}) {
      user.look_at("sink");
      user.ctx->ItemClick(fmt::format("**/head {}", head).c_str());
      user.wait(3);
      EXPECT_EQ(app.selection().head, head);
      expect_linked(app, user);
    }
  });
}

TEST(Links, ACardOfThePipelineIsTheCursorAndItsDoubleOpensTheTap) {
  DrivenApp app;
  app.drive([&](User& user) {
    const Place start = app.bench().cursor();
    user.look_at("pipeline");
    user.ctx->ItemClick("**/q_b_proj");
    user.settle();
    EXPECT_EQ(app.bench().cursor(), (Place{start.step, start.layer, AS_OP_Q_B_PROJ}));
    EXPECT_TRUE(shows(user.screen(), "q_b_proj"));
    user.show("bytes");
    user.look_at("pipeline");
    user.ctx->ItemDoubleClick("**/wo_b");
    user.settle();
    EXPECT_EQ(app.bench().cursor().op, AS_OP_WO_B);
    const ImGuiWindow* tensor = user.ctx->GetWindowByRef(("//" + user.window("tensor")).c_str());
    EXPECT_FALSE(tensor->Hidden) << "the tap is in front";
    user.look_at("pipeline");
    user.ctx->ItemClick("**/1");
    user.settle();
    EXPECT_EQ(app.bench().cursor().layer, 1);
  });
}

TEST(Links, ARowOfTheCachePanelSelectsItsBlock) {
  DrivenApp app;
  app.drive([&](User& user) {
    ASSERT_TRUE(app->commands().run("layout.cache"));
    ASSERT_TRUE(app->commands().run("cache.tab=free"));
    user.settle();
    user.show("cache");
    const std::vector<std::int64_t> rows = user.numbers("##row ");
    ASSERT_GE(rows.size(), 2u);
    const auto block = static_cast<std::int32_t>(rows[1]);
    user.click(fmt::format("**/##row {}", block), 0.05f, 0.5f);
    user.settle();
    EXPECT_EQ(app.selection().block, block);
    ASSERT_TRUE(app->commands().run("cache.tab=life"));
    user.wait(3);
    const BlockLife life = block_life(*app.bench().snapshot()->info, *app.bench().step(), block,
                                      kept_block_events(app.bench().snapshot()->steps));
    EXPECT_TRUE(shows(user.screen(), life.sentence)) << life.sentence;
  });
}

// Each part of the cache panel has the widths of its own columns, whatever was shown before.
TEST(Links, PartsOfTheCachePanelKeepTheirOwnWidths) {
  DrivenApp app;
  app.drive([&](User& user) {
    ASSERT_TRUE(app->commands().run("layout.cache"));
    for (const char* part : {"cache.tab=prefixes", "cache.tab=dead", "cache.tab=common"}) {
      ASSERT_TRUE(app->commands().run(part));
      user.wait(6);
    }
    user.look_at("cache");
    // 3 of 6.5 parts; 2 of 7.4 in the table of the prefixes.
    const float group = user.rect("**/##group").GetWidth();
    EXPECT_NEAR(user.rect("**/##ends because").GetWidth() / group, 3, 0.3);
  });
}

TEST(Links, AChipOfAnEventShowsItsKindAlone) {
  DrivenApp app;
  app.drive([&](User& user) {
    user.show("events");
    user.wait(3);
    const EventsView all = events_view(*app.bench().snapshot(), kAllEventKinds, 1 << 20);
    const auto finished = all.counts[static_cast<std::size_t>(EventKind::kFinish)];
    // "0 of N": N rows are there.
    user.ctx->ItemInputValue("**/##filter", "nothing like it");
    user.wait(3);
    const std::string every = fmt::format("0 of {}", all.rows.size());
    EXPECT_TRUE(shows(user.screen(), every)) << user.screen();
    user.ctx->ItemClick("**/###finish");
    user.wait(3);
    EXPECT_TRUE(shows(user.screen(), fmt::format("0 of {}\n", finished)) ||
                shows(user.screen(), fmt::format("0 of {} ", finished)))
        << user.screen();
    user.ctx->ItemClick("**/###finish");
    user.wait(3);
    EXPECT_TRUE(shows(user.screen(), every)) << "all again";
  });
}

TEST(Links, AnEventLeadsToItsPlaceAndItsFilterToFewer) {
  DrivenApp app;
  app.drive([&](User& user) {
    user.show("events");
    user.ctx->ItemInputValue("**/##filter", "finish");
    user.wait(3);
    EXPECT_TRUE(shows(user.screen(), "3 of ")) << "three requests have finished";
    user.ctx->ItemInputValue("**/##filter", "finish -short");
    user.wait(3);
    EXPECT_TRUE(shows(user.screen(), "2 of "));
    user.ctx->ItemInputValue("**/##filter", "nothing like it");
    user.wait(3);
    EXPECT_TRUE(shows(user.screen(), "0 of "));
    user.ctx->ItemInputValue("**/##filter", "allocate");
    user.wait(3);
    const std::vector<std::int64_t> rows = user.numbers("##row ");
    ASSERT_GE(rows.size(), 2u);
    const std::int64_t row = rows[1];  // the first may lie half below the header
    const EventsView view = events_view(*app.bench().snapshot(), kAllEventKinds, 1 << 20);
    const Event event = *view.rows[static_cast<std::size_t>(row)];
    EXPECT_EQ(event.kind, EventKind::kAllocate);
    user.click(fmt::format("**/##row {}", row), 0.05f, 0.5f);
    user.settle();
    EXPECT_EQ(app.selection().block, event.block);
    EXPECT_EQ(app.selection().request, event.request);
    EXPECT_EQ(app.bench().cursor().step, event.place.step);
  });
}

}  // namespace driven_links_test
}  // namespace attnscope::gui
