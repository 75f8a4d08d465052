// The terminal form of a report.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "app/reports/report.h"
#include "app/reports/report_decisions.h"
#include "app/reports/report_parts.h"
#include "app/text/format.h"
#include "app/text/say.h"
#include "engine/family/family.h"
#include "engine/io/plural.h"
#include "engine/session/lanes_ran.h"

namespace attnscope {
namespace {

using nlohmann::json;

class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}
  std::string operator()(const char* code, const std::string& text) const {
    return on_ ? painted(code, text) : text;
  }

 private:
  bool on_;
};

const char* colour_of(const std::string& verdict) {
  if (verdict == "wrong" || verdict == "failed" || verdict == "diverged") return "31;1";
  if (verdict == "near_tie") return "35";
  if (verdict == "quantisation") return "33";
  if (verdict == "not_compared" || verdict == "incomplete") return "90";
  return "32";
}

// Order of severity, best first.
int verdict_rank(const std::string& verdict) {
  static const std::vector<std::string> kOrder = {"equal",    "rounding",     "quantisation",
                                                  "near_tie", "not_compared", "wrong"};
  return static_cast<int>(std::find(kOrder.begin(), kOrder.end(), verdict) - kOrder.begin());
}

// One line of the table: a tap over all steps and layers.
struct Row {
  std::string op, tap;
  std::int64_t count = 0;
  double introduced = -1, inherited = -1, quantisation = -1, budget = 0;
  bool beyond = false;  // budget without a number
  std::string verdict = "equal";
};

double cosine_of(const json& figures) {
  if (figures.is_null()) return -1;
  const json& v = figures.at("cosine");
  return v.is_null() ? INFINITY : v.get<double>();
}

double abs_of(const json& figures) {
  if (figures.is_null()) return -1;
  const json& v = figures.at("max_abs");
  return v.is_null() ? INFINITY : v.get<double>();
}

std::string cell(double v) { return v < 0 ? "-" : v == 0 ? "0" : fmt::format("{:.1e}", v); }

// Place of an op in causal order: before the layers, the ops of a layer that has most, after them.
int causal_rank(const std::string& op) {
  static const std::vector<std::string> kOrder = [] {
    std::vector<std::string> order;
    const auto add = [&](const LayerGraph& part) {
      for (const as_op_id id : part.ops()) order.emplace_back(as_op_find(id)->name);
    };
    for (const Family* family : families()) {
      ModelConfig config = example_model(*family);
      config.swaps = true;
      const auto made = model_graph(config);
      const ModelGraph& graph = *made;
      add(graph.before);
      add(*std::ranges::max_element(graph.layers, {},
                                    [](const LayerGraph& layer) { return layer.ops().size(); }));
      add(graph.after);
    }
    return order;
  }();
  return static_cast<int>(std::find(kOrder.begin(), kOrder.end(), op) - kOrder.begin());
}

std::vector<Row> rows_of(const json& report) {
  std::vector<Row> rows;
  std::map<std::pair<std::string, std::string>, std::size_t> index;
  for (const json& step : report.at("steps")) {
    for (const json& tap : step.at("taps")) {
      const std::pair key{tap.at("op").get<std::string>(), tap.at("tap").get<std::string>()};
      auto [it, fresh] = index.try_emplace(key, rows.size());
      if (fresh) rows.push_back({key.first, key.second});
      Row& row = rows[it->second];
      ++row.count;
      row.introduced = std::max(row.introduced, abs_of(tap.at("introduced")));
      row.inherited = std::max(row.inherited, cosine_of(tap.at("inherited")));
      row.quantisation = std::max(row.quantisation, cosine_of(tap.at("quantisation")));
      if (tap.at("budget_used").is_null()) {
        row.beyond = true;
      } else {
        row.budget = std::max(row.budget, tap.at("budget_used").get<double>());
      }
      const std::string verdict = tap.at("verdict");
      if (verdict_rank(verdict) > verdict_rank(row.verdict)) row.verdict = verdict;
    }
  }
  // Causal order; rows read come before rows written.
  const auto key = [](const Row& row) {
    return std::pair(causal_rank(row.op), row.tap.ends_with(".read") ? 0 : 1);
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const Row& a, const Row& b) { return key(a) < key(b); });
  return rows;
}

