#include "app/cli/ess_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/number_check.h"
#include "app/reports/ess_claims.h"
#include "app/reports/ess_trace.h"
#include "app/text/format.h"
#include "app/text/say.h"
#include "engine/io/plural.h"
#include "engine/offload/row_pool.h"
#include "engine/offload/simulate.h"

namespace attnscope {
namespace {

using nlohmann::json;

struct EssCommand {
  std::string trace;
  GeneratorOptions generator;
  std::vector<double> ratios{0.1, 0.2, 0.4};
  bool ratios_given = false;
  std::string left_out;  // of the ratios that nobody gave: which are too small, and why
  std::int64_t pool_rows = 0;
  std::string policy = "lru", warm_up = "prefill", attend = "none";
  bool by_step = false;
  OverlapConstants constants;
  bool json = false;
};

// A constant of the model: its option, its unit, and where it is.
struct EssConstant {
  const char* option;
  const char* unit;
  const char* what;
  double OverlapConstants::*value;
};
constexpr EssConstant kEssConstants[] = {
    {"--host-to-device", "GB/s", "Host to device", &OverlapConstants::host_to_device},
    {"--device-to-host", "GB/s", "Device to host", &OverlapConstants::device_to_host},
    {"--transfer-us", "us", "Before the first byte of a transfer", &OverlapConstants::transfer_us},
    {"--indexer-us", "us", "Indexer, of 1024 rows of context", &OverlapConstants::indexer_us},
    {"--attention-us", "us", "Attention, of 1024 selected rows", &OverlapConstants::attention_us},
    {"--preattn-us", "us", "What does not need the selection", &OverlapConstants::preattn_us},
    {"--merge-us", "us", "DA: merge of two parts", &OverlapConstants::merge_us},
    {"--split-us", "us", "DBA: what two halves cost beyond one whole", &OverlapConstants::split_us},
    {"--other-us", "us", "What else a layer takes", &OverlapConstants::other_us},
};

Result<SelectionTrace> read_selections(const EssCommand& command) {
  if (command.trace == "generate") return generated_trace(command.generator);
  auto capture = Capture::open(command.trace);
  if (!capture) return capture.error();
  return selections_of(**capture);
}

json times_json(const std::array<std::optional<double>, kOverlaps>& us) {
  json times = json::object();
  for (int i = 0; i < kOverlaps; ++i) {
    const auto& time = us[static_cast<std::size_t>(i)];
    times[overlap_name(static_cast<Overlap>(i))] = time ? json(*time) : json(nullptr);
  }
  return times;
}

json counts_json(const OffloadCounts& counts) {
  return {{"hits", counts.hits},
          {"misses", counts.misses},
          {"written", counts.written},
          {"evictions", counts.evictions},
          {"miss_rate", counts.miss_rate()}};
}

json rates_json(const OffloadResult& result) {
  json rates = json::object();
  for (int i = 0; i < kOverlaps; ++i) {
    const auto& us = result.us[static_cast<std::size_t>(i)];
    rates[overlap_name(static_cast<Overlap>(i))] =
        us ? json(result.throughput(*us)) : json(nullptr);
  }
  rates["best"] = result.throughput(result.best_us);
  return rates;
}

json ess_json(const EssCommand& command, const SelectionTrace& trace,
              const std::vector<OffloadResult>& results) {
  json constants = json::object(), rows = json::array();
  for (const EssConstant& c : kEssConstants) {
    constants[c.option + 2] = {{"assumed", command.constants.*c.value}, {"unit", c.unit}};
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const OffloadResult& result = results[i];
    json layers = json::array();
    for (const OffloadLayer& layer : result.layers) {
      json one = counts_json(layer.total);
      one["layer"] = layer.layer;
      one["overlap"] = layer.overlap ? json(*layer.overlap) : json(nullptr);
      one["modelled_us"] = times_json(layer.us);
      one["best"] = overlap_name(layer.best);
      if (command.by_step) {
        one["steps"] = json::array();
        for (std::size_t s = 0; s < layer.steps.size(); ++s) {
          json step = counts_json(layer.steps[s]);
          step["step"] = trace.steps[s].step;
          step["overlap"] = layer.step_overlap[s] ? json(*layer.step_overlap[s]) : json(nullptr);
          one["steps"].push_back(std::move(step));
        }
      }
      layers.push_back(std::move(one));
    }
    json row = counts_json(result.total);
    row["ratio"] = command.ratios[i];
    row["pool_rows"] = result.pool_rows;
    row["bytes_in"] = result.bytes_in;
    row["bytes_back"] = result.bytes_back;
    row["modelled_us"] = times_json(result.us);
    row["modelled_best_us"] = result.best_us;
    row["modelled_tokens_per_s"] = rates_json(result);
    row["layers"] = std::move(layers);
    rows.push_back(std::move(row));
  }
  return {{"format", "attnscope-ess"},    {"version", 1},
          {"source", trace.source},       {"left", trace.left},
          {"left_out", command.left_out}, {"policy", command.policy},
          {"warm_up", command.warm_up},   {"attend", command.attend},
          {"steps", trace.steps.size()},  {"requests", trace.requests},
          {"context", trace.context},     {"rows", trace.rows},
          {"row_bytes", trace.row_bytes}, {"index_bytes", trace.index_bytes},
          {"constants", constants},       {"ratios", rows}};
}

std::string modelled(const std::optional<double>& us) { return us ? format_us(*us) : "-"; }

void print_head(const EssCommand& command, const SelectionTrace& trace) {
  say("{}\n", trace.source);
  if (!command.left_out.empty()) say("{}\n", command.left_out);
  if (!trace.left.empty()) say("{}\n", trace.left);
  say("{}, {}, {} that select; {} rows a layer of {} each, beside index keys of {}\n",
      plural(std::ssize(trace.steps), "decode step", "decode steps"),
      plural(trace.requests, "request", "requests"),
      plural(std::ssize(trace.layers), "layer", "layers"), format_count(trace.rows),
      format_bytes(static_cast<double>(trace.row_bytes)),
      format_bytes(static_cast<double>(trace.index_bytes)));
  say("pool of each layer: {}, {}\n", command.policy,
      command.warm_up == "cold" ? std::string("empty before the first step")
                                : fmt::format("warmed with the selections of the last {} tokens of "
                                              "each prompt before the first step",
                                              kWarmWindows));
  if (command.attend != "none") {
    say("layers attend: {}; halves of a batch (dba) select one after the other\n", command.attend);
  }
  std::vector<std::string> constants;
  for (const EssConstant& c : kEssConstants) {
    constants.push_back(
        fmt::format("{} {} {}", c.option + 2, format_number(command.constants.*c.value), c.unit));
  }
  say("times are of a MODEL whose constants are assumed, not measured:\n  {}\n",
      fmt::join(constants, ", "));
}

void print_tables(const EssCommand& command, const SelectionTrace& trace,
                  const std::vector<OffloadResult>& results) {
  print_head(command, trace);
  say("\nall layers and steps:\n{:>6}{:>10}{:>10}{:>10}{:>9}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}"
      "{:>12}\n",
      "ratio", "pool rows", "hits", "misses", "missed", "gathered", "back", "none", "PreAttn", "DA",
      "DBA", "best each");
  for (std::size_t i = 0; i < results.size(); ++i) {
    const OffloadResult& r = results[i];
    say("{:>6}{:>10}{:>10}{:>10}{:>9}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n",
        format_number(command.ratios[i]), format_count(r.pool_rows), format_count(r.total.hits),
        format_count(r.total.misses), format_share(r.total.miss_rate()),
        format_bytes(static_cast<double>(r.bytes_in)),
        format_bytes(static_cast<double>(r.bytes_back)), modelled(r.us[0]), modelled(r.us[1]),
        modelled(r.us[2]), modelled(r.us[3]), format_us(r.best_us));
  }
  say("\nmodelled tokens/s, all layers:\n{:>6}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "ratio", "none",
      "PreAttn", "DA", "DBA", "best each");
  for (std::size_t i = 0; i < results.size(); ++i) {
    const OffloadResult& r = results[i];
    say("{:>6}", format_number(command.ratios[i]));
    for (const auto& us : r.us) {
      say("{:>12}", us ? format_count(std::llround(r.throughput(*us))) : "-");
    }
    say("{:>12}\n", format_count(std::llround(r.throughput(r.best_us))));
  }
  say("\nby layer: overlap of consecutive selections, then by ratio what missed and the fastest\n"
      "{:>6}{:>9}",
      "layer", "overlap");
  for (const double ratio : command.ratios) say("{:>18}", format_number(ratio));
  say("\n");
  for (std::size_t k = 0; k < trace.layers.size(); ++k) {
    const auto& overlap = results.front().layers[k].overlap;
    say("{:>6}{:>9}", trace.layers[k], overlap ? format_share(*overlap) : "-");
    for (const OffloadResult& result : results) {
      const OffloadLayer& layer = result.layers[k];
      say("{:>18}",
          fmt::format("{} {}", format_share(layer.total.miss_rate()), overlap_name(layer.best)));
    }
    say("\n");
  }
}

// What each layer missed in each step.
void print_steps(const EssCommand& command, const SelectionTrace& trace,
                 const std::vector<OffloadResult>& results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    say("\nby step: missed, and rows of the longest request; ratio {}\n{:>6}{:>10}",
        format_number(command.ratios[i]), "step", "context");
    for (const int layer : trace.layers) say("{:>10}", fmt::format("layer {}", layer));
    say("\n");
    for (std::size_t s = 0; s < trace.steps.size(); ++s) {
      say("{:>6}{:>10}", trace.steps[s].step, format_count(trace.steps[s].context));
      for (const OffloadLayer& layer : results[i].layers) {
        say("{:>10}", format_share(layer.steps[s].miss_rate()));
      }
      say("\n");
    }
  }
}

// Rows that a pool must have: those that one step of a layer needs at once.
std::int64_t least_pool(const SelectionTrace& trace) {
  std::size_t most = 1;
  for (const SelectionStep& step : trace.steps) {
    for (const LayerSelection& layer : step.layers) {
      std::vector<HostRow> rows = layer.selected;
      rows.insert(rows.end(), layer.written.begin(), layer.written.end());
      std::ranges::sort(rows);
      const auto twice = std::ranges::unique(rows);
      most = std::max(most, rows.size() - twice.size());
    }
  }
  return static_cast<std::int64_t>(most);
}

Result<as_status> simulate_command(const EssCommand& command) {
  auto trace = read_selections(command);
  if (!trace) return trace.error();
  const auto attend = overlap_choice(command.attend, trace->layers);
  if (!attend) {
    return usage_error("--attend " + attend.error().message, attend.error().hint);
  }
  std::vector<OffloadResult> results;
  EssCommand sized = command;
  for (std::size_t i = 0; i < sized.ratios.size(); ++i) {
    if (std::ranges::count(sized.ratios, sized.ratios[i]) > 1) {
      return bad_input(fmt::format("--ratio {}: it is there twice", sized.ratios[i]),
                       "name each pool once");
    }
  }
  const std::int64_t least = least_pool(*trace);
  if (!command.ratios_given && command.pool_rows == 0) {
    // Of pools that nobody asked for, those that the trace leaves any use.
    std::vector<double> small;
    for (const double ratio : std::vector<double>(sized.ratios)) {
      if (pool_rows(ratio, trace->rows) >= least) continue;
      small.push_back(ratio);
      std::erase(sized.ratios, ratio);
    }
    if (sized.ratios.empty()) sized.ratios = {1};
    if (!small.empty()) {
      sized.left_out = fmt::format("left out: {} {}, as the largest step needs {} of {} rows",
                                   agree(small.size(), "pool", "pools"), fmt::join(small, ", "),
                                   least, trace->rows);
    }
  }
  // One pool of so many rows, and the ratio that it is.
  if (command.pool_rows > 0) {
    sized.ratios = {static_cast<double>(command.pool_rows) / static_cast<double>(trace->rows)};
  }
  for (const double ratio : sized.ratios) {
    auto result = simulate_offload(
        *trace, {.ratio = command.pool_rows > 0 ? 1.0 : ratio,
                 .pool_rows = command.pool_rows,
                 .policy = command.policy == "fifo" ? PoolPolicy::kFifo : PoolPolicy::kLru,
                 .warm = command.warm_up == "prefill",
                 .attend = *attend,
                 .constants = command.constants});
    if (!result && result.error().code == AS_BAD_INPUT) {
      // Rounded up, so that what is printed is enough.
      const double enough =
          std::ceil(static_cast<double>(least) * 1e4 / static_cast<double>(trace->rows)) / 1e4;
      if (command.pool_rows > 0) {
        return bad_input(
            fmt::format("--pool-rows {}: {}", command.pool_rows, result.error().message),
            fmt::format("the largest step needs {} of {} rows: --pool-rows {} or more", least,
                        trace->rows, least));
      }
      return bad_input(fmt::format("--ratio {}: {}", ratio, result.error().message),
                       fmt::format("the largest step needs {} of {} rows: --ratio {} or more",
                                   least, trace->rows, std::min(1.0, enough)));
    }
    if (!result) return result.error();
    results.push_back(std::move(*result));
  }
  if (command.json) {
    say_json(ess_json(sized, *trace, results));
  } else {
    print_tables(sized, *trace, results);
    if (command.by_step) print_steps(sized, *trace, results);
  }
  return AS_OK;
}

Result<as_status> claims_command(const std::vector<std::string>& captures,
                                 const OverlapConstants& constants, bool as_json) {
  std::vector<SelectionTrace> recorded;
  for (const std::string& path : captures) {
    auto capture = Capture::open(path);
    if (!capture) return capture.error();
    auto trace = selections_of(**capture);
    if (!trace) return trace.error();
    recorded.push_back(std::move(*trace));
  }
  auto claims = ess_claims(recorded, constants);
  if (!claims) return claims.error();
  json list = json::array();
  for (const EssClaim& c : *claims) {
    if (as_json) {
      list.push_back({{"claim", c.claim},
                      {"found", c.found},
                      {"source", c.source},
                      {"agreement", agreement_name(c.agreement)}});
    } else {
      say("{:<8} {}\n         {}\n         of {}\n", agreement_name(c.agreement), c.claim, c.found,
          c.source);
    }
  }
  if (as_json) {
    say_json(json{{"format", "attnscope-ess-claims"}, {"version", 1}, {"claims", list}});
  }
  return AS_OK;
}

void add_constants(CLI::App& command, OverlapConstants& constants) {
  for (const EssConstant& c : kEssConstants) {
    command
        .add_option(
            c.option, constants.*c.value,
            fmt::format("{}, {}; assumed, not measured ({})", c.what, c.unit, constants.*c.value))
        ->check(number_between(std::string_view(c.unit) == "us" ? 0.0 : 1e-3, 1e9));
  }
}

// What only a generated trace has.
std::vector<CLI::Option*> add_generator(CLI::App& simulate, GeneratorOptions& g) {
  return {
      simulate.add_option("--context", g.context, "generate: rows of a request (32768)"),
      simulate.add_option("--batch", g.batch, "generate: requests (1)"),
      simulate.add_option("--overlap", g.overlap,
                          "generate: share of a selection that the step before had (0.85)"),
      simulate.add_option("--top-k", g.topk, "generate: rows that a token selects (2048)"),
      simulate.add_option("--hot-rows", g.hot_rows, "generate: rows that are liked more (0)"),
      simulate.add_option("--hot-share", g.hot_share, "generate: of new rows, from hot ones (0)"),
      simulate.add_option("--steps", g.steps, "generate: decode steps (64)"),
      simulate.add_option("--layers", g.layers, "generate: layers that select (4)"),
      simulate.add_option("--seed", g.seed, "generate: seed (1)")->check(CLI::NonNegativeNumber),
      simulate.add_option("--row-bytes", g.row_bytes, "generate: bytes of a row (656)")
          ->check(CLI::Range(1, 1 << 20)),
      simulate.add_option("--index-bytes", g.index_bytes, "generate: of its index key (132)")
          ->check(CLI::Range(1, 1 << 20)),
  };
}

}  // namespace

