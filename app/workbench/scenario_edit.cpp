#include "app/workbench/scenario_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <span>

#include "app/text/text.h"
#include "engine/family/models.h"
#include "engine/io/json_file.h"
#include "engine/io/printable.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

// Keys of the whole, of "model" and of "serving" that have fields of their own.
constexpr std::array<std::string_view, 13> kRootFields = {
    "version",         "name",         "model",        "hidden_states", "profile",
    "pool_blocks",     "token_budget", "max_requests", "decode_steps",  "serving",
    "tensor_parallel", "requests",     "stops"};
constexpr std::array<std::string_view, 5> kModelFields = {"preset", "config", "layers", "seed",
                                                          "sinks"};
constexpr std::array<std::string_view, 3> kServingFields = {"prefix_caching", "profile", "policy"};

// Offset of the first byte that is not UTF-8; npos = none.
std::size_t bad_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xC2 ? 0
                               : lead < 0xE0 ? 2
                               : lead < 0xF0 ? 3
                               : lead < 0xF5 ? 4
                                             : 0;
    if (length == 0 || i + length > text.size()) return i;
    std::uint32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
    for (std::size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0) != 0x80) return i;
      code = code << 6 | (next & 0x3Fu);
    }
    const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    if (overlong || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF) return i;
    i += length;
  }
  return std::string_view::npos;
}

// Builds the JSON of a draft; what cannot be written is an error of its place.
class DraftWriter {
 public:
  explicit DraftWriter(DraftErrors& errors) : errors_(errors) {}

  // Numbers are written as typed, so that the loader judges them. Empty: the key is left out.
  void number(ordered_json& at, const std::string& place, const char* key, std::string_view typed) {
    typed = trimmed(typed);
    if (typed.empty()) return;
    if (std::int64_t whole = 0; reads(typed, whole)) {
      at[key] = whole;
    } else if (std::uint64_t large = 0; reads(typed, large)) {
      at[key] = large;
    } else if (is_digits(typed)) {
      fail(place + key, "\"" + shortened(typed, 24) + "\" is larger than any number allowed here");
    } else {
      fail(place + key, "\"" + shortened(typed, 24) + "\" is not a whole number");
    }
  }

  void text(ordered_json& at, const std::string& place, const char* key, const std::string& typed) {
    if (const std::size_t bad = bad_utf8(typed); bad != std::string::npos) {
      fail(place + key, fmt::format("byte {} is not UTF-8; keep such a prompt in a file", bad));
    } else {
      at[key] = typed;
    }
  }

  void fail(const std::string& place, const std::string& what) { errors_.emplace(place, what); }

 private:
  template <class T>
  static bool reads(std::string_view text, T& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && end == text.data() + text.size();
  }
  static bool is_digits(std::string_view text) {
    if (text.starts_with('-')) text.remove_prefix(1);
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  }

  DraftErrors& errors_;
};

void write_layers(const ScenarioFile& draft, DraftWriter& writer, ordered_json& model) {
  if (trimmed(draft.layers).empty()) return;
  ordered_json list = ordered_json::array();
  std::string_view rest = draft.layers;
  while (true) {
    const auto comma = rest.find_first_of(", ");
    const std::string_view part = trimmed(rest.substr(0, comma));
    int layer = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), layer);
    if (!part.empty() && (error != std::errc() || end != part.data() + part.size())) {
      writer.fail("model.layers", "\"" + shortened(part, 24) +
                                      "\" is no layer; write numbers with commas, such as 0, 1, 2");
      return;
    }
    if (!part.empty()) list.push_back(layer);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  model["layers"] = std::move(list);
}

