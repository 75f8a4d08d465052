#include "app/gui/scenario_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "app/gui/icons.h"
#include "app/gui/text_input.h"
#include "app/gui/widgets.h"
#include "app/text/format.h"
#include "app/text/text.h"
#include "app/wiring/lane_list.h"
#include "engine/family/family.h"
#include "engine/family/models.h"

namespace attnscope::gui {
namespace {

constexpr std::size_t kLongestTyped = std::size_t{1} << 20;  // longer prompts belong in a file

// "name", "name 2", ..: not yet taken.
std::string free_name(const ScenarioFile& file, const std::string& wanted) {
  const auto taken = [&](const std::string& name) {
    return std::ranges::find(file.requests, name, &RequestDraft::name) != file.requests.end();
  };
  std::string name = wanted;
  for (int i = 2; taken(name); ++i) name = fmt::format("{} {}", wanted, i);
  return name;
}

// Those that a model of any family runs, in the order of the op table.
std::vector<as_op_id> ops_of_models() {
  std::set<as_op_id> ops;
  for (const Family* family : families()) {
    const ModelGraph& graph = example_graph(*family);
    ops.insert(graph.before.ops().begin(), graph.before.ops().end());
    for (const LayerGraph& layer : graph.layers) {
      ops.insert(layer.ops().begin(), layer.ops().end());
    }
    ops.insert(graph.after.ops().begin(), graph.after.ops().end());
  }
  ops.insert({AS_OP_SWAP_OUT, AS_OP_SWAP_IN});  // where requests wait in host memory
  return {ops.begin(), ops.end()};
}

}  // namespace

bool ScenarioForm::begin_form(const char* id) {
  if (!ImGui::BeginTable(id, 2)) return false;
  ImGui::TableSetupColumn("label", ImGuiTableColumnFlags_WidthFixed, px(104));
  ImGui::TableSetupColumn("field", ImGuiTableColumnFlags_WidthStretch);
  return true;
}

void ScenarioForm::label(const char* text, const char* help) {
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  ImGui::AlignTextToFramePadding();
  coloured(theme().text_dim, text);
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) tooltip(help);
  ImGui::TableNextColumn();
}

void ScenarioForm::error_of(const std::string& place) {
  if (errors_->empty()) return;
  places_.insert(place);
  const auto at = errors_->find(place);
  if (at == errors_->end()) return;
  ImGui::PushStyleColor(ImGuiCol_Text, theme().bad);
  ImGui::TextWrapped("%s  %s", icon::kWarning, at->second.c_str());
  ImGui::PopStyleColor();
}

// At the top: errors of fields that are not on the screen, such as those of another request.
void ScenarioForm::draw_other_errors() const {
  for (const std::string& place : elsewhere_) {
    const auto at = errors_->find(place);
    if (at == errors_->end()) continue;
    ImGui::PushStyleColor(ImGuiCol_Text, theme().bad);
    ImGui::TextWrapped("%s  %s: %s", icon::kWarning, place.c_str(), at->second.c_str());
    ImGui::PopStyleColor();
  }
}

bool ScenarioForm::is_wrong(std::string_view prefix) const {
  const auto at = errors_->lower_bound(std::string(prefix));
  return at != errors_->end() && at->first.starts_with(prefix);
}

void ScenarioForm::end_typing(const Set& set, bool edited, const std::string& text) {
  if (ImGui::IsItemActivated()) editor_.begin();
  if (edited) editor_.type([&](ScenarioDraft& draft) { set(draft, text); });
  if (ImGui::IsItemDeactivated()) editor_.end();
}

void ScenarioForm::typed(const std::string& place, const std::string& now, const Set& set,
                         const char* hint) {
  field_ = now;
  const bool wrong = errors_->contains(place);
  if (wrong) {
    ImGui::PushStyleColor(ImGuiCol_Border, theme().bad);
    ImGui::PushStyleVar(ImGuiStyleVar_FrameBorderSize, px(1));
  }
  ImGui::SetNextItemWidth(-FLT_MIN);
  const bool edited = text_input(fmt::format("##{}", place).c_str(), field_, hint);
  end_typing(set, edited, field_);
  if (wrong) {
    ImGui::PopStyleVar();
    ImGui::PopStyleColor();
  }
  error_of(place);
}