void add_ess_command(CLI::App& app, std::function<Result<as_status>()>& action) {
  auto* ess = app.add_subcommand(
      "ess", "Rows of sparse attention in host memory behind a pool on the device");
  ess->require_subcommand(1);
  auto* simulate = ess->add_subcommand(
      "simulate", "Hits, traffic and modelled times of pools, over recorded or made selections");
  auto command = std::make_shared<EssCommand>();
  simulate->add_option("trace", command->trace, "A capture (record --rows all), or 'generate'")
      ->required();
  auto* ratio =
      simulate
          ->add_option("--ratio", command->ratios,
                       "Rows of a layer's pool to all its rows, comma separated (0.1,0.2,0.4)")
          ->delimiter(',');
  simulate->parse_complete_callback(
      [command, ratio] { command->ratios_given = ratio->count() > 0; });
  simulate
      ->add_option("--pool-rows", command->pool_rows,
                   "Rows of a layer's pool, in the place of --ratio")
      ->excludes(ratio)
      ->check(CLI::Range(1, 1 << 30));
  simulate->add_option("--policy", command->policy, "Who leaves a full pool: lru or fifo (lru)")
      ->check(CLI::IsMember({"lru", "fifo"}));
  simulate
      ->add_option("--warm-up", command->warm_up,
                   "cold, or prefill: with the last selections of the prompts (prefill)")
      ->check(CLI::IsMember({"cold", "prefill"}));
  simulate->add_option("--attend", command->attend,
                       "none, da or dba, and layers that do otherwise: da,4=dba (none)");
  simulate->add_flag("--by-step", command->by_step, "What each layer missed in each step, too");
  add_constants(*simulate, command->constants);
  const auto of_generator = add_generator(*simulate, command->generator);
  simulate->add_flag("--json", command->json, "Print as JSON");
  simulate->callback([=, &action] {
    action = [=]() -> Result<as_status> {
      for (const CLI::Option* option : of_generator) {
        if (command->trace == "generate" || option->count() == 0) continue;
        return usage_error(fmt::format("{}: {} is a capture, which has its own", option->get_name(),
                                       command->trace),
                           "give it with 'generate' alone");
      }
      return simulate_command(*command);
    };
  });
  auto* claims = ess->add_subcommand(
      "claims", "What is said of such pools, beside what comes out here, each with its source");
  auto captures = std::make_shared<std::vector<std::string>>();
  auto assumed = std::make_shared<EssCommand>();
  claims->add_option("captures", *captures, "Captures (record --rows all) to look at, if any");
  add_constants(*claims, assumed->constants);
  claims->add_flag("--json", assumed->json, "Print as JSON");
  claims->callback([=, &action] {
    action = [=] { return claims_command(*captures, assumed->constants, assumed->json); };
  });
}

}  // namespace attnscope
