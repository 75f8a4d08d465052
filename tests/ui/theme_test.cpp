// Themes, colour maps and fonts.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "app/gui/colour.h"
#include "app/gui/icons.h"
#include "tests/ui/headless.h"

namespace attnscope::gui {
namespace theme_test {

namespace fs = std::filesystem;

// Colours as a reader without one kind of cone sees them: Machado, Oliveira and Fernandes, "A
// physiologically-based model for simulation of color vision deficiency", 2009, severity 1; on
// linear light.
using Matrix = std::array<std::array<float, 3>, 3>;
constexpr Matrix kNormal = {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
constexpr Matrix kProtanopia = {{{0.152286f, 1.052583f, -0.204868f},
                                 {0.114503f, 0.786281f, 0.099216f},
                                 {-0.003882f, -0.048116f, 1.051998f}}};
constexpr Matrix kDeuteranopia = {{{0.367322f, 0.860646f, -0.227968f},
                                   {0.280085f, 0.672501f, 0.047413f},
                                   {-0.011820f, 0.042940f, 0.968881f}}};

ImU32 as_seen(ImU32 colour, const Matrix& matrix) {
  std::array<float, 3> in{}, out{};
  for (std::size_t i = 0; i < 3; ++i) {
    const float c = static_cast<float>((colour >> (8 * i)) & 0xff) / 255;
    in[i] = c <= 0.04045f ? c / 12.92f : std::pow((c + 0.055f) / 1.055f, 2.4f);
  }
  ImU32 seen = IM_COL32_A_MASK;
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) out[i] += matrix[i][j] * in[j];
    const float c = std::clamp(out[i], 0.0f, 1.0f);
    const float s = c <= 0.0031308f ? c * 12.92f : 1.055f * std::pow(c, 1 / 2.4f) - 0.055f;
    seen |= static_cast<ImU32>(std::lround(s * 255)) << (8 * i);
  }
  return seen;
}

float distance(ImU32 a, ImU32 b) {
  const Lab x = to_lab(a), y = to_lab(b);
  return std::sqrt((x.l - y.l) * (x.l - y.l) + (x.a - y.a) * (x.a - y.a) +
                   (x.b - y.b) * (x.b - y.b));
}

void expect_apart(const std::vector<ImU32>& colours, const Matrix& matrix, float least) {
  for (std::size_t i = 0; i < colours.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_GE(distance(as_seen(colours[i], matrix), as_seen(colours[j], matrix)), least)
          << "colours " << j << " and " << i;
    }
  }
}

class Themes : public ::testing::TestWithParam<const char*> {
 protected:
  Theme theme_ = *load_theme(GetParam());
};

TEST_P(Themes, TextReadsWell) {
  const Theme& t = theme_;
  for (const ImU32 background : {t.surface, t.panel, t.raised}) {
    EXPECT_GE(contrast(t.text, background), 10);
    EXPECT_GE(contrast(t.text_dim, background), 4.5);
    EXPECT_GE(contrast(t.text_faint, background), 3.9);
  }
  EXPECT_GE(contrast(t.text_faint, t.panel), 4.5);
}

// In tables, on cards and in a selected row, where dark surfaces leave red and violet less room.
TEST_P(Themes, WordsOfAVerdictReadWell) {
  Headless headless;
  apply_theme(theme_, 1);
  const Theme& t = theme_;
  const ImU32 chosen =
      over(ImGui::ColorConvertFloat4ToU32(ImGui::GetStyle().Colors[ImGuiCol_Header]), t.panel);
  EXPECT_GE(distance(chosen, t.panel), 0.05f);
  std::vector<ImU32> words = {t.warn, t.accent, t.text_dim};
  for (int i = 0; i < kVerdicts; ++i) words.push_back(verdict_colour(static_cast<Verdict>(i)));
  for (const ImU32 word : words) {
    for (const ImU32 background : {t.panel, t.raised}) EXPECT_GE(contrast(word, background), 4.5);
    EXPECT_GE(contrast(word, chosen), t.dark ? 3.9 : 4.5);
  }
}

TEST_P(Themes, FieldsAndButtonsAreToldFromThePanel) {
  Headless headless;
  apply_theme(theme_, 1);
  for (const ImGuiCol what : {ImGuiCol_FrameBg, ImGuiCol_Button}) {
    const ImU32 colour = ImGui::ColorConvertFloat4ToU32(ImGui::GetStyle().Colors[what]);
    EXPECT_GE(contrast(colour, theme_.panel), 1.1);
    EXPECT_GE(contrast(theme_.text_dim, colour), 4.5);
  }
}