void ScenarioForm::file_row(const char* text, const char* help, const char* place,
                            std::string ScenarioFile::*member, const char* hint) {
  label(text, help);
  typed(
      place, editor_.draft().file.*member,
      [member](ScenarioDraft& draft, const std::string& value) { draft.file.*member = value; },
      hint);
}

void ScenarioForm::request_row(const char* text, const char* help, const char* key,
                               std::string RequestDraft::*member, const char* hint) {
  label(text, help);
  const std::size_t index = selected_;
  typed(
      fmt::format("requests[{}].{}", index, key), editor_.draft().file.requests[index].*member,
      [member, index](ScenarioDraft& draft, const std::string& value) {
        if (index < draft.file.requests.size()) draft.file.requests[index].*member = value;
      },
      hint);
}

void ScenarioForm::choice(const std::string& place, const std::vector<std::string>& names,
                          std::string ScenarioFile::*member, const char* fallback) {
  const std::string& value = editor_.draft().file.*member;
  const std::string now = value.empty() ? fallback : value;
  ImGui::SetNextItemWidth(-FLT_MIN);
  if (ImGui::BeginCombo(fmt::format("##{}", place).c_str(), now.c_str())) {
    for (const std::string& name : names) {
      if (ImGui::Selectable(name.c_str(), name == now)) {
        editor_.change([&](ScenarioDraft& draft) { draft.file.*member = name; });
      }
    }
    ImGui::EndCombo();
  }
  error_of(place);
}

void ScenarioForm::draw_model(const ScenarioNeeds* needs) {
  ImGui::SeparatorText("Model");
  if (!begin_form("##model")) return;
  file_row("name", "What the scenario is called.", "name", &ScenarioFile::name, "the file's name");
  label("model", "Dimensions: a preset, or a config.json of a published model.");
  int source = editor_.draft().file.from_config ? 1 : 0;
  constexpr std::array kSources = {"preset", "config.json"};
  if (segmented("source", &source, kSources.data(), 2)) {
    editor_.change([&](ScenarioDraft& draft) { draft.file.from_config = source == 1; });
  }
  if (editor_.draft().file.from_config) {
    typed(
        "model.config", editor_.draft().file.config,
        [](ScenarioDraft& draft, const std::string& value) { draft.file.config = value; },
        "config.json");
  } else {
    choice("model.preset", preset_names(), &ScenarioFile::preset, "");
  }
  file_row("layers", "Published numbers of the layers that run.", "model.layers",
           &ScenarioFile::layers, "all");
  file_row("seed", "Of the weights.", "model.seed", &ScenarioFile::seed, "1");
  file_row("sinks",
           "Of heads, in every layer, in the place of the weights' own: -inf is none, inf takes "
           "all.",
           "model.sinks", &ScenarioFile::sinks, "3: -inf, 5: inf");
  file_row("hidden states", "A safetensors file with inputs of the layers recorded elsewhere.",
           "hidden_states", &ScenarioFile::hidden_states, "computed");
  label("profile", "Where published implementations disagree: which one is followed.");
  choice("profile", {"vllm", "deepseek"}, &ScenarioFile::profile, "vllm");
  if (needs != nullptr) {
    for (const std::string& line : needs->profile) dim(line);
  }
  file_row("ranks", "Tensor parallelism: heads and output groups are dealt out to so many.",
           "tensor_parallel.size", &ScenarioFile::ranks, "1");
  file_row("rank", "The one that is seen; the others compute beside it.", "tensor_parallel.rank",
           &ScenarioFile::rank, "0");
  ImGui::EndTable();
  error_of("model");
}

void ScenarioForm::draw_limits() {
  ImGui::SeparatorText("Pool and limits");
  if (!begin_form("##limits")) return;
  file_row("pool blocks", "Block ids of all cache groups together, the null block included.",
           "pool_blocks", &ScenarioFile::pool_blocks);
  file_row("token budget", "Tokens a step computes at most; longer prompts are cut into chunks.",
           "token_budget", &ScenarioFile::token_budget, "512");
  file_row("max requests", "Requests that run at once.", "max_requests",
           &ScenarioFile::max_requests, "8");
  file_row("decode steps", "How far `attnscope run` goes when it is not told.", "decode_steps",
           &ScenarioFile::decode_steps, "20");
  ImGui::EndTable();
}

