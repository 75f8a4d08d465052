// The Cache study panel in the app: a study of the model that is open, its picture and its numbers
// in files, and one that is stopped.
#include <cstdlib>
#include <filesystem>

#include "app/reports/cache_study_view.h"
#include "engine/family/models.h"
#include "engine/io/json_file.h"
#include "tests/ui/driven_app.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope::gui {
namespace driven_cache_study_test {

void open_llama(DrivenApp& app, User& user) {
  RunSetup setup;
  setup.scenario = small_scenario(90, 4);
  setup.scenario.model = *preset("tiny-llama");
  setup.references = References::kNone;
  app.bench().open(std::move(setup), false);
  user.settle();
}

TEST(DrivenCacheStudy, StudiesTheModelThatIsOpen) {
  char folder[] = "/tmp/attnscope_study_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string png = std::string(folder) + "/study.png", csv = std::string(folder) + "/s.csv";
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_llama(app, user);
    const auto bad = app->commands().run("cache_study.run=64+32");
    ASSERT_FALSE(bad);
    EXPECT_NE(bad.error().text().find("lengths are ascending"), std::string::npos);
    ASSERT_TRUE(app->commands().run("cache_study.run=32+64"));
    const auto twice = app->commands().run("cache_study.run=32");
    EXPECT_TRUE(twice || twice.error().text().find("running already") != std::string::npos);
    const std::string due = "of the smaller ones int8_token_head errs least after 64 tokens";
    for (int i = 0; i < 4000 && user.screen().find(due) == std::string::npos; ++i) user.wait(1);
    EXPECT_NE(user.screen().find(due), std::string::npos) << user.screen();
    // Of plots too small to name their curves the panel names all of them.
    EXPECT_NE(user.screen().find("int8_token_head+first32"), std::string::npos) << user.screen();
    ASSERT_TRUE(app->commands().run("panel.table=cache_study:" + csv));
    ASSERT_TRUE(app->commands().run("panel.picture=cache_study:" + png));
    user.settle();
    const auto [file, panel] = app->shell().take_screenshot();
    EXPECT_EQ(file, png);
    EXPECT_EQ(panel, "cache_study");
    EXPECT_TRUE(app->shell().rectangle_of(panel));
  });
  const auto table = read_text_file(csv);
  ASSERT_TRUE(table) << table.error().text();
  EXPECT_EQ(table->find("format,bytes a token,tokens,attention,carried,changed\n"), 0u) << *table;
  EXPECT_NE(table->find("fp8_tensor,512,64,"), std::string::npos) << *table;
  std::filesystem::remove_all(folder);
}

// As study cache-dtype --again: formats of their own, and what of their rows was made anew.
TEST(DrivenCacheStudy, MakesChosenTokensAnewWhereTheFieldSaysSo) {
  char folder[] = "/tmp/attnscope_study_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string csv = std::string(folder) + "/again.csv";
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_llama(app, user);
    EXPECT_FALSE(app->commands().run("cache_study.run=32+again=x"));
    const auto many = app->commands().run("cache_study.run=32+again=16000000");
    ASSERT_FALSE(many);
    EXPECT_NE(many.error().text().find("tokens made anew"), std::string::npos);
    user.show("cache_study");
    user.look_at("cache_study");
    user.ctx->ItemInputValue("tokens made anew", 16);
    ASSERT_TRUE(app->commands().run("cache_study.run=32+64"));
    const std::string due = "errs least after 64 tokens";
    for (int i = 0; i < 4000 && user.screen().find(due) == std::string::npos; ++i) user.wait(1);
    ASSERT_TRUE(app->commands().run("panel.table=cache_study:" + csv));
  });
  const auto table = read_text_file(csv);
  ASSERT_TRUE(table) << table.error().text();
  EXPECT_EQ(table->find("format,bytes a token,tokens,attention,carried,changed,rows anew,other"),
            0u)
      << *table;
  // 512 bytes of codes, 2,048 of inputs kept, 1,024 of 16 bits for a quarter of the tokens. Of
  // keys and values 16 rows in each of 4 layers.
  const std::size_t row = table->find("fp8_tensor+again16,2816,64,");
  ASSERT_NE(row, std::string::npos) << *table;
  EXPECT_NE(table->substr(row, table->find('\n', row) - row).find(",128,"), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(DrivenCacheStudy, StopsWhenAskedTo) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_llama(app, user);
    ASSERT_TRUE(app->commands().run("cache_study.run=8192+32768"));
    user.wait(4);
    EXPECT_NE(user.screen().find("running"), std::string::npos) << user.screen();
    ASSERT_TRUE(app->commands().run("cache_study.stop"));
    user.wait(4);
    EXPECT_NE(user.screen().find("no study has run yet"), std::string::npos) << user.screen();
    EXPECT_FALSE(app->commands().run("cache_study.stop")) << "nothing runs";
  });
}

}  // namespace driven_cache_study_test
}  // namespace attnscope::gui
