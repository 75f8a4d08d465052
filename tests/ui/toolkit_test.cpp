// Cell textures, widgets and the data table, drawn without a window.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <imgui_internal.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "app/gui/colour.h"
#include "app/gui/data_table.h"
#include "app/gui/heat_map.h"
#include "app/gui/icons.h"
#include "app/gui/platform.h"
#include "app/gui/pool_map.h"
#include "app/gui/tables_state.h"
#include "app/gui/widgets.h"
#include "tests/ui/headless.h"

namespace attnscope::gui {
namespace toolkit_test {

int textures() { return ImGui::GetCurrentContext()->UserTextures.Size; }

void draw_all(const CellTexture& picture) {
  picture.draw(ImGui::GetWindowDrawList(), {10, 10}, {90, 90}, 0, 0,
               static_cast<float>(picture.width()), static_cast<float>(picture.height()));
}

TEST(WindowPlaces, AreTakenAgainWhereTheyCanBeReached) {
  const Area screens[] = {{0, 0, 1920, 1080}, {1920, 200, 1280, 1024}};
  const auto reached = [&](int x, int y) { return within_reach({x, y, 1600, 1000}, screens); };
  EXPECT_TRUE(reached(0, 0));
  EXPECT_TRUE(reached(-1400, 500)) << "200 pixels of it are there";
  EXPECT_FALSE(reached(-1500, 500));
  EXPECT_TRUE(reached(2500, 300)) << "on the second screen";
  EXPECT_TRUE(reached(1800, 10)) << "its left 120 pixels";
  EXPECT_FALSE(reached(1900, 10)) << "beside the first and above the second";
  EXPECT_FALSE(reached(0, -30)) << "its title cannot be taken hold of";
  EXPECT_FALSE(reached(0, 1070));
  EXPECT_FALSE(reached(3150, 300));
  EXPECT_FALSE(within_reach({0, 0, 1600, 1000}, {})) << "no screen is known";
}

TEST(WindowPlaces, AWindowIsNoLargerThanAScreen) {
  const auto size = [](Area window, std::initializer_list<Area> screens) {
    const Area area = fitted(window, {screens.begin(), screens.end()});
    return std::pair(area.width, area.height);
  };
  const Area small{0, 24, 1280, 696}, tall{1280, 0, 1080, 1920};
  EXPECT_EQ(size({0, 0, 1600, 1000}, {small}), std::pair(1280, 696));
  EXPECT_EQ(size({0, 0, 1600, 1000}, {small, tall}), std::pair(1280, 1000));
  EXPECT_EQ(size({0, 0, 800, 600}, {small}), std::pair(800, 600));
  EXPECT_EQ(size({0, 0, 1600, 1000}, {}), std::pair(1600, 1000));
}

TEST(LaneSigns, AUsersPluginIsNoBug) {
  EXPECT_STREQ(lane_sign("plugin:mine"), icon::kPlug);
  EXPECT_STREQ(lane_sign("mutant:sink_scaled"), icon::kBug);
  EXPECT_STREQ(lane_sign("cuda"), icon::kLayers);
}

// How far two colours are apart, 0 to 3.
double apart(ImU32 a, ImU32 b) {
  double sum = 0;
  for (const int shift : {0, 8, 16}) {
    sum += std::abs(static_cast<int>((a >> shift) & 255) - static_cast<int>((b >> shift) & 255));
  }
  return sum / 255;
}

TEST(PoolShades, GroupsOfARequestAreToldApart) {
  Headless headless;
  for (const char* name : {"dark", "light"}) {
    apply_theme(*load_theme(name), 1);
    for (std::int32_t request = 0; request < 8; ++request) {
      for (int a = 0; a < 5; ++a) {
        for (int b = a + 1; b < 5; ++b) {
          EXPECT_GT(apart(group_colour(request, a, 5), group_colour(request, b, 5)), 0.12)
              << name << " request " << request << " groups " << a << " and " << b;
        }
      }
    }
  }
}

TEST(BlockCells, HaveTheColourOfWhoHoldsTheBlock) {
  Headless headless;
  StepTrace step;
  step.owners.resize(4);
  step.owners[2].request = 1;
  step.owners[3].request = 0;
  EXPECT_EQ(block_cell(step, 2).colour, owner_colour(1));
  EXPECT_EQ(block_cell(step, 3).colour, owner_colour(0));
  EXPECT_EQ(block_cell(step, 2).text, "2");
  for (const std::int32_t block : {-1, 0, 1, 9}) EXPECT_EQ(block_cell(step, block).colour, 0u);
}

// Zoomed into one corner, a cell that is selected elsewhere comes into view; or large enough to be
// read.
TEST(HeatMaps, ShowTheCellThatIsSelected) {
  Headless headless;
  HeatMap map;
  HeatMapData data;
  data.rows = data.columns = 300;
  data.value = [](std::int64_t r, std::int64_t c) { return static_cast<double>(r + c); };
  const auto picked = [&](std::int64_t row, std::int64_t column, ImVec2 mouse) {
    HeatMapEvents events;
    for (int i = 0; i < 12; ++i) {
      ImGui::GetIO().AddMousePosEvent(mouse.x, mouse.y);
      headless.frame([&] { events = map.draw("##map", data, {600, 500}, row, column, false); });
    }
    return std::pair(events.row, events.column);
  };
  const ImVec2 middle(300, 270);
  const auto whole = picked(-1, -1, middle);
  EXPECT_NEAR(static_cast<double>(whole.first), 150, 20) << "all of it";
  map.zoom_to_selected();
  const auto near = picked(250, 40, middle);
  EXPECT_NEAR(static_cast<double>(near.first), 250, 20);
  EXPECT_NEAR(static_cast<double>(near.second), 40, 30);
  const auto there = picked(100, 200, middle);
  EXPECT_NEAR(static_cast<double>(there.first), 100, 20);
  EXPECT_NEAR(static_cast<double>(there.second), 200, 30);
}

TEST(Frames, OfTextLeaveItsLettersFree) {
  Headless headless;
  apply_theme(*load_theme("dark"), 1);
  for (const auto draw : {draw_selected_text, draw_hovered_text}) {
    headless.frame([&] {
      const ImDrawList& list = *ImGui::GetWindowDrawList();
      const int first = list.VtxBuffer.Size;
      const ImVec2 min(40, 40), max(200, 56);
      draw(ImGui::GetWindowDrawList(), min, max);
      ASSERT_GT(list.VtxBuffer.Size, first);
      for (int i = first; i < list.VtxBuffer.Size; ++i) {
        const ImVec2 at = list.VtxBuffer[i].pos;
        EXPECT_TRUE(at.y <= min.y || at.y >= max.y) << at.y;
      }
    });
  }
}

TEST(CellTextures, AreMadeUpdatedAndFreed) {
  Headless headless;
  auto picture = std::make_optional<CellTexture>();
  EXPECT_TRUE(picture->empty());
  headless.frame([&] { draw_all(*picture); });
  EXPECT_EQ(textures(), 0);

  picture->update(4, 2, std::vector<ImU32>(8, IM_COL32_WHITE));
  EXPECT_EQ(picture->width(), 4);
  EXPECT_EQ(picture->height(), 2);
  for (int i = 0; i < 3; ++i) headless.frame([&] { draw_all(*picture); });
  EXPECT_EQ(textures(), 1);
  EXPECT_EQ(headless.updates, 0) << "nothing is sent again while nothing changes";

  picture->update(4, 2, std::vector<ImU32>(8, IM_COL32_BLACK));
  headless.frame([&] { draw_all(*picture); });
  EXPECT_EQ(headless.updates, 1);
  const ImTextureData* data = ImGui::GetCurrentContext()->UserTextures[0];
  EXPECT_EQ(reinterpret_cast<const ImU32*>(data->Pixels)[7], IM_COL32_BLACK);

  picture->update(5, 5, std::vector<ImU32>(25, IM_COL32_BLACK));  // another size: a new one
  headless.frame([&] { draw_all(*picture); });
  for (int i = 0; i < 5; ++i) headless.frame([&] { draw_all(*picture); });
  EXPECT_EQ(textures(), 1);

  picture.reset();
  for (int i = 0; i < 5; ++i) headless.frame([] {});
  EXPECT_EQ(textures(), 0);
}

TEST(CellTextures, OfAWrongSizeAreEmpty) {
  Headless headless;
  CellTexture picture;
  for (const auto& [w, h, cells] : std::initializer_list<std::tuple<int, int, std::size_t>>{
           {0, 0, 0}, {-1, 4, 4}, {4, 4, 15}, {5000, 1, 5000}}) {
    picture.update(2, 2, std::vector<ImU32>(4));
    picture.update(w, h, std::vector<ImU32>(cells));
    EXPECT_TRUE(picture.empty()) << w << " x " << h;
    EXPECT_EQ(picture.width(), 0);
  }
  headless.frame([&] { draw_all(picture); });
}

TEST(CellTextures, OutliveTheirContext) {
  CellTexture kept, dropped;
  {
    Headless headless;
    kept.update(2, 2, std::vector<ImU32>(4));
    dropped.update(2, 2, std::vector<ImU32>(4));
    for (int i = 0; i < 2; ++i) {
      headless.frame([&] {
        draw_all(kept);
        draw_all(dropped);
      });
    }
    dropped = CellTexture();  // still known to the renderer when the context ends
  }
  Headless next;
  next.frame([&] { draw_all(kept); });
  EXPECT_EQ(textures(), 1);
  EXPECT_EQ(ImGui::GetCurrentContext()->UserTextures[0]->Status, ImTextureStatus_OK);
}

TEST(CellTextures, MoveWithoutBeingSentAgain) {
  Headless headless;
  std::vector<CellTexture> pictures(1);
  pictures[0].update(2, 2, std::vector<ImU32>(4));
  headless.frame([&] { draw_all(pictures[0]); });
  pictures.resize(40);
  CellTexture moved = std::move(pictures[0]);
  for (int i = 0; i < 3; ++i) headless.frame([&] { draw_all(moved); });
  EXPECT_EQ(textures(), 1);
}

// One context, a workbench without a session, and some commands.
class Widgets : public ::testing::Test {
 protected:
  Widgets() {
    for (const char* id : {"step.forward", "step.back"}) {
      Command command;
      command.id = id;
      command.title = std::string("Title of ") + id;
      command.group = "Session";
      command.shortcut = id == std::string("step.back") ? "Ctrl+Left" : "";
      command.argument = "N";
      command.run = [this, id](std::string_view value) -> Result<void> {
        ran_.push_back(std::string(id) + "=" + std::string(value));
        return {};
      };
      command.enabled = [this] { return enabled_; };
      command.why_disabled = "no session is open";
      commands_.add(std::move(command));
    }
  }
  Headless headless_;
  Workbench bench_{Workbench::Options{}};
  CommandRegistry commands_;
  Settings settings_;
  Ui ui_{bench_, commands_, settings_};
  bool enabled_ = true;
  std::vector<std::string> ran_;
};

ImVec2 middle_of_last_item() {
  const ImVec2 a = ImGui::GetItemRectMin(), b = ImGui::GetItemRectMax();
  return {(a.x + b.x) / 2, (a.y + b.y) / 2};
}

TEST_F(Widgets, CommandButtonsRunTheirCommandUnlessItIsDisabled) {
  ImVec2 at;
  const auto draw = [&] {
    command_button(ui_, "step.forward");
    at = middle_of_last_item();
    EXPECT_EQ(ImGui::GetItemID(), ImGui::GetID("Title of step.forward##step.forward"));
    EXPECT_FALSE(command_button(ui_, "unknown"));
  };
  headless_.frame(draw);
  headless_.click(at, draw);
  EXPECT_EQ(ran_, (std::vector<std::string>{"step.forward="}));
  enabled_ = false;
  headless_.click(at, draw);
  EXPECT_EQ(ran_.size(), 1u);
}

TEST_F(Widgets, EmptyStatesOfferTheCommandWithItsValue) {
  ImVec2 at;
  const auto draw = [&] {
    empty_state(ui_, "Nothing was computed yet.", "step.back=3");
    at = middle_of_last_item();
  };
  headless_.frame(draw);
  headless_.click(at, draw);
  EXPECT_EQ(ran_, (std::vector<std::string>{"step.back=3"}));
}

TEST_F(Widgets, SegmentsSwitchAndWrapInNarrowWindows) {
  const char* labels[] = {"value", "reference", "difference"};
  int current = 0;
  bool changed = false;
  std::array<ImVec2, 3> at{};
  const auto draw = [&] {
    changed |= segmented("view", &current, labels, 3);
    at[2] = middle_of_last_item();
  };
  headless_.frame(draw);
  headless_.click(at[2], draw);
  EXPECT_EQ(current, 2);
  EXPECT_TRUE(changed);
  changed = false;
  headless_.click(at[2], draw);
  EXPECT_FALSE(changed) << "it was chosen already";
  const float wide = at[2].y;
  headless_.frame(draw, {90, 300});
  EXPECT_GT(at[2].y, wide);
}

// One line, however narrow; a click unfolds it, another folds it again.
TEST_F(Widgets, SentencesUnfold) {
  const std::string text =
      "Window of token 2051: positions 1924-2051 in blocks 41, 57 (SWA); 30 table entries before "
      "them are null and were not read; this goes on so that no window of a test holds it.";
  float height = 0;
  ImVec2 at;
  Verdict verdict = Verdict::kEqual;
  const auto draw = [&] {
    const float y = ImGui::GetCursorPosY();
    sentence(text, verdict);
    height = ImGui::GetCursorPosY() - y;
    at = ImVec2(ImGui::GetWindowPos().x + 100, ImGui::GetWindowPos().y + y + 8);
  };
  headless_.frame(draw, {2000, 300});
  const float line = height;
  headless_.frame(draw, {300, 300});
  EXPECT_FLOAT_EQ(height, line);
  headless_.click(at, draw);
  headless_.frame(draw, {300, 300});
  EXPECT_GT(height, 2 * line);
  headless_.click(at, draw);
  headless_.frame(draw, {300, 300});
  EXPECT_FLOAT_EQ(height, line);
  unfold_sentences(true);
  headless_.frame(draw, {300, 300});
  EXPECT_FLOAT_EQ(height, line) << "what the user folded stays folded";
  verdict = Verdict::kWrong;
  unfold_sentences(false);
  headless_.frame(draw, {300, 300});
  EXPECT_GT(height, 2 * line) << "what is wrong is told whole";
}

TEST_F(Widgets, SentencesBeginAsTheSettingsSay) {
  float height = 0;
  const auto draw = [&] {
    const float y = ImGui::GetCursorPosY();
    sentence("a sentence that is longer than the narrow window in which it stands");
    height = ImGui::GetCursorPosY() - y;
  };
  headless_.frame(draw, {200, 300});
  const float line = height;
  unfold_sentences(true);
  headless_.frame(draw, {200, 300});
  unfold_sentences(false);
  EXPECT_GT(height, 2 * line);
}

// Nothing may be cut: in a narrow window text takes more lines.
TEST_F(Widgets, ParagraphsWrap) {
  const std::string text =
      "Window of token 2051: positions 1924-2051 in blocks 41, 57 (SWA); 30 table entries before "
      "them are null and were not read.";
  float wide = 0, narrow = 0;
  const auto draw = [&](float& height) {
    return [&] {
      const float y = ImGui::GetCursorPosY();
      paragraph(text, Verdict::kWrong);
      height = ImGui::GetCursorPosY() - y;
      EXPECT_LE(ImGui::GetItemRectMax().x, ImGui::GetWindowSize().x + 1);
    };
  };
  headless_.frame(draw(wide), {1200, 300});
  headless_.frame(draw(narrow), {200, 300});
  EXPECT_GT(narrow, 3 * wide);
}

TEST_F(Widgets, EverythingDrawsAtAnySize) {
  for (const float scale : {0.75f, 1.0f, 2.0f}) {
    for (const ImVec2 size : {ImVec2(60, 40), ImVec2(300, 200), ImVec2(1200, 700)}) {
      apply_theme(*load_theme(scale == 1 ? "light" : "dark"), scale);
      const auto draw = [&] {
        sentence("", Verdict::kNearTie);
        for (int i = 0; i < kVerdicts; ++i) verdict_chip(static_cast<Verdict>(i));
        number_text("-1.235e-4");
        number_text("7", 40, theme().bad);
        field("label", "value");
        legend(theme().good, "good");
        legend(theme().none, "null", true);
        legend(theme().none, "free", false, true);
        command_button(ui_, "step.back");
        ImDrawList* list = ImGui::GetWindowDrawList();
        for (const ImVec2 max : {ImVec2(10, 10), ImVec2(11, 60), ImVec2(300, 90)}) {
          draw_hatch(list, {10, 10}, max);
          draw_free(list, {10, 10}, max);
          draw_selected(list, {10, 10}, max);
          draw_hovered(list, {10, 10}, max);
          draw_cell_text(list, {10, 10}, max, theme().text, "0.3125");
        }
        tooltip("first line 1.2e-4\nsecond, which is much longer than the first one is\n\nlast");
        empty_state(ui_, "Why there is nothing to be seen here.", "step.forward");
      };
      headless_.frame(draw, size);
      headless_.frame(draw, size);
    }
  }
}

TEST_F(Widgets, TextOnAColourIsTheOneThatReads) {
  EXPECT_EQ(text_on(IM_COL32(255, 255, 0, 255)), IM_COL32_BLACK);
  EXPECT_EQ(text_on(IM_COL32(20, 20, 120, 255)), IM_COL32_WHITE);
  EXPECT_EQ(text_on(IM_COL32(255, 255, 255, 10)), IM_COL32_WHITE) << "hardly there: the panel's";
}

// A sign on a cell reads on every verdict, in both themes.
TEST_F(Widgets, InkReadsOnEveryVerdict) {
  for (const char* name : {"dark", "light", "high_contrast"}) {
    apply_theme(*load_theme(name), 1);
    EXPECT_EQ(ink_on(theme().panel), theme().text);
    for (int i = 0; i < kVerdicts; ++i) {
      const ImU32 colour = verdict_colour(static_cast<Verdict>(i));
      EXPECT_GE(contrast(ink_on(colour), colour), 3.5f) << name << ", " << i;
    }
  }
  apply_theme(*load_theme("dark"), 1);
}

// Hatching stays inside its cell.
TEST_F(Widgets, HatchingIsClipped) {
  headless_.frame([] {
    const ImVector<ImDrawVert>& vertices = ImGui::GetWindowDrawList()->VtxBuffer;
    const int before = vertices.Size;
    draw_hatch(ImGui::GetWindowDrawList(), {100, 50}, {160, 90});
    EXPECT_GT(vertices.Size, before + 40);
    for (int i = before; i < vertices.Size; ++i) {
      EXPECT_GE(vertices[i].pos.x, 98);
      EXPECT_LE(vertices[i].pos.x, 162);
      EXPECT_GE(vertices[i].pos.y, 48);
      EXPECT_LE(vertices[i].pos.y, 92);
    }
  });
}

class Tables : public ::testing::Test {
 protected:
  void fill(std::uint64_t version, int rows) {
    table_.begin(version);
    if (!table_.stale()) return;
    ++built_;
    table_.columns({{"block", true, 1, "Physical block."}, {"owner"}});
    for (int i = 0; i < rows; ++i) {
      TableCell number{fmt::format("{}", i * 7 % rows), 0, static_cast<double>(i * 7 % rows), true};
      if (i % 10 == 3) number = {"-"};
      table_.row({number, {fmt::format("owner {}, \"x\"", i % 3)}}, 100 + i);
    }
  }
  std::function<void()> draw(std::uint64_t version, int rows) {
    return [this, version, rows] {
      fill(version, rows);
      top_ = ImGui::GetCursorScreenPos();
      if (const auto key = table_.draw("t", {0, 0}, selected_)) clicked_ = key;
    };
  }
  // Of the line below the header, and of the header itself (line -1).
  ImVec2 line(int i) const {
    const ImGuiStyle& s = ImGui::GetStyle();
    const float height = ImGui::GetFontSize() + 2 * s.CellPadding.y;
    const float bar = ImGui::GetFontSize() + 2 * s.FramePadding.y + s.ItemSpacing.y;
    return {top_.x + 20, top_.y + bar + height * (static_cast<float>(i) + 1.5f)};
  }
  std::vector<std::string> column(int wanted) const {
    std::vector<std::string> out;
    const std::string csv = table_.csv();
    for (std::size_t at = csv.find('\n') + 1; at < csv.size();) {
      const std::size_t end = csv.find('\n', at);
      const std::string row = csv.substr(at, end - at);
      const std::size_t comma = row.find(',');
      out.push_back(wanted == 0 ? row.substr(0, comma) : row.substr(comma + 1));
      at = end + 1;
    }
    return out;
  }

