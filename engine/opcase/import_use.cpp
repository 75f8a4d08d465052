#include "engine/opcase/import_use.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "engine/io/json_object.h"
#include "engine/io/plural.h"

namespace attnscope {
namespace {

constexpr std::string_view kLayer = "{layer}";
constexpr std::size_t kMostNamed = 12;  // in one sentence

// All names that an op's entry has, with what they are for.
std::vector<std::pair<std::string, std::string>> names_of(const ImportOp& op) {
  std::vector<std::pair<std::string, std::string>> names;
  const auto add = [&](const std::string& tap, const std::string& name) {
    if (!name.empty()) names.emplace_back(tap, name);
  };
  for (const auto& [tap, t] : op.tensors) {
    add(tap, t.name);
    for (const std::string& part : t.stack) add(tap, part);
    for (const std::string& part : t.concat) add(tap, part);
    add(tap + "'s factor", t.factor_name);
  }
  for (const auto& [tap, c] : op.caches) {
    add(tap, c.name);
    add(tap + "'s scales", c.scales);
  }
  for (const auto& [field, r] : op.ropes) add(field + "'s table", r.table);
  return names;
}

// The layer that a tensor is of by a name with "{layer}", -1 for a name without; nothing where it
// has not this name.
std::optional<int> layer_by(const std::string& name, const std::string& tensor) {
  const std::size_t at = name.find(kLayer);
  if (at == std::string::npos) return name == tensor ? std::optional(-1) : std::nullopt;
  const std::string_view before(name.data(), at);
  const std::string_view behind = std::string_view(name).substr(at + kLayer.size());
  if (tensor.size() < before.size() + behind.size() || !tensor.starts_with(before) ||
      !tensor.ends_with(behind)) {
    return std::nullopt;
  }
  const char* const end = tensor.data() + tensor.size() - behind.size();
  int layer = -1;
  const auto read = std::from_chars(tensor.data() + at, end, layer);
  return read.ec == std::errc() && read.ptr == end ? std::optional(layer) : std::nullopt;
}

std::string some(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kMostNamed);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

std::string with_layer(std::string name, int layer) {
  const std::size_t at = name.find(kLayer);
  return at == std::string::npos ? name : name.replace(at, kLayer.size(), std::to_string(layer));
}

void ImportUse::add(const std::vector<TensorFile>& files) {
  for (const TensorFile& file : files) {
    for (const TensorEntry& e : file.tensors()) tensors_.insert(e.name);
  }
}

void ImportUse::look(const std::string& op, const std::string& tap, const std::string& name,
                     int layer, bool taken) {
  const std::string full = with_layer(name, layer);
  const bool found = tensors_.contains(full);
  if (found && taken) used_.insert(full);
  const auto known = std::ranges::find_if(
      entries_, [&](const Entry& e) { return e.op == op && e.tap == tap && e.name == name; });
  if (known == entries_.end()) {
    entries_.push_back({op, tap, name, found});
  } else {
    known->found |= found;
  }
}

void ImportUse::looked_for(const ImportOp& op, int layer, bool taken) {
  looked_.insert({op.op.name, layer});
  for (const auto& [tap, name] : names_of(op)) look(op.op.name, tap, name, layer, taken);
}

void ImportUse::looked_for(const ImportTensor& tensor, const char* key) {
  look("", key, tensor.name, -1, true);
}

bool ImportUse::is_of_others(const ImportMap& map, const std::string& tensor) const {
  const auto by = [&](const ImportTensor& t) { return layer_by(t.name, tensor).has_value(); };
  if (map.token_ids && by(*map.token_ids)) return true;
  if (map.sample_rows && by(*map.sample_rows)) return true;
  if (map.token_to_req && by(*map.token_to_req)) return true;
  for (const ImportOp& op : map.ops) {
    for (const auto& [tap, name] : names_of(op)) {
      const auto layer = layer_by(name, tensor);
      if (!layer) continue;
      const bool looked = std::ranges::any_of(looked_, [&](const auto& one) {
        return one.first == op.op.name && (*layer < 0 || one.second == *layer);
      });
      if (!looked) return true;
    }
  }
  return false;
}

std::vector<std::string> ImportUse::sentences(const ImportMap& map) const {
  std::vector<std::string> out;
  // By op: what it lacks. One of which nothing is there is named alone.
  std::vector<std::string> absent, ops;
  for (const Entry& e : entries_) {
    if (std::ranges::count(ops, e.op) == 0) ops.push_back(e.op);
  }
  for (const std::string& op : ops) {
    std::vector<std::string> lacking;
    std::size_t all = 0;
    for (const Entry& e : entries_) {
      if (e.op != op) continue;
      ++all;
      if (e.found) continue;
      lacking.push_back(fmt::format("{} ({})", shown_name(e.name), e.tap));
    }
    if (lacking.empty()) continue;
    if (lacking.size() == all && !op.empty()) {
      absent.push_back(op);
    } else {
      out.push_back(fmt::format("{}no tensor of the dump is named {}", op.empty() ? "" : op + ": ",
                                some(lacking)));
    }
  }
  if (!absent.empty()) {
    out.push_back(fmt::format("none of their names in the map is in the dump: {}", some(absent)));
  }
  std::vector<std::string> unused;
  for (const std::string& tensor : tensors_) {
    if (!used_.contains(tensor) && !is_of_others(map, tensor)) unused.push_back(shown_name(tensor));
  }
  if (!unused.empty()) {
    out.push_back(fmt::format("of the dump nothing used {}: {}",
                              counted(unused.size(), "tensor", "tensors"), some(unused)));
  }
  return out;
}

}  // namespace attnscope