std::string budget_cell(const Row& row) {
  if (row.beyond || row.budget > 9.99) return ">999 %";
  return fmt::format("{:.0f} %", row.budget * 100);
}

std::string place(const json& tap) {
  const std::string layer =
      tap.at("layer").is_null() ? "" : fmt::format(", layer {}", tap.at("layer").get<int>());
  return fmt::format("step {}{}, op {}, tap {}", tap.at("step").get<std::int64_t>(), layer,
                     tap.at("op").get<std::string>(), tap.at("tap").get<std::string>());
}

std::string range(const json& q) {
  if (q.is_null()) return "-";
  return fmt::format("{:.3g} .. {:.3g} .. {:.3g}", q.at("min").get<double>(),
                     q.at("median").get<double>(), q.at("max").get<double>());
}

std::string table(const json& report, const Paint& paint) {
  std::string out =
      paint("1", fmt::format("{:<26}{:<20}{:>6} {:>11} {:>11} {:>11} {:>8}  {}\n", "op", "tap",
                             "taps", "introduced", "inherited", "quantis.", "budget", "verdict"));
  out += fmt::format("{:<26}{:<20}{:>6} {:>11} {:>11} {:>11} {:>8}\n", "", "", "", "max |diff|",
                     "1-cos", "1-cos", "used");
  std::string last;
  for (const Row& row : rows_of(report)) {
    out += fmt::format("{:<26}{:<20}{:>6} {:>11} {:>11} {:>11} {:>8}  {}\n",
                       row.op == last ? "" : row.op, row.tap, row.count, cell(row.introduced),
                       cell(row.inherited), cell(row.quantisation), budget_cell(row),
                       paint(colour_of(row.verdict), row.verdict));
    last = row.op;
  }
  return out;
}

std::string drift(const json& report, const Paint& paint) {
  const json& free = report.at("free_running");
  if (free.at("layers").empty()) return "";
  std::string out = fmt::format("\nfree-running, 1-cos of each layer's output (limit {:.1e}):\n",
                                free.at("limit").get<double>());
  for (const json& layer : free.at("layers")) {
    const bool excused = layer.contains("past_near_ties");
    const bool bad =
        !excused && (layer.at("cosine").is_null() ||
                     layer.at("cosine").get<double>() > free.at("limit").get<double>());
    const std::string value = layer.at("cosine").is_null()
                                  ? "NaN"
                                  : fmt::format("{:.1e}", layer.at("cosine").get<double>());
    out += fmt::format(
        "  layer {:<3} {}  worst in step {}{}\n", layer.at("layer").get<int>(),
        paint(bad ? "31;1" : "32", value), layer.at("step").get<std::int64_t>(),
        excused ? ", where selections had parted by near ties: not held against it" : "");
  }
  return out;
}

std::string selections(const json& report, const Paint& paint) {
  const json& all = report.at("free_running").at("selections");
  if (all.empty()) return "";
  std::int64_t tokens = 0, entries = 0;
  for (const json& s : all) {
    tokens += s.at("tokens").get<std::int64_t>();
    entries += s.at("entries").get<std::int64_t>();
  }
  std::string out = fmt::format(
      "free-running selection: {} entries of {} tokens differ from ref.sim's, whose scores differ "
      "too:\n",
      paint("35", std::to_string(entries)), tokens);
  std::size_t shown = 0;
  for (const json& s : all) {
    if (++shown > 6) return out + fmt::format("  and {} more in the report\n", all.size() - 6);
    out += fmt::format(
        "  step {:<4} layer {:<3} {:>3} entries, {} tokens, margin up to {:.1e}, scores differ "
        "by "
        "up to {:.1e}\n",
        s.at("step").get<std::int64_t>(), s.at("layer").get<int>(),
        s.at("entries").get<std::int64_t>(), s.at("tokens").get<std::int64_t>(),
        s.at("margin").get<double>(), s.at("score_difference").get<double>());
  }
  return out;
}

std::string near_ties(const json& report, const Paint& paint) {
  const json& ties = report.at("near_ties");
  if (ties.empty()) return "";
  std::string out = fmt::format("\n{} near-ties:\n", ties.size());
  std::size_t shown = 0;
  for (const json& tap : ties) {
    if (++shown > 10) {
      out += fmt::format("  and {} more in the report\n", ties.size() - 10);
      break;
    }
    out += fmt::format("  {}: {}\n", paint("35", place(tap)), tap.value("note", ""));
  }
  return out;
}