TEST_P(Themes, VerdictsAndSelectionStayApartForAllReaders) {
  const Theme& t = theme_;
  const std::vector<ImU32> meanings = {t.good, t.warn, t.bad, t.tie, t.none, t.accent};
  expect_apart(meanings, kNormal, 0.12f);
  expect_apart(meanings, kProtanopia, 0.035f);
  expect_apart(meanings, kDeuteranopia, 0.045f);
}

// A format's rounding is healthy: nearer to what is right than to what needs a look, and readable.
TEST_P(Themes, QuantisationIsAMutedRelativeOfGreen) {
  apply_theme(theme_, 1);
  const ImU32 calm = verdict_colour(Verdict::kQuantisation);
  EXPECT_NE(calm, verdict_colour(Verdict::kRounding));
  EXPECT_LT(distance(calm, theme_.good), distance(calm, theme_.warn));
  EXPECT_GE(distance(calm, theme_.warn), 0.12f);
  EXPECT_GE(contrast(calm, theme_.panel), 4);
}

TEST_P(Themes, OwnersStayApartForAllReaders) {
  ASSERT_EQ(theme_.owners.size(), 8u);
  expect_apart(theme_.owners, kNormal, 0.13f);
  expect_apart(theme_.owners, kProtanopia, 0.08f);
  expect_apart(theme_.owners, kDeuteranopia, 0.09f);
  for (const ImU32 owner : theme_.owners) EXPECT_GE(contrast(owner, theme_.panel), 1.5f);
}

TEST_P(Themes, SignedMapIsGreyAtZeroAndSymmetricInStrength) {
  apply_theme(theme_, 1);
  EXPECT_EQ(signed_colour(0), theme_.surface);
  EXPECT_EQ(signed_colour(-0.0f), theme_.surface);
  EXPECT_EQ(signed_colour(std::numeric_limits<float>::quiet_NaN()), theme_.surface);
  EXPECT_EQ(signed_colour(-5), signed_colour(-1));
  float before = 0;
  for (const float unit : {0.1f, 0.3f, 0.6f, 1.0f}) {
    const float plus = distance(signed_colour(unit), theme_.surface);
    EXPECT_GT(plus, before);
    EXPECT_NEAR(distance(signed_colour(-unit), theme_.surface) / plus, 1, 0.5);
    before = plus;
  }
}