  Headless headless_;
  DataTable table_;
  ImVec2 top_;
  int built_ = 0;
  std::int64_t selected_ = -1;
  std::optional<std::int64_t> clicked_;
};

TEST_F(Tables, AreBuiltOncePerVersion) {
  for (int i = 0; i < 3; ++i) headless_.frame(draw(1, 20));
  EXPECT_EQ(built_, 1);
  headless_.frame(draw(2, 5));
  EXPECT_EQ(built_, 2);
  EXPECT_EQ(table_.visible_rows(), 5);
}

TEST_F(Tables, CsvIsQuotedAndExact) {
  table_.begin(1);
  table_.columns({{"time (µs)", true}, {"a,b"}});
  table_.row({{"1.2", 0, 1.25, true, "1.25"}, {"say \"x\""}}, 1);
  table_.row({{"2"}}, 2);
  EXPECT_EQ(table_.csv(), "time (µs),\"a,b\"\n1.25,\"say \"\"x\"\"\"\n2,\n");
  EXPECT_EQ(csv_field("plain"), "plain");
  EXPECT_EQ(csv_field("two\nlines"), "\"two\nlines\"");
}

TEST_F(Tables, AClickReturnsTheKey) {
  headless_.frame(draw(1, 20));
  headless_.click(line(2), draw(1, 20));
  ASSERT_TRUE(clicked_);
  EXPECT_EQ(*clicked_, 102);
}

TEST_F(Tables, HeadersSortByNumberAndWhatHasNoneComesLast) {
  headless_.frame(draw(1, 20));
  headless_.click(line(-1), draw(1, 20));
  auto first = column(0);
  EXPECT_EQ(first[0], "0");
  EXPECT_EQ(first[1], "2");  // 1 is one of those without a number
  EXPECT_EQ(first[18], "-");
  EXPECT_EQ(first[19], "-");
  headless_.click(line(-1), draw(1, 20));
  first = column(0);
  EXPECT_EQ(first[0], "19");
  EXPECT_EQ(first[19], "-");
  headless_.frame(draw(2, 30));  // the order stays when the rows change
  EXPECT_EQ(column(0)[0], "29");
}

TEST_F(Tables, FilterTakesWordsAndLeavesOut) {
  headless_.frame(draw(1, 30));
  headless_.click({top_.x + 20, top_.y + 8}, draw(1, 30));
  ImGui::GetIO().AddInputCharactersUTF8("OWNER 1");
  for (int i = 0; i < 10; ++i) headless_.frame(draw(1, 30));
  EXPECT_LT(table_.visible_rows(), 30);
  EXPECT_GE(table_.visible_rows(), 10);
  ImGui::GetIO().AddInputCharactersUTF8(" -\"x\"");
  for (int i = 0; i < 10; ++i) headless_.frame(draw(1, 30));
  EXPECT_EQ(table_.visible_rows(), 0);
}

TEST_F(Tables, CtrlCCopiesWhileHovered) {
  headless_.frame(draw(1, 20));
  headless_.press(ImGuiMod_Ctrl, ImGuiKey_C, draw(1, 20));
  EXPECT_TRUE(headless_.clipboard.empty()) << "the mouse is elsewhere";
  headless_.move_to(line(2), draw(1, 20));
  headless_.press(ImGuiMod_Ctrl, ImGuiKey_C, draw(1, 20));
  EXPECT_EQ(headless_.clipboard, table_.csv());
}

TEST_F(Tables, OnlyVisibleRowsAreDrawn) {
  headless_.frame(draw(1, 100000));
  headless_.frame(draw(1, 100000));
  EXPECT_EQ(table_.visible_rows(), 100000);
  EXPECT_LT(ImGui::GetDrawData()->TotalVtxCount, 20000);
}

// Whatever the weights: on one line where there is room, else on two.
TEST_F(Tables, TitlesAreWholeAsFarAsThereIsRoom) {
  const auto draw = [&](float width) {
    return [&, width] {
      table_.begin(1);
      if (table_.stale()) {
        table_.columns({{"position / entry", true, 0.1f}, {"max", true, 0.1f}, {"what", false, 4}});
        table_.row({{"1"}, {"2"}, {"three"}}, 1);
      }
      table_.draw("t", {width, 0}, -1);
    };
  };
  for (const float width : {700.0f, 300.0f, 180.0f, 170.0f, 500.0f}) {
    for (int i = 0; i < 3; ++i) headless_.frame(draw(width));
    EXPECT_EQ(table_.cut_titles(), std::vector<std::string>{}) << width;
  }
  for (int i = 0; i < 3; ++i) headless_.frame(draw(100));
  EXPECT_FALSE(table_.cut_titles().empty());
  headless_.frame(draw(700));
  EXPECT_EQ(table_.cut_titles(), std::vector<std::string>{}) << "in the first frame";
}

TEST_F(Tables, TextSortsDigitsByValue) {
  const auto draw = [&] {
    table_.begin(1);
    if (table_.stale()) {
      table_.columns({{"name"}});
      for (const char* name : {"layer 10", "layer 2", "Layer 02", "", "layer 2a", "µ"}) {
        table_.row({{name}}, 1);
      }
    }
    top_ = ImGui::GetCursorScreenPos();
    table_.draw("t", {0, 0}, -1);
  };
  headless_.frame(draw);
  headless_.click(line(-1), draw);
  EXPECT_EQ(table_.csv(), "name\n\nlayer 2\nLayer 02\nlayer 2a\nlayer 10\nµ\n");
}

}  // namespace toolkit_test
}  // namespace attnscope::gui