std::string distributions(const json& report) {
  if (report.at("distributions").empty()) return {};
  std::string out = "\ndistributions, min .. median .. max:\n";
  for (const json& d : report.at("distributions")) {
    out += fmt::format("  layer {:<3} sink mass {}   LSE {}\n", d.at("layer").get<int>(),
                       range(d.at("sink_mass")), range(d.at("lse")));
    if (d.at("indexer_tokens").get<std::int64_t>() == 0) continue;
    out += fmt::format(
        "            indexer: deviation of scores {}, distinct {}, margin {}; {} of {} tokens "
        "selective\n",
        range(d.at("score_deviation")), range(d.at("score_distinct")), range(d.at("margin")),
        d.at("selective_tokens").get<std::int64_t>(), d.at("indexer_tokens").get<std::int64_t>());
  }
  return out;
}

std::string summary(const json& report, const Paint& paint) {
  const json& s = report.at("summary");
  const json& run = report.at("run");
  const std::string verdict = s.at("verdict");
  std::string counts;
  for (const char* name :
       {"equal", "rounding", "quantisation", "near_tie", "wrong", "not_compared"}) {
    counts +=
        fmt::format("{}{} {}", counts.empty() ? "" : " + ", s.at(name).get<std::int64_t>(), name);
  }
  std::string out = fmt::format(
      "\n{} steps ({} decode), {:.2f} s in the engine, {:.2f} s with references, {} MiB peak\n",
      run.at("steps").get<std::int64_t>(), run.at("decode_steps").get<std::int64_t>(),
      run.at("engine_seconds").get<double>(), run.at("wall_seconds").get<double>(),
      run.at("peak_bytes").get<std::int64_t>() >> 20);
  const json& serving = report.at("serving");
  const auto count = [&](const char* name) { return serving.at(name).get<std::int64_t>(); };
  out += fmt::format(
      "prefix caching {}: {} hits, {} tokens · {} preemptions, {} tokens computed again · {} "
      "aborted\n",
      serving.at("prefix_caching").get<bool>() ? "on" : "off", count("hits"), count("hit_tokens"),
      count("preemptions"), count("recomputed_tokens"), count("aborted"));
  if (const auto tokenless = serving.value("aborted_without_token", std::int64_t{0});
      tokenless > 0) {
    out +=
        fmt::format("{} ended before {} end: all logits were NaN, so that no token was sampled\n",
                    plural(tokenless, "request", "requests"), agree(tokenless, "its", "their"));
  }
  if (serving.value("blocks_swapped_out", std::int64_t{0}) > 0) {
    out += fmt::format("swap preemption: {} blocks to host memory, {} back, {} times no room\n",
                       count("blocks_swapped_out"), count("blocks_swapped_in"),
                       count("swaps_refused"));
  }
  if (const json pools = report.value("pools", json()); !pools.is_null()) {
    const auto of = [&](const char* name) { return pools.at(name).get<std::int64_t>(); };
    const double selected =
        static_cast<double>(std::max<std::int64_t>(1, of("hits") + of("misses")));
    out += fmt::format(
        "rows in host memory: {} hits, {} misses ({:.1f} %), {} new, {} evicted; {} came in before "
        "decode\n",
        of("hits"), of("misses"), 100 * static_cast<double>(of("misses")) / selected, of("written"),
        of("evictions"), of("warmed"));
  }
  if (const json ranks = report.value("context_parallel", json()); !ranks.is_null()) {
    const auto sent = [&](const char* what) {
      return fmt::format("{} in {} messages",
                         format_bytes(ranks.at(what).at("bytes").get<double>()),
                         ranks.at(what).at("messages").get<std::int64_t>());
    };
    out += fmt::format("{} ranks share requests, by runs of {}: {} of queries, {} of parts\n",
                       ranks.at("ranks").get<int>(), ranks.at("interleave").get<int>(),
                       sent("queries"), sent("parts"));
  }
  if (count("drafted_tokens") > 0) {
    out += fmt::format("drafts{}: {} tokens verified, {} held ({:.0f} %)\n",
                       serving.value("drafts_by_model", false) ? " of the model's draft layer" : "",
                       count("drafted_tokens"), count("accepted_drafts"),
                       100.0 * static_cast<double>(count("accepted_drafts")) /
                           static_cast<double>(count("drafted_tokens")));
  }
  out += fmt::format("taps {} = {}\n", s.at("taps").get<std::int64_t>(), counts);
  const auto unwitnessed = report.at("ref_model").at("says").get<std::string>();
  if (report.at("references") != "none" && !unwitnessed.empty()) out += unwitnessed + "\n";
  out += format_decisions(report.at("decisions"));
  const auto idle = s.value("idle_lanes", std::vector<std::string>());
  out +=
      fmt::format("verdict: {}{}\n", paint(colour_of(verdict == "ok" ? "equal" : verdict), verdict),
                  idle.empty() ? "" : ", but " + idle_text(idle));
  for (const json& fault : report.at("plugin_faults")) {
    out += fmt::format("failed: {}\n", paint("31;1", fault.get<std::string>()));
  }
  if (!report.at("interrupted").is_null()) {
    out += fmt::format("INCOMPLETE: {} ended the run; what was done before it stands here\n",
                       report.at("interrupted").get<std::string>());
  }
  if (!report.at("error").is_null()) {
    out += fmt::format("the run ended early: {}\n",
                       paint("31;1", report.at("error").at("message").get<std::string>()));
  }
  const json& wrong = s.at("first_wrong");
  if (!wrong.is_null()) {
    const auto lane = wrong.at("lane").get<std::string>();
    out += fmt::format("first wrong: {}{}\n", paint("31;1", place(wrong)),
                       lane.empty() ? "" : fmt::format(" (lane {})", lane));
    out += paint("31;1", format_blamed(s.at("blamed")));
    if (!report.at("why").is_null()) {
      for (const json& line : report.at("why").at("lines")) {
        out += fmt::format("  {}\n", line.get<std::string>());
      }
    }
  }
  return out;
}

}  // namespace