TEST_P(Themes, OwnersGoOnByHue) {
  apply_theme(theme_, 1);
  EXPECT_EQ(owner_colour(-1), theme_.none);
  EXPECT_EQ(owner_colour(3), theme_.owners[3]);
  for (int i = 8; i < 200; ++i) EXPECT_NE(owner_colour(i), owner_colour(i + 1)) << i;
  EXPECT_NE(owner_colour(std::numeric_limits<int>::max()), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, Themes, ::testing::Values("dark", "light", "high_contrast"),
                         [](const auto& chosen) { return std::string(chosen.param); });

TEST(ColourMaps, MagnitudeGrowsLighterEvenly) {
  for (const bool grey : {false, true}) {
    use_grey_magnitude(grey);
    float before = -1;
    for (int i = 0; i <= 20; ++i) {
      const float lightness = to_lab(magnitude_colour(static_cast<float>(i) / 20)).l;
      EXPECT_GT(lightness, before + 0.02f) << i;
      EXPECT_LT(lightness, before + (i == 0 ? 2 : 0.06f)) << i;
      before = lightness;
    }
    EXPECT_EQ(magnitude_colour(-1), magnitude_colour(0));
    EXPECT_EQ(magnitude_colour(std::numeric_limits<float>::infinity()), magnitude_colour(1));
    EXPECT_EQ(magnitude_colour(std::numeric_limits<float>::quiet_NaN()), magnitude_colour(0));
  }
  use_grey_magnitude(false);
}

TEST(Colours, TwoLayersLookAsDrawnOneAfterTheOther) {
  const ImU32 colours[] = {with_alpha(rgb(0xffd166), 0.35f), with_alpha(rgb(0x9aa4b2), 0.3f),
                           rgb(0x3b82f6), 0};
  for (const ImU32 front : colours) {
    for (const ImU32 back : colours) {
      const ImU32 once = over(layered(front, back), rgb(0x14171c));
      const ImU32 twice = over(front, over(back, rgb(0x14171c)));
      for (int shift : {IM_COL32_R_SHIFT, IM_COL32_G_SHIFT, IM_COL32_B_SHIFT}) {
        EXPECT_NEAR(static_cast<int>(once >> shift & 0xff), static_cast<int>(twice >> shift & 0xff),
                    1);
      }
    }
  }
}

TEST(Colours, GoThereAndBack) {
  for (const ImU32 colour : {rgb(0x000000), rgb(0xffffff), rgb(0x7cc7ff), rgb(0xea5430)}) {
    EXPECT_EQ(from_lab(to_lab(colour)), colour);
    EXPECT_EQ(mix(colour, rgb(0x123456), 0), colour);
    EXPECT_EQ(over(with_alpha(rgb(0x808080), 0), colour), colour);
  }
  EXPECT_NEAR(contrast(rgb(0), rgb(0xffffff)), 21, 0.01);
  EXPECT_EQ(with_alpha(rgb(0x123456), 2), rgb(0x123456));
  EXPECT_EQ(with_alpha(rgb(0x123456), std::nanf("")) >> IM_COL32_A_SHIFT, 0u);
}

TEST(Verdicts, HaveTheirOwnGlyphs) {
  std::vector<std::string> glyphs;
  for (int i = 0; i < kVerdicts; ++i) {
    const std::string glyph = verdict_glyph(static_cast<Verdict>(i));
    EXPECT_FALSE(glyph.empty());
    EXPECT_EQ(std::ranges::count(glyphs, glyph), 0) << verdict_name(static_cast<Verdict>(i));
    glyphs.push_back(glyph);
  }
}

class ThemeFile : public ::testing::Test {
 protected:
  ~ThemeFile() override { fs::remove(path_); }
  Result<Theme> load(const std::string& text) {
    std::ofstream(path_) << text;
    return load_theme(path_);
  }
  void expect_error(const std::string& text, std::initializer_list<const char*> parts) {
    const auto theme = load(text);
    ASSERT_FALSE(theme) << text;
    EXPECT_NE(theme.error().message.find(path_), std::string::npos) << theme.error().text();
    for (const char* part : parts) {
      EXPECT_NE(theme.error().text().find(part), std::string::npos) << theme.error().text();
    }
  }
  const std::string path_ =
      (fs::temp_directory_path() / fmt::format("attnscope-theme-{}.json", ::getpid())).string();
};

TEST_F(ThemeFile, ChangesSomeColoursOfItsBase) {
  const auto theme = load(R"({"version": 1, "base": "light", // mine
    "colours": {"accent": "#12aBcD", "hatch": "#01020380"}})");
  ASSERT_TRUE(theme) << theme.error().text();
  EXPECT_FALSE(theme->dark);
  EXPECT_EQ(theme->accent, rgb(0x12abcd));
  EXPECT_EQ(theme->hatch, IM_COL32(1, 2, 3, 0x80));
  EXPECT_EQ(theme->text, load_theme("light")->text);
  const auto owners = load(R"({"version": 1, "colours": {"owners": ["#000001", "#000002",
    "#000003", "#000004", "#000005", "#000006", "#000007", "#000008"]}})");
  ASSERT_TRUE(owners) << owners.error().text();
  EXPECT_TRUE(owners->dark);
  EXPECT_EQ(owners->owners[7], rgb(0x000008));
}