// "3: -inf, 5: inf, 7: 1.5"; the loader judges heads and values.
void write_sinks(const ScenarioFile& draft, DraftWriter& writer, ordered_json& model) {
  if (trimmed(draft.sinks).empty()) return;
  ordered_json sinks = ordered_json::object();
  std::string_view rest = draft.sinks;
  while (true) {
    const auto comma = rest.find(',');
    const std::string_view part = trimmed(rest.substr(0, comma));
    const auto colon = part.find(':');
    const std::string head(trimmed(part.substr(0, colon)));
    const std::string value(
        trimmed(colon == std::string_view::npos ? std::string_view() : part.substr(colon + 1)));
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool whole = error == std::errc() && end == value.data() + value.size();
    if (value == "inf" || value == "-inf") {
      sinks[head] = value;
    } else if (whole && std::isfinite(number)) {
      sinks[head] = number;
    } else if (!part.empty()) {
      writer.fail("model.sinks",
                  "\"" + shortened(part, 24) +
                      "\" is no head with its sink; write such as 3: -inf, 5: inf, 7: 1.5");
      return;
    }
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  model["sinks"] = std::move(sinks);
}

std::string sinks_text(const json& sinks) {
  std::string text;
  for (const auto& [head, value] : sinks.items()) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", head,
                        value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

// A number of a scenario file as its field shows it.
std::string shown(const json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_integer()) return {};
  return it->dump();
}

std::string shown_text(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

std::string layers_text(const std::vector<int>& layers) {
  return fmt::format("{}", fmt::join(layers, ", "));
}

void fill_serving(json serving, ScenarioFile& draft) {
  if (serving.contains("prefix_caching")) {
    draft.caching = serving["prefix_caching"].get<bool>() ? "on" : "off";
  }
  draft.manager_profile = shown_text(serving, "profile");
  draft.policy = shown_text(serving, "policy");
  for (const std::string_view key : kServingFields) serving.erase(std::string(key));
  if (!serving.empty()) draft.serving = serving.dump();
}

void write_serving(const ScenarioFile& draft, DraftWriter& writer, DraftErrors& errors,
                   ordered_json& root) {
  ordered_json serving = ordered_json::object();
  if (!draft.caching.empty()) serving["prefix_caching"] = draft.caching == "on";
  if (!draft.manager_profile.empty()) {
    writer.text(serving, "serving.", "profile", draft.manager_profile);
  }
  if (!draft.policy.empty()) writer.text(serving, "serving.", "policy", draft.policy);
  if (!trimmed(draft.serving).empty()) {
    const auto more = parse_json(draft.serving, "serving");
    if (!more || !more->is_object()) {
      errors.emplace("serving", "is no object of JSON; write such as {\"watermark\": 0.1}");
      return;
    }
    for (const auto& [key, value] : more->items()) {
      if (std::ranges::find(kServingFields, key) != kServingFields.end()) {
        errors.emplace("serving", fmt::format("{} has a field of its own", key));
        return;
      }
      serving[key] = value;
    }
  }
  if (!serving.empty()) root["serving"] = std::move(serving);
}

// What else an object holds, as JSON; empty = nothing.
std::string rest_of(json object, std::span<const std::string_view> fields) {
  for (const std::string_view key : fields) object.erase(std::string(key));
  return object.empty() ? std::string() : object.dump();
}

// Written by rest_of().
void write_rest(const std::string& rest, ordered_json& at) {
  if (rest.empty()) return;
  const json more = json::parse(rest);
  for (const auto& [key, value] : more.items()) at[key] = value;
}

// From what the scenario was read from. It has been read once, so its types are right.
void fill_from_file(const json& root, ScenarioFile& draft) {
  const json model = root.value("model", json::object());
  draft.config = shown_text(model, "config");
  draft.from_config = !draft.config.empty();
  draft.preset = shown_text(model, "preset");
  draft.layers = model.contains("layers") && model["layers"].is_array()
                     ? layers_text(model["layers"].get<std::vector<int>>())
                     : std::string();
  draft.seed = shown(model, "seed");
  draft.sinks = sinks_text(model.value("sinks", json::object()));
  draft.hidden_states = shown_text(root, "hidden_states");
  draft.profile = shown_text(root, "profile");
  const json parallel = root.value("tensor_parallel", json::object());
  draft.ranks = shown(parallel, "size");
  draft.rank = shown(parallel, "rank");
  draft.pool_blocks = shown(root, "pool_blocks");
  draft.token_budget = shown(root, "token_budget");
  draft.max_requests = shown(root, "max_requests");
  draft.decode_steps = shown(root, "decode_steps");
  if (root.contains("serving")) fill_serving(root["serving"], draft);
  draft.model_more = rest_of(model, kModelFields);
  draft.more = rest_of(root, kRootFields);
  for (const json& item : root.value("requests", json::array())) {
    RequestDraft request;
    request.name = shown_text(item, "name");
    request.text = shown_text(item, "text");
    request.text_file = shown_text(item, "text_file");
    request.from_file = !request.text_file.empty();
    request.offset = shown(item, "offset");
    request.tokens = shown(item, "tokens");
    request.max_new_tokens = shown(item, "max_new_tokens");
    request.arrival_step = shown(item, "arrival_step");
    request.abort_step = shown(item, "abort_step");
    request.priority = shown(item, "priority");
    draft.requests.push_back(std::move(request));
  }
}

// A scenario that was made by code.
void fill_from_scenario(const Scenario& scenario, ScenarioFile& draft) {
  const ModelConfig& model = scenario.model;
  draft.from_config = !scenario.checkpoint.empty();
  (draft.from_config ? draft.config : draft.preset) = model.name;
  draft.hidden_states = scenario.hidden_states;
  if (model.layers.size() != model.compress_ratios.size()) draft.layers = layers_text(model.layers);
  draft.seed = std::to_string(scenario.seed);
  for (const auto& [head, value] : model.sinks) {
    draft.sinks += fmt::format("{}{}: {}", draft.sinks.empty() ? "" : ", ", head, value);
  }
  draft.profile = model.switches.profile;
  if (scenario.parallel.size > 1) {
    draft.ranks = std::to_string(scenario.parallel.size);
    draft.rank = std::to_string(scenario.parallel.rank);
  }
  draft.pool_blocks = std::to_string(scenario.pool_blocks);
  draft.token_budget = std::to_string(scenario.limits.token_budget);
  draft.max_requests = std::to_string(scenario.limits.max_requests);
  draft.decode_steps = std::to_string(scenario.decode_steps);
  json model_more = json::object(), more = json::object();
  if (model.sink_shift != 0) model_more["sink_shift"] = model.sink_shift;
  if (model.logit_gain != 1) model_more["logit_gain"] = model.logit_gain;
  if (model.twin_tokens) model_more["twin_tokens"] = true;
  const Result<ModelConfig> named = preset(model.name);
  if (named && named->index_topk != model.index_topk) model_more["index_topk"] = model.index_topk;
  if (scenario.first_block != 1) more["first_block"] = scenario.first_block;
  if (scenario.adversarial_lists) more["lists"] = "adversarial";
  draft.model_more = rest_of(model_more, {});
  draft.more = rest_of(more, {});
  for (const ScenarioRequest& r : scenario.requests) {
    RequestDraft request;
    request.name = r.name;
    std::string text;
    for (const std::int32_t token : r.tokens) text += static_cast<char>(token);
    request.text = std::move(text);
    request.max_new_tokens = std::to_string(r.max_new_tokens);
    if (r.arrival_step > 0) request.arrival_step = std::to_string(r.arrival_step);
    if (r.abort_step >= 0) request.abort_step = std::to_string(r.abort_step);
    if (r.priority != 0) request.priority = std::to_string(r.priority);
    draft.requests.push_back(std::move(request));
  }
}

// "FILE: requests[1].tokens: 7 is .." -> place and what. The loader names the file first.
void take_error(const Error& error, const std::string& path, DraftErrors& errors) {
  std::string_view rest = error.message;
  if (rest.starts_with(path + ": ")) rest.remove_prefix(path.size() + 2);
  const auto colon = rest.find(": ");
  std::string_view place = rest.substr(0, colon);
  const bool is_place =
      colon != std::string_view::npos && !place.empty() &&
      place.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789.[]") == std::string_view::npos;
  std::string what(is_place ? rest.substr(colon + 2) : rest);
  if (!error.hint.empty()) what += "; " + error.hint;
  // One field holds all layers.
  if (is_place && place.starts_with("model.layers[")) {
    what =
        fmt::format("at place {}: {}",
                    place.substr(place.find('[') + 1, place.find(']') - place.find('[') - 1), what);
    place = "model.layers";
  }
  if (is_place && place.starts_with("model.sinks.")) {
    what = fmt::format("head {}: {}", place.substr(place.rfind('.') + 1), what);
    place = "model.sinks";
  }
  errors.emplace(is_place ? std::string(place) : std::string(), std::move(what));
}

// A file as it has to be named in a scenario at `path` to be the one it is at `from`.
std::string moved_name(const std::string& name, const std::string& from, const std::string& path) {
  const Result<std::string> was = find_scenario_file(name, from);
  if (!was) return name;  // the check has said so
  std::error_code code;
  const Result<std::string> is = find_scenario_file(name, path);
  if (is && fs::equivalent(*is, *was, code)) return name;
  const fs::path absolute = fs::absolute(*was, code);
  return code ? *was : absolute.lexically_normal().string();
}

// The draft of a file at `from` as it has to read in a file at `path`.
ScenarioFile moved(ScenarioFile draft, const std::string& from, const std::string& path) {
  if (draft.from_config) draft.config = moved_name(draft.config, from, path);
  if (!draft.hidden_states.empty()) {
    draft.hidden_states = moved_name(draft.hidden_states, from, path);
  }
  for (RequestDraft& request : draft.requests) {
    if (request.from_file) request.text_file = moved_name(request.text_file, from, path);
  }
  return draft;
}

}  // namespace

ScenarioDraft draft_of(const RunSetup& setup) {
  const Scenario& scenario = setup.scenario;
  ScenarioDraft draft;
  const Result<json> root = parse_json(scenario.text, "scenario");
  if (root && root->is_object() && root->contains("requests")) {
    fill_from_file(*root, draft.file);
  } else {
    fill_from_scenario(scenario, draft.file);
  }
  draft.file.name = scenario.name;
  draft.file.stops.list = scenario.stops;
  draft.lanes = setup.lanes;
  draft.references = setup.references;
  return draft;
}

namespace {

void write_stops(const ScenarioFile& draft, ordered_json& root) {
  if (draft.stops.list.empty()) return;
  ordered_json stops = ordered_json::array();
  for (const ScenarioStop& stop : draft.stops.list) {
    ordered_json item = {{"when", stop.when}};
    if (!stop.on) item["on"] = false;
    stops.push_back(std::move(item));
  }
  root["stops"] = std::move(stops);
}

}  // namespace

Result<std::string> draft_text(const ScenarioFile& draft, DraftErrors* errors) {
  DraftErrors own;
  DraftErrors& found = errors != nullptr ? *errors : own;
  DraftWriter writer(found);
  ordered_json root;
  root["version"] = 1;
  if (!draft.name.empty()) writer.text(root, "", "name", draft.name);
  ordered_json model;
  writer.text(model, "model.", draft.from_config ? "config" : "preset",
              draft.from_config ? draft.config : draft.preset);
  write_layers(draft, writer, model);
  writer.number(model, "model.", "seed", draft.seed);
  write_sinks(draft, writer, model);
  write_rest(draft.model_more, model);
  root["model"] = std::move(model);
  if (!draft.hidden_states.empty()) writer.text(root, "", "hidden_states", draft.hidden_states);
  if (!draft.profile.empty()) writer.text(root, "", "profile", draft.profile);
  ordered_json parallel = ordered_json::object();
  writer.number(parallel, "tensor_parallel.", "size", draft.ranks);
  writer.number(parallel, "tensor_parallel.", "rank", draft.rank);
  if (!parallel.empty()) root["tensor_parallel"] = std::move(parallel);
  writer.number(root, "", "pool_blocks", draft.pool_blocks);
  writer.number(root, "", "token_budget", draft.token_budget);
  writer.number(root, "", "max_requests", draft.max_requests);
  writer.number(root, "", "decode_steps", draft.decode_steps);
  write_rest(draft.more, root);
  write_serving(draft, writer, found, root);
  write_stops(draft, root);
  ordered_json requests = ordered_json::array();
  for (std::size_t i = 0; i < draft.requests.size(); ++i) {
    const RequestDraft& r = draft.requests[i];
    const std::string place = fmt::format("requests[{}].", i);
    ordered_json item = ordered_json::object();
    if (!r.name.empty()) writer.text(item, place, "name", r.name);
    writer.text(item, place, r.from_file ? "text_file" : "text",
                r.from_file ? r.text_file : r.text.str());
    writer.number(item, place, "offset", r.offset);
    writer.number(item, place, "tokens", r.tokens);
    writer.number(item, place, "max_new_tokens", r.max_new_tokens);
    writer.number(item, place, "arrival_step", r.arrival_step);
    writer.number(item, place, "abort_step", r.abort_step);
    writer.number(item, place, "priority", r.priority);
    requests.push_back(std::move(item));
  }
  root["requests"] = std::move(requests);
  if (!found.empty()) {
    const auto& [place, what] = *found.begin();
    return bad_input(fmt::format("{}: {}", place, what));
  }
  return json_text(root, 2) + "\n";
}

DraftCheck check_draft(const ScenarioFile& draft, const std::string& path) {
  DraftCheck check;
  std::string file = path.empty() ? "scenario.json" : path;
  try {
    Result<std::string> text = draft_text(draft, &check.errors);
    if (!text) return check;
    Result<Scenario> scenario = parse_scenario(std::move(*text), file);
    if (scenario) {
      scenario->path = path;
      check.scenario = std::move(*scenario);
    } else {
      take_error(scenario.error(), file, check.errors);
    }
  } catch (const std::bad_alloc&) {
    check.errors.emplace("", "too large for the memory that is free; choose shorter prompts");
  }
  return check;
}

Result<ScenarioFile> save_draft(const ScenarioFile& draft, const std::string& from,
                                const std::string& path) {
  if (path.empty()) return bad_input("no file name is given", "name a file, such as mine.json");
  ScenarioFile file = moved(draft, from, path);
  // A file that this program would refuse is not written.
  const DraftCheck check = check_draft(file, path);
  if (!check.scenario) {
    const auto& [place, what] = *check.errors.begin();
    return bad_input(place.empty() ? what : fmt::format("{}: {}", place, what),
                     "mend it in the scenario panel, then save again");
  }
  if (Result<void> ok = write_text_file(path, check.scenario->text); !ok) return ok.error();
  return file;
}

void ScenarioEditor::load(const RunSetup& setup) {
  end();
  ScenarioDraft next = draft_of(setup);
  if (setup.scenario.path == opened_path_ && next.file == opened_) {
    applied_.lanes = now_.draft.lanes = next.lanes;
    applied_.references = now_.draft.references = next.references;
    changed();
    return;
  }
  if (!applied()) undo_.push(now_);
  opened_path_ = setup.scenario.path;
  opened_ = next.file;
  now_.file = std::make_shared<File>(File{opened_path_, next.file});
  now_.path = opened_path_;
  applied_ = now_.draft = std::move(next);
  applied_file_ = now_.file;
  changed();
}

ScenarioFile new_scenario() {
  ScenarioFile file;
  file.name = "untitled";
  file.preset = "tiny";
  file.pool_blocks = "256";
  RequestDraft request;
  request.name = "first";
  request.text = "Write a prompt here: each of its bytes is a token.";
  request.max_new_tokens = "16";
  file.requests.push_back(std::move(request));
  return file;
}

void ScenarioEditor::start(ScenarioFile file) {
  end();
  undo_.push(now_);
  now_.file = std::make_shared<File>(File{"", ScenarioFile{}});
  now_.path.clear();
  now_.draft.file = std::move(file);
  changed();
}

void ScenarioEditor::changed() {
  is_applied_ = now_.file == applied_file_ && now_.draft == applied_;
  is_saved_ = now_.draft.file == now_.file->saved;
  ++version_;
}

void ScenarioEditor::restore(State state) {
  now_ = std::move(state);
  if (now_.path != now_.file->path) {  // saved elsewhere since
    now_.draft.file = moved(std::move(now_.draft.file), now_.path, now_.file->path);
    now_.path = now_.file->path;
  }
  changed();
}

void ScenarioEditor::change(const std::function<void(ScenarioDraft&)>& edit) {
  end();
  ScenarioDraft next = now_.draft;
  edit(next);
  if (next == now_.draft) return;
  undo_.push(now_);
  now_.draft = std::move(next);
  changed();
}

void ScenarioEditor::begin() {
  end();
  before_ = now_.draft;
}

void ScenarioEditor::type(const std::function<void(ScenarioDraft&)>& edit) {
  if (!before_) before_ = now_.draft;
  edit(now_.draft);
  changed();
}

void ScenarioEditor::end() {
  if (before_ && !(*before_ == now_.draft)) {
    undo_.push({std::move(*before_), now_.file, now_.path});
  }
  before_.reset();
}

void ScenarioEditor::undo() {
  end();
  if (undo_.can_undo()) restore(undo_.undo(now_));
}

void ScenarioEditor::redo() {
  end();
  if (undo_.can_redo()) restore(undo_.redo(now_));
}

void ScenarioEditor::revert() {
  end();
  if (applied()) return;
  undo_.push(now_);
  restore({applied_, applied_file_, applied_file_->path});
}

RunSetup ScenarioEditor::setup(Scenario scenario) const {
  RunSetup setup;
  setup.scenario = std::move(scenario);
  setup.lanes = now_.draft.lanes;
  setup.references = now_.draft.references;
  return setup;
}

void ScenarioEditor::mark_applied(const RunSetup& setup) {
  end();
  opened_path_ = setup.scenario.path;
  opened_ = draft_of(setup).file;
  applied_ = now_.draft;
  applied_file_ = now_.file;
  changed();
}

void ScenarioEditor::mark_saved(ScenarioFile as_written, const std::string& path) {
  // Names of files changed with the place alone, so what is applied stays applied.
  if (applied_file_ == now_.file && applied_.file == now_.draft.file) {
    applied_.file = as_written;
  } else if (applied_file_ == now_.file) {
    applied_.file = moved(std::move(applied_.file), now_.path, path);
  }
  now_.draft.file = as_written;
  now_.path = path;
  *now_.file = {path, std::move(as_written)};
  changed();
}

}  // namespace attnscope
