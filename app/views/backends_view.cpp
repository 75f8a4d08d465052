#include "app/views/backends_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/text/format.h"
#include "engine/backend/attention_implementation.h"
#include "engine/backend/attention_request.h"
#include "engine/io/plural.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

const char* backend_word(BackendState state) {
  static constexpr const char* kWords[] = {"taken", "would do", "refuses the layer", "refused"};
  return kWords[static_cast<int>(state)];
}

BackendState state_of(const BackendVerdict& verdict, bool taken) {
  if (!verdict.accepted()) return BackendState::kRefused;
  if (!verdict.makes_layer()) return BackendState::kLayerRefuses;
  return taken ? BackendState::kTaken : BackendState::kWouldDo;
}

std::string taken_backend(const BackendSelection& selection) {
  if (selection.chosen < 0) return {};
  const BackendVerdict& chosen = selection.verdicts[static_cast<std::size_t>(selection.chosen)];
  return name_and_version(chosen.backend->name, chosen.variant);
}

// "layers 0-4, 6"
std::string layer_numbers(const std::vector<int>& numbers) {
  std::string text = agree(numbers.size(), "layer ", "layers ");
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    if (i > 0) text += ", ";
    text += std::to_string(numbers[i]);
    if (end > i) text += fmt::format("-{}", numbers[end]);
    i = end + 1;
  }
  return text;
}

// What the other layers get, where there are others.
std::string other_layers(const ModelBackends& model) {
  if (model.layers.size() < 2) return {};
  std::vector<std::string> others;
  bool same = true;
  for (const BackendLayers& one : model.layers) {
    if (&one == &model.layers[model.shown]) continue;
    same = same && one.taken == model.layers[model.shown].taken;
    others.push_back(
        fmt::format("{} ({}): {}", one.layers, one.name, one.taken.empty() ? "none" : one.taken));
  }
  return same ? " All other layers get the same."
              : fmt::format(" Others: {}.", fmt::join(others, "; "));
}

const AttentionBackend* chosen_row(const BackendSelection& selection) {
  if (selection.chosen < 0) return nullptr;
  return selection.verdicts[static_cast<std::size_t>(selection.chosen)].backend;
}

std::string computed_by(const AttentionLayer& layer, const AttentionBackend* backend) {
  std::vector<std::string> parts{"scores times " + format_number(layer.scale)};
  if (layer.chunk > 0) parts.push_back(fmt::format("within chunks of {} tokens", layer.chunk));
  if (!layer.alibi_slopes.empty()) {
    parts.push_back("ALiBi slopes of " + plural(std::ssize(layer.alibi_slopes), "head", "heads"));
  }
  parts.push_back(layer.kv_of < 0 ? std::string("keys and values of its own")
                                  : fmt::format("keys and values of layer {}", layer.kv_of));
  std::vector<std::string> ops;
  if (backend != nullptr) {
    for (const as_op_id op : serving_ops(*backend, layer)) ops.emplace_back(as_op_find(op)->name);
  }
  return fmt::format("{}{}{}", fmt::join(parts, ", "), ops.empty() ? "" : "; here by ",
                     fmt::join(ops, ", "));
}

}  // namespace

