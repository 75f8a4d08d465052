#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/capture_commands.h"
#include "app/cli/progress_bar.h"
#include "app/reports/own_judge.h"
#include "app/text/format.h"
#include "app/text/say.h"
#include "engine/capture/op_blame.h"
#include "engine/io/json_fields.h"

namespace attnscope {
namespace {

using nlohmann::json;

struct DiffCommand {
  std::string a, b, tolerances;
  bool as_json = false;
};

json op_json(const OpDiff& op) {
  json taps = json::array();
  for (const TapDiff& t : op.taps) {
    taps.push_back({{"tap", t.tap},
                    {"output", t.output},
                    {"equal", t.equal},
                    {"within", t.within},
                    {"by_checksum", t.by_checksum},
                    {"rows", t.rows},
                    {"differing", t.differing},
                    {"max_abs", json_number(t.max_abs)},
                    {"budget_used", json_number(t.budget_used)},
                    {"evidence", t.evidence}});
  }
  return {{"step", op.a.step},
          {"step_b", op.b.step},
          {"layer", op.a.layer},
          {"op", as_op_find(op.a.op)->name},
          {"lane_a", op.lane_a},
          {"lane_b", op.lane_b},
          {"verdict", diff_verdict_name(op.verdict)},
          {"inputs", diff_inputs_name(op.inputs)},
          {"open", op.open},
          {"why", op.why},
          {"taps", std::move(taps)}};
}

json share_json(const ComparedShare& s) {
  return {
      {"tokens", s.tokens}, {"all_tokens", s.all_tokens}, {"ops", s.ops}, {"all_ops", s.all_ops}};
}

std::string share_text(const ComparedShare& s) {
  const double share =
      s.all_tokens > 0 ? 100.0 * static_cast<double>(s.tokens) / static_cast<double>(s.all_tokens)
                       : 0;
  return fmt::format("{} of {} tokens ({:.3g} %), {} of {} ops", s.tokens, s.all_tokens, share,
                     s.ops, s.all_ops);
}

json diff_json(const CaptureDiff& diff, const DiffCommand& c) {
  json counts = json::object();
  for (int v = 0; v < kDiffVerdicts; ++v) {
    counts[diff_verdict_name(static_cast<DiffVerdict>(v))] =
        diff.counts[static_cast<std::size_t>(v)];
  }
  json states = json::array();
  for (const StateDiff& s : diff.states) {
    states.push_back({{"step", s.step}, {"what", s.what}, {"text", s.text}});
  }
  json ops = json::array();
  for (const OpDiff& op : diff.ops) {
    if (op.verdict != DiffVerdict::kWithin) ops.push_back(op_json(op));
  }
  json out = {
      {"format", "attnscope-diff"},
      {"version", 1},
      {"a", c.a},
      {"b", c.b},
      {"steps", diff.steps},
      {"tokens", diff.tokens},
      {"compared", {{"a", share_json(diff.first_share)}, {"b", share_json(diff.second_share)}}},
      {"same", diff.same()},
      {"blameless", diff.blameless()},
      {"setup", diff.setup},
      {"open", open_text(diff)},
      {"by_their_tables", diff.placements},
      {"counts", counts},
      {"states", states},
      {"ops", ops},
      {"first", nullptr}};
  if (diff.first) {
    out["first"] = op_json(diff.first->op);
    out["first"]["text"] = diff.first->text;
  }
  return out;
}

std::string counts_text(const CaptureDiff& diff) {
  const char* const kWords[kDiffVerdicts] = {
      "equal",         "within tolerance", "origin", "inherited", "different by an unknown amount",
      "not comparable"};
  std::string text;
  const auto add = [&](std::int64_t n, const char* word) {
    if (n > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, word);
  };
  std::int64_t ops = 0;
  for (int v = 0; v < kDiffVerdicts; ++v) {
    const auto verdict = static_cast<DiffVerdict>(v);
    const std::int64_t n = diff.count(verdict);
    ops += n;
    add(verdict == DiffVerdict::kUnknown ? n - diff.placements : n, kWords[v]);
  }
  add(diff.placements, "compared by their tables");
  return fmt::format("{} ops: {}", ops, text);
}

void print_ops(const CaptureDiff& diff) {
  say("\n  {:>5} {:>5}  {:<24} {:<10} {:<14} {:>10} {:>9}\n", "step", "layer", "op", "verdict",
      "tap", "max abs", "budget");
  int shown = 0;
  for (const OpDiff& op : diff.ops) {
    if (op.verdict == DiffVerdict::kWithin || op.verdict == DiffVerdict::kUnknown) continue;
    if (++shown > 20) {
      say("  .. --json has all of them\n");
      return;
    }
    const auto line = [&](const std::string& tap, const std::string& error,
                          const std::string& budget) {
      say("  {:>5} {:>5}  {:<24} {:<10} {:<14} {:>10} {:>9}\n", op.a.step,
          op.a.layer < 0 ? "-" : std::to_string(op.a.layer), as_op_find(op.a.op)->name,
          diff_verdict_name(op.verdict), tap, error, budget);
    };
    bool told = false;
    for (const TapDiff& t : op.taps) {
      if (!t.output || t.within) continue;
      told = true;
      line(t.tap, t.by_checksum ? "not kept" : format_error(t.max_abs),
           t.budget_used > 0 ? format_number(t.budget_used) : "");
    }
    if (!told) line("-", "not kept", "");  // found wrong while it was recorded
  }
}

void print_text(const CaptureDiff& diff, const DiffCommand& c) {
  say("{} and {}: {} tokens of {} steps in both\n", c.a, c.b, diff.tokens, diff.steps);
  say("  compared of the first: {}; of the second: {}\n", share_text(diff.first_share),
      share_text(diff.second_share));
  say("  {}\n", counts_text(diff));
  for (const StateDiff& s : diff.states) say("  {}: {}\n", s.what, s.text);
  const std::string blameless = blameless_text(diff), open = open_text(diff);
  if (!blameless.empty()) say("\n{}\n", blameless);
  if (diff.first) {
    say("\n{}\n", diff.first->text);
    print_ops(diff);
  } else {
    say("no op's output differs beyond its tolerance{}\n",
        diff.whole() ? "" : ", of those that could be compared");
  }
  if (!open.empty()) say("\n{}\n", open);
}

Result<as_status> diff_command(const DiffCommand& c) {
  auto a = Capture::open(c.a);
  if (!a) return a.error();
  auto b = Capture::open(c.b);
  if (!b) return b.error();
  auto tolerances = Tolerances::load(c.tolerances);
  if (!tolerances) return tolerances.error();
  auto diff = [&] {
    ProgressBar bar;
    return diff_captures(
        **a, **b, *tolerances,
        [&](double share) {
          bar({0, share, "comparing", -1});
          return true;
        },
        reference_judge(*tolerances));
  }();
  if (!diff) return diff.error();
  if (c.as_json) {
    say_json(diff_json(*diff, c));
  } else {
    print_text(*diff, c);
  }
  return diff->same() && diff->whole() ? AS_OK : AS_MISMATCH;
}

}  // namespace

void add_diff_command(CLI::App& app, std::function<Result<as_status>()>& action) {
  auto* diff = app.add_subcommand(
      "diff",
      "Compare two captures token by token: the first op that differs, and why. Exit code 1: an "
      "output differs beyond its tolerance, be it inherited, or could not be compared");
  auto c = std::make_shared<DiffCommand>();
  diff->add_option("a", c->a, "A capture")->required();
  diff->add_option("b", c->b, "Another one")->required();
  diff->add_option("--tolerances", c->tolerances,
                   "Tolerance file (default: assets/tolerances.json)");
  diff->add_flag("--json", c->as_json, "Print as JSON");
  diff->callback([=, &action] { action = [=] { return diff_command(*c); }; });
}

}  // namespace attnscope
