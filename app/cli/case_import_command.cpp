#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "app/cli/capture_commands.h"
#include "app/reports/report_parts.h"
#include "app/text/format.h"
#include "app/text/overwrite.h"
#include "app/text/say.h"
#include "app/wiring/case_lane.h"
#include "app/wiring/find_model.h"
#include "app/wiring/wiring.h"
#include "engine/family/family.h"
#include "engine/family/models.h"
#include "engine/io/json_file.h"
#include "engine/io/plural.h"
#include "engine/io/shell_word.h"
#include "engine/model/profile_switches.h"
#include "engine/opcase/case_file.h"
#include "engine/opcase/import_capture.h"
#include "engine/opcase/import_case.h"
#include "engine/opcase/import_guess.h"
#include "engine/opcase/import_use.h"
#include "engine/tensorfile/dump_file.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {
namespace {

using Action = std::function<Result<as_status>()>;

struct ImportCommand {
  std::string map, output, op, model;
  std::vector<std::string> dumps, requests;
  std::vector<int> layers;
  int layer = -1;
  std::string references = "sim";
  bool force = false, guess = false;
};

Result<std::vector<TensorFile>> open_dumps(const ImportCommand& c) {
  std::vector<TensorFile> files;
  for (const std::string& dump : c.dumps) {
    auto file = open_dump(dump);
    if (!file) return file.error();
    files.push_back(std::move(*file));
  }
  return files;
}

// What is read stays: neither the map nor a dump may be what is written, lie in it, or be the
// tensors of the case that it replaces.
Result<void> check_apart(const ImportCommand& c, const std::string& output) {
  namespace fs = std::filesystem;
  std::vector<std::string> read = c.dumps;
  read.push_back(c.map);
  std::error_code code;
  const auto same = [&](const fs::path& a, const fs::path& b) {
    return fs::equivalent(a, b, code);
  };
  const auto tensors =
      output.ends_with(".json") ? case_tensors(output) : Result<std::string>(Error{});
  for (const std::string& name : read) {
    if (tensors && same(*tensors, name)) {
      return bad_input(
          fmt::format("{} holds the tensors of the case {}, which would be replaced", name, output),
          "choose another name with -o");
    }
    bool inside = same(output, name);
    const fs::path whole = fs::weakly_canonical(name, code);
    for (fs::path at = whole.parent_path(); !inside && at.has_relative_path();
         at = at.parent_path()) {
      inside = output.ends_with(".acap") && same(output, at);
    }
    if (!inside) continue;
    return bad_input(fmt::format("-o {}: {} is read, and would be replaced", output, name),
                     "choose another name with -o");
  }
  return {};
}

// The type of the layer that the cases are of; nothing without a model.
Result<std::optional<std::string_view>> layer_type(const ImportCommand& c, int layer) {
  if (c.model.empty()) return std::optional<std::string_view>();
  auto model = find_model(c.model, {layer}, "");
  if (!model) return model.error();
  return std::optional<std::string_view>(layer_type_name(*model, 0));
}

Result<as_status> import_cases(const ImportCommand& c, const ImportMap& map) {
  auto files = open_dumps(c);
  if (!files) return files.error();
  const int layer = std::max(0, c.layer);
  auto type = layer_type(c, layer);
  if (!type) return type.error();
  const std::vector<const ImportOp*> ops = ops_of_layer(map, *type);
  std::vector<std::string> known;
  std::vector<std::pair<const ImportOp*, std::string>> wanted;  // and the file of each
  for (const ImportOp* op : ops) {
    known.emplace_back(op->op.name);
    if (!c.op.empty() && c.op != op->op.name) continue;
    // One that was asked for says what it lacks.
    if (c.op.empty() && !has_inputs(*op, *files, layer)) continue;
    std::string name = c.output;
    if (c.op.empty() && ops.size() > 1 && name.ends_with(".json")) {
      name = fmt::format("{}.{}.json", name.substr(0, name.size() - 5), op->op.name);
    }
    if (auto ok = check_free(name, c.force); !ok) return ok.error();
    if (auto ok = check_apart(c, name); !ok) return ok.error();
    wanted.emplace_back(op, std::move(name));
  }
  ImportUse use(*files);
  for (const ImportOp* op : ops) {
    if (!c.op.empty() && c.op != op->op.name) continue;
    use.looked_for(*op, layer, !c.op.empty() || has_inputs(*op, *files, layer));
  }
  for (const auto& [op, name] : wanted) {
    auto made = import_case(*op, *files, map.engine, layer);
    if (!made) return made.error();
    if (auto ok = write_case(made->kept, name); !ok) return ok.error();
    say("{}: {}\n", name, op->op.name);
    if (!*type && !op->layers.empty()) {
      say("  taken for a layer of type {}: --model says what layer {} is\n", op->layers.front(),
          layer);
    }
    for (const std::string& note : made->notes) say("  {}\n", note);
  }
  for (const std::string& text : use.sentences(map)) say("{}\n", text);
  if (!wanted.empty()) return AS_OK;
  if (!c.op.empty() && std::ranges::count(known, c.op) == 0) {
    return usage_error(fmt::format("--op {}: the map has no such op{}", c.op,
                                   *type ? " in a layer of this type" : ""),
                       fmt::format("its ops: {}", fmt::join(known, ", ")));
  }
  return bad_input("the dump has the inputs of no op of the map",
                   fmt::format("--op NAME says what is missing; ops: {}", fmt::join(known, ", ")));
}

// NAME or NAME:TOKENS.
Result<ImportedRequest> parse_request(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  ImportedRequest request{text.substr(0, colon), -1};
  if (colon != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + colon + 1, end, request.prompt_tokens);
    if (read.ec != std::errc() || read.ptr != end || request.prompt_tokens < 0 ||
        request.prompt_tokens > 1 << 24) {
      return usage_error(fmt::format("--request {}: expected NAME or NAME:TOKENS", text),
                         "TOKENS is the length of its prompt");
    }
  }
  if (request.name.empty()) return usage_error(fmt::format("--request {}: has no name", text));
  return request;
}

