#include "engine/backend/attention_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "engine/io/json_object.h"
#include "engine/io/letters.h"

namespace attnscope {
namespace {

// What a row must say of itself; nullptr = all is there.
const char* what_is_missing(const AttentionBackend& backend) {
  if (backend.name.empty()) return "name";
  if (backend.platforms.empty()) return "platforms";
  if (backend.dtypes.empty()) return "dtypes";
  if (backend.cache_dtypes.empty()) return "cache dtypes";
  if (backend.cache.axes.empty()) return "cache shape";
  if (!backend.variants.empty() && backend.variant == nullptr) return "choice of a variant";
  if (backend.runs_here() && backend.ops.empty()) return "ops that its lanes compute it by";
  if (!backend.runs_here() && backend.why_not_here.empty()) return "reason why no lane runs it";
  return nullptr;
}

}  // namespace

AttentionRegistry::AttentionRegistry() {
  for (const auto rows : {cuda_attention_rows, mla_attention_rows, other_attention_rows}) {
    for (AttentionBackend& row : rows()) {
      [[maybe_unused]] const Result<void> added = add(std::move(row));
      assert(added);
    }
  }
}

Result<void> AttentionRegistry::add(AttentionBackend backend) {
  if (const char* missing = what_is_missing(backend)) {
    return usage_error(
        fmt::format("attention backend {} has no {}", shown_name(backend.name), missing),
        "fill it in; engine/backend/attention_backend.h says what it is");
  }
  if (find(backend.name) != nullptr) {
    return usage_error(fmt::format("attention backend {} is there already", backend.name),
                       "give yours another name: its rules do not take the place of others'");
  }
  backends_.push_back(std::move(backend));
  return {};
}

const AttentionBackend* AttentionRegistry::find(std::string_view name) const {
  const auto same = [](char a, char b) { return lower(a) == lower(b); };
  const auto found = std::ranges::find_if(
      backends_, [&](const AttentionBackend& b) { return std::ranges::equal(b.name, name, same); });
  return found == backends_.end() ? nullptr : &*found;
}

std::vector<std::string> AttentionRegistry::names() const {
  std::vector<std::string> names;
  names.reserve(backends_.size());
  for (const AttentionBackend& backend : backends_) names.push_back(backend.name);
  return names;
}

std::vector<std::string> AttentionRegistry::cache_dtypes() const {
  std::vector<std::string> all;
  const auto take = [&](const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (std::ranges::find(all, name) == all.end()) all.push_back(name);
    }
  };
  for (const AttentionBackend& backend : backends_) {
    take(backend.cache_dtypes);
    for (const BackendVariant& variant : backend.variants) take(variant.cache_dtypes);
  }
  return all;
}

}  // namespace attnscope