// One of a few values; the first is what the loader takes when none is written.
void ScenarioForm::pick(const char* id, std::span<const char* const> labels,
                        std::span<const char* const> values, std::string ScenarioFile::*member) {
  const std::string& now = editor_.draft().file.*member;
  int current = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (now == values[i]) current = static_cast<int>(i);
  }
  if (segmented(id, &current, labels.data(), static_cast<int>(labels.size()))) {
    const char* value = values[static_cast<std::size_t>(current)];
    editor_.change([&](ScenarioDraft& draft) { draft.file.*member = value; });
  }
  error_of(id);
}

void ScenarioForm::draw_serving() {
  const ScenarioFile& file = editor_.draft().file;
  const bool wrong = is_wrong("serving");
  if (wrong) ImGui::PushStyleColor(ImGuiCol_Text, theme().bad);
  const bool open = ImGui::TreeNodeEx("Serving", ImGuiTreeNodeFlags_NoTreePushOnOpen);
  if (wrong) ImGui::PopStyleColor();
  ImGui::SameLine();
  dim(fmt::format("prefixes {}, block manager {}, {}{}",
                  file.caching == "off" ? "not shared" : "shared",
                  file.manager_profile.empty() ? "M" : shortened(file.manager_profile),
                  file.policy == "priority" ? "by priority" : "in order",
                  file.serving.empty() ? "" : ", more"));
  if (!open || !begin_form("##serving form")) return;
  constexpr std::array kOnOff = {"on", "off"};
  constexpr std::array kProfiles = {"M", "A"};
  constexpr std::array kPolicyLabels = {"in order", "by priority"};
  constexpr std::array kPolicies = {"fcfs", "priority"};
  label("prefix caching", "Requests that begin alike share the blocks of their beginning.");
  pick("serving.prefix_caching", kOnOff, kOnOff, &ScenarioFile::caching);
  label("block manager", "As vLLM's core of May 2026 (M) or August 2026 (A).");
  pick("serving.profile", kProfiles, kProfiles, &ScenarioFile::manager_profile);
  label("admission", "Who waits and who is preempted: by arrival, or by priority.");
  pick("serving.policy", kPolicyLabels, kPolicies, &ScenarioFile::policy);
  file_row("more",
           "Other keys of the scenario's \"serving\" as JSON: scheduler_block_size, "
           "hash_block_size, retention, reserve_full_sequence, watermark, adaptive_chunks, "
           "switches.",
           "serving", &ScenarioFile::serving, "{}");
  ImGui::EndTable();
}

void ScenarioForm::draw_request_list(const ScenarioNeeds* needs) {
  const auto& requests = editor_.draft().file.requests;
  const float line = ImGui::GetTextLineHeightWithSpacing();
  const float height = line * static_cast<float>(std::clamp<std::size_t>(requests.size(), 1, 8)) +
                       ImGui::GetFrameHeight() + px(2);
  const ImGuiTableFlags flags = ImGuiTableFlags_ScrollY | ImGuiTableFlags_RowBg |
                                ImGuiTableFlags_BordersOuter | ImGuiTableFlags_SizingStretchProp;
  if (!ImGui::BeginTable("##requests", 4, flags, {0, height})) return;
  ImGui::TableSetupScrollFreeze(0, 1);
  ImGui::TableSetupColumn("request", 0, 2.2f);
  ImGui::TableSetupColumn("prompt", 0, 1);
  ImGui::TableSetupColumn("new", 0, 0.8f);
  ImGui::TableSetupColumn("blocks", 0, 0.9f);
  ImGui::TableHeadersRow();
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(requests.size()));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const auto index = static_cast<std::size_t>(i);
      ImGui::PushID(i);
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      const bool wrong = is_wrong(fmt::format("requests[{}]", i));
      if (wrong) ImGui::PushStyleColor(ImGuiCol_Text, theme().bad);
      const std::string name =
          requests[index].name.empty() ? fmt::format("request{}", i) : requests[index].name;
      if (ImGui::Selectable("##row", index == selected_, ImGuiSelectableFlags_SpanAllColumns)) {
        selected_ = index;
      }
      ImGui::SameLine(0, 0);
      ImGui::TextUnformatted(shortened(name).c_str());
      if (wrong) ImGui::PopStyleColor();
      // A draft with errors has no numbers to show.
      const bool known = needs != nullptr && index < needs->requests.size();
      const RequestNeed need = known ? needs->requests[index] : RequestNeed{};
      for (const std::int64_t value : {need.prompt, need.fresh, need.blocks}) {
        ImGui::TableNextColumn();
        number_text(known ? format_count(value) : "-", 0, known ? 0 : theme().text_faint);
      }
      ImGui::PopID();
    }
  }
  ImGui::EndTable();
}

