// What recordings say at every level, and what they say of what they do not hold.
#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/capture/capture.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace record_levels_test {

class RecordLevels : public CliTest {
 protected:
  void record(const std::string& name, std::vector<std::string> options, int code = 0) {
    std::vector<std::string> all = {"record", "early", "-o", path(name), "--force"};
    all.insert(all.end(), options.begin(), options.end());
    last_ = run(all);
    ASSERT_EQ(last_.code, code) << last_.err;
  }
  // Of all taps, by place and name.
  std::map<std::string, TapStats> stats(const std::string& name) const {
    std::map<std::string, TapStats> all;
    auto capture = Capture::open(path(name));
    EXPECT_TRUE(capture);
    if (!capture) return all;
    for (const auto& summary : (*capture)->summaries()) {
      auto entry = (*capture)->entry(summary->step);
      EXPECT_TRUE(entry && *entry);
      for (const OpEntry& op : (*entry)->ops) {
        const std::string prefix = std::to_string(summary->step) + "/" + std::to_string(op.layer) +
                                   "/" + as_op_find(op.op)->name + "/";
        for (const TapEntry& tap : op.taps) {
          if (tap.stats) all[prefix + tap.name] = *tap.stats;
        }
        for (const RowsEntry& rows : op.rows) all[prefix + rows.name] = rows.stats.value();
      }
    }
    return all;
  }

  Outcome last_;
};

// At level full they are taken of copies, below while the op's own tensors are there.
TEST_F(RecordLevels, StatisticsAreTheSameAtEveryLevelAndForEveryChoiceOfRows) {
  for (const char* rows : {"all", "5"}) {
    const std::vector<std::string> common = {"--steps",      "3",   "--rows",   rows,
                                             "--references", "sim", "--layers", "0,1,2"};
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.end(), common.begin(), common.end());
      return more;
    };
    record("full.acap", with({"--level", "full"}));
    record("tables.acap", with({"--level", "tables"}));
    record("summary.acap", with({"--level", "summary"}));
    record("some.acap", with({"--level", "full", "--op", "wo_b", "--at-steps", "2"}));
    const auto full = stats("full.acap");
    EXPECT_GT(full.size(), 500u);
    std::int64_t masked = 0;
    for (const auto& [tap, s] : full) masked += s.nans > 0 ? 1 : 0;
    EXPECT_GT(masked, 0);  // elements that an op does not write are among them
    for (const char* name : {"tables.acap", "summary.acap", "some.acap"}) {
      const auto other = stats(name);
      ASSERT_EQ(other.size(), full.size()) << name;
      for (const auto& [tap, s] : full) {
        const TapStats& o = other.at(tap);
        EXPECT_EQ(o.checksum, s.checksum) << name << " " << tap;
        EXPECT_EQ(o.elements, s.elements) << name << " " << tap;
        EXPECT_EQ(o.nans, s.nans) << name << " " << tap;
        EXPECT_EQ(o.min, s.min) << name << " " << tap;
        EXPECT_EQ(o.mean, s.mean) << name << " " << tap;
        EXPECT_EQ(o.l2, s.l2) << name << " " << tap;
      }
    }
  }
}

TEST_F(RecordLevels, StepsThatDoNotRunAreSaid) {
  record("a.acap", {"--steps", "3", "--level", "full", "--at-steps", "50"}, 2);
  EXPECT_NE(last_.err.find("--at-steps 50: with --steps 3 the run ends after step 2"),
            std::string::npos)
      << last_.err;
  EXPECT_FALSE(std::filesystem::exists(path("a.acap")));
  record("a.acap", {"--steps", "3", "--cache-at", "99"}, 2);
  EXPECT_NE(last_.err.find("--cache-at 99"), std::string::npos) << last_.err;
  // Where the number of steps shows at the end alone.
  record("a.acap", {"--decode-steps", "1", "--references", "none", "--cache-at", "1,5000"});
  EXPECT_NE(last_.out.find("not in it: blocks after step 5000; the run ended after step"),
            std::string::npos)
      << last_.out;
}

TEST_F(RecordLevels, TapsThatAreRightAreNotCalledWrong) {
  const auto counts = [&](const std::string& name) {
    std::int64_t compared = 0, wrong = 0;
    auto capture = Capture::open(path(name));
    EXPECT_TRUE(capture);
    for (const auto& summary : (*capture)->summaries()) {
      for (const TapResult& result : summary->results) {
        compared += result.verdict != Verdict::kNotCompared ? 1 : 0;
        wrong += result.verdict == Verdict::kWrong ? 1 : 0;
      }
    }
    return std::pair(compared, wrong);
  };
  record("a.acap", {"--steps", "2", "--references", "sim"});
  EXPECT_NE(last_.out.find(" taps compared, none wrong\n"), std::string::npos) << last_.out;
  EXPECT_EQ(counts("a.acap").second, 0);
  record("b.acap",
         {"--steps", "2", "--references", "sim", "--lane", "attn_norm=mutant:norm_weight_plus_one"},
         1);
  const auto [compared, wrong] = counts("b.acap");
  ASSERT_GT(wrong, 0);
  ASSERT_GT(compared, 10 * wrong) << "most are right";
  EXPECT_NE(last_.out.find(fmt::format("taps compared, {} wrong;", wrong)), std::string::npos)
      << last_.out;
  record("c.acap", {"--steps", "1", "--references", "none"});
  EXPECT_NE(last_.out.find("no tap compared"), std::string::npos) << last_.out;
}

