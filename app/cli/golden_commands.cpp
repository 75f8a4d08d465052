#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/capture_commands.h"
#include "app/cli/progress_bar.h"
#include "app/reports/golden_report.h"
#include "app/reports/golden_review.h"
#include "app/text/interrupt.h"
#include "app/text/say.h"
#include "app/text/text.h"
#include "app/wiring/wiring.h"
#include "engine/golden/golden_run.h"
#include "engine/io/json_file.h"

namespace attnscope {
namespace {

using Action = std::function<Result<as_status>()>;

struct GoldenCommand {
  std::string folder, large;
  std::vector<std::string> names, lanes;
  std::string tolerances, report, junit, html, reason;
  int threads = 0;
  bool ci = false, json = false, all = false, force = false;
};

Result<GoldenFolder> open(const GoldenCommand& c) { return open_goldens(c.folder, c.large); }

// ---- run

Result<as_status> run_goldens(const GoldenCommand& c) {
  auto folder = open(c);
  if (!folder) return folder.error();
  auto names = folder->select(c.names);
  if (!names) return names.error();
  GoldenReport report;
  report.folder = folder->path();
  GoldenRunOptions options;
  options.ci = c.ci;
  options.lanes = c.lanes;
  options.threads = c.threads;
  options.tolerance_file = c.tolerances;
  options.origin = golden_origin(folder->path());
  const LaneRegistry lanes = all_lanes();
  catch_interrupts();
  {
    ProgressBar bar;
    for (std::size_t i = 0; i < names->size() && interrupted() == 0; ++i) {
      bool stopped = false;
      options.going = [&](double share) {
        const double all = (static_cast<double>(i) + share) / static_cast<double>(names->size());
        bar({static_cast<std::int64_t>(i), all, (*names)[i].c_str(), -1});
        stopped = interrupted() != 0;
        return !stopped;
      };
      GoldenOutcome outcome = run_golden(*folder, (*names)[i], lanes, options);
      if (!stopped) report.outcomes.push_back(std::move(outcome));
    }
  }
  if (report.outcomes.size() < names->size()) {
    ended_early();
    report.interrupted = interrupt_name();
    report.not_run.assign(names->begin() + static_cast<std::ptrdiff_t>(report.outcomes.size()),
                          names->end());
  }
  // Of the folder as a whole, whichever goldens ran.
  report.orphans = folder->orphans();
  if (names->empty() && report.orphans.empty()) {
    return bad_input(
        fmt::format("{}: holds no golden: there is no *{} in it", folder->path(), kSpecSuffix),
        "name their folder with --goldens FOLDER");
  }
  const auto write = [](const std::string& path, const std::string& text) -> Result<void> {
    return path.empty() ? Result<void>() : write_text_file(path, text);
  };
  if (auto ok = write(c.report, json_text(golden_json(report), 1) + "\n"); !ok) return ok.error();
  if (auto ok = write(c.junit, golden_junit(report)); !ok) return ok.error();
  if (auto ok = write(c.html, golden_html(report)); !ok) return ok.error();
  if (c.json) {
    say_json(golden_json(report));
  } else {
    say("{}", Lines{golden_text(report, is_terminal(STDOUT_FILENO))});
    if (!folder->pending().empty() && !c.ci) {
      say("next: attnscope golden review{}\n", folder->words());
    }
  }
  return report.status();
}

// ---- list

nlohmann::json listed(const GoldenFolder& folder, const Tolerances& tolerances,
                      const LaneRegistry& lanes, const std::string& name) {
  const GoldenEntry& entry = folder.entries().at(name);
  nlohmann::json out = {{"name", name},
                        {"accepted", entry.accepted},
                        {"pending", entry.received},
                        {"loosened", nlohmann::json::array()}};
  auto spec = folder.spec(name);
  if (!spec) {
    out["error"] = spec.error().text();
    return out;
  }
  out["about"] = spec->about;
  out["of"] = spec->op                    ? std::string(as_op_find(*spec->op)->name)
              : !spec->saved_case.empty() ? "case " + spec->saved_case
                                          : "scenario " + spec->scenario;
  for (const GoldenTolerance& t : loosened_tolerances(*spec, tolerances)) {
    out["loosened"].push_back({{"bound", t.text()}, {"reason", t.reason}});
  }
  if (auto ok = check_classes(*spec, tolerances); !ok) {
    out["error"] = ok.error().text();
    return out;
  }
  if (auto ok = check_golden(*spec, lanes); !ok) {
    out["error"] = ok.error().text();
    return out;
  }
  if (!entry.accepted) return out;
  auto values = folder.values(name, kAcceptedSuffix);
  if (!values) {
    out["error"] = values.error().text();
    return out;
  }
  out["reason"] = values->origin.reason;
  out["origin"] = origin_text(values->origin);
  out["values"] = values->taps.size();
  out["stale"] = values->definition != spec->digest;
  return out;
}

void print_listed(const nlohmann::json& g) {
  const std::string state = g.contains("error")       ? "broken"
                            : g["pending"]            ? "pending"
                            : !g["accepted"]          ? "new"
                            : g.value("stale", false) ? "stale"
                                                      : "accepted";
  say("{:<9} {:<28} {}\n", state, g["name"].get<std::string>(),
      g.contains("error") ? g["error"].get<std::string>() : g["about"].get<std::string>());
  if (g.contains("origin")) {
    say("{:>10}{}, {} values, accepted {}\n", "", g["of"].get<std::string>(),
        g["values"].get<std::size_t>(), g["origin"].get<std::string>());
  }
  for (const auto& t : g["loosened"]) {
    say("{:>10}loosened: {}; {}\n", "", t["bound"].get<std::string>(),
        t["reason"].get<std::string>());
  }
}

Result<as_status> list_command(const GoldenCommand& c) {
  auto folder = open(c);
  if (!folder) return folder.error();
  auto tolerances = Tolerances::load(c.tolerances);
  if (!tolerances) return tolerances.error();
  nlohmann::json goldens = nlohmann::json::array(), orphans = nlohmann::json::array();
  as_status status = AS_OK;
  const LaneRegistry lanes = all_lanes();
  for (const std::string& name : folder->defined()) {
    goldens.push_back(listed(*folder, *tolerances, lanes, name));
    if (goldens.back().contains("error")) status = AS_BAD_INPUT;
  }
  for (const GoldenOrphan& o : folder->orphans()) {
    orphans.push_back({{"file", o.file}, {"why", o.why}, {"removable", o.removable}});
  }
  if (status == AS_OK && !orphans.empty()) status = AS_MISMATCH;
  if (c.json) {
    say_json(nlohmann::json{{"format", "attnscope-golden-list"},
                            {"version", kGoldenReportVersion},
                            {"folder", folder->path()},
                            {"goldens", goldens},
                            {"orphans", orphans}});
    return status;
  }
  for (const auto& g : goldens) print_listed(g);
  for (const auto& o : orphans) {
    say("orphan    {}: {}\n", o["file"].get<std::string>(), o["why"].get<std::string>());
  }
  say("{} goldens in {}, {} pending, {} orphans\n", goldens.size(), folder->path(),
      folder->pending().size(), orphans.size());
  return status;
}

// ---- review, accept, prune

Result<void> accept_one(GoldenFolder& folder, const std::string& name, const std::string& reason) {
  GoldenOrigin origin = golden_origin(folder.path());
  origin.reason = reason;
  return folder.accept(name, origin);
}

constexpr const char* kReviewKeys =
    "a REASON = accept, r = reject, s = skip, m = show more, q = quit";
constexpr std::size_t kShownTaps = 4;

struct Reviewed {
  int accepted = 0, rejected = 0, skipped = 0;
  bool quit = false;
};

// One pending golden: asks until there is a decision.
Result<void> review_one(GoldenFolder& folder, const std::string& name, Reviewed& done) {
  const GoldenReview review = review_pending(folder, name);
  say("\n{}", Lines{format_review(review, kShownTaps)});
  while (true) {
    say("[{}] > ", kReviewKeys);
    std::fflush(stdout);
    std::string line;
    if (!std::getline(std::cin, line)) {
      say("\n");
      done.quit = true;
      return {};
    }
    const std::string word(trimmed(line));
    if (word == "q") {
      done.quit = true;
      return {};
    }
    if (word == "s") {
      ++done.skipped;
      return {};
    }
    if (word == "r") {
      ++done.rejected;
      return folder.remove_received(name);
    }
    if (word == "m") {
      say("{}", Lines{format_review(review, review.taps.size())});
    } else if (word == "a" || word.starts_with("a ")) {
      const std::string reason(trimmed(word.substr(1)));
      auto ok = accept_one(folder, name, reason);
      if (ok) {
        ++done.accepted;
        return {};
      }
      say("{}\n",
          ok.error().code == AS_USAGE ? ok.error().message + ": a REASON" : ok.error().text());
    } else {
      say("'{}' is none of these\n", shortened(word, 20));
    }
  }
}

// Its definition, what that names, and its accepted values.
Result<void> readable(const GoldenFolder& folder, const LaneRegistry& lanes,
                      const std::string& name) {
  auto spec = folder.spec(name);
  if (!spec) return spec.error();
  if (auto ok = check_golden(*spec, lanes); !ok) return ok;
  if (!folder.entries().at(name).accepted) return {};
  auto values = folder.values(name, kAcceptedSuffix);
  return values ? Result<void>() : values.error();
}

Result<as_status> review_command(const GoldenCommand& c) {
  auto folder = open(c);
  if (!folder) return folder.error();
  auto names = folder->select(c.names);
  if (!names) return names.error();
  Reviewed done;
  for (const std::string& name : *names) {
    if (done.quit || !folder->entries().at(name).received) continue;
    if (auto ok = review_one(*folder, name, done); !ok) return ok.error();
  }
  // They have nothing to be looked at, and nobody would learn of them here.
  as_status status = AS_OK;
  const LaneRegistry lanes = all_lanes();
  for (const std::string& name : *names) {
    if (folder->entries().at(name).received) continue;
    const Result<void> ok = readable(*folder, lanes, name);
    if (ok) continue;
    say("broken    {}: {}\n", name, ok.error().text());
    status = AS_BAD_INPUT;
  }
  say("{} accepted, {} rejected, {} skipped; {} pending\n", done.accepted, done.rejected,
      done.skipped, folder->pending().size());
  return status;
}

// Values that somebody accepted are not replaced unseen.
Result<void> keeps_accepted(const GoldenFolder& folder, const std::string& name) {
  const GoldenEntry& entry = folder.entries().at(name);
  if (!entry.accepted || !entry.received) return {};
  return bad_input(fmt::format("{}: has accepted values already", name),
                   fmt::format("look at both sides: attnscope golden review {}{}; or replace them "
                               "unseen: --force",
                               name, folder.words()));
}

Result<as_status> accept_command(const GoldenCommand& c) {
  auto folder = open(c);
  if (!folder) return folder.error();
  if (c.all != c.names.empty()) {
    return usage_error("name what to accept, or say --all for everything that is pending",
                       "attnscope golden list shows what is");
  }
  auto names =
      c.all ? Result<std::vector<std::string>>(folder->pending()) : folder->select(c.names);
  if (!names) return names.error();
  // One that cannot be accepted keeps no other from it.
  as_status status = AS_OK;
  for (const std::string& name : *names) {
    auto ok = c.force ? Result<void>() : keeps_accepted(*folder, name);
    if (ok) ok = accept_one(*folder, name, c.reason);
    if (ok) {
      say("accepted {}\n", name);
      continue;
    }
    if (ok.error().code == AS_USAGE || names->size() == 1) return ok.error();
    say(stderr, "attnscope: {}\n", ok.error().text());
    status = ok.error().code;
  }
  if (names->empty()) say("nothing is pending in {}\n", folder->path());
  return status;
}

Result<as_status> prune_command(const GoldenCommand& c) {
  auto folder = open(c);
  if (!folder) return folder.error();
  auto removed = folder->prune();
  if (!removed) return removed.error();
  for (const std::string& file : *removed) say("removed {}\n", file);
  const std::vector<GoldenOrphan> left = folder->orphans();
  for (const GoldenOrphan& o : left) say("left in place {}: {}\n", o.file, o.why);
  say("{} files removed, {} orphans left\n", removed->size(), left.size());
  return left.empty() ? AS_OK : AS_MISMATCH;
}

}  // namespace

void add_golden_commands(CLI::App& app, Action& action) {
  auto* golden = app.add_subcommand(
      "golden", "Accepted values that a build must keep: run, list, review, accept, prune");
  golden->require_subcommand(1);
  const auto add = [&](const char* name, const char* about, auto command) {
    auto* sub = golden->add_subcommand(name, about);
    auto c = std::make_shared<GoldenCommand>();
    sub->add_option("--goldens", c->folder, "Folder (default: tests/goldens)");
    sub->add_option(
        "--large", c->large,
        "Folder with the values of goldens above 64 KiB (default: in the state folder)");
    sub->callback([=, &action] { action = [=] { return command(*c); }; });
    return std::pair(sub, c);
  };
  auto [run, r] = add("run", "Run goldens, and keep what differs beside them", run_goldens);
  run->add_option("names", r->names, "Which (default: all)");
  run->add_flag("--ci", r->ci, "Write nothing beside the goldens");
  run->add_option("--lane", r->lanes, "LANE or OP=LANE in place of the definitions'; as --ci then")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  run->add_option("--tolerances", r->tolerances,
                  "Tolerance file (default: assets/tolerances.json)");
  run->add_option("--report", r->report, "Write the report, JSON");
  run->add_option("--junit", r->junit, "Write the report, JUnit XML");
  run->add_option("--html", r->html, "Write the report, one HTML file with pictures");
  run->add_option("--threads", r->threads, "Threads, 0 = all")->check(CLI::Range(0, 4096));
  run->add_flag("--json", r->json, "Print as JSON");
  auto [list, l] = add("list", "What there is, who accepted it and why", list_command);
  list->add_option("--tolerances", l->tolerances, "Tolerance file");
  list->add_flag("--json", l->json, "Print as JSON");
  auto [review, v] = add("review", "Decide about what is pending, one by one", review_command);
  review->add_option("names", v->names, "Which (default: all that are pending)");
  auto [accept, a] = add("accept", "Accept what is pending", accept_command);
  accept->add_option("names", a->names, "Which");
  accept->add_flag("--all", a->all, "Everything that is pending");
  accept->add_flag("--force", a->force, "Replace values that were accepted before");
  accept->add_option("--reason", a->reason, "Why the new values are right, in one line")
      ->required();
  add("prune", "Remove values whose definition is gone", prune_command);
}

}  // namespace attnscope
