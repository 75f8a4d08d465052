#include "engine/backend/attention_selector.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/backend/attention_rules.h"
#include "engine/io/json_object.h"
#include "engine/io/nearest.h"

namespace attnscope {
namespace {

constexpr int kMostHeadDims = 1 << 16, kMostBlockTokens = 1 << 20;

const std::vector<std::string>& model_dtypes() {
  static const std::vector<std::string> kAll{"float16", "bfloat16", "float32"};
  return kAll;
}

Result<void> check_known(const char* what, const std::string& name,
                         const std::vector<std::string>& allowed) {
  if (std::ranges::find(allowed, name) != allowed.end()) return {};
  return usage_error(fmt::format("{} {} is not known", what, shown_name(name)),
                     did_you_mean(name, allowed) + "allowed: " + join(allowed));
}

Result<void> check_size(const char* what, int n, int least, int most) {
  if (n >= least && n <= most) return {};
  return bad_input(fmt::format("{} {} is out of range", what, n),
                   fmt::format("allowed: {} to {}", least, most));
}

Result<void> check_backend_request(const AttentionRegistry& registry,
                                   const AttentionRequest& request) {
  if (auto ok = check_known("dtype", request.dtype, model_dtypes()); !ok) return ok;
  // Rows that models here may have, and no backend takes.
  std::vector<std::string> caches = registry.cache_dtypes();
  caches.emplace_back("fp8_e5m2_per_token_head");
  if (auto ok = check_known("cache dtype", request.cache_dtype, caches); !ok) return ok;
  if (!request.backend.empty() && registry.find(request.backend) == nullptr) {
    return check_known("attention backend", request.backend, registry.names());
  }
  if (auto ok = check_size("block size", request.block_size, 0, kMostBlockTokens); !ok) return ok;
  if (request.kind != AttentionLayerKind::kAttention) return {};
  if (auto ok = check_size("head size", request.head_size, 1, kMostHeadDims); !ok) return ok;
  if (auto ok = check_size("value size", request.value_size, 1, kMostHeadDims); !ok) return ok;
  return {};
}

BackendVerdict verdict_on(const AttentionBackend& backend, const AttentionRequest& request,
                          int order) {
  BackendVerdict verdict;
  verdict.backend = &backend;
  verdict.variant = variant_name(backend, request);
  verdict.graph = as_asked(backend, request).graph;
  verdict.order = order;
  verdict.broken = broken_rules(backend, request);
  return verdict;
}

std::string name_and_version(const BackendVerdict& verdict) {
  return attnscope::name_and_version(verdict.backend->name, verdict.variant);
}

std::string platform_of(const AttentionRequest& request) {
  return request.platform == AttentionPlatform::kCuda ? capability_name(request.gpu)
                                                      : platform_name(request.platform);
}

// Backends that are tried before the chosen one and that only the block size keeps out.
std::vector<std::string> kept_out_by_block_size(const BackendSelection& selection) {
  std::vector<std::string> names;
  for (int i = 0; i < selection.chosen; ++i) {
    const BackendVerdict& verdict = selection.verdicts[static_cast<std::size_t>(i)];
    const bool alone = verdict.broken.size() == 1 && verdict.broken[0].rule == "block size";
    if (verdict.tried() && alone) names.push_back(name_and_version(verdict));
  }
  return names;
}

void settle_selection(BackendSelection& selection) {
  const AttentionRequest& request = selection.request;
  for (std::size_t i = 0; i < selection.verdicts.size(); ++i) {
    const BackendVerdict& verdict = selection.verdicts[i];
    const bool asked =
        request.backend.empty() ? verdict.tried() : verdict.backend->name == request.backend;
    if (!asked || !verdict.accepted()) continue;
    selection.chosen = static_cast<int>(i);
    break;
  }
  if (selection.chosen < 0) return;
  const BackendVerdict& chosen = selection.verdicts[static_cast<std::size_t>(selection.chosen)];
  selection.block_size =
      request.block_size > 0 ? request.block_size : preferred_block_size(*chosen.backend);
  selection.layout = page_layout(chosen);
  if (!chosen.makes_layer()) {
    std::string note = fmt::format(
        "{} is taken and then refuses to make the layer ({}): no other one is tried by then.",
        name_and_version(chosen), describe(chosen.broken));
    const auto other = std::ranges::find_if(
        selection.verdicts, [](const BackendVerdict& v) { return v.tried() && v.makes_layer(); });
    if (other != selection.verdicts.end()) {
      note += fmt::format(" {} would make it, where it is named.", name_and_version(*other));
    }
    selection.notes.push_back(std::move(note));
  }
  const auto kept_out = kept_out_by_block_size(selection);
  if (request.backend.empty() && !kept_out.empty()) {
    selection.notes.push_back(
        fmt::format("The block size {} alone keeps out {}, which would be tried before.",
                    request.block_size, fmt::join(kept_out, ", ")));
  }
}

}  // namespace

std::string page_layout(const BackendVerdict& verdict) {
  if (*verdict.backend->layout != '\0') return verdict.backend->layout;
  if (verdict.variant == "TRTLLM") return "HND";
  const std::vector<const char*>& axes = verdict.backend->cache.axes;
  const auto place = [&](std::string_view name) { return std::ranges::find(axes, name); };
  const auto heads = place("kv heads");
  return heads != axes.end() && heads < place("tokens") ? "HND" : "NHD";
}

bool BackendVerdict::accepted() const {
  return std::ranges::none_of(broken,
                              [](const BrokenRule& b) { return b.stage == RuleStage::kSelector; });
}

bool BackendVerdict::makes_layer() const { return broken.empty(); }

std::string describe(const BrokenRule& broken) {
  return fmt::format("{}: asked {}, allowed {}", broken.rule, broken.asked, broken.allowed);
}

Result<BackendSelection> explain_backends(const AttentionRegistry& registry,
                                          const AttentionRequest& given) {
  if (auto ok = check_backend_request(registry, given); !ok) return ok.error();
  BackendSelection selection;
  selection.request = given;
  AttentionRequest& request = selection.request;
  if (!request.backend.empty()) request.backend = registry.find(request.backend)->name;
  const std::vector<std::string> order = backend_order(request);
  for (const std::string& name : order) {
    const AttentionBackend* backend = registry.find(name);
    if (backend == nullptr) return internal_error("no attention backend is called " + name);
    const int place = static_cast<int>(selection.verdicts.size());
    selection.verdicts.push_back(verdict_on(*backend, request, place));
  }
  for (const AttentionBackend& backend : registry.all()) {
    if (std::ranges::find(order, backend.name) != order.end()) continue;
    selection.verdicts.push_back(verdict_on(backend, request, -1));
  }
  settle_selection(selection);
  return selection;
}

Result<const BackendVerdict*> chosen_backend(const BackendSelection& selection) {
  const AttentionRequest& request = selection.request;
  if (selection.chosen >= 0) {
    const BackendVerdict& chosen = selection.verdicts[static_cast<std::size_t>(selection.chosen)];
    if (chosen.makes_layer()) return &chosen;
    return bad_input(
        fmt::format("{} on {}: {} refuses to make the layer: {}", request.model,
                    platform_of(request), name_and_version(chosen), describe(chosen.broken)),
        "name another backend with --backend");
  }
  if (!request.backend.empty()) {
    const auto named = std::ranges::find_if(selection.verdicts, [&](const BackendVerdict& v) {
      return v.backend->name == request.backend;
    });
    return bad_input(
        fmt::format("{} on {}: {} was named and is refused: {}", request.model,
                    platform_of(request), name_and_version(*named), describe(named->broken)),
        "change what is asked, or leave --backend out");
  }
  std::vector<std::string> all;
  for (const BackendVerdict& verdict : selection.verdicts) {
    if (verdict.tried())
      all.push_back(name_and_version(verdict) + " (" + describe(verdict.broken) + ")");
  }
  return bad_input(fmt::format("{} on {}: no attention backend accepts it: {}", request.model,
                               platform_of(request), fmt::join(all, ", ")),
                   "choose another GPU, dtype, cache dtype or block size");
}

std::string describe(const BackendSelection& selection) {
  const AttentionRequest& request = selection.request;
  const std::string place = fmt::format("{} on {}", request.model, platform_of(request));
  const auto tried = std::ranges::count_if(selection.verdicts, &BackendVerdict::tried);
  if (selection.chosen < 0) {
    return request.backend.empty()
               ? fmt::format("{}: none of {} backends that are tried accepts it.", place, tried)
               : fmt::format("{}: {} was named and is refused.", place, request.backend);
  }
  const BackendVerdict& chosen = selection.verdicts[static_cast<std::size_t>(selection.chosen)];
  if (!request.backend.empty())
    return fmt::format("{}: {}, as named.", place, name_and_version(chosen));
  const auto others = std::ranges::count_if(
      selection.verdicts, [](const BackendVerdict& v) { return v.tried() && v.accepted(); });
  return fmt::format("{}: {}, number {} of {} that are tried; {} of them accepted.", place,
                     name_and_version(chosen), chosen.order + 1, tried, others);
}

std::string describe(std::span<const BrokenRule> broken) {
  std::vector<std::string> texts;
  texts.reserve(broken.size());
  for (const BrokenRule& one : broken) texts.push_back(describe(one));
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::string name_and_version(std::string_view name, std::string_view version) {
  return version.empty() ? std::string(name) : fmt::format("{} ({})", name, version);
}

}  // namespace attnscope