// A level of that name holds every row of every step, however long the prompt is.
TEST_F(RecordLevels, FullKeepsEveryRow) {
  const Outcome made = run({"record", "default", "-o", path("a.acap"), "--steps", "1", "--level",
                            "full", "--references", "none"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(run({"show", path("a.acap")}).out.find("rows:"), std::string::npos);
  auto capture = Capture::open(path("a.acap"));
  ASSERT_TRUE(capture);
  std::int64_t most = 0;
  for (const auto& summary : (*capture)->summaries()) {
    auto trace = (*capture)->trace(summary->step);
    ASSERT_TRUE(trace && *trace);
    const std::int64_t tokens = (*trace)->metadata.num_tokens_in_step();
    EXPECT_EQ(static_cast<std::int64_t>((*trace)->kept.size()), tokens) << summary->step;
    const OpTrace* attention = (*trace)->find(1, AS_OP_SPARSE_ATTENTION);
    ASSERT_NE(attention, nullptr);
    EXPECT_EQ(attention->tap("o")->value.shape[0], tokens);
    most = std::max(most, tokens);
  }
  EXPECT_GT(most, 64);
}

// What of two captures was compared is said: a part of them may be all that both hold.
TEST_F(RecordLevels, DiffSaysTheShareThatItCompared) {
  record("all.acap", {"--steps", "3", "--level", "full", "--references", "none"});
  record("some.acap", {"--steps", "3", "--level", "full", "--references", "none", "--rows", "16"});
  const auto shares = [&](const std::string& a, const std::string& b) {
    const Outcome out = run({"diff", path(a), path(b), "--json"});
    return nlohmann::json::parse(out.out, nullptr, false).at("compared");
  };
  const auto whole = shares("all.acap", "all.acap");
  const auto part = shares("all.acap", "some.acap");
  const std::int64_t tokens = whole.at("a").at("all_tokens");
  EXPECT_GT(tokens, 64);
  EXPECT_EQ(whole.at("a").at("tokens"), tokens);
  EXPECT_EQ(whole.at("b").at("tokens"), tokens);
  EXPECT_EQ(whole.at("a").at("ops"), whole.at("a").at("all_ops"));
  EXPECT_EQ(part.at("a").at("all_tokens"), tokens);
  EXPECT_EQ(part.at("b").at("all_tokens"), tokens);
  EXPECT_LT(part.at("a").at("tokens"), tokens);
  EXPECT_LE(part.at("a").at("tokens"), 3 * 16);
  EXPECT_GT(part.at("a").at("tokens"), 0);
  const Outcome text = run({"diff", path("all.acap"), path("some.acap")});
  EXPECT_NE(text.out.find("compared of the first: " + part.at("a").at("tokens").dump() + " of " +
                          std::to_string(tokens) + " tokens ("),
            std::string::npos)
      << text.out;
}

TEST_F(RecordLevels, ACaptureSaysWhichRowsItHolds) {
  record("a.acap", {"--steps", "2", "--level", "full", "--rows", "7", "--request", "0"});
  const Outcome shown = run({"show", path("a.acap")});
  EXPECT_NE(shown.out.find("rows: of request 0, at most 7 of a step"), std::string::npos)
      << shown.out;
  record("a.acap", {"--steps", "2", "--rows", "all"});
  EXPECT_EQ(run({"show", path("a.acap")}).out.find("rows:"), std::string::npos);
}

TEST_F(RecordLevels, ProfileAndTolerancesAreThoseAskedFor) {
  record("a.acap", {"--steps", "1", "--profile", "deepseek"});
  auto capture = Capture::open(path("a.acap"));
  ASSERT_TRUE(capture);
  EXPECT_TRUE((*capture)->index().model.switches.profile.starts_with("deepseek"));
  record("b.acap", {"--steps", "1", "--profile", "nobody"}, 2);
  record("b.acap", {"--steps", "1", "--tolerances", path("none.json")}, 3);
  EXPECT_NE(last_.err.find("none.json"), std::string::npos) << last_.err;
}

}  // namespace record_levels_test
}  // namespace attnscope