struct LeftOutTotals {
  std::int64_t ops = 0, taps = 0, wrong = 0;
};

// A line for each kind of op, and one for each tap of theirs that is wrong.
LeftOutTotals print_left_out(const ImportCommand& c, const std::vector<LeftOutOp>& left_out) {
  LeftOutTotals totals;
  std::vector<std::string> dumps;
  dumps.reserve(c.dumps.size());
  for (const std::string& dump : c.dumps) dumps.push_back(shell_word(dump));
  std::map<std::string, std::vector<const LeftOutOp*>> by_name;
  for (const LeftOutOp& left : left_out) by_name[left.name].push_back(&left);
  for (const auto& [name, ops] : by_name) {
    std::set<int> layers;
    for (const LeftOutOp* left : ops) layers.insert(left->layer);
    say("  left out: {} of layer{} {}: it is a helper op, which has no place in a step; "
        "import it as a case: attnscope case import {} {} -o {}.json --op {} --layer {} "
        "--model {}\n",
        name, agree(layers.size(), "", "s"), fmt::join(layers, ", "), shell_word(c.map),
        fmt::join(dumps, " "), name, name, *layers.begin(), shell_word(c.model));
    for (const LeftOutOp* left : ops) {
      ++totals.ops;
      const std::string place =
          fmt::format("{} of layer {} of step {}", name, left->layer, left->step);
      if (!left->why_not.empty()) say("  {}: not judged: {}\n", place, left->why_not);
      if (!left->run) continue;
      for (const CaseTap& tap : left->run->taps) {
        if (tap.verdict == Verdict::kNotCompared) continue;
        ++totals.taps;
        if (tap.verdict != Verdict::kWrong) continue;
        ++totals.wrong;
        const WorstElement& worst = tap.comparison.worst;
        say("  {}: {} is wrong{}{}{}\n", place, tap.tap,
            worst.index.empty()
                ? ""
                : fmt::format(", worst at [{}]: {} instead of {}", fmt::join(worst.index, ","),
                              format_exact(worst.value), format_exact(worst.reference)),
            tap.note.empty() ? "" : ": ", tap.note);
      }
    }
  }
  return totals;
}