void ScenarioForm::draw_prompt() {
  const std::size_t index = selected_;
  const RequestDraft& request = editor_.draft().file.requests[index];
  label("prompt", "One token a byte.");
  int source = request.from_file ? 1 : 0;
  constexpr std::array kSources = {"text", "file"};
  if (segmented("prompt", &source, kSources.data(), 2)) {
    editor_.change(
        [&](ScenarioDraft& draft) { draft.file.requests[index].from_file = source == 1; });
    return;
  }
  if (request.from_file) {
    typed(
        fmt::format("requests[{}].text_file", index), request.text_file,
        [index](ScenarioDraft& draft, const std::string& value) {
          if (index < draft.file.requests.size()) draft.file.requests[index].text_file = value;
        },
        "beside the scenario, or in the assets");
    return;
  }
  const std::string place = fmt::format("requests[{}].text", index);
  const std::string& text = request.text.str();
  if (prompt_version_ != editor_.version() || prompt_of_ != index) {
    prompt_version_ = editor_.version();
    prompt_of_ = index;
    prompt_fits_ = text.size() <= kLongestTyped && text.find('\0') == std::string::npos;
    if (prompt_fits_ && prompt_ != text) prompt_ = text;
  }
  if (!prompt_fits_) {
    dim(fmt::format("{} that cannot be typed here: keep it in a file.",
                    format_bytes(static_cast<double>(text.size()))));
    error_of(place);
    return;
  }
  const bool edited = text_area(fmt::format("##{}", place).c_str(), prompt_,
                                {-FLT_MIN, ImGui::GetTextLineHeight() * 5});
  end_typing(
      [index](ScenarioDraft& draft, const std::string& value) {
        if (index < draft.file.requests.size()) draft.file.requests[index].text = value;
      },
      edited, prompt_);
  error_of(place);
}

void ScenarioForm::draw_request() {
  if (!begin_form("##request")) return;
  request_row("name", "Names of requests differ.", "name", &RequestDraft::name);
  draw_prompt();
  request_row("offset", "Bytes of the text that are skipped.", "offset", &RequestDraft::offset,
              "0");
  request_row("tokens", "Bytes of the text that are the prompt.", "tokens", &RequestDraft::tokens,
              "all that follow");
  request_row("new tokens", "Tokens that are sampled at most.", "max_new_tokens",
              &RequestDraft::max_new_tokens);
  request_row("arrives", "Step before which it comes.", "arrival_step", &RequestDraft::arrival_step,
              "0");
  request_row("is aborted", "Step before which it is taken away.", "abort_step",
              &RequestDraft::abort_step, "never");
  request_row("priority", "Smaller is more urgent, where admission goes by priority.", "priority",
              &RequestDraft::priority, "0");
  ImGui::EndTable();
  error_of(fmt::format("requests[{}]", selected_));
}

void ScenarioForm::draw_requests(const ScenarioNeeds* needs) {
  ImGui::SeparatorText("Requests");
  const std::size_t count = editor_.draft().file.requests.size();
  selected_ = std::min(selected_, count == 0 ? 0 : count - 1);
  error_of("requests");
  draw_request_list(needs);
  if (ImGui::Button("Add")) {
    editor_.change([&](ScenarioDraft& draft) {
      RequestDraft request;
      request.name = free_name(draft.file, "request");
      request.text = "Why does the window move?";
      request.max_new_tokens = "24";
      draft.file.requests.push_back(std::move(request));
    });
    selected_ = editor_.draft().file.requests.size() - 1;
  }
  ImGui::SameLine();
  ImGui::BeginDisabled(count == 0);
  if (ImGui::Button("Duplicate")) {
    editor_.change([&](ScenarioDraft& draft) {
      RequestDraft copy = draft.file.requests[selected_];
      copy.name = free_name(draft.file, copy.name.empty() ? "request" : copy.name);
      draft.file.requests.insert(
          draft.file.requests.begin() + static_cast<std::ptrdiff_t>(selected_) + 1, copy);
    });
    ++selected_;
  }
  ImGui::SameLine();
  if (ImGui::Button("Remove")) {
    editor_.change([&](ScenarioDraft& draft) {
      draft.file.requests.erase(draft.file.requests.begin() +
                                static_cast<std::ptrdiff_t>(selected_));
    });
  }
  ImGui::EndDisabled();
  if (selected_ < editor_.draft().file.requests.size()) draw_request();
}