std::string format_report(const json& of_run, bool colour) {
  const json report = printable_json(of_run);
  const Paint paint(colour);
  const json& scenario = report.at("scenario");
  std::string out = fmt::format(
      "scenario {} · model {} · {} layers · {} requests · profile {} · lanes {} · references "
      "{}\n\n",
      scenario.at("name").get<std::string>(), report.at("model").at("name").get<std::string>(),
      report.at("model").at("layers").size(), scenario.at("requests").size(),
      scenario.at("profile").get<std::string>(), report.at("lanes").get<std::string>(),
      report.at("references").get<std::string>());
  if (const json& weights = report.at("weights"); !weights.is_null()) {
    out.insert(out.size() - 1, fmt::format("weights: {} tensors, {}, from {}; {} values rounded\n",
                                           weights.at("tensors").size(),
                                           format_bytes(weights.at("bytes").get<double>()),
                                           weights.at("folder").get<std::string>(),
                                           weights.at("rounded").get<std::int64_t>()));
  }
  if (const json& weights = report.at("weights"); !weights.is_null()) {
    std::map<std::string, int> warnings;  // tensors of each
    for (const json& use : weights.at("tensors")) {
      if (use.at("warning").is_string()) ++warnings[use.at("warning").get<std::string>()];
    }
    for (const auto& [text, count] : warnings) {
      out.insert(out.size() - 1, fmt::format("warning: {} (tensors: {})\n", text, count));
    }
  }
  if (const json& inputs = report.at("hidden_states"); !inputs.is_null()) {
    out.insert(out.size() - 1,
               fmt::format("inputs of the layers: from {}\n", inputs.get<std::string>()));
  }
  const json& model = report.at("model");
  if (const auto left = model.find("projections_left_in_bf16"); left != model.end()) {
    const auto names = left->get<std::vector<std::string>>();
    if (!names.empty()) {
      out.insert(out.size() - 1,
                 fmt::format("projections left in bf16, sides no multiples of 128: {}\n",
                             fmt::join(names, ", ")));
    }
  }
  return out + table(report, paint) + drift(report, paint) + selections(report, paint) +
         near_ties(report, paint) + format_curves(report.at("curves")) + distributions(report) +
         format_slack(report.at("budgets")) + format_invariants(report.at("invariants")) +
         format_guard(report.at("guard")) + format_coverage(report.at("exercise")) +
         summary(report, paint);
}

}  // namespace attnscope