// Runs cases with ref.sim.
struct SimRunner {
  Tolerances tolerances;
  LaneRegistry registry = all_lanes();
  cpu::ThreadPool pool{0};

  Result<CaseRun> run(const OpCase& kept, bool keep_references) const {
    auto lane = find_case_lane(registry, "ref.sim", kept.op);
    if (!lane) return lane.error();
    CaseRunOptions options = case_options(registry, kept.op, tolerances, pool.handle());
    options.keep_references = keep_references;
    return run_case(kept, *lane, options);
  }
};

// The rule that a map has for index scores, for whatever is made of the capture.
Result<void> take_score_rule(const ImportMap& map, ModelConfig& model) {
  constexpr std::string_view kSwitch = "index_scores";
  if (std::ranges::count(family_of(model).switches(model), kSwitch) == 0) return {};
  const auto known = std::ranges::find(all_switches(), kSwitch, &SwitchInfo::name);
  for (const ImportOp& op : map.ops) {
    const auto rule = op.numbers.find("score_rule");
    if (op.op.id != AS_OP_INDEXER_LOGITS || rule == op.numbers.end()) continue;
    const auto value = static_cast<std::size_t>(rule->second);
    if (rule->second < 0 || value >= known->values.size()) continue;  // refused by the op
    if (auto ok = set_switch(model.switches, kSwitch, known->values[value]); !ok) return ok;
  }
  return {};
}

Result<as_status> import_whole(const ImportCommand& c, const ImportMap& map) {
  if (c.model.empty()) {
    return usage_error("a capture needs --model: it says which layers there are",
                       "name a preset such as v4-flash, or a config.json");
  }
  if (!c.op.empty() || c.layer >= 0) {
    return usage_error("--op and --layer choose a case; a capture has all that the dump holds",
                       "--layers chooses layers of a capture");
  }
  ImportCaptureOptions options;
  options.program = "attnscope " ATTNSCOPE_VERSION;
  auto model = find_model(c.model, c.layers, "");
  if (!model) return model.error();
  options.model = std::move(*model);
  if (auto ok = take_score_rule(map, options.model); !ok) return ok.error();
  for (const std::string& text : c.requests) {
    auto request = parse_request(text);
    if (!request) return request.error();
    options.requests.push_back(std::move(*request));
  }
  if (auto ok = check_free(c.output, c.force); !ok) return ok.error();
  const std::string folder = c.output.substr(0, c.output.find_last_not_of('/') + 1);
  if (auto ok = check_apart(c, folder); !ok) return ok.error();
  auto files = open_dumps(c);
  if (!files) return files.error();
  auto tolerances = Tolerances::load("");
  if (!tolerances) return tolerances.error();
  const SimRunner sim{std::move(*tolerances)};
  if (c.references != "none") {
    options.judge = [&](const OpCase& kept) { return sim.run(kept, true); };
  }
  auto made = import_capture(map, steps_of_dump(std::move(*files)), options, c.output);
  if (!made) return made.error();
  say("{}: {} steps, {} ops, {}\n", c.output, made->totals.steps, made->ops,
      format_bytes(static_cast<double>(made->totals.bytes)));
  for (const std::string& note : made->notes) say("  {}\n", note);
  const LeftOutTotals left_out = print_left_out(c, made->left_out);
  const Summary summary = summarise(made->results, sim.tolerances.drift_limit());
  const std::int64_t wrong = summary.count(Verdict::kWrong) + left_out.wrong;
  if (options.judge) {
    say("beside ref.sim on their own inputs: {} taps, {} wrong", summary.taps,
        summary.count(Verdict::kWrong));
    if (left_out.ops > 0) {
      say("; {} ops left out of the capture: {} taps, {} wrong", left_out.ops, left_out.taps,
          left_out.wrong);
    }
    say("\n{}", Lines{format_blamed(printable_json(blamed_json(summary)))});
    for (const std::string& text : made->contradictions) say("contradiction: {}\n", text);
  }
  say("open it with: attnscope show {0}, or attnscope gui {0}\n", shell_word(c.output));
  return wrong > 0 || !made->contradictions.empty() ? AS_MISMATCH : AS_OK;
}