bool ScenarioForm::lane_combo(const char* id, const std::string& shown,
                              const std::vector<std::string>& lanes, bool none,
                              std::string& chosen) const {
  bool changed = false;
  ImGui::SetNextItemWidth(-FLT_MIN);
  if (!ImGui::BeginCombo(id, shown.c_str())) return false;
  if (none && ImGui::Selectable("as all ops")) {
    chosen.clear();
    changed = true;
  }
  for (const std::string& lane : lanes) {
    if (ImGui::Selectable(lane.c_str(), lane == shown)) {
      chosen = lane;
      changed = true;
    }
  }
  ImGui::EndCombo();
  return changed;
}

void ScenarioForm::draw_lanes(const Ui& ui) {
  ImGui::SeparatorText("Lanes and references");
  if (ops_.empty()) {
    ops_ = ops_of_models();
    const std::vector<std::string> names = ui.bench.lane_names();
    for (const std::string& lane : names) {
      if (ui.bench.check_lanes({lane})) lanes_of_all_.push_back(lane);
    }
    for (const as_op_id op : ops_) {
      std::vector<std::string>& lanes = lanes_of_.emplace_back();
      for (const std::string& lane : names) {
        const std::string one = fmt::format("{}={}", as_op_find(op)->name, lane);
        if (ui.bench.check_lanes({"cpu", one})) lanes.push_back(lane);
      }
    }
  }
  dim("Of this session; a scenario file does not hold them.");
  const std::vector<std::string>& lanes = editor_.draft().lanes;
  if (begin_form("##lanes")) {
    label("references", "What every op is compared with.");
    constexpr std::array kNames = {"none", "sim", "both"};
    int references = static_cast<int>(editor_.draft().references);
    if (segmented("references", &references, kNames.data(), 3)) {
      editor_.change(
          [&](ScenarioDraft& draft) { draft.references = static_cast<References>(references); });
    }
    label("all ops", "Who computes, where nothing else is chosen.");
    std::string chosen;
    if (lane_combo("##all ops", base_lane(lanes), lanes_of_all_, false, chosen)) {
      editor_.change([&](ScenarioDraft& draft) { set_base_lane(draft.lanes, chosen); });
    }
    ImGui::EndTable();
  }
  if (!ImGui::TreeNode("Lane of one op")) return;
  if (begin_form("##op lanes")) {
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const as_op_id op = ops_[i];
      label(as_op_find(op)->name, as_op_find(op)->summary);
      const std::string own = lane_of(editor_.draft().lanes, op);
      std::string chosen;
      if (lane_combo(fmt::format("##{}", as_op_find(op)->name).c_str(),
                     own.empty() ? "as all ops" : own, lanes_of_[i], true, chosen)) {
        editor_.change([&](ScenarioDraft& draft) { set_lane(draft.lanes, op, chosen); });
      }
    }
    ImGui::EndTable();
  }
  ImGui::TreePop();
}

void ScenarioForm::draw(const Ui& ui, const DraftErrors& errors, const ScenarioNeeds* needs) {
  errors_ = &errors;
  draw_other_errors();
  places_.clear();
  error_of("");
  draw_requests(needs);
  draw_model(needs);
  draw_limits();
  draw_serving();
  draw_lanes(ui);
  elsewhere_.clear();
  for (const auto& [place, what] : errors) {
    if (!places_.contains(place)) elsewhere_.push_back(place);
  }
  errors_ = nullptr;
}

}  // namespace attnscope::gui