std::string asked_of_backends(const AttentionRequest& r) {
  if (r.kind != AttentionLayerKind::kAttention) {
    return fmt::format("layers of kind {}, {}", layer_kind_name(r.kind), r.dtype);
  }
  std::vector<std::string> parts;
  parts.push_back(plural(r.heads, "head", "heads"));
  parts.push_back(
      r.mla
          ? fmt::format("MLA with rows of {} and values of {}", r.head_size, r.value_size)
          : fmt::format("{} with size {}", plural(r.kv_heads, "KV head", "KV heads"), r.head_size));
  if (!r.mla && r.value_size != r.head_size) {
    parts.push_back(fmt::format("values of {}", r.value_size));
  }
  parts.push_back(r.dtype);
  parts.push_back("cache " + r.cache_dtype);
  if (r.first_tokens_16bit > 0) {
    parts.push_back("the first " + plural(r.first_tokens_16bit, "token", "tokens") + " in 16 bits");
  }
  parts.emplace_back(attention_type_name(r.type));
  if (r.block_size > 0) parts.push_back(fmt::format("blocks of {}", r.block_size));
  if (r.window > 0) {
    parts.push_back(fmt::format("window {} in {} of {}", r.window, r.windowed,
                                plural(r.layers, "layer", "layers")));
  }
  if (r.soft_cap > 0) parts.push_back("soft cap " + format_number(r.soft_cap));
  const std::pair<bool, const char*> features[] = {{r.sparse, "a selection of rows"},
                                                   {r.sinks, "sinks"},
                                                   {r.alibi, "ALiBi"},
                                                   {r.mm_prefix, "bidirectional prefixes"},
                                                   {r.non_causal, "non-causal"},
                                                   {r.head_scales, "scales a head"},
                                                   {r.batch_invariant, "batch invariance"},
                                                   {r.kv_connector, "cache connector"}};
  for (const auto& [asked, name] : features) {
    if (asked) parts.emplace_back(name);
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string backend_here(const AttentionBackend& backend) {
  if (!backend.runs_here()) return backend.why_not_here;
  if (backend.cpu_lane && backend.cuda_lane) return "lanes cpu and cuda compute it";
  return backend.cpu_lane ? "lane cpu computes it" : "lane cuda computes it";
}

std::string rules_of(const BackendLine& line) {
  if (line.broken.empty()) return "breaks no rule";
  return describe(line.broken);
}

BackendsView backends_view(const BackendSelection& selection) {
  BackendsView view;
  view.sentence = describe(selection);
  view.asked = asked_of_backends(selection.request);
  view.notes = selection.notes;
  for (std::size_t i = 0; i < selection.verdicts.size(); ++i) {
    const BackendVerdict& verdict = selection.verdicts[i];
    const bool taken = static_cast<int>(i) == selection.chosen;
    BackendLine line;
    line.order = verdict.order + 1;
    line.name = verdict.backend->name;
    line.version = verdict.variant;
    line.state = state_of(verdict, taken);
    line.taken = taken;
    line.word = backend_word(line.state);
    line.graph = graph_support_name(verdict.graph);
    line.here = backend_here(*verdict.backend);
    line.what = verdict.backend->what;
    line.source = verdict.backend->source;
    line.broken = verdict.broken;
    view.lines.push_back(std::move(line));
  }
  if (selection.chosen < 0) return view;
  const BackendVerdict& chosen = selection.verdicts[static_cast<std::size_t>(selection.chosen)];
  view.given =
      fmt::format("blocks of {}, layout {}, {}, CUDA graphs: {}",
                  plural(selection.block_size, "token", "tokens"), selection.layout,
                  metadata_form_name(chosen.backend->metadata), graph_support_name(chosen.graph));
  return view;
}

Result<ModelBackends> model_backends(const AttentionRegistry& registry, const ModelConfig& config,
                                     const BackendsAsk& ask, int layer) {
  const std::vector<AttentionLayerGroup> groups = attention_layers(config);
  ModelBackends model;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (std::ranges::find(groups[i].layers, layer) != groups[i].layers.end()) model.shown = i;
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    BackendLayers one{
        describe(groups[i].layer), layer_numbers(groups[i].layers), groups[i].layers, {}};
    auto asked = with_asked(ask, layer_request(attention_request(config), groups[i]));
    if (!asked) return asked.error();
    // Whose model it is stands elsewhere on the screen: the sentence is short.
    if (groups.size() > 1) asked->model = fmt::format("L{} ({})", one.layers.substr(1), one.name);
    auto selection = explain_backends(registry, *asked);
    if (!selection) return selection.error();
    one.taken = taken_backend(*selection);
    model.layers.push_back(std::move(one));
    if (i != model.shown) continue;
    model.view = backends_view(*selection);
    const AttentionBackend* const chosen = chosen_row(*selection);
    model.computed = computed_by(groups[i].layer, chosen);
    if (chosen != nullptr) model.form = chosen->metadata;
  }
  model.view.sentence += other_layers(model);
  return model;
}

}  // namespace attnscope