// Finds the map, keeps it beside what is made, and says how it was found.
Result<std::string> guess_command(const ImportCommand& c, const ModelConfig* model) {
  std::filesystem::path name = c.output.substr(0, c.output.find_last_not_of('/') + 1);
  const std::string file = name.replace_extension(".map.json").string();
  if (auto ok = check_free(file, c.force); !ok) return ok.error();
  auto files = open_dumps(c);
  if (!files) return files.error();
  auto tolerances = Tolerances::load("");
  if (!tolerances) return tolerances.error();
  const SimRunner sim{std::move(*tolerances)};
  GuessOptions options;
  options.model = model;
  options.right = [&](const OpCase& kept) -> Result<bool> {
    const auto run = sim.run(kept, false);
    if (!run) return run.error();
    return run->right();
  };
  auto guess = guess_map(*files, options);
  if (!guess) return guess.error();
  if (auto ok = write_text_file(file, guess->map); !ok) return ok.error();
  for (const std::string& line : guess->reasons) say("{}\n", line);
  for (const std::string& line : guess->open) say("not found: {}\n", line);
  say("{}: the map, to be read and changed; import it with: attnscope case import {} ..\n", file,
      shell_word(file));
  return file;
}

Result<as_status> import_command(const ImportCommand& given) {
  ImportCommand c = given;
  if (c.guess) {
    c.dumps.insert(c.dumps.begin(), c.map);
  } else if (c.dumps.empty()) {
    return usage_error("no dump is named", "case import MAP DUMP.. -o NAME.json");
  }
  // Its dimensions, whichever of its layers there are.
  std::optional<ModelConfig> model;
  if (!c.model.empty()) {
    auto found = find_model(c.model, {}, "");
    if (!found) return found.error();
    model = std::move(*found);
  }
  if (c.guess) {
    auto guessed = guess_command(c, model ? &*model : nullptr);
    if (!guessed) return guessed.error();
    c.map = *guessed;
  }
  auto map = read_import_map(c.map, model ? &*model : nullptr);
  if (!map) return map.error();
  std::string name = c.output;
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  if (name.ends_with(".acap")) return import_whole(c, *map);
  if (!c.requests.empty() || !c.layers.empty()) {
    return usage_error("--request and --layers are of a capture", "-o NAME.acap makes one");
  }
  return import_cases(c, *map);
}

}  // namespace

void add_case_import(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand(
      "import", "Make cases, or a whole capture, of another engine's tensors, by a map of names");
  auto c = std::make_shared<ImportCommand>();
  command->add_option("map", c->map, "A map, or one of assets/maps: vllm, sglang, hf")->required();
  command->add_option(
      "dumps", c->dumps,
      "Files of safetensors, .pt, .npz or .npy; of a capture, a file with names that "
      "an earlier one has begins the next step");
  command
      ->add_option("-o,--output", c->output,
                   "NAME.json, NAME.OP.json where there are several; NAME.acap: a capture")
      ->required();
  command->add_option("--op", c->op, "Only this op");
  command->add_option("--layer", c->layer, "What {layer} in the map's names stands for (0)")
      ->check(CLI::Range(0, 1 << 20));
  command->add_option("--model", c->model,
                      "The dumped model, a preset or a config.json: which type a layer has");
  command->add_option("--layers", c->layers, "Layers of the capture, 0,2,3 (all)")->delimiter(',');
  command
      ->add_option("--references", c->references,
                   "sim (default): ref.sim judges every op of the capture on its own inputs; none")
      ->check(CLI::IsMember({"sim", "none"}));
  command
      ->add_option("--request", c->requests,
                   "NAME or NAME:PROMPT_TOKENS of the next row of the tables; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_flag("--guess", c->guess,
                    "No MAP is given: one is found by names, types, shapes and the reference, told "
                    "with its reasons and kept as NAME.map.json");
  command->add_flag("--force", c->force, kForceHelp);
  command->callback([=, &action] { action = [=] { return import_command(*c); }; });
}

}  // namespace attnscope