TEST_F(ThemeFile, ErrorsNameFileKeyAndAllowedValues) {
  expect_error("{", {"line 1"});
  expect_error("[]", {"object"});
  expect_error("{}", {"version"});
  expect_error(R"({"version": 2})", {"version", "1"});
  expect_error(R"({"version": 1, "base": "blue"})", {"base", "dark", "light"});
  expect_error(R"({"version": 1, "colors": {}})", {"colors", "colours"});
  expect_error(R"({"version": 1, "colours": []})", {"colours"});
  expect_error(R"({"version": 1, "colours": {"acent": "#000000"}})",
               {"colours.acent", "did you mean accent?", "owners"});
  for (const char* colour : {"\"#12345\"", "\"#1234567\"", "\"123456\"", "\"#12345g\"", "5", "null",
                             "\"\"", "[\"#000000\"]"}) {
    expect_error(fmt::format(R"({{"version": 1, "colours": {{"accent": {}}}}})", colour),
                 {"colours.accent", "#rrggbb"});
  }
  expect_error(R"({"version": 1, "colours": {"owners": ["#000000"]}})", {"owners", "8"});
}

TEST(ThemeNames, KnowTheBuiltInAndTheShippedOnes) {
  const auto names = theme_names();
  ASSERT_GE(names.size(), 3u);
  EXPECT_EQ(names[0], "dark");
  EXPECT_EQ(names[1], "light");
  for (const std::string& name : names) EXPECT_EQ(load_theme(name)->name, name);
  for (const char* name : {"drak", "", "../themes/none", "/", "none.json"}) {
    const auto theme = load_theme(name);
    ASSERT_FALSE(theme) << name;
    EXPECT_FALSE(theme.error().text().empty());
  }
  EXPECT_NE(load_theme("drak").error().hint.find("high_contrast"), std::string::npos);
}

// All that the app writes besides ASCII.
constexpr std::array<unsigned, 15> kSigns = {0xb5,   0xb7,   0xb1,   0xd7,   0x2009,
                                             0x2013, 0x2019, 0x2026, 0x2190, 0x2192,
                                             0x2212, 0x2260, 0x2264, 0x2265, 0x2248};

ImFontGlyph* glyph(ImFont* font, unsigned code) {
  return font->GetFontBaked(14)->FindGlyphNoFallback(static_cast<ImWchar>(code));
}

TEST(Fonts, HaveAllSignsAndIcons) {
  Headless headless;
  if (!headless.fonts.problems.empty()) GTEST_SKIP() << headless.fonts.problems[0];
  headless.frame([] {});
  EXPECT_NE(words(), numbers());
  for (ImFont* font : {words(), numbers()}) {
    for (const unsigned code : kSigns) EXPECT_NE(glyph(font, code), nullptr) << std::hex << code;
    for (const icon::Letter& i : icon::kLetters) {
      ASSERT_NE(glyph(font, i.code), nullptr) << std::hex << i.code;
      // Its own, not the letter's.
      EXPECT_NE(glyph(font, i.code)->U0, glyph(font, static_cast<unsigned>(i.letter))->U0);
    }
  }
  for (char c = '0'; c <= '9'; ++c) {
    EXPECT_EQ(glyph(numbers(), static_cast<unsigned>(c))->AdvanceX,
              glyph(numbers(), '0')->AdvanceX);
  }
}

TEST(Fonts, MissingOnesAreSaidAndStoodInFor) {
  ::setenv("ATTNSCOPE_FONTS", "/nowhere:/nowhere/else", 1);
  {
    Headless headless;
    ASSERT_EQ(headless.fonts.problems.size(), 2u);
    EXPECT_NE(headless.fonts.problems[0].find("/nowhere, /nowhere/else"), std::string::npos);
    EXPECT_NE(headless.fonts.problems[0].find("fonts-inter"), std::string::npos);
    EXPECT_NE(headless.fonts.problems[1].find("fonts-jetbrains-mono"), std::string::npos);
    headless.frame([] { ImGui::TextUnformatted("8.1 µs · 2 × 3 ≤ 7 → …"); });
    for (const unsigned code : kSigns) {
      ASSERT_NE(glyph(words(), code), nullptr) << std::hex << code;
      EXPECT_TRUE(glyph(words(), code)->Visible || code == 0x2009) << std::hex << code;
    }
  }
  ::unsetenv("ATTNSCOPE_FONTS");
}

TEST(Fonts, WithoutIconsLettersStandForThem) {
  Headless headless;
  ImGui::GetIO().Fonts->Clear();
  const FontReport report = load_fonts("/nowhere/icons.otf");
  ASSERT_FALSE(report.problems.empty());
  EXPECT_NE(report.problems.back().find("/nowhere/icons.otf"), std::string::npos);
  headless.frame([] { ImGui::TextUnformatted(icon::kBug); });
  for (const icon::Letter& i : icon::kLetters) {
    ASSERT_NE(glyph(words(), i.code), nullptr) << std::hex << i.code;
    if (i.code < 0xe000) continue;  // of the text face itself
    EXPECT_EQ(glyph(words(), i.code)->AdvanceX,
              glyph(words(), static_cast<unsigned>(i.letter))->AdvanceX);
  }
}

TEST(Style, ScalesWithoutAddingUp) {
  Headless headless;
  for (const float scale : {1.0f, 2.0f, 1.5f, 1.0f}) {
    apply_theme(*load_theme("light"), scale);
    headless.frame([&] {
      EXPECT_FLOAT_EQ(ImGui::GetFontSize(), 14 * scale);
      EXPECT_FLOAT_EQ(px(10), 10 * scale);
      EXPECT_NEAR(ImGui::GetStyle().FramePadding.x, 7 * scale, 1);
    });
  }
  apply_theme(*load_theme("dark"), std::nanf(""));
  EXPECT_EQ(ui_scale(), 1);
}

}  // namespace theme_test
}  // namespace attnscope::gui
